//! The checks of `@ag-ui/client` on a stream, and the assumptions of its reducer (docs/protocols/ag-ui.md#order-rules).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The open and closed parts of a stream.
#[derive(Default)]
struct Verifier {
    texts: BTreeSet<String>,
    reasoning: BTreeSet<String>,
    spans: BTreeSet<String>,
    steps: BTreeSet<(String, String)>,
    subagents: BTreeMap<String, bool>,
    /// Calls, and whether they are open.
    calls: BTreeMap<String, bool>,
    results: BTreeSet<String>,
    thinking: u8,
}

/// Panics if a client would fail at these events.
pub(crate) fn verify(events: &[Value], is_v1: bool) {
    assert_eq!(events.first().map(|event| &event["type"]), Some(&Value::from("RUN_STARTED")), "{events:?}");
    let (last, body) = events.split_last().expect("events");
    let mut verifier = Verifier::default();
    for event in &body[1..] {
        has_no_nulls(event);
        verifier.event(event, is_v1);
    }
    has_no_nulls(last);
    match last["type"].as_str() {
        Some("RUN_ERROR") => assert!(last["message"].is_string(), "{last}"),
        Some("RUN_FINISHED") => verifier.end(last, is_v1),
        _ => panic!("a stream ends with {last}"),
    }
}

/// Optional fields are absent, never null.
fn has_no_nulls(event: &Value) {
    for (name, value) in event.as_object().expect("an object") {
        assert!(!value.is_null() || matches!(name.as_str(), "snapshot" | "value"), "{event}");
    }
}

impl Verifier {
    fn event(&mut self, event: &Value, is_v1: bool) {
        let text = |name: &str| event[name].as_str().unwrap_or_else(|| panic!("no {name}: {event}")).to_owned();
        let step = || (event["subagentRunId"].as_str().unwrap_or_default().to_owned(), text("stepName"));
        let kind = text("type");
        match kind.as_str() {
            "TEXT_MESSAGE_START" => assert!(self.texts.insert(text("messageId")), "{event}"),
            "TEXT_MESSAGE_CONTENT" => {
                assert!(!text("delta").is_empty() && self.texts.contains(&text("messageId")), "{event}");
            }
            "TEXT_MESSAGE_END" => assert!(self.texts.remove(&text("messageId")), "{event}"),
            "REASONING_START" => assert!(self.spans.insert(text("messageId")), "{event}"),
            "REASONING_MESSAGE_START" => {
                assert_eq!(text("role"), "reasoning", "{event}");
                assert!(self.reasoning.insert(text("messageId")), "{event}");
            }
            "REASONING_MESSAGE_CONTENT" => {
                assert!(!text("delta").is_empty() && self.reasoning.contains(&text("messageId")), "{event}");
            }
            "REASONING_MESSAGE_END" => assert!(self.reasoning.remove(&text("messageId")), "{event}"),
            "REASONING_END" => assert!(self.spans.remove(&text("messageId")), "{event}"),
            "THINKING_START" => assert_eq!(std::mem::replace(&mut self.thinking, 1), 0, "{event}"),
            "THINKING_TEXT_MESSAGE_START" => assert_eq!(std::mem::replace(&mut self.thinking, 2), 1, "{event}"),
            "THINKING_TEXT_MESSAGE_CONTENT" => assert_eq!(self.thinking, 2, "{event}"),
            "THINKING_TEXT_MESSAGE_END" => assert_eq!(std::mem::replace(&mut self.thinking, 1), 2, "{event}"),
            "THINKING_END" => assert_eq!(std::mem::replace(&mut self.thinking, 0), 1, "{event}"),
            "TOOL_CALL_START" => {
                text("toolCallName");
                assert!(self.calls.insert(text("toolCallId"), true).is_none(), "{event}");
            }
            "TOOL_CALL_ARGS" => {
                text("delta");
                assert_eq!(self.calls.get(&text("toolCallId")), Some(&true), "{event}");
            }
            "TOOL_CALL_END" => assert_eq!(self.calls.insert(text("toolCallId"), false), Some(true), "{event}"),
            "TOOL_CALL_RESULT" => {
                assert!(event["content"].is_string() || (is_v1 && event["content"].is_array()), "{event}");
                // The call may be of an earlier run.
                assert_ne!(self.calls.get(&text("toolCallId")), Some(&true), "{event}");
                assert!(self.results.insert(text("toolCallId")), "{event}");
            }
            "REASONING_ENCRYPTED_VALUE" => drop((text("entityId"), text("encryptedValue"))),
            "STEP_STARTED" => assert!(self.steps.insert(step()), "{event}"),
            "STEP_FINISHED" => assert!(self.steps.remove(&step()), "{event}"),
            "SUBAGENT_STARTED" => {
                assert!(is_v1 && self.subagents.insert(text("subagentRunId"), true).is_none(), "{event}");
            }
            "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => {
                assert_eq!(self.subagents.insert(text("subagentRunId"), false), Some(true), "{event}");
            }
            "STATE_SNAPSHOT" => assert!(event.get("snapshot").is_some(), "{event}"),
            "STATE_DELTA" => assert!(event["delta"].is_array(), "{event}"),
            "ACTIVITY_SNAPSHOT" => assert!(event["content"].is_object(), "{event}"),
            "ACTIVITY_DELTA" => assert!(event["patch"].is_array(), "{event}"),
            "MESSAGES_SNAPSHOT" => assert!(event["messages"].is_array(), "{event}"),
            "CUSTOM" => assert!(!text("name").is_empty() && event.get("value").is_some(), "{event}"),
            "RAW" => assert!(event.get("event").is_some(), "{event}"),
            other => panic!("an event of type {other:?}: {event}"),
        }
    }

    fn end(&self, event: &Value, is_v1: bool) {
        let is_closed = self.texts.is_empty() && self.reasoning.is_empty() && self.spans.is_empty();
        assert!(is_closed && self.steps.is_empty() && self.thinking == 0, "{event}");
        assert!(self.calls.values().chain(self.subagents.values()).all(|is_open| !is_open), "{event}");
        let outcome = &event["outcome"];
        match outcome["type"].as_str() {
            None => assert!(outcome.is_null(), "{event}"),
            Some("success" | "cancelled") => assert!(is_v1, "older clients fail at it: {event}"),
            Some("interrupt") => {
                let interrupts = outcome["interrupts"].as_array().expect("a list");
                assert!(!interrupts.is_empty(), "{event}");
                for interrupt in interrupts {
                    has_no_nulls(interrupt);
                    assert!(interrupt["id"].is_string() && interrupt["reason"].is_string(), "{event}");
                    let needs_call = interrupt["reason"] == "tool_call";
                    assert!(!needs_call || interrupt["toolCallId"].is_string(), "{event}");
                }
            }
            Some(other) => panic!("an outcome of type {other:?}"),
        }
    }
}
