"""A model server without a model, which speaks Chat Completions, Anthropic Messages and Responses. Standard library alone.

    server, url = await start(port)         # 0: any free port

`POST /v1/chat/completions`, `/v1/messages`, `/v1/responses`; `GET /v1/models`, `/health`. The first words of the last user message say
what happens; the model's name says whose habits the Chat Completions stream has (`FLAVOURS`). The habits follow documents
and issues of the servers, they are not recorded from them.
"""

import asyncio
import itertools
import json
import time

FLAVOURS = "openai vllm sglang llamacpp ollama azure gemini openrouter deepseek mistral whole crlf silent".split()
numbers = itertools.count(1)


def script(words, outputs, before):
    """What the model says: ("text", t), ("reasoning", t), ("call", id, name, pieces), ("wait", s), ("end", why) …"""
    if outputs:
        return [("text", "I got "), ("text", repr(outputs))]
    match words.split():
        case ["reasoning", *_]:
            return [("reasoning", "I look at "), ("reasoning", "it."), ("text", "The answer "), ("text", "is 42.")]
        case ["tool", *_]:
            return [("text", "I look it up."), ("call", "call_1", "weather", ['{"city":', '"Paris"}'])]
        case ["parallel", *_]:
            calls = [("call", "call_1", "weather", ['{"city":', '"Paris"}'])]
            return [*calls, ("call", "call_2", "weather", ['{"city":', '"Rome"}'])]
        case ["refusal", *_]:
            return [("refusal", "I will not "), ("refusal", "do that.")]
        case ["incomplete", *_]:
            return [("text", "This is cut "), ("end", "length")]
        case ["filtered", *_]:
            return [("text", "This is "), ("end", "content_filter")]
        case ["error", *_]:
            return [("error", 500, "The model is away.")]
        case ["busy", *_]:
            return [("error", 429, "Too many requests; try again in 2 s.")]
        case ["fail", *_]:
            return [("text", "Some words "), ("error", 500, "The model went away.")]
        case ["cut", *_]:
            return [("text", "Some words "), ("cut",)]
        case ["long", count, milliseconds, *_]:
            return [part for n in range(int(count)) for part in (("wait", int(milliseconds) / 1000), ("text", f"{n} "))]
        case ["history", *_]:
            return [("text", "Before, you said: "), ("text", repr(before))]
        case ["unicode", *_]:
            return [("text", "žluťoučký 🦊 "), ("text", "line\u2028paragraph\u2029next\u0085end\r\n")]
        case ["empty", *_]:
            return []
    return [("text", "You said: "), *(("text", word + " ") for word in words.split())]


def received(body):
    """The last user text, what tools gave since, and what was said before, in any of the forms."""
    said, outputs = [], []
    entries = body.get("messages") or body.get("input") or []
    for entry in [{"role": "user", "content": entries}] if isinstance(entries, str) else entries:
        content = entry.get("content") or entry.get("output") or ""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if entry.get("role") == "tool" or entry.get("type") == "function_call_output":
            outputs.append(" ".join(part.get("text", "") for part in parts))
        elif entry.get("role") == "user":
            for part in parts:
                if part.get("type") == "tool_result":
                    outputs.append(part.get("content"))
                elif "text" in part:
                    said.append(part["text"])
                    outputs = []
    return (said or [""])[-1], outputs, said[:-1]


def error_body(message, code):
    return {"error": {"message": message, "type": "server_error", "param": None, "code": code}}


def refusal(path, status, message):
    if path != "/messages":
        return error_body(message, None)
    kind = "rate_limit_error" if status == 429 else "api_error"
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}


