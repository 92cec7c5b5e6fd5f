"""The gateway as a client of SMG, which speaks Responses and keeps them: every word, with and without its memory."""

import time
import urllib.error
import urllib.request

from checks import UPSTREAM_URL, check, close
from native import Connection, question
from upstreams import Agent, Expect, concurrent_sessions, log, new_id, probe, words

chained, conversation, full = Agent("chained"), Agent("conversation"), Agent("full")
polled, streamed = Agent("polled"), Agent("streamed")
ALL = (chained, conversation, full, polled, streamed)

UNICODE = "žluťoučký 🦊 line\u2028paragraph\u2029next\u0085end\r\n\U0001f468\u200d\U0001f469"
PARIS, ROME = ("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})


def usage(stream):
    found = {name: stream.last["usage"][name] for name in ("input_tokens", "output_tokens")}
    assert found == {"input_tokens": 7, "output_tokens": 2}, stream.last["usage"]


WORDS = {
    "hello there": Expect("You said: hello there ", more=[usage]),
    "reasoning": Expect("The answer is 42.", reasoning="I look at it."),
    "client tool": Expect("I look it up.", client_calls=[PARIS], calls=[]),
    "parallel": Expect("", client_calls=[PARIS, ROME]),
    "refusal": Expect(""),
    "incomplete": Expect("This is cut ", status="incomplete"),
    "error": Expect(status="failed", responses=False),
    "busy": Expect(status="failed", responses=False),
    "fail": Expect("Some words ", status="failed", responses=False),
    "unicode": Expect(UNICODE),
    "empty": Expect(""),
}

for agent in ALL:
    words(agent, WORDS)

for agent in (chained, conversation, full):

    @check(f"{agent.name}: a stream that breaks off keeps its words and fails")
    def _():
        stream = agent.turn("broken")
        assert (stream.status, stream.text) == ("failed", "Some words "), stream.last

    @check(f"{agent.name}: text arrives piece by piece")
    def _():
        stream = agent.turn("long 12 5")
        assert stream.streamed_text == "".join(f"{n} " for n in range(12)), stream.streamed_text


@check("too many requests are reported with the pause that SMG names")
def _():
    failed = chained.turn("busy")
    assert failed.http_status == 429, failed.http_status


def settled():
    """SMG stores an answer a moment after its end."""
    time.sleep(0.3)


for agent in ALL:

    @check(f"{agent.name}: three turns of a session know each other, and no other session does")
    def _():
        session = new_id()
        for text in ("hello one", "hello two"):
            assert agent.turn(text, session).status == "completed"
            settled()
        third = agent.turn("history", session)
        assert third.text == "Before, you said: ['hello one', 'hello two']", third.text
        assert agent.turn("history").text == "Before, you said: []"

    @check(f"{agent.name}: the output of a client's tool goes to the call that waits for it")
    def _():
        session = new_id()
        agent.turn("client tool", session)
        settled()
        second = agent.output(session, "call_1", "21 degrees")
        assert second.text == "I got ['21 degrees']", second.last

    @check(f"{agent.name}: both outputs of two calls go together, whatever comes first")
    def _():
        session = new_id()
        agent.turn("parallel", session)
        settled()
        outputs = [
            {"type": "function_call_output", "role": "tool", "content": [{"type": "data", "data": data}]}
            for data in ({"call_id": "call_2", "output": "25"}, {"call_id": "call_1", "output": "21"})
        ]
        second = agent.turn(outputs, session)
        assert second.text == "I got ['25', '21']", second.last

    @check(f"{agent.name}: a user who speaks instead of sending an output is understood")
    def _():
        session = new_id()
        agent.turn("hello one", session)
        settled()
        agent.turn("client tool", session)
        settled()
        third = agent.turn("history", session)
        assert third.text == "Before, you said: ['hello one', 'client tool']", third.last


@check("a turn that comes at once, before SMG has stored the last one, is answered with the whole history")
def _():
    session = new_id()
    for text in ("hello one", "hello two", "hello three"):
        stream = chained.turn(text, session)
        assert stream.status == "completed", stream.last
    fourth = chained.turn("history", session)
    assert fourth.text == "Before, you said: ['hello one', 'hello two', 'hello three']", fourth.text


@check("a response that SMG has forgotten is made up for with the whole history, once")
def _():
    session = new_id()
    assert chained.turn("hello one", session).status == "completed"
    settled()
    own = chained.turn("who are you", session).text
    settled()
    request = urllib.request.Request(f"{UPSTREAM_URL}/v1/responses/{own}", method="DELETE")
    with urllib.request.urlopen(request) as deleted:
        assert deleted.status == 200
    third = chained.turn("history", session)
    assert third.text == "Before, you said: ['hello one', 'who are you']", third.last
    settled()
    fourth = chained.turn("history", session)
    assert fourth.text == "Before, you said: ['hello one', 'who are you', 'history']", fourth.last


@check("a failed answer is not gone on from")
def _():
    session = new_id()
    chained.turn("hello one", session)
    settled()
    assert chained.turn("fail", session).status == "failed"
    settled()
    third = chained.turn("history", session)
    assert third.status == "completed" and "hello one" in third.text, third.last


for agent in (chained, full):

    @check(f"{agent.name}: a canceled run ends, and the session goes on")
    def _():
        session = new_id()
        with Connection(f"{agent.url}/process", question("long 300 20", session_id=session)) as connection:
            frames = connection.frames()
            seen = [next(frames) for _ in range(6)]
            with Connection(f"{agent.url}/runs/{seen[0]['id']}/cancel", {}) as canceled:
                assert canceled.status == 200, canceled.answer.read()
            seen.extend(frames)
        assert seen[-1]["status"] == "canceled", seen[-1]
        assert agent.turn("hello there", session).text == "You said: hello there "


for agent in (chained, polled):

    @check(f"{agent.name}: a probe finds a server that keeps responses, though it lists no models")
    def _():
        status, output = probe(agent)
        assert status == 0 and "keep responses" in output, (status, output)


@check("no frame of SMG was ignored")
def _():
    assert "ignored_frames=0" in log() and not [
        line for line in log().splitlines() if "ignored_frames=" in line and "ignored_frames=0" not in line
    ]


concurrent_sessions(chained)
concurrent_sessions(full)
close()
