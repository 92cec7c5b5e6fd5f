"""An AG-UI agent on the protocol's own types and encoder: no framework, no model, the first words say what happens.

    python agent.py --port PORT

POST / answers in the form of 1.0; POST /old in that of the time before (`on_interrupt`, THINKING_*, chunks).
"""


import argparse
import asyncio
import json

import uvicorn
from ag_ui.core import events as e
from ag_ui.core.types import RunAgentInput
from ag_ui.encoder import EventEncoder
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

EVENT = TypeAdapter(e.Event)
APPROVAL = {"type": "object", "properties": {"approved": {"type": "boolean"}, "editedArgs": {"type": "object"}}}
COLORS = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
threads = {}  # thread → what its users said

app = FastAPI()


def text(own_id, *pieces, role="assistant"):
    yield {"type": "TEXT_MESSAGE_START", "messageId": own_id, "role": role}
    for piece in pieces:
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": own_id, "delta": piece}
    yield {"type": "TEXT_MESSAGE_END", "messageId": own_id}


def reasoning(own_id, *pieces):
    yield {"type": "REASONING_START", "messageId": own_id}
    yield {"type": "REASONING_MESSAGE_START", "messageId": own_id, "role": "reasoning"}
    for piece in pieces:
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": own_id, "delta": piece}
    yield {"type": "REASONING_MESSAGE_END", "messageId": own_id}
    yield {"type": "REASONING_END", "messageId": own_id}
    yield {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": own_id, "encryptedValue": "c2VjcmV0"}


def call(own_id, name, *pieces):
    yield {"type": "TOOL_CALL_START", "toolCallId": own_id, "toolCallName": name, "parentMessageId": "m1"}
    for piece in pieces:
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": own_id, "delta": piece}
    yield {"type": "TOOL_CALL_END", "toolCallId": own_id}


def result(call_id, content):
    yield {"type": "TOOL_CALL_RESULT", "messageId": f"{call_id}-result", "toolCallId": call_id, "content": content}


def interrupts(*asked):
    yield {"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": list(asked)}}


