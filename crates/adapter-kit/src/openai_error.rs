//! Errors in the form of OpenAI's APIs: the object `{message, type, param, code}`, its status, and the headers that say
//! to clients whether to try again. One table for the protocols of these APIs.
//!
//! Not here: the frames in which a stream carries the object, and codes that one API has alone.

use std::borrow::Cow;

use serde::Serialize;

use interlingua_core::error_class;
use interlingua_core::event::End;
use interlingua_core::fault::{Fault, FaultKind};
use interlingua_core::out::Out;
use interlingua_core::run::RunError;

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

        // The tokens of a day are used up until midnight UTC. For every other limit the client may retry after the
        // pause.
        let out_of_quota = fault.limit.as_ref().is_some_and(|limit| limit.name == "tokens");
        if out_of_quota {
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
        let may_retry = fault.kind.retry_helps() && !out_of_quota;
        Self { message, kind, param, code, status, may_retry }
    }

    /// The error of a run that ended so. `None`: it did not fail.
    #[must_use]
    pub fn from_run(end: End, error: Option<&'a RunError>) -> Option<Self> {
        let kind = match end {
            End::Rejected => FaultKind::UpstreamRefused,
            End::Failed => error.map_or(FaultKind::AgentFailed, |error| error_class::of_failed_run(&error.code)),
            End::Canceled => FaultKind::Canceled,
            End::Completed | End::Incomplete => return None,
        };
        let fallback = match end {
            End::Rejected => "the agent rejected the request",
            End::Canceled => "the run was canceled",
            _ => "the agent failed",
        };
        let message = error.filter(|error| !error.message.is_empty()).map_or(fallback, |error| error.message.as_str());
        let (status, kind, code) = match kind {
            FaultKind::Canceled => (kind.status(), INVALID, Some("canceled")),
            kind => fields(kind),
        };
        Some(Self { message: message.into(), kind, param: None, code, status, may_retry: false })
    }

    /// Writes the error as an HTTP response. `fault`: the cause, if there is one.
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
        if self.may_retry && matches!(self.status, 429 | 503) && out.head.get("retry-after").is_none() {
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
        K::UpstreamRefused => (400, INVALID, Some("invalid_prompt")),
        K::UpstreamContextTooLong => (400, INVALID, Some("context_length_exceeded")),
        K::UpstreamFiltered => (400, INVALID, Some("content_filter")),
        K::UpstreamUnsupportedMedia => (400, INVALID, Some("unsupported_media")),
        K::UpstreamInputTooLarge => (413, INVALID, Some("request_too_large")),
        K::UpstreamNoSuchModel => (404, INVALID, Some("model_not_found")),
        K::RateLimited | K::UpstreamRateLimited => (429, RATE, Some("rate_limit_exceeded")),
        K::UpstreamQuota => (429, RATE, Some("insufficient_quota")),
        K::UpstreamOverloaded => (503, SERVER, Some("upstream_overloaded")),
        K::UpstreamTimeout => (504, SERVER, Some(SILENT)),
        K::ShuttingDown | K::Overloaded => (503, SERVER, None),
        _ if kind.status() == 502 => (502, SERVER, Some(FAILED)),
        _ => (500, SERVER, None),
    }
}

/// Code and type of a failed response, whose codes are a closed list: each client decides by them whether to ask again.
#[must_use]
pub fn response_failure(code: &str) -> (&'static str, &'static str) {
    use FaultKind as K;
    match error_class::of_failed_run(code) {
        K::UpstreamContextTooLong => ("context_length_exceeded", INVALID),
        K::UpstreamQuota => ("insufficient_quota", RATE),
        K::UpstreamRateLimited => ("rate_limit_exceeded", RATE),
        K::UpstreamRefused
        | K::UpstreamFiltered
        | K::UpstreamUnsupportedMedia
        | K::UpstreamInputTooLarge
        | K::UpstreamNoSuchModel => ("invalid_prompt", INVALID),
        _ => ("server_error", SERVER),
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
