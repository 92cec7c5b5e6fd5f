//! Clients of the Responses API.

use serde_json::{Value, json};

use super::{Decision, Interrupt, LONG};
use crate::gateway::Gateway;
use crate::http::Response;

pub(super) async fn say(gateway: &Gateway, words: &str, picture: Option<&str>) -> Response {
    let mut content = vec![json!({ "type": "input_text", "text": words })];
    content.extend(picture.map(|url| json!({ "type": "input_image", "image_url": url })));
    let input = json!([{ "role": "user", "content": content }]);
    gateway.post("/v1/responses", &json!({ "model": "demo", "input": input })).await
}

pub(super) async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
    let item = &interrupt.item;
    let approval =
        |approve: bool| json!({ "type": "mcp_approval_response", "approval_request_id": item, "approve": approve });
    let input = match decision {
        // It has a reason for a rejection only, no text as the result.
        Decision::Edit | Decision::Respond => return None,
        Decision::Accept => approval(true),
        Decision::Reject => approval(false),
        Decision::Output => output(item, "Paris"),
        Decision::Value => output(item, r#"{"colour":"blue"}"#),
        Decision::Words => output(item, "blue"),
        Decision::Done => output(item, "done"),
    };
    let previous = format!("resp_{}", interrupt.id().replace('-', ""));
    let body = json!({ "model": "demo", "previous_response_id": previous, "input": [input] });
    Some(gateway.post("/v1/responses", &body).await)
}

pub(super) async fn start_long(gateway: &Gateway) -> Response {
    gateway.post("/v1/responses", &json!({ "model": "demo", "input": LONG, "background": true })).await
}

pub(super) async fn session(gateway: &Gateway, response: &Response) -> String {
    let id = response.json()["id"].as_str().expect("an id").to_owned();
    gateway.run("demo", &id).await["session_id"].as_str().expect("a session").to_owned()
}

fn output(item: &str, output: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": item, "output": output })
}
