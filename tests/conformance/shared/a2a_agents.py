"""What every A2A agent of the suites does, whatever its server: words, sessions, answers, cancels, cuts.

The agents understand the same words and say the same, as far as their libraries let them.
"""

import json
import time
import urllib.request

from checks import UPSTREAM_URL, check
from cutting_proxy import CuttingProxy
from every_protocol import Approval, ClientTool, Tool, Words, every_protocol
from native import Connection, question
from upstreams import Expect, new_id, questions

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


def sessions(agent):
    @check(f"{agent.name}: the context of a session is remembered")
    def _():
        session = new_id()
        agent.turn("hello there", session)
        second = agent.turn("history", session)
        assert second.text.startswith("Before, you said: ") and "hello there" in second.text, second.text
        assert agent.turn("history").text == "Before, you said: []", "another session sees it"


def answers(agent):
    @check(f"{agent.name}: an approval is decided on its task")
    def _():
        for approve, reason, expected in ((True, None, "true"), (False, "not today", "false")):
            session = new_id()
            second = agent.decide(session, agent.turn("approval", session), approve, reason)
            said = second.text.replace("'", '"').lower().replace(" ", "")
            assert second.status == "completed" and f'"approved":{expected}' in said, second.last

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


def over_every_protocol(agent):
    every_protocol(
        agent,
        text=Words("hello there", "You said: hello there "),
        reasoning=Words("reasoning", "The answer is 42.", "I look at the question. It is easy."),
        tool=Tool("tool", *WEATHER, "21"),
        client_tool=ClientTool("client tool", "48.85,2.35", "48.85,2.35", {"precise": True}, undeclared=True),
        # The agent reports the answer that it received.
        approval=Approval(
            "approval",
            accepted='"decision":"accept"',
            rejected='"decision":"reject"',
            edit={"path": "b.txt"},
            edited='"path":"b.txt"',
        ),
        error="error",
        long="long 300 20",
    )


def state_of(task, method="GetTask"):
    """What the agent itself says of a task."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": task}}).encode()
    headers = {"content-type": "application/json", **({"a2a-version": "1.0"} if method == "GetTask" else {})}
    with urllib.request.urlopen(urllib.request.Request(UPSTREAM_URL, body, headers)) as answer:
        return json.load(answer)["result"]["status"]["state"]


def cancels(agent, method="GetTask"):
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
        while "cancel" not in state_of(task, method).lower():
            assert time.monotonic() < deadline, state_of(task, method)
            time.sleep(0.1)


def cuts(agent):
    proxy = CuttingProxy()

    for place in (1, 2, 5, 10, 20):

        @check(f"a stream that is cut in event {place + 1} is taken up again exactly")
        def _(place=place):
            made = proxy.made
            proxy.cut_next(place)
            stream = agent.turn("long 24 20")
            assert proxy.made == made + 1, "nothing was cut"
            assert stream.status == "completed", stream.last
            assert stream.text == stream.streamed_text == "".join(f"{n} " for n in range(24)), stream.text

    @check("a question survives a cut before it")
    def _():
        proxy.cut_next(1)
        session = new_id()
        first = agent.turn("question", session)
        assert len(questions(first)) == 1 and first.text == "Before I begin: ", first.last
        second = agent.decide(session, first, True, decision="respond", text="red", payload={"color": "red"})
        assert "red" in second.text and "Before" not in second.text, second.text

    return proxy
