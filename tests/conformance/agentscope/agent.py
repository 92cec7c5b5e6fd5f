"""An agent for AgentScope Runtime without a model: each input word is a command.

It is the upstream of `cargo xtask conformance agentscope` and of `record.py`, which records what the runtime sends
for each command. The commands are the keys of the tables below (`ACTS` and one table for each further framework).
Not here: anything about the gateway.

    python agent.py --port 8090 [--framework agentscope|text|langgraph|agno]
"""

import argparse
import asyncio
import os
import tempfile

from agentscope.message import Msg
from agentscope_runtime.engine.app import AgentApp
from agentscope_runtime.engine.helpers.agent_api_builder import ResponseBuilder
from agentscope_runtime.engine.schemas.agent_schemas import (
    DataContent,
    Error,
    Message,
    RefusalContent,
    TextContent,
)
from agentscope_runtime.engine.schemas.exception import ModelQuotaExceededException
from fastapi.responses import StreamingResponse

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
UNICODE = "naïve 日本語 🦀 e\u0301 \u2028 \u0000 \"quoted\" \\ back\nnew line\ttab 👩‍👩‍👧"

# Turns per session, as a stand-in for history that the runtime keeps by session id.
turns: dict[str, int] = {}


def words_of(request) -> list[str]:
    """The words of the last text of the last message that has one."""
    for message in reversed(request.input):
        for part in reversed(message.content or []):
            if getattr(part, "text", None):
                return part.text.split()
    return ["text"]


# --- framework `agentscope`: tuples of (message so far, whether it is complete) ---------------------------------


def say(role="assistant", **options) -> Msg:
    return Msg(options.pop("name", "friday"), [], role, **options)


def text(value: str) -> dict:
    return {"type": "text", "text": value}


def thinking(value: str) -> dict:
    return {"type": "thinking", "thinking": value}


def url(kind: str, address: str, **more) -> dict:
    return {"type": kind, "source": {"type": "url", "url": address}, **more}


def base64(kind: str, media: str, value: str, **more) -> dict:
    return {"type": kind, "source": {"type": "base64", "media_type": media, "data": value}, **more}


async def grow(pieces, make=text, pause=0.0, finish=True, msg=None):
    """One message that grows step by step: its content is always the full text so far."""
    msg, so_far = msg or say(), ""
    for place, piece in enumerate(pieces):
        so_far += piece
        msg.content = [make(so_far)]
        if pause:
            await asyncio.sleep(pause)
        yield msg, finish and place == len(pieces) - 1


async def act_text(**_):
    async for row in grow(["Hello", ", ", "world", "!"]):
        yield row


async def act_reasoning(**_):
    async for row in grow(["Let me", " think", " about it."], thinking):
        yield row
    async for row in grow(["It is", " 42."]):
        yield row


async def act_think(**_):
    """Reasoning and reply in one turn: the runtime opens both at once and splits the reply over two contents."""
    msg = say()
    msg.content = [thinking("Let me")]
    yield msg, False
    msg.content = [thinking("Let me think.")]
    yield msg, False
    msg.content = [thinking("Let me think."), text("42")]
    yield msg, False
    msg.content = [thinking("Let me think."), text("42 is it.")]
    yield msg, True


async def call(kind: dict, output, call_id="call_1", name="get_weather"):
    """Text, then a call whose arguments become known step by step, its output, and a closing text."""
    msg = say()
    for so_far in ("I look", "I look it up."):
        msg.content = [text(so_far)]
        yield msg, False
    for arguments, last in (({}, False), ({"city": "Par"}, False), ({"city": "Paris"}, True)):
        use = {"type": "tool_use", "id": call_id, "name": name, "input": arguments, **kind}
        msg.content = [text("I look it up."), use]
        yield msg, last
    result = say("system", name="system")
    result.content = [{"type": "tool_result", "id": call_id, "name": name, "output": output, **kind}]
    yield result, True
    closing = say()
    closing.usage = {"input_tokens": 11, "output_tokens": 5}
    for so_far in ("It is", "It is 18 C and sunny."):
        closing.content = [text(so_far)]
        yield closing, so_far.endswith(".")