def script(words, given, before):
    """The events of one answer; `RUN_STARTED` and a plain `RUN_FINISHED` are put around them."""
    match words.split():
        case ["reasoning", *_]:
            yield from reasoning("r1", "I look at ", "the question.")
            yield from text("m1", "The answer ", "is 42.")
        case ["tool", *_]:
            yield from text("m1", "I look it up.")
            yield from call("call_1", "weather", '{"city":', '"Paris"}')
            yield from result("call_1", '{"celsius":21}')
            yield from text("m2", "It is 21 degrees ", "in Paris.")
        case ["parallel", *_]:
            one, two = call("call_1", "weather", '{"city":', '"Paris"}'), call("call_2", "weather", '{"city":', '"Rome"}')
            for pair in zip(one, two):  # both open at once
                yield from pair
            yield from result("call_2", '{"celsius":25}')
            yield from result("call_1", '{"celsius":21}')
            yield from text("m2", "Paris 21, ", "Rome 25.")
        case ["client", "tool", *_]:
            name = given.tools[0].name if given.tools else "locate"
            yield from call("call_1", name, '{"precise":', "true}")
            yield {"type": "RUN_FINISHED", "outcome": {"type": "success", "pendingToolCallIds": ["call_1"]}}
        case ["client", "two", *_]:
            yield from call("call_1", "locate", '{"precise":true}')
            yield from call("call_2", "locate", "{}")
        case ["approval", *_]:
            yield from call("call_1", "delete_file", '{"path":"a.txt"}')
            asked = {"id": "int_1", "reason": "tool_call", "toolCallId": "call_1", "message": "May I delete a.txt?"}
            yield from interrupts({**asked, "responseSchema": APPROVAL})
        case ["question", *_]:
            yield from text("m1", "Before I begin: ")
            asked = {"id": "int_1", "reason": "input_required", "message": "Which color?", "responseSchema": COLORS}
            yield from interrupts({**asked, "metadata": {"form": "color"}})
        case ["both", *_]:
            one = {"id": "int_1", "reason": "confirmation", "message": "The first?"}
            yield from interrupts(one, {"id": "int_2", "reason": "scripted:other", "message": "The second?"})
        case ["state", *_]:
            yield {"type": "STEP_STARTED", "stepName": "plan"}
            yield {"type": "STATE_SNAPSHOT", "snapshot": {"steps": []}}
            yield {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/steps/-", "value": "look"}]}
            activity = {"messageId": "a1", "activityType": "PLAN"}
            yield {"type": "ACTIVITY_SNAPSHOT", **activity, "content": {"done": 0}}
            yield {"type": "ACTIVITY_DELTA", **activity, "patch": [{"op": "replace", "path": "/done", "value": 1}]}
            yield {"type": "CUSTOM", "name": "progress", "value": {"percent": 50}}
            yield {"type": "RAW", "event": {"any": "thing"}, "source": "scripted"}
            yield {"type": "STEP_FINISHED", "stepName": "plan"}
            yield from text("m1", "Planned.")
            yield {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m1", "role": "assistant", "content": "Planned."}]}
        case ["subagent", *_]:
            yield {"type": "SUBAGENT_STARTED", "subagentRunId": "s1", "name": "helper"}
            for event in text("m1", "From the helper."):
                yield {**event, "subagentRunId": "s1"}
            yield {"type": "SUBAGENT_FINISHED", "subagentRunId": "s1"}
        case ["two", *_]:  # two messages open at once
            for pair in zip(text("m1", "one ", "two"), text("m2", "ONE ", "TWO")):
                yield from pair
        case ["image", *_]:  # the protocol has no media in the assistant's messages: a tool's result and an activity carry it
            yield from call("call_1", "draw", "{}")
            picture = {"type": "image", "source": {"type": "data", "value": PNG, "mimeType": "image/png"}}
            yield from result("call_1", [{"type": "text", "text": "drawn"}, picture])
            yield from text("m1", f"![A dot](data:image/png;base64,{PNG})")
        case ["usage", *_]:
            yield from text("m1", "Counted.")
            used = {"provider": "scripted", "model": "none", "inputTokens": 7, "outputTokens": 2, "totalTokens": 9}
            yield {"type": "RUN_FINISHED", "result": {"any": "value"}, "usage": [used]}
        case ["error", *_]:
            yield {"type": "RUN_ERROR", "message": "The database is away.", "code": "DB_AWAY"}
        case ["fail", *_]:
            yield {"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"}
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Some words "}
            yield {"type": "RUN_ERROR", "message": "The database went away.", "code": "DB_AWAY"}
        case ["raise", *_]:
            yield from text("m1", "Some words ")
            raise RuntimeError("the agent's code broke")
        case ["cancelled", *_]:
            yield {"type": "RUN_FINISHED", "outcome": {"type": "cancelled"}}
        case ["long", count, milliseconds, *_]:
            yield {"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"}
            for n in range(int(count)):
                yield int(milliseconds) / 1000
                yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": f"{n} "}
            yield {"type": "TEXT_MESSAGE_END", "messageId": "m1"}
        case ["history", *_]:
            yield from text("m1", "Before, you said: ", repr(before))
        case ["input", *_]:
            yield from text("m1", given.model_dump_json(by_alias=True, exclude_none=True))
        case ["unicode", *_]:
            yield from text("m1", "žluťoučký 🦊 ", "line\u2028paragraph\u2029next\u0085end\r\n")
        case ["empty", *_]:
            pass
        case _:
            yield from text("m1", "You said: ", *(word + " " for word in words.split()))


def older(events):
    """The same in the form of the time before 1.0."""
    for event in events:
        match event if isinstance(event, dict) else {}:
            case {"type": "REASONING_START"}:
                yield {"type": "THINKING_START"}
            case {"type": "REASONING_END"}:
                yield {"type": "THINKING_END"}
            case {"type": "REASONING_MESSAGE_START" | "REASONING_MESSAGE_END" as kind}:
                yield {"type": kind.replace("REASONING_MESSAGE", "THINKING_TEXT_MESSAGE")}
            case {"type": "REASONING_MESSAGE_CONTENT", "delta": delta}:
                yield {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": delta}
            case {"type": "TEXT_MESSAGE_CONTENT", "messageId": own_id, "delta": delta}:
                yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": own_id, "delta": delta, "role": "assistant"}
            case {"type": "TOOL_CALL_ARGS", "toolCallId": own_id, "delta": delta}:
                yield {"type": "TOOL_CALL_CHUNK", "toolCallId": own_id, "delta": delta}
            case {"type": "TOOL_CALL_START", "toolCallId": own_id, "toolCallName": name}:
                yield {"type": "TOOL_CALL_CHUNK", "toolCallId": own_id, "toolCallName": name}
            case {"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": asked}}:
                yield {"type": "CUSTOM", "name": "on_interrupt", "value": json.dumps(asked[0])}
                yield {"type": "RUN_FINISHED"}
            case {"type": "TEXT_MESSAGE_START" | "TEXT_MESSAGE_END" | "TOOL_CALL_END" | "REASONING_ENCRYPTED_VALUE"}:
                pass
            case {"type": "RUN_FINISHED"}:
                yield {"type": "RUN_FINISHED"}
            case _:
                yield event


def answered(given):
    """What an answer to an interrupt or to a call says, if the input is one."""
    if given.resume:
        return [(entry.interrupt_id, entry.status, entry.payload) for entry in given.resume]
    if isinstance(given.forwarded_props, dict) and "command" in given.forwarded_props:
        return given.forwarded_props["command"].get("resume")
    if given.messages and given.messages[-1].role == "tool":
        return [(m.tool_call_id, m.content) for m in given.messages if m.role == "tool"]
    return None


async def run(given, form):
    encoder, ids = EventEncoder(), {"threadId": given.thread_id, "runId": given.run_id}

    def encode(event):
        if event["type"].startswith("THINKING"):  # 1.0 has no types for them any more
            return f"data: {json.dumps(event)}\n\n"
        if event["type"] in ("RUN_STARTED", "RUN_FINISHED"):
            event = {**event, **ids}
        return encoder.encode(EVENT.validate_python(event))

    said = next((m.content for m in reversed(given.messages) if m.role == "user"), "")
    words = said if isinstance(said, str) else " ".join(part.text for part in said if part.type == "text")
    before = threads.setdefault(given.thread_id, [])
    answer = answered(given)
    events = script(words, given, list(before)) if answer is None else text("m9", "Your answer: ", repr(answer))
    before.append(words)
    started = {"type": "RUN_STARTED", **({"protocolVersion": "1.0"} if form is iter else {})}
    yield encode(started)
    ended = False
    for event in form(events):
        if isinstance(event, float):
            await asyncio.sleep(event)
            continue
        ended = event["type"] in ("RUN_FINISHED", "RUN_ERROR")
        yield encode(event)
        await asyncio.sleep(0.005)
    if not ended:
        yield encode({"type": "RUN_FINISHED"})


def stream(given, form):
    return StreamingResponse(run(given, form), media_type=EventEncoder().get_content_type())


@app.post("/")
async def newer_endpoint(given: RunAgentInput, request: Request):
    return stream(given, iter)


@app.post("/old")
async def older_endpoint(given: RunAgentInput, request: Request):
    return stream(given, older)


@app.get("/health")
async def health():
    return {"status": "ok"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    # Without a limit an open stream holds the server for ever when it is stopped.
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
