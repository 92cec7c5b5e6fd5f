//! Several gateways on one database, each behind a proxy of its own.
//!
//! Not here: faults, and requests of clients.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use interlingua_testing_postgres::server::ADMIN;
use interlingua_testing_postgres::{Options, Proxy, Server};
use interlingua_testing_support::cluster::{Protocol, RunView, may_refuse};

use super::agent::{Agent, task};
use crate::Rig;
use crate::gateway::{Gateway, answers};

/// Time without a connection after which other gateways take over the runs of a gateway.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// A storm of an hour has more runs than the default limit, and its checks read all of them.
const RETENTION: &str = "retention = { runs = 10000000 }";

/// Time that gateways have to write again after the database is back.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);

/// Routes in front of the agent `demo`. A client that leaves does not cancel its run: it comes back elsewhere.
const ROUTES: &str = r#"
[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"
on_disconnect = "detach"

[[routes]]
protocol = "responses"
path = "/v1"
on_disconnect = "detach"

[[routes]]
protocol = "ag-ui"
path = "/ag-ui/{agent}"
on_disconnect = "detach"

[[routes]]
protocol = "a2a"
path = "/a2a/{agent}"
options = { push_allow = ["127.0.0.1"], push_allow_http = true, task_ttl = "24h" }
"#;

/// A gateway and the way from it to the database.
pub(crate) struct Replica {
    pub(crate) gateway: Gateway,
    pub(crate) proxy: Proxy,
}

/// A database server, gateways that share it, and their agent.
pub(crate) struct Cluster {
    // Dropped in this order: a gateway that ends has its database.
    pub(crate) replicas: Vec<Replica>,
    pub(crate) agent: Agent,
    pub(crate) server: Server,
    /// A server that is in the URL too.
    pub(crate) standby: Option<SocketAddr>,
    /// Lines for the tables `server` and `store` of gateways that are started from now on.
    pub(crate) server_keys: String,
    pub(crate) store_keys: String,
    rig: Rig,
    /// Number of runs that probed whether a gateway serves.
    probes: AtomicUsize,
}

impl Cluster {
    /// Starts a server, and this number of gateways one after the other.
    pub(crate) fn start(rig: &Rig, replicas: usize, options: &Options) -> Result<Self> {
        let (server, agent) = (Server::start(options)?, Agent::start());
        let mut cluster = Self {
            replicas: Vec::new(),
            agent,
            server,
            standby: None,
            server_keys: String::new(),
            store_keys: RETENTION.to_owned(),
            rig: rig.clone(),
            probes: AtomicUsize::new(0),
        };
        for _ in 0..replicas {
            cluster.add()?;
        }
        Ok(cluster)
    }

    /// Starts one more gateway.
    pub(crate) fn add(&mut self) -> Result<()> {
        let replica = self.new_replica("")?;
        self.replicas.push(replica);
        Ok(())
    }

    /// A gateway that is not one of [`Cluster::replicas`] yet. `more`: more configuration.
    pub(crate) fn new_replica(&self, more: &str) -> Result<Replica> {
        self.new_replica_of(&self.rig, more)
    }

    /// The same with another program.
    pub(crate) fn new_replica_of(&self, rig: &Rig, more: &str) -> Result<Replica> {
        let proxy = Proxy::start(self.server.address())?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("url"), self.url_at(proxy.address))?;
        let config = format!("{}{more}", self.config());
        let gateway = Gateway::start_in(rig, folder, &config, answers)?;
        Ok(Replica { gateway, proxy })
    }

    /// The URL of the database through something that listens at this address.
    pub(crate) fn url_at(&self, address: SocketAddr) -> String {
        let standby = self.standby.map(|standby| format!(",{standby}")).unwrap_or_default();
        self.server.url(ADMIN).replace(&self.server.address().to_string(), &format!("{address}{standby}"))
    }

    /// The configuration of a gateway; the URL of the database is in the file `url` in its folder.
    pub(crate) fn config(&self) -> String {
        let (lease, agent) = (LEASE.as_secs(), self.agent.url());
        let (server, store) = (&self.server_keys, &self.store_keys);
        format!(
            "[server]\nlisten = \"{{{{listen}}}}\"\n{server}\n[store]\nkind = \"postgres\"\nurl = {{ file = \"url\" }}\n\
             lease = \"{lease}s\"\nconnections = 6\n{store}\n[agents.demo.upstream]\nprotocol = \"agent-api\"\nurl = \"{agent}\"\n\
             {ROUTES}"
        )
    }

    /// Runs SQL on the database of the gateways.
    pub(crate) fn sql(&self, sql: &str) -> Result<String> {
        self.server.sql(ADMIN, sql)
    }

    /// The addresses of all gateways.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(|replica| replica.gateway.address).collect()
    }

    /// The number of gateways that are active according to the database.
    pub(crate) fn active(&self) -> Result<usize> {
        Ok(self.sql("SELECT count(*) FROM interlingua.replicas WHERE state = 'active'")?.parse()?)
    }

    /// Waits until this number of gateways is active according to the database and no other one owns a run.
    pub(crate) fn wait_settled(&self, active: usize, limit: Duration) -> Result<Duration> {
        let started = Instant::now();
        let lost = "SELECT count(*) FROM interlingua.runs r LEFT JOIN interlingua.replicas p ON p.id = r.holder
                    WHERE r.holder IS NOT NULL AND NOT r.ended AND p.state IS DISTINCT FROM 'active'";
        loop {
            let (found, lost) = (self.active()?, self.sql(lost)?);
            if found == active && lost == "0" {
                return Ok(started.elapsed());
            }
            ensure!(
                started.elapsed() < limit,
                "{found} gateways are active instead of {active}, and {lost} runs are held by lost ones"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The ids of the gateways that the database knows as active, in order.
    pub(crate) fn ids(&self) -> Result<Vec<String>> {
        let ids = self.sql("SELECT id FROM interlingua.replicas WHERE state = 'active' ORDER BY id")?;
        Ok(ids.lines().map(str::to_owned).collect())
    }

    /// Asks a gateway until a run that was begun there has completed. Returns the time until then.
    pub(crate) fn serves(&self, replica: usize, limit: Duration) -> Result<Duration> {
        let (started, address) = (Instant::now(), self.replicas[replica].gateway.address);
        for attempt in 0.. {
            let key = format!("serves-{}-{attempt}", self.probes.fetch_add(1, Ordering::Relaxed));
            let task = task(key, 1, Duration::ZERO);
            let seen = RunView::begin(address, Protocol::AgentApi, task, Duration::from_secs(2), may_refuse);
            if seen.is_completed() {
                break;
            }
            ensure!(
                started.elapsed() < limit,
                "a gateway does not serve again: {}",
                self.replicas[replica].gateway.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(started.elapsed())
    }

    /// Waits until every gateway takes a run and writes it.
    pub(crate) fn all_serve(&self) -> Result<()> {
        (0..self.replicas.len()).try_for_each(|replica| self.serves(replica, RECOVERY_LIMIT).map(drop))
    }

    /// Lines of all logs that contain this.
    pub(crate) fn log_lines(&self, text: &str) -> Vec<String> {
        let logs = self.replicas.iter().map(|replica| replica.gateway.log());
        logs.flat_map(|log| log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }
}
