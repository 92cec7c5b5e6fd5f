//! What is left of a run for those who may not read what people and agents say: its structure, and how long texts are.
//!
//! Each character of a text becomes one asterisk, so that what is built of fragments has the length of the whole. Only what
//! is known to be structure is kept: a field that no one knows is hidden.

use interlingua_core::model::{Message, MessageType};
use serde_json::Value;

/// Fields whose values are structure, wherever they stand.
const STRUCTURE: &[&str] = &[
    "object",
    "type",
    "role",
    "status",
    "id",
    "msg_id",
    "session_id",
    "sequence_number",
    "index",
    "delta",
    "created_at",
    "completed_at",
    "failed_at",
    "usage",
    "code",
    "error",
    "detail",
];
/// Those of a call, its output, and a question.
const CALL: &[&str] = &["call_id", "name", "id", "server_label", "approval_request_id", "approve"];

/// Frames of the Agent API without what is said. `kind`: the type of the message that they are about.
pub(super) fn frames(frames: &str, kind: Option<&MessageType>) -> String {
    let mut masked = String::new();
    for line in frames.split_inclusive('\n') {
        match line.strip_prefix("data: ").map(serde_json::from_str::<Value>) {
            Some(Ok(frame)) => masked.push_str(&format!("data: {}\n", object(frame, kind))),
            // Whatever else it is, it is not shown.
            Some(Err(_)) => masked.push_str("data: {}\n"),
            None => masked.push_str(line),
        }
    }
    masked
}

/// A message of a request without what it says.
pub(super) fn message(message: &Message) -> Value {
    object(serde_json::to_value(message).unwrap_or_default(), Some(&message.kind))
}

/// A response, a message or a content.
fn object(value: Value, kind: Option<&MessageType>) -> Value {
    let Value::Object(fields) = value else { return hidden(&value) };
    let is_message =
        fields.get("content").is_some_and(Value::is_array) || fields.get("object") == Some(&"message".into());
    let own = if is_message { fields.get("type").and_then(Value::as_str).map(MessageType::from) } else { None };
    let kind = own.as_ref().or(kind);
    let is_structured = kind.is_some_and(|kind| {
        kind.is_call()
            || kind.is_output()
            || matches!(kind, MessageType::McpApprovalRequest | MessageType::McpApprovalResponse)
    });
    let masked = fields.into_iter().map(|(name, value)| {
        let value = match (name.as_str(), value) {
            (_, Value::Null) => Value::Null,
            ("content" | "output", Value::Array(items)) => items.into_iter().map(|item| object(item, kind)).collect(),
            ("data", Value::Object(data)) if is_structured => {
                let keep = |name: &str, value: Value| if CALL.contains(&name) { value } else { hidden(&value) };
                Value::Object(data.into_iter().map(|(name, value)| (name.clone(), keep(&name, value))).collect())
            }
            (name, value) if STRUCTURE.contains(&name) => value,
            (_, value) => hidden(&value),
        };
        (name, value)
    });
    Value::Object(masked.collect())
}

fn hidden(value: &Value) -> Value {
    let length = match value {
        Value::Null => return Value::Null,
        Value::String(text) => text.chars().count(),
        other => other.to_string().chars().count(),
    };
    "*".repeat(length).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn masked(frame: &Value, kind: &str) -> Value {
        let text = frames(&format!("data: {frame}\n\n"), Some(&MessageType::from(kind)));
        serde_json::from_str(text.trim_end().strip_prefix("data: ").expect("a frame")).expect("JSON")
    }

    #[test]
    fn texts_have_their_length_and_structure_is_kept() {
        let delta = json!({
            "sequence_number": 5, "object": "content", "type": "text", "status": "in_progress", "msg_id": "m", "index": 0,
            "delta": true, "text": "gr\u{fc}n", "mood": { "private": true },
        });
        let shown = masked(&delta, "message");
        assert_eq!((&shown["text"], &shown["msg_id"], &shown["delta"]), (&"****".into(), &"m".into(), &true.into()));
        assert!(!shown.to_string().contains("private"), "{shown}");
    }

    #[test]
    fn calls_show_who_is_called_and_not_with_what() {
        let content = json!({
            "object": "content", "type": "data",
            "data": { "call_id": "c1", "name": "send_mail", "arguments": "{\"to\":\"ada\"}", "output": { "secret": 1 } },
        });
        let shown = masked(&content, "plugin_call");
        assert_eq!((&shown["data"]["name"], &shown["data"]["call_id"]), (&"send_mail".into(), &"c1".into()));
        assert!(!shown.to_string().contains("ada") && !shown.to_string().contains("secret"), "{shown}");
        // Data of a message are no call, whatever their fields are called.
        let shown = masked(&json!({ "object": "content", "type": "data", "data": { "name": "Ada" } }), "message");
        assert!(!shown.to_string().contains("Ada"), "{shown}");

        let response = json!({ "object": "response", "status": "completed", "output": [
            { "object": "message", "type": "plugin_call", "content": [content] },
            { "object": "message", "type": "message", "content": [{ "type": "text", "text": "hello" }], "metadata": { "a": "b" } },
        ] });
        let shown = masked(&response, "message");
        assert_eq!(shown["output"][0]["content"][0]["data"]["name"], "send_mail");
        assert_eq!(shown["output"][1]["content"][0]["text"], "*****");
        assert!(!shown.to_string().contains("\"b\""), "{shown}");
    }
}
