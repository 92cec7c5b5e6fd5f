//! Masks the texts of a run for readers without access to texts. The structure and the lengths of texts stay visible.
//!
//! Each character of a text becomes one asterisk, so that concatenated fragments have the length of the whole text. A
//! value stays visible only if it is certainly not a text: a word of the protocol, a number, or an identifier in a
//! field for identifiers. All other values are hidden, and so are names of fields that the protocol does not define.

use interlingua_core::Json;
use interlingua_core::model::{ContentType, Message, MessageType, Role, Status};
use serde_json::{Map, Value};

/// The longest identifier, in bytes.
const MAX_ID_LEN: usize = 128;
/// Numbers and times of the Agent API.
const NUMBERS: &[&str] = &["sequence_number", "index", "created_at", "completed_at", "failed_at"];
/// Identifiers and codes of the Agent API.
const IDS: &[&str] = &["id", "msg_id", "session_id", "code"];
/// Identifiers in calls, outputs and questions.
const CALL_IDS: &[&str] = &["call_id", "name", "id", "server_label", "approval_request_id"];
/// Further fields of the Agent API. Their values are hidden.
const TEXTS: &[&str] = &[
    "message",
    "metadata",
    "text",
    "refusal",
    "image_url",
    "video_url",
    "data",
    "format",
    "file_url",
    "file_id",
    "filename",
    "file_data",
    "arguments",
    "output",
    "reason",
    "detail",
    "tools",
];

/// Masks frames of the Agent API. `kind`: the type of their message, if known.
pub(super) fn frames(frames: &str, kind: Option<&MessageType>) -> String {
    let mut masked = String::new();
    for line in frames.split_inclusive('\n') {
        match line.strip_prefix("data: ").map(serde_json::from_str::<Value>) {
            Some(Ok(frame)) => masked.push_str(&format!("data: {}\n", object(frame, kind))),
            Some(Err(_)) => masked.push_str("data: {}\n"),
            // The end of a frame, or a line that could contain text.
            None => masked.push('\n'),
        }
    }
    masked
}

/// Masks a message of a request.
pub(super) fn message(message: &Message) -> Value {
    object(serde_json::to_value(message).unwrap_or_default(), Some(&message.kind))
}

/// A text as asterisks.
pub(super) fn text(text: &str) -> String {
    "*".repeat(text.chars().count())
}

/// Masks a name or code from an agent, unless it has the form of an identifier.
pub(super) fn name(name: &str) -> String {
    if is_identifier(name) { name.to_owned() } else { text(name) }
}

/// The numbers of tokens and times in a usage report, without its other fields.
pub(super) fn usage(usage: &Json) -> Option<Json> {
    let counts = counts(serde_json::from_str(usage.text()).ok()?);
    Json::parse(&counts.to_string())
}

/// Masks a response, a message or a content.
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
            ("data", Value::Object(data)) if is_structured => call(data),
            ("error", Value::Object(error)) => error_object(error),
            ("usage", value) => counts(value),
            ("delta", Value::Bool(is_delta)) => is_delta.into(),
            (name, value) if NUMBERS.contains(&name) && value.is_number() => value,
            (name, value) if IDS.contains(&name) => identifier(value),
            ("object", value) => word(value, |word| matches!(word, "response" | "message" | "content")),
            ("type", value) => word(value, is_type),
            ("role", value) => word(value, |word| !matches!(Role::from(word), Role::Other(_))),
            ("status", value) => word(value, |word| !matches!(Status::from(word), Status::Other(_))),
            (_, value) => hidden(&value),
        };
        (
            field(
                name,
                &[NUMBERS, IDS, TEXTS, &["content", "error", "usage", "delta", "object", "type", "role", "status"]],
            ),
            value,
        )
    });
    Value::Object(masked.collect())
}

