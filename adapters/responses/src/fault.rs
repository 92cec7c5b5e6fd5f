//! Faults as errors of this protocol (docs/protocols/responses.md#errors), as far as they are not those of all APIs of
//! OpenAI ([`interlingua_adapter_kit::openai_error`]), and an agent's failure as the error of a response.

use interlingua_adapter_kit::openai_error;
use interlingua_core::event::End;
use interlingua_core::run::RunError;
use interlingua_core::{Fault, FaultKind};
use serde::Serialize;

use crate::wire::ErrorObject;

/// A code of this adapter, for a case that the fault kind does not identify. Set by [`previous_not_found`].
const PREVIOUS_NOT_FOUND: &str = "previous_response_not_found";
/// Marks faults whose message is already worded as OpenAI words it. Never sent to clients.
const OPENAI_WORDING: &str = "openai_wording";

/// The error a client sees for a fault.
pub(crate) fn error(fault: &Fault) -> openai_error::ErrorObject<'_> {
    let mut error = openai_error::ErrorObject::from_fault(fault);
    if fault.code.as_deref() == Some(PREVIOUS_NOT_FOUND) {
        (error.status, error.code) = (400, Some(PREVIOUS_NOT_FOUND));
    } else if fault.kind == FaultKind::Waiting {
        // The answers to pending items are in the input, whichever field the engine reports.
        error.param = Some("input");
    }
    error
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
    error: &'a openai_error::ErrorObject<'a>,
}

impl<'a> ErrorEvent<'a> {
    pub(crate) fn new(
        error: &'a openai_error::ErrorObject<'a>,
        stream_id: Option<&'a str>,
        sequence_number: Option<u64>,
    ) -> Self {
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

/// The error of a response whose run failed (docs/protocols/responses.md#errors). `None` if the run ended otherwise.
pub(crate) fn run_error(end: End, error: Option<&RunError>) -> Option<ErrorObject<'_>> {
    let (code, kind) = match end {
        End::Rejected => openai_error::response_failure(FaultKind::UpstreamRefused.code()),
        End::Failed => openai_error::response_failure(error.map_or("", |error| error.code.as_str())),
        End::Completed | End::Incomplete | End::Canceled => return None,
    };

    let fallback = if end == End::Rejected { "the agent rejected the request" } else { "the agent failed" };
    let message = error.filter(|error| !error.message.is_empty()).map_or(fallback, |error| error.message.as_str());

    Some(ErrorObject { code, message, kind, param: () })
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
