//! One frame of a native stream, as it was heard: borrowed, in one pass, and believed as little as possible.
//!
//! Any field may be missing, null, or of another type than the specification says; none of that is an error here
//! (Agent API, section 12). What it means for the run is [`crate::normalize`]'s to judge. Readers of other upstream
//! protocols make these too: it is the vocabulary in which every upstream is told to the normalizer.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::{Extra, Json};
use crate::model::{Body, Content, ContentType, File};

/// A frame, or an object nested in one.
#[derive(Clone, Debug, Default)]
pub struct Heard<'a> {
    /// `response`, `message`, `content`.
    pub object: Option<Cow<'a, str>>,
    /// How far it is.
    pub status: Option<Cow<'a, str>>,
    /// A complaint: an object, or a bare text.
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
    /// What it cost.
    pub usage: Option<&'a RawValue>,
    /// Free for applications.
    pub metadata: Option<&'a RawValue>,
    /// Error code of a message, or of a bare error frame.
    pub code: Option<Cow<'a, str>>,
    /// Error text of a message, or of a bare error frame.
    pub message: Option<Cow<'a, str>>,
    /// Slot of a content.
    pub index: Option<u32>,
    /// Whether a content is a fragment.
    pub delta: bool,
    /// Message a content belongs to.
    pub msg_id: Option<Cow<'a, str>>,
    /// Of a text.
    pub text: Option<Cow<'a, str>>,
    /// Of a refusal.
    pub refusal: Option<Cow<'a, str>>,
    /// Of an image.
    pub image_url: Option<Cow<'a, str>>,
    /// Of a film.
    pub video_url: Option<Cow<'a, str>>,
    /// Of data (an object) or sound (a text).
    pub data: Option<&'a RawValue>,
    /// Of sound.
    pub format: Option<Cow<'a, str>>,
    /// Of a file.
    pub file_url: Option<Cow<'a, str>>,
    /// Of a file.
    pub file_id: Option<Cow<'a, str>>,
    /// Of a file.
    pub filename: Option<Cow<'a, str>>,
    /// Of a file.
    pub file_data: Option<Cow<'a, str>>,
    /// Fields this version has no name for. Empty, and without allocation, nearly always.
    pub extra: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Heard<'a> {
    /// Reads one frame's data. None if it is no JSON object.
    #[must_use]
    pub fn read(data: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    /// The unknown fields, kept.
    #[must_use]
    pub fn extra(&self) -> Extra {
        self.extra.iter().map(|(name, value)| (name.clone().into_owned(), Json::from_raw(value))).collect()
    }

    /// The type of a content: as told, else by the field that is there.
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

    /// The content's value as it stands in this frame.
    #[must_use]
    pub fn body(&self) -> Content {
        fn own(text: Option<&Cow<'_, str>>) -> Option<String> {
            text.map(|text| text.clone().into_owned())
        }
        let body = match self.content_type() {
            ContentType::Text => Body::Text(own(self.text.as_ref()).unwrap_or_default()),
            ContentType::Refusal => Body::Refusal(own(self.refusal.as_ref()).unwrap_or_default()),
            ContentType::Image => Body::Image(own(self.image_url.as_ref())),
            ContentType::Video => Body::Video(own(self.video_url.as_ref())),
            ContentType::Data => Body::Data(self.data.map_or_else(Json::null, Json::from_raw)),
            ContentType::Audio => Body::Audio {
                data: self.data.and_then(|raw| serde_json::from_str(raw.get()).ok()),
                format: own(self.format.as_ref()),
            },
            ContentType::File => Body::File(File {
                url: own(self.file_url.as_ref()),
                id: own(self.file_id.as_ref()),
                name: own(self.filename.as_ref()),
                data: own(self.file_data.as_ref()),
            }),
            ContentType::Other(word) => Body::Other(word),
        };
        Content { body, extra: self.extra() }
    }

    /// The objects nested in `content` or `output`. What is no object there is passed over.
    #[must_use]
    pub fn nested(raw: Option<&'a RawValue>) -> Vec<Heard<'a>> {
        struct Entry<'a>(Option<Heard<'a>>);
        impl<'de: 'a, 'a> Deserialize<'de> for Entry<'a> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let raw = <&RawValue>::deserialize(deserializer)?;
                Ok(Self(serde_json::from_str(raw.get()).ok()))
            }
        }
        let Some(raw) = raw else { return Vec::new() };
        if let Some(text) = raw.get().strip_prefix('"').and_then(|_| serde_json::from_str::<Text<'a>>(raw.get()).ok()) {
            // A message's content as a bare string, as other implementations have it.
            return vec![Heard { text: text.0, ..Heard::default() }];
        }
        serde_json::from_str::<Vec<Entry<'a>>>(raw.get())
            .map(|entries| entries.into_iter().filter_map(|entry| entry.0).collect())
            .unwrap_or_default()
    }
}

