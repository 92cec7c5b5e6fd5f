//! Error responses: the only place where a fault is converted to the service's format
//! (docs/human-in-the-loop.md#error-cases).

use interlingua_core::{Fault, FaultKind, Out};

use crate::wire;

/// The status of an error. Errors of bodies are written by [`write_bad_fields`].
const fn status(kind: FaultKind) -> u16 {
    match kind {
        // All errors of request fields, wherever they are detected.
        FaultKind::Malformed | FaultKind::Missing | FaultKind::WrongType => 422,
        kind => kind.status(),
    }
}

/// Writes an error response.
pub(crate) fn write(fault: &Fault, out: &mut Out) {
    write_as(status(fault.kind), fault, out);
}

/// Writes an error response with a given status.
pub(crate) fn write_as(status: u16, fault: &Fault, out: &mut Out) {
    out.status(status);
    out.fault_headers(fault);

    let detail = match fault.kind {
        // Clients of the original's framework compare these texts.
        FaultKind::NoSuchPath => "Not Found",
        FaultKind::MethodNotAllowed => "Method Not Allowed",
        _ => &fault.message,
    };
    out.json(&wire::ErrorBody { detail });
}

/// Writes the errors of a body.
pub(crate) fn write_bad_fields(bad: &[wire::BadField], out: &mut Out) {
    out.status(422);
    out.json(&wire::BadFields { detail: bad });
}

#[cfg(test)]
mod tests {
    use interlingua_core_testkit::fault_table;

    use super::*;

    #[test]
    fn each_kind_has_its_status_and_message() {
        insta::assert_snapshot!(fault_table(|kind| Fault::new(kind, "why"), write));
    }
}
