//! The frames the builder makes, serialized exactly as the runtime does (docs/protocols/agent-api.md#events,
//! docs/protocols/agent-api.md#example-text).

use std::fmt;

use bytes::BytesMut;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::draft::MessageDraft;
use interlingua_core::json::Json;
use interlingua_core::model::{Content, MessageType, Role, Status};
use interlingua_core::run::RunError;
use interlingua_core::sse;

/// One frame of a canonical event stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Frame(String);

impl Frame {
    pub(super) fn from_object<T: Serialize>(object: &T) -> Self {
        Self(serde_json::to_string(object).expect("texts, numbers and JSON are JSON"))
    }

    /// The object as compact JSON.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0
    }

    /// The SSE frame: `data: `, the object, an empty line.
    #[must_use]
    pub fn sse(&self) -> String {
        let mut out = BytesMut::with_capacity(self.0.len() + 8);
        sse::encode::begin_frame(&mut out, None, None);
        let from = out.len();
        out.extend_from_slice(self.0.as_bytes());
        sse::separators::escape_from(&mut out, from);
        sse::encode::end_frame(&mut out);
        String::from_utf8(out.into()).expect("a frame made of text is text")
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Serialize)]
pub(super) struct ResponseFrame<'a> {
    pub(super) sequence_number: Option<u64>,
    pub(super) object: &'static str,
    pub(super) status: &'a Status,
    pub(super) error: Option<&'a RunError>,
    pub(super) id: &'a str,
    pub(super) created_at: u64,
    pub(super) completed_at: Option<u64>,
    pub(super) output: Option<Vec<MessageFrame<'a>>>,
    pub(super) usage: Option<&'a Json>,
    pub(super) session_id: Option<&'a str>,
}

#[derive(Serialize)]
pub(super) struct MessageFrame<'a> {
    sequence_number: Option<u64>,
    object: &'static str,
    status: &'a Status,
    error: Option<&'a RunError>,
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a MessageType,
    role: &'a Role,
    content: Option<Vec<ContentFrame<'a>>>,
    code: Option<&'a str>,
    message: Option<&'a str>,
    usage: Option<&'a Json>,
    metadata: Option<&'a Json>,
}

impl<'a> MessageFrame<'a> {
    /// The message without contents, as in its first frame.
    pub(super) fn without_content(draft: &'a MessageDraft) -> Self {
        Self { content: None, ..Self::complete(draft) }
    }

    /// The message with its completed contents.
    pub(super) fn complete(draft: &'a MessageDraft) -> Self {
        let complete = draft.contents.iter().enumerate().filter_map(|(index, content)| {
            // A nested content has no sequence number, because it is not a frame of its own.
            let content = content.complete.as_ref()?;
            Some(ContentFrame { number: None, status: "completed", index, delta: false, msg_id: &draft.id, content })
        });
        let content: Vec<_> = complete.collect();

        Self {
            sequence_number: draft.number,
            object: "message",
            status: &draft.status,
            error: draft.error.as_ref(),
            id: &draft.id,
            kind: &draft.kind,
            role: &draft.role,
            content: (!content.is_empty()).then_some(content),
            code: draft.error.as_ref().map(|error| error.code.as_str()),
            message: draft.error.as_ref().map(|error| error.message.as_str()),
            usage: draft.usage.as_ref(),
            metadata: draft.metadata.as_ref(),
        }
    }
}

pub(super) struct ContentFrame<'a> {
    pub(super) number: Option<u64>,
    pub(super) status: &'a str,
    pub(super) index: usize,
    pub(super) delta: bool,
    pub(super) msg_id: &'a str,
    pub(super) content: &'a Content,
}

impl Serialize for ContentFrame<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("sequence_number", &self.number)?;
        map.serialize_entry("object", "content")?;
        map.serialize_entry("status", self.status)?;
        map.serialize_entry("error", &())?;
        map.serialize_entry("type", &self.content.body.kind())?;
        map.serialize_entry("index", &self.index)?;
        map.serialize_entry("delta", &self.delta)?;
        map.serialize_entry("msg_id", self.msg_id)?;
        self.content.fields(&mut map)?;
        map.end()
    }
}