/// A text, or nothing where something else stood.
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

impl<'de: 'a, 'a> Deserialize<'de> for Heard<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Frame;
        impl<'de> Visitor<'de> for Frame {
            type Value = Heard<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut heard = Heard::default();
                while let Some(Name(name)) = map.next_key::<Name<'de>>()? {
                    match name.as_ref() {
                        "object" => heard.object = map.next_value::<Text<'de>>()?.0,
                        "status" => heard.status = map.next_value::<Text<'de>>()?.0,
                        "error" => heard.error = present(map.next_value()?),
                        "id" => heard.id = map.next_value::<Text<'de>>()?.0,
                        "type" => heard.kind = map.next_value::<Text<'de>>()?.0,
                        "role" => heard.role = map.next_value::<Text<'de>>()?.0,
                        "content" => heard.content = present(map.next_value()?),
                        "output" => heard.output = present(map.next_value()?),
                        "usage" => heard.usage = present(map.next_value()?),
                        "metadata" => heard.metadata = present(map.next_value()?),
                        "code" => heard.code = map.next_value::<Text<'de>>()?.0,
                        "message" => heard.message = map.next_value::<Text<'de>>()?.0,
                        "index" => heard.index = number(map.next_value()?),
                        "delta" => heard.delta = map.next_value::<&'de RawValue>()?.get() == "true",
                        "msg_id" => heard.msg_id = map.next_value::<Text<'de>>()?.0,
                        "text" => heard.text = map.next_value::<Text<'de>>()?.0,
                        "refusal" => heard.refusal = map.next_value::<Text<'de>>()?.0,
                        "image_url" => heard.image_url = map.next_value::<Text<'de>>()?.0,
                        "video_url" => heard.video_url = map.next_value::<Text<'de>>()?.0,
                        "data" => heard.data = present(map.next_value()?),
                        "format" => heard.format = map.next_value::<Text<'de>>()?.0,
                        "file_url" => heard.file_url = map.next_value::<Text<'de>>()?.0,
                        "file_id" => heard.file_id = map.next_value::<Text<'de>>()?.0,
                        "filename" | "file_name" => heard.filename = map.next_value::<Text<'de>>()?.0,
                        "file_data" => heard.file_data = map.next_value::<Text<'de>>()?.0,
                        // Arrival order is what counts (section 12, rule 4); the rest is the gateway's own to say.
                        "sequence_number" | "created_at" | "completed_at" | "session_id" => {
                            map.next_value::<IgnoredAny>()?;
                        }
                        _ => heard.extra.push((name, map.next_value()?)),
                    }
                }
                Ok(heard)
            }
        }
        deserializer.deserialize_map(Frame)
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
        let heard = Heard::read(data).expect("an object");
        assert!(matches!(heard.text, Some(Cow::Borrowed("Hel"))) && heard.delta && heard.index == Some(0));
        assert!(heard.error.is_none() && heard.extra.is_empty());
    }

    #[test]
    fn nothing_of_another_type_is_an_error() {
        let data = br#"{"object":"content","index":"2","delta":"yes","text":[1,{"a":2}],"role":{"x":1},"id":7,"odd":{"k":[]},"status":true}"#;
        let heard = Heard::read(data).expect("an object");
        assert_eq!(heard.index, Some(2));
        assert_eq!(heard.id.as_deref(), Some("7"));
        assert!(heard.text.is_none() && heard.role.is_none() && !heard.delta);
        assert_eq!(heard.extra().get("odd").map(Json::text), Some(r#"{"k":[]}"#));
        assert!(Heard::read(b"[1]").is_none() && Heard::read(b"{\"a\":").is_none());
    }
}
