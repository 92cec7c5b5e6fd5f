"""SMG (Shepherd Model Gateway), which keeps responses in memory, in front of a scripted model that speaks Responses: the
first words of the last message say what happens.

    python agent.py --port PORT
"""

import argparse
import asyncio
import collections
import inspect
import itertools
import json
import os
import signal
import socket
import sys

numbers = itertools.count(1)
# Set when the connection of the answer with this key breaks.
broken = collections.defaultdict(asyncio.Event)
BREAK_TIMEOUT = 30
UNICODE = ["žluťoučký 🦊 ", "line\u2028paragraph\u2029next\u0085end\r\n", "\U0001f468\u200d\U0001f469"]


def script(words, outputs, before):
    """What the model says to the last words of a user, the outputs of tools since, and the words before."""
    if outputs:
        return [("output_text", ["I got ", repr(outputs)])]
    match words.split():
        case ["reasoning", *_]:
            return [("reasoning", ["I look at ", "it."]), ("output_text", ["The answer ", "is 42."])]
        case ["client", "tool", *_]:
            return [("output_text", ["I look it up."]), ("call", "call_1", "weather", ['{"city":', '"Paris"}'])]
        case ["parallel", *_]:
            calls = [("call", "call_1", "weather", ['{"city":', '"Paris"}'])]
            return [*calls, ("call", "call_2", "weather", ['{"city":"Rome"}'])]
        case ["refusal", *_]:
            return [("refusal", ["I will not ", "do that."])]
        case ["incomplete", *_]:
            return [("output_text", ["This is cut "]), ("end", "incomplete")]
        case ["error", *_]:
            return [("status", 500, "The model is away.")]
        case ["busy", *_]:
            return [("status", 429, "Too many requests; try again in 2 s.")]
        case ["fail", *_]:
            return [("output_text", ["Some words "]), ("end", "failed")]
        case ["broken", key, *_]:
            return [("output_text", ["Some words "]), ("broken by", key), ("end", None)]
        case ["break", key, *_]:
            broken[key].set()
        case ["long", count, milliseconds, *_]:
            return [("output_text", [f"{n} " for n in range(int(count))], int(milliseconds) / 1000)]
        case ["history", *_]:
            return [("output_text", ["Before, you said: ", repr(before)])]
        case ["who", *_]:
            return [("own id",)]
        case ["unicode", *_]:
            return [("output_text", UNICODE)]
        case ["empty", *_]:
            return []
    return [("output_text", ["You said: ", *(f"{word} " for word in words.split())])]


def received(items):
    """The last words of a user, the outputs of tools since, and the words before."""
    said, outputs = [], []
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        content = item.get("content") or ""
        if item.get("type") == "function_call_output":
            outputs.append(item["output"])
        elif item.get("role") == "user":
            parts = [{"text": content}] if isinstance(content, str) else content
            said.append("".join(part.get("text", "") for part in parts))
            outputs = []
    return (said or [""])[-1], outputs, said[:-1]


