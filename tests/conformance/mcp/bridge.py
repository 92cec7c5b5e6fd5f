"""`interlingua mcp` between the official Python client and the gateway, as a program that a host starts."""

import os

import anyio
import mcp_types as t
from mcp import StdioServerParameters

from calls import (
    MODES, Notes, Person, accept, ask, client_of, in_each_mode, meta, native_run, raises, status_of, texts,
)
from checks import GATEWAY_URL, close


def bridged(mode, path="/mcp", **more):
    arguments = ["mcp", "--url", f"{GATEWAY_URL}{path}"]
    return client_of(StdioServerParameters(command=os.environ["INTERLINGUA"], args=arguments), mode, **more)


async def progress(*_):
    """Asks for progress notifications."""


@in_each_mode("bridge: the revision, the tools and a call with progress")
async def _(mode):
    notes = Notes()
    async with bridged(mode, notes=notes) as client:
        assert client.protocol_version == MODES[mode], client.protocol_version
        assert [tool.name for tool in (await client.list_tools()).tools] == ["demo", "gone", "translate", "answer", "wait"]
        result = await ask(client, "long 40 20", progress_callback=progress)
        assert notes.text() == texts(result)[0], (notes.text(), result)
        assert (await native_run(meta(result, "run")))["status"] == "completed"


@in_each_mode("bridge: a person answers, and errors keep their codes")
async def _(mode):
    async with bridged(mode, person=Person(accept(decision="accept"))) as client:
        assert "The mail was sent to ada@example.com." in texts(await ask(client, "approval"))
        await raises(t.INVALID_PARAMS, client.call_tool("nobody", {"message": "hello"}))
        assert (await ask(client, "fail")).is_error


@in_each_mode("bridge: a call that the client gives up is cancelled, and others go on")
async def _(mode):
    notes = Notes()
    async with bridged(mode, notes=notes) as client:
        with anyio.move_on_after(1):
            await ask(client, "long 500 50", progress_callback=progress)
            raise AssertionError("it was not given up")
        (run,) = notes.noted("run")
        assert await status_of(run, "canceled", "completed", "failed") == "canceled"
        assert texts(await ask(client, "echo still here")) == ["still here"]


@in_each_mode("bridge: twenty calls at once get their own answers")
async def _(mode):
    async with bridged(mode) as client, anyio.create_task_group() as group:

        async def one(number):
            result = await ask(client, f"echo number {number}")
            assert texts(result) == [f"number {number}"], result

        for number in range(20):
            group.start_soon(one, number)


close()
