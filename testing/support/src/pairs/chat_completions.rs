//! Clients of OpenAI Chat Completions, which send all of their conversation with each request and name their session.

use serde_json::{Value, json};

use super::{Decision, Interrupt, LONG, Turn, stateless_answer};
use crate::gateway::{Gateway, JSON};
use crate::http::{Exchange, Response};

pub(super) const PATH: &str = "/v1/chat/completions";

pub(super) fn request(session: &str, messages: &Value, streamed: bool) -> Turn {
    let mut body = json!({ "model": "demo", "messages": messages });
    if streamed {
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
    }
    Turn::new(PATH, body).with_headers(JSON).with_header("x-session-id", session)
}

pub(super) fn turn(session: &str, words: &str, streamed: bool) -> Turn {
    request(session, &json!([{ "role": "user", "content": words }]), streamed)
}

pub(super) async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
    let mut content = vec![json!({ "type": "text", "text": words })];
    content.extend(picture.map(|url| json!({ "type": "image_url", "image_url": { "url": url } })));
    request(session, &json!([{ "role": "user", "content": content }]), false).send(gateway).await
}

pub(super) async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Response {
    let text = stateless_answer(decision);
    let messages = json!([{ "role": "tool", "tool_call_id": interrupt.item, "content": text }]);
    request(&interrupt.session, &messages, false).send(gateway).await
}

pub(super) async fn start_long(gateway: &Gateway, session: &str) -> Exchange {
    turn(session, LONG, true).open(gateway).await
}
