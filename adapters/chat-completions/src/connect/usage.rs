//! Token usage of an answer.
//!
//! See `docs/protocols/chat-completions.md#usage`. Not here: why an answer ended
//! ([`interlingua_adapter_kit::end_reason`]).

use interlingua_core::{Extra, Json};

/// Token usage under the canonical names. Other fields keep their names.
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
