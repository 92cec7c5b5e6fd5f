//! Frames of the Agent API, the wire format of the canonical model: read borrowed, in one pass, and trusting nothing.
//!
//! Any field may be missing, null, or of another type than the specification says. None of that is an error here
//! (docs/protocols/agent-api.md#repairs). [`Frame::event`] says what a frame reports; what that means for the run,
//! [`crate::normalize`] decides.
//!
//! Used by the native connector, by scripts of the tests, and by `interlingua call`. No other connector makes frames:
//! they emit [`AgentEvent`]s themselves.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::agent_event::{
    AgentError, AgentEvent, Awaits, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent, ResponseEvent,
};
use crate::connector::EventSink;
use crate::event::End;
use crate::fault::Fault;
use crate::json_string;
use crate::model::{ContentType, File, MessageType, Role};

/// A frame, or an object nested in one. Each field is documented by the object it belongs to.
#[derive(Clone, Debug, Default)]
pub struct Frame<'a> {
    /// `response`, `message` or `content`.
    pub object: Option<Cow<'a, str>>,
    /// The status of the object.
    pub status: Option<Cow<'a, str>>,
    /// An error: an object, or a bare text.
    pub error: Option<&'a RawValue>,
    /// Id of a response or message.
    pub id: Option<Cow<'a, str>>,
    /// Type of a message or content.
    pub kind: Option<Cow<'a, str>>,
    /// Role of a message.
    pub role: Option<Cow<'a, str>>,
    /// Contents of a message.
    pub content: Option<&'a RawValue>,
    /// Messages of a response.
    pub output: Option<&'a RawValue>,
    /// Tokens spent on a response or message.
    pub usage: Option<&'a RawValue>,
    /// Metadata of a message, free for applications.
    pub metadata: Option<&'a RawValue>,
    /// Error code of a message, or of a bare error frame.
    pub code: Option<Cow<'a, str>>,
    /// Error text of a message, or of a bare error frame.
    pub message: Option<Cow<'a, str>>,
    /// Index of a content in its message.
    pub index: Option<u32>,
    /// True if a content is a fragment; false if it replaces the content as a whole.
    pub delta: bool,
    /// Id of the message a content belongs to.
    pub msg_id: Option<Cow<'a, str>>,
    /// Number of the frame in its stream. It has no effect: arrival order counts
    /// (docs/protocols/agent-api.md#repair-4).
    pub sequence_number: Option<&'a RawValue>,
    /// Value of a text.
    pub text: Option<Cow<'a, str>>,
    /// Value of a refusal.
    pub refusal: Option<Cow<'a, str>>,
    /// URL of an image.
    pub image_url: Option<Cow<'a, str>>,
    /// URL of a video.
    pub video_url: Option<Cow<'a, str>>,
    /// Value of data (an object) or audio (base64 text).
    pub data: Option<&'a RawValue>,
    /// Format of audio.
    pub format: Option<Cow<'a, str>>,
    /// URL of a file.
    pub file_url: Option<Cow<'a, str>>,
    /// Id of a file in the agent's file store.
    pub file_id: Option<Cow<'a, str>>,
    /// Name of a file.
    pub filename: Option<Cow<'a, str>>,
    /// Contents of a file: a data URL or base64.
    pub file_data: Option<Cow<'a, str>>,
    /// Fields this version has no name for. Empty, and without allocation, nearly always.
    pub extra: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Frame<'a> {
    /// Parses the data of one frame. None if it is no JSON object.
    #[must_use]
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        Self::parse_into(data, None)
    }

    /// Parses the data of one frame like [`parse`](Self::parse). A text with escapes is written to `unescaped`, memory
    /// that the caller uses for frame after frame.
    #[must_use]
    pub fn parse_with(data: &'a [u8], unescaped: &'a mut String) -> Option<Self> {
        Self::parse_into(data, Some(unescaped))
    }

    #[inline]
    fn parse_into(data: &'a [u8], unescaped: Option<&'a mut String>) -> Option<Self> {
        // One check of the whole frame costs less than one per text. If it fails, the parser decides: it accepts any
        // bytes in fields that are not read.
        match std::str::from_utf8(data) {
            Ok(text) => Self::parse_json(serde_json::Deserializer::from_str(text), unescaped),
            Err(_) => Self::parse_json(serde_json::Deserializer::from_slice(data), unescaped),
        }
    }

    /// Fills in the fields where the frame is: it is too large to be passed through every level of the parser.
    fn parse_json<R: serde_json::de::Read<'a>>(
        mut json: serde_json::Deserializer<R>,
        unescaped: Option<&'a mut String>,
    ) -> Option<Self> {
        let mut frame = Self::default();
        let parsed = json.deserialize_map(Fields { frame: &mut frame, unescaped }).and_then(|()| json.end());
        if parsed.is_ok() { Some(frame) } else { None }
    }

    /// True for a frame of no object of this protocol, which is no bare error either: other servers write errors so.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        match self.object.as_deref() {
            None => self.error.is_none_or(|error| self.message.is_some() && error.get().starts_with('"')),
            Some(object) => object == "error",
        }
    }

    /// The text of a frame that appends to a text and has no other effect. `None`: it is another frame.
    #[must_use]
    pub fn appended_text(&self) -> Option<&str> {
        let is_append = self.object.as_deref() == Some("content") && self.delta && self.end().is_none();
        let is_text = is_append && self.extra.is_empty() && self.content_type() == ContentType::Text;
        self.text.as_deref().filter(|_| is_text)
    }

    /// The event that the frame reports.
    #[must_use]
    pub fn event(mut self) -> AgentEvent<'a> {
        self.take_event()
    }

    /// Moves the event out of the frame.
    #[inline]
    fn take_event(&mut self) -> AgentEvent<'a> {
        match self.object.as_deref() {
            Some("content") => AgentEvent::Content(self.take_content()),
            Some("message") => AgentEvent::Message(self.take_message()),
            Some("response") => AgentEvent::Response(self.take_response()),
            _ => self.take_other(),
        }
    }

    /// The type of a content: its name, otherwise derived from the present field.
    #[must_use]
    pub fn content_type(&self) -> ContentType {
        if let Some(word) = &self.kind {
            return ContentType::from(word.as_ref());
        }

        if self.text.is_some() {
            ContentType::Text
        } else if self.refusal.is_some() {
            ContentType::Refusal
        } else if self.image_url.is_some() {
            ContentType::Image
        } else if self.video_url.is_some() {
            ContentType::Video
        } else if self.file_url.is_some() || self.file_id.is_some() || self.file_data.is_some() {
            ContentType::File
        } else if self.data.is_some() {
            ContentType::Data
        } else {
            ContentType::Text
        }
    }

    /// The objects nested in `content` or `output`. Values of other types are skipped.
    #[must_use]
    pub fn nested(raw: Option<&'a RawValue>) -> Vec<Self> {
        let Some(raw) = raw else { return Vec::new() };
        if let Some(text) = raw.get().strip_prefix('"').and_then(|_| serde_json::from_str::<Text<'a>>(raw.get()).ok()) {
            // Other implementations send a message's content as a bare string.
            return vec![Frame { text: text.0, ..Frame::default() }];
        }

        // Nearly always all of them can be read: in one pass then.
        let mut frames = Vec::new();
        if serde_json::Deserializer::from_str(raw.get()).deserialize_seq(Objects(&mut frames)).is_ok() {
            return frames;
        }

        serde_json::from_str::<Vec<&RawValue>>(raw.get())
            .map(|entries| {
                let entries = entries.into_iter().map(|entry| serde_json::Deserializer::from_str(entry.get()));
                entries.filter_map(|entry| Self::parse_json(entry, None)).collect()
            })
            .unwrap_or_default()
    }

    fn end(&self) -> Option<End> {
        self.status.as_deref().and_then(End::parse)
    }

    /// The frame as a content.
    #[must_use]
    pub fn into_content(mut self) -> ContentEvent<'a> {
        self.take_content()
    }

    #[inline]
    fn take_content(&mut self) -> ContentEvent<'a> {
        let update = match (self.end(), self.delta) {
            (Some(_), _) => ContentUpdate::Final,
            (None, true) => ContentUpdate::Append,
            (None, false) => ContentUpdate::Snapshot,
        };

        let value = match self.content_type() {
            ContentType::Text => ContentValue::Text(self.text.take().unwrap_or_default()),
            ContentType::Refusal => ContentValue::Refusal(self.refusal.take().unwrap_or_default()),
            ContentType::Image => ContentValue::Image(self.image_url.take()),
            ContentType::Video => ContentValue::Video(self.video_url.take()),
            ContentType::Data => ContentValue::Data(self.data),
            ContentType::Audio => ContentValue::Audio {
                data: self.data.and_then(|raw| serde_json::from_str::<Text<'a>>(raw.get()).ok()?.0),
                format: self.format.take(),
            },
            ContentType::File => ContentValue::File(File {
                url: self.file_url.take().map(Cow::into_owned),
                id: self.file_id.take().map(Cow::into_owned),
                name: self.filename.take().map(Cow::into_owned),
                data: self.file_data.take().map(Cow::into_owned),
            }),
            ContentType::Other(word) => ContentValue::Other(Cow::Owned(word.into())),
        };

        ContentEvent {
            message: self.msg_id.take(),
            index: self.index,
            update,
            value,
            extra: std::mem::take(&mut self.extra),
        }
    }

    fn take_message(&mut self) -> MessageEvent<'a> {
        let end = self.end();
        MessageEvent {
            id: self.id.take(),
            kind: self.kind.take().map(|word| match word.as_ref() {
                // In the examples of both published texts, in no enum (docs/protocols/agent-api.md#type-assistant).
                "assistant" => MessageType::Message,
                word => MessageType::from(word),
            }),
            role: self.role.take().map(|word| Role::from(word.as_ref())),
            end,
            in_progress: matches!(self.status.as_deref(), Some("created" | "in_progress" | "queued")),
            contents: Self::nested(self.content).into_iter().map(Self::into_content).collect(),
            usage: self.usage.map(JsonRef::Borrowed),
            metadata: self.metadata.map(JsonRef::Borrowed),
            code: self.code.take(),
            text: self.message.take(),
            error: self.error.map(AgentError::raw),
            extra: std::mem::take(&mut self.extra),
        }
    }

    fn take_response(&mut self) -> ResponseEvent<'a> {
        let end = self.end();
        ResponseEvent {
            started: self.status.as_deref() == Some("in_progress"),
            end,
            error: self.error.map(AgentError::raw),
            awaits: None,
            usage: self.usage.map(JsonRef::Borrowed),
            // Only an end repeats the messages; before it the list is of no use.
            output: if end.is_some() {
                Self::nested(self.output).into_iter().map(|mut message| message.take_message()).collect()
            } else {
                Vec::new()
            },
            id: self.id.take(),
            extra: std::mem::take(&mut self.extra),
        }
    }

    /// Frames that are no object of the protocol (docs/protocols/agent-api.md#errors).
    fn take_other(&mut self) -> AgentEvent<'a> {
        if let Some(value) = self.error {
            return AgentEvent::Error(AgentError::Raw { value, code: self.code.take() });
        }
        if self.msg_id.is_some() && (self.text.is_some() || self.data.is_some()) {
            return AgentEvent::Content(self.take_content());
        }
        if let (Some(code), Some(message)) = (self.code.take(), self.message.take()) {
            return AgentEvent::Error(AgentError::Named { code, message });
        }

        AgentEvent::Ignored
    }
}

