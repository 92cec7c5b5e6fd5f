//! Clients of AG-Kit.

use serde_json::json;

use super::{Decision, Interrupt, LONG, decision_fields};
use crate::gateway::Gateway;
use crate::http::{Exchange, Response};

const PATH: &str = "/ag-kit/demo/send-message";

pub(super) async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
    let mut content = vec![json!({ "type": "text", "text": words })];
    content.extend(picture.map(|url| json!({ "type": "image_url", "image_url": { "url": url } })));
    let messages = json!([{ "role": "user", "content": content }]);
    gateway.post(PATH, &json!({ "conversationId": session, "messages": messages })).await
}

pub(super) async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Response {
    let item = &interrupt.item;
    let mut body = json!({ "conversationId": interrupt.session });
    match decision {
        Decision::Output => {
            body["messages"] = json!([{ "role": "tool", "toolCallId": item, "content": "Paris" }]);
        }
        Decision::Words => body["resume"] = json!({ "interruptId": item, "payload": "blue" }),
        _ => body["resume"] = json!({ "interruptId": item, "payload": decision_fields(decision) }),
    }
    gateway.post(PATH, &body).await
}

pub(super) async fn start_long(gateway: &Gateway, session: &str) -> Exchange {
    let body = json!({ "conversationId": session, "messages": [{ "role": "user", "content": LONG }] });
    gateway.start_post(PATH, &body).await
}
