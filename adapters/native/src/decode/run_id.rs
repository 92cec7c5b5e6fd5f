//! The run in a path.

use interlingua_core::{Fault, FaultKind, Request, RunId};

/// The run in the path.
pub(crate) fn run_id(request: &Request<'_>) -> Result<RunId, Fault> {
    let id = request.param("id");
    RunId::parse(id).ok_or_else(|| no_such_run(id))
}

/// A fault for a run whose id cannot be one.
pub(crate) fn no_such_run(id: &str) -> Fault {
    Fault::new(FaultKind::NotFound, format!("run '{id}' not found"))
}
