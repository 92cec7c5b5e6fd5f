//! The content of a run's events, and the messages that they leave in the conversation, as the official client's
//! reducer builds them.
//!
//! Not here: the order of events (`order`).

use interlingua_core::loss::ContentKind as K;
use interlingua_core_testkit::scenario::Item;
use serde_json::{Value, json};

use super::CALL;
use crate::frames::{list, text};
use crate::{End, Open, ShownTurn, Talk};

/// A run that is being read.
pub(super) struct Reader {
    /// The conversation.
    messages: Vec<Value>,
    /// So many of its messages may be no part of the thread: their run has failed.
    failed: usize,
    /// The shown items, in order. `None`: the place of a call whose kind the end determines.
    items: Vec<Option<Item>>,
    /// The id of a message that is shown, and its place.
    texts: Vec<(String, usize)>,
    calls: Vec<Call>,
    state: Option<Value>,
}

/// A call of this run.
struct Call {
    id: String,
    tool: String,
    arguments: String,
    has_result: bool,
    /// Its place among the items.
    place: usize,
}

impl Reader {
    /// The reader of a client in this conversation.
    pub(super) fn after(talk: &Talk) -> Self {
        Self {
            messages: talk.said.clone(),
            failed: talk.seen,
            items: Vec::new(),
            texts: Vec::new(),
            calls: Vec::new(),
            state: None,
        }
    }

    /// The next event.
    pub(super) fn event(&mut self, event: &Value) {
        match text(event, "type") {
            "TEXT_MESSAGE_START" => self.begin(event, "assistant", K::Text),
            "REASONING_MESSAGE_START" => self.begin(event, "reasoning", K::Reasoning),
            "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => self.go_on(event),
            "REASONING_ENCRYPTED_VALUE" => self.seal(event),
            "TOOL_CALL_START" => self.begin_call(event),
            "TOOL_CALL_ARGS" => {
                let id = text(event, "toolCallId");
                let call = self.calls.iter_mut().find(|call| call.id == id).expect("a call");
                call.arguments.push_str(text(event, "delta"));
                let arguments = json!(call.arguments);
                let call = calls(&mut self.messages).find(|call| call["id"] == id).expect("a call");
                call["function"]["arguments"] = arguments;
            }
            "TOOL_CALL_RESULT" => self.result(event),
            "STATE_SNAPSHOT" => {
                self.items.push(Some(Item::new(K::ProtocolEvent, event["snapshot"].to_string())));
                self.state = Some(event["snapshot"].clone());
            }
            "MESSAGES_SNAPSHOT" => self.snapshot(event),
            "CUSTOM" => self.custom(text(event, "name"), &event["value"]),
            _ => {}
        }
    }

    fn begin(&mut self, event: &Value, role: &str, kind: K) {
        let id = text(event, "messageId");
        self.messages.push(json!({ "id": id, "role": role, "content": "" }));
        self.texts.push((id.to_owned(), self.items.len()));
        self.items.push(Some(Item::new(kind, "")));
    }

    fn go_on(&mut self, event: &Value) {
        let (id, delta) = (text(event, "messageId"), text(event, "delta"));
        let (_, place) = self.texts.iter().find(|(open, _)| open == id).expect("a message");
        let item = self.items[*place].as_mut().expect("a text");
        item.value.push_str(delta);
        let message = self.messages.iter_mut().find(|message| message["id"] == id).expect("a message");
        message["content"] = json!(item.value);
    }

    /// A value that goes back to the agent.
    fn seal(&mut self, event: &Value) {
        let id = &event["entityId"];
        let entity = match text(event, "subtype") {
            "message" => self.messages.iter_mut().find(|message| message["id"] == *id),
            _ => calls(&mut self.messages).find(|call| call["id"] == *id),
        };
        entity.unwrap_or_else(|| panic!("a value of nothing: {event}"))["encryptedValue"] =
            event["encryptedValue"].clone();
    }

    fn begin_call(&mut self, event: &Value) {
        let (id, tool) = (text(event, "toolCallId"), text(event, "toolCallName"));
        let call = json!({ "id": id, "type": "function", "function": { "name": tool, "arguments": "" } });
        let parent = event["parentMessageId"].as_str().unwrap_or(id);
        let is_parent = |message: &&mut Value| message["id"] == parent && message["role"] == "assistant";
        match self.messages.iter_mut().find(is_parent) {
            Some(message) => match message["toolCalls"].as_array_mut() {
                Some(calls) => calls.push(call),
                None => message["toolCalls"] = json!([call]),
            },
            None => self.messages.push(json!({ "id": parent, "role": "assistant", "toolCalls": [call] })),
        }
        self.calls.push(Call {
            id: id.to_owned(),
            tool: tool.to_owned(),
            arguments: String::new(),
            has_result: false,
            place: self.items.len(),
        });
        self.items.push(None);
    }

    fn result(&mut self, event: &Value) {
        let (id, call) = (text(event, "messageId"), text(event, "toolCallId"));
        if let Some(call) = self.calls.iter_mut().find(|known| known.id == call) {
            call.has_result = true;
        }
        match event["content"].as_str() {
            Some(output) => self.items.push(Some(Item::new(K::AgentOutput, output))),
            None => list(event, "content").for_each(|part| self.items.push(Some(media(part, K::AgentOutput)))),
        }
        // It stands behind the message of its call.
        let message = json!({ "id": id, "role": "tool", "toolCallId": call, "content": event["content"] });
        let has_call = |message: &Value| list(message, "toolCalls").any(|known| known["id"] == call);
        let place = self.messages.iter().position(has_call).map_or(self.messages.len(), |place| place + 1);
        self.messages.insert(place, message);
    }

