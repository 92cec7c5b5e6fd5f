"""Long work with the official Python client: tasks of revision 2026-07-28 and, without tasks, `wait`; cancelling; streams
that break off and are resumed; lists that change."""

import asyncio
import contextlib
import json
from typing import Any, Literal

import anyio
import httpx2
import mcp_types as t
from mcp.client.extension import ClientExtension, ResultClaim
from pydantic import TypeAdapter

from calls import (
    CANCEL, Notes, Person, accept, ask, connected, eventually, in_each_mode, meta, native_answer, native_run, raises,
    status_of, texts,
)
from checks import GATEWAY_URL, check, close
from cutting_proxy import CuttingProxy
from reload import replace_in_config

ANYTHING = TypeAdapter(dict[str, Any])
ENDED = ("completed", "failed", "cancelled")


class TaskRequest(t.Request[dict[str, Any], str]):
    name_param = "taskId"


class CreatedTask(t.Result):
    result_type: Literal["task"]
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int


async def task(session, method, task_id, **params):
    request = TaskRequest(method=f"tasks/{method}", params={"taskId": task_id, **params})
    return await session.send_request(request, ANYTHING)


async def until(session, task_id, *wanted):
    async for _ in eventually():
        found = await task(session, "get", task_id)
        assert found["resultType"] == "complete" and found["taskId"] == task_id, found
        if found["status"] in (wanted or ENDED):
            return found


