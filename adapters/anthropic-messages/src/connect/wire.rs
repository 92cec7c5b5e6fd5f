//! An event of the stream, or a whole message, borrowed from its frame. A value of another type than expected is
//! absent.
//!
//! Not here: what the fields mean for the answer ([`super::reader`]).

use std::borrow::Cow;

use interlingua_core::lenient::{Fields, JsonText, Object, Raw};
use interlingua_core::lenient_fields;
use serde_json::value::RawValue;

#[derive(Debug, Default)]
pub(super) struct Event<'a> {
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) index: Option<i64>,
    pub(super) delta: Option<Delta<'a>>,
    pub(super) content_block: Option<&'a RawValue>,
    /// The message of `message_start`; a text in some forms of an error.
    pub(super) message: Option<&'a RawValue>,
    pub(super) usage: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
    pub(super) detail: Option<&'a RawValue>,
    /// The counts of Bedrock, in `message_stop`.
    pub(super) metrics: Option<&'a RawValue>,
    /// There are `choices`: a chunk of Chat Completions.
    pub(super) has_choices: bool,
}

/// The new part of a block, or of the message.
#[derive(Debug, Default)]
pub(super) struct Delta<'a> {
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) thinking: Option<Cow<'a, str>>,
    pub(super) signature: Option<Cow<'a, str>>,
    pub(super) partial_json: Option<JsonText<'a>>,
    pub(super) citation: Option<&'a RawValue>,
    pub(super) stop_reason: Option<Cow<'a, str>>,
    pub(super) stop_details: Option<&'a RawValue>,
}

/// A block of content, as it starts or whole.
#[derive(Debug, Default)]
pub(super) struct Block<'a> {
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) thinking: Option<Cow<'a, str>>,
    pub(super) signature: Option<Cow<'a, str>>,
    /// The data of `redacted_thinking`.
    pub(super) data: Option<Cow<'a, str>>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) input: Option<&'a RawValue>,
    pub(super) server_name: Option<Cow<'a, str>>,
    pub(super) tool_use_id: Option<Cow<'a, str>>,
    pub(super) content: Option<&'a RawValue>,
    pub(super) is_error: Option<&'a RawValue>,
    pub(super) citations: Option<&'a RawValue>,
}

/// A message: the head of a stream, or a whole answer.
#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) content: Option<&'a RawValue>,
    pub(super) stop_reason: Option<Cow<'a, str>>,
    pub(super) stop_details: Option<&'a RawValue>,
    pub(super) usage: Option<&'a RawValue>,
}

/// Why a model declined.
#[derive(Debug, Default)]
pub(super) struct StopDetails<'a> {
    pub(super) explanation: Option<Cow<'a, str>>,
}

impl<'a> Event<'a> {
    /// Parses a JSON object.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let data = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
        serde_json::from_slice::<Object<Self>>(data).ok()?.0
    }

    /// True for an object that reports an error, in any of the forms in use.
    pub(super) fn is_error(&self) -> bool {
        self.error.is_some()
            || self.kind.as_deref() == Some("error")
            || (self.kind.is_none() && (self.detail.is_some() || self.message.is_some_and(is_text)))
    }
}

fn is_text(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}

/// Parses an object inside of another value.
pub(super) fn parse_object<'a, T: Fields<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str::<Object<T>>(raw.get()).ok()?.0
}

lenient_fields! {
    Event { event, object =>
        "type" => kind: Text,
        "index" => index: Number,
        "delta" => delta: Object,
        "content_block" => content_block: Raw,
        "message" => message: Raw,
        "usage" => usage: Raw,
        "error" => error: Raw,
        "detail" => detail: Raw,
        "amazon-bedrock-invocationMetrics" => metrics: Raw,
        "choices" => { event.has_choices = object.next_value::<Raw<'_>>()?.0.is_some(); },
    }
}

lenient_fields! {
    Delta { delta, object =>
        "type" => kind: Text,
        "text" => text: Text,
        "thinking" => thinking: Text,
        "signature" => signature: Text,
        "partial_json" => { delta.partial_json = Some(object.next_value()?); },
        "citation" => citation: Raw,
        "stop_reason" => stop_reason: Text,
        "stop_details" => stop_details: Raw,
    }
}

lenient_fields! {
    Block { block, object =>
        "type" => kind: Text,
        "text" => text: Text,
        "thinking" => thinking: Text,
        "signature" => signature: Text,
        "data" => data: Text,
        "id" => id: Text,
        "name" => name: Text,
        "input" => input: Raw,
        "server_name" => server_name: Text,
        "tool_use_id" => tool_use_id: Text,
        "content" => content: Raw,
        "is_error" => is_error: Raw,
        "citations" => citations: Raw,
    }
}

lenient_fields! {
    Message { message, object =>
        "id" => id: Text,
        "content" => content: Raw,
        "stop_reason" => stop_reason: Text,
        "stop_details" => stop_details: Raw,
        "usage" => usage: Raw,
    }
}

lenient_fields! {
    StopDetails { details, object =>
        "explanation" => explanation: Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_read_without_copying() {
        let data = br#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}"#;
        let event = Event::parse(data).expect("an object");
        assert!(matches!(event.kind, Some(Cow::Borrowed("content_block_delta"))));
        assert!(matches!(event.delta.expect("a delta").text, Some(Cow::Borrowed("Hel"))));
    }

    #[test]
    fn values_of_other_types_are_absent() {
        for data in [
            r#"{"type":7,"index":{},"delta":"x","content_block":null,"usage":[]}"#,
            r#"{"type":"content_block_delta","index":"1","delta":{"type":[],"text":{},"partial_json":{"a":1}}}"#,
        ] {
            assert!(Event::parse(data.as_bytes()).is_some(), "{data}");
        }
        for data in ["[1]", "\"x\"", "{\"a\":", "", "{} {}"] {
            assert!(Event::parse(data.as_bytes()).is_none(), "{data}");
        }
    }

    #[test]
    fn errors_are_known_in_every_form() {
        let is_error = |data: &str| Event::parse(data.as_bytes()).expect("an object").is_error();
        for data in [
            r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#,
            r#"{"error":{"message":"no"}}"#,
            r#"{"error":"no"}"#,
            r#"{"type":"error"}"#,
            r#"{"detail":"no"}"#,
            r#"{"message":"no"}"#,
        ] {
            assert!(is_error(data), "{data}");
        }
        for data in [r#"{"type":"message_start","message":{}}"#, r#"{"error":null,"type":"ping"}"#, "{}"] {
            assert!(!is_error(data), "{data}");
        }
    }
}
