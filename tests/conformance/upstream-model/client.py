"""The gateway as a client of model servers: Chat Completions with the habits of thirteen servers, and Messages."""

from checks import check, close
from model_words import TOOL, UNICODE, answers_tools, remembers, usage
from upstreams import Agent, Expect, concurrent_sessions, log, words

FLAVOURS = "openai vllm sglang llamacpp ollama azure gemini openrouter deepseek mistral whole crlf silent".split()
PARIS, ROME = ("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})

WORDS = {
    "hello there": Expect("You said: hello there ", more=[usage]),
    "reasoning": Expect("The answer is 42.", reasoning="I look at it."),
    "tool": Expect("I look it up.", client_calls=[PARIS], calls=[]),
    "parallel": Expect("", client_calls=[PARIS, ROME]),
    "refusal": Expect(""),
    "incomplete": Expect("This is cut ", status="incomplete"),
    "filtered": Expect("This is ", status="incomplete"),
    "error": Expect(status="failed", responses=False),
    "busy": Expect(status="failed", responses=False),
    "fail": Expect("Some words ", status="failed", responses=False),
    "cut": Expect("Some words ", status="failed", responses=False),
    "unicode": Expect(UNICODE),
    "empty": Expect(""),
}

# Without a reason for its end, an answer of nothing is no answer, and a limit is not seen.
SILENT = {
    "empty": Expect(status="failed", responses=False),
    "incomplete": Expect("This is cut "),
    "filtered": Expect("This is "),
}
# Nothing comes before the failure.
WHOLE = {"fail": Expect("", status="failed", responses=False), "cut": Expect("", status="failed", responses=False)}
# It counts no tokens.
SGLANG = {"hello there": Expect("You said: hello there ")}
OTHERS = {"silent": SILENT, "whole": WHOLE, "sglang": SGLANG}

for flavour in FLAVOURS:
    agent = Agent(flavour)
    words(agent, WORDS | OTHERS.get(flavour, {}))
    remembers(agent)
    answers_tools(agent)

messages = Agent("messages")
words(
    messages,
    WORDS
    | {
        # The words of a refusal are text, and the reason says what they are.
        "refusal": Expect("I will not do that."),
        "filtered": Expect("This is "),
    },
)
remembers(messages)
answers_tools(messages)


@check("thoughts with a signature go back to the server with the outputs of its calls")
def _():
    stream = messages.turn("reasoning")
    (thought,) = stream.messages("reasoning")
    assert thought["metadata"] == {"signature": "c2lnbmVk", "origin": "anthropic-messages/messages"}, thought


@check("both outputs of two calls go to the model together, though they come one by one")
def _():
    for agent in (Agent("openai"), messages):
        session = f"together-{agent.name}"
        stream = agent.turn("parallel", session, tools=[TOOL])
        first, second = [part["data"]["call_id"] for m in stream.messages("function_call") for part in m["content"]]
        waiting = agent.output(session, first, "21")
        assert waiting.text == "", waiting.text
        assert agent.output(session, second, "25").text == "I got ['21', '25']"


@check("too many requests are reported with the pause that the server names")
def _():
    failed = Agent("openai").turn("busy")
    assert failed.http_status == 429, failed.http_status


@check("what the operator adds does no harm")
def _():
    assert Agent("tourist").turn("hello there").text == "You said: hello there "


@check("the log says what was lost of a refusal")
def _():
    lost = [line for line in log("content lost").splitlines() if "content lost" in line and "refusal" in line]
    assert lost, "no line"


concurrent_sessions(Agent("openai"))
concurrent_sessions(messages)
close()
