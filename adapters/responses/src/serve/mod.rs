//! The exchanges, one for each endpoint of docs/protocols/responses.md#endpoints, and what they share.
//!
//! Here: the mounted route, and the headers of every response. Not here: writing runs, see [`crate::encode`].

pub(crate) mod context;
pub(crate) mod conversations;
pub(crate) mod count;
pub(crate) mod create;
pub(crate) mod items;
pub(crate) mod models;
mod page;
mod stored;

pub(crate) use stored::{Cancel, Delete, InputItems, Retrieve};

use interlingua_core::call::Target;
use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::model_list::ModelNames;
use interlingua_core::out::Head;
use interlingua_core::{Call, Fault, FaultKind, Next, Out, Reply, Request, RunId, Step};

use crate::fault::{self, not_found};
use crate::ids;
use crate::options::Options;

/// A mounted route.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) names: ModelNames,
}

impl Shared {
    /// The `server_label` of an agent's tools.
    pub(crate) fn server_label<'a>(&'a self, agent: &'a str) -> &'a str {
        let card = self.names.card(agent);
        card.map(|card| card.server_label.as_str()).filter(|label| !label.is_empty()).unwrap_or(agent)
    }
}

/// Headers of every HTTP response (docs/protocols/responses.md#transport).
#[derive(Debug, Default)]
pub(crate) struct ResponseHeaders {
    request_id: Option<String>,
}

impl ResponseHeaders {
    /// Headers for the response to a request.
    pub(crate) fn for_request(request: &Request<'_>) -> Self {
        Self { request_id: Some(request.new_id.to_prefixed("req_")) }
    }

    /// Sets the headers.
    pub(crate) fn apply(&self, head: &mut Head) {
        if let Some(id) = &self.request_id {
            head.set("x-request-id", id.as_str());
        }
        head.set("openai-version", "2020-10-01");
    }

    /// Writes a fault as an HTTP error.
    pub(crate) fn write_error(&self, fault: &Fault, out: &mut Out) {
        self.apply(&mut out.head);
        fault::error(fault).write(Some(fault), out);
    }
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

/// Answers requests that match no endpoint, and endpoints that are switched off.
#[derive(Default)]
pub(crate) struct Fallback {
    headers: ResponseHeaders,
}

impl Exchange for Fallback {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        Err(Fault::new(FaultKind::NoSuchPath, format!("Invalid URL ({} {})", request.method, request.path)))
    }

    fn reply(&mut self, _: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        Err(Fault::unexpected_reply())
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.headers.write_error(fault, out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