async def chat(body, parts):
    """The chunks of a Chat Completions stream; texts are raw lines."""
    flavour = next((f for f in FLAVOURS if f in body.get("model", "")), "openai")
    head = {"id": f"chatcmpl-{next(numbers)}", "object": "chat.completion.chunk", "created": int(time.time())}
    head["model"] = body.get("model", "")
    if flavour == "azure":
        yield {**head, "id": "", "object": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}

    def chunk(delta, why=None, **more):
        if flavour in ("vllm", "sglang") and "tool_calls" not in delta:
            delta = {"role": None, "tool_calls": [] if flavour == "vllm" else None, **delta}
        if flavour in ("ollama", "openrouter"):
            delta = {"role": "assistant", "content": "", **delta}
        choice = {"index": 0, "delta": delta, "finish_reason": why if why or flavour != "sglang" else ""}
        used = {"usage": USAGE} if flavour == "vllm" and delta else {}
        return {**head, "choices": [choice], **used, **more}

    if flavour in ("openrouter", "deepseek"):
        yield ": OPENROUTER PROCESSING\n\n" if flavour == "openrouter" else ": keep-alive\n\n"
    if flavour not in ("ollama", "mistral", "gemini"):
        yield chunk({"role": "assistant", "content": ""})
    why, calls = "stop", 0
    field = {"vllm": "reasoning", "openrouter": "reasoning", "ollama": "reasoning"}.get(flavour, "reasoning_content")
    for part in parts:
        match part:
            case ("text", text):
                yield chunk({"content": [{"type": "text", "text": text}] if flavour == "mistral" else text})
            case ("reasoning", text) if flavour == "mistral":
                yield chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]})
            case ("reasoning", text):
                details = {"reasoning_details": [{"type": "reasoning.text", "text": text, "index": 0}]}
                yield chunk({field: text, **(details if flavour == "openrouter" else {})})
            case ("refusal", text):
                yield chunk({"refusal": text})
            case ("call", own_id, name, pieces):
                whole = flavour in ("ollama", "gemini", "mistral")
                first = {"index": 0 if flavour == "ollama" else calls, "id": own_id, "type": "function"}
                first["function"] = {"name": name, "arguments": "".join(pieces) if whole else ""}
                if flavour == "gemini":
                    del first["index"]
                    first["extra_content"] = {"google": {"thought_signature": "c2lnbmVk"}}
                if flavour == "llamacpp":
                    first["id"] = ""
                yield chunk({"tool_calls": [first]})
                for piece in [] if whole else pieces:
                    again = {"id": "", "function": {"name": "", "arguments": piece}}
                    yield chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}
                                                if flavour != "deepseek" else {"index": calls, **again}]})  # fmt: skip
                calls, why = calls + 1, "tool_calls" if flavour not in ("vllm", "gemini", "ollama") else "stop"
            case ("end", why):
                pass
            case ("error", status, message):
                if flavour == "openrouter":
                    yield {**chunk({"content": ""}, "error"), "error": {"code": 502, "message": message}}
                elif flavour == "llamacpp":
                    yield f"error: {json.dumps({'code': status, 'message': message, 'type': 'server_error'})}\n\n"
                    return
                elif flavour == "sglang":
                    yield {"object": "error", "message": message, "code": status}
                else:
                    yield error_body(message, status)
                yield "data: [DONE]\n\n"
                return
            case ("wait", _) | ("cut",):
                yield part
    if flavour != "silent":
        last = {"timings": {"predicted_n": 2}} if flavour == "llamacpp" else {}
        yield chunk({}, why, **({"usage": USAGE} if flavour in ("openrouter", "mistral", "gemini") else last))
    if flavour in ("sglang", "gemini", "openrouter", "mistral"):
        pass
    elif body.get("stream_options", {}).get("include_usage"):
        yield {**head, "choices": [], "usage": USAGE}
    if flavour == "llamacpp":
        yield "data: [DONE]"
    elif flavour != "gemini":
        yield "data: [DONE]\n\n"


def whole_chat(body, parts):
    message = {"role": "assistant", "content": "".join(p[1] for p in parts if p[0] == "text") or None}
    thoughts = "".join(p[1] for p in parts if p[0] == "reasoning")
    calls = [{"id": p[1], "type": "function", "function": {"name": p[2], "arguments": "".join(p[3])}}
             for p in parts if p[0] == "call"]  # fmt: skip
    refusal = "".join(p[1] for p in parts if p[0] == "refusal")
    message |= {"reasoning_content": thoughts} if thoughts else {}
    message |= {"tool_calls": calls} if calls else {}
    message |= {"refusal": refusal} if refusal else {}
    why = next((p[1] for p in parts if p[0] == "end"), "tool_calls" if calls else "stop")
    choices = [{"index": 0, "message": message, "finish_reason": why}]
    head = {"id": f"chatcmpl-{next(numbers)}", "object": "chat.completion", "created": int(time.time())}
    return {**head, "model": body.get("model"), "choices": choices, "usage": USAGE}


SPOKEN = ("text", "reasoning", "refusal")


def grouped(parts):
    """Pieces of one kind together, with the pauses between them; everything else alone."""
    groups = []
    for part in parts:
        joins = groups and groups[-1][0] in SPOKEN and part[0] in (groups[-1][0], "wait")
        if joins:
            groups[-1][1].append(part)
        else:
            groups.append((part[0], [part]) if part[0] in SPOKEN else (part, []))
    return groups


