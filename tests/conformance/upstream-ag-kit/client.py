"""The gateway as the client of CloudBase's agent server: an agent of its own kind, and one of LangGraph."""

import json

from checks import GATEWAY_URL, check, close
from native import Connection
from upstreams import Agent, Expect, calls, concurrent_sessions, log, new_id, parts, words

events, langgraph = Agent("events"), Agent("langgraph")

UNICODE = "žluťoučký 🦊 line\u2028paragraph\u2029next\u0085end\r\n"
PARIS, ROME = ("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})
LOCATE = {
    "type": "function",
    "function": {"name": "locate", "description": "Where", "parameters": {"type": "object", "properties": {}}},
}

words(
    events,
    {
        "hello there": Expect("You said: hello there "),
        "tool": Expect("I look it up.It is 21 degrees in Paris.", calls=[PARIS], outputs=[{"celsius": 21}]),
        "parallel": Expect(
            "Paris 21, Rome 25.", calls=[PARIS, ROME], outputs=[{"celsius": 25}, {"celsius": 21}]
        ),
        "client tool": Expect("", client_calls=[("locate", {"precise": True})]),
        "approval": Expect("", asks=["approval"]),
        "question": Expect("Before I begin: ", asks=["input"]),
        # The server cuts the connection, and has no word for why.
        "error": Expect("", status="failed", code="UPSTREAM_TRUNCATED"),
        "fail": Expect("Some words ", status="failed", code="UPSTREAM_TRUNCATED", responses=False),
        "unicode": Expect(UNICODE),
        "empty": Expect(""),
    },
)
words(
    langgraph,
    {
        "hello there": Expect("You said: hello there "),
        "tool": Expect("I look it up.I got ['{\"celsius\":21}']", calls=[PARIS], outputs=[{"celsius": 21}]),
        # The server puts both calls into one, and leaves the first one's result out.
        "parallel": Expect(calls=[PARIS, ROME], outputs=[{"celsius": 25}]),
        "client tool": Expect("", client_calls=[("locate", {"precise": True})]),
        "approval": Expect("I would like to delete.", asks=["approval"], calls=[("delete_file", {"path": "a.txt"})]),
        "question": Expect("", asks=["input"]),
        "error": Expect("", status="failed", code="UPSTREAM_TRUNCATED"),
        "fail": Expect("Some words ", status="failed", code="UPSTREAM_TRUNCATED", responses=False),
        "broken": Expect("", status="failed", code="UPSTREAM_TRUNCATED", responses=False),
        "unicode": Expect(UNICODE),
        "empty": Expect(""),
    },
)

for agent in (events, langgraph):

    @check(f"{agent.name}: the conversation of a session is remembered")
    def _():
        session = new_id()
        agent.turn("hello there", session)
        second = agent.turn("history", session)
        assert second.text == "Before, you said: ['hello there']", second.text
        assert agent.turn("history").text == "Before, you said: []", "another session sees it"

    @check(f"{agent.name}: the output of a client's tool goes back, and the tool stays declared")
    def _():
        session = new_id()
        first = agent.turn("client tool", session, tools=[LOCATE])
        assert calls(first, "function_call") == [("locate", {"precise": True})]
        second = agent.output(session, "call_1", "48.85,2.35")
        assert second.text == "I got ['48.85,2.35']", second.last


@check("events: an approval is answered in the form of its question")
def _():
    for approve, expected in ((True, '"type":"accept"'), (False, '"type":"response"')):
        session = new_id()
        stream = events.turn("approval", session)
        more = {} if approve else {"decision": "respond", "text": "no"}
        second = events.decide(session, stream, approve, **more)
        assert second.status == "completed" and expected in second.text, second.text


@check("events: an edit goes to the agent with its arguments")
def _():
    session = new_id()
    stream = events.turn("approval", session)
    edit = {"decision": "edit", "arguments": json.dumps({"path": "b.txt"})}
    assert '"b.txt"' in events.decide(session, stream, True, **edit).text


@check("events: a question is answered in plain words")
def _():
    session = new_id()
    stream = events.turn("question", session)
    second = events.decide(session, stream, True, decision="respond", text="blue")
    assert second.text == "Your answer: 'blue'", second.text


@check("langgraph: after an approval only the result of the call is new")
def _():
    session = new_id()
    stream = langgraph.turn("approval", session)
    second = langgraph.decide(session, stream, True)
    assert calls(second, "plugin_call", "function_call") == []
    (output,) = parts(second, "plugin_call_output")
    assert output["call_id"] == "call_1" and "accept" in output["output"], output
    # A question of another session is another question, whatever its id.
    assert langgraph.decide((other := new_id()), langgraph.turn("approval", other), True).status == "completed"


@check("the same events come out again for a client of the same protocol")
def _():
    body = {"conversationId": new_id(), "messages": [{"role": "user", "content": "tool"}]}
    with Connection(f"{GATEWAY_URL}/kit/events/send-message", body) as connection:
        raw = connection.answer.read().decode()
    frames = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
    kinds = [frame["type"] for frame in frames]
    assert kinds[:1] == ["text"] and kinds[-1] == "text" and raw.rstrip().endswith("[DONE]"), raw
    assert [kind for kind in kinds if kind.startswith("tool")] == [
        "tool-call-start", "tool-call-args", "tool-call-args", "tool-call-end", "tool-result",
    ], kinds  # fmt: skip


@check("a call without a result is the client's for clients of the same protocol, declared or not")
def _():
    for tools in ([], [{"name": "locate", "description": "", "parameters": "{}"}]):
        body = {"conversationId": new_id(), "messages": [{"role": "user", "content": "client tool"}], "tools": tools}
        with Connection(f"{GATEWAY_URL}/kit/events/send-message", body) as connection:
            raw = connection.answer.read().decode()
        assert '"tool-call-end"' in raw and "tool-result" not in raw, raw


concurrent_sessions(events)


@check("the log says which calls the server put into one")
def _():
    expected = "the agent's server puts parallel calls into one"
    assert expected in log(expected), "nothing about it"


close()
