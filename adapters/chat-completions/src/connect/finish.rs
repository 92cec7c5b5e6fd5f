//! Why an answer ended, and what it cost.
//!
//! See `docs/protocols/chat-completions.md#ends` and `docs/protocols/chat-completions.md#usage`.

use interlingua_core::{End, Extra, Json};

/// Why an answer ended, in the order in which one reason wins over another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// It is complete. That it holds calls is seen by the calls: servers name the wrong word.
    Stop,
    /// A filter cut it.
    Filtered,
    /// A limit cut it.
    Length,
    /// It went wrong.
    Error,
}

impl Reason {
    /// Reads a word of a server, and says whether it is a known one. Unknown ones mean that the answer is complete.
    pub(super) fn parse(word: &str) -> (Self, bool) {
        let reason = match word.to_ascii_lowercase().as_str() {
            "stop" | "tool_calls" | "function_call" | "eos" | "eos_token" | "end_turn" | "stop_sequence" => Self::Stop,
            "length" | "max_tokens" | "model_length" => Self::Length,
            "content_filter" => Self::Filtered,
            "error" => Self::Error,
            _ => return (Self::Stop, false),
        };
        (reason, true)
    }

    /// The reason that stands if two were given.
    pub(super) fn or_worse(self, later: Self) -> Self {
        self.max(later)
    }

    pub(super) const fn end(self) -> End {
        match self {
            Self::Stop => End::Completed,
            Self::Filtered | Self::Length => End::Incomplete,
            Self::Error => End::Failed,
        }
    }

    /// What is said about an end that is not a good one. An empty code: the server gave none.
    pub(super) const fn error(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Stop => None,
            Self::Filtered => Some(("content_filter", "a filter cut the answer")),
            Self::Length => Some(("max_output_tokens", "the limit for the answer is reached")),
            Self::Error => Some(("", "the agent failed")),
        }
    }
}

/// Token usage under the canonical names. Fields without one are kept.
pub(super) fn to_usage(usage: &Json) -> Json {
    let Some(fields) = usage.decode::<Extra>() else { return usage.clone() };
    let renamed: Extra = fields
        .into_iter()
        .map(|(name, value)| match name.as_ref() {
            "prompt_tokens" => ("input_tokens".into(), value),
            "completion_tokens" => ("output_tokens".into(), value),
            "prompt_tokens_details" => ("input_tokens_details".into(), value),
            "completion_tokens_details" => ("output_tokens_details".into(), value),
            _ => (name, value),
        })
        .collect();
    Json::from_serialize(&renamed)
}
