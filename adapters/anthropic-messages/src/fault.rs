//! Faults as errors of this protocol (docs/protocols/anthropic-messages.md#errors): one function maps a fault kind to
//! status and type, another maps the end of a run.

use std::borrow::Cow;
use std::fmt::Write as _;

use interlingua_core::event::End;
use interlingua_core::run::RunError;
use interlingua_core::{Fault, FaultKind, Out, error_class};
use serde::Serialize;

/// Codes of errors about threads, which clients act on. They are [`Fault::code`]s of this adapter.
pub(crate) mod thread {
    /// The thread is unknown: the client sends everything again.
    pub(crate) const NOT_FOUND: &str = "thread_not_found";
    /// Threads are disabled: the client continues in a form that needs none.
    pub(crate) const UNSUPPORTED: &str = "thread_unsupported_request";
}

/// The agent asks for something, and the route does not pass that on.
pub(crate) const APPROVAL_REQUIRED: &str = "approval_required";

/// The words by which clients recognise that the conversation is too long for the model.
const TOO_LONG: &str = "prompt is too long";

const INVALID: &str = "invalid_request_error";
const API: &str = "api_error";

/// Status and `type` of a fault kind.
pub(crate) const fn error_fields(kind: FaultKind) -> (u16, &'static str) {
    use FaultKind as K;
    match kind {
        // 400, not 409: clients repeat a 409 by themselves.
        K::Waiting | K::Conflict => (400, INVALID),
        K::Busy => (409, "conflict_error"),
        K::UpstreamQuota => (402, "billing_error"),
        K::Overloaded | K::UpstreamOverloaded => (529, "overloaded_error"),
        _ => match kind.status() {
            status @ (400 | 405 | 406 | 415 | 421 | 431) => (status, INVALID),
            401 => (401, "authentication_error"),
            403 => (403, "permission_error"),
            404 => (404, "not_found_error"),
            413 => (413, "request_too_large"),
            429 => (429, "rate_limit_error"),
            504 => (504, "timeout_error"),
            status @ (502 | 503) => (status, API),
            _ => (500, API),
        },
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ApiError<'a> {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) message: Cow<'a, str>,
    /// For programs; no client but those of threads knows any.
    code: String,
    /// A repeated request cannot help, or would do the agent's work twice.
    is_final: bool,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    #[serde(rename = "type")]
    event: &'static str,
    error: ErrorObject<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    message: &'a str,
    details: Details<'a>,
}

#[derive(Serialize)]
struct Details<'a> {
    error_code: &'a str,
}

impl<'a> ApiError<'a> {
    /// The error a client sees for a fault.
    pub(crate) fn from_fault(fault: &'a Fault) -> Self {
        let (mut status, mut kind) = error_fields(fault.kind);
        let code = fault.code.as_deref();
        let mut message: Cow<'a, str> = match (&fault.field, fault.kind) {
            // Internal details stay in the log.
            (_, FaultKind::Internal) => "internal error in the gateway".into(),
            (Some(field), _) => format!("{}: {}", dotted(field), fault.message).into(),
            (None, _) => fault.message.as_str().into(),
        };

        match (fault.kind, code) {
            (FaultKind::UpstreamContextTooLong, _) => message = too_long(&fault.message),
            (_, Some(thread::UNSUPPORTED)) => (status, kind) = (400, INVALID),
            (_, Some(thread::NOT_FOUND)) => (status, kind) = (404, "not_found_error"),
            _ => {}
        }

