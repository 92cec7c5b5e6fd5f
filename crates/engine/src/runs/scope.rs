//! The caller and the route of a call.

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::push::PushNotifiers;
use interlingua_core::{Owner, RunPolicy};

use super::connection::ConnectionCache;
use super::turn::Origin;
use crate::route_agents::RouteAgents;
use interlingua_callers::Caller;
use interlingua_observe::RequestLog;
use interlingua_store::owned_key;
use interlingua_upstream::{ForwardedHeaders, Trace};

/// The caller and the route of a call.
#[derive(Clone)]
pub struct Scope {
    /// The owner of the runs and sessions of the call.
    pub owner: Owner,
    /// The caller. [`Self::owner`] may be restricted to a route and a tenant of the caller.
    pub caller: Arc<Caller>,
    /// The agents of the route that the caller may use.
    pub agents: RouteAgents,
    /// The protocol of the route.
    pub protocol: &'static str,
    /// The path of the route, for logs.
    pub path: Arc<str>,
    /// True: runs continue when their client disconnects, even if the protocol would cancel them.
    pub detach: bool,
    /// A stream begins when the agent has started, or after this time.
    pub first_event_timeout: Duration,
    /// Creates the push notifications of the protocol. `None`: it has none.
    pub push: Option<Arc<PushNotifiers>>,
    /// The route, if it has retention rules of its own.
    pub route: Option<Arc<str>>,
    /// The trace of the request, which agents receive.
    pub trace: Option<Arc<Trace>>,
    /// The log entry of the request.
    pub request: Option<Arc<RequestLog>>,
    /// The headers of the request that are forwarded to agents of the route.
    pub forwarded: ForwardedHeaders,
    /// The unstored responses of the connection. `None`: the connection keeps none.
    pub connection: Option<Arc<ConnectionCache>>,
}

impl Scope {
    /// The origin of turns that the call starts.
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

    pub(super) fn agent_names(&self) -> Vec<String> {
        self.agents.iter().map(|card| card.name.clone()).collect()
    }

    /// The key of a document of the owner. It contains the owner, so that documents of others are out of reach.
    pub(crate) fn document_key(&self, key: &str) -> String {
        owned_key(self.owner.key(), key)
    }

    /// True if runs of the call are not stored but kept by the connection.
    pub(crate) const fn keeps_in_connection(&self, policy: &RunPolicy) -> bool {
        !policy.stored && self.connection.is_some()
    }
}
