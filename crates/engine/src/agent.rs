//! The agents of the gateway: their connections, and their settings for history and turns.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use interlingua_core::Fault;
use interlingua_core::call::AgentCard;
use tokio::sync::watch;

use crate::route_agents::RouteAgents;
use interlingua_callers::Usage;
use interlingua_observe::metrics::AgentMetrics;
use interlingua_upstream::Upstream;

/// An agent and its configuration.
pub struct Agent {
    /// The name in `gateway.toml`.
    pub name: String,
    /// The protocol of the agent.
    pub protocol: Arc<str>,
    /// The description that clients can read.
    pub card: Arc<AgentCard>,
    /// Sends requests to the agent.
    pub upstream: Arc<dyn Upstream>,
    /// True if a mount reads events of the agent's protocol that the model cannot represent. A reload may change it.
    pub protocol_events: AtomicBool,
    /// The keeper of the history of sessions.
    pub history: History,
    /// The maximum size of the history in one request.
    pub history_limit: HistoryLimit,
    /// True: a turn waits while another turn of its session is running. False: it is refused.
    pub queue_turns: bool,
    /// The maximum size of a run, in bytes.
    pub max_run_bytes: usize,
    /// Use of the agent by all callers together, and its limits.
    pub usage: Arc<Usage>,
    /// Metrics of the agent.
    pub metrics: Arc<AgentMetrics>,
}

impl Agent {
    pub(super) fn reads_protocol_events(&self) -> bool {
        self.protocol_events.load(Ordering::Relaxed)
    }
}

/// The keeper of the history of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// The agent. Requests contain only the id of the session.
    Upstream,
    /// The gateway. Each request contains the history.
    Gateway,
}

/// The maximum size of the history in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimit {
    /// Number of turns.
    pub turns: usize,
    /// Number of bytes.
    pub bytes: usize,
}

impl HistoryLimit {
    /// The limit for a chain of runs that the client could also send itself: at least 1000 turns and 16 MiB.
    pub(super) fn of_chains(self) -> Self {
        Self { turns: self.turns.max(1000), bytes: self.bytes.max(16 << 20) }
    }
}

/// All agents of the gateway. A reload of the configuration replaces them; running turns keep the old ones.
pub(super) struct Agents {
    by_name: ArcSwap<HashMap<String, Arc<Agent>>>,
    /// The names of draining agents, which get no new runs. Not a field of [`Agent`], because it must survive a reload.
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

    /// Replaces all agents atomically. An agent continues to drain unless it was removed.
    pub(super) fn replace(&self, agents: Vec<Arc<Agent>>) {
        let agents = by_name(agents);
        let mut draining = self.draining.lock().unwrap_or_else(PoisonError::into_inner);
        draining.retain(|name| agents.contains_key(name));
        self.by_name.store(Arc::new(agents));
        drop(draining);
        self.reloads.send_modify(|reloads| *reloads += 1);
    }

    /// A counter that each reload increments.
    pub(super) fn reloads(&self) -> watch::Receiver<u64> {
        self.reloads.subscribe()
    }

    /// Starts or ends draining an agent. False: the agent does not exist.
    pub(super) fn set_draining(&self, name: &str, is_draining: bool) -> bool {
        // Lock first: a reload must not remove the agent between the check and the insertion.
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

    pub(super) fn is_draining(&self, name: &str) -> bool {
        self.draining.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    /// All agents, in arbitrary order.
    pub(super) fn all(&self) -> Vec<Arc<Agent>> {
        self.by_name.load().values().cloned().collect()
    }

    /// The agent of this name. Fails if the route does not have it, or if the caller may not use it.
    pub(super) fn offered(&self, name: &str, of_route: &RouteAgents) -> Result<Arc<Agent>, Fault> {
        of_route.check(name)?;
        self.by_name.load().get(name).cloned().ok_or_else(|| of_route.unknown(name))
    }

    /// The agent of a stored run, or any other agent if that one was removed from the configuration: the run cannot
    /// continue then, but can still be read and ended. `None`: the gateway has no agents.
    pub(super) fn of_stored_run(&self, name: &str) -> Option<Arc<Agent>> {
        let agents = self.by_name.load();
        agents.get(name).or_else(|| agents.values().next()).cloned()
    }
}
