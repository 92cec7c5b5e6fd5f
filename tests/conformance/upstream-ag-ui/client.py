"""The gateway as the client of an agent that writes its events with AG-UI's own encoder, in the form of 1.0 and before."""

import json

from checks import check, close
from native import Connection, question
from upstreams import Agent, Expect, calls, concurrent_sessions, log, new_id, parts, questions, words

newer, older, plain = Agent("newer"), Agent("older"), Agent("plain")

UNICODE = "žluťoučký 🦊 line\u2028paragraph\u2029next\u0085end\r\n"
PARIS, ROME = ("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})
DELETE = ("delete_file", {"path": "a.txt"})
LOCATE = {"type": "function", "function": {"name": "locate", "description": "Where", "parameters": {"type": "object"}}}


def shows_a_picture(stream):
    (found,) = [part for m in stream.messages("plugin_call_output") for part in m["content"] if part["type"] == "image"]
    assert found["image_url"].startswith("data:image/png;base64,iVBOR"), found


def sealed(stream):
    (thought,) = stream.messages("reasoning")
    assert thought["metadata"]["encrypted_content"] == "c2VjcmV0", thought


def counted(stream):
    assert stream.last["usage"] == {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}, stream.last


common = {
    "hello there": Expect("You said: hello there "),
    "tool": Expect("I look it up.It is 21 degrees in Paris.", calls=[PARIS], outputs=[{"celsius": 21}]),
    "parallel": Expect("Paris 21, Rome 25.", calls=[PARIS, ROME], outputs=[{"celsius": 25}, {"celsius": 21}]),
    "client tool": Expect("", client_calls=[("locate", {"precise": True})], calls=[]),
    "client two": Expect("", client_calls=[("locate", {"precise": True}), ("locate", {})], calls=[]),
    "approval": Expect("", asks=["approval"], calls=[DELETE], client_calls=[]),
    "question": Expect("Before I begin: ", asks=["input"]),
    "state": Expect("Planned.", calls=[]),
    "subagent": Expect("From the helper."),
    "image": Expect(calls=[("draw", {})], outputs=["drawn"], more=[shows_a_picture], responses=False),
    "error": Expect("", status="failed", code="DB_AWAY"),
    "fail": Expect("Some words ", status="failed", code="DB_AWAY", responses=False),
    # The agent's code raises: the server cuts the connection, and has no word for why.
    "raise": Expect("Some words ", status="failed", code="UPSTREAM_TRUNCATED", responses=False),
    "unicode": Expect(UNICODE),
    "empty": Expect(""),
}
words(
    newer,
    {
        **common,
        "reasoning": Expect("The answer is 42.", reasoning="I look at the question.", more=[sealed]),
        "both": Expect("", asks=["approval", "input"]),
        "two": Expect("one twoONE TWO", responses=False),
        "usage": Expect("Counted.", more=[counted]),
        "cancelled": Expect("", status="canceled", responses=False),
    },
)
words(older, {**common, "reasoning": Expect("The answer is 42.", reasoning="I look at the question.")})

STATE = [
    {"type": "STEP_STARTED", "stepName": "plan"},
    {"type": "STATE_SNAPSHOT", "snapshot": {"steps": []}},
    {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/steps/-", "value": "look"}]},
    {"type": "ACTIVITY_SNAPSHOT", "messageId": "a1", "activityType": "PLAN", "content": {"done": 0}},
    {
        "type": "ACTIVITY_DELTA",
        "messageId": "a1",
        "activityType": "PLAN",
        "patch": [{"op": "replace", "path": "/done", "value": 1}],
    },
    {"type": "CUSTOM", "name": "progress", "value": {"percent": 50}},
    {"type": "STEP_FINISHED", "stepName": "plan"},
]


@check("state, activity, steps and custom events come as they were written, byte for byte")
def _():
    with Connection(f"{newer.url}/process?protocol_events=true", question("state", session_id=new_id())) as connection:
        raw = connection.answer.read().decode()
    for event in STATE:
        # Without spaces and in the order of the fields, as the official encoder writes them.
        verbatim = json.dumps(event, separators=(",", ":"))
        assert f'{{"protocol":"ag-ui","event":{verbatim}}}' in raw, verbatim


@check("an agent whose clients read no such events has none, and the log says so")
def _():
    stream = plain.turn("state")
    assert parts(stream, "protocol_event") == [] and stream.text == "Planned."
    expected = "no client of this agent reads such events"
    assert expected in log(expected)


@check("events are no part of what Responses clients see")
def _():
    status, body = newer.response("state")
    assert status == 200 and [item["type"] for item in body["output"]] == ["message"], body


@check("the agent remembers the conversation of a session, and is sent what is new")
def _():
    for agent in (newer, older):
        session = new_id()
        agent.turn("hello there", session)
        assert agent.turn("history", session).text == "Before, you said: ['hello there']"
        assert agent.turn("history").text == "Before, you said: []", "another session sees it"
    sent = json.loads(newer.turn("input", session := new_id()).text)
    assert sent["threadId"] == session and [m["content"] for m in sent["messages"]] == ["input"], sent


@check("fields of this protocol that a client sends pass through")
def _():
    more = {"state": {"a": [1]}, "forwarded_props": {"b": 2}, "context": [{"description": "d", "value": "v"}]}
    sent = json.loads(newer.turn("input", tools=[LOCATE], **more).text)
    assert (sent["state"], sent["forwardedProps"], sent["context"]) == tuple(more.values()), sent
    assert [tool["name"] for tool in sent["tools"]] == ["locate"], sent


@check("the output of a client's tool goes back as a tool message")
def _():
    for agent in (newer, older):
        session = new_id()
        first = agent.turn("client tool", session, tools=[LOCATE])
        assert calls(first, "function_call") == [("locate", {"precise": True})]
        second = agent.output(session, "call_1", "48.85,2.35")
        assert second.text == "Your answer: [('call_1', '48.85,2.35')]", second.text


@check("an outcome is answered in resume, whatever was decided")
def _():
    for decision, expected in (
        ({}, "('int_1', 'resolved', {'approved': True})"),
        ({"decision": "reject"}, "('int_1', 'resolved', {'approved': False})"),
        ({"decision": "cancel"}, "('int_1', 'cancelled', None)"),
        (
            {"decision": "edit", "arguments": '{"path":"b.txt"}'},
            "('int_1', 'resolved', {'approved': True, 'editedArgs': {'path': 'b.txt'}})",
        ),
    ):
        session = new_id()
        stream = newer.turn("approval", session)
        approve = decision.get("decision") not in ("reject", "cancel")
        second = newer.decide(session, stream, approve, **decision)
        assert second.text == f"Your answer: [{expected}]", second.text


@check("a question is answered with a value that fits its schema")
def _():
    session = new_id()
    stream = newer.turn("question", session)
    (asked,) = questions(stream)
    assert asked["interrupt"]["message"] == "Which color?" and asked["interrupt"]["metadata"] == {"form": "color"}
    second = newer.decide(session, stream, True, decision="respond", payload={"color": "blue"})
    assert second.text == "Your answer: [('int_1', 'resolved', {'color': 'blue'})]", second.text


@check("a question of the older form is answered by a command")
def _():
    session = new_id()
    stream = older.turn("approval", session)
    second = older.decide(session, stream, True)
    assert second.text == "Your answer: {'approved': True}", second.text


concurrent_sessions(newer)
concurrent_sessions(older)
close()
