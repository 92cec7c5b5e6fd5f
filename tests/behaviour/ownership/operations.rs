//! All operations of all protocols, with placeholders for resources of a caller.
//!
//! Not here: their senders, and the expected answers ([`super`]).

use std::collections::BTreeSet;

use interlingua_a2a::Generation;
use serde_json::{Value, json};

use crate::support::endpoints::endpoints;

/// The newest revision of MCP, whose requests repeat parts of their bodies in headers.
pub(super) const MCP_MODERN: &str = "2026-07-28";

/// One request. Placeholders: `{run}`, `{session}`, `{item}`, `{conversation}`, `{entry}`, `{receiver}`.
pub(super) struct Operation {
    pub(super) method: &'static str,
    /// The endpoint as it is declared, below the path of its route in [`crate::support::pairs::ROUTES`].
    pub(super) endpoint: &'static str,
    pub(super) path: &'static str,
    pub(super) body: Option<Value>,
    pub(super) version: Option<&'static str>,
    /// True if it names the session in a header.
    pub(super) session_header: bool,
}

impl Operation {
    /// True if it names such a thing.
    pub(super) fn names(&self, placeholder: &str) -> bool {
        (self.session_header && placeholder == "{session}")
            || self.path.contains(placeholder)
            || self.body.as_ref().is_some_and(|body| body.to_string().contains(placeholder))
    }
}

fn get(endpoint: &'static str, path: &'static str) -> Operation {
    Operation { method: "GET", endpoint, path, body: None, version: None, session_header: false }
}

fn delete(endpoint: &'static str, path: &'static str) -> Operation {
    Operation { method: "DELETE", ..get(endpoint, path) }
}

fn post(endpoint: &'static str, path: &'static str, body: Value) -> Operation {
    Operation { method: "POST", body: Some(body), ..get(endpoint, path) }
}