async def act_tool(**_):
    async for row in call({}, [text("18 C, sunny")]):
        yield row


async def act_mcp(**_):
    async for row in call({"tool_type": "mcp", "server_label": "weather"}, [text("18 C, sunny")]):
        yield row


async def act_parallel(**_):
    """Two calls in one message, answered in the other order."""
    msg = say()
    calls = [("call_a", {"city": "Paris"}), ("call_b", {"city": "Oslo"})]
    uses = [{"type": "tool_use", "id": i, "name": "get_weather", "input": a} for i, a in calls]
    for last in (False, True):
        msg.content = uses
        yield msg, last
    for call_id, output in (("call_b", "-3 C"), ("call_a", "18 C")):
        result = say("system", name="system")
        result.content = [{"type": "tool_result", "id": call_id, "name": "get_weather", "output": output}]
        yield result, True
    async for row in grow(["Paris 18 C, ", "Oslo -3 C."]):
        yield row


async def media(*blocks):
    msg = say()
    msg.content = list(blocks)
    yield msg, True


async def act_image(**_):
    async for row in media(url("image", "https://example.com/cat.png")):
        yield row


async def act_image64(**_):
    async for row in media(base64("image", "image/png", PIXEL)):
        yield row


async def act_picture(**_):
    """An image in one message, and a caption in the next."""
    async for row in media(url("image", "https://example.com/cat.png")):
        yield row
    async for row in grow(["A ", "cat."]):
        yield row


async def act_captioned(**_):
    """Text and an image in the same message."""
    async for row in media(text("Look:"), url("image", "https://example.com/cat.png")):
        yield row


async def act_audio(**_):
    async for row in media(base64("audio", "audio/wav", "UklGRiQAAABXQVZFZm10IA==")):
        yield row


async def act_video(**_):
    async for row in media(url("video", "https://example.com/cat.mp4")):
        yield row


async def act_file(**_):
    async for row in media(url("file", "https://example.com/report.pdf", filename="report.pdf")):
        yield row


async def act_plain(**_):
    """Content that is a bare string: nothing is streamed before the end."""
    yield Msg("friday", "A plain answer.", "assistant"), True


async def act_open(**_):
    """Never marks the last chunk, so the runtime leaves the message open."""
    async for row in grow(["Never", " closed"], finish=False):
        yield row


async def act_empty(**_):
    return
    yield


async def act_unicode(**_):
    async for row in grow([UNICODE[:9], UNICODE[9:17], UNICODE[17:]]):
        yield row


async def act_usage(**_):
    msg = say()
    msg.usage = {"input_tokens": 11, "output_tokens": 5, "time": 0.25}
    async for row in grow(["Counted", "."], msg=msg):
        yield row


async def act_metadata(**_):
    async for row in grow(["Noted."], msg=say(metadata={"topic": "weather", "score": 0.5})):
        yield row


async def act_long(words, **_):
    """`long [N [MS]]`: N words, one every MS milliseconds."""
    count = int(words[1]) if len(words) > 1 else 100
    pause = int(words[2]) / 1000 if len(words) > 2 else 0.0
    async for row in grow([f"word{place} " for place in range(count)], pause=pause):
        yield row


async def act_turn(request, **_):
    key = f"{request.user_id}:{request.session_id}"
    turns[key] = turns.get(key, 0) + 1
    async for row in grow([f"turn {turns[key]}, ", f"{len(request.input)} messages"]):
        yield row


async def act_whoami(request, **_):
    async for row in grow([f"user={request.user_id} ", f"session={request.session_id}"]):
        yield row


async def act_extra(request, **_):
    """Lists the received fields that are not in the published schema."""
    async for row in grow([" ".join(sorted(request.model_extra or {})) or "none"]):
        yield row


async def act_error(**_):
    raise RuntimeError("upstream model exploded")
    yield


async def act_late_error(**_):
    async for row in grow(["Partial", " answer"], finish=False):
        yield row
    raise RuntimeError("upstream model exploded")


async def act_quota(**_):
    async for row in grow(["Almost"], finish=False):
        yield row
    raise ModelQuotaExceededException("qwen-max")


