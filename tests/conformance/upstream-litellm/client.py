"""The gateway as a client of LiteLLM's proxy: its Chat Completions in front of models of two protocols, and its Messages."""

from checks import check, close
from model_words import UNICODE, answers_tools, remembers
from upstreams import Agent, Expect, concurrent_sessions, log, probe, words

PARIS, ROME = ("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})

WORDS = {
    "hello there": Expect("You said: hello there "),
    "reasoning": Expect("The answer is 42.", reasoning="I look at it."),
    "tool": Expect("I look it up.", client_calls=[PARIS], calls=[]),
    "parallel": Expect("", client_calls=[PARIS, ROME]),
    "incomplete": Expect("This is cut ", status="incomplete"),
    "error": Expect(status="failed", responses=False),
    "busy": Expect(status="failed", responses=False),
    "fail": Expect("Some words ", status="failed", responses=False),
    "cut": Expect("Some words ", status="failed", responses=False),
    "unicode": Expect(UNICODE),
}
# The proxy loses what a model says when it declines, and what stands behind a separator of lines that is none of HTTP's.
CHAT = {"refusal": Expect("")}
SPLIT = {"unicode": Expect("žluťoučký 🦊 ")}
MESSAGES = {"refusal": Expect("I will not do that.")}

chat = [Agent(f"chat-{name}") for name in ("openai", "vllm", "deepseek", "openrouter")]
messages = [Agent(f"messages-{name}") for name in ("openai", "anthropic")]
for agent in chat:
    words(agent, WORDS | CHAT | (SPLIT if agent.name != "chat-openai" else {}))
declined = {"refusal": Expect("I will not do that.", status="incomplete")}
words(Agent("chat-anthropic"), WORDS | SPLIT | declined)
for agent in messages:
    words(agent, WORDS | MESSAGES)

for agent in (*chat, Agent("chat-anthropic"), *messages):
    remembers(agent)
    answers_tools(agent)


@check("a failure that the proxy hides behind a well-framed end is one")
def _():
    stream = Agent("messages-openai").turn("fail")
    assert stream.last["error"]["code"] == "UPSTREAM_TRUNCATED", stream.last


@check("too many requests are reported as such")
def _():
    for agent in (chat[0], messages[0]):
        assert agent.turn("busy").http_status == 429


for agent in (chat[0], messages[0]):

    @check(f"{agent.name}: a probe finds the model and names the server")
    def _():
        status, output = probe(agent)
        assert status == 0 and 'has the model "openai"' in output and "LiteLLM" in output, (status, output)


@check("no frame of LiteLLM was ignored")
def _():
    lines = [line for line in log("ignored_frames=").splitlines() if "ignored_frames=" in line]
    assert all("ignored_frames=0" in line for line in lines), lines[:3]


concurrent_sessions(chat[0], 20)
concurrent_sessions(messages[1], 20)
close()
