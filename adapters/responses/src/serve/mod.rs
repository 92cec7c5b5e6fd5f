//! The exchanges: one for each row of section 1, and what they share.
//!
//! Here: the route as mounted, and how an answer is addressed. Nothing here tells a run; that is [`crate::encode`].

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

use crate::fault::{Refusal, not_found};
use crate::ids;
use crate::options::Options;

/// A route as it is mounted.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) agents: Vec<Arc<AgentCard>>,
}

impl Shared {
    /// The agent a `model` means.
    ///
    /// # Errors
    /// 404 with the names there are.
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

    /// Every name a client may write as `model`, and the agent it means.
    pub(crate) fn models(&self) -> impl Iterator<Item = (&str, &AgentCard)> {
        let own = self.agents.iter().map(|agent| (agent.name.as_str(), agent.as_ref()));
        let further = self.options.models.iter().filter_map(|(name, agent)| {
            let agent = self.agents.iter().find(|known| known.name == *agent)?;
            Some((name.as_str(), agent.as_ref()))
        });
        own.chain(further)
    }

    /// What an agent's tools are said to come from.
    pub(crate) fn server_label<'a>(&'a self, agent: &'a str) -> &'a str {
        let card = self.agents.iter().find(|card| card.name == agent);
        card.map(|card| card.server_label.as_str()).filter(|label| !label.is_empty()).unwrap_or(agent)
    }
}

/// What every answer carries (section 2).
#[derive(Debug, Default)]
pub(crate) struct Address {
    request_id: Option<String>,
}

impl Address {
    /// Of the answer to a request.
    pub(crate) fn of(request: &Request<'_>) -> Self {
        Self { request_id: Some(request.fresh.to_prefixed("req_")) }
    }

    /// Sets the headers.
    pub(crate) fn on(&self, head: &mut Head) {
        if let Some(id) = &self.request_id {
            head.set("x-request-id", id.as_str());
        }
        head.set("openai-version", "2020-10-01");
    }

    /// Writes a refusal.
    pub(crate) fn refuse(&self, fault: &Fault, out: &mut Out) {
        self.on(&mut out.head);
        Refusal::of(fault).write(fault, out);
    }
}

/// The run a path names.
pub(crate) fn run_of(request: &Request<'_>) -> Result<(RunId, String), Fault> {
    let id = request.param("id").to_owned();
    let run = ids::response(&id).ok_or_else(|| not_found("Response", &id))?;
    Ok((run, id))
}

/// A fault about something looked up by a path: what is not there is told in this protocol's words.
pub(crate) fn told_of(fault: &Fault, what: &str, id: &str) -> Fault {
    if fault.kind == FaultKind::NotFound && fault.field.is_none() && fault.code.is_none() {
        not_found(what, id)
    } else {
        fault.clone()
    }
}

/// Which run, for a call.
pub(crate) const fn target(run: RunId) -> Target {
    Target::Run(run)
}

/// An answer of a sort nobody asked for.
pub(crate) fn astray() -> Fault {
    Fault::new(FaultKind::Internal, "an answer of another sort than was asked for")
}

/// Answers what no endpoint answers, and endpoints that are switched off.
#[derive(Default)]
pub(crate) struct Fallback {
    address: Address,
}

impl Exchange for Fallback {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.address = Address::of(request);
        Err(Fault::new(FaultKind::NoSuchPath, format!("Invalid URL ({} {})", request.method, request.path)))
    }
    fn reply(&mut self, _: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        Err(astray())
    }
    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.address.refuse(fault, out);
    }
    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
