"""The gateway as the client of the official A2A server: every word in four dialects, streamed and polled, cut and
taken up again."""

import json
import time
import urllib.request

from checks import UPSTREAM_URL, check, close
from cutting_proxy import CuttingProxy
from native import Connection, question
from upstreams import Agent, Expect, concurrent_sessions, new_id, questions, words

card, rest, older, older_rest = Agent("card"), Agent("rest"), Agent("older"), Agent("older-rest")
polled, cut = Agent("polled"), Agent("cut")

UNICODE = "žluťoučký 🦊 line\u2028paragraph\u2029next\u0085end\r\n\U0001f468\u200d\U0001f469"
WEATHER = ("weather", {"city": "Paris"})

WORDS = {
    "hello there": Expect("You said: hello there "),
    "direct": Expect("A message, no task."),
    "reasoning": Expect("The answer is 42.", reasoning="I look at the question. It is easy."),
    "status": Expect("Said in a status alone."),
    "tool": Expect("It is 21 degrees in Paris.", calls=[WEATHER], outputs=[{"celsius": 21}]),
    "parallel": Expect(
        "Paris 21, Rome 25.",
        calls=[WEATHER, ("weather", {"city": "Rome"})],
        outputs=[{"celsius": 25}, {"celsius": 21}],
    ),
    "two": Expect("one twoONE TWO"),
    "replace": Expect(),
    "image": Expect("Here it is:", media=["image", "file", "data"], responses=False),
    "error": Expect(status="failed", code="A2A_TASK_FAILED"),
    "fail": Expect("Some words ", status="failed", responses=False),
    "raise": Expect(status="failed"),
    "broken": Expect("Some words ", status="failed", responses=False),
    "reject": Expect(status="rejected", responses=False),
    "unicode": Expect(UNICODE),
    "empty": Expect(""),
    "approval": Expect(asks=["approval"]),
    "question": Expect("Before I begin: ", asks=["input"]),
    "login": Expect(asks=["auth"]),
    "client tool": Expect(client_calls=[("locate", {"precise": True})]),
}

for agent in (card, rest, older, older_rest, polled):
    words(agent, WORDS)


def task_of(stream):
    """The agent's task, which its artifacts name."""
    return next(m["metadata"]["a2a"]["task_id"] for m in stream.output if m["type"] == "message")


def state_of(task):
    """What the agent itself says of a task."""
    request = urllib.request.Request(f"{UPSTREAM_URL}/rest/tasks/{task}", headers={"a2a-version": "1.0"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["status"]["state"]


for agent in (card, rest, older, older_rest, polled):

    @check(f"{agent.name}: the context of a session is remembered")
    def _():
        session = new_id()
        agent.turn("hello there", session)
        second = agent.turn("history", session)
        assert second.text == "Before, you said: ['hello there']", second.text
        assert agent.turn("history").text == "Before, you said: []", "another session sees it"

    @check(f"{agent.name}: an approval is decided on its task")
    def _():
        session = new_id()
        second = agent.decide(session, agent.turn("approval", session), True)
        assert second.status == "completed" and "'approved': True" in second.text, second.last
        session = new_id()
        second = agent.decide(session, agent.turn("approval", session), False, "not today")
        assert second.status == "completed" and "'approved': False" in second.text, second.last

    @check(f"{agent.name}: a question is answered on its task, and what was said before it is not repeated")
    def _():
        session = new_id()
        first = agent.turn("question", session)
        interrupt = {"decision": "respond", "text": "blue", "payload": {"color": "blue"}}
        second = agent.decide(session, first, True, **interrupt)
        assert second.status == "completed" and "blue" in second.text, second.last
        assert "Before I begin" not in second.text, second.text

    @check(f"{agent.name}: the output of a client's tool goes to the task that waits for it")
    def _():
        session = new_id()
        agent.turn("client tool", session)
        second = agent.output(session, "call_1", "48.85,2.35")
        assert second.status == "completed" and "48.85,2.35" in second.text, second.last


for agent in (card, rest, older, older_rest):

    @check(f"{agent.name}: canceling the run cancels the task of the agent")
    def _():
        body = question("long 300 20", session_id=new_id())
        with Connection(f"{agent.url}/process", body) as connection:
            frames = connection.frames()
            seen = [next(frames) for _ in range(8)]
            run = seen[0]["id"]
            with Connection(f"{agent.url}/runs/{run}/cancel", {}) as canceled:
                assert canceled.status == 200, canceled.answer.read()
            seen.extend(frames)
        assert seen[-1]["status"] == "canceled", seen[-1]
        task = next(frame["metadata"]["a2a"]["task_id"] for frame in seen if frame.get("metadata"))
        deadline = time.monotonic() + 20
        while state_of(task) != "TASK_STATE_CANCELED":
            assert time.monotonic() < deadline, state_of(task)
            time.sleep(0.1)


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
    for place in (6, 4):
        proxy.cut_next(place)
    stream = cut.turn("long 40 20")
    assert stream.text == stream.streamed_text == "".join(f"{n} " for n in range(40)), stream.text


@check("a question survives a cut before it")
def _():
    proxy.cut_next(1)
    session = new_id()
    first = cut.turn("question", session)
    assert len(questions(first)) == 1 and first.text == "Before I begin: ", first.last
    second = cut.decide(session, first, True, decision="respond", text="red", payload={"color": "red"})
    assert "red" in second.text and "Before" not in second.text, second.text


concurrent_sessions(card)

close()
