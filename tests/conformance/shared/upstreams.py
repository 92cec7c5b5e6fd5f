"""Checks of a real agent behind the gateway, asked over the Agent API and over Responses.

    from upstreams import Agent, Expect, concurrent_sessions, words

    agent = Agent("scripted")
    words(agent, {"hello": Expect("You said: hello"), "error": Expect(status="failed")})

The agent of every suite understands the same words; what it can say differs by protocol, so each suite has its own
table of expectations. The gateway serves each agent at `/agents/NAME` (Agent API) and as a model of `/v1`
(Responses). Uses only the standard library.
"""

import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import subprocess
import time
import urllib.parse
import uuid
from dataclasses import dataclass, field

from checks import GATEWAY_URL, check
from native import Connection, Stream, question

CALLS = ("plugin_call", "mcp_call")


@dataclass
class Expect:
    """What a word leads to. `None`: not checked."""

    text: str | None = None
    status: str = "completed"
    reasoning: str | None = None
    calls: list | None = None  # (name, arguments) of the tools that the agent ran
    outputs: list | None = None  # their outputs, as text or as parsed JSON
    client_calls: list | None = None  # (name, arguments) of the tools that the client is to run
    asks: list | None = None  # kinds of the questions: approval, input, auth
    media: list | None = None  # types of the contents that are no text
    code: str | None = None  # of a failure
    responses: bool = True  # False: over Responses this word is not checked
    more: list = field(default_factory=list)  # functions of the stream


class Failed:
    """A turn that failed before its first event: an HTTP error instead of a stream."""

    status, text, reasoning, output = "failed", "", "", []

    def __init__(self, http_status, body):
        self.http_status, self.body = http_status, body

    @property
    def last(self):
        return {"status": "failed", "error": self.body.get("error", self.body)}

    def messages(self, kind=None):
        return []


class Agent:
    """An agent of the gateway. `session` names the conversation; without one each turn begins its own."""

    def __init__(self, name):
        self.name = name
        self.url = f"{GATEWAY_URL}/agents/{name}"

    def turn(self, text, session=None, **more):
        """One turn over the Agent API: a `Stream`, or `Failed`."""
        body = question(text, session_id=session or new_id(), **more) if isinstance(text, str) else dict(
            input=text, session_id=session or new_id(), **more
        )
        with Connection(f"{self.url}/process", body) as connection:
            if connection.status != 200:
                return Failed(connection.status, connection.json())
            return Stream(list(connection.frames())).well_formed()

    def decide(self, session, stream, approve=True, reason=None, **interrupt):
        """Answers the only question of a stream."""
        (item,) = questions(stream)
        data = {"approval_request_id": item["id"], "approve": approve}
        if reason is not None:
            data["reason"] = reason
        if interrupt:
            data["interrupt"] = interrupt
        content = [{"type": "data", "data": data}]
        return self.turn([{"type": "mcp_approval_response", "role": "user", "content": content}], session)

    def output(self, session, call_id, output):
        """Sends the output of a tool that the client ran."""
        content = [{"type": "data", "data": {"call_id": call_id, "output": output}}]
        return self.turn([{"type": "function_call_output", "role": "tool", "content": content}], session)

    def response(self, text, **more):
        """One turn over Responses: the HTTP status and the body."""
        where = urllib.parse.urlsplit(GATEWAY_URL)
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
        body = json.dumps({"model": self.name, "input": text, **more})
        connection.request("POST", "/v1/responses", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        result = answer.status, json.loads(answer.read())
        connection.close()
        return result


def new_id():
    return f"s-{uuid.uuid4().hex[:12]}"


def parts(stream, *kinds):
    """The data of the messages of these types."""
    return [part["data"] for m in stream.output if m["type"] in kinds for part in m["content"] or [] if "data" in part]


def calls(stream, *kinds):
    return [(call["name"], parsed(call["arguments"])) for call in parts(stream, *kinds)]


def questions(stream):
    return parts(stream, "mcp_approval_request")


def parsed(text):
    """JSON of a text, or the text."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


def reasoning(stream):
    return "".join(p.get("text") or "" for m in stream.messages("reasoning") for p in m["content"] or [])


def equal(what, found, expected):
    assert expected is None or found == expected, f"{what}: {found!r}, not {expected!r}"


def judge(stream, expect):
    """Compares a turn with what was expected of it."""
    equal("status", stream.status, expect.status)
    equal("text", stream.text, expect.text)
    if isinstance(stream, Stream) and expect.text is not None:
        assert stream.streamed_text in ("", expect.text), f"streamed: {stream.streamed_text!r}"
    equal("reasoning", reasoning(stream), expect.reasoning)
    equal("calls", calls(stream, *CALLS), expect.calls)
    equal("client calls", calls(stream, "function_call"), expect.client_calls)
    outputs = [parsed(data["output"]) for data in parts(stream, *(f"{kind}_output" for kind in CALLS))]
    equal("outputs", outputs, expect.outputs)
    asked = [item.get("interrupt", {}).get("kind", "approval") for item in questions(stream)]
    equal("questions", asked, expect.asks)
    if expect.media is not None:
        found = [p["type"] for m in stream.messages("message") for p in m["content"] or [] if p["type"] != "text"]
        equal("media", found, expect.media)
    if expect.code is not None:
        equal("code", (stream.last.get("error") or {}).get("code"), expect.code)
    for also in expect.more:
        also(stream)


def judge_response(status, body, expect):
    """The same over Responses, as far as it can say it."""
    if expect.status == "failed":
        assert status >= 400 or body["status"] == "failed", (status, body)
        return
    assert status == 200, (status, body)
    equal("status", body["status"], expect.status)
    messages = [item for item in body["output"] if item["type"] == "message"]
    said = "".join(part.get("text", "") for item in messages for part in item["content"])
    # A question with a message is shown as text too.
    if not expect.asks:
        equal("text", said, expect.text)
    if expect.client_calls is not None:
        found = [(i["name"], parsed(i["arguments"])) for i in body["output"] if i["type"] == "function_call"]
        equal("client calls", found, expect.client_calls)


def words(agent, table):
    """Checks every word, over both protocols."""
    for word, expect in table.items():

        @check(f"{agent.name}: `{word}`")
        def _(word=word, expect=expect):
            judge(agent.turn(word), expect)

        if expect.responses:

            @check(f"{agent.name}: `{word}` over Responses")
            def _(word=word, expect=expect):
                judge_response(*agent.response(word), expect)


def concurrent_sessions(agent, count=50, said=lambda number: f"hello {number}"):
    """Many sessions at once never mix."""

    @check(f"{agent.name}: {count} sessions at once get their own answers")
    def _():
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            streams = list(pool.map(lambda number: agent.turn(said(number)), range(count)))
        for number, stream in enumerate(streams):
            assert stream.status == "completed", stream.last
            assert re.search(rf"\b{number}\b", stream.text), (number, stream.text)


def log(expected):
    """The log of the gateway, once it contains a text: lines are written up to 10 ms late."""
    deadline = time.monotonic() + 5
    while True:
        text = pathlib.Path(os.environ["GATEWAY_LOG"]).read_text()
        if expected in text or time.monotonic() > deadline:
            return text
        time.sleep(0.01)


def probe(agent, *arguments):
    """Exit status and output of `interlingua probe`, with the configuration of the gateway."""
    command = [os.environ["INTERLINGUA"], "probe", agent.name, "--config", "gateway.toml", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr
