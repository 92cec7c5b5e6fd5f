"""The types of the official Python package: what they write is accepted, and what comes back fits them."""

import json
import uuid

import httpx
from ag_ui.core import AssistantMessage, Event, ResumeEntry, RunAgentInput, Tool, UserMessage
from pydantic import TypeAdapter

from checks import GATEWAY_URL, check, close

events_of = TypeAdapter(Event)
http = httpx.Client(base_url=GATEWAY_URL, timeout=60)


class Thread:
    """A conversation, as an application keeps it."""

    def __init__(self, path="/ag-ui/demo"):
        self.path, self.id, self.messages = path, str(uuid.uuid4()), []

    def run(self, words=None, **fields):
        if words is not None:
            self.messages.append(UserMessage(id=str(uuid.uuid4()), role="user", content=words))
        given = {"state": {}, "tools": [], "context": [], "forwarded_props": {}} | fields
        sent = RunAgentInput(thread_id=self.id, run_id=str(uuid.uuid4()), messages=self.messages, **given)
        body = sent.model_dump_json(by_alias=True, exclude_none=True)
        response = http.post(self.path, content=body, headers={"content-type": "application/json"})
        assert response.status_code == 200, response.text
        lines = [line[6:] for line in response.text.split("\n") if line.startswith("data: ")]
        events = [events_of.validate_json(line) for line in lines]
        texts = {}
        for event in events:
            if event.type == "TEXT_MESSAGE_CONTENT":
                texts[event.message_id] = texts.get(event.message_id, "") + event.delta
        self.messages += [AssistantMessage(id=id, role="assistant", content=text) for id, text in texts.items()]
        return events, "".join(texts.values())


@check("every event of every word fits the types")
def _():
    words = [
        "hello", "reasoning tool", "parallel", "mcp", "component", "image", "audio", "video", "file", "data", "refusal",
        "warning", "unicode", "usage", "empty", "incomplete", "cancel", "error", "fail", "reject", "break", "state", "progress",
        "approval", "question", "login", "client tool",
    ]
    for word in words:
        for version in [None, "1.0"]:
            fields = {} if version is None else {"protocol_version": version}
            events, _ = Thread().run(word, **fields)
            assert events[0].type == "RUN_STARTED" and events[-1].type in ("RUN_FINISHED", "RUN_ERROR"), word


@check("a thread goes on")
def _():
    thread = Thread()
    thread.run("hello")
    _, text = thread.run("history")
    assert "message 2 of yours" in text, text


@check("an interrupt is answered")
def _():
    thread = Thread()
    events, _ = thread.run("question")
    [interrupt] = events[-1].outcome.interrupts
    answer = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload={"colour": "blue"})
    _, text = thread.run(resume=[answer])
    assert "blue" in text, text


@check("a tool of the client is called with the arguments that it declares")
def _():
    parameters = {"type": "object", "properties": {"precision": {"type": "string"}}}
    tool = Tool(name="locate", description="Where the user is", parameters=parameters)
    events, _ = Thread().run("client tool", tools=[tool])
    [call] = [event for event in events if event.type == "TOOL_CALL_START"]
    arguments = "".join(event.delta for event in events if event.type == "TOOL_CALL_ARGS")
    assert call.tool_call_name == "locate" and isinstance(json.loads(arguments), dict), arguments


@check("media of all kinds are accepted")
def _():
    parts = [
        {"type": "text", "text": "hello"},
        {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png"}},
        {"type": "audio", "source": {"type": "data", "value": "AAAA", "mimeType": "audio/wav"}},
        {"type": "document", "source": {"type": "url", "value": "https://example.com/a.pdf"}},
    ]
    _, text = Thread().run(parts)
    assert "image, audio, file" in text, text


close()
