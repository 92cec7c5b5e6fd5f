//! Words, texts and statuses of real servers with their classes.

use super::*;
use FaultKind as K;

fn class(words: &[&str], text: &str, status: Option<u16>) -> Option<FaultKind> {
    classify(words.iter().copied(), text, status)
}

#[test]
fn a_conversation_that_is_too_long_is_known_in_the_words_of_each_server() {
    for text in [
        // OpenAI, Azure, vLLM, DeepSeek, OpenRouter
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        // Anthropic
        "prompt is too long: 213462 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
        // llama.cpp, Ollama, LM Studio
        "request (13392 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        "the input length exceeds the context length",
        "Trying to keep the first 5000 tokens when context the overflows.",
        // Gemini, Bedrock, TGI, SGLang, LiteLLM
        "The input token count (1304812) exceeds the maximum number of tokens allowed (1048576).",
        "Input is too long for requested model.",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
        "Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens).",
        "litellm.BadRequestError: litellm.ContextWindowExceededError: ContextWindowExceededError: OpenAIException - too much",
        // Groq, xAI, Moonshot, DashScope, Cohere, watsonx
        "Please reduce the length of the messages or completion.",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "Invalid request: Your request exceeded model token limit: 8192",
        "Range of input length should be [1, 30720]",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081",
        "the number of input tokens 5000 cannot exceed the total tokens limit 4096",
    ] {
        for status in [None, Some(400), Some(413), Some(422), Some(500)] {
            assert_eq!(class(&["invalid_request_error"], text, status), Some(K::UpstreamContextTooLong), "{text}");
        }
    }
}

#[test]
fn a_limit_of_tokens_in_a_minute_is_no_full_context() {
    let text = "Too many tokens, please wait before trying again.";
    assert_eq!(class(&["ThrottlingException"], text, Some(429)), Some(K::UpstreamRateLimited));
    assert_eq!(class(&[], text, None), Some(K::UpstreamRateLimited));
    let text = "Request too large for gpt-4 in organization o on tokens per min (TPM): Limit 10000, Requested 12000.";
    for status in [None, Some(413), Some(429)] {
        assert_eq!(class(&["rate_limit_exceeded", "tokens"], text, status), Some(K::UpstreamInputTooLarge));
    }
    let text = "You exceeded your current quota, please check your plan and billing details.";
    assert_eq!(class(&["insufficient_quota"], text, Some(429)), Some(K::UpstreamQuota));
    let text = "You exceeded your current quota, please check your plan. Please retry in 34.07s.";
    assert_eq!(class(&["RESOURCE_EXHAUSTED"], text, Some(429)), Some(K::UpstreamRateLimited));
}

#[test]
fn a_code_decides_before_a_text_and_a_text_before_a_type_and_a_status() {
    for (words, text, status, expected) in [
        (&["context_length_exceeded"][..], "no", Some(500), Some(K::UpstreamContextTooLong)),
        (&["invalid_function_parameters", "invalid_request_error"], "bad schema", Some(400), Some(K::UpstreamRefused)),
        (&["invalid_function_parameters"], "bad schema", None, Some(K::UpstreamRefused)),
        (
            &["INVALID_ARGUMENT"],
            "API key not valid. Please pass a valid API key.",
            Some(400),
            Some(K::UpstreamCredentials),
        ),
        (
            &["invalid_request_error"],
            "Output blocked by content filtering policy",
            Some(400),
            Some(K::UpstreamFiltered),
        ),
        (&[], "Content violates usage guidelines.", Some(403), Some(K::UpstreamFiltered)),
        (&[], "the context window is closed to you", Some(403), Some(K::UpstreamCredentials)),
        (&["not_found_error"], "model: claude-9", Some(404), Some(K::UpstreamNoSuchModel)),
        (&[], "model \"x\" not found, try pulling it first", Some(404), Some(K::UpstreamNoSuchModel)),
        (&["NotFoundError"], "The model `x` does not exist.", Some(404), Some(K::UpstreamNoSuchModel)),
        (&[], "no such page", Some(404), Some(K::UpstreamMisconfigured)),
        (&["invalid_request_error"], "boom", Some(500), Some(K::AgentFailed)),
        (&["server_error"], "boom", None, None),
        (&["overloaded_error"], "busy", None, Some(K::UpstreamOverloaded)),
        (&[], "", Some(529), Some(K::UpstreamOverloaded)),
        (&["AUTH_FAILED"], "no", None, Some(K::UpstreamCredentials)),
        (&[], "boom", None, None),
    ] {
        assert_eq!(class(words, text, status), expected, "{words:?} {text} {status:?}");
    }
}

#[test]
fn the_error_of_a_run_never_is_one_of_the_clients_own_credentials() {
    for (code, kind) in [
        ("AUTH_FAILED", K::UpstreamCredentials),
        ("RATE_LIMIT_EXCEEDED", K::UpstreamRateLimited),
        ("INVALID_PARAMETER", K::UpstreamRefused),
        ("UPSTREAM_TIMEOUT", K::UpstreamTimeout),
        ("GATEWAY_RESTARTED", K::Restarted),
        ("CANCELED", K::Canceled),
        ("AGENT_UNKNOWN_ERROR", K::AgentFailed),
        ("", K::AgentFailed),
    ] {
        assert_eq!(of_run_code(code), kind, "{code}");
    }
}

#[test]
fn every_kind_of_an_agents_fault_is_found_by_its_own_code() {
    for kind in FaultKind::ALL.iter().filter(|kind| kind.blame() == Blame::Upstream) {
        assert_eq!(of_run_code(kind.code()), *kind);
    }
    for (_, codes) in CODES {
        assert!(codes.iter().all(|code| *code == code.to_ascii_lowercase()), "{codes:?}");
    }
    for (kind, wordings) in WORDINGS {
        for wording in *wordings {
            assert_eq!(*wording, wording.to_ascii_lowercase());
            assert_eq!(of_text(wording), Some(*kind), "an earlier wording hides this one: {wording}");
        }
    }
}
