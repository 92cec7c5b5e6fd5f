"""The gateway as the client of AgentScope 2.0's service: every word, decisions, tools of the client, cuts, stops."""

import json
import time
import urllib.request

from checks import UPSTREAM_URL, check, close
from cutting_proxy import CuttingProxy
from every_protocol import Approval, ClientTool, Tool, Words, every_protocol
from native import Connection, question
from upstreams import Agent, Expect, calls, concurrent_sessions, log, new_id, parts, probe, questions, words

agent, cut, stranger = Agent("scripted"), Agent("cut"), Agent("stranger")

UNICODE = "žluťoučký 🦊 line\u2028paragraph\u2029next\u0085end\r\n\U0001f468\u200d\U0001f469"
PARIS, ROME = ("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})
DELETE = ("delete_file", {"path": "a.txt"})


def used(input_tokens, output_tokens):
    """What the last event says about tokens."""

    def check_usage(stream):
        usage = stream.last["usage"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (input_tokens, output_tokens), usage

    return check_usage


def both_cities(stream):
    """Tools run at once: either may be done first."""
    found = {result["call_id"]: result["output"] for result in parts(stream, "plugin_call_output")}
    assert found == {"call_1": '{"celsius":21}', "call_2": '{"celsius":25}'}, found


words(
    agent,
    {
        "hello there": Expect("You said: hello there ", more=[used(7, 2)]),
        "reasoning": Expect("The answer is 42.", reasoning="I look at it."),
        "tool": Expect(calls=[PARIS], outputs=[{"celsius": 21}], more=[used(14, 4)]),
        "parallel": Expect(calls=[PARIS, ROME], more=[both_cities]),
        "client tool": Expect("", client_calls=[("locate", {"precise": True})], calls=[]),
        "approval": Expect("I would like to.", asks=["approval"], calls=[DELETE]),
        "fail": Expect("Some words ", status="failed", responses=False),
        "unicode": Expect(UNICODE),
        "empty": Expect(""),
    },
)


@check("a session is remembered, and another one does not see it")
def _():
    session = new_id()
    agent.turn("hello there", session)
    assert agent.turn("history", session).text == "Before, you said: ['hello there']"
    assert agent.turn("history", session).text == "Before, you said: ['hello there', 'history']"
    assert agent.turn("history").text == "Before, you said: []", "another session sees it"


@check("an approval is decided: accepted, edited, rejected")
def _():
    for approve, interrupt, state, expected in (
        (True, {}, "completed", "deleted a.txt"),
        (True, {"decision": "edit", "arguments": '{"path":"b.txt"}'}, "completed", "deleted b.txt"),
        (False, {}, "failed", "denied by user"),
    ):
        session = new_id()
        first = agent.turn("approval", session)
        (asked,) = questions(first)
        assert asked["interrupt"]["decisions"] == ["accept", "edit", "reject"], asked
        second = agent.decide(session, first, approve, **interrupt)
        assert second.status == "completed" and expected in second.text, second.last
        (output,) = [m for m in second.output if m["type"] == "plugin_call_output"]
        assert output["status"] == state, output
        data = output["content"][0]["data"]
        assert data["call_id"] == "call_1" and expected in data["output"], data
        # The call was shown when it was asked about.
        assert calls(second, "plugin_call", "function_call") == [], second.output


@check("what a person permits from now on is not asked again")
def _():
    session = new_id()
    first = agent.turn("approval", session)
    (asked,) = questions(first)
    rules = asked["interrupt"]["payload"]["suggested_rules"]
    second = agent.decide(session, first, True, decision="accept", payload={"approved": True, "rules": rules})
    assert second.status == "completed", second.last
    third = agent.turn("approval", session)
    assert questions(third) == [] and "deleted a.txt" in third.text, third.output


@check("words in place of an output stop the reply that waits")
def _():
    session = new_id()
    agent.turn("client tool", session)
    second = agent.turn("hello again", session)
    assert second.status == "completed" and second.text == "You said: hello again ", second.last


@check("a call that is asked about does not hide the output of another")
def _():
    session = new_id()
    first = agent.turn("both", session)
    assert len(questions(first)) == 1, first.output
    second = agent.decide(session, first, True)
    found = {o["call_id"]: o["output"] for s in (first, second) for o in parts(s, "plugin_call_output")}
    assert found == {"call_1": "deleted a.txt", "call_2": '{"celsius":21}'}, found
    assert second.status == "completed" and "deleted a.txt" in second.text, second.last


@check("the output of a client's tool goes back, and is not shown to it")
def _():
    session = new_id()
    agent.turn("client tool", session)
    second = agent.output(session, "call_1", "48.85,2.35")
    assert second.text == "I got ['48.85,2.35']", second.last
    assert parts(second, "plugin_call_output", "function_call_output") == [], second.output


def session_states():
    """What the service itself says of the agent's sessions."""
    url = f"{UPSTREAM_URL}/sessions/?agent_id=scripted"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"x-user-id": "gateway"})) as answer:
        return [view["status"] for view in json.load(answer)["sessions"]]


