"""The gateway as the client of Google's ADK over A2A, streamed and as a whole, asked over every client protocol."""

from checks import check, close
from every_protocol import Approval, ClientTool, Tool, Words, every_protocol
from upstreams import Agent, Expect, concurrent_sessions, new_id, words

polled, streamed = Agent("polled"), Agent("streamed")

UNICODE = "žluťoučký 🦊 line\u2028paragraph\u2029next\u0085end\r\n"
WEATHER = ("weather", {"city": "Paris"})

for agent in (polled, streamed):
    words(
        agent,
        {
            "parallel": Expect(calls=[WEATHER, ("weather", {"city": "Rome"})], outputs=[{"celsius": 21}, {"celsius": 25}]),
            "unicode": Expect(UNICODE),
            "broken": Expect(status="failed"),
        },
    )
    every_protocol(
        agent,
        text=Words("hello there", "You said: hello there "),
        reasoning=Words("reasoning", "The answer is 42.", "I look at it."),
        tool=Tool("tool", *WEATHER, "21"),
        client_tool=ClientTool("client tool", "48.85,2.35", "48.85,2.35", {"precise": True}, undeclared=True),
        approval=Approval("approval", accepted="deleted a.txt", rejected="reject"),
        error="error",
        long="long 200 50",
        # Its server asks the model for whole answers, so nothing is shown before the end.
        streams=False,
    )

    @check(f"{agent.name}: the context of a session is remembered")
    def _():
        session = new_id()
        agent.turn("hello there", session)
        assert agent.turn("history", session).text == "Before, you said: ['hello there']"
        assert agent.turn("history").text == "Before, you said: []", "another session sees it"


concurrent_sessions(streamed, count=20)
close()
