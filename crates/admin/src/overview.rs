//! Views of the gateway, its agents and its routes for the console.
//!
//! Not here: the complete active configuration, which operators read without the console ([`super::api`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use interlingua_core::event::Millis;
use serde_json::Value;

use super::views::{Agent, Build, Endpoint, Gateway, LastFault, Listener, Reason, Route, StoreKind, Traffic};
use super::{AdminState, samples};
use interlingua_observe::metrics::{RecentStats, SeriesFilter};
use interlingua_server::served::ServedRoute;
use interlingua_store::Health;
use interlingua_upstream::pool::EndpointStatus;

pub(super) fn gateway(state: &AdminState) -> Gateway {
    let admin = &state.admin;
    let config = admin.reload.config();
    let routes = admin.control.all_routes();
    let (running, reasons) = (admin.engine.running_by_protocol(), reasons(state));
    let mut protocols: Vec<&'static str> = Vec::new();
    for route in &routes {
        if !protocols.contains(&route.scope.protocol) {
            protocols.push(route.scope.protocol);
        }
    }
    let traffic = protocols.iter().map(|protocol| Traffic {
        protocol,
        live: running.get(*protocol).copied().unwrap_or_default(),
        lately: lately(state, &SeriesFilter::Protocol((*protocol).to_owned())),
    });
    Gateway {
        version: env!("CARGO_PKG_VERSION"),
        build: Build { os: std::env::consts::OS, arch: std::env::consts::ARCH, debug: cfg!(debug_assertions) },
        started_at: admin.started,
        accepting: admin.engine.is_open(),
        active: admin.engine.working(),
        reload: admin.reload.last(),
        store: StoreKind { kind: config["in_force"]["store"]["kind"].as_str().unwrap_or_default().to_owned() },
        listeners: vec![
            Listener { whom: "clients", url: admin.client_url.clone() },
            Listener { whom: "operators", url: state.url.clone() },
        ],
        public_url: admin.control.public_url(),
        ready: reasons.is_empty(),
        reasons,
        traffic: traffic.collect(),
        protocols,
        warnings: routes.iter().flat_map(|route| route.mounted.warnings.clone()).collect(),
    }
}

/// The reasons within the gateway for not being ready: it is draining, or its store fails. Agents are not included.
pub(super) fn reasons(state: &AdminState) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if state.admin.engine.is_stopping() {
        reasons.push(Reason { what: "draining", agent: None, since_s: None, detail: None });
    }
    if let Health::Failing { since, error } = state.admin.engine.health() {
        let detail = interlingua_base::secrets::mask(&error.to_string()).into_owned();
        let since_s = Some(since.elapsed().as_secs());
        reasons.push(Reason { what: "store", agent: None, since_s, detail: Some(detail) });
    }
    reasons
}

