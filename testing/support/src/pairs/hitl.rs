//! Clients of the human-in-the-loop agent service.

use serde_json::{Value, json};

use super::{Decision, Interrupt, LONG};
use crate::gateway::Gateway;
use crate::http::{Exchange, Response};

fn query(session: &str, words: &str) -> Value {
    json!({ "user_id": "pat", "session_id": session, "query": words })
}

pub(super) async fn say(gateway: &Gateway, session: &str, words: &str) -> Response {
    gateway.post("/hitl/demo/agent/invoke", &query(session, words)).await
}

pub(super) async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Response {
    let (response_type, args) = match decision {
        Decision::Accept | Decision::Done => ("accept", Value::Null),
        Decision::Edit => ("edit", json!({ "args": { "to": "grace@example.com" } })),
        Decision::Respond => ("response", json!({ "args": "later" })),
        Decision::Reject => ("reject", Value::Null),
        Decision::Output => ("response", json!({ "args": "Paris" })),
        Decision::Value => ("response", json!({ "args": { "colour": "blue" } })),
        Decision::Words => ("response", json!({ "args": "blue" })),
    };
    let body = json!({
        "user_id": "pat", "session_id": interrupt.session, "response_type": response_type, "args": args,
    });
    gateway.post("/hitl/demo/agent/resume", &body).await
}

pub(super) async fn start_long(gateway: &Gateway, session: &str) -> Exchange {
    gateway.start_post("/hitl/demo/agent/invoke", &query(session, LONG)).await
}

pub(super) async fn cancel(gateway: &Gateway, session: &str) -> Response {
    let path = format!("/hitl/demo/agent/session/pat/{session}");
    gateway.open("DELETE", &path, &[], b"").await.response().await
}