    /// The whole conversation, which takes the place of what the client has: nothing of that may be missing or another.
    fn snapshot(&mut self, event: &Value) {
        let all: Vec<&Value> = list(event, "messages").collect();
        for known in self.messages.iter().skip(self.failed) {
            let same = all.iter().find(|message| message["id"] == known["id"]);
            let same = same.unwrap_or_else(|| panic!("{known} is missing: {event}"));
            for name in ["role", "content", "toolCalls", "toolCallId", "encryptedValue"] {
                assert_eq!(without_types(&same[name]), without_types(&known[name]), "another {name}: {event}");
            }
        }
        self.messages = all.into_iter().cloned().collect();
    }

    fn custom(&mut self, name: &str, value: &Value) {
        match name {
            "content" => {
                assert!(value["messageId"].is_string() && value["index"].is_u64(), "where it stands: {value}");
                self.items.push(Some(media(&value["part"], K::Text)));
            }
            "data" => self.items.push(Some(Item::new(K::DataOut, value.to_string()))),
            "annotations" => {
                for note in list(value, "annotations") {
                    let url = note["url"].as_str().or(note["url_citation"]["url"].as_str()).expect("a citation");
                    self.items.push(Some(Item::new(K::Annotation, url)));
                }
            }
            // An application's, which mean nothing here.
            _ => {}
        }
    }

    /// The shown content, by the last event. Records the items that wait for the client, and the messages.
    pub(super) fn end(mut self, last: &Value, talk: &mut Talk) -> ShownTurn {
        talk.open.clear();
        let outcome = &last["outcome"];
        let is_failed = last["type"] == "RUN_ERROR";
        let mut asked = Vec::new();
        for interrupt in list(outcome, "interrupts") {
            self.ask(interrupt, &mut asked);
            talk.open.push(Open {
                id: text(interrupt, "id").to_owned(),
                what: interrupt.get("responseSchema").map(Value::to_string).unwrap_or_default(),
            });
        }

        let is_success = !is_failed && matches!(outcome["type"].as_str(), None | Some("success"));
        let named: Vec<&str> = list(outcome, "pendingToolCallIds").filter_map(Value::as_str).collect();
        for call in std::mem::take(&mut self.calls) {
            // Older clients get no names, and find them.
            let is_named = named.is_empty() || named.contains(&call.id.as_str());
            let is_open = is_success && !call.has_result && is_named;
            let kind = if is_open { K::ClientCall } else { K::AgentCall };
            self.items[call.place] = Some(Item::call(kind, &call.tool, &call.arguments));
            if is_open {
                talk.open.push(Open { id: call.id, what: CALL.to_owned() });
            }
        }

        let mut items: Vec<Item> = self.items.into_iter().flatten().chain(asked).collect();
        for usage in list(last, "usage") {
            let count = |name: &str| usage[name].as_u64().expect("a count");
            items.push(Item::usage(count("inputTokens"), count("outputTokens")));
        }
        let result = &last["result"];
        let is_incomplete = result["status"] == "incomplete";
        items.extend(result["reason"].as_str().filter(|_| is_incomplete).map(|why| Item::new(K::EndReason, why)));

        talk.said = self.messages;
        if is_failed {
            talk.seen = talk.said.len();
        }
        talk.state = self.state.unwrap_or_else(|| talk.state.take());
        let end = match outcome["type"].as_str() {
            _ if is_failed => End::Failed,
            Some("cancelled") => End::Canceled,
            _ if is_incomplete => End::Incomplete,
            _ => End::Completed,
        };
        ShownTurn { items, end: Some(end), code: last["code"].as_str().unwrap_or_default().to_owned() }
    }

    /// An interrupt: the call that it is about is the approval's, not one that ran.
    fn ask(&mut self, interrupt: &Value, items: &mut Vec<Item>) {
        let about = interrupt["toolCallId"].as_str();
        if let Some(place) = self.calls.iter().position(|call| Some(call.id.as_str()) == about) {
            let call = self.calls.remove(place);
            return items.push(Item::call(K::Approval, &call.tool, &call.arguments));
        }
        if let Some(url) = interrupt["metadata"]["payload"]["url"].as_str() {
            return items.push(Item::new(K::Login, url));
        }
        items.push(Item::new(K::Question, text(interrupt, "message")));
        // One of words has the schema of a string.
        let schema = Some(&interrupt["responseSchema"]).filter(|schema| schema["type"] == "object");
        items.extend(schema.map(|schema| Item::new(K::Schema, schema.to_string())));
    }
}

/// A user's parts without the media types that they may have beside a URL.
fn without_types(value: &Value) -> Value {
    let mut value = value.clone();
    for part in value.as_array_mut().into_iter().flatten() {
        if part["source"]["type"] == "url" {
            part["source"].as_object_mut().expect("an object").remove("mimeType");
        }
    }
    value
}

/// All calls of a conversation.
fn calls(messages: &mut [Value]) -> impl Iterator<Item = &mut Value> {
    messages.iter_mut().filter_map(|message| message.get_mut("toolCalls")?.as_array_mut()).flatten()
}

/// A part of the agent's: a medium, or a text of this kind.
fn media(part: &Value, kind: K) -> Item {
    let kind = match text(part, "type") {
        "text" => return Item::new(kind, text(part, "text")),
        "image" => K::ImageOut,
        "audio" => K::AudioOut,
        "video" => K::VideoOut,
        "document" => K::FileOut,
        other => panic!("a part of type {other:?}: {part}"),
    };
    let source = &part["source"];
    assert!(matches!(text(source, "type"), "url" | "data" | "file"), "a source: {part}");
    Item::new(kind, text(source, "value"))
}
