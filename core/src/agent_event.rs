//! The events of an agent during a turn, typed and borrowed from the frame that contained them.
//!
//! Connectors emit these; [`crate::normalize::Normalizer`] turns them into the events of a run, whatever their order. A
//! connector emits only the events it received: it need not announce a message before its first content, close messages
//! that the agent left open, or remember emitted content.
//!
//! Not here: reading frames of a protocol (the connectors), and the grammar of a run's events ([`crate::event`]).

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::event::End;
use crate::json::{Extra, Json};
use crate::model::{Body, Content, ContentType, File, MessageType, Role, ToolCall};

/// Unknown fields of an object, in order.
pub type RawFields<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// An event that an agent reported.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AgentEvent<'a> {
    /// A content of a message: a delta, a snapshot, or its final value.
    Content(ContentEvent<'a>),
    /// A message: announced, or as a whole once it has ended.
    Message(MessageEvent<'a>),
    /// The answer as a whole: its start, its token usage, its end.
    Response(ResponseEvent<'a>),
    /// The agent reported an error and nothing else. The turn ends as failed.
    Error(AgentError<'a>),
    /// The agent is alive and has nothing to report. Not part of the run.
    KeepAlive,
    /// A frame that the connector read and that has no meaning in its protocol. Counted, for the log.
    Ignored,
}

/// A content of a message.
#[derive(Clone, Debug)]
pub struct ContentEvent<'a> {
    /// The agent's id of the message. `None` or empty: the message that is open.
    pub message: Option<Cow<'a, str>>,
    /// The content's index in its message, as the agent counts. `None`: the agent sent none.
    pub index: Option<u32>,
    /// The effect of the value on the earlier value.
    pub update: ContentUpdate,
    /// The value or the fragment of one.
    pub value: ContentValue<'a>,
    /// Unknown fields. Nearly always empty, and then without allocation.
    pub extra: RawFields<'a>,
}

/// The effect of a content event on the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentUpdate {
    /// Appends a fragment.
    Append,
    /// Replaces the content as a whole. More may follow.
    Snapshot,
    /// Replaces the content as a whole, and completes it.
    Final,
}

/// The value of a content, whole or a fragment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ContentValue<'a> {
    /// Text for the reader.
    Text(Cow<'a, str>),
    /// The agent declines, in words.
    Refusal(Cow<'a, str>),
    /// A tool call. Arguments are JSON text, or a fragment of it.
    Call(CallPart<'a>),
    /// Any JSON. `None`: no value yet.
    Data(Option<&'a RawValue>),
    /// JSON that the connector made itself.
    OwnedData(Json),
    /// The URL of an image, or a `data:` URL.
    Image(Option<Cow<'a, str>>),
    /// The URL of a video, or a `data:` URL.
    Video(Option<Cow<'a, str>>),
    /// Audio: base64, and its format such as `wav`.
    Audio {
        /// Base64 data. `None`: no data yet.
        data: Option<Cow<'a, str>>,
        /// Such as `wav` or `mp3`.
        format: Option<Cow<'a, str>>,
    },
    /// A file by URL, by id, or inline.
    File(File),
    /// A content of a type that this version does not know.
    Other(Cow<'a, str>),
}

/// A tool call or a part of one. Empty fields are not known yet.
#[derive(Clone, Debug, Default)]
pub struct CallPart<'a> {
    /// Identifies the call in the conversation.
    pub call_id: Cow<'a, str>,
    /// The tool's name.
    pub name: Cow<'a, str>,
    /// JSON text of the arguments, or a fragment of it.
    pub arguments: Cow<'a, str>,
    /// The MCP server that has the tool.
    pub server_label: Option<Cow<'a, str>>,
}

/// A message as a whole.
#[derive(Clone, Debug, Default)]
pub struct MessageEvent<'a> {
    /// The agent's id. `None` or empty: the message that is open, or a new one.
    pub id: Option<Cow<'a, str>>,
    /// Its type. `None`: the agent sent none.
    pub kind: Option<MessageType>,
    /// The author. `None`: determined by the type.
    pub role: Option<Role>,
    /// The end of the message. `None`: the message is announced, or continues.
    pub end: Option<End>,
    /// True if the agent reported that the message has not ended.
    pub in_progress: bool,
    /// Contents, in order. For a message that has ended they are authoritative: missing content is emitted, and content
    /// that was emitted before is not repeated.
    pub contents: Vec<ContentEvent<'a>>,
    /// Tokens spent on it.
    pub usage: Option<JsonRef<'a>>,
    /// Data of the application, passed through.
    pub metadata: Option<JsonRef<'a>>,
    /// Error code of a message that reports an error.
    pub code: Option<Cow<'a, str>>,
    /// Error text of a message of type `error`.
    pub text: Option<Cow<'a, str>>,
    /// An error that the message contains in addition.
    pub error: Option<AgentError<'a>>,
    /// Unknown fields.
    pub extra: RawFields<'a>,
}

/// The answer as a whole.
#[derive(Clone, Debug, Default)]
pub struct ResponseEvent<'a> {
    /// The agent's id of the answer. An end with another id takes effect only if no other end arrives
    /// (docs/protocols/agent-api.md#repair-13).
    pub id: Option<Cow<'a, str>>,
    /// True if the agent has started to work on the request.
    pub started: bool,
    /// The end of the turn. `None`: the turn continues.
    pub end: Option<End>,
    /// The reason for the end.
    pub error: Option<AgentError<'a>>,
    /// The condition that the agent waits for, besides pending items in its messages.
    pub awaits: Option<Awaits>,
    /// Tokens spent on the turn.
    pub usage: Option<JsonRef<'a>>,
    /// All messages of the turn, from an agent that repeats them at its end. Authoritative for the messages in it.
    pub output: Vec<MessageEvent<'a>>,
    /// Unknown fields.
    pub extra: RawFields<'a>,
}

/// The task that a completed turn leaves to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Awaits {
    /// More input.
    Input,
    /// A login.
    Auth,
}

/// An error as the agent reported it. Clients get it filtered ([`crate::filter`]).
#[derive(Clone, Debug)]
pub enum AgentError<'a> {
    /// `{"code", "message"}`, a bare text, or any other JSON that the agent sent as an error.
    Raw {
        /// The JSON.
        value: &'a RawValue,
        /// The code to take if the JSON has none.
        code: Option<Cow<'a, str>>,
    },
    /// Code and text.
    Named {
        /// Empty: the agent gave none.
        code: Cow<'a, str>,
        /// The agent's sentence.
        message: Cow<'a, str>,
    },
}

/// JSON of the agent, or JSON that the connector made.
#[derive(Clone, Debug)]
pub enum JsonRef<'a> {
    /// The value as it appears in the frame.
    Borrowed(&'a RawValue),
    /// Made by the connector.
    Owned(Json),
}

impl<'a> AgentError<'a> {
    /// An error as it appears in the frame.
    #[must_use]
    pub const fn raw(value: &'a RawValue) -> Self {
        Self::Raw { value, code: None }
    }

    /// An error with a code and a sentence.
    #[must_use]
    pub fn named(code: impl Into<Cow<'a, str>>, message: impl Into<Cow<'a, str>>) -> Self {
        Self::Named { code: code.into(), message: message.into() }
    }
}

impl JsonRef<'_> {
    /// The JSON, owned.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Self::Borrowed(raw) => Json::from_raw(raw),
            Self::Owned(json) => json.clone(),
        }
    }
}