/// Masks the data of a call, an output or a question.
fn call(data: Map<String, Value>) -> Value {
    let masked = data.into_iter().map(|(name, value)| {
        let value = match (name.as_str(), value) {
            (name, value) if CALL_IDS.contains(&name) => identifier(value),
            ("approve", Value::Bool(approves)) => approves.into(),
            (_, value) => hidden(&value),
        };
        (field(name, &[CALL_IDS, TEXTS, &["approve"]]), value)
    });
    Value::Object(masked.collect())
}

fn error_object(error: Map<String, Value>) -> Value {
    let masked = error.into_iter().map(|(name, value)| {
        let value = if name == "code" { identifier(value) } else { hidden(&value) };
        (field(name, &[IDS, TEXTS]), value)
    });
    Value::Object(masked.collect())
}

/// Keeps the numbers in a usage report that have known names.
fn counts(value: Value) -> Value {
    match value {
        Value::Number(_) | Value::Null => value,
        Value::Object(fields) => {
            let counted = fields.into_iter().filter(|(name, _)| is_count(name));
            Value::Object(counted.map(|(name, value)| (name, counts(value))).collect())
        }
        other => hidden(&other),
    }
}

/// True for names of token counts, of their details, of times and of costs.
fn is_count(name: &str) -> bool {
    let is_word = name.len() <= 48 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_word && ["tokens", "_tokens_details", "time", "cost"].iter().any(|end| name.ends_with(end))
}

fn is_type(word: &str) -> bool {
    !matches!(MessageType::from(word), MessageType::Other(_))
        || !matches!(ContentType::from(word), ContentType::Other(_))
}

/// Masks a value unless it is a word of the protocol. `is_known`: whether the protocol defines a word.
fn word(value: Value, is_known: impl Fn(&str) -> bool) -> Value {
    if value.as_str().is_some_and(is_known) { value } else { hidden(&value) }
}

fn identifier(value: Value) -> Value {
    if value.is_number() || value.as_str().is_some_and(is_identifier) { value } else { hidden(&value) }
}

/// True for a short text with only letters, digits and punctuation of identifiers.
fn is_identifier(text: &str) -> bool {
    let is_in_one = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/|+=".contains(&byte);
    text.len() <= MAX_ID_LEN && text.bytes().all(is_in_one)
}

/// Masks the name of a field unless the protocol defines it.
fn field(name: String, known: &[&[&str]]) -> String {
    if known.iter().any(|known| known.contains(&name.as_str())) { name } else { text(&name) }
}

fn hidden(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::String(hidden) => text(hidden).into(),
        other => text(&other.to_string()).into(),
    }
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
    fn only_known_fields_without_text_are_shown() {
        let response = json!({
            "object": "response", "status": "private status", "id": "an id with private spaces", "secretfield": "x",
            "error": { "code": "BROKEN", "message": "private message", "private key": 1 },
            "usage": { "input_tokens": 3, "private_name": 1, "note": "private", "output_tokens_details": { "reasoning_tokens": 1 } },
            "detail": "private detail",
            "output": [
                { "object": "message", "type": "private type", "role": "private role", "content": [
                    { "type": "private content", "index": "private index", "private": { "delta": "private" } },
                ], "metadata": { "private": 1 } },
                { "object": "message", "type": "mcp_call", "content": [{ "type": "data", "data": {
                    "name": "a private sentence", "approve": "private", "call_id": "c1", "private": "private",
                } }] },
            ],
        });
        let shown = masked(&response, "message");
        assert!(!shown.to_string().contains("private") && !shown.to_string().contains("secretfield"), "{shown}");
        assert_eq!(shown["error"]["code"], "BROKEN");
        assert_eq!(shown["usage"], json!({ "input_tokens": 3, "output_tokens_details": { "reasoning_tokens": 1 } }));
        assert_eq!(shown["output"][1]["content"][0]["data"]["call_id"], "c1");
        assert_eq!(frames("event: private\n: private\n\n", None), "\n\n\n");
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
        // Data of a message are not a call, even if they have the fields of a call.
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
