"""The scripted A2A agent on the official Python server: no model, the first words of a message say what happens.

What the generations of the protocol write differently is the `wire` of an agent: the functions `text`, `data`, `raw`,
`link` and `status`, `parsed`, which makes the library's own event of JSON, `shown`, which makes JSON of its message, and
the role of agents.
"""

import argparse
import asyncio
import base64

import uvicorn
from a2a.server.agent_execution import AgentExecutor

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
COLORS = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}


class Run:
    """One turn of a task: what it says goes into the queue."""

    def __init__(self, wire, context, queue):
        self.wire = wire
        self.queue = queue
        self.ids = {"taskId": context.task_id, "contextId": context.context_id}
        self.said = 0

    async def emit(self, kind, value):
        await self.queue.enqueue_event(self.wire.parsed(kind, value))

    def message(self, *parts):
        self.said += 1
        own_id = f"{self.ids['taskId']}-{self.said}"
        return {"role": self.wire.ROLE, "messageId": own_id, "parts": list(parts), **self.ids}

    async def status(self, state, *parts):
        event = self.wire.status(state)
        if parts:
            event["status"]["message"] = self.message(*parts)
        await self.emit("TaskStatusUpdateEvent", {**event, **self.ids})

    async def artifact(self, own_id, *parts, append=False, last=False, **more):
        artifact = {"artifactId": own_id, "parts": list(parts), **more}
        event = {"artifact": artifact, "append": append, "lastChunk": last, **self.ids}
        await self.emit("TaskArtifactUpdateEvent", event)

    async def answer(self, *pieces, pause=0.01):
        for number, piece in enumerate(pieces):
            await self.artifact("answer", self.wire.text(piece), append=number > 0, last=number == len(pieces) - 1)
            await asyncio.sleep(pause)


class Agent(AgentExecutor):
    def __init__(self, wire):
        self.wire = wire
        self.before = {}  # context → what was said in it
        self.asked = {}  # task → what it waits for

    async def execute(self, context, queue):
        run, said = Run(self.wire, context, queue), context.get_user_input()
        asked = self.asked.pop(context.task_id, None)
        if said.startswith("direct"):
            message = run.message(self.wire.text("A message, "), self.wire.text("no task."))
            del message["taskId"]
            await run.emit("Message", message)
            return
        shown = self.wire.shown(context.message)
        if not context.current_task:
            task = {"id": context.task_id, "contextId": context.context_id, "history": [shown]}
            await run.emit("Task", {**task, "status": self.wire.status("SUBMITTED")["status"]})
        await run.status("WORKING")
        before = self.before.setdefault(context.context_id, [])
        if asked:
            await self.go_on(run, asked, shown.get("parts", []))
        else:
            await self.begin(run, said, before)
        before.append(said)

    def call(self, name, arguments, call_id):
        return self.wire.data({"id": call_id, "name": name, "args": arguments}, adk_type="function_call")

    def output(self, name, value, call_id):
        response = {"id": call_id, "name": name, "response": {"output": value}}
        return self.wire.data(response, adk_type="function_response")

    async def begin(self, run, said, before):
        text, data, call, output = self.wire.text, self.wire.data, self.call, self.output
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
                picture = self.wire.raw(base64.b64encode(PNG).decode(), "image/png", "dot.png")
                await run.artifact("picture", text("Here it is:"), picture, last=True, name="A picture")
                link = self.wire.link("https://files.example/report.pdf", "application/pdf")
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
        await run.answer(f"Your answer to the {asked}: ", repr([part.get("text", part.get("data")) for part in parts]))
        await run.status("COMPLETED")

    async def cancel(self, context, queue):
        await Run(self.wire, context, queue).status("CANCELED", self.wire.text("Stopped."))


CARD = {
    "name": "Scripted",
    "description": "Does what the first word says.",
    "version": "1.0.0",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain", "image/png"],
    "skills": [{"id": "words", "name": "Words", "description": "All of it.", "tags": ["test"]}],
}


def main(wire, app):
    """Serves what `app` makes of the agent and its URL, on the port of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    # Without a limit an open stream holds the server for ever when it is stopped.
    served = app(Agent(wire), f"http://127.0.0.1:{port}")
    uvicorn.run(served, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)
