"""An A2A 0.3 agent on the official Python server: no model, the first words of a message say what happens.

    python agent.py --port PORT

JSON-RPC at /, HTTP+JSON at /rest; the card at its well-known path.
"""

import argparse
import asyncio
import base64

import uvicorn
from a2a import types as t
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
COLORS = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}


def text(words, **metadata):
    return {"kind": "text", "text": words, "metadata": metadata or None}


def data(value, **metadata):
    return {"kind": "data", "data": value, "metadata": metadata or None}


def call(name, arguments, call_id):
    return data({"id": call_id, "name": name, "args": arguments}, adk_type="function_call")


def output(name, value, call_id):
    return data({"id": call_id, "name": name, "response": {"output": value}}, adk_type="function_response")


class Run:
    """One turn of a task: what it says goes into the queue."""

    def __init__(self, context, queue):
        self.queue = queue
        self.ids = {"taskId": context.task_id, "contextId": context.context_id}
        self.said = 0

    async def emit(self, kind, value):
        await self.queue.enqueue_event(kind.model_validate(value))

    def message(self, *parts):
        self.said += 1
        own_id = f"{self.ids['taskId']}-{self.said}"
        return {"role": "agent", "messageId": own_id, "parts": list(parts), **self.ids}

    async def status(self, state, *parts):
        state = state.lower().replace("_", "-")
        status = {"state": state}
        if parts:
            status["message"] = self.message(*parts)
        final = state not in ("submitted", "working")
        await self.emit(t.TaskStatusUpdateEvent, {"status": status, "final": final, **self.ids})

    async def artifact(self, own_id, *parts, append=False, last=False, **more):
        artifact = {"artifactId": own_id, "parts": list(parts), **more}
        event = {"artifact": artifact, "append": append, "lastChunk": last, **self.ids}
        await self.emit(t.TaskArtifactUpdateEvent, event)

    async def answer(self, *pieces, pause=0.01):
        for number, piece in enumerate(pieces):
            await self.artifact("answer", text(piece), append=number > 0, last=number == len(pieces) - 1)
            await asyncio.sleep(pause)


