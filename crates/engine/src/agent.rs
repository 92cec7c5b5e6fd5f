//! Agents as the engine knows them: the way to each one, and what its configuration says about history and turns.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use interlingua_core::call::AgentCard;
use interlingua_core::{Fault, FaultKind};
use tokio::sync::watch;

use interlingua_callers::Usage;
use interlingua_observe::metrics::AgentMetrics;
use interlingua_upstream::Upstream;

/// An agent.
pub struct Agent {
    /// As `gateway.toml` names it.
    pub name: String,
    /// The protocol it speaks.
    pub protocol: Arc<str>,
    /// What clients may know of it.
    pub card: Arc<AgentCard>,
    /// The way to it.
    pub upstream: Arc<dyn Upstream>,
    /// Some client of it reads events of its protocol that the model has no word for. A reload may change it.
    pub protocol_events: AtomicBool,
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
    /// What is counted of it.
    pub metrics: Arc<AgentMetrics>,
}

impl Agent {
    /// Some client of it reads events of its protocol that the model has no word for.
    pub(super) fn reads_protocol_events(&self) -> bool {
        self.protocol_events.load(Ordering::Relaxed)
    }
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

impl HistoryLimit {
    /// For a conversation that its client could send itself: at least a thousand turns and 16 MiB.
    pub(super) fn of_chains(self) -> Self {
        Self { turns: self.turns.max(1000), bytes: self.bytes.max(16 << 20) }
    }
}

/// All agents of the gateway, by name. A reload of the configuration replaces them; a turn keeps its own.
pub(super) struct Agents {
    by_name: ArcSwap<HashMap<String, Arc<Agent>>>,
    /// The names of those that take no new runs. Apart from the agents, because it outlives what a reload replaces.
    draining: Mutex<HashSet<String>>,
    /// The number of reloads.
    reloads: watch::Sender<u64>,
}

fn by_name(agents: Vec<Arc<Agent>>) -> HashMap<String, Arc<Agent>> {
    agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect()
}

impl Agents {
    pub(super) fn new(agents: Vec<Arc<Agent>>) -> Self {
        Self {
            by_name: ArcSwap::from_pointee(by_name(agents)),
            draining: Mutex::default(),
            reloads: watch::Sender::new(0),
        }
    }

    /// Replaces all agents at once. One that stays goes on draining; one that is gone, and comes back later, does not.
    pub(super) fn replace(&self, agents: Vec<Arc<Agent>>) {
        let agents = by_name(agents);
        let mut draining = self.draining.lock().unwrap_or_else(PoisonError::into_inner);
        draining.retain(|name| agents.contains_key(name));
        self.by_name.store(Arc::new(agents));
        drop(draining);
        self.reloads.send_modify(|reloads| *reloads += 1);
    }

    /// Changes with each reload.
    pub(super) fn reloads(&self) -> watch::Receiver<u64> {
        self.reloads.subscribe()
    }

    /// Lets an agent take no new runs, or take them again. False: there is no such agent.
    pub(super) fn set_draining(&self, name: &str, is_draining: bool) -> bool {
        // Locked before the agents are read: a reload that removes the agent comes before or after, not between.
        let mut draining = self.draining.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.by_name.load().contains_key(name) {
            return false;
        }
        if is_draining {
            draining.insert(name.to_owned());
        } else {
            draining.remove(name);
        }
        true
    }

    /// True if an agent takes no new runs at this gateway.
    pub(super) fn is_draining(&self, name: &str) -> bool {
        self.draining.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    /// All agents, in no order.
    pub(super) fn all(&self) -> Vec<Arc<Agent>> {
        self.by_name.load().values().cloned().collect()
    }

    /// An agent by its name, if it is one of these cards and not denied: a route offers only its own, and a caller may
    /// use only some of them.
    pub(super) fn offered(&self, name: &str, cards: &[Arc<AgentCard>], denied: &[String]) -> Result<Arc<Agent>, Fault> {
        if denied.iter().any(|denied| denied == name) {
            return Err(Fault::new(FaultKind::Forbidden, format!("you may not use the agent '{name}'")));
        }

        let offered = cards.iter().any(|card| card.name == name);
        self.by_name.load().get(name).filter(|_| offered).cloned().ok_or_else(|| {
            let names: Vec<&str> = cards.iter().map(|card| card.name.as_str()).collect();
            let message = format!("no agent is called '{name}': this route has {}", names.join(", "));
            Fault::new(FaultKind::NoSuchAgent, message)
        })
    }

    /// The agent of a stored run. One that was taken out of the configuration is replaced by any other: its runs are
    /// not continued, but they can still be read and ended.
    pub(super) fn of_stored_run(&self, name: &str) -> Option<Arc<Agent>> {
        let agents = self.by_name.load();
        agents.get(name).or_else(|| agents.values().next()).cloned()
    }
}