/// The observed beginning of the state of each agent.
#[derive(Default)]
pub(super) struct AgentStates(Mutex<HashMap<String, (&'static str, Millis)>>);

impl AgentStates {
    /// The start of an agent's current state, as far as it was observed. `begin`: the start of the gateway.
    fn since(&self, agent: &str, state: &'static str, begin: Millis) -> Millis {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get_mut(agent) {
            Some((before, since)) => {
                if *before != state {
                    (*before, *since) = (state, interlingua_base::clock::now());
                }
                *since
            }
            None => {
                // Assume that the agent was ready since the start of the gateway.
                let since = if state == "ready" { begin } else { interlingua_base::clock::now() };
                known.insert(agent.to_owned(), (state, since));
                since
            }
        }
    }
}

/// The configured agents, with the state of their endpoints and their current load.
pub(super) fn agents(state: &AdminState) -> Vec<Agent> {
    let levels = state.admin.engine.levels();
    let number = |of: &[(Arc<str>, usize)], name: &str| {
        of.iter().find(|(agent, _)| **agent == *name).map_or(0, |(_, number)| *number)
    };
    let live = state.admin.engine.agents();
    let Value::Array(configured) = state.admin.reload.agents() else { return Vec::new() };
    let shown = configured.into_iter().filter_map(|agent| {
        let Value::Object(mut settings) = agent else { return None };
        let Some(Value::String(name)) = settings.remove("name") else { return None };
        let known = live.iter().find(|known| known.name == name);
        let endpoints = known.and_then(|known| known.upstream.pool()).map(|pool| pool.status()).unwrap_or_default();
        let hosts: Vec<&str> = endpoints.iter().map(|endpoint| host_of(&endpoint.url)).collect();
        let is_failing = !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.state == "out");
        let agent_state = match state.admin.engine.is_draining(&name) {
            true => "draining",
            false if is_failing => "failing",
            false => "ready",
        };
        Some(Agent {
            protocol: settings["upstream"]["protocol"].as_str().unwrap_or_default().to_owned(),
            host: if hosts.is_empty() { "built in".to_owned() } else { hosts.join(", ") },
            state: agent_state,
            since: state.agent_states.since(&name, agent_state, state.admin.started),
            reason: endpoints.iter().find_map(reason),
            live: number(&levels.runs_active, &name),
            queued: number(&levels.queue_depth, &name),
            lately: lately(state, &SeriesFilter::Agent(name.clone())),
            last_fault: last_fault(state, &name),
            endpoints: endpoints.iter().map(endpoint).collect(),
            settings,
            name,
        })
    });
    shown.collect()
}

/// The failure of the agent's latest failed run.
fn last_fault(state: &AdminState, agent: &str) -> Option<LastFault> {
    let fault = state.admin.observer.load().metrics().last_fault(agent)?;
    let message = fault.message.map(|message| interlingua_base::secrets::mask(&message).into_owned());
    Some(LastFault { at: fault.at, code: fault.code, message })
}

/// Statistics of the runs that ended in the last 15 minutes.
fn lately(state: &AdminState, of: &SeriesFilter) -> RecentStats {
    state.history.lock().unwrap_or_else(PoisonError::into_inner).lately(of)
}

fn reason(status: &EndpointStatus) -> Option<String> {
    status.reason.as_ref().map(|reason| interlingua_base::secrets::mask(&reason.to_string()).into_owned())
}

fn endpoint(status: &EndpointStatus) -> Endpoint {
    Endpoint {
        key: status.key.as_str().to_owned(),
        url: status.url.clone(),
        state: status.state,
        reason: reason(status),
        active: status.active,
        queued: status.queued,
        requests: status.requests,
        retries: status.retries,
        ejections: status.ejections,
    }
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

/// The routes, each with its URL for clients and its snippets.
pub(super) fn routes(state: &AdminState) -> Vec<Route> {
    let base = state.admin.control.public_url().unwrap_or_else(|| state.admin.client_url.clone());
    let configured = state.admin.reload.routes();
    let settings = |route: &ServedRoute| {
        let is_it = |one: &&Value| one["path"] == *route.path && one["protocol"] == *route.scope.protocol;
        let found = configured.as_array().and_then(|all| all.iter().find(is_it)).and_then(Value::as_object);
        let is_shown = |name: &str| !matches!(name, "path" | "protocol" | "agents" | "auth");
        let shown = found.into_iter().flatten().filter(|(name, _)| is_shown(name));
        shown.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let shown = state.admin.control.all_routes().into_iter().map(|route| {
        let methods = [(route.auth.keys, "keys"), (route.auth.jwt, "jwt"), (route.auth.certificates, "certificates")];
        let auth: Vec<&str> = methods.into_iter().filter(|(used, _)| *used).map(|(_, name)| name).collect();
        Route {
            protocol: route.scope.protocol,
            path: route.path.clone(),
            url: format!("{base}{}", route.path),
            auth: if auth.is_empty() { "none".to_owned() } else { auth.join(", ") },
            agents: route.scope.agents.iter().map(|agent| agent.name.clone()).collect(),
            settings: settings(&route),
            sample: route.mounted.console.sample.is_some(),
            snippets: samples::route_snippets(state, &route),
        }
    });
    shown.collect()
}
