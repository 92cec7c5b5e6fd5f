//! Agents as the engine knows them: the way to each one, and what its configuration says about history and turns.

use std::collections::HashMap;
use std::sync::Arc;

use interlingua_core::call::AgentCard;
use interlingua_core::{Fault, FaultKind};

use super::scope::Scope;
use crate::callers::Usage;
use crate::upstream::Upstream;

/// An agent.
pub struct Agent {
    /// As `gateway.toml` names it.
    pub name: String,
    /// What clients may know of it.
    pub card: Arc<AgentCard>,
    /// The way to it.
    pub upstream: Arc<dyn Upstream>,
    /// Who keeps the history of its sessions.
    pub history: History,
    /// How much history is sent at most.
    pub history_limit: HistoryLimit,
    /// True: a turn waits while another one of its session is under way. False: it is refused.
    pub queue_turns: bool,
    /// The largest run, in bytes.
    pub max_run_bytes: usize,
    /// What all callers together use of it, and how much they may.
    pub usage: Arc<Usage>,
}

/// Who keeps the history of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// The agent, by the session's id.
    Upstream,
    /// The gateway, which sends it with each request.
    Gateway,
}

/// How much history is sent at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimit {
    /// In turns.
    pub turns: usize,
    /// In bytes.
    pub bytes: usize,
}

/// All agents of the gateway.
pub(super) struct Agents(HashMap<String, Arc<Agent>>);

impl Agents {
    pub(super) fn new(agents: Vec<Arc<Agent>>) -> Self {
        Self(agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect())
    }

    /// An agent by its name, if the route has it and the caller may use it.
    pub(super) fn offered(&self, name: &str, scope: &Scope) -> Result<&Arc<Agent>, Fault> {
        if scope.denied.iter().any(|denied| denied == name) {
            return Err(Fault::new(FaultKind::Forbidden, format!("you may not use the agent '{name}'")));
        }

        self.0.get(name).filter(|_| scope.offers(name)).ok_or_else(|| {
            let names: Vec<&str> = scope.agents.iter().map(|card| card.name.as_str()).collect();
            let message = format!("no agent is called '{name}': this route has {}", names.join(", "));
            Fault::new(FaultKind::NoSuchAgent, message)
        })
    }

    /// The agent of a stored run. One that was taken out of the configuration is replaced by any other: its runs are not
    /// continued, but they can still be read and ended.
    pub(super) fn of_stored_run(&self, name: &str) -> Option<&Arc<Agent>> {
        self.0.get(name).or_else(|| self.0.values().next())
    }
}