async def raw(*events):
    """Hand-made Agent API events, through the hook of the runtime for custom blocks."""
    msg = say()
    msg.content = [{"type": "native", "events": events}]
    yield msg, True


def message_with(kind: str, *contents, role="assistant", **more):
    """A complete message: started, filled and closed. Copies, since the runtime yields the objects themselves."""
    message = Message(type=kind, role=role, **more)
    yield message.in_progress().model_copy(deep=True)
    for content in contents:
        message.add_content(new_content=content)
        yield content.completed().model_copy(deep=True)
    yield message.completed().model_copy(deep=True)


async def act_approval(**_):
    body = {"id": "appr_1", "name": "delete_file", "arguments": '{"path": "a.txt"}', "server_label": "files"}
    async for row in raw(*message_with("mcp_approval_request", DataContent(data=body))):
        yield row


async def act_client_tool(**_):
    body = {"call_id": "call_c", "name": "pick_colour", "arguments": '{"from": ["red", "blue"]}'}
    async for row in raw(*message_with("function_call", DataContent(data=body))):
        yield row


async def act_component(**_):
    ask = {"call_id": "call_k", "name": "search", "arguments": "{}"}
    answer = {"call_id": "call_k", "name": "search", "output": "found"}
    events = list(message_with("component_call", DataContent(data=ask)))
    events += message_with("component_call_output", DataContent(data=answer), role="tool")
    async for row in raw(*events):
        yield row


async def act_mcp_list(**_):
    tools = [{"name": "read_file", "input_schema": {"type": "object"}, "description": "Reads a file"}]
    body = {"id": "list_1", "server_label": "files", "tools": tools}
    async for row in raw(*message_with("mcp_list_tools", DataContent(data=body))):
        yield row


async def act_refusal(**_):
    async for row in raw(*message_with("message", RefusalContent(refusal="I cannot help with that."))):
        yield row


async def act_data(**_):
    async for row in raw(*message_with("message", DataContent(data={"rows": [1, 2], "note": None}))):
        yield row


async def act_heartbeat(**_):
    beat = Message(type="heartbeat", role="assistant")
    async for row in raw(beat.in_progress().model_copy(), beat.completed().model_copy()):
        yield row
    async for row in grow(["Still here."]):
        yield row


async def act_partial_failure(**_):
    """A message of type `error` inside a response that completes."""
    broken = Message(type="error", role="assistant")
    broken.failed(Error(code="TOOL_EXECUTION_FAILED", message="the tool did not answer"))
    broken.code, broken.message = "TOOL_EXECUTION_FAILED", "the tool did not answer"
    async for row in raw(broken):
        yield row
    async for row in grow(["I go on without it."]):
        yield row


def built(build):
    """The events of the builder of the runtime, copied because the builder keeps changing them."""
    return [event.model_copy(deep=True) for event in build]


async def act_builder_text(**_):
    def steps():
        message = ResponseBuilder().create_message_builder(role="assistant")
        yield message.get_message_data()
        content = message.create_content_builder(content_type="text")
        yield content.set_text("Set: ")
        for piece in ("one", " two"):
            yield content.add_text_delta(piece)
        yield content.complete()
        yield message.complete()

    async for row in raw(*built(steps())):
        yield row


async def act_builder_data(**_):
    def steps():
        message = ResponseBuilder().create_message_builder(role="assistant")
        yield message.get_message_data()
        content = message.create_content_builder(content_type="data")
        for delta in ({"rows": [1], "note": "a", "n": 1}, {"rows": [2], "note": "b", "n": 2}, {"new": True}):
            yield content.add_data_delta(delta)
        yield content.complete()
        yield message.complete()

    async for row in raw(*built(steps())):
        yield row


async def act_builder_whole(**_):
    """A response inside the response, with its own id."""
    async for row in raw(*built(ResponseBuilder().generate_streaming_response(["Hello", ", ", "world"]))):
        yield row


async def act_unknown_type(**_):
    async for row in raw(*message_with("a2ui_response", TextContent(text="surface"))):
        yield row


ACTS = {
    name.removeprefix("act_").replace("_", "-"): act for name, act in list(globals().items()) if name.startswith("act_")
}


