"""The gateway as the client of A2A's official server for JavaScript: every word in four dialects, and cut streams."""

from a2a_agents import WORDS, answers, cancels, cuts, over_every_protocol, sessions
from checks import close
from upstreams import Agent, concurrent_sessions, words

card, rest, older, older_rest = Agent("card"), Agent("rest"), Agent("older"), Agent("older-rest")

# In 0.3 over HTTP+JSON the library leaves out the metadata that tells a call from any other data.
WITHOUT_CALLS = {word: expect for word, expect in WORDS.items() if word not in ("tool", "parallel", "reasoning")}

for agent in (card, rest, older, older_rest):
    words(agent, WITHOUT_CALLS if agent is older_rest else WORDS)
    sessions(agent)
    answers(agent)
    cancels(agent)

over_every_protocol(card)
cuts(Agent("cut"))
concurrent_sessions(card)

close()
