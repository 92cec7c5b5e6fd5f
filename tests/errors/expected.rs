//! The answer of each client protocol to each class, written from the protocols' own texts and not from the adapters.

use interlingua_core::FaultKind as K;

/// One class in all protocols.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedReport {
    pub(crate) class: K,
    /// The code of the Agent API, AG-UI, AG-Kit (in lower case) and A2A, and the status before a stream.
    pub(crate) code: &'static str,
    pub(crate) status: u16,
    /// Status, type and code of OpenAI's APIs.
    pub(crate) openai: (u16, &'static str, &'static str),
    /// The code of a failed response, which is one of a closed list.
    pub(crate) response: &'static str,
    /// Status and type of Anthropic's API.
    pub(crate) anthropic: (u16, &'static str),
    /// Status and word of A2A 1.0 over REST.
    pub(crate) a2a: (u16, &'static str),
    /// The same request may succeed later, and does no harm.
    pub(crate) retry_helps: bool,
}

const fn reported(
    class: K,
    (code, status): (&'static str, u16),
    openai: (u16, &'static str, &'static str),
    response: &'static str,
    anthropic: (u16, &'static str),
    a2a: (u16, &'static str),
    retry_helps: bool,
) -> ExpectedReport {
    ExpectedReport { class, code, status, openai, response, anthropic, a2a, retry_helps }
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";
const ARGUMENT: &str = "INVALID_ARGUMENT";
const FAILED: (u16, &str, &str) = (502, SERVER, "upstream_error");

/// Every class of errors of agents.
pub(crate) const REPORTED: &[ExpectedReport] = &[
    reported(
        K::UpstreamContextTooLong,
        ("MODEL_CONTEXT_LENGTH_EXCEEDED", 400),
        (400, INVALID, "context_length_exceeded"),
        "context_length_exceeded",
        (400, INVALID),
        (400, ARGUMENT),
        false,
    ),
    reported(
        K::UpstreamRefused,
        ("UPSTREAM_REFUSED", 400),
        (400, INVALID, "invalid_prompt"),
        "invalid_prompt",
        (400, INVALID),
        (400, ARGUMENT),
        false,
    ),
    reported(
        K::UpstreamFiltered,
        ("MODEL_CONTENT_FILTERED", 400),
        (400, INVALID, "content_filter"),
        "invalid_prompt",
        (400, INVALID),
        (400, ARGUMENT),
        false,
    ),
    reported(
        K::UpstreamUnsupportedMedia,
        ("UPSTREAM_UNSUPPORTED_MEDIA", 400),
        (400, INVALID, "unsupported_media"),
        "invalid_prompt",
        (400, INVALID),
        (400, ARGUMENT),
        false,
    ),
    reported(
        K::UpstreamInputTooLarge,
        ("UPSTREAM_INPUT_TOO_LARGE", 413),
        (413, INVALID, "request_too_large"),
        "invalid_prompt",
        (413, "request_too_large"),
        (413, ARGUMENT),
        false,
    ),
    reported(
        K::UpstreamNoSuchModel,
        ("MODEL_NOT_FOUND", 404),
        (404, INVALID, "model_not_found"),
        "invalid_prompt",
        (404, "not_found_error"),
        (400, ARGUMENT),
        false,
    ),
    reported(
        K::UpstreamCredentials,
        ("UPSTREAM_AUTH_FAILED", 502),
        FAILED,
        SERVER,
        (502, "api_error"),
        (500, "INTERNAL"),
        false,
    ),
    reported(
        K::UpstreamMisconfigured,
        ("UPSTREAM_MISCONFIGURED", 502),
        FAILED,
        SERVER,
        (502, "api_error"),
        (500, "INTERNAL"),
        false,
    ),
    reported(
        K::UpstreamRateLimited,
        ("UPSTREAM_RATE_LIMITED", 429),
        (429, "rate_limit_error", "rate_limit_exceeded"),
        "rate_limit_exceeded",
        (429, "rate_limit_error"),
        (429, "RESOURCE_EXHAUSTED"),
        true,
    ),
    reported(
        K::UpstreamQuota,
        ("MODEL_QUOTA_EXCEEDED", 429),
        (429, "rate_limit_error", "insufficient_quota"),
        "insufficient_quota",
        (402, "billing_error"),
        (429, "RESOURCE_EXHAUSTED"),
        false,
    ),
    reported(
        K::UpstreamOverloaded,
        ("UPSTREAM_OVERLOADED", 503),
        (503, SERVER, "upstream_overloaded"),
        SERVER,
        (529, "overloaded_error"),
        (503, "UNAVAILABLE"),
        true,
    ),
    reported(
        K::UpstreamUnreachable,
        ("UPSTREAM_UNREACHABLE", 502),
        FAILED,
        SERVER,
        (502, "api_error"),
        (503, "UNAVAILABLE"),
        true,
    ),
    reported(
        K::UpstreamTimeout,
        ("UPSTREAM_TIMEOUT", 504),
        (504, SERVER, "upstream_timeout"),
        SERVER,
        (504, "timeout_error"),
        (503, "UNAVAILABLE"),
        false,
    ),
    reported(
        K::UpstreamTruncated,
        ("UPSTREAM_TRUNCATED", 502),
        FAILED,
        SERVER,
        (502, "api_error"),
        (500, "INTERNAL"),
        false,
    ),
    reported(
        K::UpstreamGarbage,
        ("UPSTREAM_PROTOCOL_ERROR", 502),
        FAILED,
        SERVER,
        (502, "api_error"),
        (500, "INTERNAL"),
        false,
    ),
    reported(
        K::UpstreamTooLarge,
        ("UPSTREAM_TOO_LARGE", 502),
        FAILED,
        SERVER,
        (502, "api_error"),
        (500, "INTERNAL"),
        false,
    ),
    reported(K::AgentFailed, ("AGENT_ERROR", 502), FAILED, SERVER, (502, "api_error"), (500, "INTERNAL"), false),
];

/// The row of a class.
pub(crate) fn of(class: K) -> &'static ExpectedReport {
    REPORTED
        .iter()
        .find(|reported| reported.class == class)
        .unwrap_or_else(|| panic!("{class:?} is missing in the table"))
}
