"""What suites in front of the scripted model share: what it says, and checks of memory and of the client's tools."""

from checks import check
from upstreams import new_id

UNICODE = "žluťoučký 🦊 line\u2028paragraph\u2029next\u0085end\r\n"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def usage(stream):
    found = {name: stream.last["usage"][name] for name in ("input_tokens", "output_tokens")}
    assert found == {"input_tokens": 7, "output_tokens": 2}, stream.last["usage"]


def remembers(agent):
    """The gateway keeps the history: the model remembers nothing."""

    @check(f"{agent.name}: three turns of a session know each other, and no other session does")
    def _():
        session = new_id()
        for text in ("hello one", "hello two"):
            assert agent.turn(text, session).status == "completed"
        third = agent.turn("history", session)
        assert third.text == "Before, you said: ['hello one', 'hello two']", third.text
        assert agent.turn("history").text == "Before, you said: []"


def answers_tools(agent):
    """Calls and outputs are paired, whatever ids the server gave."""

    @check(f"{agent.name}: outputs go to the calls that wait for them, and calls without one are left out")
    def _():
        session = new_id()
        for _ in range(2):
            stream = agent.turn("tool", session, tools=[TOOL])
            (call,) = [part["data"] for message in stream.messages("function_call") for part in message["content"]]
            answered = agent.output(session, call["call_id"], "21 degrees")
            assert answered.text == "I got ['21 degrees']", answered.last
        agent.turn("tool", session)
        spoken = agent.turn("hello there", session)
        assert spoken.text == "You said: hello there ", spoken.last
