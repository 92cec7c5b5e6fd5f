//! Clients of the Agent API.

use serde_json::json;

use super::{Decision, Interrupt, LONG, native};
use crate::gateway::{Gateway, user_turn_in};
use crate::http::Response;

pub(super) async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
    let mut content = vec![json!({ "type": "text", "text": words })];
    content.extend(picture.map(|url| json!({ "type": "image", "image_url": url })));
    let input = json!([{ "role": "user", "type": "message", "content": content }]);
    let body = json!({ "session_id": session, "stream": false, "input": input });
    gateway.post("/agents/demo/process", &body).await
}

pub(super) async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Response {
    let input = [native(&interrupt.item, decision)];
    let body = json!({ "session_id": interrupt.session, "stream": false, "input": input });
    gateway.post("/agents/demo/process", &body).await
}

pub(super) async fn start_long(gateway: &Gateway, session: &str) -> Response {
    gateway.post("/agents/demo/process/task", &user_turn_in(session, LONG)).await
}