/// Emits what frames report, and finds what the agent waits for at the end of its turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameReader {
    /// The condition that the last message of the agent waits for.
    awaits: Option<Awaits>,
}

impl FrameReader {
    /// Emits what a frame reports.
    ///
    /// # Errors
    /// Those of the sink.
    #[inline]
    pub fn read(&mut self, mut frame: Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let mut event = frame.take_event();
        match &mut event {
            AgentEvent::Message(message) => self.awaits = awaits(message),
            AgentEvent::Response(response) if response.end.is_some() => {
                // A server may repeat all messages at the end; the last of them is the last of the turn.
                self.awaits = response.output.last().map_or(self.awaits, awaits);
                response.awaits = self.awaits;
            }
            _ => {}
        }
        sink.emit(&event)
    }
}

/// The condition that the agent waits for, according to a message's metadata (docs/protocols/a2a.md#hints).
fn awaits(message: &MessageEvent<'_>) -> Option<Awaits> {
    let metadata = match message.metadata.as_ref()? {
        JsonRef::Borrowed(raw) => raw.get(),
        JsonRef::Owned(json) => json.text(),
    };
    // Nearly all metadata has nothing of this.
    if !metadata.contains("\"a2a\"") {
        return None;
    }

    let metadata: serde_json::Value = serde_json::from_str(metadata).ok()?;
    match metadata.pointer("/a2a/state")?.as_str()? {
        "input-required" => Some(Awaits::Input),
        "auth-required" => Some(Awaits::Auth),
        _ => None,
    }
}

