//! Errors that agents report: a code and a sentence in any form, and the run's error made of them.
//!
//! Not here: filtering texts ([`crate::filter`]), and the classes of errors ([`crate::error_class`]).

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::agent_event::AgentError;
use crate::error_class;
use crate::event::End;
use crate::fault::FaultKind;
use crate::filter;
use crate::json::{Extra, Json};
use crate::model_error::Complaint;
use crate::run::RunError;

/// Makes error texts safe for clients: masked by the gateway's function, then filtered.
#[derive(Clone, Copy)]
pub(super) struct ErrorFilter(pub(super) fn(&str) -> Cow<'_, str>);

impl ErrorFilter {
    pub(super) fn code(self, code: &str) -> String {
        filter::client_code(&(self.0)(code)).to_owned()
    }

    pub(super) fn text(self, code: &str, text: &str) -> String {
        filter::client_text(code, &(self.0)(text))
    }

    /// An error of a message, with the agent's own code.
    pub(super) fn error(self, error: &AgentError<'_>) -> RunError {
        let (code, message) = named(error);
        RunError { message: self.text(&code, &message), code: self.code(&code) }
    }

    /// The error of a turn, with the code of its class, or with the agent's own code if that is more specific. `end`:
    /// the end of the turn as the agent reports it.
    pub(super) fn end(self, error: &AgentError<'_>, end: Option<End>) -> RunError {
        let (code, message) = named(error);
        // An incomplete or rejected answer is no failure of the agent.
        let kind = match end {
            None | Some(End::Failed) => class(error, &code, &message),
            Some(_) => None,
        };
        let Some(kind) = kind else {
            return RunError { message: self.text(&code, &message), code: self.code(&code) };
        };

        let code = code_of_class(&code, kind);
        // The agent's words about its credentials concern the operator of the gateway, not its clients.
        let is_hidden = kind == FaultKind::UpstreamCredentials || message.is_empty();
        let message =
            if is_hidden { error_class::sentence(kind, None).into_owned() } else { self.text(code, &message) };
        RunError { message, code: code.to_owned() }
    }

    /// The agent's whole text, for the log.
    pub(super) fn log_text(self, error: &AgentError<'_>) -> String {
        let text = match error {
            AgentError::Raw { value, .. } => value.get(),
            AgentError::Named { message, .. } => message,
        };
        filter::log_text(&(self.0)(text))
    }
}

/// Code and message of an error, unfiltered.
fn named(error: &AgentError<'_>) -> (String, String) {
    match error {
        AgentError::Named { code, message } => (code.clone().into_owned(), message.clone().into_owned()),
        AgentError::Raw { value, code: fallback } => {
            let (code, message) = code_and_message(value);
            let unnamed = code == FaultKind::AgentFailed.code();
            let code = fallback.as_deref().filter(|_| unnamed).map_or(code, str::to_owned);
            (code, message)
        }
    }
}

/// The class of an error that ends a turn. `None`: an unknown one.
fn class(error: &AgentError<'_>, code: &str, message: &str) -> Option<FaultKind> {
    let by_fields = match error {
        AgentError::Raw { value, .. } => Complaint::parse(value.get().as_bytes()).and_then(|found| found.class(None)),
        AgentError::Named { .. } => None,
    };
    let by_fields = by_fields.filter(|kind| *kind != FaultKind::AgentFailed);
    by_fields.or_else(|| error_class::classify(std::iter::once(code), message, None))
}

/// Parses code and message from `{"code","message"}`, a bare text, or anything else in the field of an error.
fn code_and_message(raw: &RawValue) -> (String, String) {
    let text = Json::from_raw(raw);
    let (code, message) = if let Some(fields) = text.decode::<Extra>() {
        let word = |name: &str| fields.get(name).and_then(Json::decode::<String>).filter(|word| !word.is_empty());
        (word("code"), word("message").or_else(|| word("detail")).or_else(|| word("error")))
    } else {
        (None, text.decode::<String>())
    };
    let message = message.unwrap_or_else(|| "the agent failed".to_owned());
    // Servers of 0.1 put the complete text into the code.
    let code = code.filter(|code| *code != message && code.len() <= 64 && !code.contains(char::is_whitespace));
    let code = code.unwrap_or_else(|| busy_or(&message, FaultKind::AgentFailed).to_owned());
    (code, message)
}

/// The code of an error of a known class. Codes of the Agent API that are more specific than the class stay; all others
/// could be mistaken for faults of the client or the gateway.
fn code_of_class(code: &str, kind: FaultKind) -> &str {
    let is_own = code.starts_with("MODEL_") || code.starts_with("UPSTREAM_") || code == "TIMEOUT";
    let is_kept = is_own && kind != FaultKind::UpstreamCredentials && error_class::of_code(code) == Some(kind);
    if is_kept { code } else { kind.code() }
}

/// The runtime reports a busy session by a text only (docs/protocols/agent-api.md#errors).
fn busy_or(message: &str, kind: FaultKind) -> &'static str {
    let busy = message.starts_with("Task ") && message.contains("already in RUNNING state");
    if busy { FaultKind::Busy.code() } else { kind.code() }
}
