//! Faults as errors of this protocol (docs/protocols/responses.md#errors): one function maps a fault kind to status,
//! type and code, another maps an agent's failure to the error of a response.

use std::borrow::Cow;

use interlingua_core::event::End;
use interlingua_core::run::RunError;
use interlingua_core::{Fault, FaultKind, Out};
use serde::Serialize;

use crate::wire::ErrorObject;

/// A code of this adapter, for a case that the fault kind does not identify. Set by [`previous_not_found`].
const PREVIOUS_NOT_FOUND: &str = "previous_response_not_found";
/// Marks faults whose message is already worded as OpenAI words it. Never sent to clients.
const OPENAI_WORDING: &str = "openai_wording";

/// Status, `type` and `code` of a fault kind.
pub(crate) const fn error_fields(kind: FaultKind) -> (u16, &'static str, Option<&'static str>) {
    use FaultKind as K;
    const INVALID: &str = "invalid_request_error";
    const SERVER: &str = "server_error";
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
        // Waiting and Conflict are sent as 400, not 409: clients retry a 409 automatically
        // (docs/protocols/responses.md#transport).
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
        K::RateLimited | K::UpstreamRateLimited => (429, "rate_limit_error", Some("rate_limit_exceeded")),
        K::UpstreamTimeout => (504, SERVER, Some("upstream_timeout")),
        K::ShuttingDown | K::Overloaded => (503, SERVER, None),
        K::UpstreamUnreachable
        | K::UpstreamRefused
        | K::UpstreamTruncated
        | K::UpstreamGarbage
        | K::UpstreamTooLarge
        | K::AgentFailed => (502, SERVER, Some("upstream_error")),
        _ => (500, SERVER, None),
    }
}

/// The error object of an unsuccessful reply. Invariant: all four keys are always written.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ErrorBody<'a> {
    message: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: Option<&'static str>,
    #[serde(skip)]
    status: u16,
    /// True if an automatic retry cannot help before a quota is filled again.
    #[serde(skip)]
    out_of_quota: bool,
}

impl<'a> ErrorBody<'a> {
    /// The error a client sees for a fault.
    pub(crate) fn from_fault(fault: &'a Fault) -> Self {
        let (mut status, kind, mut code) = error_fields(fault.kind);

        // Other limits are free again within seconds.
        let out_of_quota = fault.limit.as_ref().is_some_and(|limit| limit.name == "tokens");
        let mut param = fault.field.as_deref();
        match (fault.kind, fault.code.as_deref()) {
            (_, Some(PREVIOUS_NOT_FOUND)) => (status, code) = (400, Some(PREVIOUS_NOT_FOUND)),
            (FaultKind::UpstreamRateLimited, Some("MODEL_QUOTA_EXCEEDED")) => code = Some("insufficient_quota"),
            _ if out_of_quota => code = Some("insufficient_quota"),
            // The answers to pending items are in the input, whichever field the engine reports.
            (FaultKind::Waiting, _) => param = Some("input"),
            (FaultKind::NoSuchAgent, _) => param = param.or(Some("model")),
            _ => {}
        }

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
        Self { message, kind, param, code, status, out_of_quota }
    }

    /// Writes the error as an HTTP response.
    pub(crate) fn write(&self, fault: &Fault, out: &mut Out) {
        #[derive(Serialize)]
        struct Body<'a> {
            error: &'a ErrorBody<'a>,
        }

        out.status(self.status);
        if self.status == 405 && !fault.allow.is_empty() {
            out.header("allow", fault.allow.join(", "));
        }
        if let Some(seconds) = retry_after(fault, self.status) {
            out.header("retry-after", seconds.to_string());
        }
        if may_have_side_effects(fault.kind) || self.out_of_quota {
            out.header("x-should-retry", "false");
        }
        out.json(&Body { error: self });
    }
}

/// The `error` event: the fields are flat, as the specification has them, and nested, as OpenAI sends them
/// (docs/protocols/responses.md#errors).
#[derive(Serialize)]
pub(crate) struct ErrorEvent<'a> {
    #[serde(rename = "type")]
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_number: Option<u64>,
    status: u16,
    code: Option<&'static str>,
    message: &'a str,
    param: Option<&'a str>,
    error: &'a ErrorBody<'a>,
}

