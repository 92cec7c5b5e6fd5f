//! Writes answers and errors for clients.

use interlingua_adapter_kit::fallback::ErrorWriter;
use interlingua_core::{Fault, FaultKind, Out, Request};
use serde::Serialize;

/// An error, in the form of clients that know no protocol. Replace it by a type of the specification, in `wire`.
#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'a str,
    message: &'a str,
}

/// Writes the errors of one request.
#[derive(Debug, Default)]
pub(crate) struct Errors;

impl ErrorWriter for Errors {
    fn no_such_path(request: &Request<'_>) -> String {
        format!("no endpoint at {}", request.path)
    }

    fn write(&self, fault: &Fault, out: &mut Out) {
        out.status(match fault.kind {
            FaultKind::Unsupported => 501,
            kind => kind.status(),
        });
        out.fault_headers(fault);
        out.json(&ErrorBody { code: fault.code(), message: &fault.message });
    }
}
