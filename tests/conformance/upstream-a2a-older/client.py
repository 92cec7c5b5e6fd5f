"""The gateway as the client of the official A2A server of version 0.3, over JSON-RPC and HTTP+JSON.

Its library doubles what it stores while a task is subscribed to, leaves a task open for ever if the agent's code fails,
and can be blocked by two subscriptions that are cut and a cancel. None of it may be seen in front of the gateway.
"""

from a2a_agents import WORDS, answers, cancels, cuts, over_every_protocol, sessions
from checks import check, close
from upstreams import Agent, Expect, concurrent_sessions, words

card, rest = Agent("card"), Agent("rest")
FAILURES = {
    "raise": Expect(status="failed", code="UPSTREAM_TRUNCATED", responses=False),
    "broken": Expect("Some words ", status="failed", code="UPSTREAM_TRUNCATED", responses=False),
}

for agent in (card, rest):
    words(agent, {**WORDS, **FAILURES})
    sessions(agent)
    answers(agent)
    cancels(agent, "tasks/get")

over_every_protocol(card)
proxy = cuts(Agent("cut"))


@check("the server still answers after cuts and cancels")
def _():
    for _ in range(3):
        proxy.cut_next(3)
        assert Agent("cut").turn("long 10 20").status == "completed"
    cancels(card, "tasks/get")
    assert card.turn("hello there").text == "You said: hello there "


concurrent_sessions(card)

close()
