//! On whose behalf a call is made, and by which route it came.

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::call::AgentCard;
use interlingua_core::push::PushNotifiers;
use interlingua_core::{Owner, RunPolicy};

use super::connection::ConnectionCache;
use super::turn::Origin;
use interlingua_callers::Caller;
use interlingua_observe::RequestLog;
use interlingua_store::owned_key;
use interlingua_upstream::{ForwardedHeaders, Trace};

/// On whose behalf a call is made, and by which route it came.
#[derive(Clone)]
pub struct Scope {
    /// To whom runs and sessions belong.
    pub owner: Owner,
    /// Who calls. [`Self::owner`] may be restricted to a route and a tenant of it.
    pub caller: Arc<Caller>,
    /// The names of the route's other agents, which the caller may not use.
    pub denied: Arc<[String]>,
    /// The agents of the route that the caller may use.
    pub agents: Arc<[Arc<AgentCard>]>,
    /// The protocol of the route.
    pub protocol: &'static str,
    /// The path of the route, for the log.
    pub path: Arc<str>,
    /// True: runs go on when their client leaves, whatever the protocol does by itself.
    pub detach: bool,
    /// How long a stream is held back for the agent to begin.
    pub first_event_timeout: Duration,
    /// What the protocol delivers without a request. `None`: nothing.
    pub push: Option<Arc<PushNotifiers>>,
    /// The route, if it has retention rules of its own.
    pub route: Option<Arc<str>>,
    /// The trace that the request is part of: agents receive it.
    pub trace: Option<Arc<Trace>>,
    /// What is known of the request, for the logs.
    pub request: Option<Arc<RequestLog>>,
    /// The headers of the request that agents may get: those that an agent of the route is forwarded.
    pub forwarded: ForwardedHeaders,
    /// What is kept for the connection that the request came over. `None`: nothing.
    pub connection: Option<Arc<ConnectionCache>>,
}

impl Scope {
    /// Where turns of such a call come from.
    pub(crate) fn origin(&self) -> Origin {
        Origin {
            caller: Arc::clone(&self.caller),
            protocol: self.protocol,
            route: Arc::clone(&self.path),
            trace: self.trace.clone(),
            request: self.request.clone(),
            forwarded: self.forwarded.clone(),
        }
    }

    /// True if the route has this agent.
    pub(crate) fn offers(&self, agent: &str) -> bool {
        self.agents.iter().any(|card| card.name == agent)
    }

    /// The names of the route's agents.
    pub(super) fn agent_names(&self) -> Vec<String> {
        self.agents.iter().map(|card| card.name.clone()).collect()
    }

    /// The key of one of the caller's documents: those of other callers are never read.
    pub(crate) fn document_key(&self, key: &str) -> String {
        owned_key(self.owner.key(), key)
    }

    /// True if what comes of such a call is kept by its connection and nowhere else.
    pub(crate) const fn keeps_in_connection(&self, policy: &RunPolicy) -> bool {
        !policy.stored && self.connection.is_some()
    }
}
