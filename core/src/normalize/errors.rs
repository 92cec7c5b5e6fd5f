//! What agents say of their failures: a code and a sentence, in whatever form.
//!
//! Not here: what of it clients may see ([`crate::filter`]).

use serde_json::value::RawValue;

use crate::fault::FaultKind;
use crate::json::{Extra, Json};

/// Parses code and message from `{"code","message"}`, a bare text, or anything else in the field of an error.
pub(super) fn code_and_message(raw: &RawValue) -> (String, String) {
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

/// The runtime reports a busy session by a text only (docs/protocols/agent-api.md#errors).
fn busy_or(message: &str, kind: FaultKind) -> &'static str {
    let busy = message.starts_with("Task ") && message.contains("already in RUNNING state");
    if busy { FaultKind::Busy.code() } else { kind.code() }
}