async def agentscope_query(self, msgs, request=None, response=None, **_):
    words = words_of(request)
    act = ACTS.get(words[0], act_text)
    async for row in act(words=words, request=request):
        yield row


def native_block(block, *_):
    """The converter of the runtime for blocks of type `native`: passes their events on unchanged."""
    for event in block["events"]:
        yield event


# --- framework `text`: strings -----------------------------------------------------------------------------------


async def text_query(self, request=None, response=None, **_):
    words = words_of(request)
    for piece in ["Hello", ", ", "world"]:
        yield piece
    if words[0] == "late-error":
        raise RuntimeError("upstream model exploded")


# --- framework `langgraph` ---------------------------------------------------------------------------------------


async def langgraph_query(self, msgs, request=None, response=None, **_):
    from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage

    words = words_of(request)
    ask = {"id": "call_1", "name": "get_weather", "args": {"city": "Paris"}}
    if words[0] == "tool":
        yield AIMessage(content="", id="lg_1", tool_calls=[ask]), False
        yield ToolMessage(content="18 C", id="lg_2", tool_call_id="call_1", name="get_weather"), False
    elif words[0] == "tool-chunks":
        rows = [("call_1", "get_weather", ""), (None, None, '{"city":'), (None, None, '"Paris"}')]
        for id_, name, args in rows:
            piece = {"id": id_, "name": name, "args": args, "index": 0}
            yield AIMessageChunk(content="", id="lg_1", tool_call_chunks=[piece]), False
        yield AIMessageChunk(content="", id="lg_1", chunk_position="last"), False
        yield ToolMessage(content="18 C", id="lg_2", tool_call_id="call_1", name="get_weather"), False
    for place, piece in enumerate(["It is", " 18 C."]):
        yield AIMessageChunk(content=piece, id="lg_3"), place == 1


# --- framework `agno` --------------------------------------------------------------------------------------------


async def agno_query(self, msgs, request=None, response=None, **_):
    from agno.models.response import ToolExecution
    from agno.run.agent import (
        RunCompletedEvent,
        RunContentCompletedEvent,
        RunContentEvent,
        RunStartedEvent,
        ToolCallCompletedEvent,
        ToolCallStartedEvent,
    )

    words = words_of(request)
    yield RunStartedEvent(run_id="run_1")
    if words[0] == "tool":
        tool = ToolExecution(tool_call_id="call_1", tool_name="get_weather", tool_args={"city": "Paris"})
        yield ToolCallStartedEvent(tool=tool)
        tool.result = "18 C"
        yield ToolCallCompletedEvent(tool=tool, content="18 C")
    for piece in ["It is", " 18 C."]:
        yield RunContentEvent(content=piece)
    yield RunContentCompletedEvent()
    yield RunCompletedEvent(content="It is 18 C.")


QUERIES = {
    "agentscope": agentscope_query,
    "text": text_query,
    "langgraph": langgraph_query,
    "agno": agno_query,
}


def build(framework: str) -> AgentApp:
    app = AgentApp(app_name="friday", app_description="An agent that needs no model", enable_stream_task=True)
    # `text` is a framework of the runner, but not one that the decorator accepts.
    app.query(framework=framework if framework != "text" else "agentscope")(QUERIES[framework])
    app._framework_type = app._runner.framework_type = framework
    app._runner.out_type_converters = {"native": native_block}

    @app.post("/builder")
    async def builder(request: dict):
        """The builder of the runtime without its runner: frames without sequence numbers."""

        def frames():
            for event in ResponseBuilder(session_id="s-1").generate_streaming_response(["Hello", ", ", "world"]):
                yield f"data: {event.model_dump_json()}\n\n"

        return StreamingResponse(frames(), media_type="text/event-stream")

    @app.post("/stop")
    async def stop(request: dict):
        await app.stop_chat(request.get("user_id"), request.get("session_id"))
        return {"status": "stopping"}

    return app


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--framework", choices=sorted(QUERIES), default="agentscope")
    options = parser.parse_args()
    app = build(options.framework)
    # The runtime writes its log below the working directory.
    os.chdir(tempfile.mkdtemp(prefix="agentscope-"))
    app.run(host=options.host, port=options.port)


if __name__ == "__main__":
    main()
