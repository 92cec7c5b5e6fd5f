"""The gateway as the client of an Agno agent behind AgentOS, whose approvals are calls that it leaves unanswered."""

from checks import check, close
from upstreams import Agent, Expect, calls, concurrent_sessions, new_id, parts, questions, words

agno = Agent("agno")

UNICODE = "žluťoučký 🦊 line\u2028paragraph\u2029next\u0085end\r\n"
PARIS, ROME = ("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})
DELETE_A, DELETE_B = ("delete_file", {"path": "a.txt"}), ("delete_file", {"path": "b.txt"})
LOCATE = {"type": "function", "function": {"name": "locate", "description": "Where", "parameters": {"type": "object"}}}

def both_cities(stream):
    """Tools run at once: either may be done first."""
    found = {result["call_id"]: result["output"].replace(" ", "") for result in parts(stream, "plugin_call_output")}
    assert found == {"call_1": '{"celsius":21}', "call_2": '{"celsius":25}'}, found


words(
    agno,
    {
        "hello there": Expect("You said: hello there "),
        "tool": Expect("I look it up.I got [\"{'celsius': 21}\"]", calls=[PARIS], outputs=[{"celsius": 21}]),
        "parallel": Expect(calls=[PARIS, ROME], more=[both_cities]),
        # The text before a call that waits is said twice.
        "approval": Expect("I would like to delete.", asks=["approval"], calls=[DELETE_A], client_calls=[]),
        "both": Expect(asks=["approval", "approval"], calls=[DELETE_A, DELETE_B], client_calls=[]),
        "question": Expect("Before I begin: ", asks=["input"], calls=[("paint", {"what": "the wall"})]),
        "error": Expect("", status="failed", code="AGENT_ERROR"),
        "fail": Expect("Some words ", status="failed", code="AGENT_ERROR", responses=False),
        "unicode": Expect(UNICODE),
        "empty": Expect(""),
    },
)


@check("a session is remembered, and only what is new is sent")
def _():
    session = new_id()
    agno.turn("hello there", session)
    assert agno.turn("history", session).text == "Before, you said: ['hello there']"
    assert agno.turn("history").text == "Before, you said: []", "another session sees it"


@check("the output of a client's tool goes back")
def _():
    session = new_id()
    first = agno.turn("client tool", session, tools=[LOCATE])
    assert calls(first, "function_call") == [("locate", {"precise": True})], first.output
    second = agno.output(session, "call_1", "48.85,2.35")
    assert second.text == "I got ['48.85,2.35']", second.last


@check("an approval is read as one, and so is a refusal")
def _():
    for approve, expected in ((True, "deleted a.txt"), (False, "rejected")):
        session = new_id()
        stream = agno.turn("approval", session)
        second = agno.decide(session, stream, approve)
        assert second.status == "completed" and expected in second.text, second.text
        assert calls(second, "plugin_call", "function_call") == [], second.output
        if approve:
            (output,) = parts(second, "plugin_call_output")
            assert output["call_id"] == "call_1" and "deleted a.txt" in output["output"], output


@check("missing arguments are asked for, and given")
def _():
    session = new_id()
    stream = agno.turn("question", session)
    (asked,) = questions(stream)
    assert asked["interrupt"]["payload"] == {"name": "paint", "arguments": {"what": "the wall"}}, asked
    second = agno.decide(session, stream, True, decision="respond", payload={"color": "blue"})
    assert "painted the wall blue" in second.text, second.text


concurrent_sessions(agno)
close()
