//! The route under test, and its streams in readable form.

use interlingua_chat_completions::ChatCompletions;
use interlingua_core_testkit::{self as testkit, TestRoute};
use serde_json::Value;

pub(crate) use interlingua_core_testkit::{RunBuilder, SentRequest};

pub(crate) fn route(options: &str) -> TestRoute {
    TestRoute::new::<ChatCompletions>("/v1", "/chat/completions", options)
}

/// The body of a plain request.
pub(crate) const HELLO: &str = r#"{"model":"demo","messages":[{"role":"user","content":"hi"}],"stream":true}"#;

/// A stream in readable form: what changes from chunk to chunk.
pub(crate) fn transcript(body: &str) -> String {
    let mut lines = String::new();
    for frame in testkit::laws::frames(body) {
        let Ok(chunk) = serde_json::from_str::<Value>(&frame.data) else {
            lines.push_str(&format!("{}\n", frame.data));
            continue;
        };
        let line = match (&chunk["choices"][0], &chunk["error"]) {
            (Value::Null, Value::Null) => format!("usage {}", chunk["usage"]),
            (Value::Null, error) => format!("error {error}"),
            (choice, _) => match choice["finish_reason"].as_str() {
                Some(reason) => format!("finish {reason} {}", choice["delta"]),
                None => choice["delta"].to_string(),
            },
        };
        lines.push_str(&format!("{line}\n"));
    }
    lines
}
