//! The response object (docs/protocols/responses.md#response-object), its usage and its error, and the conversation
//! object.

use interlingua_adapter_kit::token_usage::TokenUsage;
use interlingua_core::Json;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::echo::Echo;

/// Status of a response. The protocol writes `cancelled` with two `l`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Queued,
    InProgress,
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

/// The response object at one point in time. Invariant: every key of docs/protocols/responses.md#response-object is
/// written, nulls included.
pub(crate) struct Response<'a> {
    pub(crate) id: &'a str,
    /// Unix time in seconds.
    pub(crate) created_at: u64,
    pub(crate) completed_at: Option<u64>,
    pub(crate) status: Status,
    pub(crate) error: Option<ErrorObject<'a>>,
    pub(crate) incomplete: Option<&'static str>,
    pub(crate) output: &'a [Json],
    pub(crate) usage: Option<Usage>,
    pub(crate) echo: &'a Echo,
}

impl Serialize for Response<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Id<'a> {
            id: &'a str,
        }
        #[derive(Serialize)]
        struct Reason {
            reason: &'static str,
        }

        let echo = self.echo;

        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", self.id)?;
        map.serialize_entry("object", "response")?;
        map.serialize_entry("created_at", &self.created_at)?;
        map.serialize_entry("status", &self.status)?;
        map.serialize_entry("completed_at", &self.completed_at)?;
        map.serialize_entry("background", &echo.background)?;
        map.serialize_entry("store", &echo.store)?;
        map.serialize_entry("error", &self.error)?;
        map.serialize_entry("incomplete_details", &self.incomplete.map(|reason| Reason { reason }))?;

        map.serialize_entry("instructions", &echo.instructions)?;
        map.serialize_entry("max_output_tokens", &echo.max_output_tokens)?;
        map.serialize_entry("max_tool_calls", &echo.max_tool_calls)?;
        map.serialize_entry("model", &echo.model)?;
        map.serialize_entry("output", self.output)?;
        map.serialize_entry("parallel_tool_calls", &echo.parallel_tool_calls.unwrap_or(true))?;
        map.serialize_entry("previous_response_id", &echo.previous_response_id)?;
        if let Some(id) = &echo.conversation {
            map.serialize_entry("conversation", &Id { id })?;
        }

        map.serialize_entry("prompt_cache_key", &echo.prompt_cache_key)?;
        entry_or(&mut map, "reasoning", echo.reasoning.as_ref(), &NoReasoning::default())?;
        map.serialize_entry("safety_identifier", &echo.safety_identifier)?;
        entry_or(&mut map, "service_tier", echo.service_tier.as_ref(), "default")?;
        entry_or(&mut map, "temperature", echo.temperature.as_ref(), &1)?;
        entry_or(&mut map, "top_p", echo.top_p.as_ref(), &1)?;
        entry_or(&mut map, "presence_penalty", echo.presence_penalty.as_ref(), &0)?;
        entry_or(&mut map, "frequency_penalty", echo.frequency_penalty.as_ref(), &0)?;
        entry_or(&mut map, "top_logprobs", echo.top_logprobs.as_ref(), &0)?;
        entry_or(&mut map, "text", echo.text.as_ref(), &PlainText::default())?;
        entry_or(&mut map, "tool_choice", echo.tool_choice.as_ref(), "auto")?;
        map.serialize_entry("tools", &echo.tools)?;
        entry_or(&mut map, "truncation", echo.truncation.as_ref(), "disabled")?;

        map.serialize_entry("usage", &self.usage)?;
        map.serialize_entry("user", &echo.user)?;
        map.serialize_entry("metadata", &echo.metadata)?;
        map.end()
    }
}

fn entry_or<M: SerializeMap, T: Serialize, D: Serialize + ?Sized>(
    map: &mut M,
    name: &'static str,
    value: Option<&T>,
    default: &D,
) -> Result<(), M::Error> {
    match value {
        Some(value) => map.serialize_entry(name, value),
        None => map.serialize_entry(name, default),
    }
}

#[derive(Default, Serialize)]
struct NoReasoning {
    effort: (),
    summary: (),
}

#[derive(Serialize)]
struct PlainText {
    format: Format,
}

#[derive(Serialize)]
struct Format {
    #[serde(rename = "type")]
    kind: &'static str,
}

impl Default for PlainText {
    fn default() -> Self {
        Self { format: Format { kind: "text" } }
    }
}

/// Why a response failed. `type` and `param` are written for clients that expect them
/// (docs/protocols/responses.md#response-object).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ErrorObject<'a> {
    pub(crate) code: &'static str,
    pub(crate) message: &'a str,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) param: (),
}

/// Token usage of a response. Invariant: all inner keys are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Usage {
    pub(crate) input_tokens: u64,
    input_tokens_details: InputDetails,
    pub(crate) output_tokens: u64,
    output_tokens_details: OutputDetails,
    pub(crate) total_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct InputDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct OutputDetails {
    reasoning_tokens: u64,
}

impl Usage {
    /// The usage an agent reported (docs/protocols/responses.md#response-object). `None` if it reported none.
    pub(crate) fn from_agent(reported: &Json) -> Option<Self> {
        let usage = TokenUsage::parse(reported)?;
        Some(Self {
            input_tokens: usage.input,
            input_tokens_details: InputDetails {
                cached_tokens: usage.cached.unwrap_or(0),
                cache_write_tokens: usage.cache_write.unwrap_or(0),
            },
            output_tokens: usage.output,
            output_tokens_details: OutputDetails { reasoning_tokens: usage.reasoning.unwrap_or(0) },
            total_tokens: usage.total,
        })
    }

    /// An estimate of the input alone, for a request that does not call the agent.
    pub(crate) fn from_input_tokens(input_tokens: u64) -> Self {
        Self { input_tokens, total_tokens: input_tokens, ..Self::default() }
    }
}

/// The conversation object.
#[derive(Serialize)]
pub(crate) struct Conversation<'a> {
    pub(crate) id: &'a str,
    pub(crate) object: &'static str,
    pub(crate) created_at: u64,
    pub(crate) metadata: &'a Json,
}
