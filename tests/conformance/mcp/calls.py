"""Connections of the official Python client to the gateway, readers of its results, and persons who fill in forms.

The checks of the other scripts run in both modes of the client: `auto`, which takes revision 2026-07-28, and `legacy`,
which makes a session of revision 2025-11-25. Not here: any check.
"""

import asyncio
import contextlib
import http.client
import json
import urllib.parse

import mcp_types as t
from mcp import Client, MCPError

from checks import GATEWAY_URL, check

MODES = {"auto": "2026-07-28", "legacy": "2025-11-25"}


def in_each_mode(sentence):
    """Runs a check, a function of the mode, in both modes."""

    def run(function):
        for mode in MODES:
            check(f"{mode}: {sentence}")(lambda mode=mode: function(mode))
        return function

    return run


def connected(mode, path="/mcp", url=GATEWAY_URL, **more):
    return client_of(f"{url}{path}", mode, **more)


def client_of(server, mode, person=None, notes=None, **more):
    return Client(
        server, mode=mode, elicitation_callback=person, message_handler=notes, read_timeout_seconds=30, **more
    )


async def ask(client, message, tool="demo", **more):
    arguments = {"message": message, **more.pop("arguments", {})}
    return await client.call_tool(tool, arguments, **more)


class Notes:
    """The notifications that a client receives."""

    def __init__(self):
        self.all = []

    async def __call__(self, message):
        self.all.append(message)

    def of(self, kind):
        return [note for note in self.all if isinstance(note, kind)]

    def progress(self):
        """Progress notifications in the order of the server: the client hands them on in tasks of their own."""
        return sorted((note.params for note in self.of(t.ProgressNotification)), key=lambda params: params.progress)

    def noted(self, name):
        """The values of a key in the `_meta` of progress notifications."""
        values = [(params.meta or {}).get(f"interlingua/{name}") for params in self.progress()]
        return [value for value in values if value is not None]

    def text(self):
        return "".join(self.noted("delta"))


class Person:
    """Fills in forms with answers given beforehand, the last one again and again. An answer is a result or a function."""

    def __init__(self, *answers):
        self.answers, self.seen = list(answers), []

    async def __call__(self, _, params):
        self.seen.append(params)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(params) if callable(answer) else answer

    @property
    def forms(self):
        return [params for params in self.seen if params.mode == "form"]


def accept(**content):
    return t.ElicitResult(action="accept", content=content)


DECLINE, CANCEL = t.ElicitResult(action="decline"), t.ElicitResult(action="cancel")


def meta(result, name):
    return (result.meta or {}).get(f"interlingua/{name}")


def texts(result):
    """The texts of a result that are for people: the block that names the session is for models only."""
    return [block.text for block in result.content if block.type == "text" and not is_note(block)]


def is_note(block):
    return block.annotations is not None and block.annotations.audience == ["assistant"]


async def raises(code, awaitable):
    """The JSON-RPC error that the client raises."""
    try:
        await awaitable
    except MCPError as error:
        assert error.code == code, (error.code, error.message, error.data)
        return error
    raise AssertionError(f"no error {code}")


def eventually(seconds=10):
    """Yields until the time is up: the loop that asks for something returns once it has it."""
    return _eventually(asyncio.get_running_loop().time() + seconds)


async def _eventually(end):
    while True:
        yield
        assert asyncio.get_running_loop().time() < end, "it did not come in time"
        await asyncio.sleep(0.05)


async def http_json(method, path, body=None, headers=None):
    """A request over another route of the gateway: the status and the body."""

    def send():
        where = urllib.parse.urlsplit(GATEWAY_URL)
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
        with contextlib.closing(connection):
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"content-type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None

    return await asyncio.to_thread(send)


async def native_run(run):
    """The run over the Agent API."""
    status, body = await http_json("GET", f"/agents/demo/runs/response_{run}")
    assert status == 200, (status, body)
    return body


async def status_of(run, *wanted):
    """Waits until the run has one of these states."""
    async for _ in eventually():
        body = await native_run(run)
        if body["status"] in wanted:
            return body["status"]


async def native_answer(run, session, approve):
    """Decides the only open question of a run over the Agent API, and returns the final response."""
    async for _ in eventually():
        output = (await native_run(run))["output"] or []
        asked = [message for message in output if message["type"] == "mcp_approval_request"]
        if asked:
            break
    data = {"approval_request_id": asked[0]["content"][0]["data"]["id"], "approve": approve}
    message = {"type": "mcp_approval_response", "role": "user", "content": [{"type": "data", "data": data}]}
    body = {"stream": False, "session_id": session, "input": [message]}
    status, answer = await http_json("POST", "/agents/demo/process", body)
    assert status == 200, (status, answer)
    return answer
