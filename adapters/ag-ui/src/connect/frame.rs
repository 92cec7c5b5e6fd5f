//! Events as they appear in their frames: borrowed, read in one pass, with no assumption about the type of any field.
//!
//! [`Head`] has the fields of text fragments, which are nearly all frames. [`Fields`] has all fields, for the other
//! frames. Not here: the meaning of an event ([`super::reader`]).

use std::borrow::Cow;
use std::fmt;

use interlingua_core::json_string::{self, lent};
use interlingua_core::lenient::Name;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of an event that fragments have.
#[derive(Debug, Default)]
pub(super) struct Head<'a> {
    kind: Option<&'a RawValue>,
    message_id: Option<&'a RawValue>,
    call_id: Option<&'a RawValue>,
    delta: Option<&'a RawValue>,
}

impl<'a> Head<'a> {
    /// Reads the fields of a frame. None: it is no JSON object.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The event's type. Empty: it has none.
    pub(super) fn kind(&self) -> Cow<'a, str> {
        self.kind.and_then(text).unwrap_or_default()
    }

    /// The message that a fragment belongs to. Empty: the event does not say.
    pub(super) fn message_id(&self) -> Cow<'a, str> {
        self.message_id.and_then(text).unwrap_or_default()
    }

    /// The call that a fragment belongs to. Empty: the event does not say.
    pub(super) fn call_id(&self) -> Cow<'a, str> {
        self.call_id.and_then(text).unwrap_or_default()
    }

    /// The fragment. `unescaped` is where one with escapes is written, so that it needs no memory of its own.
    pub(super) fn delta<'s>(&self, unescaped: &'s mut String) -> &'s str
    where
        'a: 's,
    {
        let Some(raw) = self.delta else { return "" };
        match (lent(raw, unescaped), raw.get()) {
            (Some(text), _) => text,
            (None, "null") => "",
            // Arguments as JSON instead of its text.
            (None, json) => json,
        }
    }
}

impl<'de> Deserialize<'de> for Head<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyEvent;

        impl<'de> Visitor<'de> for AnyEvent {
            type Value = Head<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut head = Head::default();
                while let Some(Name(name)) = map.next_key()? {
                    let field = match name.as_ref() {
                        "type" => &mut head.kind,
                        "messageId" | "message_id" => &mut head.message_id,
                        "toolCallId" | "tool_call_id" => &mut head.call_id,
                        "delta" => &mut head.delta,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *field = Some(map.next_value()?);
                }
                Ok(head)
            }
        }

        deserializer.deserialize_map(AnyEvent)
    }
}

/// The fields of an object, in order. A field that is `null` is absent.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// The fields, if the value is an object.
    pub(super) fn parse(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// The value of a field, under its name or the same in snake case. The last one counts.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let exact = self.0.iter().rev().find(|(known, _)| known == name);
        let found = exact.or_else(|| self.0.iter().rev().find(|(known, _)| is_snake_case_of(known, name)));
        found.map(|(_, value)| *value).filter(|value| value.get() != "null")
    }

    /// A field as text: a string, or a number by its digits. Empty texts are absent.
    pub(super) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(text).filter(|text| !text.is_empty())
    }

    /// The fields of an object in a field.
    pub(super) fn object(&self, name: &str) -> Option<Self> {
        Self::parse(self.get(name)?.get())
    }

    /// The entries of a list in a field. Empty if the field is no list.
    pub(super) fn list(&self, name: &str) -> Vec<&'a RawValue> {
        self.get(name).map(|list| entries(list)).unwrap_or_default()
    }

    /// All fields as they stand.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), *value))
    }
}

/// The entries of a list. Empty if the value is no list.
pub(super) fn entries(list: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(list.get()).unwrap_or_default()
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyObject;

        impl<'de> Visitor<'de> for AnyObject {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(AnyObject)
    }
}

/// True if `known` is a name in camel case written in snake case.
fn is_snake_case_of(known: &str, name: &str) -> bool {
    fn letters(word: &str) -> impl Iterator<Item = u8> {
        word.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase())
    }
    known.contains('_') && letters(known).eq(letters(name))
}

/// A value as text: a string, or a number by its digits. None: anything else.
pub(super) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let is_number = raw.get().starts_with(|first: char| first.is_ascii_digit() || first == '-');
    json_string::text(raw).or(is_number.then_some(Cow::Borrowed(raw.get())))
}

/// A string, or the JSON of any other value.
pub(super) fn text_or_json(raw: &RawValue) -> Cow<'_, str> {
    json_string::text(raw).unwrap_or(Cow::Borrowed(raw.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_as_any_json_parser_reads_them() {
        let mut unescaped = String::new();
        for json in [
            r#""plain""#,
            r#""a\nb\tc\rd\be\ff\/g\\h\"i""#,
            r#""\u00e9\u20ac\ud83d\ude00!""#,
            r#""ends with a backslash \\""#,
            r#""\\u0041""#,
        ] {
            let event = format!(r#"{{"delta":{json}}}"#);
            let expected: String = serde_json::from_str(json).expect("a string");
            assert_eq!(Head::parse(&event).expect("an object").delta(&mut unescaped), expected, "{json}");
        }

        for (json, expected) in [
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""\ud83dx""#, "\u{fffd}x"),
            (r#""\ud83d\u0041""#, "\u{fffd}A"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            ("null", ""),
            ("{\"a\":1}", "{\"a\":1}"),
        ] {
            let event = format!(r#"{{"delta":{json}}}"#);
            assert_eq!(Head::parse(&event).expect("an object").delta(&mut unescaped), expected, "{json}");
        }
    }

    #[test]
    fn fields_of_any_type_and_in_both_spellings_are_read() {
        let json = r#"{"type":"X","run_id":"r","count":7,"none":null,"type":"Y","toolCallId":true,"empty":""}"#;
        let fields = Fields::parse(json).expect("an object");
        assert_eq!(fields.text("type").as_deref(), Some("Y"));
        assert_eq!(fields.text("runId").as_deref(), Some("r"));
        assert_eq!(fields.text("count").as_deref(), Some("7"));
        assert_eq!((fields.text("none"), fields.text("toolCallId"), fields.text("empty")), (None, None, None));
        assert_eq!(Head::parse(json).expect("an object").kind(), "Y");

        for json in ["[]", "7", "\"x\"", "{", ""] {
            assert!(Fields::parse(json).is_none() && Head::parse(json).is_none(), "{json}");
        }
    }
}
