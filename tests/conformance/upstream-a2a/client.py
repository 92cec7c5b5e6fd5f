"""The gateway as the client of the official A2A server: every word in four dialects, streamed and polled, cut and
taken up again."""

from a2a_agents import WORDS, answers, cancels, cuts, over_every_protocol, sessions
from checks import check, close
from upstreams import Agent, concurrent_sessions, words

card, rest, older, older_rest = Agent("card"), Agent("rest"), Agent("older"), Agent("older-rest")
polled, cut = Agent("polled"), Agent("cut")

for agent in (card, rest, older, older_rest, polled):
    words(agent, WORDS)
    sessions(agent)
    answers(agent)

for agent in (card, rest, older, older_rest):
    cancels(agent)

over_every_protocol(card)

proxy = cuts(cut)


@check("a stream that is cut again and again is taken up each time")
def _():
    for place in (6, 4):
        proxy.cut_next(place)
    stream = cut.turn("long 40 20")
    assert stream.text == stream.streamed_text == "".join(f"{n} " for n in range(40)), stream.streamed_text


concurrent_sessions(card)

close()
