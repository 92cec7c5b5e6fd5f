//! A message as it is put together, from the events of a stream or as a whole, and checked: what one of the official
//! SDKs would fail on, or show wrongly, is a panic.
//!
//! Not here: what the blocks mean (`shown`).

use serde_json::{Map, Value, json};

use super::{REQUEST_APPROVAL, REQUEST_INPUT};
use crate::frames::{Frames, list, text};
use crate::{Open, Talk};

/// The types of errors, with the statuses that they stand for.
const ERRORS: [(&str, &[u16]); 10] = [
    ("invalid_request_error", &[400, 405]),
    ("authentication_error", &[401]),
    ("billing_error", &[402]),
    ("permission_error", &[403]),
    ("not_found_error", &[404]),
    ("conflict_error", &[409]),
    ("request_too_large", &[413]),
    ("rate_limit_error", &[429]),
    ("timeout_error", &[504]),
    ("overloaded_error", &[529]),
];

/// A message.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The message of a whole answer without its blocks. Null: it has not begun.
    message: Value,
    pub(super) blocks: Vec<Value>,
    /// The last block may grow.
    is_open: bool,
    /// Its input, as it came until now.
    input: String,
    is_over: bool,
    /// The error that ended it. Null: there was none.
    pub(super) error: Value,
}

/// Checks an error and returns the gateway's code of it. `status`: of the answer, if it is all of the answer.
pub(super) fn check_error(body: &Value, status: Option<u16>) -> String {
    assert_eq!(text(body, "type"), "error", "{body}");
    let error = &body["error"];
    assert!(!text(error, "message").is_empty() && !text(body, "request_id").is_empty(), "{body}");
    let kind = text(error, "type");
    let statuses = ERRORS.iter().find(|(name, _)| *name == kind).map(|(_, statuses)| *statuses);
    assert!(statuses.is_some() || kind == "api_error", "an unknown type: {body}");
    if let Some(status) = status {
        let fits = statuses.map_or(matches!(status, 500 | 502 | 503), |statuses| statuses.contains(&status));
        assert!(fits, "{status} is not {kind}: {body}");
    }
    text(&error["details"], "error_code").to_owned()
}

impl Answer {
    /// Puts a message together from its events.
    pub(super) fn of_stream(body: &str) -> Self {
        assert!(!body.lines().any(|line| line.starts_with("id:")), "events have a name and data: {body}");
        let frames = Frames::split(body);
        let mut answer = Self::default();
        for ((name, _), event) in frames.events.iter().zip(frames.json()) {
            assert_eq!(name, text(&event, "type"), "SDKs go by the name of an event: {event}");
            answer.event(&event);
        }
        assert!(answer.is_over != answer.error.is_object(), "a stream has one end: {body}");
        answer
    }

    /// Reads a whole message.
    pub(super) fn of_whole(body: &str) -> Self {
        let mut message: Value = serde_json::from_str(body).expect("an answer is JSON");
        let content = message["content"].take();
        let Value::Array(blocks) = content else { panic!("no list of blocks: {body}") };
        Self { message, blocks, is_over: true, ..Self::default() }
    }

    fn event(&mut self, event: &Value) {
        assert!(!self.is_over && self.error.is_null(), "it comes behind the end: {event}");
        let kind = text(event, "type");
        assert_eq!(self.message.is_null(), kind == "message_start", "a message begins once, and first: {event}");
        match kind {
            "message_start" => {
                self.message = event["message"].clone();
                assert_eq!(self.message["content"], json!([]), "{event}");
                assert_eq!(self.message["stop_reason"], Value::Null, "{event}");
                check_usage(&self.message["usage"]);
            }
            "ping" => {}
            "content_block_start" => self.start(event),
            "content_block_delta" => self.delta(event),
            "content_block_stop" => self.stop(event),
            "message_delta" => self.end(event),
            "message_stop" => {
                assert!(self.message["stop_reason"].is_string(), "an end has a reason: {event}");
                self.is_over = true;
            }
            "error" => {
                check_error(event, None);
                self.error = event["error"].clone();
            }
            other => panic!("the AI SDK fails on an event of type {other:?}: {event}"),
        }
    }

