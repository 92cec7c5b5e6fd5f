"""A shop's agent on the official A2A server for Python.

It needs no model: it repeats what it is told, word by word, and asks before it orders something.
"""

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as a2a
from google.protobuf.json_format import MessageToDict, ParseDict
from starlette.applications import Starlette

URL = "http://127.0.0.1:8000"


def part(value):
    """A text, or data."""
    return ParseDict({"text": value} if isinstance(value, str) else {"data": value}, a2a.Part())


class Shop(AgentExecutor):
    async def execute(self, context, queue):
        task = TaskUpdater(queue, context.task_id, context.context_id)
        if context.current_task:
            return await self.decided(task, MessageToDict(context.message)["parts"])
        await queue.enqueue_event(
            a2a.Task(id=context.task_id, context_id=context.context_id, history=[context.message])
        )
        await task.start_work()

        said = context.get_user_input()
        if said.startswith("order "):
            # Any A2A client can read the text. The gateway's clients get the rest of it as an approval.
            call = {"id": task.task_id, "kind": "approval", "name": "order", "arguments": {"what": said[6:]}}
            ask = task.new_agent_message([part(f"Shall I {said}?"), part({"interrupt": call})])
            return await task.requires_input(ask)
        words = f"You said: {said}".split()
        for number, word in enumerate(words, 1):
            is_last = number == len(words)
            await task.add_artifact([part(word + " ")], "answer", append=number > 1, last_chunk=is_last)
        await task.complete()

    async def decided(self, task, parts):
        await task.start_work()
        approved = any(given.get("data", {}).get("approved") for given in parts)
        await task.add_artifact([part("Ordered." if approved else "Not ordered.")], "answer")
        await task.complete()

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


card = ParseDict(
    {
        "name": "Shop",
        "description": "Takes orders.",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": f"{URL}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "order", "name": "Order", "description": "Orders something.", "tags": ["shop"]}],
    },
    a2a.AgentCard(),
)
handler = DefaultRequestHandler(agent_executor=Shop(), task_store=InMemoryTaskStore(), agent_card=card)
app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=8000, log_level="warning")
