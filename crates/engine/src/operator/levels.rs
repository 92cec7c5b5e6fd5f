//! Current load of the process, for metrics. Never contains texts of runs.

use std::collections::HashMap;
use std::sync::Arc;

use interlingua_core::call::RunState;
use url::Url;

use crate::agent::{Agent, Agents};
use crate::runs::RunTable;
use interlingua_observe::metrics::{Levels, ReplicaLevels, UpstreamLevel};
use interlingua_store::{LeaseState, ReplicaStatus};

/// The load of all agents and runs. The fields about connections are not set.
pub(crate) fn levels(agents: &Agents, runs: &RunTable) -> Levels {
    // Report idle agents, too.
    let mut by_agent: HashMap<Arc<str>, (usize, usize)> =
        agents.all().iter().map(|agent| (Arc::clone(agent.metrics.name()), (0, 0))).collect();
    let mut followers = 0;
    for run in runs.active() {
        let load = run.load();
        let (active, queued) = by_agent.entry(Arc::clone(run.agent.metrics.name())).or_default();
        *active += usize::from(load.is_working);
        *queued += load.queued;
        followers += load.followers;
    }

    let sizes = runs.store().sizes();
    Levels {
        replica: runs.store().replica().as_ref().map(replica),
        upstreams: agents.all().iter().flat_map(|agent| upstreams(agent)).collect(),
        runs_active: by_agent.iter().map(|(agent, (active, _))| (Arc::clone(agent), *active)).collect(),
        queue_depth: by_agent.iter().map(|(agent, (_, queued))| (Arc::clone(agent), *queued)).collect(),
        followers,
        store_bytes: sizes.bytes,
        store_owed: sizes.owed,
        ..Levels::default()
    }
}

fn replica(status: &ReplicaStatus) -> ReplicaLevels {
    ReplicaLevels {
        is_member: matches!(status.lease, LeaseState::Held | LeaseState::Late),
        since_renewal: status.since_renewal,
        replicas: status.replicas,
        held: status.held,
        following: status.following,
        followed: status.followed,
        turns_waiting: status.turns_waiting,
        connections: status.connections,
    }
}

/// The endpoints of an agent. If several have the same host and port, their names contain the start of their keys.
fn upstreams(agent: &Agent) -> Vec<UpstreamLevel> {
    let status = agent.upstream.pool().map(|pool| pool.status()).unwrap_or_default();
    let hosts: Vec<String> = status.iter().map(|endpoint| host_and_port(&endpoint.url)).collect();
    let name = |index: usize, key: &str| {
        let host = &hosts[index];
        let is_shared = hosts.iter().filter(|other| *other == host).count() > 1;
        if is_shared { format!("{host}#{}", key.chars().take(4).collect::<String>()) } else { host.clone() }
    };

    let levels = status.iter().enumerate().map(|(index, endpoint)| UpstreamLevel {
        agent: Arc::clone(agent.metrics.name()),
        endpoint: name(index, endpoint.key.as_str()),
        healthy: endpoint.state != "out",
        requests: endpoint.requests,
        retries: endpoint.retries,
        ejections: endpoint.ejections,
    });
    levels.collect()
}

/// Empty if the URL has no host or port.
fn host_and_port(url: &str) -> String {
    let url = Url::parse(url).ok();
    let parts = url.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default()?)));
    parts.map_or_else(String::new, |(host, port)| format!("{host}:{port}"))
}

/// The number of runs in this process that an agent works on, by the protocol of the client.
pub(crate) fn running_by_protocol(runs: &RunTable) -> HashMap<String, usize> {
    let mut running = HashMap::new();
    for run in runs.active() {
        run.view(|view| {
            if view.info.state == RunState::Running {
                *running.entry(view.info.protocol.clone()).or_default() += 1;
            }
        });
    }
    running
}
