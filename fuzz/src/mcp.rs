//! A route of MCP with one agent, and requests to it. Not here: what must hold of their answers (the targets).

use interlingua_core::Out;
use interlingua_core_testkit::{SentRequest, TestRoute};
use interlingua_mcp::Mcp;
use serde_json::{Value, json};

/// The revision without sessions.
pub const MODERN: &str = "2026-07-28";

/// The route, with options as JSON.
pub fn route(options: &str) -> TestRoute {
    TestRoute::new::<Mcp>("/mcp", "", options)
}

/// Sends a message in revision 2026-07-28, with the headers that it needs. `name`: the tool or the task.
pub fn send(route: &TestRoute, method: &str, name: &str, mut params: Value) -> SentRequest {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": { "form": {}, "url": {} }, "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let headers = [
        ("accept", "application/json"),
        ("mcp-protocol-version", MODERN),
        ("mcp-method", method),
        ("mcp-name", name),
    ];
    route.send("POST", "", &body, &headers)
}

/// Begins a session of a client that shows forms, and returns its id.
///
/// # Panics
/// If it is refused.
pub fn session(route: &TestRoute, revision: &str) -> String {
    let params = json!({ "protocolVersion": revision, "capabilities": { "elicitation": {} } });
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string();
    let mut sent = route.send("POST", "", &body, &[("accept", "application/json")]);
    assert!(sent.outcome.is_ok(), "{:?}", sent.outcome);
    let mut out = Out::new();
    sent.exchange.reply(interlingua_core::Reply::Done, &mut out).expect("a session");
    let id = out.head.headers.into_iter().find(|(name, _)| name == "mcp-session-id");
    id.expect("the id of a session").1
}

/// Sends a message of a session.
pub fn send_in(route: &TestRoute, session: &str, body: &Value) -> SentRequest {
    let headers = [("accept", "application/json, text/event-stream"), ("mcp-session-id", session)];
    route.send("POST", "", &body.to_string(), &headers)
}

/// The status and the error of a refused request. `None`: it was not refused.
///
/// # Panics
/// If the refusal is no error of JSON-RPC.
pub fn refusal(sent: &mut SentRequest) -> Option<(u16, Value)> {
    sent.outcome.as_ref().err()?;
    let answer = sent.fail(None);
    let body: Value = serde_json::from_str(&answer.body).expect("a refusal is JSON");
    assert_eq!(body["jsonrpc"], "2.0", "{body}");
    let error = body["error"].clone();
    assert!(error["code"].is_i64() && error["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    Some((answer.status, error))
}
