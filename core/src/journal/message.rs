//! The serialized form of messages and contents. Unlike in a request, every field has a fixed position, so that nothing
//! is lost or ambiguous.
//!
//! Not here: metadata of a run ([`super::about`]).

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeSeq, SerializeTuple, Serializer};

use crate::json::{Extra, Json};
use crate::model::{self, Body, File, MessageType, Role, Status};

/// The serialized form of a value, without loss. For [`model::Message`], [`model::Content`] and
/// [`crate::call::RunInfo`]: `SerializedValue(&value)` serializes, `SerializedValue<Value>` deserializes.
#[derive(Clone, Debug, PartialEq)]
pub struct SerializedValue<T>(pub T);

impl Serialize for SerializedValue<&model::Message> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Message(self.0).serialize(serializer)
    }
}

impl Serialize for SerializedValue<&model::Content> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Content(self.0).serialize(serializer)
    }
}

/// An optional value that distinguishes missing from `null`.
pub(super) struct Optional<'a>(pub(super) Option<&'a Json>);

impl Serialize for Optional<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.map(|json| (json,)).serialize(serializer)
    }
}

pub(super) struct Message<'a>(pub(super) &'a model::Message);

impl Serialize for Message<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = self.0;
        let contents: Vec<_> = message.content.iter().map(Content).collect();

        let mut items = serializer.serialize_tuple(10)?;
        items.serialize_element(&message.id)?;
        items.serialize_element(&message.kind)?;
        items.serialize_element(&message.role)?;
        items.serialize_element(&message.status)?;
        items.serialize_element(&contents)?;
        items.serialize_element(&message.code)?;
        items.serialize_element(&message.message)?;
        items.serialize_element(&Optional(message.usage.as_ref()))?;
        items.serialize_element(&Optional(message.metadata.as_ref()))?;
        items.serialize_element(&message.extra)?;
        items.end()
    }
}

type MessageItems = (
    Option<String>,
    MessageType,
    Option<Role>,
    Option<Status>,
    Vec<SerializedValue<model::Content>>,
    Option<String>,
    Option<String>,
    Option<(Json,)>,
    Option<(Json,)>,
    Extra,
);

impl<'de> Deserialize<'de> for SerializedValue<model::Message> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (id, kind, role, status, content, code, message, usage, metadata, extra) =
            MessageItems::deserialize(deserializer)?;
        Ok(Self(model::Message {
            id,
            kind,
            role,
            status,
            content: content.into_iter().map(|SerializedValue(content)| content).collect(),
            code,
            message,
            usage: usage.map(|(json,)| json),
            metadata: metadata.map(|(json,)| json),
            extra,
        }))
    }
}

pub(super) struct Content<'a>(pub(super) &'a model::Content);

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut items = serializer.serialize_seq(None)?;
        match &self.0.body {
            Body::Text(text) => serialize_tagged(&mut items, "text", &[text])?,
            Body::Refusal(text) => serialize_tagged(&mut items, "refusal", &[text])?,
            Body::Image(url) => serialize_tagged(&mut items, "image", &[url])?,
            Body::Data(data) => serialize_tagged(&mut items, "data", &[data])?,
            Body::Audio { data, format } => serialize_tagged(&mut items, "audio", &[data, format])?,
            Body::Video(url) => serialize_tagged(&mut items, "video", &[url])?,
            Body::File(file) => serialize_tagged(&mut items, "file", &[&file.url, &file.id, &file.name, &file.data])?,
            Body::Other(word) => serialize_tagged(&mut items, "other", &[word])?,
        }

        items.serialize_element(&self.0.extra)?;
        items.end()
    }
}

fn serialize_tagged<S: SerializeSeq, T: Serialize>(items: &mut S, tag: &str, values: &[T]) -> Result<(), S::Error> {
    items.serialize_element(tag)?;
    values.iter().try_for_each(|value| items.serialize_element(value))
}

impl<'de> Deserialize<'de> for SerializedValue<model::Content> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContentVisitor;
        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = model::Content;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a content")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let tag: String = next_item(&mut items)?;
                let body = match tag.as_str() {
                    "text" => Body::Text(next_item(&mut items)?),
                    "refusal" => Body::Refusal(next_item(&mut items)?),
                    "image" => Body::Image(next_item(&mut items)?),
                    "data" => Body::Data(next_item(&mut items)?),
                    "audio" => Body::Audio { data: next_item(&mut items)?, format: next_item(&mut items)? },
                    "video" => Body::Video(next_item(&mut items)?),
                    "file" => Body::File(File {
                        url: next_item(&mut items)?,
                        id: next_item(&mut items)?,
                        name: next_item(&mut items)?,
                        data: next_item(&mut items)?,
                    }),
                    "other" => Body::Other(next_item::<String, A>(&mut items)?.into()),
                    _ => return Err(A::Error::custom("unknown content type")),
                };
                Ok(model::Content { body, extra: next_item(&mut items)? })
            }
        }
        deserializer.deserialize_seq(ContentVisitor).map(SerializedValue)
    }
}

fn next_item<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(items: &mut A) -> Result<T, A::Error> {
    items.next_element()?.ok_or_else(|| A::Error::custom("the line has too few items"))
}
