"""The gateway as the client of a LangGraph agent behind its AG-UI integration, as it is by default and with outcomes."""

from checks import check, close
from every_protocol import Approval, ClientTool, Tool, Words, every_protocol
from native import Connection, Stream, question
from protocol_clients import ALL, AgentApi, AgUi
from upstreams import Agent, Expect, calls, concurrent_sessions, new_id, parts, questions, words

default, outcome, whole = Agent("default"), Agent("outcome"), Agent("whole")

UNICODE = "žluťoučký 🦊 line\u2028paragraph\u2029next\u0085end\r\n"
PARIS, ROME = ("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})
DELETE_A, DELETE_B = ("delete_file", {"path": "a.txt"}), ("delete_file", {"path": "b.txt"})
LOCATE = {"type": "function", "function": {"name": "locate", "description": "Where", "parameters": {"type": "object"}}}

def both_cities(stream):
    """Tools run at once: either may be done first."""
    found = {result["call_id"]: result["output"].replace(" ", "") for result in parts(stream, "plugin_call_output")}
    assert found == {"call_1": '{"celsius":21}', "call_2": '{"celsius":25}'}, found


table = {
    "hello there": Expect("You said: hello there "),
    "reasoning": Expect("The answer is 42.", reasoning="I look at it."),
    "deepseek": Expect("The answer is 42.", reasoning="I look at it."),
    # The integration loses the first piece of a call's arguments.
    "tool": Expect("I look it up.I got ['{\"celsius\":21}']", calls=[PARIS], outputs=[{"celsius": 21}]),
    "parallel": Expect(calls=[PARIS, ROME], more=[both_cities]),
    "client tool": Expect("", client_calls=[("locate", {"precise": True})], calls=[]),
    "approval": Expect("I would like to delete.", asks=["approval"], calls=[DELETE_A], client_calls=[]),
    "both": Expect("", asks=["approval"], calls=[DELETE_A, DELETE_B], client_calls=[]),
    "question": Expect("", asks=["input"]),
    # What a node says without a model stands in a snapshot alone.
    "silent": Expect("Said without a model."),
    "error": Expect("", status="failed", code="AGENT_ERROR"),
    "fail": Expect("Some words ", status="failed", code="AGENT_ERROR", responses=False),
    "broken": Expect(status="failed", code="AGENT_ERROR", responses=False),
    "unicode": Expect(UNICODE),
    "empty": Expect(""),
}
words(default, table)
words(outcome, table)

for agent in (default, outcome):

    @check(f"{agent.name}: a thread is remembered, and only what is new is sent")
    def _():
        session = new_id()
        agent.turn("hello there", session)
        second = agent.turn("history", session)
        assert second.text == "Before, you said: ['hello there']", second.text
        assert agent.turn("history").text == "Before, you said: []", "another session sees it"

    @check(f"{agent.name}: the output of a client's tool goes back alone")
    def _():
        session = new_id()
        agent.turn("client tool", session, tools=[LOCATE])
        second = agent.output(session, "call_1", "48.85,2.35")
        assert second.text == "I got ['48.85,2.35']" and calls(second, "function_call", "plugin_call") == [], second.last

    @check(f"{agent.name}: after an approval only the result of the call and the answer are new")
    def _():
        session = new_id()
        stream = agent.turn("approval", session)
        second = agent.decide(session, stream, True)
        assert calls(second, "plugin_call", "function_call") == [], second.output
        (output,) = parts(second, "plugin_call_output")
        assert output["call_id"] == "call_1" and "'accept'" in output["output"], output
        assert second.text.startswith("I got ") and "I would like" not in second.text, second.text
        # Answered, it is not asked again.
        assert agent.turn("hello there", session).text == "You said: hello there "

    @check(f"{agent.name}: a rejection arrives as LangGraph reads it, and what the agent does not offer is refused")
    def _():
        session = new_id()
        stream = agent.turn("approval", session)
        # The integration drops the `config` of the interrupt, so nothing says that the agent takes edits.
        (asked,) = questions(stream)
        assert asked["interrupt"]["decisions"] == ["accept", "reject"], asked
        for decision in ({"decision": "edit", "arguments": '{"path":"b.txt"}'}, {"decision": "respond", "text": "ask her"}):
            refused = agent.decide(session, stream, decision["decision"] == "edit", **decision)
            assert refused.status == "failed" and refused.http_status == 422, refused.last
        second = agent.decide(session, stream, False)
        (output,) = parts(second, "plugin_call_output")
        assert "'accept'" not in output["output"] and "delete" not in second.text, (output, second.text)

    @check(f"{agent.name}: a question is answered with its value")
    def _():
        session = new_id()
        stream = agent.turn("question", session)
        (asked,) = questions(stream)
        assert asked["interrupt"]["message"] == "Which color?", asked
        second = agent.decide(session, stream, True, decision="respond", payload={"color": "blue"})
        assert second.text == "You said: my answer: {'color': 'blue'} ", second.text

    @check(f"{agent.name}: of two calls that ask, the second question follows the first answer")
    def _():
        session = new_id()
        stream = agent.turn("both", session)
        second = agent.decide(session, stream, True)
        assert len(questions(second)) == 1, second.output
        third = agent.decide(session, second, True)
        assert third.status == "completed" and questions(third) == [], third.last


@check("a whole history with each request doubles nothing in what the agent remembers")
def _():
    session = new_id()
    whole.turn("hello there", session)
    whole.turn("tool", session)
    third = whole.turn("history", session)
    assert third.text == "Before, you said: ['hello there', 'tool']", third.text


@check("state and steps come as protocol events, and raw events do not")
def _():
    body = question("tool", session_id=new_id())
    with Connection(f"{outcome.url}/process?protocol_events=true", body) as connection:
        stream = Stream(list(connection.frames())).well_formed()
    events = [data["event"] for data in parts(stream, "protocol_event")]
    assert {event["type"] for event in events} == {"STEP_STARTED", "STEP_FINISHED", "STATE_SNAPSHOT"}, events
    assert not any("rawEvent" in event for event in events)


# All protocols read the same events, so the second form of the agent is asked over two of them.
for agent, clients in ((default, ALL), (outcome, (AgentApi, AgUi))):
    every_protocol(
        agent,
        clients=clients,
        text=Words("hello there", "You said: hello there "),
        reasoning=Words("reasoning", "The answer is 42.", "I look at it."),
        tool=Tool("tool", *PARIS, "21"),
        client_tool=ClientTool("client tool", "48.85,2.35", "48.85,2.35", {"precise": True}),
        # The graph's tool reports the decision that it received.
        approval=Approval("approval", accepted="'accept'"),
        error="error",
        long="long 200 50",
    )

concurrent_sessions(default)
concurrent_sessions(outcome)
close()
