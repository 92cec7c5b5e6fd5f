//! The token usage of an answer, read from the forms in which agents report it.

use interlingua_core::json::{Extra, Json};

/// Counts of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens of the request.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// The reported total, else the sum.
    pub total: u64,
    /// Tokens of the request that were read from a cache. `None`: not reported.
    pub cached: Option<u64>,
    /// Tokens of the request that were written to a cache. `None`: not reported.
    pub cache_write: Option<u64>,
    /// Tokens of the answer that are reasoning. `None`: not reported.
    pub reasoning: Option<u64>,
}

impl TokenUsage {
    /// Reads a report under the names `input_tokens` and `output_tokens`, or `prompt_tokens` and `completion_tokens`.
    /// `None` if it has none of the known fields: no number is invented.
    #[must_use]
    pub fn parse(usage: &Json) -> Option<Self> {
        fn number(fields: &Extra, names: &[&str]) -> Option<u64> {
            names.iter().find_map(|name| fields.get(name)?.decode::<f64>()).map(to_count)
        }

        let fields: Extra = usage.decode()?;
        let input = number(&fields, &["input_tokens", "prompt_tokens"]);
        let output = number(&fields, &["output_tokens", "completion_tokens"]);
        let total = number(&fields, &["total_tokens"]);
        if input.is_none() && output.is_none() && total.is_none() {
            return None;
        }

        let details = |names: &[&str]| names.iter().find_map(|name| fields.get(name)?.decode::<Extra>());
        let of_input = details(&["input_tokens_details", "prompt_tokens_details"]).unwrap_or_default();
        let of_output = details(&["output_tokens_details", "completion_tokens_details"]).unwrap_or_default();

        let (input, output) = (input.unwrap_or(0), output.unwrap_or(0));
        Some(Self {
            input,
            output,
            total: total.unwrap_or_else(|| input.saturating_add(output)),
            cached: number(&of_input, &["cached_tokens"]),
            cache_write: number(&of_input, &["cache_write_tokens", "cache_creation_tokens"]),
            reasoning: number(&of_output, &["reasoning_tokens"]),
        })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped, and a count of tokens")]
fn to_count(number: f64) -> u64 {
    number.clamp(0.0, 9e15) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_of_names_are_read_and_nothing_is_invented() {
        let parse = |text: &str| TokenUsage::parse(&Json::parse(text).expect("JSON"));
        let read = parse(r#"{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}"#);
        let expected = TokenUsage { input: 7, output: 3, total: 10, cached: Some(2), ..TokenUsage::default() };
        assert_eq!(read, Some(expected));
        let odd = parse(r#"{"input_tokens":-1,"output_tokens":1e300,"output_tokens_details":{"reasoning_tokens":1}}"#);
        assert_eq!(
            odd.map(|usage| (usage.input, usage.output, usage.reasoning)),
            Some((0, 9_000_000_000_000_000, Some(1)))
        );
        assert_eq!(parse(r#"{"seconds":3}"#), None);
        assert_eq!(parse("[]"), None);
    }
}
