"""An Agno agent behind AgentOS's AG-UI interface, with a scripted model: the first words say what happens.

    python agent.py --port PORT

POST /agui, as AgentOS serves it; sessions in memory.
"""

import argparse
import asyncio
import json
import logging
import os

os.environ.setdefault("AGNO_TELEMETRY", "false")

import uvicorn
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.media import Image
from agno.models.base import Model
from agno.models.message import MessageMetrics
from agno.models.response import ModelResponse
from agno.os import AgentOS
from agno.os.interfaces.agui import AGUI
from agno.tools import tool
from scripted_words import plain_answer

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6364f8cf500f0003860180"
    "5a347d6b0000000049454e44ae426082"
)


@tool
def weather(city: str) -> dict:
    """What the weather is."""
    return {"celsius": 21 if city == "Paris" else 25}


@tool(requires_confirmation=True)
def delete_file(path: str) -> str:
    """Deletes a file."""
    return f"deleted {path}"


@tool(requires_user_input=True, user_input_fields=["color"])
def paint(what: str, color: str) -> str:
    """Paints in a color of the user's choice."""
    return f"painted {what} {color}"


@tool
def break_down() -> str:
    """Breaks."""
    raise RuntimeError("the tool's code broke")


def call(own_id, name, **arguments):
    return {"id": own_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def script(words, outputs, before):
    """What the model says: texts, fields of a response, pauses; an exception is raised."""
    if outputs:
        return ["I got ", repr(outputs)]
    match words.split():
        case ["reasoning", *_]:
            thoughts = [{"reasoning_content": t} for t in ("I look at ", "the question.")]
            return [*thoughts, "The answer ", "is 42."]
        case ["tool", *_]:
            return ["I look it up.", {"tool_calls": [call("call_1", "weather", city="Paris")]}]
        case ["parallel", *_]:
            return [{"tool_calls": [call("call_1", "weather", city="Paris"), call("call_2", "weather", city="Rome")]}]
        case ["client", "tool", *_]:
            return [{"tool_calls": [call("call_1", "locate", precise=True)]}]
        case ["approval", *_]:
            return ["I would like to delete.", {"tool_calls": [call("call_1", "delete_file", path="a.txt")]}]
        case ["both", *_]:
            calls = [call("call_1", "delete_file", path="a.txt"), call("call_2", "delete_file", path="b.txt")]
            return [{"tool_calls": calls}]
        case ["question", *_]:
            return ["Before I begin: ", {"tool_calls": [call("call_1", "paint", what="the wall")]}]
        case ["broken", *_]:
            return [{"tool_calls": [call("call_1", "break_down")]}]
        case ["image", *_]:
            return ["Here: ", {"images": [Image(id="dot", content=PNG, mime_type="image/png")]}]
    return plain_answer(words, before)


class Scripted(Model):
    async def ainvoke_stream(self, messages, assistant_message, **_):
        assistant_message.metrics.start_timer()
        humans = [n for n, message in enumerate(messages) if message.role == "user"]
        outputs = [message.content for message in messages[humans[-1] :] if message.role == "tool"]
        before = [str(messages[n].content) for n in humans[:-1]]
        for part in script(str(messages[humans[-1]].content), outputs, before):
            if isinstance(part, Exception):
                raise part
            if isinstance(part, float):
                await asyncio.sleep(part)
            else:
                yield ModelResponse(**({"content": part} if isinstance(part, str) else part))
        yield ModelResponse(response_usage=MessageMetrics(input_tokens=7, output_tokens=2, total_tokens=9))
        assistant_message.metrics.stop_timer()

    def invoke(self, *_, **__):
        raise NotImplementedError

    ainvoke = invoke_stream = _parse_provider_response = _parse_provider_response_delta = invoke


agent = Agent(
    name="scripted", model=Scripted(id="scripted"), db=InMemoryDb(), tools=[weather, delete_file, paint, break_down],
    add_history_to_context=True, telemetry=False,
)  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    app = AgentOS(agents=[agent], interfaces=[AGUI(agent=agent)], telemetry=False).get_app()
    logging.getLogger("agno").setLevel(logging.ERROR)
    # Without a limit an open stream holds the server for ever when it is stopped.
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
