//! The exchanges, one for each endpoint of section 1, and what they share.
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

use std::sync::Arc;

use interlingua_core::call::{AgentCard, Target};
use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::out::Head;
use interlingua_core::{Call, Fault, FaultKind, Next, Out, Reply, Request, RunId, Step};

use crate::fault::{ErrorBody, not_found};
use crate::ids;
use crate::options::Options;

/// A mounted route.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) agents: Vec<Arc<AgentCard>>,
}

impl Shared {
    /// Name of the agent that a `model` maps to.
    ///
    /// # Errors
    /// 404 with the known names.
    pub(crate) fn agent(&self, model: &str) -> Result<&str, Fault> {
        let named = |name: &str| self.agents.iter().find(|agent| agent.name == name);
        let found = named(model).or_else(|| named(self.options.models.get(model)?));
        if let Some(agent) = found {
            return Ok(&agent.name);
        }

        match self.agents.as_slice() {
            [agent] if self.options.any_model => Ok(&agent.name),
            _ => {
                let known: Vec<_> = self.models().map(|(name, _)| format!("'{name}'")).collect();
                let message = format!("The model '{model}' does not exist. Known models: {}.", known.join(", "));
                Err(Fault::new(FaultKind::NoSuchAgent, message).with_field("model"))
            }
        }
    }

    /// Every name a client may send as `model`, and the agent it maps to.
    pub(crate) fn models(&self) -> impl Iterator<Item = (&str, &AgentCard)> {
        let names = self.agents.iter().map(|agent| (agent.name.as_str(), agent.as_ref()));
        let aliases = self.options.models.iter().filter_map(|(name, agent)| {
            let agent = self.agents.iter().find(|known| known.name == *agent)?;
            Some((name.as_str(), agent.as_ref()))
        });
        names.chain(aliases)
    }

    /// The `server_label` of an agent's tools.
    pub(crate) fn server_label<'a>(&'a self, agent: &'a str) -> &'a str {
        let card = self.agents.iter().find(|card| card.name == agent);
        card.map(|card| card.server_label.as_str()).filter(|label| !label.is_empty()).unwrap_or(agent)
    }
}

/// Headers of every HTTP response (section 2).
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
        ErrorBody::from_fault(fault).write(fault, out);
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

/// The engine sent a reply that does not match the call. A bug of the gateway.
pub(crate) fn unexpected_reply() -> Fault {
    Fault::new(FaultKind::Internal, "the reply of the engine does not match the call")
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
        Err(unexpected_reply())
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.headers.write_error(fault, out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
