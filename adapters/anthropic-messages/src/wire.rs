//! Outgoing wire types of the protocol (docs/protocols/anthropic-messages.md#answers). They write every required key,
//! nulls included.
//!
//! Not here: blocks ([`crate::encode`]), and requests, which [`crate::decode`] parses field by field.

use interlingua_adapter_kit::token_usage::TokenUsage;
use interlingua_core::{Json, Out};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Prefix of the ids of messages.
pub(crate) const MESSAGE_PREFIX: &str = "msg_";

/// A message.
#[derive(Clone, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) id: &'a str,
    pub(crate) model: &'a str,
    pub(crate) content: &'a [Json],
    pub(crate) stop_reason: Option<&'static str>,
    pub(crate) stop_details: Option<&'a StopDetails>,
    pub(crate) usage: Usage,
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", self.id)?;
        map.serialize_entry("type", "message")?;
        map.serialize_entry("role", "assistant")?;
        map.serialize_entry("model", self.model)?;
        map.serialize_entry("content", self.content)?;
        map.serialize_entry("stop_reason", &self.stop_reason)?;
        map.serialize_entry("stop_sequence", &())?;
        if self.stop_reason.is_some() {
            map.serialize_entry("stop_details", &self.stop_details)?;
        }
        map.serialize_entry("usage", &self.usage)?;
        map.end()
    }
}

/// Why an answer was refused.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StopDetails {
    #[serde(rename = "type")]
    kind: &'static str,
    category: (),
    explanation: Option<String>,
}

impl StopDetails {
    /// The agent declined, in these words.
    pub(crate) fn refusal(words: &str) -> Self {
        let explanation = Some(words).filter(|words| !words.is_empty()).map(str::to_owned);
        Self { kind: "refusal", category: (), explanation }
    }
}

/// Token usage. Invariant: all counts are written, since clients fail without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Usage {
    /// Without what was read from or written to a cache.
    input_tokens: u64,
    output_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens_details: Option<OutputDetails>,
    service_tier: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct OutputDetails {
    thinking_tokens: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self::from_agent(&TokenUsage::default())
    }
}

impl Usage {
    pub(crate) fn from_agent(usage: &TokenUsage) -> Self {
        let (read, written) = (usage.cached.unwrap_or(0), usage.cache_write.unwrap_or(0));
        Self {
            input_tokens: usage.input.saturating_sub(read).saturating_sub(written),
            output_tokens: usage.output,
            cache_creation_input_tokens: written,
            cache_read_input_tokens: read,
            output_tokens_details: usage.reasoning.map(|thinking_tokens| OutputDetails { thinking_tokens }),
            service_tier: "standard",
        }
    }
}

/// `ping`
#[derive(Debug, Serialize)]
pub(crate) struct Ping {
    #[serde(rename = "type")]
    event: &'static str,
}

impl Default for Ping {
    fn default() -> Self {
        Self { event: "ping" }
    }
}

#[derive(Serialize)]
struct MessageStart<'a> {
    #[serde(rename = "type")]
    event: &'static str,
    message: Answer<'a>,
}

/// Begins a stream. What the answer costs is not known yet.
pub(crate) fn message_start(id: &str, model: &str, out: &mut Out) {
    let message = Answer { id, model, content: &[], stop_reason: None, stop_details: None, usage: Usage::default() };
    out.frame(Some("message_start"), &MessageStart { event: "message_start", message });
}

#[derive(Serialize)]
struct MessageDelta<'a> {
    #[serde(rename = "type")]
    event: &'static str,
    delta: End<'a>,
    usage: Usage,
}

#[derive(Serialize)]
struct End<'a> {
    stop_reason: &'static str,
    stop_sequence: (),
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_details: Option<&'a StopDetails>,
}

#[derive(Serialize)]
struct MessageStop {
    #[serde(rename = "type")]
    event: &'static str,
}

/// Ends a stream.
pub(crate) fn message_end(stop_reason: &'static str, stop_details: Option<&StopDetails>, usage: Usage, out: &mut Out) {
    let delta = End { stop_reason, stop_sequence: (), stop_details };
    out.frame(Some("message_delta"), &MessageDelta { event: "message_delta", delta, usage });
    out.frame(Some("message_stop"), &MessageStop { event: "message_stop" });
}

/// Estimated number of input tokens of a request.
#[derive(Serialize)]
pub(crate) struct InputTokens {
    pub(crate) input_tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_are_counted_apart() {
        let usage = TokenUsage { input: 11, output: 7, cached: Some(4), reasoning: Some(2), ..TokenUsage::default() };
        let expected = serde_json::json!({
            "input_tokens": 7, "output_tokens": 7, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
            "output_tokens_details": { "thinking_tokens": 2 }, "service_tier": "standard",
        });
        assert_eq!(serde_json::to_value(Usage::from_agent(&usage)).expect("JSON"), expected);
    }
}
