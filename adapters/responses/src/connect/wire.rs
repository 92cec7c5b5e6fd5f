//! JSON of a server, read without copying. A value of an unexpected type is treated as absent.

use std::borrow::Cow;
use std::fmt;

use interlingua_core::json_string;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A JSON value as written in the answer. Never `null`.
pub(super) type Raw<'a> = Option<&'a RawValue>;

/// One event of a stream, or the one object of an answer that is not streamed. Values are parsed when they are needed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event<'a> {
    pub(super) kind: Raw<'a>,
    pub(super) object: Raw<'a>,
    pub(super) sequence_number: Raw<'a>,
    pub(super) output_index: Raw<'a>,
    pub(super) content_index: Raw<'a>,
    pub(super) summary_index: Raw<'a>,
    pub(super) item_id: Raw<'a>,
    pub(super) delta: Raw<'a>,
    /// Padding of random length, which hides the length of the delta from observers of the connection.
    pub(super) obfuscation: Raw<'a>,
    pub(super) text: Raw<'a>,
    pub(super) refusal: Raw<'a>,
    pub(super) arguments: Raw<'a>,
    pub(super) input: Raw<'a>,
    pub(super) code: Raw<'a>,
    pub(super) name: Raw<'a>,
    pub(super) format: Raw<'a>,
    pub(super) item: Raw<'a>,
    pub(super) part: Raw<'a>,
    pub(super) response: Raw<'a>,
    pub(super) error: Raw<'a>,
    pub(super) message: Raw<'a>,
    pub(super) choices: Raw<'a>,
}

impl<'a> Event<'a> {
    /// Reads an object. `None`: it is not one.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Event<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Event<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event<'de>, A::Error> {
                let mut event = Event::default();
                while let Some(Name(name)) = map.next_key::<Name<'de>>()? {
                    let place = match name.as_ref() {
                        "type" => &mut event.kind,
                        "object" => &mut event.object,
                        "sequence_number" => &mut event.sequence_number,
                        "output_index" => &mut event.output_index,
                        "content_index" => &mut event.content_index,
                        "summary_index" => &mut event.summary_index,
                        "item_id" => &mut event.item_id,
                        "delta" => &mut event.delta,
                        "obfuscation" => &mut event.obfuscation,
                        "text" | "transcript" => &mut event.text,
                        "refusal" => &mut event.refusal,
                        "arguments" => &mut event.arguments,
                        "input" => &mut event.input,
                        "code" => &mut event.code,
                        "name" => &mut event.name,
                        "format" => &mut event.format,
                        "item" => &mut event.item,
                        "part" => &mut event.part,
                        "response" => &mut event.response,
                        "error" => &mut event.error,
                        "message" => &mut event.message,
                        "choices" => &mut event.choices,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *place = present(map.next_value()?);
                }
                Ok(event)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// The fields of an object, in order. For a repeated field, the first value is used.
#[derive(Clone, Debug, Default)]
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Reads an object. `None`: it is not one.
    pub(super) fn parse(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// A present field that is not `null`.
    pub(super) fn get(&self, name: &str) -> Raw<'a> {
        let found = self.0.iter().find(|(field, _)| field == name).map(|(_, value)| *value);
        found.and_then(present)
    }

    pub(super) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        text(self.get(name))
    }

    /// A string that says something, or nothing.
    pub(super) fn word(&self, name: &str) -> Cow<'a, str> {
        self.text(name).unwrap_or_default()
    }

    /// The object in a field.
    pub(super) fn object(&self, name: &str) -> Option<Object<'a>> {
        self.get(name).and_then(Object::parse)
    }

    /// The entries of a list. Nothing else has any.
    pub(super) fn list(&self, name: &str) -> Vec<&'a RawValue> {
        self.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    fields.push((name, value));
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

fn present(raw: &RawValue) -> Raw<'_> {
    (raw.get() != "null").then_some(raw)
}

pub(super) fn text(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    json_string::text(raw?)
}

/// A string, unescaped into memory that is used again and again. Anything else is empty.
pub(super) fn lent_text<'t>(raw: Raw<'t>, scratch: &'t mut String) -> &'t str {
    raw.and_then(|raw| json_string::lent(raw, scratch)).unwrap_or_default()
}

/// JSON text: what a string holds, or the text of any other value.
pub(super) fn json_text(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    let raw = raw?;
    text(Some(raw)).or(Some(Cow::Borrowed(raw.get())))
}

/// A whole number, also if it is written in quotes or as a float.
pub(super) fn number(raw: Raw<'_>) -> Option<u64> {
    let raw = raw?;
    let digits = json_string::quoted(raw.get()).unwrap_or(raw.get());
    let digits = digits.strip_suffix(".0").unwrap_or(digits);
    digits.parse().ok()
}

/// An index. Absurdly large values are ignored.
pub(super) fn index(raw: Raw<'_>) -> Option<u32> {
    number(raw).and_then(|number| u32::try_from(number).ok()).filter(|index| *index < u32::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).expect("JSON")
    }

    #[test]
    fn values_of_other_types_are_absent() {
        assert_eq!(text(Some(raw("7"))), None);
        assert_eq!(number(Some(raw("\"3\""))), Some(3));
        assert_eq!(number(Some(raw("3.0"))), Some(3));
        for none in ["-1", "1e9", "[1]", "\"x\"", "99999999999999999999999"] {
            assert_eq!(number(Some(raw(none))), None, "{none}");
        }
        assert_eq!(index(Some(raw("4294967295"))), None);
        assert_eq!(json_text(Some(raw(r#"{"a":1}"#))).as_deref(), Some(r#"{"a":1}"#));

        let event = Event::parse(br#"{"type":"t","delta":null,"type":"u","unknown":{"a":[]}}"#).expect("an object");
        assert!(event.delta.is_none());
        assert_eq!(text(event.kind).as_deref(), Some("u"));
        assert!(Event::parse(b"[1]").is_none() && Event::parse(b"{} {}").is_none() && Event::parse(b"").is_none());

        let object = raw(r#"{"list":[1,{"a":2}],"word":5}"#);
        let object = Object::parse(object).expect("an object");
        assert_eq!((object.list("list").len(), object.list("word").len(), object.word("word").as_ref()), (2, 0, ""));
    }
}
