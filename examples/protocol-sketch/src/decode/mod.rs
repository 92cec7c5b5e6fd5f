//! Turns requests of clients into calls of the engine.

use interlingua_core::{Call, Fault, FaultKind, Request};

/// Reads a request. The skeleton refuses all of them.
pub(crate) fn call(request: &Request<'_>) -> Result<Call, Fault> {
    let message = format!("{} {}: the protocol {} is not implemented yet", request.method, request.path, crate::NAME);
    Err(Fault::new(FaultKind::Unsupported, message))
}
