//! Errors in the form of OpenAI's APIs: the object `{message, type, param, code}`, its status, and the headers that say
//! to clients whether to try again. One table for the protocols of these APIs.
//!
//! Not here: the frames in which a stream carries the object, and codes that one API has alone.

use std::borrow::Cow;

use serde::Serialize;

use crate::event::End;
use crate::fault::{Fault, FaultKind};
use crate::out::Out;
use crate::run::RunError;

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";
const RATE: &str = "rate_limit_error";

/// The code of an agent that failed.
const FAILED: &str = "upstream_error";
/// The code of an agent that was silent for too long: the same before an answer as in the middle of one.
const SILENT: &str = "upstream_timeout";

/// A required field is missing.
#[must_use]
pub fn missing(field: impl Into<String>) -> Fault {
    let field = field.into();
    Fault::new(FaultKind::Missing, format!("missing required parameter: '{field}'")).with_field(field)
}

/// An error object with its status. Invariant: all four keys are always written.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorObject<'a> {
    /// For people.
    pub message: Cow<'a, str>,
    /// The class of the error.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The field of the request that is wrong.
    pub param: Option<&'a str>,
    /// For programs.
    pub code: Option<&'static str>,
    /// The HTTP status.
    #[serde(skip)]
    pub status: u16,
    /// False: a repeated request would do the agent's work twice, or cannot help.
    #[serde(skip)]
    pub may_retry: bool,
}

impl<'a> ErrorObject<'a> {
    /// The error that clients get for a fault.
    #[must_use]
    pub fn from_fault(fault: &'a Fault) -> Self {
        let (status, kind, mut code) = fields(fault.kind);

        // Other limits are free again within seconds.
        let out_of_quota = fault.limit.as_ref().is_some_and(|limit| limit.name == "tokens");
        let is_upstream_quota =
            fault.kind == FaultKind::UpstreamRateLimited && fault.code.as_deref() == Some("MODEL_QUOTA_EXCEEDED");
        if out_of_quota || is_upstream_quota {
            code = Some("insufficient_quota");
        }

        let param = fault.field.as_deref().or((fault.kind == FaultKind::NoSuchAgent).then_some("model"));
        let message = match fault.kind {
            // Internal details stay in the log.
            FaultKind::Internal => "internal error in the gateway".into(),
            // The message names the field as well: several clients show only the message.
            FaultKind::WrongType | FaultKind::Invalid => match &fault.field {
                Some(field) if !fault.message.contains(field.as_str()) => {
                    format!("invalid '{field}': {}", fault.message).into()
                }
                _ => fault.message.as_str().into(),
            },
            _ => fault.message.as_str().into(),
        };
        let may_retry = !(fault.kind.may_have_side_effects() || out_of_quota);
        Self { message, kind, param, code, status, may_retry }
    }

    /// The error of a run that ended so. `None`: it did not fail.
    #[must_use]
    pub fn from_run(end: End, error: Option<&'a RunError>) -> Option<Self> {
        let code = match end {
            End::Rejected => "invalid_prompt",
            End::Failed => error.map_or(FAILED, |error| failure_code(&error.code)),
            End::Canceled => "canceled",
            End::Completed | End::Incomplete => return None,
        };
        let fallback = match end {
            End::Rejected => "the agent rejected the request",
            End::Canceled => "the run was canceled",
            _ => "the agent failed",
        };
        let message = error.filter(|error| !error.message.is_empty()).map_or(fallback, |error| error.message.as_str());
        let (kind, status) = match code {
            "canceled" => (INVALID, FaultKind::Canceled.status()),
            SILENT => (SERVER, FaultKind::UpstreamTimeout.status()),
            code => class_of(code),
        };
        Some(Self { message: message.into(), kind, param: None, code: Some(code), status, may_retry: false })
    }

    /// Writes the error as an HTTP response. `fault`: what it was made of, if anything.
    pub fn write(&self, fault: Option<&Fault>, out: &mut Out) {
        #[derive(Serialize)]
        struct Body<'a> {
            error: &'a ErrorObject<'a>,
        }

        out.status(self.status);
        if let Some(fault) = fault {
            out.fault_headers(fault);
        }
        // Clients expect it there.
        if matches!(self.status, 429 | 503) && out.head.get("retry-after").is_none() {
            out.header("retry-after", "1");
        }
        if !self.may_retry {
            out.header("x-should-retry", "false");
        }
        out.json(&Body { error: self });
    }
}

