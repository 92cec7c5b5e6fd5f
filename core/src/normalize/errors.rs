//! What agents say of their failures: a code and a sentence, in whatever form.
//!
//! Not here: what of it clients may see ([`crate::filter`]).

use serde_json::value::RawValue;

use crate::agent_event::AgentError;
use crate::error_class;
use crate::fault::FaultKind;
use crate::json::{Extra, Json};
use crate::model_error::Complaint;

/// Code and message of an error, unfiltered.
pub(super) fn named(error: &AgentError<'_>) -> (String, String) {
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
pub(super) fn class(error: &AgentError<'_>, code: &str, message: &str) -> Option<FaultKind> {
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

/// The code of an error of a known class. Codes of the Agent API that say more than the class stay; all others could be
/// mistaken for faults of the client or the gateway.
pub(super) fn code_of_class(code: &str, kind: FaultKind) -> &str {
    let is_own = code.starts_with("MODEL_") || code.starts_with("UPSTREAM_") || code == "TIMEOUT";
    let is_kept = is_own && kind != FaultKind::UpstreamCredentials && error_class::of_code(code) == Some(kind);
    if is_kept { code } else { kind.code() }
}

/// The runtime reports a busy session by a text only (docs/protocols/agent-api.md#errors).
fn busy_or(message: &str, kind: FaultKind) -> &'static str {
    let busy = message.starts_with("Task ") && message.contains("already in RUNNING state");
    if busy { FaultKind::Busy.code() } else { kind.code() }
}