/// A text. `None` if the value has another type.
struct Text<'a>(Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lenient;
        impl<'de> Visitor<'de> for Lenient {
            type Value = Option<Cow<'de, str>>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Some(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Some(Cow::Owned(text.to_owned())))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(None)
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
                Ok(None)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Some(Cow::Owned(number.to_string())))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Some(Cow::Owned(number.to_string())))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
                Ok(Some(Cow::Owned(number.to_string())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(None)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(None)
            }
        }
        deserializer.deserialize_any(Lenient).map(Text)
    }
}

/// A field's name.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Key;
        impl<'de> Visitor<'de> for Key {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field name")
            }
            fn visit_borrowed_str<E: de::Error>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(name))
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(name.to_owned()))
            }
        }
        deserializer.deserialize_str(Key).map(Name)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Frame<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut frame = Frame::<'de>::default();
        deserializer.deserialize_map(Fields { frame: &mut frame, unescaped: None })?;
        Ok(frame)
    }
}

/// Fills in the fields of a frame.
struct Fields<'f, 'a> {
    frame: &'f mut Frame<'a>,
    /// Where a text with escapes is written.
    unescaped: Option<&'a mut String>,
}

impl<'de> Visitor<'de> for Fields<'_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Self { frame, mut unescaped } = self;
        while let Some(Name(name)) = map.next_key::<Name<'de>>()? {
            match name.as_ref() {
                "object" => frame.object = map.next_value::<Text<'de>>()?.0,
                "status" => frame.status = map.next_value::<Text<'de>>()?.0,
                "error" => frame.error = present(map.next_value()?),
                "id" => frame.id = map.next_value::<Text<'de>>()?.0,
                "type" => frame.kind = map.next_value::<Text<'de>>()?.0,
                "role" => frame.role = map.next_value::<Text<'de>>()?.0,
                "content" => frame.content = present(map.next_value()?),
                "output" => frame.output = present(map.next_value()?),
                "usage" => frame.usage = present(map.next_value()?),
                "metadata" => frame.metadata = present(map.next_value()?),
                "code" => frame.code = map.next_value::<Text<'de>>()?.0,
                "message" => frame.message = map.next_value::<Text<'de>>()?.0,
                "index" => frame.index = number(map.next_value()?),
                "delta" => frame.delta = map.next_value::<&'de RawValue>()?.get() == "true",
                "msg_id" => frame.msg_id = map.next_value::<Text<'de>>()?.0,
                "text" => frame.text = lent_text(map.next_value()?, &mut unescaped),
                "refusal" => frame.refusal = map.next_value::<Text<'de>>()?.0,
                "image_url" => frame.image_url = map.next_value::<Text<'de>>()?.0,
                "video_url" => frame.video_url = map.next_value::<Text<'de>>()?.0,
                "data" => frame.data = present(map.next_value()?),
                "format" => frame.format = map.next_value::<Text<'de>>()?.0,
                "file_url" => frame.file_url = map.next_value::<Text<'de>>()?.0,
                "file_id" => frame.file_id = map.next_value::<Text<'de>>()?.0,
                "filename" | "file_name" => frame.filename = map.next_value::<Text<'de>>()?.0,
                "file_data" => frame.file_data = map.next_value::<Text<'de>>()?.0,
                "sequence_number" => frame.sequence_number = present(map.next_value()?),
                // Only the gateway has them.
                "created_at" | "completed_at" | "session_id" => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => frame.extra.push((name, map.next_value()?)),
            }
        }
        Ok(())
    }
}

