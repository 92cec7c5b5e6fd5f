"""Asks one real agent the same things over every client protocol, and compares the answers.

    from every_protocol import Approval, ClientTool, Tool, Words, every_protocol

    every_protocol(
        Agent("scripted"),
        text=Words("hello there", "You said: hello there "),
        approval=Approval("approval", accepted="deleted a.txt", rejected="not deleted", edit={"path": "b.txt"}, edited="deleted b.txt"),
    )

Every part is optional, because agents differ in what their protocol can say. `known` names faults that are reported
elsewhere, as `(protocol, part)` with the reason: such a check has to fail, so that its entry is deleted with the fault.
Needs a route for each client protocol at the paths of the shipped `gateway.toml`.
"""

import time
from dataclasses import dataclass

from checks import check
from protocol_clients import ALL, Hitl

LOCATE = {"name": "locate", "description": "Where the user is.", "parameters": {"type": "object"}}
# How long a run may take to end after it was canceled.
CANCEL_LIMIT = 20


@dataclass
class Words:
    """Words and the whole answer."""

    words: str
    text: str
    reasoning: str = ""


@dataclass
class Tool:
    """Words that make the agent run its own tool. `output`: part of the output or of the text after it."""

    words: str
    name: str
    arguments: dict
    output: str


@dataclass
class ClientTool:
    """Words that make the agent call the tool `locate` of the client. `text`: part of the answer to its output."""

    words: str
    output: str
    text: str
    arguments: dict | None = None
    undeclared: bool = False  # The agent knows the tool already.


@dataclass
class Approval:
    """Words that make the agent ask whether it may run a call, and parts of the text or outputs after each decision.

    `edit` are arguments; `None`: the agent takes no edits, and an edit has to be refused without any effect."""

    words: str
    accepted: str
    rejected: str | None = None
    edit: dict | None = None
    edited: str = ""
    # False: the agent takes no answer to its question.
    takes_answers: bool = True


def whole(answer):
    """Everything that a turn shows of its results."""
    return "\n".join([answer.text, *(str(output) for output in answer.outputs)])


def shows(answer, part):
    """Whether the results contain a part. Agents print JSON in the forms of their languages."""
    plain = lambda text: text.replace("'", '"').replace(" ", "").lower()
    return plain(part) in plain(whole(answer))


def lines(text):
    """A text without the breaks that a protocol puts between messages."""
    return " ".join(text.split())


def completed(answer):
    assert answer.status == "completed", (answer.status, answer.error, answer.raw[-2000:])
    return answer


def every_protocol(agent, *, text, reasoning=None, tool=None, client_tool=None, approval=None, error=None, long=None,
                   streams=True, known=None, clients=ALL):
    """Runs the checks. `error` are words whose turn fails, `long` words whose turn works for many seconds; `streams`:
    the agent shows the first words of it at once."""
    known = dict(known or {})

    def checked(client, part, function):
        reason = known.pop((client.name, part), None) or known.get(("*", part))
        sentence = f"{agent.name} over {client.name}: {part}"
        if reason is None:
            check(sentence)(function)
            return

        @check(f"{sentence} (known fault: {reason})")
        def _():
            try:
                function()
            except Exception:
                return
            raise AssertionError("the fault is gone: delete its entry in `known`")

    for Client in clients:
        checked(Client, "text", lambda: _text(Client(agent.name), text))
        if reasoning:
            checked(Client, "reasoning", lambda: _text(Client(agent.name), reasoning))
        if tool:
            checked(Client, "a tool of the agent", lambda: _tool(Client(agent.name), tool))
        if client_tool and (Client.tools or client_tool.undeclared):
            checked(Client, "a tool of the client", lambda: _client_tool(Client(agent.name), client_tool))
        if approval and not approval.takes_answers:
            checked(Client, "an approval is asked", lambda: _asked(Client(agent.name), approval))
        elif approval:
            checked(Client, "an approval is accepted", lambda: _accepted(Client(agent.name), approval))
            checked(Client, "an approval is rejected", lambda: _rejected(Client(agent.name), approval))
            if Client.edits:
                checked(Client, "an approval is edited", lambda: _edited(Client(agent.name), approval))
        if error:
            checked(Client, "an error", lambda: _error(Client(agent.name), error))
        if long:
            checked(Client, "a turn is canceled", lambda: _canceled(Client(agent.name), long, streams))


