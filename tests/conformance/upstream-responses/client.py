"""The gateway as a client of SMG, which speaks Responses and keeps them: every word, with and without its memory."""

import json
import time
import urllib.request

from checks import GATEWAY_URL, UPSTREAM_URL, check, close
from cutting_proxy import CuttingProxy
from native import Connection, Stream, question
from upstreams import Agent, Expect, concurrent_sessions, log, new_id, parts, probe, words

chained, conversation, full = Agent("chained"), Agent("conversation"), Agent("full")
polled, streamed = Agent("polled"), Agent("streamed")
own = [Agent(name) for name in ("own", "own-conversation", "own-polled", "own-streamed")]
cut = Agent("own-cut")
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
        key, frames = new_id(), []
        with Connection(f"{agent.url}/process", question(f"broken {key}", session_id=new_id())) as connection:
            for frame in connection.frames():
                frames.append(frame)
                if frame["object"] == "content" and frame.get("text"):
                    # The words have arrived: now the connection may break.
                    agent.turn(f"break {key}")
        stream = Stream(frames).well_formed()
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


def newest_run(agent):
    with urllib.request.urlopen(f"{GATEWAY_URL}/agents/{agent}/runs?limit=1") as answer:
        body = json.load(answer)
    return (body.get("runs") or body["data"])[0]


def both_outputs(stream):
    """In the order in which they came, or in that of the calls."""
    outputs = [data["output"] for data in parts(stream, "mcp_call_output")]
    assert sorted(outputs) == ["18 C, sunny", "4 C, rain"], outputs


GREETING = "You said: hello there\nSay help to see what else I can do."
WEATHER = [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Oslo"})]
OWN_WORDS = {
    "hello there": Expect(GREETING),
    "tool": Expect("It is 18 degrees and sunny in Paris.", calls=WEATHER[:1], outputs=["18 C, sunny"]),
    "parallel": Expect(calls=WEATHER, more=[both_outputs]),
    "image": Expect("Here is a picture:", media=["image"]),
    "approval": Expect("I would like to send a mail. May I?", asks=["approval"]),
    "fail": Expect("So far everything went well, but", status="failed", responses=False),
    "cancel": Expect(status="canceled", responses=False),
}

for agent in own:
    words(agent, OWN_WORDS)

    @check(f"{agent.name}: an approval is decided, with a reason for a no")
    def _():
        session = new_id()
        second = agent.decide(session, agent.turn("approval", session), True)
        assert second.status == "completed" and second.messages("mcp_call"), second.last
        session = new_id()
        second = agent.decide(session, agent.turn("approval", session), False, "not today")
        assert second.text == "I did not send it, because you rejected it: not today", second.text

    @check(f"{agent.name}: the demo agent remembers its session")
    def _():
        session = new_id()
        for text in ("hello one", "hello two"):
            agent.turn(text, session)
        third = agent.turn("history", session)
        assert "message 3 of yours" in third.text and "hello one" in third.text, third.text

    @check(f"{agent.name}: canceling the run cancels the response of the agent")
    def _():
        with Connection(f"{agent.url}/process", question("long 500 20", session_id=new_id())) as connection:
            frames = connection.frames()
            seen = [next(frames) for _ in range(5)]
            with Connection(f"{agent.url}/runs/{seen[0]['id']}/cancel", {}) as canceled:
                assert canceled.status == 200, canceled.answer.read()
            seen.extend(frames)
        assert seen[-1]["status"] == "canceled", seen[-1]
        deadline = time.monotonic() + 20
        while (found := newest_run("demo"))["status"] != "canceled":
            assert time.monotonic() < deadline, found
            time.sleep(0.1)


proxy = CuttingProxy(GATEWAY_URL)

for place in (1, 2, 4, 7, 12):

    @check(f"a stream in the background that is cut in event {place + 1} is taken up again exactly")
    def _():
        made = proxy.made
        proxy.cut_next(place)
        stream = cut.turn("long 24 10")
        assert proxy.made == made + 1, "nothing was cut"
        assert stream.status == "completed", stream.last
        assert stream.text == stream.streamed_text == "".join(f"{n} " for n in range(1, 25)), stream.text


@check("a stream in the background that is cut again and again is taken up each time")
def _():
    for place in (6, 4):
        proxy.cut_next(place)
    stream = cut.turn("long 40 10")
    assert stream.text == stream.streamed_text == "".join(f"{n} " for n in range(1, 41)), stream.text


for agent in (chained, polled):

    @check(f"{agent.name}: a probe finds a server that keeps responses, though it lists no models")
    def _():
        status, output = probe(agent)
        assert status == 0 and "keep responses" in output, (status, output)


@check("no frame of SMG was ignored")
def _():
    text = log("ignored_frames=0")
    ignored = [line for line in text.splitlines() if "ignored_frames=" in line and "ignored_frames=0" not in line]
    assert "ignored_frames=0" in text and ignored == [], ignored[:3]


concurrent_sessions(chained)
concurrent_sessions(full)
close()
