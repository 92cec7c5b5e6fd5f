//! The service's wire format: the events of a session's stream, and small documents. A field of an unexpected type is
//! treated as absent.

use std::fmt;

use interlingua_core::Json;
use interlingua_core::json_string::quoted;
use interlingua_core::lenient::{Name, Number, Raw, Text};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// An event of a stream: the fields of all types, most of them absent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) reply_id: Text<'a>,
    #[serde(borrow)]
    pub(super) block_id: Text<'a>,
    #[serde(borrow)]
    pub(super) tool_call_id: Text<'a>,
    #[serde(borrow)]
    pub(super) tool_call_name: Text<'a>,
    #[serde(borrow)]
    pub(super) delta: Text<'a>,
    /// The whole text of a block whose pieces do not make it up.
    #[serde(borrow)]
    pub(super) text: Text<'a>,
    #[serde(borrow)]
    pub(super) media_type: Text<'a>,
    #[serde(borrow)]
    pub(super) data: Text<'a>,
    #[serde(borrow)]
    pub(super) url: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) state: Text<'a>,
    #[serde(borrow)]
    pub(super) finished_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) error: Raw<'a>,
    #[serde(borrow)]
    pub(super) metadata: Raw<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: Raw<'a>,
    pub(super) input_tokens: Number,
    pub(super) output_tokens: Number,
    pub(super) cache_input_tokens: Number,
    pub(super) cache_creation_input_tokens: Number,
}

impl Event<'_> {
    /// The token usage of the model call that ended.
    pub(super) fn usage(&self) -> Usage {
        let count = |number: &Number| number.0.and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        Usage {
            input_tokens: count(&self.input_tokens),
            output_tokens: count(&self.output_tokens),
            cache_input_tokens: count(&self.cache_input_tokens),
            cache_creation_input_tokens: count(&self.cache_creation_input_tokens),
        }
    }
}

/// An object. None: it is another thing, or none of this form.
pub(super) fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    // A list would be read field by field.
    if json.trim_ascii_start().first() == Some(&b'{') { serde_json::from_slice(json).ok() } else { None }
}

/// A piece of a block of text: nearly every event is one, so it is read with nothing else.
#[derive(Debug)]
pub(super) struct TextDelta<'a> {
    pub(super) kind: &'a str,
    pub(super) id: &'a str,
    pub(super) reply_id: &'a str,
    pub(super) block_id: &'a str,
    pub(super) delta: Raw<'a>,
}

impl<'a> TextDelta<'a> {
    /// None: it is another event, or has fields of other forms.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let event: Self = serde_json::from_slice(data).ok()?;
        let is_text = event.delta.0.is_some_and(|delta| quoted(delta.get()).is_some());
        (is_text && matches!(event.kind, "TEXT_BLOCK_DELTA" | "THINKING_BLOCK_DELTA")).then_some(event)
    }
}

impl<'de> Deserialize<'de> for TextDelta<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyEvent;

        impl<'de> Visitor<'de> for AnyEvent {
            type Value = TextDelta<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut event = TextDelta { kind: "", id: "", reply_id: "", block_id: "", delta: Raw::default() };
                while let Some(Name(name)) = map.next_key()? {
                    let field = match name.as_ref() {
                        "type" => &mut event.kind,
                        "id" => &mut event.id,
                        "reply_id" => &mut event.reply_id,
                        "block_id" => &mut event.block_id,
                        "delta" => {
                            event.delta = map.next_value()?;
                            continue;
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *field = map.next_value()?;
                }
                Ok(event)
            }
        }

        deserializer.deserialize_map(AnyEvent)
    }
}

/// The text of a field. Empty: it is absent.
pub(super) fn word<'t>(text: &'t Text<'_>) -> &'t str {
    text.0.as_deref().unwrap_or_default()
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) cache_input_tokens: u64,
    pub(super) cache_creation_input_tokens: u64,
}

impl Usage {
    pub(super) fn add(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_input_tokens = self.cache_input_tokens.saturating_add(other.cache_input_tokens);
        self.cache_creation_input_tokens =
            self.cache_creation_input_tokens.saturating_add(other.cache_creation_input_tokens);
    }

    /// The difference to `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(before.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(before.output_tokens),
            cache_input_tokens: self.cache_input_tokens.saturating_sub(before.cache_input_tokens),
            cache_creation_input_tokens: self
                .cache_creation_input_tokens
                .saturating_sub(before.cache_creation_input_tokens),
        }
    }

    /// In the words of the model. None: nothing was counted.
    pub(super) fn to_json(self) -> Option<Json> {
        #[derive(Serialize)]
        struct Canonical {
            input_tokens: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            input_tokens_details: Option<Details>,
            output_tokens: u64,
            total_tokens: u64,
        }
        #[derive(Serialize)]
        struct Details {
            cached_tokens: u64,
            cache_creation_tokens: u64,
        }
        if self == Self::default() {
            return None;
        }

        let (cached_tokens, cache_creation_tokens) = (self.cache_input_tokens, self.cache_creation_input_tokens);
        let details = Details { cached_tokens, cache_creation_tokens };
        Some(Json::from_serialize(&Canonical {
            input_tokens: self.input_tokens,
            input_tokens_details: (cached_tokens + cache_creation_tokens > 0).then_some(details),
            output_tokens: self.output_tokens,
            total_tokens: self.input_tokens.saturating_add(self.output_tokens),
        }))
    }
}

/// A call that waits for an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AskedCall<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) input: Text<'a>,
}

/// The calls in a list, each with its JSON. Entries of another form are left out.
pub(super) fn asked_calls<'a>(list: &Raw<'a>) -> Vec<(AskedCall<'a>, &'a RawValue)> {
    let Some(list) = list.0 else { return Vec::new() };
    let entries: Vec<&RawValue> = serde_json::from_str(list.get()).unwrap_or_default();
    entries.into_iter().filter_map(|raw| Some((object(raw.get().as_bytes())?, raw))).collect()
}

/// Why a reply failed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReplyError<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) message: Text<'a>,
}

/// Where a block's bytes are.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DataSource<'a> {
    #[serde(borrow)]
    pub(super) data: Text<'a>,
    #[serde(borrow)]
    pub(super) url: Text<'a>,
    #[serde(borrow)]
    pub(super) media_type: Text<'a>,
}

/// A page of a session's messages.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Page<'a> {
    #[serde(borrow)]
    pub(super) messages: Vec<StoredMessage<'a>>,
    pub(super) is_running: bool,
}

/// A message of a session.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StoredMessage<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) role: Text<'a>,
    #[serde(borrow)]
    pub(super) content: Vec<&'a RawValue>,
    pub(super) usage: Option<Usage>,
    #[serde(borrow)]
    pub(super) finished_at: Text<'a>,
    #[serde(borrow)]
    pub(super) finished_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) error: Raw<'a>,
}

/// A block of a message: the fields of all types.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Block<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) text: Text<'a>,
    #[serde(borrow)]
    pub(super) thinking: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) input: Text<'a>,
    #[serde(borrow)]
    pub(super) state: Text<'a>,
    #[serde(borrow)]
    pub(super) output: Raw<'a>,
    #[serde(borrow)]
    pub(super) source: Raw<'a>,
    #[serde(borrow)]
    pub(super) metadata: Raw<'a>,
}

/// A field of a small document. None: the document or the field is another thing.
pub(super) fn field(document: &[u8], name: &str) -> Option<String> {
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(document).ok()?;
    fields.get(name).and_then(serde_json::Value::as_str).map(str::to_owned)
}
