//! Several gateways in this process, their shared store and their agent. Not here: the requests.

use std::time::Duration;

use crate::support::cluster::{Cluster, Member};
use crate::support::gateway::agent;
use crate::support::paths::ROUTES;
use crate::support::upstream::Upstream;

/// Time without a connection after which a replica is fenced. The tests move the clock instead of waiting.
const LEASE: Duration = Duration::from_secs(600);

pub(crate) struct Stand {
    cluster: Cluster,
    pub(crate) agent: Upstream,
    pub(crate) members: Vec<Member>,
}

impl Stand {
    /// So many gateways that serve all protocols.
    pub(crate) async fn new(agent: Upstream, count: usize) -> Self {
        Self::with(agent, "", ROUTES, count).await
    }

    /// The same, with an agent that is sent the history of its sessions.
    pub(crate) async fn with_history(agent: Upstream, count: usize) -> Self {
        Self::configured(agent, "history = \"gateway\"", "", ROUTES, count).await
    }

    /// `own`: further lines of the agent's upstream.
    pub(crate) async fn with(agent: Upstream, own: &str, routes: &str, count: usize) -> Self {
        Self::configured(agent, "", own, routes, count).await
    }

    async fn configured(upstream: Upstream, agents: &str, own: &str, routes: &str, count: usize) -> Self {
        let agents = agent("demo", &upstream.url("/process"), agents, &format!("retries = 0\n{own}"));
        let cluster = Cluster::on_hub(LEASE, format!("{agents}\n{routes}"));
        let mut stand = Self { cluster, agent: upstream, members: Vec::new() };
        for _ in 0..count {
            stand.members.push(stand.join().await);
        }
        stand
    }

    /// One more gateway.
    pub(crate) async fn join(&self) -> Member {
        self.cluster.member().await
    }

    /// Runs whose lease was not renewed are taken over, by the second gateway and the third at once.
    pub(crate) async fn take_over(&self) {
        self.cluster.hub().advance(LEASE);
        let survivors = || self.members.iter().skip(1).take(2);
        for _ in 0..2 {
            futures_util::future::join_all(survivors().map(|member| member.recover())).await;
        }
    }
}