def _text(client, expected):
    answer = completed(client.say(expected.words))
    assert answer.text.strip() == expected.text.strip(), (answer.text, answer.raw[-2000:])
    assert lines(answer.reasoning) == lines(expected.reasoning), (answer.reasoning, answer.raw[-2000:])
    assert (answer.client_calls, answer.asks) == ([], []), answer


def _tool(client, expected):
    answer = completed(client.say(expected.words))
    assert shows(answer, expected.output), (whole(answer), answer.raw[-2000:])
    # A chat client is never told to run the agent's tool; other protocols show the call.
    assert answer.client_calls == [], answer.client_calls
    if answer.calls:
        assert (expected.name, expected.arguments) in answer.calls, answer.calls


def _client_tool(client, expected):
    answer = completed(client.say(expected.words, [LOCATE]))
    assert [name for _, name, _ in answer.client_calls] == ["locate"], (answer.client_calls, answer.raw[-2000:])
    if expected.arguments is not None:
        assert answer.client_calls[0][2] == expected.arguments, answer.client_calls
    second = completed(client.output(answer, expected.output))
    assert expected.text in second.text, (second.text, second.raw[-2000:])


def _asked(client, expected):
    answer = completed(client.say(expected.words))
    assert len(answer.asks) == 1 and answer.client_calls == [], (answer.asks, answer.client_calls, answer.raw[-2000:])
    assert not shows(answer, expected.accepted), "the call ran before anyone decided"
    return answer


def _accepted(client, expected):
    second = completed(client.decide(_asked(client, expected), "accept"))
    assert second.asks == [] and shows(second, expected.accepted), (whole(second), second.raw[-2000:])


def _rejected(client, expected):
    second = completed(client.decide(_asked(client, expected), "reject"))
    assert second.asks == [] and not shows(second, expected.accepted), (whole(second), second.raw[-2000:])
    if expected.rejected is not None:
        assert shows(second, expected.rejected), (whole(second), second.raw[-2000:])


def _edited(client, expected):
    asked = _asked(client, expected)
    arguments = expected.edit if expected.edit is not None else {"path": "b.txt"}
    second = client.decide(asked, "edit", arguments)
    if expected.edit is not None:
        assert shows(completed(second), expected.edited), (whole(second), second.raw[-2000:])
        assert not shows(second, expected.accepted), (whole(second), second.raw[-2000:])
        return
    # The agent takes no edits. A refusal names its reason, the question stays open, and nothing ran.
    assert second.status in ("refused", "failed") or second.asks, (second.status, second.raw[-2000:])
    assert not shows(second, expected.accepted), second.raw[-2000:]
    third = completed(client.decide(second if second.asks else asked, "reject"))
    assert not shows(third, expected.accepted), third.raw[-2000:]


def _error(client, words):
    answer = client.say(words)
    assert answer.status in ("failed", "refused"), (answer.status, answer.text, answer.raw[-2000:])
    assert len(answer.error) > 2, "the error has no text"


def _canceled(client, words, streams):
    opened = client.long_turn(words)
    deadline = time.monotonic() + CANCEL_LIMIT
    if streams and not isinstance(client, Hitl):
        # The agent is at work.
        opened.read_until(b"1 ")
    while (run := client.run_of_session())["status"] != "in_progress":
        assert time.monotonic() < deadline, run
        time.sleep(0.02)
    client.cancel(opened)
    while (run := client.run_of_session())["status"] == "in_progress":
        assert time.monotonic() < deadline, "the run goes on"
        time.sleep(0.02)
    assert run["status"] == "canceled", run
