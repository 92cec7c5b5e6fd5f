//! Clients of AG-UI 1.0.

use serde_json::{Value, json};

use super::{Decision, Interrupt, LONG, decision_fields};
use crate::gateway::Gateway;
use crate::http::{Exchange, Response};

async fn post(gateway: &Gateway, session: &str, run: &str, fields: Value) -> Exchange {
    let mut body = json!({
        "threadId": session, "runId": run, "messages": [], "tools": [], "context": [], "state": {}, "forwardedProps": {},
        "protocolVersion": "1.0",
    });
    let fields = fields.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    gateway.start_post("/ag-ui/demo", &body).await
}

pub(super) async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
    let mut content = vec![json!({ "type": "text", "text": words })];
    content.extend(picture.map(|url| json!({ "type": "image", "source": { "type": "url", "value": url } })));
    let messages = json!([{ "id": format!("{session}-1"), "role": "user", "content": content }]);
    post(gateway, session, "asks", json!({ "messages": messages })).await.response().await
}

pub(super) async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Response {
    let item = &interrupt.item;
    let fields = match decision {
        Decision::Output => {
            let message = json!({ "id": "output", "role": "tool", "toolCallId": item, "content": "Paris" });
            json!({ "messages": [message] })
        }
        _ => {
            let payload = if decision == Decision::Words { json!("blue") } else { decision_fields(decision) };
            json!({ "resume": [{ "interruptId": item, "status": "resolved", "payload": payload }] })
        }
    };
    post(gateway, &interrupt.session, "answers", fields).await.response().await
}

pub(super) async fn start_long(gateway: &Gateway, session: &str) -> Exchange {
    let messages = json!([{ "id": format!("{session}-1"), "role": "user", "content": LONG }]);
    post(gateway, session, "long", json!({ "messages": messages })).await
}
