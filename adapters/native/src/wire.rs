//! The frames of the Agent API as the runtime writes them, including key order and null fields
//! (docs/protocols/agent-api.md#events, docs/protocols/agent-api.md#example-text).
//!
//! All types borrow from the run and only serialize. Not here: the order of the frames (`frames`).

use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{CallHead, Message, Run, RunError, Slot};
use interlingua_core::sse::separators;
use interlingua_core::{End, Extra, Json, RunId};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use crate::ResponseForm;

/// `object: "response"`
pub(crate) struct Response<'a> {
    pub(crate) sequence_number: Option<u64>,
    pub(crate) status: &'a str,
    pub(crate) error: Option<&'a RunError>,
    pub(crate) id: RunId,
    /// Unix seconds.
    pub(crate) created_at: u64,
    /// Unix seconds; `None` unless the status is `completed`.
    pub(crate) completed_at: Option<u64>,
    pub(crate) output: Option<Output<'a>>,
    pub(crate) usage: Option<&'a Json>,
    pub(crate) session_id: &'a str,
    pub(crate) extra: Option<&'a Extra>,
}

impl Serialize for Response<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("sequence_number", &self.sequence_number)?;
        map.serialize_entry("object", "response")?;
        map.serialize_entry("status", self.status)?;
        map.serialize_entry("error", &self.error)?;
        map.serialize_entry("id", &response_id(self.id))?;
        map.serialize_entry("created_at", &self.created_at)?;
        map.serialize_entry("completed_at", &self.completed_at)?;
        map.serialize_entry("output", &self.output)?;
        map.serialize_entry("usage", &self.usage)?;
        map.serialize_entry("session_id", self.session_id)?;
        extra(&mut map, self.extra)?;
        map.end()
    }
}

/// The id of a response: the run's id with the runtime's prefix.
pub(crate) fn response_id(id: RunId) -> String {
    format!("response_{id}")
}

/// The sequence numbers of the last frames of a message and of its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// `None` if the message was not sent yet.
    pub(crate) message: Option<u64>,
    pub(crate) contents: Vec<u64>,
}

/// The field `output`: all messages of a run.
pub(crate) struct Output<'a> {
    pub(crate) run: &'a Run,
    pub(crate) numbers: &'a [Numbers],
    pub(crate) form: ResponseForm,
}

impl Serialize for Output<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let shown = |(_, message): &(usize, &Message)| !self.form.hides(message);
        for (index, message) in self.run.messages.iter().enumerate().filter(shown) {
            let numbers = self.numbers.get(index);
            let number = numbers.and_then(|numbers| numbers.message);
            list.serialize_element(&WireMessage { number, message, numbers })?;
        }
        list.end()
    }
}

/// `object: "message"`, the first frame of a message.
pub(crate) struct StartedMessage<'a> {
    pub(crate) number: u64,
    pub(crate) id: &'a str,
    pub(crate) kind: &'a MessageType,
    pub(crate) role: &'a Role,
    pub(crate) metadata: Option<&'a Json>,
}

impl Serialize for StartedMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("sequence_number", &self.number)?;
        map.serialize_entry("object", "message")?;
        map.serialize_entry("status", "in_progress")?;
        map.serialize_entry("error", &())?;
        map.serialize_entry("id", self.id)?;
        map.serialize_entry("type", self.kind)?;
        map.serialize_entry("role", self.role)?;
        for not_known_yet in ["content", "code", "message", "usage"] {
            map.serialize_entry(not_known_yet, &())?;
        }
        map.serialize_entry("metadata", &self.metadata)?;
        map.end()
    }
}

/// `object: "message"` in its current state: the last frame of a message, and an entry of `output`.
pub(crate) struct WireMessage<'a> {
    pub(crate) number: Option<u64>,
    pub(crate) message: &'a Message,
    pub(crate) numbers: Option<&'a Numbers>,
}

impl Serialize for WireMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = self.message;
        let error = message
            .message
            .as_deref()
            .or(message.code.as_deref())
            .map(|text| MessageError { code: message.code.as_deref().unwrap_or("AGENT_ERROR"), message: text });

        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("sequence_number", &self.number)?;
        map.serialize_entry("object", "message")?;
        map.serialize_entry("status", message.end.map_or("in_progress", End::as_str))?;
        map.serialize_entry("error", &error)?;
        map.serialize_entry("id", &message.id)?;
        map.serialize_entry("type", &message.kind)?;
        map.serialize_entry("role", &message.role)?;
        map.serialize_entry("content", &Contents { message, numbers: self.numbers })?;
        map.serialize_entry("code", &message.code)?;
        map.serialize_entry("message", &message.message)?;
        map.serialize_entry("usage", &message.usage)?;
        map.serialize_entry("metadata", &message.metadata)?;
        extra(&mut map, Some(&message.extra))?;
        map.end()
    }
}