class Agent(AgentExecutor):
    def __init__(self):
        self.heard = {}  # context → what was said in it
        self.asked = {}  # task → what it waits for

    async def execute(self, context, queue):
        run, said = Run(context, queue), context.get_user_input()
        asked = self.asked.pop(context.task_id, None)
        if said.startswith("direct"):
            await run.emit(t.Message, {**run.message(text("A message, "), text("no task.")), "taskId": None})
            return
        if not context.current_task:
            task = {"id": context.task_id, "contextId": context.context_id, "status": {"state": "submitted"}}
            task["history"] = [context.message]
            await run.emit(t.Task, task)
        await run.status("WORKING")
        before = self.heard.setdefault(context.context_id, [])
        if asked:
            await self.go_on(run, asked, context.message.parts)
        else:
            await self.begin(run, said, before)
        before.append(said)

    async def begin(self, run, said, before):
        match said.split():
            case ["reasoning", *_]:
                for thought in ("I look at the question. ", "It is easy."):
                    await run.status("WORKING", text(thought, adk_thought=True))
                await run.answer("The answer ", "is 42.")
            case ["status", *_]:
                await run.status("WORKING", text("Looking it up …"))
                return await run.status("COMPLETED", text("Said in a status alone."))
            case ["tool", *_]:
                await run.status("WORKING", call("weather", {"city": "Paris"}, "call_1"))
                await run.status("WORKING", output("weather", '{"celsius":21}', "call_1"))
                await run.answer("It is 21 degrees ", "in Paris.")
            case ["parallel", *_]:
                calls = call("weather", {"city": "Paris"}, "call_1"), call("weather", {"city": "Rome"}, "call_2")
                await run.status("WORKING", *calls)
                await run.status("WORKING", output("weather", '{"celsius":25}', "call_2"))
                await run.status("WORKING", output("weather", '{"celsius":21}', "call_1"))
                await run.answer("Paris 21, ", "Rome 25.")
            case ["client", "tool", *_]:
                wanted = {"call_id": "call_1", "name": "locate", "arguments": {"precise": True}}
                return await self.ask(run, "tool", "INPUT_REQUIRED", data({"function_call": wanted}))
            case ["approval", *_]:
                shown = {"id": "ask-1", "kind": "approval", "name": "delete_file", "arguments": {"path": "a.txt"}}
                shown["decisions"] = ["accept", "edit", "reject"]
                parts = text("May I delete a.txt?"), data({"interrupt": shown})
                return await self.ask(run, "approval", "INPUT_REQUIRED", *parts)
            case ["question", *_]:
                await run.answer("Before I begin: ")
                shown = {"response_schema": COLORS}
                return await self.ask(run, "question", "INPUT_REQUIRED", text("Which color?"), data(shown))
            case ["login", *_]:
                shown = text("Log in at https://login.example/, then tell me.")
                return await self.ask(run, "login", "AUTH_REQUIRED", shown)
            case ["image", *_]:
                picture = {"bytes": base64.b64encode(PNG).decode(), "mimeType": "image/png", "name": "dot.png"}
                picture = {"kind": "file", "file": picture}
                await run.artifact("picture", text("Here it is:"), picture, last=True, name="A picture")
                link = {"uri": "https://files.example/report.pdf", "mimeType": "application/pdf"}
                link = {"kind": "file", "file": link}
                await run.artifact("link", link, data({"n": 1, "nested": {"list": [1, 2.5, None]}}), last=True)
            case ["replace", *_]:
                await run.artifact("answer", text("A first draft."))
                await run.artifact("answer", text("The second draft."), last=True)
            case ["two", *_]:
                await run.artifact("left", text("one "), name="Left")
                await run.artifact("right", text("ONE "), name="Right")
                await run.artifact("left", text("two"), append=True, last=True)
                await run.artifact("right", text("TWO"), append=True, last=True)
            case ["error", *_]:
                return await run.status("FAILED", text("The database is away."))
            case ["raise", *_]:
                raise RuntimeError("the agent's code broke")
            case ["fail", *_]:
                await run.answer("Some words ")
                return await run.status("FAILED", text("The database went away."))
            case ["broken", *_]:
                await run.answer("Some words ")
                raise RuntimeError("the agent's code broke midway")
            case ["reject", *_]:
                return await run.status("REJECTED", text("I do not do that."))
            case ["long", count, milliseconds, *_]:
                await run.answer(*(f"{n} " for n in range(int(count))), pause=int(milliseconds) / 1000)
            case ["history", *_]:
                await run.answer("Before, you said: ", repr(before))
            case ["unicode", *_]:
                lines = "line\u2028paragraph\u2029next\u0085end\r\n"
                await run.answer("žluťoučký 🦊 ", lines, "\U0001f468\u200d\U0001f469")
            case ["empty", *_]:
                pass
            case _:
                await run.answer("You said: ", *(word + " " for word in said.split()))
        await run.status("COMPLETED")

    async def ask(self, run, kind, state, *parts):
        self.asked[run.ids["taskId"]] = kind
        await run.status(state, *parts)

    async def go_on(self, run, asked, parts):
        given = [getattr(part.root, "text", None) or getattr(part.root, "data", None) for part in parts]
        await run.answer(f"Your answer to the {asked}: ", repr(given))
        await run.status("COMPLETED")

    async def cancel(self, context, queue):
        await Run(context, queue).status("CANCELED", text("Stopped."))


def card(url):
    fields = {
        "name": "Scripted", "description": "Does what the first word says.", "version": "1.0.0", "url": url + "/",
        "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC", "capabilities": {"streaming": True},
        "additionalInterfaces": [
            {"url": url + "/", "transport": "JSONRPC"}, {"url": url + "/rest", "transport": "HTTP+JSON"}
        ],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain", "image/png"],
        "skills": [{"id": "words", "name": "Words", "description": "All of it.", "tags": ["test"]}],
    }  # fmt: skip
    return t.AgentCard.model_validate(fields)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port

    own_card = card(f"http://127.0.0.1:{port}")
    handler = DefaultRequestHandler(agent_executor=Agent(), task_store=InMemoryTaskStore())
    app = A2AStarletteApplication(agent_card=own_card, http_handler=handler).build()
    app.mount("/rest", A2ARESTFastAPIApplication(agent_card=own_card, http_handler=handler).build())
    # Without a limit an open stream holds the server for ever when it is stopped.
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