    fn start(&mut self, event: &Value) {
        assert!(!self.is_open && self.message["stop_reason"].is_null(), "one block at a time: {event}");
        assert_eq!(event["index"], self.blocks.len(), "SDKs append where a block begins: {event}");
        let block = &event["content_block"];
        let is_empty = match text(block, "type") {
            "text" => *block == json!({ "type": "text", "text": "" }),
            "thinking" => *block == json!({ "type": "thinking", "thinking": "", "signature": "" }),
            "tool_use" => block["input"] == json!({}),
            // Invalid blocks are found when the message is complete.
            _ => true,
        };
        assert!(is_empty, "some clients lose what stands in the start of a block that grows: {event}");
        self.blocks.push(block.clone());
        self.is_open = true;
        self.input.clear();
    }

    fn delta(&mut self, event: &Value) {
        let last = self.blocks.len().checked_sub(1);
        assert!(self.is_open && event["index"].as_u64() == last.map(|last| last as u64), "no such block: {event}");
        let block = self.blocks.last_mut().expect("a block");
        let delta = &event["delta"];
        let piece = |name: &str| {
            let piece = text(delta, name);
            assert!(!piece.is_empty(), "a delta without a piece: {event}");
            piece
        };
        let append = |block: &mut Value, name: &str| {
            block[name] = json!(format!("{}{}", text(block, name), piece(name)));
        };
        match (text(block, "type"), text(delta, "type")) {
            ("text", "text_delta") => append(block, "text"),
            ("thinking", "thinking_delta") => {
                assert_eq!(text(block, "signature"), "", "a signature is last: {event}");
                append(block, "thinking");
            }
            ("thinking", "signature_delta") => {
                assert_eq!(text(block, "signature"), "", "a block is signed once: {event}");
                append(block, "signature");
            }
            ("tool_use", "input_json_delta") => self.input.push_str(piece("partial_json")),
            ("text", "citations_delta") => {
                let citations = list(block, "citations").chain([&delta["citation"]]).cloned();
                block["citations"] = citations.collect();
            }
            // Claude Code throws away answers in which calls of the agent's own have deltas.
            other => panic!("no such delta in such a block, {other:?}: {event}"),
        }
    }

    fn stop(&mut self, event: &Value) {
        let last = self.blocks.len().checked_sub(1);
        assert!(self.is_open && event["index"].as_u64() == last.map(|last| last as u64), "no such block: {event}");
        self.is_open = false;
        let block = self.blocks.last_mut().expect("a block");
        if block["type"] == "tool_use" {
            let input = serde_json::from_str::<Map<String, Value>>(&self.input);
            let input = input.unwrap_or_else(|error| panic!("the input is no object, {error}: {:?}", self.input));
            block["input"] = Value::Object(input);
        }
    }

    fn end(&mut self, event: &Value) {
        assert!(!self.is_open && self.message["stop_reason"].is_null(), "one end, behind the blocks: {event}");
        check_usage(&event["usage"]);
        let (before, now) = (&self.message["usage"]["output_tokens"], &event["usage"]["output_tokens"]);
        assert!(before.as_u64() <= now.as_u64(), "counts grow: {event}");
        self.message["usage"] = event["usage"].clone();
        let Value::Object(fields) = &event["delta"] else { panic!("no delta: {event}") };
        for (name, value) in fields {
            self.message[name.as_str()] = value.clone();
        }
    }

    /// Checks the message, once it has ended.
    pub(super) fn check(&self, talk: &Talk) {
        let message = &self.message;
        if message.is_null() {
            return;
        }
        assert!(text(message, "id").starts_with("msg_"), "{message}");
        for (name, value) in [("type", "message"), ("role", "assistant"), ("model", talk.agent.as_str())] {
            assert_eq!(message[name], value, "{message}");
        }
        check_usage(&message["usage"]);

        let (finished, open) = self.blocks.split_at(self.blocks.len() - usize::from(self.is_open));
        assert!(open.is_empty() || self.error.is_object(), "the last block has no end: {open:?}");
        let mut calls = Vec::new();
        for block in finished {
            check_block(block, &mut calls);
        }
        let declared: Vec<&str> = talk.declared.iter().map(|tool| text(tool, "name")).collect();
        let tools = self.of_type("tool_use").map(|call| text(call, "name"));
        assert!(tools.clone().all(|name| declared.contains(&name)), "no one has such a tool: {:?}", self.blocks);
        if self.error.is_null() {
            self.check_reason(tools.count() > 0);
        }
    }

