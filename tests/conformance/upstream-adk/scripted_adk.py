"""An ADK agent with a scripted model: the first words of a message say what happens.

Tool `delete_file` asks for a confirmation, tool `locate` is long-running: its result is sent later.
"""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.genai import types
from scripted_words import plain_answer


def call(own_id, name, **arguments):
    return types.Part(function_call=types.FunctionCall(id=own_id, name=name, args=arguments))


def thought(text):
    return types.Part(text=text, thought=True)


def script(words, outputs, before):
    """What the model says: texts, parts, pauses; an exception is raised."""
    if outputs:
        return ["I got ", repr(outputs)]
    match words.split():
        case ["reasoning", *_]:
            return [thought("I look at "), thought("it."), "The answer ", "is 42."]
        case ["tool", *_]:
            return ["I look it up.", call("call_1", "weather", city="Paris")]
        case ["parallel", *_]:
            return [call("call_1", "weather", city="Paris"), call("call_2", "weather", city="Rome")]
        case ["client", "tool", *_]:
            return [call("call_1", "locate", precise=True)]
        case ["approval", *_]:
            return ["I would like to delete.", call("call_1", "delete_file", path="a.txt")]
        case ["both", *_]:
            return [call("call_1", "delete_file", path="a.txt"), call("call_2", "delete_file", path="b.txt")]
        case ["broken", *_]:
            return [call("call_1", "break_down")]
    return plain_answer(words, before)


class Scripted(BaseLlm):
    """Answers by the last words of the user and the outputs of tools since."""

    async def generate_content_async(self, llm_request, stream=False):
        said, outputs = [], []
        for content in llm_request.contents:
            for part in content.parts or []:
                if part.function_response:
                    outputs.append(part.function_response.response)
                elif content.role == "user" and part.text:
                    said.append(part.text)
                    outputs = []
        parts = []
        for one in script(said[-1] if said else "", outputs, said[:-1]):
            if isinstance(one, float):
                await asyncio.sleep(one)
            elif isinstance(one, Exception):
                raise one
            else:
                part = types.Part(text=one) if isinstance(one, str) else one
                parts.append(part)
                if stream:
                    yield LlmResponse(content=types.Content(role="model", parts=[part]), partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=joined(parts)), partial=False, turn_complete=True)


def joined(parts):
    """The parts of a whole answer: neighbouring texts of one kind are one part."""
    whole = []
    for part in parts:
        last = whole[-1] if whole else None
        if last is not None and part.text and last.text and part.thought == last.thought:
            last.text += part.text
        else:
            whole.append(part.model_copy())
    return whole


def weather(city: str) -> dict:
    """What the weather is."""
    return {"celsius": 21 if city == "Paris" else 25}


def delete_file(path: str) -> dict:
    """Deletes a file."""
    return {"done": f"deleted {path}"}


def locate(precise: bool) -> None:
    """Where the user is."""


def break_down() -> dict:
    """Breaks."""
    raise RuntimeError("the tool's code broke")


def agent():
    """A new agent: an agent has one parent at most."""
    tools = [weather, break_down, FunctionTool(delete_file, require_confirmation=True), LongRunningFunctionTool(locate)]
    return LlmAgent(name="scripted", model=Scripted(model="scripted"), tools=tools)
