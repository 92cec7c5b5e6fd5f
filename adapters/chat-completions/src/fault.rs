//! Faults of requests, in the words of this protocol (docs/protocols/chat-completions.md#errors).
//!
//! Not here: how faults become errors, which this protocol shares with Responses
//! ([`interlingua_adapter_kit::openai_error`]).

use interlingua_adapter_kit::openai_error::ErrorObject;
use interlingua_core::{Fault, FaultKind};

/// A code of this adapter: the field is known, but not with this value. Set by [`unsupported_value`].
const UNSUPPORTED_VALUE: &str = "unsupported_value";

/// A known field with a value that this gateway does not support.
pub(crate) fn unsupported_value(field: impl Into<String>, message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Unsupported, message).with_field(field).with_code(UNSUPPORTED_VALUE)
}

/// There is no such completion for the caller. The words are OpenAI's.
pub(crate) fn not_found(id: &str) -> Fault {
    Fault::new(FaultKind::NotFound, format!("Chat completion with id '{id}' not found."))
}

/// A message that stands where it cannot. Has no code of its own.
pub(crate) fn misplaced(field: impl Into<String>, message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Conflict, message).with_field(field)
}

/// The error that clients get for a fault.
pub(crate) fn error(fault: &Fault) -> ErrorObject<'_> {
    let mut error = ErrorObject::from_fault(fault);
    if fault.code.as_deref() == Some(UNSUPPORTED_VALUE) {
        error.code = Some(UNSUPPORTED_VALUE);
    }
    error
}
