"""The service of AgentScope 2.0 over SQLite, its bus in memory, in front of a scripted model that speaks Chat Completions:
the first words of the last message say what happens.

    python agent.py --port PORT

The service's user `gateway` has the agent `scripted` and the credential `model`.
"""

import argparse
import asyncio
import json
import tempfile

import uvicorn
from agentscope.app import create_app
from agentscope.app.message_bus import InMemoryMessageBus
from agentscope.app.storage import AgentData, AgentRecord, AsyncSQLAlchemyStorage
from agentscope.app.workspace_manager import LocalWorkspaceManager
from agentscope.credential import OpenAICredential
from agentscope.permission import PermissionBehavior, PermissionDecision
from agentscope.tool import FunctionTool
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

UNICODE = ["žluťoučký 🦊 ", "line\u2028paragraph\u2029next\u0085end\r\n", "\U0001f468\u200d\U0001f469"]
HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
PARIS = ("weather", ['{"city":', '"Paris"}'])


def script(words, outputs, before):
    """What the model says to the last words of a user, the outputs of tools since, and the words before."""
    if outputs:
        return [("text", ["I got ", repr(outputs)])]
    match words.split():
        case ["reasoning", *_]:
            return [("reasoning", ["I look at ", "it."]), ("text", ["The answer ", "is 42."])]
        case ["tool", *_]:
            return [("text", ["I look it up."]), ("call", "call_1", *PARIS)]
        case ["parallel", *_]:
            return [("call", "call_1", *PARIS), ("call", "call_2", "weather", ['{"city":"Rome"}'])]
        case ["client", "tool", *_]:
            return [("call", "call_1", "locate", ['{"precise":', "true}"])]
        case ["approval", *_]:
            return [("text", ["I would like to."]), ("call", "call_1", "delete_file", ['{"path":"a.txt"}'])]
        case ["both", *_]:
            return [("call", "call_1", "delete_file", ['{"path":"a.txt"}']), ("call", "call_2", *PARIS)]
        case ["fail", *_]:
            return [("text", ["Some words "]), ("break",)]
        case ["long", count, milliseconds, *_]:
            return [("text", [f"{n} " for n in range(int(count))], int(milliseconds) / 1000)]
        case ["history", *_]:
            return [("text", ["Before, you said: ", repr(before)])]
        case ["unicode", *_]:
            return [("text", UNICODE)]
        case ["empty", *_]:
            return []
    return [("text", ["You said: ", *(f"{word} " for word in words.split())])]


def received(messages):
    """The last words of a user, the outputs of tools since, and the words before."""
    said, outputs = [], []
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content)
        if message["role"] == "tool":
            outputs.append(content)
        elif message["role"] == "user" and not content.lstrip().startswith("<system-"):
            said.append(content.strip())
            outputs = []
    return (said or [""])[-1], outputs, said[:-1]


async def chunks(parts):
    """The answer as OpenAI frames it."""
    def chunk(delta, finish=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({**HEAD, 'choices': [choice]})}\n\n"

    calls = 0
    for part in parts:
        match part:
            case ("text" | "reasoning", texts, *pause):
                field = "content" if part[0] == "text" else "reasoning_content"
                for text in texts:
                    yield chunk({field: text})
                    await asyncio.sleep(pause[0] if pause else 0.003)
            case ("call", call_id, name, pieces):
                head = {"index": calls, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
                yield chunk({"tool_calls": [head]})
                for piece in pieces:
                    yield chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
                calls += 1
            case ("break",):
                yield f"data: {json.dumps({'error': {'message': 'The model went away.', 'code': 500}})}\n\n"
                return
    yield chunk({}, "tool_calls" if calls else "stop")
    yield f"data: {json.dumps({**HEAD, 'choices': [], 'usage': USAGE})}\n\n"
    yield "data: [DONE]\n\n"


async def complete(request):
    body = await request.json()
    return StreamingResponse(chunks(script(*received(body["messages"]))), media_type="text/event-stream")


def weather(city: str) -> str:
    """What the weather is.

    Args:
        city (str): Where.
    """
    return '{"celsius":21}' if city == "Paris" else '{"celsius":25}'


def delete_file(path: str) -> str:
    """Deletes a file.

    Args:
        path (str): Which.
    """
    return f"deleted {path}"


ALLOWED = PermissionDecision(behavior=PermissionBehavior.ALLOW, message="harmless")


class Locate(FunctionTool):
    """A tool that the client runs."""

    def __init__(self):
        schema = {"type": "object", "properties": {"precise": {"type": "boolean"}}}
        super().__init__(
            lambda precise: None, name="locate", description="Where the user is", permission=ALLOWED, input_schema=schema
        )
        self.is_external_tool = True


async def tools(_user, _agent, _session):
    return [FunctionTool(weather, permission=ALLOWED), FunctionTool(delete_file), Locate()]


async def serve(app, port):
    """Serves on a port until the process ends. Returns the server and the port, once it can be reached."""
    # Without a limit an open stream holds the server for ever when it is stopped.
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)
    sock, server = config.bind_socket(), uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([sock]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    return serving, sock.getsockname()[1]


async def main(port):
    model = Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])
    _model_serving, model_port = await serve(model, 0)
    with tempfile.TemporaryDirectory() as folder:
        storage = AsyncSQLAlchemyStorage(f"sqlite+aiosqlite:///{folder}/service.db?timeout=60")
        workspaces = LocalWorkspaceManager(basedir=f"{folder}/workspaces")
        app = create_app(storage, InMemoryMessageBus(), workspaces, extra_agent_tools=tools)
        is_ready = asyncio.Event()
        # `/health` of the service wants to know who asks, and is well before there is an agent.
        app.add_api_route("/ready", lambda: JSONResponse({}, 200 if is_ready.is_set() else 503))
        serving, _ = await serve(app, port)

        data = AgentData(name="scripted", system_prompt="None.")
        await storage.upsert_agent("gateway", AgentRecord(id="scripted", user_id="gateway", data=data))
        base_url = f"http://127.0.0.1:{model_port}/v1"
        credential = OpenAICredential(id="model", name="scripted", api_key="none", base_url=base_url)
        await storage.upsert_credential("gateway", credential)
        is_ready.set()
        await serving


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(main(parser.parse_args().port))
