//! A gateway that is one of several in this process, and their shared store. Not here: the requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use interlingua::config::{self, Env};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::support::gateway::{JSON, agent};
use crate::support::http::{Exchange, Response, request, with_timeout};
use crate::support::paths::ROUTES;
use crate::support::replicas::{Hub, Replica};
use crate::support::upstream::Upstream;

/// Time without a connection after which a replica is fenced. The tests move the clock instead of waiting.
pub(crate) const LEASE: Duration = Duration::from_secs(600);

/// Several gateways, and the agent behind them.
pub(crate) struct Stand {
    pub(crate) hub: Arc<Hub>,
    pub(crate) agent: Upstream,
    pub(crate) members: Vec<Member>,
    config: String,
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
        let server = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n";
        let config = format!("{server}[store]\nkind = \"memory\"\n{agents}\n{routes}");
        let mut stand = Self { hub: Hub::on_file(LEASE), agent: upstream, members: Vec::new(), config };
        for _ in 0..count {
            stand.members.push(stand.join().await);
        }
        stand
    }

    /// One more gateway.
    pub(crate) async fn join(&self) -> Member {
        Member::start(self.hub.join(), self.config.clone()).await
    }

    /// Runs whose lease was not renewed are taken over, by the second gateway and the third at once.
    pub(crate) async fn take_over(&self) {
        self.hub.advance(LEASE);
        let survivors = || self.members.iter().skip(1).take(2);
        for _ in 0..2 {
            futures_util::future::join_all(survivors().map(Member::recover)).await;
        }
    }
}

/// One of several gateways.
pub(crate) struct Member {
    pub(crate) replica: Arc<Replica>,
    address: SocketAddr,
    recover: mpsc::UnboundedSender<oneshot::Sender<()>>,
    stop: Option<oneshot::Sender<()>>,
}

impl Member {
    async fn start(replica: Arc<Replica>, config: String) -> Self {
        let gateway = interlingua::Gateway::builtin().with_store(Arc::clone(&replica) as _);
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, started) = oneshot::channel();
        let (recover, mut recovering) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
        std::thread::spawn(move || {
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join("gateway.toml");
            let parsed = config::read(&config, &file, &gateway.protocols(), &Env::process());
            let (settings, _) = parsed.unwrap_or_else(|errors| panic!("{}", errors.render(false)));
            actix_web::rt::System::new().block_on(async move {
                let running = gateway.start(&settings).await.expect("the gateway starts");
                let engine = running.engine().clone();
                actix_web::rt::spawn(async move {
                    while let Some(done) = recovering.recv().await {
                        // A store that cannot be reached has nothing to recover.
                        let _ = engine.recover().await;
                        let _ = done.send(());
                    }
                });
                let _ = ready.send(running.address);
                let until = async move {
                    let _ = stopped.await;
                };
                // One whose replica was killed does not stop in order.
                let _ = running.run(until).await;
            });
        });
        let address = with_timeout("a gateway to start", started).await.expect("it started");
        Self { replica, address, recover, stop: Some(stop) }
    }

    /// Looks for runs of lost gateways now, as each gateway does every second.
    pub(crate) async fn recover(&self) {
        let (done, is_done) = oneshot::channel();
        self.recover.send(done).expect("it runs");
        with_timeout("runs to be taken over", is_done).await.expect("it runs");
    }

    pub(crate) async fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Exchange {
        Exchange::send(self.address, &request(method, path, headers, body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.open("GET", path, &[("a2a-version", "1.0")], b"").await.response().await
    }

    pub(crate) async fn delete(&self, path: &str) -> Response {
        self.open("DELETE", path, &[("a2a-version", "1.0")], b"").await.response().await
    }

    pub(crate) async fn start_post(&self, path: &str, body: &Value) -> Exchange {
        let headers = [JSON, &[("a2a-version", "1.0")]].concat();
        self.open("POST", path, &headers, body.to_string().as_bytes()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.start_post(path, body).await.response().await
    }

    /// The ids of all runs.
    pub(crate) async fn runs(&self) -> Vec<String> {
        let listed = self.get("/agents/demo/runs?limit=100").await.json();
        let runs = listed["data"].as_array().unwrap_or_else(|| panic!("a list: {listed}"));
        runs.iter().map(|run| run["id"].as_str().expect("an id").to_owned()).collect()
    }

    pub(crate) async fn run(&self, id: &str) -> Value {
        self.find_run(id).await.unwrap_or_else(|| panic!("run {id} is not found"))
    }

    /// `None`: the run does not exist.
    pub(crate) async fn find_run(&self, id: &str) -> Option<Value> {
        let answer = self.get(&format!("/agents/demo/runs/{id}")).await;
        if answer.status == 404 {
            return None;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        Some(answer.json())
    }

    /// All events of a run, up to its end.
    pub(crate) async fn events(&self, id: &str) -> Vec<Value> {
        self.open("GET", &format!("/agents/demo/runs/{id}/events"), &[], b"").await.frames().await
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}