        // The tokens of a day are used up until midnight UTC. For every other limit the client may retry after the
        // pause.
        let out_of_quota = fault.limit.as_ref().is_some_and(|limit| limit.name == "tokens");
        let is_final = !fault.kind.retry_helps() || out_of_quota;
        Self { status, kind, message, code: client_code(fault.code()), is_final }
    }

    /// The error of a run that ended so. `None`: it did not fail.
    pub(crate) fn from_run(end: End, error: Option<&'a RunError>) -> Option<Self> {
        let code = error.map_or("", |error| error.code.as_str());
        let failure = error_class::of_failed_run(code);
        let (status, kind, fallback) = match end {
            End::Completed | End::Incomplete => return None,
            End::Rejected => (400, INVALID, "the agent rejected the request"),
            End::Canceled => (500, API, "the run was canceled"),
            End::Failed => {
                let (status, kind) = error_fields(failure);
                (status, kind, "the agent failed")
            }
        };

        let message = error.map(|error| error.message.as_str()).filter(|message| !message.is_empty());
        let message = match (message, failure) {
            (message, FaultKind::UpstreamContextTooLong) => too_long(message.unwrap_or_default()),
            (Some(message), _) => message.into(),
            (None, _) => fallback.into(),
        };
        let code = if code.is_empty() { end.as_str() } else { code };
        Some(Self { status, kind, message, code: client_code(code), is_final: true })
    }

    /// The error of a run that asks for something on a route that refuses to pass it on.
    pub(crate) fn approval_required() -> Self {
        Self {
            status: 400,
            kind: INVALID,
            message: "the agent asks for an approval or an answer, which this route does not pass on".into(),
            code: APPROVAL_REQUIRED.to_owned(),
            is_final: true,
        }
    }

    fn body<'b>(&'b self, request_id: Option<&'b str>) -> ErrorBody<'b> {
        let details = Details { error_code: &self.code };
        ErrorBody {
            event: "error",
            error: ErrorObject { kind: self.kind, message: &self.message, details },
            request_id,
        }
    }

    /// Writes the error as an HTTP response. `fault`: the cause, if there is one.
    pub(crate) fn write(&self, fault: Option<&Fault>, request_id: Option<&str>, out: &mut Out) {
        out.status(self.status);
        if let Some(fault) = fault {
            out.fault_headers(fault);
        }
        // Clients expect it there.
        if !self.is_final && matches!(self.status, 429 | 503 | 529) && out.head.get("retry-after").is_none() {
            out.header("retry-after", "1");
        }
        if self.is_final {
            out.header("x-should-retry", "false");
        }
        out.json(&self.body(request_id));
    }

    /// Writes the error as the last event of a stream.
    pub(crate) fn write_event(&self, request_id: Option<&str>, out: &mut Out) {
        out.frame(Some("error"), &self.body(request_id));
    }
}

/// Clients look for these words, and shorten the conversation.
fn too_long(message: &str) -> Cow<'static, str> {
    match message.to_ascii_lowercase().find(TOO_LONG) {
        Some(0) => message.to_owned().into(),
        _ if message.is_empty() => TOO_LONG.into(),
        _ => format!("{TOO_LONG}: {message}").into(),
    }
}

/// A code in lower case. An agent's own must not look like one that clients act on.
fn client_code(code: &str) -> String {
    let is_ours = matches!(code, thread::NOT_FOUND | thread::UNSUPPORTED);
    let code = code.to_ascii_lowercase();
    if code.starts_with("thread_") && !is_ours { "agent_error".to_owned() } else { code }
}

/// `messages[0].content[1].type` as `messages.0.content.1.type`.
fn dotted(path: &str) -> String {
    let mut dotted = String::with_capacity(path.len());
    for piece in path.split(['[', ']']).filter(|piece| !piece.is_empty()) {
        let dot = if dotted.is_empty() || piece.starts_with('.') { "" } else { "." };
        let written = write!(dotted, "{dot}{piece}");
        debug_assert!(written.is_ok(), "writing into a string does not fail");
    }
    dotted
}

/// A required field is missing.
pub(crate) fn missing(field: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Missing, "Field required").with_field(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_clients_of_this_protocol_know_them() {
        assert_eq!(dotted("messages[0].content[12].source.type"), "messages.0.content.12.source.type");
        assert_eq!(dotted("model"), "model");
        assert_eq!(dotted("tools[3]"), "tools.3");
        assert_eq!(dotted(""), "");
    }

    #[test]
    fn the_error_for_a_long_conversation_has_the_phrase_that_clients_match() {
        let code = FaultKind::UpstreamContextTooLong.code().to_owned();
        let error = RunError { code, message: "the context window is full".to_owned() };
        let shown = ApiError::from_run(End::Failed, Some(&error)).expect("an error");
        assert_eq!((shown.status, &*shown.message), (400, "prompt is too long: the context window is full"));
        let fault = Fault::new(FaultKind::UpstreamContextTooLong, "Prompt is too long: 9 > 8");
        let shown = ApiError::from_fault(&fault);
        assert_eq!((shown.status, &*shown.message), (400, "Prompt is too long: 9 > 8"));
    }

    #[test]
    fn an_agent_cannot_make_clients_start_a_thread_again() {
        let error = RunError { code: "thread_already_continued".to_owned(), message: "no".to_owned() };
        assert_eq!(ApiError::from_run(End::Failed, Some(&error)).expect("an error").code, "agent_error");
        assert_eq!(client_code(thread::NOT_FOUND), thread::NOT_FOUND);
    }
}
