//! Ends of answers: an answer has exactly one, and no client can take a failure for success.
//!
//! Not here: reading an answer in the protocol of its client ([`super::pairs`]).

use serde_json::Value;

use super::http::Response;

/// A way for a run to fail, as the protocols of clients say it.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// The gateway's own code.
    pub code: &'static str,
    /// The status before a stream has begun.
    pub status: u16,
    /// The status of A2A, and its reason or the gateway's code in it.
    pub a2a: (u16, &'static str),
    /// Type and code of OpenAI's APIs.
    pub openai: (&'static str, &'static str),
    /// The type of Anthropic's API.
    pub anthropic: &'static str,
    /// Whether the stream ends while the run continues, so that nothing in it is closed.
    pub interrupts: bool,
}

/// The agent's answer breaks off.
pub const TRUNCATED: Failure = Failure {
    code: "UPSTREAM_TRUNCATED",
    status: 502,
    a2a: (500, "UPSTREAM_TRUNCATED"),
    openai: ("server_error", "upstream_error"),
    anthropic: "api_error",
    interrupts: false,
};

/// The agent falls silent.
pub const SILENT: Failure = Failure {
    code: "UPSTREAM_TIMEOUT",
    status: 504,
    a2a: (503, "UPSTREAM_UNAVAILABLE"),
    openai: ("server_error", "upstream_timeout"),
    anthropic: "timeout_error",
    interrupts: false,
};

/// The credentials of the caller have ended.
pub const REVOKED: Failure = Failure {
    code: "AUTH_FAILED",
    status: 401,
    a2a: (401, "UNAUTHENTICATED"),
    openai: ("invalid_request_error", "invalid_api_key"),
    anthropic: "authentication_error",
    interrupts: true,
};

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Completed,
    Failed,
}

/// The last frame, which has to be the only end.
pub(crate) fn only_end(frames: &[Value], is_end: impl Fn(&Value) -> bool) -> &Value {
    let last = frames.last().expect("a stream has frames");
    let ends = frames.iter().filter(|frame| is_end(frame)).count();
    assert!(ends == 1 && is_end(last), "{ends} endings: {frames:#?}");
    last
}

/// The JSON frames of an event stream.
pub fn frames(text: &str) -> Vec<Value> {
    let data = text.split("\n").filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

/// The pieces of text in the frames of an answer, put together.
pub(crate) fn joined(answer: &Response, piece: impl Fn(&Value) -> Option<String>) -> String {
    frames(answer.text()).iter().filter_map(piece).collect()
}

/// A string.
pub(crate) fn text_in(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
