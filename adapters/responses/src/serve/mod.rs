//! The exchanges, one for each endpoint of docs/protocols/responses.md#endpoints, and what they share.
//!
//! Here: the mounted route. Not here: what all APIs of OpenAI have ([`interlingua_adapter_kit::openai_api`]), and
//! writing runs, see [`crate::encode`].

pub(crate) mod context;
pub(crate) mod conversations;
pub(crate) mod count;
pub(crate) mod create;
pub(crate) mod items;
mod page;
mod stored;

pub(crate) use stored::{Cancel, Delete, InputItems, Retrieve};

use std::sync::Arc;

use interlingua_adapter_kit::model_list::ModelNames;
use interlingua_core::call::Target;
use interlingua_core::{Fault, FaultKind, Request, RunId};

use crate::fault::not_found;
use crate::ids;
use crate::options::Options;

#[derive(Debug)]
pub(crate) struct MountedRoute {
    pub(crate) options: Options,
    pub(crate) names: Arc<ModelNames>,
}

/// The run that a path names, and its id as the client wrote it.
pub(crate) fn run_from_path(request: &Request<'_>) -> Result<(RunId, String), Fault> {
    let id = request.param("id").to_owned();
    let run = ids::parse_response_id(&id).ok_or_else(|| not_found("Response", &id))?;
    Ok((run, id))
}

/// Replaces the engine's fault for a missing object of the path by one with OpenAI's message.
pub(crate) fn with_openai_wording(fault: &Fault, what: &str, id: &str) -> Fault {
    if fault.kind == FaultKind::NotFound && fault.field.is_none() && fault.code.is_none() {
        not_found(what, id)
    } else {
        fault.clone()
    }
}

/// The target of an engine call.
pub(crate) const fn target(run: RunId) -> Target {
    Target::Run(run)
}