/// Unknown fields, owned.
#[must_use]
pub(crate) fn to_extra(fields: &[(Cow<'_, str>, &RawValue)]) -> Extra {
    fields.iter().map(|(name, value)| (name.clone().into_owned(), Json::from_raw(value))).collect()
}

impl<'a> AgentEvent<'a> {
    /// A fragment of text for message `message`.
    ///
    /// ```
    /// use interlingua_core::agent_event::AgentEvent;
    /// use interlingua_core::normalize::Normalizer;
    /// use interlingua_core::run::{Record, Run};
    /// use interlingua_core::RunId;
    ///
    /// let mut record = Record::new(Run::new(RunId(Default::default()), "agent", "session", 0));
    /// record.start_turn(Vec::new());
    ///
    /// let mut normalizer = Normalizer::new(1 << 20);
    /// for word in ["Hello", ", ", "world"] {
    ///     normalizer.emit(&mut record, &AgentEvent::text("m1", word)).unwrap();
    /// }
    /// normalizer.emit(&mut record, &AgentEvent::completed()).unwrap();
    ///
    /// assert_eq!(record.run().messages[0].text(), "Hello, world");
    /// ```
    #[must_use]
    pub fn text(message: &'a str, delta: &'a str) -> Self {
        Self::Content(ContentEvent::append(message, ContentValue::Text(Cow::Borrowed(delta))))
    }

    /// A fragment of a refusal for message `message`.
    #[must_use]
    pub fn refusal(message: &'a str, delta: &'a str) -> Self {
        Self::Content(ContentEvent::append(message, ContentValue::Refusal(Cow::Borrowed(delta))))
    }

    /// Announces a message of a type other than text.
    #[must_use]
    pub fn message(id: &'a str, kind: MessageType) -> Self {
        Self::Message(MessageEvent { id: Some(Cow::Borrowed(id)), kind: Some(kind), ..MessageEvent::default() })
    }

    /// A complete message of one content.
    #[must_use]
    pub fn whole(id: &'a str, kind: MessageType, role: Role, value: ContentValue<'a>) -> Self {
        Self::Message(MessageEvent {
            id: Some(Cow::Borrowed(id)),
            kind: Some(kind),
            role: Some(role),
            end: Some(End::Completed),
            contents: vec![ContentEvent::new(id, ContentUpdate::Final, value).at(0)],
            ..MessageEvent::default()
        })
    }

    /// The end of a message without further contents.
    #[must_use]
    pub fn message_finished(id: &'a str, end: End) -> Self {
        Self::Message(MessageEvent { id: Some(Cow::Borrowed(id)), end: Some(end), ..MessageEvent::default() })
    }

    /// A part of the tool call that is message `message`: its id and name once, its arguments piece by piece.
    #[must_use]
    pub fn call(message: &'a str, part: CallPart<'a>) -> Self {
        Self::Content(ContentEvent::append(message, ContentValue::Call(part)))
    }

    /// The agent has started to work on the request.
    #[must_use]
    pub fn started() -> Self {
        Self::Response(ResponseEvent { started: true, ..ResponseEvent::default() })
    }

    /// The token usage of the turn so far. The last such event applies.
    #[must_use]
    pub fn usage(usage: Json) -> Self {
        Self::Response(ResponseEvent { usage: Some(JsonRef::Owned(usage)), ..ResponseEvent::default() })
    }

    /// The turn completed.
    #[must_use]
    pub fn completed() -> Self {
        Self::finished(End::Completed)
    }

    /// The turn ended.
    #[must_use]
    pub fn finished(end: End) -> Self {
        Self::Response(ResponseEvent { end: Some(end), ..ResponseEvent::default() })
    }
}

impl<'a> ContentEvent<'a> {
    /// A fragment for a message's content.
    #[must_use]
    pub fn append(message: &'a str, value: ContentValue<'a>) -> Self {
        Self::new(message, ContentUpdate::Append, value)
    }

    /// An event for a content of a message, without an index.
    #[must_use]
    pub const fn new(message: &'a str, update: ContentUpdate, value: ContentValue<'a>) -> Self {
        Self { message: Some(Cow::Borrowed(message)), index: None, update, value, extra: Vec::new() }
    }

    /// The same event with the content's index in its message.
    #[must_use]
    pub const fn at(mut self, index: u32) -> Self {
        self.index = Some(index);
        self
    }

    /// True if the value is a fragment.
    #[must_use]
    pub fn is_delta(&self) -> bool {
        self.update == ContentUpdate::Append
    }

    /// The type of the content.
    #[must_use]
    pub fn content_type(&self) -> ContentType {
        match &self.value {
            ContentValue::Text(_) => ContentType::Text,
            ContentValue::Refusal(_) => ContentType::Refusal,
            ContentValue::Call(_) | ContentValue::Data(_) | ContentValue::OwnedData(_) => ContentType::Data,
            ContentValue::Image(_) => ContentType::Image,
            ContentValue::Video(_) => ContentType::Video,
            ContentValue::Audio { .. } => ContentType::Audio,
            ContentValue::File(_) => ContentType::File,
            ContentValue::Other(word) => ContentType::from(word.as_ref()),
        }
    }

    /// The text or refusal in this event. Empty for any other value.
    #[must_use]
    pub fn as_text(&self) -> &str {
        match &self.value {
            ContentValue::Text(text) | ContentValue::Refusal(text) => text,
            _ => "",
        }
    }

    /// The data in this event. `None`: the value is no data.
    #[must_use]
    pub fn to_data(&self) -> Option<Json> {
        match &self.value {
            ContentValue::Data(raw) => raw.map(Json::from_raw),
            ContentValue::OwnedData(json) => Some(json.clone()),
            ContentValue::Call(part) => Some(Json::from_serialize(&part.to_call())),
            _ => None,
        }
    }

    /// The value, owned.
    #[must_use]
    pub fn to_content(&self) -> Content {
        fn own(text: Option<&Cow<'_, str>>) -> Option<String> {
            text.map(|text| text.clone().into_owned())
        }

        let body = match &self.value {
            ContentValue::Text(text) => Body::Text(text.clone().into_owned()),
            ContentValue::Refusal(text) => Body::Refusal(text.clone().into_owned()),
            ContentValue::Image(url) => Body::Image(own(url.as_ref())),
            ContentValue::Video(url) => Body::Video(own(url.as_ref())),
            ContentValue::Audio { data, format } => {
                Body::Audio { data: own(data.as_ref()), format: own(format.as_ref()) }
            }
            ContentValue::File(file) => Body::File(file.clone()),
            ContentValue::Other(word) => Body::Other(word.clone().into_owned().into_boxed_str()),
            ContentValue::Data(_) | ContentValue::OwnedData(_) | ContentValue::Call(_) => {
                Body::Data(self.to_data().unwrap_or_else(Json::null))
            }
        };
        Content { body, extra: to_extra(&self.extra) }
    }
}

impl<'a> CallPart<'a> {
    /// Parses the data of a call, and its other fields. `None`: the data is not an object. A value that is not a string
    /// becomes its JSON text.
    #[must_use]
    pub fn parse(raw: &'a RawValue) -> Option<(Self, RawFields<'a>)> {
        fn text(raw: &RawValue) -> Cow<'_, str> {
            #[derive(Deserialize)]
            struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
            match raw.get() {
                "null" => Cow::Borrowed(""),
                text => serde_json::from_str::<Text<'_>>(text).map_or(Cow::Borrowed(text), |text| text.0),
            }
        }

        let fields: FieldList<'a> = serde_json::from_str(raw.get()).ok()?;
        let mut part = Self::default();
        let mut rest = Vec::new();
        for (name, value) in fields.0 {
            match name.as_ref() {
                "call_id" => part.call_id = text(value),
                "name" => part.name = text(value),
                "arguments" => part.arguments = text(value),
                "server_label" => part.server_label = (value.get() != "null").then(|| text(value)),
                _ => rest.push((name, value)),
            }
        }
        Some((part, rest))
    }
}

/// The fields of an object, in order.
struct FieldList<'a>(RawFields<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for FieldList<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = FieldList<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                #[derive(Deserialize)]
                struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
                let mut fields = Vec::with_capacity(4);
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    fields.push((name, value));
                }
                Ok(FieldList(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

impl CallPart<'_> {
    /// The same part without borrowed texts.
    #[must_use]
    pub fn into_owned(self) -> CallPart<'static> {
        fn own(text: Cow<'_, str>) -> Cow<'static, str> {
            Cow::Owned(text.into_owned())
        }

        CallPart {
            call_id: own(self.call_id),
            name: own(self.name),
            arguments: own(self.arguments),
            server_label: self.server_label.map(own),
        }
    }

    /// The call, owned.
    #[must_use]
    pub fn to_call(&self) -> ToolCall {
        ToolCall {
            call_id: self.call_id.clone().into_owned(),
            name: self.name.clone().into_owned(),
            arguments: self.arguments.clone().into_owned(),
            server_label: self.server_label.clone().map(Cow::into_owned),
        }
    }
}

/// An empty content of a type.
#[must_use]
pub(crate) fn empty_body(kind: &ContentType) -> Body {
    match kind {
        ContentType::Text => Body::Text(String::new()),
        ContentType::Refusal => Body::Refusal(String::new()),
        ContentType::Image => Body::Image(None),
        ContentType::Video => Body::Video(None),
        ContentType::Data => Body::Data(Json::null()),
        ContentType::Audio => Body::Audio { data: None, format: None },
        ContentType::File => Body::File(File::default()),
        ContentType::Other(word) => Body::Other(word.clone()),
    }
}