/// Adds the frames of a list to others. Fails where an entry is no object.
struct Objects<'f, 'a>(&'f mut Vec<Frame<'a>>);

impl<'de> Visitor<'de> for Objects<'_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while let Some(frame) = seq.next_element()? {
            self.0.push(frame);
        }
        Ok(())
    }
}

/// A text. `None` if the value has another type. A text with escapes uses the offered memory.
#[inline]
fn lent_text<'a>(raw: &'a RawValue, unescaped: &mut Option<&'a mut String>) -> Option<Cow<'a, str>> {
    match unescaped.take_if(|_| json_string::has_escapes(raw)) {
        Some(unescaped) => json_string::lent(raw, unescaped).map(Cow::Borrowed),
        None => json_string::text(raw),
    }
}

fn present(raw: &RawValue) -> Option<&RawValue> {
    (raw.get() != "null").then_some(raw)
}

/// Slots are counted in small numbers; an absurd one is no slot.
fn number(raw: &RawValue) -> Option<u32> {
    raw.get().trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_read_without_copying() {
        let data = br#"{"sequence_number":3,"object":"content","status":"in_progress","error":null,"type":"text","index":0,"delta":true,"msg_id":"msg_02","text":"Hel"}"#;
        let frame = Frame::parse(data).expect("an object");
        assert!(matches!(frame.text, Some(Cow::Borrowed("Hel"))) && frame.delta && frame.index == Some(0));
        assert!(frame.error.is_none() && frame.extra.is_empty());
    }

    #[test]
    fn another_type_is_never_an_error() {
        let data = br#"{"object":"content","index":"2","delta":"yes","text":[1,{"a":2}],"role":{"x":1},"id":7,"odd":{"k":[]},"status":true}"#;
        let frame = Frame::parse(data).expect("an object");
        assert_eq!(frame.index, Some(2));
        assert_eq!(frame.id.as_deref(), Some("7"));
        assert!(frame.text.is_none() && frame.role.is_none() && !frame.delta);
        assert_eq!(frame.extra[0].1.get(), r#"{"k":[]}"#);
        assert!(Frame::parse(b"[1]").is_none() && Frame::parse(b"{\"a\":").is_none());
    }

    #[test]
    fn entries_of_a_list_that_are_no_frames_are_skipped() {
        let frame = |list: &'static str| Frame { content: serde_json::from_str(list).ok(), ..Frame::default() };
        let texts = |list: &'static str| -> Vec<_> {
            Frame::nested(frame(list).content).into_iter().filter_map(|content| content.text).collect()
        };
        assert_eq!(texts(r#"[{"text":"a"},{"text":"b"}]"#), ["a", "b"]);
        assert_eq!(texts(r#"[{"text":"a"},7,"x",[{"text":"c"}],{"text":1e999},{"text":"b"}]"#), ["a", "b"]);
        assert_eq!(texts(r#""plain""#), ["plain"]);
        assert!(texts("[]").is_empty() && texts(r#"{"text":"a"}"#).is_empty() && texts("7").is_empty());
    }

    #[test]
    fn unread_fields_need_not_be_utf8() {
        let parse = |data: &'static [u8]| Frame::parse(data).and_then(|frame| frame.text);
        assert_eq!(parse(b"{\"session_id\":\"\xff\",\"text\":\"a\"}").as_deref(), Some("a"));
        assert_eq!(parse(b"{\"text\":\"\xff\"}"), None);
    }
}
