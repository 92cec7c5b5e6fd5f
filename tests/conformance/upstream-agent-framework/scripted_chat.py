"""An agent of Agent Framework with a scripted model: the first words of a message say what happens."""

import asyncio

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)
from scripted_words import plain_answer


def call(own_id, name, *pieces):
    """A call of a tool as a model streams it."""
    first, *others = pieces
    yield Content.from_function_call(own_id, name, arguments=first)
    for piece in others:
        yield Content.from_function_call(own_id, "", arguments=piece)


def script(words, outputs, before):
    """What the model says: texts, contents, pauses; an exception is raised."""
    if outputs:
        return ["I got ", repr(outputs)]
    match words.split():
        case ["reasoning", *_]:
            return [*(Content.from_text_reasoning(text=t) for t in ("I look at ", "it.")), "The answer ", "is 42."]
        case ["tool", *_]:
            return ["I look it up.", *call("call_1", "weather", '{"city":', '"Paris"}')]
        case ["parallel", *_]:
            return [*call("call_1", "weather", '{"city":"Paris"}'), *call("call_2", "weather", '{"city":"Rome"}')]
        case ["client", "tool", *_]:
            return [*call("call_1", "locate", '{"precise":', "true}")]
        case ["approval", *_]:
            return ["I would like to delete.", *call("call_1", "delete_file", '{"path":"a.txt"}')]
        case ["both", *_]:
            return [*call("call_1", "delete_file", '{"path":"a.txt"}'), *call("call_2", "delete_file", '{"path":"b.txt"}')]
        case ["broken", *_]:
            return [*call("call_1", "break_down", "{}")]
    return plain_answer(words, before)


class Model(BaseChatClient):
    """Answers by the last words of the user and the outputs of tools since."""

    def _inner_get_response(self, *, messages, stream, options, **kwargs):
        said, outputs = [], []
        for message in messages:
            for content in message.contents:
                if content.type == "function_result":
                    outputs.append(str(content.result))
                elif message.role == "user" and content.type == "text":
                    said.append(content.text)
                    outputs = []
        parts = script(said[-1] if said else "", outputs, said[:-1])

        async def updates():
            for part in parts:
                if isinstance(part, float):
                    await asyncio.sleep(part)
                elif isinstance(part, Exception):
                    raise part
                else:
                    content = Content.from_text(part) if isinstance(part, str) else part
                    yield ChatResponseUpdate(role="assistant", contents=[content], message_id="message")

        if stream:
            return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

        async def whole():
            return ChatResponse.from_updates([update async for update in updates()])

        return whole()


class Scripted(FunctionInvocationLayer, Model):
    """The model with the framework's own loop around it, which runs the tools."""


@tool
def weather(city: str) -> dict:
    """What the weather is."""
    return {"celsius": 21 if city == "Paris" else 25}


@tool(approval_mode="always_require")
def delete_file(path: str) -> str:
    """Deletes a file."""
    return f"deleted {path}"


@tool
def break_down() -> str:
    """Breaks."""
    raise RuntimeError("the tool's code broke")


def agent():
    return Agent(Scripted(), name="scripted", instructions="None.", tools=[weather, delete_file, break_down])
