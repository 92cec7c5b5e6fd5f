"""A client of each protocol that the gateway serves, as far as the checks of real agents need one.

    from protocol_clients import ALL

    for Client in ALL:
        client = Client("scripted")
        answer = client.say("approval")
        answer = client.decide(answer, "accept")

A client holds one conversation. Each turn returns an `Answer`, which is the same for every protocol. The clients stream
where their protocol has streams. Chat Completions and Anthropic Messages are here twice: questions arrive as calls of
declared functions, or as words. Uses only the standard library. Not here: any expectation (`every_protocol`).
"""

import functools
import http.client
import json
import socket
import urllib.parse
import uuid
from dataclasses import dataclass, field

from checks import GATEWAY_URL

ASKING = ("request_approval", "request_input")
APPROVAL = {"name": "request_approval", "description": "Asks a person.", "parameters": {"type": "object"}}


@dataclass
class Answer:
    """One turn, as its client sees it."""

    status: str = "completed"  # or failed, canceled, refused (an HTTP error)
    text: str = ""
    reasoning: str = ""
    calls: list = field(default_factory=list)  # (name, arguments) of the tools that the agent ran
    outputs: list = field(default_factory=list)  # their outputs
    client_calls: list = field(default_factory=list)  # (id, name, arguments) of the tools that the client is to run
    asks: list = field(default_factory=list)  # (id, kind) of the open questions
    error: str = ""
    run: str = ""
    raw: str = ""