@check("canceling the run stops the reply of the agent")
def _():
    body = question("long 600 50", session_id=new_id())
    with Connection(f"{agent.url}/process", body) as connection:
        frames = connection.frames()
        seen = [next(frames) for _ in range(8)]
        with Connection(f"{agent.url}/runs/{seen[0]['id']}/cancel", {}) as canceled:
            assert canceled.status == 200, canceled.answer.read()
        seen.extend(frames)
    assert seen[-1]["status"] == "canceled", seen[-1]
    deadline = time.monotonic() + 20
    while "running" in session_states():
        assert time.monotonic() < deadline, "it works on"
        time.sleep(0.1)


every_protocol(
    agent,
    text=Words("hello there", "You said: hello there "),
    reasoning=Words("reasoning", "The answer is 42.", "I look at it."),
    tool=Tool("tool", *PARIS, "21"),
    client_tool=ClientTool("client tool", "48.85,2.35", "48.85,2.35", {"precise": True}, undeclared=True),
    approval=Approval("approval", accepted="deleted a.txt", rejected="denied", edit={"path": "b.txt"}, edited="deleted b.txt"),
    error="fail",
    long="long 200 50",
)

proxy = CuttingProxy()

for place in (1, 2, 5, 10, 20):

    @check(f"a stream that is cut in event {place + 1} is taken up again exactly")
    def _():
        made = proxy.made
        proxy.cut_next(place)
        stream = cut.turn("long 24 20")
        assert proxy.made == made + 1, "nothing was cut"
        assert stream.status == "completed", stream.last
        assert stream.text == stream.streamed_text == "".join(f"{n} " for n in range(24)), stream.text


@check("a stream that is cut again and again is taken up each time")
def _():
    for place in (12, 4, 9):
        proxy.cut_next(place)
    stream = cut.turn("long 60 20")
    assert stream.text == stream.streamed_text == "".join(f"{n} " for n in range(60)), stream.text


@check("a question survives a cut before it")
def _():
    proxy.cut_next(4)
    session = new_id()
    first = cut.turn("approval", session)
    assert len(questions(first)) == 1 and first.text == "I would like to.", first.last
    second = cut.decide(session, first, True)
    assert "deleted a.txt" in second.text, second.text


@check("an agent that the service does not have is the operator's matter")
def _():
    failed = stranger.turn("hello")
    assert failed.status == "failed" and failed.http_status == 502, failed.body


@check("`interlingua probe` finds the agent, and says what is missing")
def _():
    status, said = probe(agent)
    assert status == 0 and "the service is well (AgentScope 2.0.11)" in said, said
    assert 'it has the agent "scripted"' in said and "it has the credential of the model" in said, said
    status, said = probe(stranger)
    assert status == 1 and 'it has no agent "nobody"' in said and '"scripted"' in said, said


# Its database is one file, which is locked while it is written.
concurrent_sessions(agent, count=8)


@check("nothing that the service sends is unknown")
def _():
    ignored = [line for line in log("ignored_frames=").splitlines() if "ignored_frames=" in line and "ignored_frames=0" not in line]
    assert ignored == [], ignored[:3]


close()
