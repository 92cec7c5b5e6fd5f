//! Records made by hand: what an agent says, message by message.
//!
//! Not here: records of an agent's frames ([`super::Recorder`]), and of whole scripts ([`super::Script`]).

use serde_json::json;

use super::{NOW, RUN, started};
use interlingua_core::event::{End, Millis};
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{Content, ContentType, Message, MessageType, Role};
use interlingua_core::run::{CallHead, MessageEnd, MessageStart, Record, Run, RunError};

/// Builds a record.
#[derive(Debug)]
pub struct RunBuilder {
    /// The record so far.
    pub record: Record,
    /// When the run ends. `None`: when it began.
    ends_at: Option<Millis>,
}

impl RunBuilder {
    /// A run whose first turn has started, with the user's message `hi`. No time passes.
    #[must_use]
    pub fn begin() -> Self {
        Self { record: started(), ends_at: None }
    }

    /// The same, but the turn starts a second after the run, and ends after one more.
    #[must_use]
    pub fn begin_later() -> Self {
        let mut record = Record::new(Run::new(RUN, "demo", "session-1", NOW));
        record.set_time(NOW + 1000);
        record.start_turn(vec![Message::user("hi")]);
        Self { record, ends_at: Some(NOW + 2000) }
    }

    /// Starts a message.
    pub fn message(&mut self, kind: MessageType) -> u32 {
        let role = if kind.is_output() { Role::Tool } else { Role::Assistant };
        self.record.start_message(MessageStart::new("", kind, role))
    }

    /// Adds a complete content of text to a message.
    pub fn text(&mut self, message: u32, kind: ContentType, deltas: &[&str]) -> u32 {
        self.content(message, kind, None, deltas)
    }

    fn content(&mut self, message: u32, kind: ContentType, head: Option<CallHead>, deltas: &[&str]) -> u32 {
        let content = self.record.start_content(message, kind, head);
        for delta in deltas {
            self.record.push(message, content, delta);
        }
        self.record.finish_content(message, content, None, Extra::new());
        content
    }

    /// Adds a content that comes as a whole.
    pub fn value(&mut self, message: u32, value: Content) {
        let content = self.record.start_content(message, value.body.kind(), None);
        self.record.finish_content(message, content, Some(value), Extra::new());
    }

    /// Adds data to a message.
    ///
    /// # Panics
    /// If the text is not JSON.
    pub fn json(&mut self, message: u32, json: &str) {
        self.value(message, Content::data(&Json::parse(json).expect("JSON")));
    }

    /// Ends a message.
    pub fn end(&mut self, message: u32) {
        self.record.finish_message(message, MessageEnd::new(End::Completed));
    }

    /// Adds a complete message with data.
    ///
    /// # Panics
    /// If the text is not JSON.
    pub fn data(&mut self, kind: MessageType, json: &str) {
        let message = self.message(kind);
        self.json(message, json);
        self.end(message);
    }

    /// Adds a complete message with one text.
    pub fn say(&mut self, kind: MessageType, deltas: &[&str]) {
        let message = self.message(kind);
        self.text(message, ContentType::Text, deltas);
        self.end(message);
    }

    /// Adds a complete call whose arguments come in these pieces.
    pub fn call(&mut self, kind: MessageType, call_id: &str, name: &str, deltas: &[&str]) -> u32 {
        let message = self.message(kind);
        let head = CallHead { call_id: call_id.to_owned(), name: name.to_owned(), server_label: None };
        self.content(message, ContentType::Data, Some(head), deltas);
        self.end(message);
        message
    }

    /// Adds the output of a call.
    pub fn output(&mut self, kind: MessageType, call_id: &str, output: &str) {
        self.data(kind, &json!({ "call_id": call_id, "output": output }).to_string());
    }

    /// Ends the run, with token usage; if it fails, with the error `MODEL_TIMEOUT`.
    #[must_use]
    pub fn finish(mut self, end: End) -> Record {
        if let Some(time) = self.ends_at {
            self.record.set_time(time);
        }
        self.record.update_turn(None, Json::parse(r#"{"input_tokens":11,"output_tokens":7}"#), Extra::new());
        let error = matches!(end, End::Failed | End::Rejected)
            .then(|| RunError { code: "MODEL_TIMEOUT".to_owned(), message: "the model took too long".to_owned() });
        self.record.close(end, error);
        self.record
    }
}
