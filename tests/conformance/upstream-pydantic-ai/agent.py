"""A Pydantic AI agent behind its own AG-UI adapter, with a scripted model: the first words say what happens.

    python agent.py --port PORT

POST / as the adapter is by default, with usage; POST /old for clients of ag-ui-protocol 0.1.10.
"""

import argparse
import asyncio

import uvicorn
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, ToolReturn
from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from scripted_words import plain_answer
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6364f8cf500f0003860180"
    "5a347d6b0000000049454e44ae426082"
)


def call(own_id, name, *pieces, index=0):
    first, *others = pieces
    yield {index: DeltaToolCall(name=name, json_args=first, tool_call_id=own_id)}
    for piece in others:
        yield {index: DeltaToolCall(json_args=piece, tool_call_id=own_id)}


def script(words, outputs, before):
    """What the model says: texts, deltas of thoughts and calls, pauses; an exception is raised."""
    if outputs:
        return ["I got ", repr(outputs)]
    match words.split():
        case ["reasoning", *_]:
            thoughts = [{0: DeltaThinkingPart(content=t)} for t in ("I look at ", "the question.")]
            return [*thoughts, {0: DeltaThinkingPart(signature="c2lnbmVk")}, "The answer ", "is 42."]
        case ["tool", *_]:
            return ["I look it up.", *call("call_1", "weather", '{"city":', '"Paris"}', index=1)]
        case ["parallel", *_]:
            other = call("call_2", "weather", '{"city":', '"Rome"}', index=1)
            return [part for pair in zip(call("call_1", "weather", '{"city":', '"Paris"}'), other) for part in pair]
        case ["client", "tool", *_]:
            return [*call("call_1", "locate", '{"precise":', "true}")]
        case ["approval", *_]:
            return ["I would like to delete.", *call("call_1", "delete_file", '{"path":"a.txt"}', index=1)]
        case ["both", *_]:
            other = call("call_2", "delete_file", '{"path":"b.txt"}', index=1)
            return [*call("call_1", "delete_file", '{"path":"a.txt"}'), *other]
        case ["mixed", *_]:
            other = call("call_2", "locate", '{"precise":true}', index=1)
            return [*call("call_1", "delete_file", '{"path":"a.txt"}'), *other]
        case ["broken", *_]:
            return [*call("call_1", "break_down", "{}")]
        case ["wrong", *_]:
            return [*call("call_1", "weather", '{"town":"Paris"}')]
        case ["image", *_]:
            return [*call("call_1", "draw", "{}")]
    return plain_answer(words, before)


def text_of(content):
    return content if isinstance(content, str) else " ".join(part for part in content if isinstance(part, str))


async def model(messages, _info):
    said, outputs = [], []
    for part in (part for message in messages if isinstance(message, ModelRequest) for part in message.parts):
        if isinstance(part, UserPromptPart):
            said.append(text_of(part.content))
            outputs = outputs if said[-1] == "" else []
        elif isinstance(part, ToolReturnPart) or part.part_kind == "retry-prompt":
            outputs.append(str(part.content))
    for part in script(said[-1], outputs, said[:-1]):
        if isinstance(part, Exception):
            raise part
        if isinstance(part, float):
            await asyncio.sleep(part)
        else:
            yield part


agent = Agent(FunctionModel(stream_function=model), output_type=[str, DeferredToolRequests])


@agent.tool_plain
def weather(city: str) -> dict:
    """What the weather is."""
    return {"celsius": 21 if city == "Paris" else 25}


@agent.tool_plain(requires_approval=True)
def delete_file(path: str) -> str:
    """Deletes a file."""
    return f"deleted {path}"


@agent.tool_plain
def draw() -> ToolReturn:
    """Draws."""
    return ToolReturn(return_value="drawn", content=["Here:", BinaryContent(data=PNG, media_type="image/png")])


@agent.tool_plain
def break_down() -> str:
    """Breaks."""
    raise RuntimeError("the tool's code broke")


async def newer(request):
    return await AGUIAdapter.dispatch_request(request, agent=agent, include_usage=True)


async def older(request):
    return await AGUIAdapter.dispatch_request(request, agent=agent, ag_ui_version="0.1.10")


async def health(_request):
    return PlainTextResponse("ok")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    routes = [Route("/", newer, methods=["POST"]), Route("/old", older, methods=["POST"]), Route("/health", health)]
    app = Starlette(routes=routes)
    # Without a limit an open stream holds the server for ever when it is stopped.
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
