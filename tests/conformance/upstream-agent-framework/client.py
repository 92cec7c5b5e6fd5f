"""The gateway as the client of Microsoft Agent Framework over AG-UI, A2A and Responses, asked over every client protocol."""

from checks import check, close
from every_protocol import Approval, ClientTool, Tool, Words, every_protocol
from upstreams import Agent, Expect, concurrent_sessions, new_id, words

ag_ui, a2a, responses = Agent("ag-ui"), Agent("a2a"), Agent("responses")

UNICODE = "žluťoučký 🦊 line\u2028paragraph\u2029next\u0085end\r\n"
WEATHER = ("weather", {"city": "Paris"})

for agent in (ag_ui, a2a, responses):
    words(agent, {"unicode": Expect(UNICODE), "empty": Expect("")})

every_protocol(
    ag_ui,
    text=Words("hello there", "You said: hello there "),
    reasoning=Words("reasoning", "The answer is 42.", "I look at it."),
    tool=Tool("tool", *WEATHER, "21"),
    client_tool=ClientTool("client tool", "48.85,2.35", "48.85,2.35", {"precise": True}),
    approval=Approval("approval", accepted="deleted a.txt", edit={"path": "b.txt"}, edited="deleted b.txt"),
    error="error",
    long="long 200 50",
)
# `A2AExecutor` sends texts and media alone: no reasoning, calls or questions.
every_protocol(
    a2a,
    text=Words("hello there", "You said: hello there "),
    tool=Tool("tool", *WEATHER, "21"),
    error="error",
    long="long 200 50",
)
every_protocol(
    responses,
    text=Words("hello there", "You said: hello there "),
    reasoning=Words("reasoning", "The answer is 42.", "I look at it."),
    tool=Tool("tool", *WEATHER, "21"),
    # The hosting helpers refuse every `mcp_approval_response` with status 500.
    approval=Approval("approval", accepted="deleted a.txt", takes_answers=False),
    error="error",
    long="long 200 50",
)

for agent in (ag_ui, responses):

    @check(f"{agent.name}: the conversation is remembered")
    def _(agent=agent):
        session = new_id()
        agent.turn("hello there", session)
        assert agent.turn("history", session).text == "Before, you said: ['hello there']"
        assert agent.turn("history").text == "Before, you said: []", "another session sees it"


concurrent_sessions(ag_ui, count=20)
concurrent_sessions(a2a, count=20)
concurrent_sessions(responses, count=20)
close()
