//! Errors of a server, and answers in another protocol.

use interlingua_core::connector::Refusal;
use interlingua_core::model_error::Complaint;
use interlingua_core::{Fault, FaultKind};
use serde_json::value::RawValue;

use super::wire::Event;

/// Code of a refusal because the server has deleted the response or conversation that the request continues.
pub(super) const FORGOTTEN: &str = "previous_response_not_found";

/// Code and sentence for the error that ends a run, from whatever stands where an error should.
pub(super) fn error_of(raw: Option<&RawValue>) -> (String, String) {
    complaint(raw.map_or("", RawValue::get).as_bytes())
}

/// Code and sentence for the error that ends a run. Unfiltered.
pub(super) fn complaint(body: &[u8]) -> (String, String) {
    let (code, message) = Complaint::parse(body).unwrap_or_default().into_error();
    // The type of an event is no code.
    let code = if code == "error" { String::new() } else { code };
    (code, message)
}

/// Whether the server does not know the response or conversation that the request continues.
pub(super) fn is_forgotten(refusal: &Refusal<'_>) -> bool {
    if !matches!(refusal.status, 400 | 404 | 422) {
        return false;
    }
    let Some(complaint) = Complaint::parse(refusal.body) else { return false };
    if complaint.code() == FORGOTTEN {
        return true;
    }

    let text = complaint.message().to_ascii_lowercase();
    let is_missing = ["not found", "no such", "does not exist", "unknown"].iter().any(|words| text.contains(words));
    let is_state = ["response", "conversation"].iter().any(|word| text.contains(word));
    // The conversation cannot be continued: one of its calls has no output.
    let is_open = text.contains("no tool output found");
    // A server that keeps nothing, and says so.
    let is_field = text.contains("previous_response_id") || text.contains("conversation");
    let is_unknown =
        is_field && ["unsupported", "not supported", "not implemented"].iter().any(|words| text.contains(words));
    is_open || is_unknown || (is_missing && is_state && !text.contains("model"))
}

/// An answer of a neighbouring protocol, which the operator named wrongly.
pub(super) fn foreign(event: &Event<'_>, object: Option<&str>) -> Option<Fault> {
    let is_chat = object.is_some_and(|object| object.starts_with("chat.completion"));
    let is_chat = is_chat || event.choices.is_some_and(|choices| choices.get().starts_with('['));
    is_chat.then(|| {
        let message = "the agent's answer is in another protocol: set protocol = \"chat-completions\"";
        Fault::new(FaultKind::UpstreamGarbage, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_response_is_known_by_code_or_words() {
        let refused =
            |status: u16, body: &str| is_forgotten(&Refusal { status, body: body.as_bytes(), retry_after: None });
        for body in [
            r#"{"error":{"code":"previous_response_not_found","message":"Previous response with id 'resp_1' not found."}}"#,
            r#"{"error":{"message":"Response with id 'resp_1' not found.","type":"invalid_request_error"}}"#,
            r#"{"error":{"message":"Conversation with id 'conv_1' not found."}}"#,
            r#"{"detail":"No such response"}"#,
            r#"{"error":{"message":"No tool output found for function call call_1."}}"#,
            r#"{"error":{"message":"property 'previous_response_id' is unsupported"}}"#,
        ] {
            assert!(refused(400, body) && refused(404, body), "{body}");
            assert!(!refused(500, body) && !refused(401, body), "{body}");
        }

        for body in [
            r#"{"error":{"code":"model_not_found","message":"The model 'x' does not exist"}}"#,
            r#"{"error":{"message":"Unknown parameter: 'foo'."}}"#,
            "<html>not found</html>",
            "",
        ] {
            assert!(!refused(404, body), "{body}");
        }
    }
}
