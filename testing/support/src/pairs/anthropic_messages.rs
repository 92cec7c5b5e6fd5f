//! Clients of Anthropic Messages, which send all of their conversation with each request and name their session.

use serde_json::{Value, json};

use super::{Decision, Interrupt, LONG, Turn, stateless_answer};
use crate::gateway::{Gateway, JSON};
use crate::http::{Exchange, Response};

pub(super) const PATH: &str = "/anthropic/v1/messages";

/// A request with these messages. Reasoning is shown to those who ask for it.
pub(super) fn request(session: &str, messages: &Value, streamed: bool) -> Turn {
    let thinking = json!({ "type": "enabled", "budget_tokens": 1024 });
    let body =
        json!({ "model": "demo", "max_tokens": 2000, "messages": messages, "stream": streamed, "thinking": thinking });
    let headers = [JSON, &[("anthropic-version", "2023-06-01")]].concat();
    Turn::new(PATH, body).with_headers(&headers).with_header("x-session-id", session)
}

pub(super) fn turn(session: &str, words: &str, streamed: bool) -> Turn {
    request(session, &json!([{ "role": "user", "content": words }]), streamed)
}

pub(super) async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
    let mut content = vec![json!({ "type": "text", "text": words })];
    content.extend(picture.map(|url| json!({ "type": "image", "source": { "type": "url", "url": url } })));
    request(session, &json!([{ "role": "user", "content": content }]), false).send(gateway).await
}

pub(super) async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Response {
    let text = stateless_answer(decision);
    let result = json!({ "type": "tool_result", "tool_use_id": interrupt.item, "content": text });
    request(&interrupt.session, &json!([{ "role": "user", "content": [result] }]), false).send(gateway).await
}

pub(super) async fn start_long(gateway: &Gateway, session: &str) -> Exchange {
    turn(session, LONG, true).open(gateway).await
}
