//! The gateway, its agents and routes, as the console shows them.
//!
//! Not here: the configuration in force as a whole, which operators read without the console ([`super::api`]).

use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};

use super::State;
use crate::metrics::{Lately, Of};
use crate::store::Health;
use crate::upstream::pool::EndpointStatus;

/// The gateway at a glance.
pub(super) fn gateway(state: &State) -> Value {
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
    let traffic: Vec<Value> = protocols
        .iter()
        .map(|protocol| {
            let lately = lately(state, &Of::Protocol((*protocol).to_owned()));
            json!({ "protocol": protocol, "live": running.get(*protocol).unwrap_or(&0), "lately": lately })
        })
        .collect();
    let warnings: Vec<&String> = routes.iter().flat_map(|route| &route.mounted.warnings).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "started_at": admin.started,
        "accepting": admin.engine.is_open(),
        "active": admin.engine.working(),
        "reload": admin.reload.last(),
        "store": { "kind": config["in_force"]["store"]["kind"] },
        "public_url": admin.control.public_url(),
        "ready": reasons.is_empty(),
        "reasons": reasons,
        "protocols": protocols,
        "traffic": traffic,
        "warnings": warnings,
    })
}

/// What about the gateway itself keeps it from being ready.
pub(super) fn reasons(state: &State) -> Vec<Value> {
    let mut reasons = Vec::new();
    if state.admin.engine.is_stopping() {
        reasons.push(json!({ "what": "draining" }));
    }
    if let Health::Failing { since, error } = state.admin.engine.health() {
        let detail = crate::secrets::mask(&error.to_string()).into_owned();
        reasons.push(json!({ "what": "store", "since_s": since.elapsed().as_secs(), "detail": detail }));
    }
    reasons
}

/// The agents: as configured, with the state of their endpoints and what is under way at each.
pub(super) fn agents(state: &State) -> Vec<Value> {
    let levels = state.admin.engine.levels();
    let number = |of: &[(Arc<str>, usize)], name: &str| {
        of.iter().find(|(agent, _)| **agent == *name).map_or(0, |(_, number)| *number)
    };
    let live = state.admin.engine.agents();
    let Value::Array(mut agents) = state.admin.reload.agents() else { return Vec::new() };
    for agent in &mut agents {
        let name = agent["name"].as_str().unwrap_or_default().to_owned();
        let known = live.iter().find(|known| known.name == name);
        let endpoints = known.and_then(|known| known.upstream.pool()).map(|pool| pool.status()).unwrap_or_default();
        add_endpoints(agent, &endpoints);
        if state.admin.engine.is_draining(&name) {
            agent["state"] = "draining".into();
        }
        agent["protocol"] = agent["upstream"]["protocol"].clone();
        agent["active"] = number(&levels.runs_active, &name).into();
        agent["live"] = agent["active"].clone();
        agent["queued"] = number(&levels.queue_depth, &name).into();
        add_past(agent, state, &name);
    }
    agents
}

/// Adds how the agent's runs ended in the last 15 minutes, and why the latest of them failed.
fn add_past(agent: &mut Value, state: &State, name: &str) {
    agent["lately"] = json!(lately(state, &Of::Agent(name.to_owned())));
    let fault = state.admin.observer.load().metrics().last_fault(name);
    agent["last_fault"] = fault.map_or(Value::Null, |fault| {
        let message = fault.message.map(|message| crate::secrets::mask(&message).into_owned());
        json!({ "at": fault.at, "code": fault.code, "message": message })
    });
}

fn lately(state: &State, of: &Of) -> Lately {
    state.history.lock().unwrap_or_else(PoisonError::into_inner).lately(of)
}

fn add_endpoints(agent: &mut Value, endpoints: &[EndpointStatus]) {
    let is_failing = !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.state == "out");
    let hosts: Vec<&str> = endpoints.iter().map(|endpoint| host_of(&endpoint.url)).collect();
    let reason = endpoints.iter().find_map(|endpoint| endpoint.reason.as_ref());
    agent["host"] = if hosts.is_empty() { "built in".into() } else { hosts.join(", ").into() };
    agent["state"] = if is_failing { "failing".into() } else { "ready".into() };
    agent["reason"] = reason.map_or(Value::Null, |reason| crate::secrets::mask(&reason.to_string()).into());
    if !endpoints.is_empty() {
        agent["endpoints"] = endpoints.iter().map(endpoint).collect();
    }
}

fn endpoint(status: &EndpointStatus) -> Value {
    json!({
        "key": status.key.as_str(),
        "url": status.url,
        "state": status.state,
        "reason": status.reason.as_ref().map(|reason| crate::secrets::mask(&reason.to_string()).into_owned()),
        "active": status.active,
        "queued": status.queued,
        "requests": status.requests,
        "retries": status.retries,
        "ejections": status.ejections,
    })
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

/// The routes, each with its URL.
pub(super) fn routes(state: &State) -> Vec<Value> {
    let base = state.admin.control.public_url().unwrap_or_else(|| state.admin.url.clone());
    let shown = state.admin.control.all_routes().into_iter().map(|route| {
        let methods = [(route.auth.keys, "keys"), (route.auth.jwt, "jwt"), (route.auth.certificates, "certificates")];
        let auth: Vec<&str> = methods.into_iter().filter(|(used, _)| *used).map(|(_, name)| name).collect();
        let agents: Vec<&str> = route.scope.agents.iter().map(|agent| agent.name.as_str()).collect();
        json!({
            "protocol": route.scope.protocol,
            "path": route.path,
            "url": format!("{base}{}", route.path),
            "auth": if auth.is_empty() { "none".to_owned() } else { auth.join(", ") },
            "agents": agents,
            "sample": route.mounted.sample.is_some(),
        })
    });
    shown.collect()
}
