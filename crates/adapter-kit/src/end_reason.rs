//! Reasons that model servers give for the end of an answer, as data.
//!
//! Each server has words of its own, in its own case: `length`, `MAX_TOKENS`, `max_output_tokens`. The table below has
//! the words of OpenAI, Azure, Anthropic, Bedrock, Gemini, Mistral, Cohere, DeepSeek, Zhipu, Moonshot, watsonx,
//! OpenRouter, LiteLLM, Groq, vLLM, SGLang, TGI, llama.cpp and Ollama. An unknown word is judged by its parts
//! (`…_error`, `…_filter`).
//!
//! Not here: what a protocol does at such an end, and errors of a server that are no end of an answer
//! ([`interlingua_core::model_error`]).

use interlingua_core::event::End;

/// Why an answer ended, in the order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndReason {
    /// The answer is complete.
    Complete,
    /// The word is not in the table, and no part of it is known.
    Unknown,
    /// The server paused: another request continues the answer.
    Paused,
    /// A filter cut the answer.
    Filtered,
    /// The answer reached its limit.
    Length,
    /// The conversation and the answer fill the context window.
    ContextFull,
    /// The server stopped before the answer was complete: a cancellation, or a time limit.
    Aborted,
    /// The model's call of a tool was not valid.
    BadCall,
    /// The server failed.
    Failed,
}

use EndReason::{Aborted, BadCall, Complete, ContextFull, Failed, Filtered, Length, Paused, Unknown};

/// Words in lower case, with `_` between their parts.
const WORDS: &[(&str, EndReason)] = &[
    ("stop", Complete),
    ("stopped", Complete),
    ("end", Complete),
    ("eos", Complete),
    ("eos_token", Complete),
    ("end_turn", Complete),
    ("stop_sequence", Complete),
    ("complete", Complete),
    ("completed", Complete),
    ("finish", Complete),
    ("finished", Complete),
    ("normal", Complete),
    ("success", Complete),
    ("tool_call", Complete),
    ("tool_calls", Complete),
    ("tool_use", Complete),
    ("function_call", Complete),
    // The model declined in text, which is present.
    ("refusal", Complete),
    ("pause_turn", Paused),
    ("compaction", Paused),
    ("content_filter", Filtered),
    ("content_filtered", Filtered),
    ("guardrail_intervened", Filtered),
    ("sensitive", Filtered),
    ("safety", Filtered),
    ("image_safety", Filtered),
    ("recitation", Filtered),
    ("image_recitation", Filtered),
    ("blocklist", Filtered),
    ("prohibited_content", Filtered),
    ("image_prohibited_content", Filtered),
    ("spii", Filtered),
    ("language", Filtered),
    ("error_toxic", Filtered),
    ("moderation", Filtered),
    ("blocked", Filtered),
    ("length", Length),
    ("max_length", Length),
    ("max_tokens", Length),
    ("max_output_tokens", Length),
    ("max_new_tokens", Length),
    ("max_completion_tokens", Length),
    ("model_length", Length),
    ("token_limit", Length),
    ("repetition", Length),
    ("model_context_window_exceeded", ContextFull),
    ("context_length", ContextFull),
    ("context_length_exceeded", ContextFull),
    ("context_window_exceeded", ContextFull),
    ("error_limit", ContextFull),
    ("abort", Aborted),
    ("aborted", Aborted),
    ("cancel", Aborted),
    ("canceled", Aborted),
    ("cancelled", Aborted),
    ("user_cancel", Aborted),
    ("interrupted", Aborted),
    ("timeout", Aborted),
    ("time_limit", Aborted),
    ("not_finished", Aborted),
    ("unload", Aborted),
    ("incomplete", Aborted),
    ("malformed_function_call", BadCall),
    ("malformed_tool_use", BadCall),
    ("malformed_model_output", BadCall),
    ("malformed_response", BadCall),
    ("unexpected_tool_call", BadCall),
    ("too_many_tool_calls", BadCall),
    ("missing_thought_signature", BadCall),
    ("function_call_filter", BadCall),
    ("error", Failed),
    ("failed", Failed),
    ("network_error", Failed),
    ("server_error", Failed),
    ("internal_error", Failed),
    ("insufficient_system_resource", Failed),
    ("no_image", Failed),
    ("image_other", Failed),
    ("other", Failed),
    ("finish_reason_unspecified", Failed),
    ("load", Failed),
];

/// Parts of words that are not in the table.
const PARTS: &[(&str, EndReason)] = &[
    ("error", Failed),
    ("fail", Failed),
    ("exception", Failed),
    ("unavailable", Failed),
    ("resource", Failed),
    ("malformed", BadCall),
    ("invalid", BadCall),
    ("filter", Filtered),
    ("safety", Filtered),
    ("sensitive", Filtered),
    ("moderat", Filtered),
    ("prohibit", Filtered),
    ("block", Filtered),
    ("policy", Filtered),
    ("guardrail", Filtered),
    ("context", ContextFull),
    ("length", Length),
    ("token", Length),
    ("truncat", Length),
    ("abort", Aborted),
    ("cancel", Aborted),
    ("time", Aborted),
];

