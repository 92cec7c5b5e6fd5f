"""CloudBase's agent server in its last release with AG-Kit's send-message: the first words say what happens.

    PYTHONPATH=../shared python agent.py --port PORT

POST /send-message: an agent that says its events itself; POST /langgraph/send-message: a LangGraph agent with a
scripted model through the kit's own adapter.
"""

import argparse
import asyncio
import json

import uvicorn
from ag_ui.core import events as e
from cloudbase_agent.langgraph import LangGraphAgent
from cloudbase_agent.server import AGKitAPIApp
from fastapi import FastAPI
from pydantic import TypeAdapter
from scripted_graph import graph

EVENT = TypeAdapter(e.Event)
CONFIG = {"allow_accept": True, "allow_edit": True, "allow_respond": True, "allow_ignore": False}
APPROVAL = {
    "action_request": {"action": "delete_file", "args": {"path": "a.txt"}},
    "config": CONFIG,
    "description": "May I delete a.txt?",
}


def text(*pieces):
    for piece in pieces:
        yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m1", "delta": piece}


def call(own_id, name, *pieces):
    yield {"type": "TOOL_CALL_START", "toolCallId": own_id, "toolCallName": name}
    for piece in pieces:
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": own_id, "delta": piece}
    yield {"type": "TOOL_CALL_END", "toolCallId": own_id}


def result(call_id, content):
    yield {"type": "TOOL_CALL_RESULT", "messageId": f"{call_id}-result", "toolCallId": call_id, "content": content}


def ask(own_id, payload):
    yield {"type": "CUSTOM", "name": "on_interrupt", "value": json.dumps(payload), "rawEvent": own_id}


class Scripted:
    """What the kit takes for an agent: something with `run`."""

    threads = {}  # thread → what its users said

    async def run(self, given):
        for event in self.script(given):
            if isinstance(event, float):
                await asyncio.sleep(event)
            else:
                yield EVENT.validate_python(event)
                await asyncio.sleep(0.005)

    def script(self, given):
        before = self.threads.setdefault(given.thread_id, [])
        words = next((m.content for m in reversed(given.messages) if m.role == "user"), "")
        resumed = (given.forwarded_props or {}).get("command")
        before.append(words)
        if resumed:
            yield from text("Your answer: ", repr(resumed["resume"]))
            return
        if given.messages and given.messages[-1].role == "tool":
            yield from text("I got ", repr([m.content for m in given.messages if m.role == "tool"]))
            return
        match words.split():
            case ["tool", *_]:
                yield from text("I look it up.")
                yield from call("call_1", "weather", '{"city":', '"Paris"}')
                yield from result("call_1", '{"celsius":21}')
                yield from text("It is 21 degrees ", "in Paris.")
            case ["parallel", *_]:
                one = call("call_1", "weather", '{"city":', '"Paris"}')
                for pair in zip(one, call("call_2", "weather", '{"city":', '"Rome"}')):  # both open at once
                    yield from pair
                yield from result("call_2", '{"celsius":25}')
                yield from result("call_1", '{"celsius":21}')
                yield from text("Paris 21, ", "Rome 25.")
            case ["client", "tool", *_]:
                yield from call("call_1", given.tools[0].name if given.tools else "locate", '{"precise":', "true}")
            case ["approval", *_]:
                yield from ask("int_1", APPROVAL)
            case ["question", *_]:
                yield from text("Before I begin: ")
                yield from ask("int_1", "Which color?")
            case ["error", *_]:
                raise RuntimeError("the agent's code broke")
            case ["fail", *_]:
                yield from text("Some words ")
                raise RuntimeError("the agent's code broke midway")
            case ["told", *_]:
                yield {"type": "RUN_ERROR", "message": "The database is away."}
            case ["long", count, milliseconds, *_]:
                for n in range(int(count)):
                    yield int(milliseconds) / 1000
                    yield from text(f"{n} ")
            case ["history", *_]:
                yield from text("Before, you said: ", repr(before[:-1]))
            case ["unicode", *_]:
                yield from text("žluťoučký 🦊 ", "line\u2028paragraph\u2029next\u0085end\r\n")
            case ["empty", *_]:
                pass
            case _:
                yield from text("You said: ", *(word + " " for word in words.split()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port

    adapted = LangGraphAgent(graph=graph(ids=True), name="scripted", description="Scripted")
    app: FastAPI = AGKitAPIApp().build(lambda: {"agent": Scripted()}, title="Scripted")
    other = AGKitAPIApp().build(lambda: {"agent": adapted}, base_path="/langgraph")
    app.routes.extend(route for route in other.routes if getattr(route, "path", "").startswith("/langgraph"))
    # Without a limit an open stream holds the server for ever when it is stopped.
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