async def responses(body, parts):
    """The events of a Responses stream."""
    own_id, sequence, items = f"resp_{next(numbers):032x}", itertools.count(), []
    answer = {"id": own_id, "object": "response", "created_at": int(time.time()), "status": "in_progress",
              "model": body.get("model"), "output": items, "error": None, "incomplete_details": None,
              "previous_response_id": body.get("previous_response_id"), "usage": None,
              "metadata": body.get("metadata") or {}, "parallel_tool_calls": True, "tools": body.get("tools") or [],
              "tool_choice": "auto", "store": body.get("store", True)}  # fmt: skip

    def event(kind, **more):
        return {"type": f"response.{kind}", "sequence_number": next(sequence), **more}

    yield event("created", response=json.loads(json.dumps(answer)))
    yield event("in_progress", response=json.loads(json.dumps(answer)))
    for kind, group in grouped(parts):
        place = {"output_index": len(items)}
        if kind == "reasoning":
            item = {"id": f"rs_{next(numbers)}", "type": "reasoning", "summary": [], "status": "in_progress"}
            yield event("output_item.added", **place, item=dict(item))
            where = {**place, "item_id": item["id"], "summary_index": 0}
            yield event("reasoning_summary_part.added", **where, part={"type": "summary_text", "text": ""})
            text = ""
            for said, piece in group:
                if said == "wait":
                    yield said, piece
                    continue
                text += piece
                yield event("reasoning_summary_text.delta", **where, delta=piece)
            yield event("reasoning_summary_text.done", **where, text=text)
            part = {"type": "summary_text", "text": text}
            yield event("reasoning_summary_part.done", **where, part=part)
            item |= {"summary": [part], "status": "completed"}
        elif kind in ("text", "refusal"):
            item = {"id": f"msg_{next(numbers)}", "type": "message", "role": "assistant", "content": [], "status": "in_progress"}
            yield event("output_item.added", **place, item=dict(item))
            where = {**place, "item_id": item["id"], "content_index": 0}
            name, field = ("output_text", "text") if kind == "text" else ("refusal", "refusal")
            part = {"type": name, field: "", **({"annotations": [], "logprobs": []} if kind == "text" else {})}
            yield event("content_part.added", **where, part=dict(part))
            for said, piece in group:
                if said == "wait":
                    yield said, piece
                    continue
                part[field] += piece
                yield event(f"{name}.delta", **where, delta=piece, **({"logprobs": []} if kind == "text" else {}))
            yield event(f"{name}.done", **where, **{field: part[field]})
            yield event("content_part.done", **where, part=part)
            item |= {"content": [part], "status": "completed"}
        elif kind[0] == "call":
            _, call_id, name, pieces = kind
            item = {"id": f"fc_{next(numbers)}", "type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
            yield event("output_item.added", **place, item={**item, "status": "in_progress"})
            where = {**place, "item_id": item["id"]}
            for piece in pieces:
                yield event("function_call_arguments.delta", **where, delta=piece)
            yield event("function_call_arguments.done", **where, arguments="".join(pieces), name=name)
            item |= {"arguments": "".join(pieces), "status": "completed"}
        elif kind[0] == "error":
            answer |= {"status": "failed", "error": {"code": "server_error", "message": kind[2]}}
            yield event("failed", response=answer)
            return
        elif kind[0] == "end":
            reason = {"length": "max_output_tokens"}.get(kind[1], kind[1])
            answer |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
            continue
        else:
            yield kind
            continue
        items.append(item)
        yield event("output_item.done", **place, item=item)
    used = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
    used |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    status = "completed" if answer["status"] == "in_progress" else answer["status"]
    answer |= {"status": status, "usage": used}
    yield event(status, response=answer)


async def messages(body, parts):
    """The events of a Messages stream."""
    head = {"id": f"msg_{next(numbers)}", "type": "message", "role": "assistant", "model": body.get("model"), "content": []}
    used = {"input_tokens": 7, "output_tokens": 1}
    yield {"type": "message_start", "message": {**head, "stop_reason": None, "stop_sequence": None, "usage": used}}
    yield {"type": "ping"}
    index, why = 0, "end_turn"
    for kind, group in grouped(parts):
        if kind in ("text", "refusal", "reasoning"):
            thinks = kind == "reasoning"
            block = {"type": "thinking", "thinking": "", "signature": ""} if thinks else {"type": "text", "text": ""}
            delta = ("thinking_delta", "thinking") if thinks else ("text_delta", "text")
            deltas = [p if p[0] == "wait" else {"type": delta[0], delta[1]: p[1]} for p in group]
            deltas += [{"type": "signature_delta", "signature": "c2lnbmVk"}] if thinks else []
            why = "refusal" if kind == "refusal" else why
        elif kind[0] == "call":
            block = {"type": "tool_use", "id": f"toolu_{kind[1]}", "name": kind[2], "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *kind[3]]]
            why = "tool_use"
        elif kind[0] == "error":
            yield {"type": "error", "error": {"type": "api_error", "message": kind[2]}}
            return
        elif kind[0] == "end":
            why = {"length": "max_tokens", "content_filter": "refusal"}[kind[1]]
            continue
        else:
            yield kind
            continue
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            block_delta = {"type": "content_block_delta", "index": index, "delta": delta}
            yield delta if isinstance(delta, tuple) else block_delta
        yield {"type": "content_block_stop", "index": index}
        index += 1
    yield {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": {"output_tokens": 2}}
    yield {"type": "message_stop"}


async def whole(events):
    """A stream of Responses or Messages as the one answer it ends in."""
    content, answer = [], {}
    async for event in events:
        match event:
            case {"response": response}:
                answer = response
            case ("wait", seconds):
                await asyncio.sleep(seconds)
            case {"type": "message_start", "message": message}:
                answer = message
            case {"type": "content_block_start", "content_block": block}:
                content.append({**block, "_": ""})
            case {"type": "content_block_delta", "delta": {"type": kind, **value}}:
                field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(kind, "_")
                content[-1][field] += next(iter(value.values()))
            case {"type": "message_delta", "delta": delta}:
                answer = {**answer, **delta}
    for block in content:
        arguments = block.pop("_")
        block |= {"input": json.loads(arguments)} if block["type"] == "tool_use" else {}
    return {**answer, "content": content} if answer.get("type") == "message" else answer


async def answer(method, path, body, write):
    path = path.split("?")[0].removeprefix("/v1").rstrip("/")
    if method == "GET":
        models = [{"id": f"scripted-{f}", "object": "model", "created": 0, "owned_by": "scripted"} for f in FLAVOURS]
        known = {"/models": {"object": "list", "data": models}, "/health": {"status": "ok"}}
        return await write(200 if path in known else 404, known.get(path, error_body("no such path", "not_found")))
    forms = {"/chat/completions": chat, "/responses": responses, "/messages": messages}
    if path not in forms:
        return await write(404, error_body(f"no such path: {path}", "not_found"))
    try:
        body = json.loads(body)
    except ValueError:
        return await write(400, error_body("not JSON", "invalid_json"))
    parts = script(*received(body))
    is_whole = not body.get("stream") or "whole" in body.get("model", "")
    failure = next((part for part in parts if part[0] in ("error", "cut")), None)
    if failure and (is_whole or parts[0] == failure):
        return failure == ("cut",) or await write(failure[1], refusal(path, *failure[1:]))
    events = forms[path](body, parts)
    if is_whole:
        return await write(200, whole_chat(body, parts) if path == "/chat/completions" else await whole(events))
    await write(200, None)
    async for event in events:
        if event == ("cut",):
            return True
        if isinstance(event, tuple):
            await asyncio.sleep(event[1])
            continue
        if isinstance(event, dict):
            name = f"event: {event['type']}\n" if path != "/chat/completions" else ""
            event = f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n"
        await write(200, event.replace("\n", "\r\n") if "crlf" in body["model"] else event)
        await asyncio.sleep(0.005)
    await write(200, "")


async def connection(reader, writer):
    streams = False

    async def write(status, content):
        nonlocal streams
        if isinstance(content, dict):
            text = json.dumps(content, ensure_ascii=False).encode()
            head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
            writer.write(head.encode() + text)
        elif content is None:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        else:
            data = content.encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await writer.drain()

    try:
        while line := await reader.readline():
            method, path, _ = line.decode().split(" ", 2)
            length = 0
            while (header := (await reader.readline()).decode().strip().lower()) != "":
                name, _, value = header.partition(":")
                length = int(value) if name == "content-length" else length
            if await answer(method, path, await reader.readexactly(length), write):
                break
    except (ConnectionError, asyncio.IncompleteReadError, ValueError):
        pass
    writer.close()


async def start(port=0):
    """Serves, and gives the server and its URL."""
    server = await asyncio.start_server(connection, "127.0.0.1", port, limit=2**20)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