impl EndReason {
    /// Reads the value of a server. `None`: the answer continues (`null`, `none`, an empty word).
    ///
    /// ```
    /// use interlingua_adapter_kit::end_reason::EndReason;
    ///
    /// assert_eq!(EndReason::parse("MAX_TOKENS"), Some(EndReason::Length));
    /// assert_eq!(EndReason::parse("content_filter: RECITATION"), Some(EndReason::Filtered));
    /// assert_eq!(EndReason::parse("end of the story"), Some(EndReason::Unknown));
    /// assert_eq!(EndReason::parse("null"), None);
    /// ```
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        // Google puts its own word behind one of OpenAI.
        let parts = word.split(':').map(normal).filter(|part| !part.is_empty());
        parts.filter(|part| !matches!(part.as_str(), "null" | "none")).map(|part| Self::from_word(&part)).max()
    }

    fn from_word(word: &str) -> Self {
        let word = ["finish_reason_", "finishreason_", "finishreason.", "finish_reason."]
            .iter()
            .find_map(|prefix| word.strip_prefix(prefix).filter(|rest| *rest != "unspecified"))
            .unwrap_or(word);
        let known = WORDS.iter().find(|(known, _)| *known == word);
        let found = known.or_else(|| PARTS.iter().find(|(part, _)| word.contains(part)));
        found.map_or(Unknown, |(_, reason)| *reason)
    }

    /// The end of the run. An unknown reason completes an answer that has content and fails an empty one.
    #[must_use]
    pub const fn end(self, has_output: bool) -> End {
        match self {
            Complete => End::Completed,
            Unknown if has_output => End::Completed,
            Paused | Filtered | Length | ContextFull | Aborted => End::Incomplete,
            Unknown | BadCall | Failed => End::Failed,
        }
    }

    /// Code and message of an end that is no success. `word`: the server's, which is the code of a failure.
    #[must_use]
    pub fn error(self, word: &str, has_output: bool) -> Option<(String, &'static str)> {
        let (code, message) = match self {
            Complete => return None,
            Unknown if has_output => return None,
            Paused => ("pause_turn", "the agent paused, and goes on when it is asked again"),
            Filtered => ("content_filter", "a filter cut the answer"),
            Length => ("max_output_tokens", "the limit for the answer is reached"),
            ContextFull => ("model_context_window_exceeded", "the conversation fills the context window of the model"),
            Aborted => ("", "the agent stopped before its answer was complete"),
            BadCall => ("", "the model's call of a tool is not valid"),
            Failed => ("", "the agent failed"),
            Unknown => ("", "the agent ended an empty answer for an unknown reason"),
        };
        if !code.is_empty() {
            return Some((code.to_owned(), message));
        }

        // A bare `error` names nothing.
        let word = normal(word.rsplit(':').next().unwrap_or(word));
        let is_code = word != "error" && word.len() <= MAX_CODE && word.bytes().all(is_of_code);
        Some((if is_code { word } else { String::new() }, message))
    }
}

/// Longer words are no codes, in bytes.
const MAX_CODE: usize = 64;

const fn is_of_code(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A word in lower case with `_` between its parts, whether it was written as `MAX_TOKENS`, `max-tokens` or `Max
/// tokens`.
fn normal(word: &str) -> String {
    word.trim().chars().map(|c| if matches!(c, '-' | ' ') { '_' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_servers_have_their_meaning_in_every_case() {
        for (word, wanted) in [
            ("stop", Some(Complete)),
            ("STOP", Some(Complete)),
            ("COMPLETE", Some(Complete)),
            ("FinishReason.STOP", Some(Complete)),
            ("TOOL_CALL", Some(Complete)),
            ("Max Tokens", Some(Length)),
            ("FINISH_REASON_MAX_TOKENS", Some(Length)),
            ("SAFETY", Some(Filtered)),
            ("sensitive", Some(Filtered)),
            ("ERROR_TOXIC", Some(Filtered)),
            ("content_filter: PROHIBITED_CONTENT", Some(Filtered)),
            ("function_call_filter: MALFORMED_FUNCTION_CALL", Some(BadCall)),
            ("malformed-function-call", Some(BadCall)),
            ("network_error", Some(Failed)),
            ("OTHER", Some(Failed)),
            ("FINISH_REASON_UNSPECIFIED", Some(Failed)),
            ("insufficient_system_resource", Some(Failed)),
            ("upstream_exception", Some(Failed)),
            ("risk_filter_hit", Some(Filtered)),
            ("abort", Some(Aborted)),
            ("done_by_magic", Some(Unknown)),
            ("null", None),
            ("None", None),
            (" ", None),
        ] {
            assert_eq!(EndReason::parse(word), wanted, "{word}");
        }
    }

    #[test]
    fn no_word_but_those_of_success_completes_an_empty_answer() {
        for (word, reason) in WORDS {
            assert_eq!(EndReason::parse(word), Some(*reason), "{word}");
            assert_eq!(reason.end(false) == End::Completed, *reason == Complete, "{word}");
            assert_eq!(reason.error(word, false).is_none(), *reason == Complete, "{word}");
            assert_eq!(*word, normal(word), "the table is in lower case");
        }
        assert_eq!((Unknown.end(true), Unknown.end(false)), (End::Completed, End::Failed));
    }

    #[test]
    fn the_code_of_a_failure_is_the_word_of_the_server() {
        let code = |word: &str| {
            let reason = EndReason::parse(word).expect("a reason");
            reason.error(word, true).map(|(code, _)| code)
        };
        assert_eq!(code("NETWORK_ERROR").as_deref(), Some("network_error"));
        assert_eq!(code("function_call_filter: MALFORMED_FUNCTION_CALL").as_deref(), Some("malformed_function_call"));
        assert_eq!(code("error").as_deref(), Some(""));
        assert_eq!(code("error \u{1f}").as_deref(), Some(""));
        assert_eq!(code("length").as_deref(), Some("max_output_tokens"));
    }
}
