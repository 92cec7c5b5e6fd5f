//! A strict client (docs/protocols/anthropic-messages.md#event-grammar): puts a message together as the SDKs do, and
//! fails on everything on which one of them would fail or show a wrong result.

use serde_json::{Value, json};

#[derive(Debug, Default)]
pub(crate) struct StreamContent {
    /// The message, as a whole answer has it. Null: the stream ended with an error.
    pub(crate) message: Value,
    pub(crate) error: Value,
}

/// Reads a stream to its end.
pub(crate) fn read(body: &str) -> StreamContent {
    let mut reader = Reader::default();
    for frame in interlingua_core_testkit::laws::frames(body) {
        let event: Value = serde_json::from_str(&frame.data).expect("JSON");
        assert_eq!(frame.event.as_deref(), event["type"].as_str(), "SDKs skip other frames: {event}");
        assert!(frame.id.is_none());
        reader.event(&event);
    }
    assert!(reader.is_over != reader.error.is_object(), "the stream has one end: {body}");
    if reader.is_over {
        reader.message["content"] = json!(reader.blocks);
        return StreamContent { message: reader.message, error: Value::Null };
    }
    StreamContent { message: Value::Null, error: reader.error }
}

#[derive(Default)]
struct Reader {
    message: Value,
    blocks: Vec<Value>,
    is_open: bool,
    pieces: String,
    is_over: bool,
    error: Value,
}

impl Reader {
    fn event(&mut self, event: &Value) {
        assert!(!self.is_over && self.error.is_null(), "{event} behind the end");
        let kind = event["type"].as_str().expect("a type");
        assert_eq!(self.message.is_null(), kind == "message_start", "{event}");
        match kind {
            "message_start" => {
                self.message = event["message"].clone();
                assert_eq!(self.message["content"], json!([]));
                assert!(self.message["stop_reason"].is_null());
            }
            "ping" => {}
            "content_block_start" => {
                assert!(!self.is_open && self.message["stop_reason"].is_null(), "one block at a time: {event}");
                assert_eq!(event["index"], self.blocks.len(), "SDKs append: {event}");
                self.blocks.push(event["content_block"].clone());
                self.is_open = true;
                self.pieces.clear();
            }
            "content_block_delta" => self.delta(event),
            "content_block_stop" => self.stop(event),
            "message_delta" => {
                assert!(!self.is_open, "{event}");
                let fields = self.message.as_object_mut().expect("an object");
                fields.insert("stop_details".into(), Value::Null);
                for (name, value) in event["delta"].as_object().expect("an object") {
                    fields.insert(name.clone(), value.clone());
                }
                assert!(event["usage"]["output_tokens"].is_u64() && event["usage"]["input_tokens"].is_u64());
                fields.insert("usage".into(), event["usage"].clone());
            }
            "message_stop" => {
                assert!(self.message["stop_reason"].is_string(), "an end has a reason");
                self.is_over = true;
            }
            "error" => {
                assert!(event["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{event}");
                assert!(event["request_id"].is_string(), "{event}");
                self.error = event["error"].clone();
            }
            other => panic!("the AI SDK fails on {other:?}"),
        }
    }

    fn delta(&mut self, event: &Value) {
        assert!(self.is_open && event["index"] == self.blocks.len() - 1, "{event}");
        let block = self.blocks.last_mut().expect("a block");
        let (field, name) = match (event["delta"]["type"].as_str(), block["type"].as_str()) {
            (Some("text_delta"), Some("text")) => ("text", "text"),
            (Some("thinking_delta"), Some("thinking")) => ("thinking", "thinking"),
            (Some("signature_delta"), Some("thinking")) => ("signature", "signature"),
            (Some("input_json_delta"), Some("tool_use")) => {
                self.pieces.push_str(event["delta"]["partial_json"].as_str().expect("a text"));
                return;
            }
            (Some("citations_delta"), Some("text")) => {
                let mut all = block["citations"].as_array().cloned().unwrap_or_default();
                all.push(event["delta"]["citation"].clone());
                block["citations"] = json!(all);
                return;
            }
            other => panic!("{other:?}: {event}"),
        };
        let piece = event["delta"][name].as_str().expect("a text");
        assert!(!piece.is_empty(), "an empty piece: {event}");
        block[field] = json!(format!("{}{piece}", block[field].as_str().expect("a text")));
    }

    fn stop(&mut self, event: &Value) {
        assert!(std::mem::take(&mut self.is_open) && event["index"] == self.blocks.len() - 1, "{event}");
        let block = self.blocks.last_mut().expect("a block");
        match block["type"].as_str() {
            Some("tool_use") => {
                let input: Value = serde_json::from_str(&self.pieces)
                    .unwrap_or_else(|error| panic!("SDKs throw or keep {{}}: {error}: {}", self.pieces));
                assert!(input.is_object(), "{input}");
                block["input"] = input;
            }
            Some("mcp_tool_use") => assert!(block["input"].is_object() && self.pieces.is_empty(), "{block}"),
            Some("text") => assert_ne!(block["text"], "", "empty texts are refused when they come back"),
            Some("thinking" | "redacted_thinking" | "mcp_tool_result") => {}
            other => panic!("the AI SDK fails on blocks of type {other:?}"),
        }
    }
}
