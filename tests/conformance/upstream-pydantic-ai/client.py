"""The gateway as the client of a Pydantic AI agent behind its AG-UI adapter, which remembers nothing."""

from checks import check, close
from every_protocol import Approval, ClientTool, Tool, Words, every_protocol
from upstreams import Agent, Expect, calls, concurrent_sessions, new_id, parts, questions, words

newer, older, forgetful = Agent("newer"), Agent("older"), Agent("forgetful")

UNICODE = "žluťoučký 🦊 line\u2028paragraph\u2029next\u0085end\r\n"
PARIS, ROME = ("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})
DELETE_A, DELETE_B = ("delete_file", {"path": "a.txt"}), ("delete_file", {"path": "b.txt"})
LOCATE = {"type": "function", "function": {"name": "locate", "description": "Where", "parameters": {"type": "object"}}}
DENIED = '{"pydantic_ai": {"outcome": "denied"}}'


def both_cities(stream):
    """Tools run at once: either may be done first."""
    found = {result["call_id"]: result["output"].replace(" ", "") for result in parts(stream, "plugin_call_output")}
    assert found == {"call_1": '{"celsius":21}', "call_2": '{"celsius":25}'}, found


def output(call_id, text):
    data = {"call_id": call_id, "output": text}
    return [{"type": "function_call_output", "role": "tool", "content": [{"type": "data", "data": data}]}]


def decision(item, **interrupt):
    approve = interrupt.get("decision") not in ("reject", "cancel")
    data = {"approval_request_id": item["id"], "approve": approve, "interrupt": interrupt}
    return {"type": "mcp_approval_response", "role": "user", "content": [{"type": "data", "data": data}]}


def signed(stream):
    (thought,) = stream.messages("reasoning")
    assert "c2lnbmVk" in thought["metadata"]["encrypted_content"], thought


common = {
    "hello there": Expect("You said: hello there "),
    "tool": Expect("I look it up.I got [\"{'celsius': 21}\"]", calls=[PARIS], outputs=[{"celsius": 21}]),
    # Arguments of the first call come after its end.
    "parallel": Expect(calls=[PARIS, ROME], more=[both_cities]),
    "approval": Expect("I would like to delete.", asks=["approval"], calls=[DELETE_A], client_calls=[]),
    "both": Expect("", asks=["approval", "approval"], calls=[DELETE_A, DELETE_B], client_calls=[]),
    "image": Expect("You said: Here: ", calls=[("draw", {})], outputs=["drawn"]),
    "error": Expect("", status="failed", code="AGENT_ERROR"),
    "fail": Expect("Some words ", status="failed", code="AGENT_ERROR", responses=False),
    "broken": Expect(status="failed", code="AGENT_ERROR", responses=False),
    "unicode": Expect(UNICODE),
}
words(
    newer,
    {
        **common,
        "reasoning": Expect("The answer is 42.", reasoning="I look at the question.", more=[signed]),
        "wrong": Expect(calls=[("weather", {"town": "Paris"})]),
    },
)
words(older, {**common, "reasoning": Expect("The answer is 42.", reasoning="I look at the question.")})


@check("the gateway sends the conversation, since the agent remembers nothing")
def _():
    for agent in (newer, older):
        session = new_id()
        agent.turn("hello there", session)
        agent.turn("tool", session)
        third = agent.turn("history", session)
        assert third.text == "Before, you said: ['hello there', 'tool']", third.text
    session = new_id()
    forgetful.turn("hello there", session)
    assert forgetful.turn("history", session).text == "Before, you said: []", "without it, it has forgotten"


@check("the output of a client's tool goes back with its call")
def _():
    for agent in (newer, older):
        session = new_id()
        first = agent.turn("client tool", session, tools=[LOCATE])
        assert calls(first, "function_call") == [("locate", {"precise": True})], first.output
        second = agent.turn(output("call_1", "48.85,2.35"), session, tools=[LOCATE])
        assert second.text == "I got ['48.85,2.35']", second.last


@check("an approval arrives with every decision, and its call in the history")
def _():
    for interrupt, expected, sealed in (
        ({"decision": "accept"}, "deleted a.txt", None),
        ({"decision": "edit", "arguments": '{"path":"b.txt"}'}, "deleted b.txt", None),
        ({"decision": "reject", "text": "no"}, "no", DENIED),
        ({"decision": "cancel"}, "Cancelled by user.", DENIED),
    ):
        session = new_id()
        (item,) = questions(newer.turn("approval", session))
        second = newer.turn([decision(item, **interrupt)], session)
        (result,) = parts(second, "plugin_call_output")
        assert (result["call_id"], result["output"]) == ("call_1", expected), second.last
        (message,) = second.messages("plugin_call_output")
        assert message["metadata"].get("encrypted_content") == sealed, message
        assert second.text == f"I got ['{expected}']", second.text
        # What only the agent can read goes back to it.
        assert newer.turn("hello there", session).text == "You said: hello there "


@check("two questions are answered in one request")
def _():
    session = new_id()
    asked = questions(newer.turn("both", session))
    answers = [decision(asked[0], decision="accept"), decision(asked[1], decision="reject", text="not b")]
    second = newer.turn(answers, session)
    results = {result["call_id"]: result["output"] for result in parts(second, "plugin_call_output")}
    assert results == {"call_1": "deleted a.txt", "call_2": "not b"}, second.last


@check("an approval and a call of the client in one turn are answered together")
def _():
    session = new_id()
    first = newer.turn("mixed", session, tools=[LOCATE])
    (item,) = questions(first)
    assert calls(first, "function_call") == [("locate", {"precise": True})], first.output
    second = newer.turn([decision(item, decision="accept"), *output("call_2", "48.85,2.35")], session, tools=[LOCATE])
    assert second.status == "completed" and "deleted a.txt" in second.text and "48.85" in second.text, second.last


APPROVALS = {
    "newer": Approval("approval", accepted="deleted a.txt", edit={"path": "b.txt"}, edited="deleted b.txt"),
    # A client of this version answers with the call's output, and the agent reports what it received.
    "older": Approval("approval", accepted="{'accepted': True}", rejected="{'accepted': False}"),
}

for agent in (newer, older):
    every_protocol(
        agent,
        text=Words("hello there", "You said: hello there "),
        reasoning=Words("reasoning", "The answer is 42.", "I look at the question."),
        tool=Tool("tool", *PARIS, "21"),
        client_tool=ClientTool("client tool", "48.85,2.35", "48.85,2.35", {"precise": True}),
        approval=APPROVALS[agent.name],
        error="error",
        long="long 200 50",
    )

concurrent_sessions(newer)
concurrent_sessions(older)
close()