class Tasks(ClientExtension):
    """The tasks extension: takes a task for a result, asks a person, and polls to the end."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, person=None):
        self.person, self.tasks, self.states = person, [], []

    def claims(self):
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self.resolve)]

    async def resolve(self, created, context):
        self.tasks.append(created)
        async for _ in eventually():
            found = await task(context.session, "get", created.task_id)
            self.states.append(found["status"])
            if found["status"] == "input_required":
                answers = {}
                for key, request in found["inputRequests"].items():
                    assert request["method"] == "elicitation/create", request
                    params = t.ElicitRequestFormParams.model_validate(request["params"])
                    answers[key] = (await self.person(None, params)).model_dump(by_alias=True, exclude_none=True)
                ack = await task(context.session, "update", created.task_id, inputResponses=answers)
                assert set(ack) <= {"resultType", "_meta"} and ack["resultType"] == "complete", ack
            elif found["status"] == "completed":
                return t.CallToolResult.model_validate(found["result"], by_name=False)
            else:
                assert found["status"] == "working", found


def with_tasks(path="/tasks", person=None):
    tasks = Tasks(person)
    return tasks, connected("auto", path, person=person, extensions=[tasks])


async def created(client, message):
    result = await client.session.call_tool("demo", {"message": message}, allow_claimed=True)
    assert isinstance(result, CreatedTask), result
    return result


async def progress(*_):
    """Asks for progress notifications."""


@check("tasks: a call becomes a task, which is polled to its result")
async def _():
    tasks, client = with_tasks()
    async with client:
        result = await ask(client, "long 20 20")
        (made,) = tasks.tasks
        assert made.status == "working" and made.poll_interval_ms == 100 and made.ttl_ms == 86_400_000, made
        assert texts(result)[0] and meta(result, "run") == made.task_id, result
        assert (await native_run(made.task_id))["status"] == "completed"


@check("tasks: what an agent reports as its failure is a result, a broken gateway would be an error")
async def _():
    tasks, client = with_tasks()
    async with client:
        result = await ask(client, "fail")
        assert result.is_error and texts(result)[0].startswith("MODEL_EXECUTION_FAILED: "), result


@check("tasks: questions are answered one by one, and a question that was dismissed comes back under a new key")
async def _():
    person = Person(accept(decision="accept"))
    tasks, client = with_tasks(person=person)
    async with client:
        result = await ask(client, "approval")
        assert "The mail was sent to ada@example.com." in texts(result) and len(tasks.tasks) == 1, result
        made = await created(client, "approvals")
        asked = (await until(client.session, made.task_id, "input_required"))["inputRequests"]
        first, second = asked
        cancel, reject = {"action": "cancel"}, {"action": "accept", "content": {"decision": "reject"}}
        await task(client.session, "update", made.task_id, inputResponses={first: reject, "unknown": {"action": "accept"}})
        left = (await task(client.session, "get", made.task_id))["inputRequests"]
        assert list(left) == [second], left
        await task(client.session, "update", made.task_id, inputResponses={second: cancel})
        (again,) = (await task(client.session, "get", made.task_id))["inputRequests"]
        assert again != second and again.startswith(second), (second, again)
        undecided = {again: {"action": "accept", "content": {}}}
        error = await raises(
            t.INVALID_PARAMS, task(client.session, "update", made.task_id, inputResponses=undecided)
        )
        assert error.data["code"] == "ANSWER_UNDECIDED", error.data
        await task(client.session, "update", made.task_id, inputResponses={again: reject})
        done = await until(client.session, made.task_id)
        assert done["status"] == "completed" and "rejected" in str(done["result"]["content"]), done


@check("tasks: a task is cancelled, twice, and only by those who know it")
async def _():
    _, client = with_tasks()
    async with client:
        made = await created(client, "long 500 50")
        assert (await task(client.session, "get", made.task_id))["status"] == "working"
        for _ in range(2):
            await task(client.session, "cancel", made.task_id)
        assert (await until(client.session, made.task_id))["status"] == "cancelled"
        for method in ("get", "cancel"):
            await raises(t.INVALID_PARAMS, task(client.session, method, "of-no-one"))


@check("tasks: a question that comes at once is asked before there is a task")
async def _():
    person = Person(accept(decision="accept"))
    tasks, client = with_tasks("/asking-tasks", person)
    async with client:
        result = await ask(client, "approval")
        assert "The mail was sent to ada@example.com." in texts(result), result
        assert len(person.forms) == 1 and "input_required" not in tasks.states, tasks.states


@check("tasks: clients without the extension get an ordinary result, or are refused where a task is required")
async def _():
    async with connected("auto", "/tasks") as client:
        assert texts(await ask(client, "echo hello")) == ["hello"]
    async with connected("auto", "/asking-tasks") as client:
        error = await raises(-32021, ask(client, "hello"))
        assert "io.modelcontextprotocol/tasks" in error.data["requiredCapabilities"]["extensions"], error.data
        await raises(-32021, task(client.session, "get", "of-no-one"))
    async with connected("legacy", "/tasks") as client:
        assert texts(await ask(client, "echo hello")) == ["hello"]
        await raises(t.METHOD_NOT_FOUND, task(client.session, "get", "of-no-one"))


@check("tasks: a run that began over another protocol is a task too, answered there while it is watched here")
async def _():
    async with connected("auto") as plain:
        waits = await ask(plain, "approval")
    run, session = meta(waits, "run"), meta(waits, "session")
    _, client = with_tasks(person=Person(CANCEL))
    async with client:
        assert (await until(client.session, run, "input_required"))["inputRequests"]
        await native_answer(run, session, approve=True)
        done = await until(client.session, run)
        assert "The mail was sent to ada@example.com." in str(done["result"]["content"]), done


@in_each_mode("a call that takes too long ends as working, and `wait` brings the whole answer")
async def _(mode):
    for more in ({}, {"progress_callback": progress}):
        async with connected(mode, "/impatient") as client:
            result = await ask(client, "long 60 20", **more)
            assert not result.is_error and meta(result, "status") == "working", result
            run = meta(result, "run")
            assert run in " ".join(texts(result)) and "wait" in " ".join(texts(result)), result
            async for _ in eventually():
                result = await client.call_tool("wait", {"run": run})
                if meta(result, "status") != "working":
                    break
            assert meta(result, "status") == "completed" and meta(result, "run") == run, result
            output = (await native_run(run))["output"]
            assert texts(result)[0] == output[-1]["content"][0]["text"], result
        unknown = "01a2b3c4-0000-7000-8000-000000000000"
    async with connected(mode, "/impatient") as client:
        wrong = await client.call_tool("wait", {"run": unknown})
        assert wrong.is_error and texts(wrong)[0].startswith("RESOURCE_NOT_FOUND: "), wrong


@in_each_mode("a call that the client gives up is cancelled")
async def _(mode):
    notes = Notes()
    async with connected(mode, notes=notes) as client:
        with anyio.move_on_after(1):
            await ask(client, "long 500 50", progress_callback=progress)
            raise AssertionError("it was not given up")
        (run,) = notes.noted("run")
        assert await status_of(run, "canceled", "completed", "failed") == "canceled"
        # The session goes on.
        assert texts(await ask(client, "echo still here")) == ["still here"]


def request(method, params):
    return {"jsonrpc": "2.0", "id": method, "method": method, "params": params}


@check("legacy: a client that disappears stops nothing")
async def _():
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    information = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "suite", "version": "1"}}
    call = {"name": "demo", "arguments": {"message": "long 60 20"}, "_meta": {"progressToken": "p"}}
    async with httpx2.AsyncClient(base_url=GATEWAY_URL, headers=headers, timeout=30) as http:
        begun = await http.post("/mcp", json=request("initialize", information))
        session = {"mcp-session-id": begun.headers["mcp-session-id"]}
        async with http.stream("POST", "/mcp", json=request("tools/call", call), headers=session) as answer:
            async for line in answer.aiter_lines():
                if "interlingua/run" in line:
                    run = json.loads(line.removeprefix("data: "))["params"]["_meta"]["interlingua/run"]
                    break
    assert await status_of(run, "canceled", "completed", "failed") == "completed"


proxy = CuttingProxy(GATEWAY_URL)
PROXY_URL = f"http://127.0.0.1:{proxy.listener.getsockname()[1]}"


@check("legacy: a stream that breaks off is resumed, and every word arrives once")
async def _():
    # The client repeats the id of the first cut if a resumed stream breaks off too: one cut for each call.
    for cut in (2, 4, 9):
        notes, before = Notes(), proxy.made
        async with connected("legacy", notes=notes, url=PROXY_URL) as client:
            # The session's own stream is open by then.
            await asyncio.sleep(0.5)
            proxy.cut_next(cut)
            result = await ask(client, "long 60 30", progress_callback=progress)
            assert proxy.made - before == 1, "the stream was not cut"
            assert notes.text() == texts(result)[0], (notes.text(), texts(result))
            values = [params.progress for params in notes.progress()]
            assert len(set(values)) == len(values), values
            assert len(notes.noted("run")) == 1, notes.progress()


@check("legacy: a question in a stream that breaks off is asked again in the resumed one, and answered once")
async def _():
    person, before = Person(accept(decision="accept")), proxy.made
    async with connected("legacy", person=person, url=PROXY_URL) as client:
        await asyncio.sleep(0.5)
        proxy.cut_next(2)
        result = await ask(client, "long 20 20 approval", progress_callback=progress)
        assert proxy.made == before + 1, "the stream was not cut"
        assert "The mail was sent to ada@example.com." in texts(result), result
        assert len(person.forms) == 1, person.forms


@check("legacy: a stream that the gateway closes is resumed too")
async def _():
    notes = Notes()
    async with connected("legacy", "/closing", notes=notes) as client:
        result = await ask(client, "long 50 30", progress_callback=progress)
        assert meta(result, "status") == "completed" and notes.text() == texts(result)[0], (notes.text(), result)


@check("auto: a modern stream that breaks off is a cancelled call")
async def _():
    notes, before = Notes(), proxy.made
    async with connected("auto", notes=notes, url=PROXY_URL) as client:
        proxy.cut_next(3)
        with contextlib.suppress(Exception):
            await ask(client, "long 200 50", progress_callback=progress, read_timeout_seconds=5)
        assert proxy.made == before + 1, "the stream was not cut"
    (run,) = notes.noted("run")
    assert await status_of(run, "canceled", "completed", "failed") == "canceled"


@check("legacy: after a reload the client learns that tools and prompts changed")
async def _():
    notes = Notes()
    async with connected("legacy", notes=notes) as client:
        await asyncio.sleep(0.5)
        with replace_in_config("Translates a text.", "Translates a text into three languages."):
            async for _ in eventually():
                if notes.of(t.ToolListChangedNotification):
                    break
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert tools["translate"].description.startswith("Translates a text into three"), tools["translate"]
        assert texts(await ask(client, "echo the same session")) == ["the same session"]


@check("auto: a listener learns what it asked for, and nothing else")
async def _():
    async with connected("auto") as client, client.listen(tools_list_changed=True) as listener:
        assert listener.honored.tools_list_changed and not listener.honored.prompts_list_changed, listener.honored
        before = (await client.list_tools()).tools
        with replace_in_config("Translates a text.", "Translates a text into four languages."):
            event = await asyncio.wait_for(anext(listener), 10)
            assert type(event).__name__ == "ToolsListChanged", event
            after = (await client.list_tools()).tools
            assert [tool.name for tool in after] == [tool.name for tool in before], after
            (translate,) = [tool for tool in after if tool.name == "translate"]
            assert translate.description.startswith("Translates a text into four"), translate


close()