def parsed(text):
    """JSON of a text, or the text."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


class Opened:
    """A request under way."""

    def __init__(self, method, path, body, headers):
        where = urllib.parse.urlsplit(GATEWAY_URL)
        self.connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
        payload = None if body is None else json.dumps(body)
        self.connection.request(method, path, payload, {"content-type": "application/json", **headers})

    @functools.cached_property
    def answer(self):
        """The head of the answer, which arrives with the first words of the agent."""
        return self.connection.getresponse()

    def read_until(self, word):
        """Reads the stream until it contains a word."""
        seen = b""
        while word not in seen:
            chunk = self.answer.read1(65536)
            assert chunk, f"the stream ended before {word!r}: {seen[-500:]!r}"
            seen += chunk
        return seen.decode(errors="ignore")

    def leave(self):
        if self.connection.sock:
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()


class Client:
    """One conversation. `edits`: whether the protocol has new arguments for a call."""

    name, edits, tools = "", True, True
    headers: dict = {}

    def __init__(self, agent):
        self.agent, self.session, self.said, self.turns = agent, f"s-{uuid.uuid4().hex[:12]}", [], 0

    def say(self, text, tools=()):
        raise NotImplementedError

    def decide(self, answer, word, arguments=None):
        """Answers the first question of an answer: accept, reject, or edit with these arguments."""
        raise NotImplementedError

    def output(self, answer, output):
        """Sends the output of the first call that the client was to run."""
        raise NotImplementedError

    def long_turn(self, text):
        """Begins a turn and returns its open stream."""
        raise NotImplementedError

    def cancel(self, opened):
        """Cancels the turn. A protocol without a word for this closes the connection."""
        opened.leave()

    def request(self, path, body, method="POST", headers=None):
        opened = Opened(method, path, body, {**self.headers, **(headers or {})})
        text = opened.answer.read().decode()
        opened.connection.close()
        return opened.answer.status, text

    def refused(self, status, text):
        return Answer(status="refused", error=f"{status} {text}", raw=text)

    def run_of_session(self):
        """The latest run of the agent, over the Agent API."""
        status, text = self.request(f"/agents/{self.agent}/runs?limit=1", None, "GET")
        assert status == 200, (status, text)
        return json.loads(text)["data"][0]


def events(text):
    """The JSON of each event of a stream."""
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


class AgentApi(Client):
    name = "agent-api"

    def _send(self, body):
        status, text = self.request(f"/agents/{self.agent}/process", {"session_id": self.session, **body})
        if status != 200:
            return self.refused(status, text)
        last = events(text)[-1]
        answer = Answer(status=last["status"], run=last["id"], raw=text)
        answer.error = json.dumps(last.get("error") or "")
        answered = set()
        for message in last["output"] or []:
            texts = "".join(part.get("text") or "" for part in message["content"] or [])
            data = [part["data"] for part in message["content"] or [] if "data" in part]
            match message["type"]:
                case "message":
                    answer.text += texts
                case "reasoning":
                    answer.reasoning += texts
                case "plugin_call" | "mcp_call":
                    answer.calls += [(one["name"], parsed(one["arguments"])) for one in data]
                case "plugin_call_output" | "mcp_call_output" | "function_call_output":
                    answer.outputs += [one["output"] for one in data]
                    answered |= {one["call_id"] for one in data}
                case "function_call":
                    answer.client_calls += [(one["call_id"], one["name"], parsed(one["arguments"])) for one in data]
                case "mcp_approval_request":
                    answer.asks += [(one["id"], one.get("interrupt", {}).get("kind", "approval")) for one in data]
        ran = [call for call in answer.client_calls if call[0] in answered]
        answer.calls += [(name, arguments) for _, name, arguments in ran]
        answer.client_calls = [call for call in answer.client_calls if call not in ran]
        return answer

    def _body(self, text, tools=()):
        body = {"input": [{"role": "user", "type": "message", "content": [{"type": "text", "text": text}]}]}
        if tools:
            body["tools"] = [{"type": "function", "function": tool} for tool in tools]
        return body

    def say(self, text, tools=()):
        return self._send(self._body(text, tools))

    def decide(self, answer, word, arguments=None):
        item, interrupt = answer.asks[0][0], {"decision": word}
        if arguments is not None:
            interrupt["arguments"] = json.dumps(arguments)
        data = {"id": item, "approval_request_id": item, "approve": word != "reject", "interrupt": interrupt}
        content = [{"type": "data", "data": data}]
        return self._send({"input": [{"type": "mcp_approval_response", "role": "user", "content": content}]})

    def output(self, answer, output):
        content = [{"type": "data", "data": {"call_id": answer.client_calls[0][0], "output": output}}]
        return self._send({"input": [{"type": "function_call_output", "role": "tool", "content": content}]})

    def long_turn(self, text):
        return Opened("POST", f"/agents/{self.agent}/process", {"session_id": self.session, **self._body(text)}, {})

    def cancel(self, opened):
        status, text = self.request(f"/agents/{self.agent}/runs/{self.run_of_session()['id']}/cancel", {})
        assert status == 200, (status, text)
        opened.answer.read()


class Responses(Client):
    name, edits, last = "responses", False, None

    def _body(self, items, tools=(), **more):
        body = {"model": self.agent, "input": items, "stream": True, **more}
        if self.last:
            body["previous_response_id"] = self.last
        if tools:
            body["tools"] = [{"type": "function", "strict": False, **tool} for tool in tools]
        return body

    def _send(self, items, tools=()):
        status, text = self.request("/v1/responses", self._body(items, tools))
        if status != 200:
            return self.refused(status, text)
        response = events(text)[-1]["response"]
        self.last = response["id"]
        answer = Answer(status=response["status"], run=response["id"], raw=text)
        answer.error = json.dumps(response.get("error") or "")
        for item in response["output"]:
            match item["type"]:
                case "message":
                    answer.text += "".join(part.get("text", "") for part in item["content"])
                case "reasoning":
                    thoughts = item.get("summary") or item.get("content") or []
                    answer.reasoning += "".join(part["text"] for part in thoughts)
                case "function_call" if item["name"] in ASKING:
                    answer.asks.append((item["call_id"], "input"))
                case "function_call":
                    answer.client_calls.append((item["call_id"], item["name"], parsed(item["arguments"])))
                case "mcp_call":
                    answer.calls.append((item["name"], parsed(item["arguments"])))
                    answer.outputs.append(item.get("output") or json.dumps(item.get("error")))
                case "mcp_approval_request":
                    answer.asks.append((item["id"], "approval"))
        return answer

    def say(self, text, tools=()):
        return self._send(text, tools)

    def decide(self, answer, word, arguments=None):
        item = {"type": "mcp_approval_response", "approval_request_id": answer.asks[0][0], "approve": word == "accept"}
        return self._send([item])

    def output(self, answer, output):
        return self._send([{"type": "function_call_output", "call_id": answer.client_calls[0][0], "output": output}])

    def long_turn(self, text):
        return Opened("POST", "/v1/responses", self._body(text, background=True), {})

    def cancel(self, opened):
        run = self.run_of_session()["id"].replace("response_", "resp_")
        status, text = self.request(f"/v1/responses/{run}/cancel", {})
        assert status == 200, (status, text)
        opened.answer.read()


def marker(text):
    """Splits a question in words: the text before it, and the kind and id of its last line."""
    last = text.rstrip().rsplit("\n", 1)[-1]
    if last.startswith(("[approval ", "[question ")) and last.endswith("]"):
        kind, item = last[1:-1].split(" ", 1)
        return text.rsplit("\n\n", 1)[0] if "\n\n" in text else "", [(item, kind)]
    return text, []


class Chat(Client):
    """Asked by calls of functions."""

    name, functions = "chat-completions", True

    def _body(self, tools=()):
        body = {"model": self.agent, "messages": self.said, "stream": True}
        declared = [*tools, *([APPROVAL] if self.functions else [])]
        if declared:
            body["tools"] = [{"type": "function", "function": tool} for tool in declared]
        return body

    def _send(self, message, tools=()):
        self.said.append(message)
        status, text = self.request("/v1/chat/completions", self._body(tools), headers={"x-session-id": self.session})
        if status != 200:
            return self.refused(status, text)
        answer, calls, content = Answer(raw=text), [], ""
        for chunk in events(text):
            if "error" in chunk:
                answer.status, answer.error = "failed", json.dumps(chunk["error"])
                continue
            answer.run = chunk["id"]
            for choice in chunk["choices"]:
                delta = choice["delta"]
                content += delta.get("content") or ""
                answer.reasoning += delta.get("reasoning_content") or ""
                for call in delta.get("tool_calls") or []:
                    while len(calls) <= call["index"]:
                        calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
                    calls[call["index"]]["id"] += call.get("id") or ""
                    for name, piece in call["function"].items():
                        calls[call["index"]]["function"][name] += piece or ""
        self.said.append({"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})})
        answer.text, answer.asks = marker(content)
        for call in calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            if name in ASKING:
                answer.asks.append((call["id"], name.removeprefix("request_")))
            else:
                answer.client_calls.append((call["id"], name, parsed(arguments)))
        return answer

    def say(self, text, tools=()):
        return self._send({"role": "user", "content": text}, tools)

    def decide(self, answer, word, arguments=None):
        if not self.functions:
            return self.say({"accept": "approve", "reject": "reject"}[word])
        decision = {"decision": word} if arguments is None else {"decision": word, "args": arguments}
        return self._send({"role": "tool", "tool_call_id": answer.asks[0][0], "content": json.dumps(decision)})

    def output(self, answer, output):
        return self._send({"role": "tool", "tool_call_id": answer.client_calls[0][0], "content": output})

    def long_turn(self, text):
        self.said.append({"role": "user", "content": text})
        return Opened("POST", "/v1/chat/completions", self._body(), {"x-session-id": self.session})


class ChatInWords(Chat):
    name, functions, edits = "chat-completions in words", False, False


class Messages(Client):
    """Asked by calls of functions."""

    name, functions = "anthropic-messages", True
    headers = {"anthropic-version": "2023-06-01"}

    def _body(self, tools=()):
        thinking = {"type": "enabled", "budget_tokens": 1024}
        body = {"model": self.agent, "max_tokens": 2000, "messages": self.said, "stream": True, "thinking": thinking}
        declared = [*tools, *([APPROVAL] if self.functions else [])]
        if declared:
            body["tools"] = [
                {"name": t["name"], "description": t["description"], "input_schema": t["parameters"]} for t in declared
            ]
        return body

    def _send(self, content, tools=()):
        self.said.append({"role": "user", "content": content})
        status, text = self.request("/anthropic/v1/messages", self._body(tools), headers={"x-session-id": self.session})
        if status != 200:
            return self.refused(status, text)
        answer, blocks, pieces = Answer(raw=text), [], {}
        for event in events(text):
            match event["type"]:
                case "message_start":
                    answer.run = event["message"]["id"]
                case "content_block_start":
                    blocks.append(dict(event["content_block"]))
                case "content_block_delta":
                    block, delta = blocks[event["index"]], event["delta"]
                    for name in ("text", "thinking"):
                        if name in delta:
                            block[name] = block.get(name, "") + delta[name]
                    if delta["type"] == "signature_delta":
                        block["signature"] = delta["signature"]
                    if "partial_json" in delta:
                        pieces[event["index"]] = pieces.get(event["index"], "") + delta["partial_json"]
                case "error":
                    answer.status, answer.error = "failed", json.dumps(event["error"])
        for index, text_of_input in pieces.items():
            blocks[index]["input"] = parsed(text_of_input or "{}")
        for block in blocks:
            match block["type"]:
                case "text":
                    words, asks = marker(block["text"])
                    answer.text, answer.asks = answer.text + words, answer.asks + asks
                case "thinking":
                    answer.reasoning += block["thinking"]
                case "tool_use" if block["name"] in ASKING:
                    answer.asks.append((block["id"], block["name"].removeprefix("request_")))
                case "tool_use":
                    answer.client_calls.append((block["id"], block["name"], block["input"]))
                case "mcp_tool_use":
                    answer.calls.append((block["name"], block["input"]))
                case "mcp_tool_result":
                    answer.outputs.append("".join(part.get("text", "") for part in block["content"]))
        if blocks:
            self.said.append({"role": "assistant", "content": blocks})
        return answer

    def say(self, text, tools=()):
        return self._send([{"type": "text", "text": text}], tools)

    def decide(self, answer, word, arguments=None):
        if not self.functions:
            return self.say({"accept": "approve", "reject": "reject"}[word])
        decision = {"decision": word} if arguments is None else {"decision": word, "args": arguments}
        result = {"type": "tool_result", "tool_use_id": answer.asks[0][0], "content": json.dumps(decision)}
        return self._send([result])

    def output(self, answer, output):
        return self._send([{"type": "tool_result", "tool_use_id": answer.client_calls[0][0], "content": output}])

    def long_turn(self, text):
        self.said.append({"role": "user", "content": text})
        headers = {**self.headers, "x-session-id": self.session}
        return Opened("POST", "/anthropic/v1/messages", self._body(), headers)


class MessagesInWords(Messages):
    name, functions, edits = "anthropic-messages in words", False, False


class A2a(Client):
    name, tools, task = "a2a", False, None
    headers = {"a2a-version": "1.0"}

    def _call(self, method, params):
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    def _message(self, *parts):
        self.turns += 1
        message = {"messageId": f"{self.session}-{self.turns}", "role": "ROLE_USER", "contextId": self.session}
        message["parts"] = list(parts)
        if self.task:
            message["taskId"] = self.task
        return self._call("SendStreamingMessage", {"message": message})

    def _send(self, *parts):
        status, text = self.request(f"/a2a/{self.agent}", self._message(*parts))
        if status != 200 or not text.startswith(("data:", "id:", ":")):
            return self.refused(status, text)
        answer, artifacts, self.task = Answer(raw=text), {}, None
        for event in (frame["result"] for frame in events(text)):
            task = event.get("task") or {}
            answer.run = task.get("id", answer.run)
            for update in [event.get("artifactUpdate")] if "artifactUpdate" in event else task.get("artifacts") or []:
                artifact = update.get("artifact", update)
                parts = artifacts.setdefault(artifact["artifactId"], [])
                if not update.get("append"):
                    parts.clear()
                parts.extend(artifact["parts"])
            state = (event.get("statusUpdate") or task).get("status")
            if state:
                self._status(state, answer)
        answer.text = "".join(p.get("text", "") for parts in artifacts.values() for p in parts)
        return answer

    def _status(self, status, answer):
        parts = (status.get("message") or {}).get("parts") or []
        state = status["state"].removeprefix("TASK_STATE_")
        if state == "WORKING":
            for part in parts:
                metadata, data = part.get("metadata") or {}, part.get("data") or {}
                if metadata.get("thought"):
                    answer.reasoning += part.get("text", "")
                elif metadata.get("type") == "function_call":
                    answer.calls.append((data["name"], data["args"]))
                elif metadata.get("type") == "function_response":
                    answer.outputs.append(data["response"].get("output"))
        elif state in ("INPUT_REQUIRED", "AUTH_REQUIRED"):
            self.task = answer.run
            for data in (part["data"] for part in parts if "data" in part):
                if call := data.get("function_call"):
                    arguments = call["arguments"]
                    arguments = parsed(arguments) if isinstance(arguments, str) else arguments
                    answer.client_calls.append((call["call_id"], call["name"], arguments))
                elif asked := data.get("interrupt"):
                    answer.asks.append((asked["id"], asked["kind"]))
        elif state in ("FAILED", "REJECTED", "CANCELED"):
            answer.status = "canceled" if state == "CANCELED" else "failed"
            answer.error = json.dumps(status.get("message") or state)

    def say(self, text, tools=()):
        return self._send({"text": text})

    def decide(self, answer, word, arguments=None):
        data = {"interrupt_id": answer.asks[0][0], "decision": word}
        return self._send({"data": data if arguments is None else {**data, "args": arguments}})

    def output(self, answer, output):
        return self._send({"data": {"function_call_output": {"call_id": answer.client_calls[0][0], "output": output}}})

    def long_turn(self, text):
        return Opened("POST", f"/a2a/{self.agent}", self._message({"text": text}), self.headers)

    def cancel(self, opened):
        task = self.run_of_session()["id"].removeprefix("response_")
        status, text = self.request(f"/a2a/{self.agent}", self._call("CancelTask", {"id": task}))
        assert status == 200 and "CANCELED" in text, (status, text)
        opened.answer.read()


class AgUi(Client):
    name = "ag-ui"

    def _input(self, tools=(), **more):
        self.turns += 1
        return {
            "threadId": self.session, "runId": f"run-{self.turns}", "messages": self.said, "tools": list(tools),
            "context": [], "state": {}, "forwardedProps": {}, "protocolVersion": "1.0", **more,
        }

    def _send(self, tools=(), **more):
        status, text = self.request(f"/ag-ui/{self.agent}", self._input(tools, **more))
        if status != 200:
            return self.refused(status, text)
        answer, calls, results, pending = Answer(raw=text), {}, {}, []
        for event in events(text):
            match event["type"]:
                case "TEXT_MESSAGE_CONTENT":
                    answer.text += event["delta"]
                case "REASONING_MESSAGE_CONTENT":
                    answer.reasoning += event["delta"]
                case "TOOL_CALL_START":
                    calls[event["toolCallId"]] = [event["toolCallName"], ""]
                case "TOOL_CALL_ARGS":
                    calls[event["toolCallId"]][1] += event["delta"]
                case "TOOL_CALL_RESULT":
                    results[event["toolCallId"]] = event["content"]
                case "RUN_ERROR":
                    answer.status, answer.error = "failed", json.dumps(event)
                case "RUN_FINISHED":
                    outcome = event.get("outcome") or {}
                    answer.asks = [(item["id"], item.get("reason", "")) for item in outcome.get("interrupts") or []]
                    pending = outcome.get("pendingToolCallIds") or []
        said = {"id": f"assistant-{self.turns}", "role": "assistant", "content": answer.text}
        if calls:
            said["toolCalls"] = [
                {"id": own_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for own_id, (name, arguments) in calls.items()
            ]
        self.said.append(said)
        for own_id, (name, arguments) in calls.items():
            if own_id in pending:
                answer.client_calls.append((own_id, name, parsed(arguments)))
            else:
                answer.calls.append((name, parsed(arguments)))
        answer.outputs = list(results.values())
        return answer

    def say(self, text, tools=()):
        self.said.append({"id": f"user-{self.turns}", "role": "user", "content": text})
        return self._send(tools)

    def decide(self, answer, word, arguments=None):
        payload = {"approved": word != "reject"}
        if arguments is not None:
            payload["editedArgs"] = arguments
        return self._send(resume=[{"interruptId": answer.asks[0][0], "status": "resolved", "payload": payload}])

    def output(self, answer, output):
        call = answer.client_calls[0][0]
        self.said.append({"id": f"output-{call}", "role": "tool", "toolCallId": call, "content": output})
        return self._send()

    def long_turn(self, text):
        self.said.append({"id": f"user-{self.turns}", "role": "user", "content": text})
        return Opened("POST", f"/ag-ui/{self.agent}", self._input(), {})


class AgKit(Client):
    name = "ag-kit"

    def _body(self, **more):
        return {"conversationId": self.session, **more}

    def _send(self, **more):
        status, text = self.request(f"/ag-kit/{self.agent}/send-message", self._body(**more))
        if status != 200:
            return self.refused(status, text)
        answer, calls, results = Answer(raw=text), {}, {}
        for event in events(text):
            match event["type"]:
                case "text":
                    answer.text += event["content"]
                case "reasoning":
                    answer.reasoning += event["content"]
                case "tool-call-start":
                    calls[event["toolCallId"]] = [event["toolCallName"], ""]
                case "tool-call-args":
                    calls[event["toolCallId"]][1] += event["delta"]
                case "tool-result":
                    results[event["toolCallId"]] = event["result"]
                case "interrupt":
                    answer.asks.append((event["id"], event.get("reason", "")))
                case "error":
                    answer.status, answer.error = "failed", json.dumps(event)
        for own_id, (name, arguments) in calls.items():
            if own_id in results or answer.asks or answer.status == "failed":
                answer.calls.append((name, parsed(arguments)))
            else:
                answer.client_calls.append((own_id, name, parsed(arguments)))
        answer.outputs = list(results.values())
        return answer

    def say(self, text, tools=()):
        more = {"tools": list(tools)} if tools else {}
        return self._send(messages=[{"role": "user", "content": text}], **more)

    def decide(self, answer, word, arguments=None):
        payload = {"decision": word} if arguments is None else {"decision": word, "args": arguments}
        return self._send(resume={"interruptId": answer.asks[0][0], "payload": payload})

    def output(self, answer, output):
        message = {"role": "tool", "toolCallId": answer.client_calls[0][0], "content": output}
        return self._send(messages=[message])

    def long_turn(self, text):
        body = self._body(messages=[{"role": "user", "content": text}])
        return Opened("POST", f"/ag-kit/{self.agent}/send-message", body, {})


class Hitl(Client):
    name, tools, seen = "hitl", False, 0

    def _read(self, status, text):
        if status != 200:
            return self.refused(status, text)
        body = json.loads(text)
        answer = Answer(raw=text)
        messages = ((body.get("result") or {}).get("messages")) or []
        new, self.seen = messages[self.seen :], max(self.seen, len(messages))
        for message in new:
            if message["type"] == "ai":
                answer.text += message["content"]
                answer.reasoning += (message.get("additional_kwargs") or {}).get("reasoning_content") or ""
                answer.calls += [(call["name"], call["args"]) for call in message.get("tool_calls") or []]
            elif message["type"] == "tool":
                answer.outputs.append(message["content"])
        if body["status"] == "error":
            answer.status, answer.error = "failed", body["message"]
        if body["status"] == "interrupted":
            data = body["interrupt_data"]
            if data["interrupt_type"] == "tool":
                request = data["action_request"]
                answer.client_calls.append((body["session_id"], request["action"], request["args"]))
            else:
                answer.asks.append((body["session_id"], data["interrupt_type"]))
        return answer

    def _names(self, **more):
        return {"user_id": self.session, "session_id": self.session, **more}

    def say(self, text, tools=()):
        return self._read(*self.request(f"/hitl/{self.agent}/agent/invoke", self._names(query=text)))

    def _resume(self, word, arguments=None):
        body = self._names(response_type=word, args=arguments)
        return self._read(*self.request(f"/hitl/{self.agent}/agent/resume", body))

    def decide(self, answer, word, arguments=None):
        return self._resume(word, None if arguments is None else {"args": arguments})

    def output(self, answer, output):
        return self._resume("response", {"args": output})

    def long_turn(self, text):
        return Opened("POST", f"/hitl/{self.agent}/agent/invoke", self._names(query=text), {})

    def cancel(self, opened):
        status, text = self.request(f"/hitl/{self.agent}/agent/session/{self.session}/{self.session}", None, "DELETE")
        assert status == 200, (status, text)
        opened.leave()


class Mcp(Client):
    """A client of revision 2026-07-28 with forms and progress. The route has structured results with steps."""

    name, tools, known, asked = "mcp", False, None, None

    def _call(self, **more):
        client = {"elicitation": {"form": {}, "url": {}}}
        version = {"protocolVersion": "2026-07-28", "clientCapabilities": client}
        meta = {f"io.modelcontextprotocol/{name}": value for name, value in version.items()}
        params = {"name": self.agent, **self.asked, **more, "_meta": {**meta, "progressToken": "p"}}
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": self.agent}
        self.turns += 1
        return {"jsonrpc": "2.0", "id": self.turns, "method": "tools/call", "params": params}, headers

    def _send(self, **more):
        body, headers = self._call(**more)
        status, text = self.request("/mcp", body, headers=headers)
        if status != 200:
            return self.refused(status, text)
        answer, last = Answer(raw=text), None
        for last in events(text) or [json.loads(text)]:
            answer.reasoning += self._meta(last.get("params")).get("interlingua/reasoning") or ""
            answer.run = self._meta(last.get("params")).get("interlingua/run") or answer.run
        if error := last.get("error"):
            answer.status, answer.error = "failed", error["message"]
        elif last["result"]["resultType"] == "input_required":
            self.state = last["result"]["requestState"]
            for key, request in last["result"]["inputRequests"].items():
                self._question(key, request["params"], answer)
        else:
            self._result(last["result"], answer)
        return answer

    def _meta(self, params):
        return (params or {}).get("_meta") or {}

    def _question(self, key, params, answer):
        properties = params.get("requestedSchema", {}).get("properties", {})
        if "output" in properties:
            name, _, arguments = params["message"].split("\n")[-1].partition(": ")
            answer.client_calls.append((key, name, parsed(arguments)))
        elif params["mode"] == "form":
            answer.asks.append((key, "approval" if "decision" in properties else "input"))

    def _result(self, result, answer):
        self.known = self._meta(result).get("interlingua/session")
        said = [block for block in result["content"] if block["type"] == "text" and "annotations" not in block]
        if result["isError"]:
            answer.status, answer.error = "failed", said[0]["text"]
            return
        answer.text = "".join(block["text"] for block in said)
        for step in result["structuredContent"].get("steps") or []:
            answer.calls.append((step["name"], parsed(step["arguments"])))
            if "output" in step:
                answer.outputs.append(step["output"])

    def _ask(self, text):
        self.asked = {"arguments": {"message": text, **({"session": self.known} if self.known else {})}}

    def say(self, text, tools=()):
        self._ask(text)
        return self._send()

    def _fill_in(self, key, content):
        return self._send(requestState=self.state, inputResponses={key: {"action": "accept", "content": content}})

    def decide(self, answer, word, arguments=None):
        edit = {} if arguments is None else {"arguments": json.dumps(arguments)}
        return self._fill_in(answer.asks[0][0], {"decision": word, **edit})

    def output(self, answer, output):
        return self._fill_in(answer.client_calls[0][0], {"output": output})

    def long_turn(self, text):
        self._ask(text)
        body, headers = self._call()
        return Opened("POST", "/mcp", body, headers)


ALL = (AgentApi, Responses, Chat, ChatInWords, Messages, MessagesInWords, A2a, AgUi, AgKit, Hitl, Mcp)
