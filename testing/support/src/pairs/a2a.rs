//! Clients of A2A 1.0, over REST.

use serde_json::{Value, json};

use super::{Decision, Interrupt, LONG, decision_fields};
use crate::gateway::{Gateway, JSON};
use crate::http::{Exchange, Response};

const V1: (&str, &str) = ("a2a-version", "1.0");

async fn post(gateway: &Gateway, path: &str, body: &Value) -> Exchange {
    gateway.open("POST", &format!("/a2a/demo{path}"), &[&[V1], JSON].concat(), body.to_string().as_bytes()).await
}

/// Fetches a task.
pub async fn task(gateway: &Gateway, id: &str) -> Response {
    gateway.open("GET", &format!("/a2a/demo/tasks/{id}"), &[V1], b"").await.response().await
}

/// Subscribes to a task.
pub async fn subscribe(gateway: &Gateway, id: &str) -> Exchange {
    post(gateway, &format!("/tasks/{id}:subscribe"), &json!({})).await
}

/// Sends a message, with or without a task id.
pub async fn message(gateway: &Gateway, session: &str, task: Option<&str>, part: Value) -> Response {
    let mut message = json!({ "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [part] });
    if let Some(task) = task {
        message["taskId"] = task.into();
    }
    post(gateway, "/message:send", &json!({ "message": message })).await.response().await
}

pub(super) async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
    let mut parts = vec![json!({ "text": words })];
    parts.extend(picture.map(|url| json!({ "url": url, "mediaType": "image/png" })));
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": parts });
    // Statuses such as those of reasoning are part of the stream only.
    let path = if words == "reasoning" { "/message:stream" } else { "/message:send" };
    post(gateway, path, &json!({ "message": message })).await.response().await
}

pub(super) async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Response {
    let item = &interrupt.item;
    let part = match decision {
        Decision::Output => json!({ "function_call_output": { "call_id": item, "output": "Paris" } }),
        Decision::Words => json!({ "interrupt_id": item, "decision": "respond", "text": "blue" }),
        Decision::Value => json!({ "interrupt_id": item, "colour": "blue" }),
        _ => {
            let mut part = decision_fields(decision);
            part["interrupt_id"] = item.as_str().into();
            part
        }
    };
    message(gateway, &interrupt.session, None, json!({ "data": part })).await
}

pub(super) async fn start_long(gateway: &Gateway, session: &str) -> Response {
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [{ "text": LONG }] });
    let body = json!({ "message": message, "configuration": { "returnImmediately": true } });
    post(gateway, "/message:send", &body).await.response().await
}

pub(super) async fn cancel(gateway: &Gateway, task: &str) -> Response {
    post(gateway, &format!("/tasks/{task}:cancel"), &json!({})).await.response().await
}