/// All of them.
pub(super) fn operations() -> Vec<Operation> {
    [
        agent_api(),
        responses(),
        conversations(),
        chat_completions(),
        anthropic_messages(),
        a2a(),
        a2a_old(),
        a2a_rpc(),
        ag_kit(),
        ag_ui(),
        hitl(),
        mcp(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Calls of clients without a session, and methods on tasks in the style of the newest revision.
fn mcp() -> Vec<Operation> {
    let method = |method: &str, params: Value| {
        post("/mcp", "/mcp", json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
    };
    let tool = |name: &str, arguments: Value| method("tools/call", json!({ "name": name, "arguments": arguments }));
    let task = |name: &str, fields: Value| {
        let mut params = json!({ "taskId": "{run}", "_meta": {
            "io.modelcontextprotocol/protocolVersion": MCP_MODERN,
            "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
        } });
        for (name, value) in fields.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        Operation { version: Some(MCP_MODERN), ..method(name, params) }
    };
    let decision = json!({ "{item}": { "action": "accept", "content": { "decision": "accept" } } });
    vec![
        tool("demo", json!({ "message": "hello", "session": "{session}" })),
        tool("wait", json!({ "run": "{run}" })),
        tool("answer", json!({ "run": "{run}", "item": "{item}", "decision": "reject" })),
        method("resources/read", json!({ "uri": "interlingua://runs/{run}" })),
        method("resources/read", json!({ "uri": "interlingua://runs/{run}/parts/1" })),
        task("tasks/get", json!({})),
        task("tasks/update", json!({ "inputResponses": decision })),
        task("tasks/cancel", json!({})),
        get("/mcp", "/mcp"),
        delete("/mcp", "/mcp"),
        get("/mcp/.well-known/oauth-protected-resource", "/mcp/.well-known/oauth-protected-resource"),
    ]
}

fn agent_api() -> Vec<Operation> {
    let text = json!([{ "role": "user", "content": [{ "type": "text", "text": "hello" }] }]);
    let turn = json!({ "session_id": "{session}", "user_id": "pat", "stream": false, "input": text });
    let data = json!({ "approval_request_id": "{item}", "id": "{item}", "approve": true });
    let answer =
        json!([{ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] }]);
    let answer = json!({ "session_id": "{session}", "stream": false, "input": answer });
    vec![
        post("/agents/demo/process", "/agents/demo/process", turn.clone()),
        post("/agents/demo/process", "/agents/demo/process", answer),
        post("/agents/demo/process/task", "/agents/demo/process/task", turn),
        get("/agents/demo/process/task/{id}", "/agents/demo/process/task/{run}"),
        post("/agents/demo/stop", "/agents/demo/stop", json!({ "session_id": "{session}", "user_id": "pat" })),
        get("/agents/demo/runs/{id}/events", "/agents/demo/runs/{run}/events"),
        get("/agents/demo/runs/{id}/events", "/agents/demo/runs/{run}/events?after=2"),
        post("/agents/demo/runs/{id}/cancel", "/agents/demo/runs/{run}/cancel", json!({})),
        get("/agents/demo/runs/{id}", "/agents/demo/runs/{run}"),
        delete("/agents/demo/runs/{id}", "/agents/demo/runs/{run}"),
        get("/agents/demo/runs", "/agents/demo/runs?session_id={session}"),
        get("/agents/demo/health", "/agents/demo/health"),
    ]
}

fn responses() -> Vec<Operation> {
    let create = |fields: Value| {
        let mut body = json!({ "model": "demo", "input": "hello" });
        for (name, value) in fields.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        post("/v1/responses", "/v1/responses", body)
    };
    let answer = json!([{ "type": "mcp_approval_response", "approval_request_id": "{item}", "approve": true }]);
    let output = json!([{ "type": "function_call_output", "call_id": "{item}", "output": "Paris" }]);
    let context = json!({ "model": "demo", "input": "hello", "previous_response_id": "{run}" });
    vec![
        create(json!({ "previous_response_id": "{run}" })),
        create(json!({ "previous_response_id": "{run}", "stream": true })),
        create(json!({ "previous_response_id": "{run}", "input": answer.clone() })),
        create(json!({ "previous_response_id": "{run}", "input": output })),
        create(json!({ "input": answer })),
        create(json!({ "conversation": "{conversation}" })),
        create(json!({ "input": [{ "type": "item_reference", "id": "{entry}" }] })),
        get("/v1/responses", "/v1/responses"),
        get("/v1/responses/{id}", "/v1/responses/{run}"),
        get("/v1/responses/{id}", "/v1/responses/{run}?stream=true"),
        get("/v1/responses/{id}", "/v1/responses/{run}?stream=true&starting_after=2"),
        get("/v1/responses/{id}/input_items", "/v1/responses/{run}/input_items"),
        post("/v1/responses/{id}/cancel", "/v1/responses/{run}/cancel", json!({})),
        delete("/v1/responses/{id}", "/v1/responses/{run}"),
        post("/v1/responses/input_tokens", "/v1/responses/input_tokens", context.clone()),
        post("/v1/responses/compact", "/v1/responses/compact", context),
        get("/v1/models", "/v1/models"),
        get("/v1/models/{*id}", "/v1/models/demo"),
    ]
}

fn conversations() -> Vec<Operation> {
    let item = json!({ "type": "message", "role": "user", "content": "hello" });
    vec![
        post("/v1/conversations", "/v1/conversations", json!({ "items": [item] })),
        get("/v1/conversations/{id}", "/v1/conversations/{conversation}"),
        post("/v1/conversations/{id}", "/v1/conversations/{conversation}", json!({ "metadata": { "a": "b" } })),
        delete("/v1/conversations/{id}", "/v1/conversations/{conversation}"),
        get("/v1/conversations/{id}/items", "/v1/conversations/{conversation}/items"),
        post("/v1/conversations/{id}/items", "/v1/conversations/{conversation}/items", json!({ "items": [item] })),
        get("/v1/conversations/{id}/items/{item}", "/v1/conversations/{conversation}/items/{entry}"),
        delete("/v1/conversations/{id}/items/{item}", "/v1/conversations/{conversation}/items/{entry}"),
        // The session of a run of another protocol is no conversation either.
        get("/v1/conversations/{id}", "/v1/conversations/{session}"),
    ]
}

fn chat_completions() -> Vec<Operation> {
    let create = |messages: Value| {
        let body = json!({ "model": "demo", "messages": messages });
        Operation { session_header: true, ..post("/v1/chat/completions", "/v1/chat/completions", body) }
    };
    let call = json!({ "id": "{item}", "type": "function", "function": { "name": "send_mail", "arguments": "{}" } });
    let called = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let output = json!({ "role": "tool", "tool_call_id": "{item}", "content": "approve" });
    let hello = json!({ "role": "user", "content": "hello" });
    let asked = json!({ "role": "assistant", "content": "May I?\n[approval {item}]" });
    let approved = json!({ "role": "user", "content": "approve" });
    vec![
        create(json!([hello])),
        create(json!([output])),
        create(json!([hello, called, output])),
        create(json!([hello, asked, approved])),
        get("/v1/chat/completions", "/v1/chat/completions"),
        get("/v1/chat/completions/{id}", "/v1/chat/completions/{run}"),
        get("/v1/chat/completions/{id}", "/v1/chat/completions/chatcmpl-{run}"),
        get("/v1/chat/completions/{id}/messages", "/v1/chat/completions/chatcmpl-{run}/messages"),
        post("/v1/chat/completions/{id}", "/v1/chat/completions/chatcmpl-{run}", json!({ "metadata": { "a": "b" } })),
        delete("/v1/chat/completions/{id}", "/v1/chat/completions/chatcmpl-{run}"),
        get("/v1/models", "/v1/models"),
        get("/v1/models/{*id}", "/v1/models/demo"),
    ]
}

fn anthropic_messages() -> Vec<Operation> {
    let path = "/anthropic/v1/messages";
    let create = |fields: Value| {
        let mut body =
            json!({ "model": "demo", "max_tokens": 100, "messages": [{ "role": "user", "content": "hello" }] });
        for (name, value) in fields.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        Operation { session_header: true, ..post(path, path, body) }
    };
    let called = json!({ "type": "tool_use", "id": "{item}", "name": "send_mail", "input": {} });
    let called = json!({ "role": "assistant", "content": [called] });
    let output = json!({ "type": "tool_result", "tool_use_id": "{item}", "content": "approve" });
    let output = json!({ "role": "user", "content": [output] });
    let hello = json!({ "role": "user", "content": "hello" });
    let asked = json!({ "role": "assistant", "content": "May I?\n[approval {item}]" });
    let approved = json!({ "role": "user", "content": "approve" });
    let thread = json!({ "type": "continue", "previous_message_id": "{run}" });
    let prefixed = json!({ "type": "continue", "previous_message_id": "msg_{run}" });
    let count = json!({ "model": "demo", "messages": [hello] });
    vec![
        create(json!({})),
        create(json!({ "messages": [output] })),
        create(json!({ "messages": [hello, called, output] })),
        create(json!({ "messages": [hello, asked, approved] })),
        create(json!({ "thread": thread })),
        create(json!({ "thread": prefixed })),
        create(json!({ "thread": prefixed, "messages": [output] })),
        post("/anthropic/v1/messages/count_tokens", "/anthropic/v1/messages/count_tokens", count),
        get("/anthropic/v1/models", "/anthropic/v1/models"),
        get("/anthropic/v1/models/{*id}", "/anthropic/v1/models/demo"),
        get("/anthropic/api/hello", "/anthropic/api/hello"),
        get("/anthropic", "/anthropic"),
    ]
}

/// A message that names a task, a context, or a task it refers to.
fn messages(role: &str) -> [Value; 4] {
    let message = |fields: Value| {
        let mut message = json!({ "messageId": "m", "role": role, "parts": [{ "kind": "text", "text": "hello" }] });
        if role == "ROLE_USER" {
            message["parts"] = json!([{ "text": "hello" }]);
        } else {
            message["kind"] = "message".into();
        }
        for (name, value) in fields.as_object().into_iter().flatten() {
            message[name] = value.clone();
        }
        json!({ "message": message })
    };
    let decision = json!({ "interrupt_id": "{item}", "decision": "accept" });
    let data =
        if role == "ROLE_USER" { json!([{ "data": decision }]) } else { json!([{ "kind": "data", "data": decision }]) };
    [
        message(json!({ "taskId": "{run}" })),
        message(json!({ "contextId": "{session}" })),
        message(json!({ "referenceTaskIds": ["{run}"] })),
        message(json!({ "contextId": "{session}", "parts": data })),
    ]
}

fn versioned(version: &'static str, operations: Vec<Operation>) -> Vec<Operation> {
    operations.into_iter().map(|operation| Operation { version: Some(version), ..operation }).collect()
}

fn a2a() -> Vec<Operation> {
    let mut operations = Vec::new();
    for message in messages("ROLE_USER") {
        operations.push(post("/a2a/demo/message:send", "/a2a/demo/message:send", message.clone()));
        operations.push(post("/a2a/demo/message:stream", "/a2a/demo/message:stream", message.clone()));
        operations.push(post("/a2a/demo/{tenant}/message:send", "/a2a/demo/acme/message:send", message.clone()));
        operations.push(post("/a2a/demo/{tenant}/message:stream", "/a2a/demo/acme/message:stream", message));
    }
    let receiver = || json!({ "url": "http://127.0.0.1:9/hook", "id": "{receiver}" });
    operations.extend([
        get("/a2a/demo/.well-known/agent-card.json", "/a2a/demo/.well-known/agent-card.json"),
        get("/a2a/demo/.well-known/agent.json", "/a2a/demo/.well-known/agent.json"),
        get("/a2a/demo/extendedAgentCard", "/a2a/demo/extendedAgentCard"),
        get("/a2a/demo/tasks", "/a2a/demo/tasks?contextId={session}"),
        get("/a2a/demo/tasks/{id}", "/a2a/demo/tasks/{run}"),
        post("/a2a/demo/tasks/{id}:cancel", "/a2a/demo/tasks/{run}:cancel", json!({})),
        get("/a2a/demo/tasks/{id}:subscribe", "/a2a/demo/tasks/{run}:subscribe"),
        post("/a2a/demo/tasks/{id}:subscribe", "/a2a/demo/tasks/{run}:subscribe", json!({})),
        post(
            "/a2a/demo/tasks/{id}/pushNotificationConfigs",
            "/a2a/demo/tasks/{run}/pushNotificationConfigs",
            receiver(),
        ),
        get("/a2a/demo/tasks/{id}/pushNotificationConfigs", "/a2a/demo/tasks/{run}/pushNotificationConfigs"),
        get(
            "/a2a/demo/tasks/{id}/pushNotificationConfigs/{config}",
            "/a2a/demo/tasks/{run}/pushNotificationConfigs/{receiver}",
        ),
        delete(
            "/a2a/demo/tasks/{id}/pushNotificationConfigs/{config}",
            "/a2a/demo/tasks/{run}/pushNotificationConfigs/{receiver}",
        ),
        get("/a2a/demo/{tenant}/extendedAgentCard", "/a2a/demo/acme/extendedAgentCard"),
        get("/a2a/demo/{tenant}/tasks", "/a2a/demo/acme/tasks?contextId={session}"),
        get("/a2a/demo/{tenant}/tasks/{id}", "/a2a/demo/acme/tasks/{run}"),
        post("/a2a/demo/{tenant}/tasks/{id}:cancel", "/a2a/demo/acme/tasks/{run}:cancel", json!({})),
        get("/a2a/demo/{tenant}/tasks/{id}:subscribe", "/a2a/demo/acme/tasks/{run}:subscribe"),
        post("/a2a/demo/{tenant}/tasks/{id}:subscribe", "/a2a/demo/acme/tasks/{run}:subscribe", json!({})),
        post(
            "/a2a/demo/{tenant}/tasks/{id}/pushNotificationConfigs",
            "/a2a/demo/acme/tasks/{run}/pushNotificationConfigs",
            receiver(),
        ),
        get(
            "/a2a/demo/{tenant}/tasks/{id}/pushNotificationConfigs",
            "/a2a/demo/acme/tasks/{run}/pushNotificationConfigs",
        ),
        get(
            "/a2a/demo/{tenant}/tasks/{id}/pushNotificationConfigs/{config}",
            "/a2a/demo/acme/tasks/{run}/pushNotificationConfigs/{receiver}",
        ),
        delete(
            "/a2a/demo/{tenant}/tasks/{id}/pushNotificationConfigs/{config}",
            "/a2a/demo/acme/tasks/{run}/pushNotificationConfigs/{receiver}",
        ),
    ]);
    versioned("1.0", operations)
}

fn a2a_old() -> Vec<Operation> {
    let mut operations = Vec::new();
    for message in messages("user") {
        operations.push(post("/a2a/demo/v1/message:send", "/a2a/demo/v1/message:send", message.clone()));
        operations.push(post("/a2a/demo/v1/message:stream", "/a2a/demo/v1/message:stream", message));
    }
    let receiver = json!({ "pushNotificationConfig": { "url": "http://127.0.0.1:9/hook", "id": "{receiver}" } });
    operations.extend([
        get("/a2a/demo/v1/tasks", "/a2a/demo/v1/tasks?contextId={session}"),
        get("/a2a/demo/v1/tasks/{id}", "/a2a/demo/v1/tasks/{run}"),
        post("/a2a/demo/v1/tasks/{id}:cancel", "/a2a/demo/v1/tasks/{run}:cancel", json!({})),
        get("/a2a/demo/v1/tasks/{id}:subscribe", "/a2a/demo/v1/tasks/{run}:subscribe"),
        post("/a2a/demo/v1/tasks/{id}:subscribe", "/a2a/demo/v1/tasks/{run}:subscribe", json!({})),
        post(
            "/a2a/demo/v1/tasks/{id}/pushNotificationConfigs",
            "/a2a/demo/v1/tasks/{run}/pushNotificationConfigs",
            receiver,
        ),
        get("/a2a/demo/v1/tasks/{id}/pushNotificationConfigs", "/a2a/demo/v1/tasks/{run}/pushNotificationConfigs"),
        get(
            "/a2a/demo/v1/tasks/{id}/pushNotificationConfigs/{config}",
            "/a2a/demo/v1/tasks/{run}/pushNotificationConfigs/{receiver}",
        ),
        delete(
            "/a2a/demo/v1/tasks/{id}/pushNotificationConfigs/{config}",
            "/a2a/demo/v1/tasks/{run}/pushNotificationConfigs/{receiver}",
        ),
        get("/a2a/demo/v1/card", "/a2a/demo/v1/card"),
        get("/a2a/demo/agent/authenticatedExtendedCard", "/a2a/demo/agent/authenticatedExtendedCard"),
    ]);
    operations
}

/// The methods of the JSON-RPC binding, each with its version: those that the adapter has.
fn rpc_methods() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    interlingua_a2a::rpc_methods().map(|(name, version)| (name, (version == Generation::V1).then_some("1.0")))
}

fn a2a_rpc() -> Vec<Operation> {
    let mut operations = Vec::new();
    for (method, version) in rpc_methods() {
        let params: Vec<Value> = if method.contains("Message") || method.starts_with("message/") {
            messages(if version.is_some() { "ROLE_USER" } else { "user" }).into()
        } else if method == "ListTasks" {
            vec![json!({ "contextId": "{session}" })]
        } else if method.contains("ush") && version.is_some() {
            let hook = "http://127.0.0.1:9/hook";
            vec![json!({ "taskId": "{run}", "id": "{receiver}", "url": hook })]
        } else if method.contains("ush") {
            let config = json!({ "url": "http://127.0.0.1:9/hook", "id": "{receiver}" });
            let ids = json!({ "id": "{run}", "pushNotificationConfigId": "{receiver}" });
            vec![ids, json!({ "taskId": "{run}", "pushNotificationConfig": config })]
        } else {
            vec![json!({ "id": "{run}" })]
        };
        for params in params {
            let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
            operations.push(Operation { version, ..post("/a2a/demo", "/a2a/demo", body) });
        }
    }
    operations
}

fn ag_kit() -> Vec<Operation> {
    let turn = json!({ "conversationId": "{session}", "messages": [{ "role": "user", "content": "hello" }] });
    let cloud = json!({ "conversationId": "{session}", "msg": "hello" });
    let resume = json!({ "interruptId": "{item}", "payload": { "decision": "accept" } });
    let resume = json!({ "conversationId": "{session}", "resume": resume });
    let tool = json!({ "role": "tool", "toolCallId": "{item}", "content": "Paris" });
    let tool = json!({ "conversationId": "{session}", "messages": [tool] });
    vec![
        post("/ag-kit/demo/send-message", "/ag-kit/demo/send-message", turn),
        post("/ag-kit/demo/send-message", "/ag-kit/demo/send-message", resume),
        post("/ag-kit/demo/send-message", "/ag-kit/demo/send-message", tool),
        post(
            "/ag-kit/demo/v1/aibot/bots/{agentId}/send-message",
            "/ag-kit/demo/v1/aibot/bots/demo/send-message",
            cloud,
        ),
        get("/ag-kit/demo/healthz", "/ag-kit/demo/healthz"),
    ]
}

fn ag_ui() -> Vec<Operation> {
    let input = |messages: Value| json!({ "threadId": "{session}", "runId": "{run}", "messages": messages });
    let turn = input(json!([{ "role": "user", "content": "hello" }]));
    let tool = input(json!([{ "role": "tool", "toolCallId": "{item}", "content": "Paris" }]));
    let mut resume = input(json!([]));
    resume["resume"] = json!([{ "interruptId": "{item}", "status": "resolved", "payload": { "approved": true } }]);
    vec![
        post("/ag-ui/demo", "/ag-ui/demo", turn),
        post("/ag-ui/demo", "/ag-ui/demo", resume),
        post("/ag-ui/demo", "/ag-ui/demo", tool),
        get("/ag-ui/demo", "/ag-ui/demo?threadId={session}&runId={run}"),
        get("/ag-ui/demo", "/ag-ui/demo?threadId={session}&runId={run}&after=2"),
    ]
}

fn hitl() -> Vec<Operation> {
    let invoke = json!({ "user_id": "pat", "session_id": "{session}", "query": "hello" });
    let resume = json!({ "user_id": "pat", "session_id": "{session}", "response_type": "accept" });
    vec![
        post("/hitl/demo/agent/resume", "/hitl/demo/agent/resume", resume),
        get("/hitl/demo/agent/status/{user_id}", "/hitl/demo/agent/status/pat"),
        get("/hitl/demo/agent/status/{user_id}/{session_id}", "/hitl/demo/agent/status/pat/{session}"),
        delete("/hitl/demo/agent/session/{user_id}/{session_id}", "/hitl/demo/agent/session/pat/{session}"),
        post("/hitl/demo/agent/invoke", "/hitl/demo/agent/invoke", invoke),
        get("/hitl/demo/agent/sessionids/{user_id}", "/hitl/demo/agent/sessionids/pat"),
        get("/hitl/demo/agent/active/sessionid/{user_id}", "/hitl/demo/agent/active/sessionid/pat"),
        get("/hitl/demo/system/info", "/hitl/demo/system/info"),
        delete("/hitl/demo/agent/session/{user_id}", "/hitl/demo/agent/session/pat"),
    ]
}

/// The endpoints of all protocols, as the gateway mounts them.
pub(super) fn mounted() -> BTreeSet<(&'static str, String)> {
    endpoints().into_iter().map(|endpoint| (endpoint.method, endpoint.path)).collect()
}
