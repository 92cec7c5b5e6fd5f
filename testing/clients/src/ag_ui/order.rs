//! The order of events that the official client's verifier enforces, their required fields, and the assumptions of its
//! reducer: it adds only to messages and calls that it knows.
//!
//! Not here: the meaning of events (`reader`).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::frames::{list, text};

/// The open and closed parts of a stream.
pub(super) struct Order {
    is_v1: bool,
    is_started: bool,
    is_ended: bool,
    /// The open parts, by the names of their events and their ids.
    open: BTreeSet<(&'static str, String)>,
    /// The parts that began in this stream or an earlier one, and must not begin again.
    begun: BTreeSet<(&'static str, String)>,
    /// Calls with a result.
    answered: BTreeSet<String>,
}

impl Order {
    /// The order for a client that knows these messages.
    pub(super) fn after(said: &[Value], is_v1: bool) -> Self {
        let (mut begun, mut answered) = (BTreeSet::new(), BTreeSet::new());
        for message in said {
            begun.insert(("message", text(message, "id").to_owned()));
            begun.extend(list(message, "toolCalls").map(|call| ("call", text(call, "id").to_owned())));
            answered.extend(message["toolCallId"].as_str().map(str::to_owned));
        }
        Self { is_v1, is_started: false, is_ended: false, open: BTreeSet::new(), begun, answered }
    }

    /// The next event.
    pub(super) fn event(&mut self, event: &Value) {
        has_no_nulls(event);
        let kind = text(event, "type");
        assert!(!self.is_ended, "nothing follows the end of a run: {event}");
        assert_eq!(self.is_started, kind != "RUN_STARTED", "a run starts first, and once: {event}");
        let message = || text(event, "messageId").to_owned();
        let call = || text(event, "toolCallId").to_owned();
        match kind {
            "RUN_STARTED" => self.is_started = true,
            "RUN_ERROR" => {
                assert!(!text(event, "message").is_empty(), "an error has a message: {event}");
                self.is_ended = true;
            }
            "RUN_FINISHED" => self.finish(event),
            "TEXT_MESSAGE_START" => {
                assert_eq!(text(event, "role"), "assistant", "{event}");
                self.begin("text", "message", message(), event);
            }
            "TEXT_MESSAGE_CONTENT" => self.go_on("text", &message(), event),
            "TEXT_MESSAGE_END" => self.close("text", message(), event),
            "REASONING_START" => assert!(self.open.insert(("span", message())), "it is open: {event}"),
            "REASONING_END" => self.close("span", message(), event),
            "REASONING_MESSAGE_START" => {
                assert_eq!(text(event, "role"), "reasoning", "{event}");
                self.begin("reasoning", "message", message(), event);
            }
            "REASONING_MESSAGE_CONTENT" => self.go_on("reasoning", &message(), event),
            "REASONING_MESSAGE_END" => self.close("reasoning", message(), event),
            "REASONING_ENCRYPTED_VALUE" => {
                assert!(matches!(text(event, "subtype"), "message" | "tool-call"), "{event}");
                assert!(!text(event, "entityId").is_empty() && !text(event, "encryptedValue").is_empty(), "{event}");
            }
            "TOOL_CALL_START" => {
                assert!(!text(event, "toolCallName").is_empty(), "{event}");
                self.begin("call", "call", call(), event);
            }
            "TOOL_CALL_ARGS" => self.go_on("call", &call(), event),
            "TOOL_CALL_END" => self.close("call", call(), event),
            "TOOL_CALL_RESULT" => self.result(event, message(), call()),
            "MESSAGES_SNAPSHOT" => assert!(event["messages"].is_array(), "{event}"),
            "STATE_SNAPSHOT" => assert!(event.get("snapshot").is_some(), "{event}"),
            "CUSTOM" => {
                assert!(!text(event, "name").is_empty() && event.get("value").is_some(), "{event}");
            }
            other => panic!("an event of type {other:?}, which no scenario has: {event}"),
        }
    }

    fn begin(&mut self, kind: &'static str, of: &'static str, id: String, event: &Value) {
        assert!(!id.is_empty() && self.open.insert((kind, id.clone())), "it is open: {event}");
        assert!(self.begun.insert((of, id)), "the client knows it already: {event}");
    }

    fn go_on(&self, kind: &'static str, id: &str, event: &Value) {
        assert!(!text(event, "delta").is_empty(), "a fragment has a text: {event}");
        assert!(self.open.contains(&(kind, id.to_owned())), "it is not open: {event}");
    }

    fn close(&mut self, kind: &'static str, id: String, event: &Value) {
        assert!(self.open.remove(&(kind, id)), "it is not open: {event}");
    }

    fn result(&mut self, event: &Value, message: String, call: String) {
        let content = &event["content"];
        assert!(content.is_string() || (self.is_v1 && content.is_array()), "the content of a result: {event}");
        assert!(self.begun.contains(&("call", call.clone())), "a result without a call: {event}");
        assert!(!self.open.contains(&("call", call.clone())), "a result of an open call: {event}");
        assert!(self.answered.insert(call), "a second result: {event}");
        assert!(self.begun.insert(("message", message)), "the client knows the message already: {event}");
    }

    fn finish(&mut self, event: &Value) {
        assert!(self.open.is_empty(), "{:?} is open at the end: {event}", self.open);
        self.is_ended = true;
        for entry in list(event, "usage") {
            has_no_nulls(entry);
        }
        let outcome = &event["outcome"];
        match outcome["type"].as_str() {
            None => assert!(outcome.is_null(), "{event}"),
            Some("success") => {
                assert!(self.is_v1, "older clients fail at it: {event}");
                for id in list(outcome, "pendingToolCallIds") {
                    let id = id.as_str().expect("an id").to_owned();
                    assert!(self.begun.contains(&("call", id.clone())), "{id} was not announced: {event}");
                    assert!(!self.answered.contains(&id), "{id} has a result: {event}");
                }
            }
            Some("cancelled") => assert!(self.is_v1, "older clients fail at it: {event}"),
            Some("interrupt") => self.interrupts(event),
            Some(other) => panic!("an outcome of type {other:?}: {event}"),
        }
    }

    fn interrupts(&self, event: &Value) {
        let interrupts: Vec<&Value> = list(&event["outcome"], "interrupts").collect();
        assert!(!interrupts.is_empty(), "an interrupt names what it is about: {event}");
        for interrupt in interrupts {
            has_no_nulls(interrupt);
            assert!(!text(interrupt, "id").is_empty() && !text(interrupt, "reason").is_empty(), "{interrupt}");
            assert_ne!((text(interrupt, "reason"), interrupt.get("toolCallId")), ("tool_call", None), "{interrupt}");
            if let Some(call) = interrupt["toolCallId"].as_str() {
                assert!(self.begun.contains(&("call", call.to_owned())), "{call} was not announced: {event}");
            }
        }
    }

    /// Fails unless the run has ended: the official client takes a stream without an end for a success.
    pub(super) fn is_over(&self) {
        assert!(self.is_ended, "the stream ends without an end of its run");
    }
}

/// Optional fields are absent, never null.
fn has_no_nulls(fields: &Value) {
    for (name, value) in fields.as_object().expect("an object") {
        assert!(!value.is_null() || matches!(name.as_str(), "snapshot" | "value"), "{name} is null: {fields}");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Whether a stream of these events, between the first and the last, is as the protocol says.
    fn holds(is_v1: bool, events: &[Value]) -> bool {
        let said = [
            json!({ "id": "m0", "role": "assistant", "toolCalls": [{ "id": "c0" }] }),
            json!({ "id": "t0", "role": "tool", "toolCallId": "c9" }),
        ];
        let events = events.to_vec();
        let check = move || {
            let mut order = Order::after(&said, is_v1);
            order.event(&json!({ "type": "RUN_STARTED" }));
            events.iter().for_each(|event| order.event(event));
            if !order.is_ended {
                order.event(&json!({ "type": "RUN_FINISHED" }));
            }
            order.is_over();
        };
        std::panic::catch_unwind(check).is_ok()
    }

    fn start(kind: &str, id: &str) -> Value {
        json!({ "type": format!("{kind}_START"), "messageId": id, "role": if kind.starts_with('T') { "assistant" } else { "reasoning" } })
    }

    fn of(kind: &str, id: &str) -> Value {
        json!({ "type": kind, "messageId": id, "delta": "words" })
    }

    fn call(kind: &str, id: &str) -> Value {
        json!({ "type": format!("TOOL_CALL_{kind}"), "toolCallId": id, "toolCallName": "look", "delta": "{}" })
    }

    fn result(id: &str, call: &str) -> Value {
        json!({ "type": "TOOL_CALL_RESULT", "messageId": id, "toolCallId": call, "content": "blue" })
    }

    fn finished(outcome: Value) -> Value {
        json!({ "type": "RUN_FINISHED", "outcome": outcome })
    }

    #[test]
    fn streams_in_order_are_read() {
        let text = [start("TEXT_MESSAGE", "m1"), of("TEXT_MESSAGE_CONTENT", "m1"), of("TEXT_MESSAGE_END", "m1")];
        let thoughts = [
            start("REASONING", "r1"),
            start("REASONING_MESSAGE", "r1"),
            of("REASONING_MESSAGE_CONTENT", "r1"),
            of("REASONING_MESSAGE_END", "r1"),
            of("REASONING_END", "r1"),
        ];
        let calls =
            [call("START", "c1"), call("ARGS", "c1"), call("END", "c1"), result("t1", "c1"), result("t2", "c0")];
        assert!(holds(true, &[&text[..], &thoughts, &calls].concat()));
        // Different ones may be open at once, and an error may come at any time.
        assert!(holds(true, &[start("TEXT_MESSAGE", "m1"), call("START", "c1"), call("END", "c1"), text[2].clone()]));
        assert!(holds(true, &[text[0].clone(), json!({ "type": "RUN_ERROR", "message": "it broke" })]));
        assert!(holds(true, &[finished(json!({ "type": "success", "pendingToolCallIds": ["c0"] }))]));
        assert!(holds(
            false,
            &[finished(json!({ "type": "interrupt", "interrupts": [{ "id": "i", "reason": "x" }] }))]
        ));
    }

    #[test]
    fn streams_at_which_an_official_client_fails_are_refused() {
        let wrong = [
            vec![json!({ "type": "RUN_STARTED" })],
            vec![start("TEXT_MESSAGE", "m1")],
            vec![start("TEXT_MESSAGE", "m0"), of("TEXT_MESSAGE_END", "m0")],
            vec![of("TEXT_MESSAGE_CONTENT", "m1")],
            vec![of("TEXT_MESSAGE_END", "m1")],
            vec![
                start("TEXT_MESSAGE", "m1"),
                json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "" }),
                of("TEXT_MESSAGE_END", "m1"),
            ],
            vec![json!({ "type": "REASONING_MESSAGE_START", "messageId": "r1" }), of("REASONING_MESSAGE_END", "r1")],
            vec![start("REASONING", "r1")],
            vec![call("START", "c1")],
            vec![call("START", "c0"), call("END", "c0")],
            vec![call("ARGS", "c0")],
            vec![result("t1", "c1")],
            vec![result("t1", "c9")],
            vec![result("t0", "c0")],
            vec![result("t1", "c0"), result("t2", "c0")],
            vec![call("START", "c1"), result("t1", "c1"), call("END", "c1")],
            vec![json!({ "type": "CUSTOM", "name": "mood" })],
            vec![json!({ "type": "WEATHER" })],
            vec![json!({ "type": "STATE_SNAPSHOT", "snapshot": {}, "timestamp": null })],
            vec![finished(Value::Null)],
            vec![finished(json!({ "type": "interrupt", "interrupts": [] }))],
            vec![finished(json!({ "type": "interrupt", "interrupts": [{ "id": "i", "reason": "tool_call" }] }))],
            vec![finished(json!({ "type": "success", "pendingToolCallIds": ["c1"] }))],
            vec![finished(json!({ "type": "success", "pendingToolCallIds": ["c9"] }))],
            vec![json!({ "type": "RUN_ERROR", "message": "it broke" }), of("TEXT_MESSAGE_END", "m1")],
        ];
        for events in wrong {
            assert!(!holds(true, &events), "{events:?}");
        }
        assert!(!holds(false, &[finished(json!({ "type": "cancelled" }))]));
        assert!(!holds(false, &[finished(json!({ "type": "success", "pendingToolCallIds": ["c0"] }))]));
    }
}