class Answer:
    """The events of one answer, as OpenAI sends them."""

    def __init__(self, body):
        self.sequence, self.items = itertools.count(), []
        self.whole = {
            "id": f"resp_{next(numbers):032x}",
            "object": "response",
            "created_at": 1795382447,
            "status": "in_progress",
            "model": body.get("model"),
            "output": [],
            "error": None,
            "incomplete_details": None,
            "usage": None,
            "parallel_tool_calls": True,
            "tools": body.get("tools") or [],
            "tool_choice": "auto",
            "store": body.get("store", True),
        }

    def event(self, kind, **fields):
        event = {"type": f"response.{kind}", "sequence_number": next(self.sequence), **fields}
        return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"

    def item(self, item):
        place = {"output_index": len(self.items)}
        self.items.append(item)
        return place, self.event("output_item.added", **place, item=item)

    def done(self, place, item):
        self.items[place["output_index"]] = item
        return self.event("output_item.done", **place, item=item)

    def said(self, kind, pieces, pause=0):
        """A message or a summary of reasoning, in pieces. A number is a pause."""
        thinks = kind == "reasoning"
        name = "reasoning_summary_text" if thinks else kind
        field = "refusal" if kind == "refusal" else "text"
        own = {"id": f"rs_{next(numbers)}", "type": "reasoning", "summary": []}
        if not thinks:
            own = {"id": f"msg_{next(numbers)}", "type": "message", "role": "assistant", "content": []}
        place, added = self.item({**own, "status": "in_progress"})
        yield added
        where = {**place, "item_id": own["id"], ("summary_index" if thinks else "content_index"): 0}
        part = {"type": "summary_text" if thinks else kind, field: ""}
        if kind == "output_text":
            part |= {"annotations": [], "logprobs": []}
        added, done = ("reasoning_summary_part.added", "reasoning_summary_part.done") if thinks else (
            "content_part.added",
            "content_part.done",
        )
        yield self.event(added, **where, part=part)
        for piece in pieces:
            yield pause
            yield self.event(f"{name}.delta", **where, delta=piece)
        part = {**part, field: "".join(pieces)}
        yield self.event(f"{name}.done", **where, **{field: part[field]})
        yield self.event(done, **where, part=part)
        yield self.done(place, {**own, ("summary" if thinks else "content"): [part], "status": "completed"})

    def call(self, call_id, name, pieces):
        own = {"id": f"fc_{next(numbers)}", "type": "function_call", "call_id": call_id, "name": name}
        place, added = self.item({**own, "arguments": "", "status": "in_progress"})
        yield added
        where = {**place, "item_id": own["id"]}
        for piece in pieces:
            yield self.event("function_call_arguments.delta", **where, delta=piece)
        yield self.event("function_call_arguments.done", **where, arguments="".join(pieces))
        yield self.done(place, {**own, "arguments": "".join(pieces), "status": "completed"})

    def events(self, parts):
        """All of it. `None` breaks the connection."""
        yield self.event("created", response=self.whole)
        yield self.event("in_progress", response=self.whole)
        end = "completed"
        for part in parts:
            match part:
                case ("call", call_id, name, pieces):
                    yield from self.call(call_id, name, pieces)
                case ("own id",):
                    yield from self.said("output_text", [self.whole["id"]])
                case ("broken by", key):
                    yield asyncio.wait_for(broken[key].wait(), BREAK_TIMEOUT)
                case ("end", end):
                    pass
                case (kind, *rest):
                    yield from self.said(kind, *rest)
        if end is None:
            yield None
        self.whole |= {"status": end, "output": self.items}
        if end == "failed":
            self.whole["error"] = {"code": "server_error", "message": "The model went away."}
        else:
            self.whole["usage"] = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
        if end == "incomplete":
            self.whole["incomplete_details"] = {"reason": "max_output_tokens"}
        yield self.event(end, response=self.whole)


async def answer(path, body, writer):
    """Writes the answer to one request. False: the connection is over."""

    def whole(status, content):
        text = json.dumps(content, ensure_ascii=False).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
        writer.write(head.encode() + text)
        return True

    if not path.endswith("/responses"):
        return whole(200 if path.endswith("/health") else 404, {"error": {"message": f"no such path: {path}"}})
    body = json.loads(body)
    parts = script(*received(body["input"]))
    if parts and parts[0][0] == "status":
        _, status, message = parts[0]
        return whole(status, {"error": {"message": message, "type": "server_error", "param": None, "code": None}})

    own = Answer(body)
    streams = bool(body.get("stream"))
    if streams:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for event in own.events(parts):
        if event is None:
            return False
        if isinstance(event, (int, float)):
            await asyncio.sleep(event)
        elif inspect.isawaitable(event):
            await event
        elif streams:
            data = event.encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
    if not streams:
        return whole(200, own.whole)
    writer.write(b"0\r\n\r\n")
    return True


async def connection(reader, writer):
    try:
        while line := await reader.readline():
            _, path, _ = line.decode().split(" ", 2)
            length = 0
            while header := (await reader.readline()).decode().strip().lower():
                name, _, value = header.partition(":")
                length = int(value) if name == "content-length" else length
            if not await answer(path.split("?")[0], await reader.readexactly(length), writer):
                break
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError, ValueError):
        pass
    writer.close()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


async def main(port):
    model = await asyncio.start_server(connection, "127.0.0.1", 0, limit=2**20)
    options = {
        "host": "127.0.0.1",
        "port": port,
        "worker-urls": f"http://127.0.0.1:{model.sockets[0].getsockname()[1]}",
        "backend": "openai",
        "history-backend": "memory",
        "prometheus-port": free_port(),
        "log-level": "warn",
        "retry-max-retries": 1,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    environment = {**os.environ, "OPENAI_API_KEY": "none"}
    smg = await asyncio.create_subprocess_exec(sys.executable, "-m", "smg", "launch", *words, env=environment)
    # It would wait for streams that are open.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, smg.kill)
    try:
        await smg.wait()
    finally:
        if smg.returncode is None:
            smg.kill()


arguments = argparse.ArgumentParser()
arguments.add_argument("--port", type=int, required=True)
asyncio.run(main(arguments.parse_args().port))
