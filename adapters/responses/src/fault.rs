//! What is in the way, in this protocol's words (section 11): one function from a kind to status, type and code, one
//! from an agent's failure to the error of a response.

use std::borrow::Cow;

use interlingua_core::event::End;
use interlingua_core::run::RunError;
use interlingua_core::{Fault, FaultKind, Out};
use serde::Serialize;

use crate::wire::ErrorObject;

/// A code of this adapter's own, where the kind alone says too little. Set by [`previous_not_found`] and its like.
const PREVIOUS_NOT_FOUND: &str = "previous_response_not_found";
/// Marks what was told in this protocol's words already. Clients are not shown it.
const TOLD: &str = "told";

/// How a kind is spelled: status, `type`, `code`.
pub(crate) const fn spelled(kind: FaultKind) -> (u16, &'static str, Option<&'static str>) {
    use FaultKind as K;
    const INVALID: &str = "invalid_request_error";
    const SERVER: &str = "server_error";
    match kind {
        K::BadHead
        | K::Misdirected
        | K::Malformed
        | K::UnsupportedMedia
        | K::NotAcceptable
        | K::TooLarge
        | K::NoSuchPath
        | K::MethodNotAllowed
        | K::NotFound
        | K::Canceled => (kind.status(), INVALID, None),
        // Waiting and Conflict are no conflict here: clients would try those again by themselves (section 2).
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

/// The error object of an answer that is no success. Invariant: always these four keys.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Refusal<'a> {
    message: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: Option<&'static str>,
    #[serde(skip)]
    status: u16,
}

impl<'a> Refusal<'a> {
    /// What a fault is to a client.
    pub(crate) fn of(fault: &'a Fault) -> Self {
        let (mut status, kind, mut code) = spelled(fault.kind);
        let mut param = fault.field.as_deref();
        match (fault.kind, fault.code.as_deref()) {
            (_, Some(PREVIOUS_NOT_FOUND)) => (status, code) = (400, Some(PREVIOUS_NOT_FOUND)),
            (FaultKind::UpstreamRateLimited, Some("MODEL_QUOTA_EXCEEDED")) => code = Some("insufficient_quota"),
            // Open or foreign answers: they stand in the input, wherever they were looked for.
            (FaultKind::Waiting, _) => param = Some("input"),
            (FaultKind::NoSuchAgent, _) => param = param.or(Some("model")),
            _ => {}
        }
        let message = match fault.kind {
            // No inner details.
            FaultKind::Internal => "the gateway made a mistake while it handled the request".into(),
            // The field stands in the sentence as well: several clients show nothing else.
            FaultKind::WrongType | FaultKind::Invalid => match &fault.field {
                Some(field) if !fault.message.contains(field.as_str()) => {
                    format!("invalid '{field}': {}", fault.message).into()
                }
                _ => fault.message.as_str().into(),
            },
            _ => fault.message.as_str().into(),
        };
        Self { message, kind, param, code, status }
    }

    /// Writes it as an HTTP answer.
    pub(crate) fn write(&self, fault: &Fault, out: &mut Out) {
        #[derive(Serialize)]
        struct Body<'a> {
            error: &'a Refusal<'a>,
        }
        out.status(self.status);
        if self.status == 405 && !fault.allow.is_empty() {
            out.header("allow", fault.allow.join(", "));
        }
        if let Some(seconds) = retry_after(fault, self.status) {
            out.header("retry-after", seconds.to_string());
        }
        if begun(fault.kind) {
            out.header("x-should-retry", "false");
        }
        out.json(&Body { error: self });
    }
}

/// The `error` event: flat, as it is published, and nested, as it is sent (section 11).
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
    error: &'a Refusal<'a>,
}

impl<'a> ErrorEvent<'a> {
    pub(crate) fn new(refusal: &'a Refusal<'a>, stream_id: Option<&'a str>, sequence_number: Option<u64>) -> Self {
        Self {
            event: "error",
            stream_id,
            sequence_number,
            status: refusal.status,
            code: refusal.code,
            message: &refusal.message,
            param: refusal.param,
            error: refusal,
        }
    }
}

/// When to try again, in seconds, for the statuses that promise to say so.
fn retry_after(fault: &Fault, status: u16) -> Option<u64> {
    let told = fault.retry_after.map(|wait| wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
    match status {
        429 | 503 => Some(told.unwrap_or(1).max(1)),
        _ => told,
    }
}

/// Whether the agent had begun to work on it: doing it again by itself would do it twice (section 2).
const fn begun(kind: FaultKind) -> bool {
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

/// The response a request builds on is not there for this caller.
pub(crate) fn previous_not_found(id: &str) -> Fault {
    Fault::new(FaultKind::NotFound, format!("Previous response with id '{id}' not found."))
        .with_field("previous_response_id")
        .with_code(PREVIOUS_NOT_FOUND)
}

/// Nothing of this sort and id is there for this caller. `what` begins with a capital: the text is OpenAI's.
pub(crate) fn not_found(what: &str, id: &str) -> Fault {
    Fault::new(FaultKind::NotFound, format!("{what} with id '{id}' not found.")).with_code(TOLD)
}

/// A fault about a body's meaning that has no code of its own.
pub(crate) fn about_input(message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Conflict, message).with_field("input")
}

/// A field that is understood and not served.
pub(crate) fn unsupported(field: impl Into<String>, message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Unsupported, message).with_field(field)
}

/// A field that has to be there.
pub(crate) fn missing(field: impl Into<String>) -> Fault {
    let field = field.into();
    Fault::new(FaultKind::Missing, format!("missing required parameter: '{field}'")).with_field(field)
}

/// The error of a response whose run ended badly (section 11). None where it ended otherwise.
pub(crate) fn of_run(end: End, error: Option<&RunError>) -> Option<ErrorObject<'_>> {
    let code = match end {
        End::Rejected => "invalid_prompt",
        End::Failed => error.map_or("server_error", |error| response_code(&error.code)),
        End::Completed | End::Incomplete | End::Canceled => return None,
    };
    let fallback = if end == End::Rejected { "the agent turned the request away" } else { "the agent failed" };
    let message = error.filter(|error| !error.message.is_empty()).map_or(fallback, |error| error.message.as_str());
    let kind = match code {
        "rate_limit_exceeded" | "insufficient_quota" => "rate_limit_error",
        "invalid_prompt" | "context_length_exceeded" => "invalid_request_error",
        _ => "server_error",
    };
    Some(ErrorObject { code, message, kind, param: () })
}

/// From an agent's code to a response's: a closed set, where a native code never belongs.
fn response_code(native: &str) -> &'static str {
    match native {
        "MODEL_CONTEXT_LENGTH_EXCEEDED" => "context_length_exceeded",
        "MODEL_QUOTA_EXCEEDED" => "insufficient_quota",
        "RATE_LIMIT_EXCEEDED" | "UPSTREAM_RATE_LIMITED" => "rate_limit_exceeded",
        "INVALID_PARAMETER" | "PARAMETER_VALIDATION" => "invalid_prompt",
        // Codes of this protocol's own, from agents that speak it.
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
    fn an_agent_that_gives_no_code_is_told_in_its_own_words() {
        let error = |message: &str| RunError { code: "AGENT_UNKNOWN_ERROR".to_owned(), message: message.to_owned() };
        for (message, told) in [("upstream model exploded", "upstream model exploded"), ("", "the agent failed")] {
            let error = error(message);
            let object = of_run(End::Failed, Some(&error)).expect("an error");
            assert_eq!((object.code, object.message), ("server_error", told));
        }
    }
}