    fn check_reason(&self, has_calls: bool) {
        let message = &self.message;
        assert!(message.get("stop_sequence").is_some_and(Value::is_null), "no sequence was asked for: {message}");
        let details = message.get("stop_details").unwrap_or(&Value::Null);
        match self.reason() {
            "tool_use" => assert!(has_calls, "no call to run: {message}"),
            "end_turn" => assert!(!has_calls, "calls are left: {:?}", self.blocks),
            "refusal" => {
                assert_eq!((text(details, "type"), &details["category"]), ("refusal", &Value::Null), "{message}");
                return;
            }
            "max_tokens" | "model_context_window_exceeded" => {}
            // Runners answer a pause with the same conversation.
            other => panic!("an answer ends with {other:?}: {message}"),
        }
        assert!(details.is_null(), "only a refusal has details: {message}");
    }

    /// Its id, if it can be continued: the SDKs continue neither an error nor a refusal.
    pub(super) fn id(&self) -> &str {
        let is_continued = self.error.is_null() && self.reason() != "refusal";
        self.message["id"].as_str().filter(|_| is_continued).unwrap_or_default()
    }

    /// Why it ended. Empty: with an error.
    pub(super) fn reason(&self) -> &str {
        self.message["stop_reason"].as_str().unwrap_or_default()
    }

    /// The agent's text when it declined.
    pub(super) fn refusal(&self) -> &str {
        self.message["stop_details"]["explanation"].as_str().unwrap_or_default()
    }

    /// Tokens of the request, those of a cache too, and of the answer.
    pub(super) fn usage(&self) -> (u64, u64) {
        let count = |name: &str| self.message["usage"][name].as_u64().unwrap_or_default();
        let input = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
        (input.iter().map(|name| count(name)).sum(), count("output_tokens"))
    }

    fn of_type(&self, kind: &'static str) -> impl Iterator<Item = &Value> + Clone {
        self.blocks.iter().filter(move |block| block["type"] == kind)
    }

    /// The content to send back: the blocks unchanged. For a failed answer, its texts.
    pub(super) fn kept(&self) -> Vec<&Value> {
        let is_kept = |block: &&Value| self.error.is_null() || block["type"] == "text";
        self.blocks.iter().filter(is_kept).collect()
    }

    /// The calls that wait for the client.
    pub(super) fn open(&self) -> Vec<Open> {
        let wait = |call: &Value| {
            let what = match text(call, "name") {
                REQUEST_APPROVAL => "approval",
                REQUEST_INPUT => "question",
                _ => "call",
            };
            Open { id: text(call, "id").to_owned(), what: what.to_owned() }
        };
        self.of_type("tool_use").map(wait).collect()
    }
}

/// All counts are there: SDKs fail without.
fn check_usage(usage: &Value) {
    for name in ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"] {
        assert!(usage[name].is_u64(), "no {name}: {usage}");
    }
}

/// Checks a whole block. `calls`: ids of the agent's own calls that have no result yet.
fn check_block(block: &Value, calls: &mut Vec<String>) {
    let is_filled = |name: &str| !text(block, name).is_empty();
    match text(block, "type") {
        "text" => {
            assert!(is_filled("text"), "an empty text is refused when it is sent back");
            list(block, "citations").for_each(check_citation);
        }
        "thinking" => assert!(is_filled("thinking") || is_filled("signature"), "an empty thought: {block}"),
        "redacted_thinking" => assert!(is_filled("data"), "{block}"),
        "tool_use" => {
            assert!(is_filled("id") && is_name(text(block, "name")) && block["input"].is_object(), "{block}");
        }
        "mcp_tool_use" => {
            assert!(is_filled("id") && is_filled("server_name") && is_filled("name"), "{block}");
            assert!(block["input"].is_object(), "{block}");
            calls.push(text(block, "id").to_owned());
        }
        "mcp_tool_result" => {
            let call = calls.iter().position(|id| id == text(block, "tool_use_id"));
            calls.remove(call.unwrap_or_else(|| panic!("a result of no call: {block}")));
            assert!(block["is_error"].is_boolean() && block["content"].is_array(), "{block}");
            assert!(list(block, "content").all(|part| part["type"] == "text" && part["text"].is_string()), "{block}");
        }
        other => panic!("the AI SDK fails on a block of type {other:?}: {block}"),
    }
}

fn check_citation(citation: &Value) {
    assert_eq!(text(citation, "type"), "web_search_result_location", "{citation}");
    for name in ["url", "cited_text", "encrypted_index"] {
        text(citation, name);
    }
    assert!(citation.get("title").is_some_and(|title| title.is_string() || title.is_null()), "{citation}");
}

/// Whether the original accepts the name of a tool.
fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=128).contains(&name.len()) && name.bytes().all(is_letter)
}