/// Status, `type` and `code` of a fault kind.
const fn fields(kind: FaultKind) -> (u16, &'static str, Option<&'static str>) {
    use FaultKind as K;
    match kind {
        K::BadHead
        | K::HeadTooLarge
        | K::Misdirected
        | K::Malformed
        | K::UnsupportedMedia
        | K::NotAcceptable
        | K::TooLarge
        | K::NoSuchPath
        | K::MethodNotAllowed
        | K::NotFound
        | K::Canceled => (kind.status(), INVALID, None),
        // 400, not 409: clients repeat a 409 by themselves.
        K::Waiting | K::Conflict => (400, INVALID, None),
        K::Missing => (400, INVALID, Some("missing_required_parameter")),
        K::WrongType => (400, INVALID, Some("invalid_type")),
        K::Invalid => (400, INVALID, Some("invalid_value")),
        K::Exclusive => (400, INVALID, Some("mutually_exclusive_parameters")),
        K::Unsupported => (400, INVALID, Some("unsupported_parameter")),
        K::Unauthenticated => (401, INVALID, Some("invalid_api_key")),
        K::Forbidden => (403, "permission_error", None),
        K::NoSuchAgent => (404, INVALID, Some("model_not_found")),
        K::Busy => (409, INVALID, Some("conversation_busy")),
        K::RateLimited | K::UpstreamRateLimited => (429, RATE, Some("rate_limit_exceeded")),
        K::UpstreamTimeout => (504, SERVER, Some(SILENT)),
        K::ShuttingDown | K::Overloaded => (503, SERVER, None),
        K::UpstreamUnreachable
        | K::UpstreamRefused
        | K::UpstreamTruncated
        | K::UpstreamGarbage
        | K::UpstreamTooLarge
        | K::AgentFailed => (502, SERVER, Some(FAILED)),
        _ => (500, SERVER, None),
    }
}

/// The code that clients of these APIs know for an agent's error code. `None`: they know none.
#[must_use]
pub fn agent_code(code: &str) -> Option<&'static str> {
    Some(match code {
        "MODEL_CONTEXT_LENGTH_EXCEEDED" | "context_length_exceeded" => "context_length_exceeded",
        "MODEL_QUOTA_EXCEEDED" | "insufficient_quota" => "insufficient_quota",
        "RATE_LIMIT_EXCEEDED" | "UPSTREAM_RATE_LIMITED" | "rate_limit_exceeded" => "rate_limit_exceeded",
        "INVALID_PARAMETER" | "PARAMETER_VALIDATION" | "invalid_prompt" => "invalid_prompt",
        _ => return None,
    })
}

/// The code of a run that failed with this one.
fn failure_code(code: &str) -> &'static str {
    match code {
        "UPSTREAM_TIMEOUT" | "MODEL_TIMEOUT" => SILENT,
        code => agent_code(code).unwrap_or(FAILED),
    }
}

/// `type` and status of an agent's failure with this code.
#[must_use]
pub fn class_of(code: &str) -> (&'static str, u16) {
    match code {
        "rate_limit_exceeded" | "insufficient_quota" => (RATE, 429),
        "invalid_prompt" | "context_length_exceeded" => (INVALID, 400),
        _ => (SERVER, 502),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_a_code_keeps_the_message_of_the_agent() {
        for (message, expected) in [("the model exploded", "the model exploded"), ("", "the agent failed")] {
            let error = RunError { code: "AGENT_UNKNOWN_ERROR".to_owned(), message: message.to_owned() };
            let object = ErrorObject::from_run(End::Failed, Some(&error)).expect("an error");
            assert_eq!((object.code, &*object.message, object.status), (Some("upstream_error"), expected, 502));
            assert!(!object.may_retry);
        }
        assert!(ErrorObject::from_run(End::Completed, None).is_none());
    }

    #[test]
    fn an_agent_that_falls_silent_has_one_code_before_and_within_an_answer() {
        let error = RunError { code: "UPSTREAM_TIMEOUT".to_owned(), message: String::new() };
        let within = ErrorObject::from_run(End::Failed, Some(&error)).expect("an error");
        let fault = Fault::new(FaultKind::UpstreamTimeout, "the agent fell silent");
        let before = ErrorObject::from_fault(&fault);
        assert_eq!((within.status, within.kind, within.code), (before.status, before.kind, before.code));
        assert!(!within.may_retry && !before.may_retry);
    }

    #[test]
    fn a_body_has_all_four_keys_and_headers_say_whether_to_retry() {
        let mut out = Out::new();
        let fault = Fault::new(FaultKind::AgentFailed, "it broke");
        ErrorObject::from_fault(&fault).write(Some(&fault), &mut out);
        let expected =
            br#"{"error":{"message":"it broke","type":"server_error","param":null,"code":"upstream_error"}}"#;
        assert_eq!(&out.body[..], expected);
        assert_eq!((out.head.status, out.head.get("x-should-retry")), (502, Some("false")));

        let mut out = Out::new();
        let fault = Fault::new(FaultKind::Overloaded, "full");
        ErrorObject::from_fault(&fault).write(Some(&fault), &mut out);
        assert_eq!((out.head.get("retry-after"), out.head.get("x-should-retry")), (Some("1"), None));
    }
}
