//! The route under test, and its streams in readable form.

use interlingua_anthropic_messages::AnthropicMessages;
use interlingua_core_testkit::{self as testkit, TestRoute};
use serde_json::Value;

pub(crate) use interlingua_core_testkit::{RunBuilder, SentRequest};

pub(crate) fn route(options: &str) -> TestRoute {
    TestRoute::new::<AnthropicMessages>("/anthropic", "/v1/messages", options)
}

/// The body of a plain request.
pub(crate) const HELLO: &str =
    r#"{"model":"demo","max_tokens":100,"messages":[{"role":"user","content":"hi"}],"stream":true}"#;

/// A stream in readable form: what each event has besides its type.
pub(crate) fn transcript(body: &str) -> String {
    let mut lines = String::new();
    for frame in testkit::laws::frames(body) {
        let mut event: Value = serde_json::from_str(&frame.data).expect("JSON");
        let fields = event.as_object_mut().expect("an object");
        fields.remove("type");
        let index = fields.remove("index").map(|index| format!(" {index}")).unwrap_or_default();
        let rest = match (fields.remove("content_block"), fields.remove("delta"), fields.is_empty()) {
            (Some(value), _, _) | (None, Some(value), true) => value.to_string(),
            (None, Some(delta), false) => format!("{delta} {event}"),
            (None, None, true) => String::new(),
            (None, None, false) => event.to_string(),
        };
        let line = format!("{}{index} {rest}", frame.event.expect("an event line"));
        lines.push_str(line.trim_end());
        lines.push('\n');
    }
    lines
}