#[derive(Serialize)]
struct MessageError<'a> {
    code: &'a str,
    message: &'a str,
}

struct Contents<'a> {
    message: &'a Message,
    numbers: Option<&'a Numbers>,
}

impl Serialize for Contents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for (index, slot) in self.message.slots.iter().enumerate() {
            // A text can be sent before it is complete; another value cannot.
            if slot.finished || slot.call.is_some() || !slot.text().is_empty() {
                let number = self.numbers.and_then(|numbers| numbers.contents.get(index)).copied();
                list.serialize_element(&WireContent { number, index, msg_id: &self.message.id, slot })?;
            }
        }
        list.end()
    }
}

/// `object: "content"` in its current state: the last frame of a content, and nested in messages.
pub(crate) struct WireContent<'a> {
    pub(crate) number: Option<u64>,
    pub(crate) index: usize,
    pub(crate) msg_id: &'a str,
    pub(crate) slot: &'a Slot,
}

impl Serialize for WireContent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let slot = self.slot;
        let value_kind = slot.value.as_ref().map(|value| value.body.kind());
        let kind = value_kind.as_ref().unwrap_or(&slot.kind);
        let status = if slot.finished { "completed" } else { "in_progress" };
        // Null for a completed text, false for every other content, as in the runtime's main adapter.
        let delta = (*kind != ContentType::Text).then_some(false);

        let mut map = serializer.serialize_map(None)?;
        envelope(&mut map, self.number, status, kind, self.index, delta, self.msg_id)?;
        match (&slot.value, &slot.call) {
            (Some(value), _) => value.fields(&mut map)?,
            (None, None) if *kind == ContentType::Text => {
                map.serialize_entry("text", slot.text())?;
                extra(&mut map, Some(&slot.extra))?;
            }
            _ => slot.content().fields(&mut map)?,
        }
        map.end()
    }
}

/// `object: "content"`, a snapshot: a value that later frames replace.
pub(crate) struct Snapshot<'a> {
    pub(crate) number: u64,
    pub(crate) index: usize,
    pub(crate) msg_id: &'a str,
    pub(crate) value: SnapshotValue<'a>,
}

pub(crate) enum SnapshotValue<'a> {
    /// A text that replaces the text sent so far.
    Text(&'a str),
    /// A call whose arguments are sent later.
    Call(&'a CallHead),
}

impl Serialize for Snapshot<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let kind = match self.value {
            SnapshotValue::Text(_) => ContentType::Text,
            SnapshotValue::Call(_) => ContentType::Data,
        };

        envelope(&mut map, Some(self.number), "in_progress", &kind, self.index, Some(false), self.msg_id)?;
        match self.value {
            SnapshotValue::Text(text) => map.serialize_entry("text", text)?,
            SnapshotValue::Call(head) => map.serialize_entry("data", &EmptyCall(head))?,
        }
        map.end()
    }
}

struct EmptyCall<'a>(&'a CallHead);

impl Serialize for EmptyCall<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("call_id", &self.0.call_id)?;
        map.serialize_entry("name", &self.0.name)?;
        map.serialize_entry("arguments", "")?;
        if let Some(label) = &self.0.server_label {
            map.serialize_entry("server_label", label)?;
        }
        map.end()
    }
}

/// The fields that every content starts with.
fn envelope<M: SerializeMap>(
    map: &mut M,
    number: Option<u64>,
    status: &str,
    kind: &ContentType,
    index: usize,
    delta: Option<bool>,
    msg_id: &str,
) -> Result<(), M::Error> {
    map.serialize_entry("sequence_number", &number)?;
    map.serialize_entry("object", "content")?;
    map.serialize_entry("status", status)?;
    map.serialize_entry("error", &())?;
    map.serialize_entry("type", kind)?;
    map.serialize_entry("index", &index)?;
    map.serialize_entry("delta", &delta)?;
    map.serialize_entry("msg_id", msg_id)
}

/// The bytes between the number and the text in every delta of one content: constant, so serialized once.
pub(crate) fn fragment_middle(index: usize, msg_id: &str) -> Vec<u8> {
    struct Middle<'a>(usize, &'a str);
    impl Serialize for Middle<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            envelope(&mut map, None, "in_progress", &ContentType::Text, self.0, Some(true), self.1)?;
            map.end()
        }
    }

    let mut bytes = serde_json::to_vec(&Middle(index, msg_id)).expect("strings and numbers are valid JSON");

    bytes.drain(..b"{\"sequence_number\":null".len());
    bytes.pop();
    bytes.extend_from_slice(b",\"text\":");
    separators::escape(bytes)
}

fn extra<M: SerializeMap>(map: &mut M, extra: Option<&Extra>) -> Result<(), M::Error> {
    extra.into_iter().flat_map(Extra::iter).try_for_each(|(name, value)| map.serialize_entry(name, value))
}