impl<'a> ErrorEvent<'a> {
    pub(crate) fn new(error: &'a ErrorBody<'a>, stream_id: Option<&'a str>, sequence_number: Option<u64>) -> Self {
        Self {
            event: "error",
            stream_id,
            sequence_number,
            status: error.status,
            code: error.code,
            message: &error.message,
            param: error.param,
            error,
        }
    }
}

/// Value of `retry-after` in seconds. Always set for 429 and 503, since clients expect it there.
fn retry_after(fault: &Fault, status: u16) -> Option<u64> {
    let seconds = fault.retry_after.map(|wait| wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
    match status {
        429 | 503 => Some(seconds.unwrap_or(1).max(1)),
        _ => seconds,
    }
}

/// True if the agent may have started to work on the request: an automatic retry would do the work twice
/// (docs/protocols/responses.md#transport).
const fn may_have_side_effects(kind: FaultKind) -> bool {
    use FaultKind as K;
    matches!(
        kind,
        K::UpstreamTruncated
            | K::UpstreamGarbage
            | K::UpstreamTooLarge
            | K::UpstreamTimeout
            | K::AgentFailed
            | K::Canceled
    )
}

/// The previous response does not exist for this caller.
pub(crate) fn previous_not_found(id: &str) -> Fault {
    Fault::new(FaultKind::NotFound, format!("Previous response with id '{id}' not found."))
        .with_field("previous_response_id")
        .with_code(PREVIOUS_NOT_FOUND)
}

/// An object does not exist for this caller. `what` starts with a capital letter: the text is OpenAI's.
pub(crate) fn not_found(what: &str, id: &str) -> Fault {
    Fault::new(FaultKind::NotFound, format!("{what} with id '{id}' not found.")).with_code(OPENAI_WORDING)
}

/// The input contradicts what is stored. Has no code of its own.
pub(crate) fn input_conflict(message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Conflict, message).with_field("input")
}

/// A known field that this gateway does not support.
pub(crate) fn unsupported(field: impl Into<String>, message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Unsupported, message).with_field(field)
}

/// A required field is missing.
pub(crate) fn missing(field: impl Into<String>) -> Fault {
    let field = field.into();
    Fault::new(FaultKind::Missing, format!("missing required parameter: '{field}'")).with_field(field)
}

/// The error of a response whose run failed (docs/protocols/responses.md#errors). `None` if the run ended otherwise.
pub(crate) fn run_error(end: End, error: Option<&RunError>) -> Option<ErrorObject<'_>> {
    let code = match end {
        End::Rejected => "invalid_prompt",
        End::Failed => error.map_or("server_error", |error| response_code(&error.code)),
        End::Completed | End::Incomplete | End::Canceled => return None,
    };

    let fallback = if end == End::Rejected { "the agent rejected the request" } else { "the agent failed" };
    let message = error.filter(|error| !error.message.is_empty()).map_or(fallback, |error| error.message.as_str());

    let kind = match code {
        "rate_limit_exceeded" | "insufficient_quota" => "rate_limit_error",
        "invalid_prompt" | "context_length_exceeded" => "invalid_request_error",
        _ => "server_error",
    };

    Some(ErrorObject { code, message, kind, param: () })
}

/// Maps an agent's error code to one of the closed set that responses may have.
fn response_code(agent_code: &str) -> &'static str {
    match agent_code {
        "MODEL_CONTEXT_LENGTH_EXCEEDED" => "context_length_exceeded",
        "MODEL_QUOTA_EXCEEDED" => "insufficient_quota",
        "RATE_LIMIT_EXCEEDED" | "UPSTREAM_RATE_LIMITED" => "rate_limit_exceeded",
        "INVALID_PARAMETER" | "PARAMETER_VALIDATION" => "invalid_prompt",
        // Codes of this protocol, from agents that speak it.
        "context_length_exceeded" => "context_length_exceeded",
        "insufficient_quota" => "insufficient_quota",
        "rate_limit_exceeded" => "rate_limit_exceeded",
        "invalid_prompt" => "invalid_prompt",
        _ => "server_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_a_code_keeps_the_message_of_the_agent() {
        let error = |message: &str| RunError { code: "AGENT_UNKNOWN_ERROR".to_owned(), message: message.to_owned() };
        for (message, expected) in [("upstream model exploded", "upstream model exploded"), ("", "the agent failed")] {
            let error = error(message);
            let object = run_error(End::Failed, Some(&error)).expect("an error");
            assert_eq!((object.code, object.message), ("server_error", expected));
        }
    }
}
