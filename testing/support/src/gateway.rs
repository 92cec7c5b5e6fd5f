//! The real gateway, run in this process: all protocols, a configuration file as an operator writes it, its own port
//! and folder. It has its own thread, so that a busy test runtime does not slow it down.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Once;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use interlingua::config::{self, Env};
use interlingua::engine::{Engine, RetentionRules};
use interlingua::server::SharedRoutes;
use interlingua::store::{OwnerBoundsOf, Retention};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::alternating;
use super::callers::key_of;
use super::cluster::SharedStore;
use super::contract::Contract;
use super::http::{Exchange, Response, request, with_timeout};
use super::line_agent::LineAgent;
use super::puppet::{PuppetApi, PuppetUpstream};
use super::resender::Resender;
use super::transcript::Transcript;

/// A running gateway. It stops when it is dropped.
pub struct Gateway {
    pub address: SocketAddr,
    /// Sent with every request.
    key: Option<String>,
    stop: Option<oneshot::Sender<()>>,
    /// The result once it has stopped.
    stopped: Option<oneshot::Receiver<Result<()>>>,
    recover: mpsc::UnboundedSender<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    engine: Engine,
    routes: SharedRoutes,
    folder: PathBuf,
    _temporary: Option<tempfile::TempDir>,
    /// The other one of two that look like one, and their store.
    other: Option<(Box<Self>, SharedStore)>,
}

/// All protocols, and those of the tests.
pub(crate) fn builder() -> interlingua::Gateway {
    interlingua::Gateway::builtin()
        .serve::<PuppetApi>()
        .serve::<Resender>()
        .serve::<Contract>()
        .upstream::<PuppetUpstream>()
        .in_process::<LineAgent>()
}

/// Configuration of an agent that speaks the Agent API. `own` and `upstream` are further lines of the two tables.
pub fn agent(name: &str, url: &str, own: &str, upstream: &str) -> String {
    format!("[agents.{name}]\n{own}\n[agents.{name}.upstream]\nprotocol = \"agent-api\"\nurl = \"{url}\"\n{upstream}\n")
}

/// Configuration of the demo agent, without pauses between deltas.
pub const DEMO: &str = "[agents.demo]\nupstream = { protocol = \"demo\", options = { pace_ms = 0 } }\n";

/// An Agent API route for every agent.
pub const ROUTE: &str = "[[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{agent}\"\n";

impl Gateway {
    /// Starts a gateway with these agents, [`ROUTE`] and the memory store.
    pub async fn start(agents: &str) -> Self {
        Self::with_config(&format!("[store]\nkind = \"memory\"\n{agents}\n{ROUTE}")).await
    }

    /// Starts a gateway with this configuration in a temporary folder. `[server]` is added if it is missing.
    pub async fn with_config(source: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_owned();
        Self::in_folder(source, path).await.owning(folder)
    }

    /// The same gateway, which deletes its folder when it is dropped.
    pub(crate) fn owning(mut self, folder: tempfile::TempDir) -> Self {
        self._temporary = Some(folder);
        self
    }

    /// The same in an existing folder.
    pub async fn in_folder(source: &str, folder: PathBuf) -> Self {
        let Some(shared) = alternating::shared_store(source) else {
            return Self::one_in_folder(builder(), source, folder).await;
        };
        let source = alternating::config(&shared, source, &folder);
        let mut one = Self::one_in_folder(shared.join(builder()), &source, folder.clone()).await;
        let other = Self::one_in_folder(shared.join(builder()), &source, folder).await;
        one.address = alternating::front([one.address, other.address]);
        one.other = Some((Box::new(other), shared));
        one
    }

    /// One gateway in an existing folder.
    pub(crate) async fn one_in_folder(gateway: interlingua::Gateway, source: &str, folder: PathBuf) -> Self {
        log();
        let server =
            if source.contains("[server]") { "" } else { "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n" };
        let mut source = format!("{server}{source}");
        if !source.contains("allowed_hosts") {
            // Hand-written requests in tests use these hosts.
            source = source.replacen("[server]\n", "[server]\nallowed_hosts = [\"gateway\", \"x\"]\n", 1);
        }

        let (stop, stop_requested) = oneshot::channel::<()>();
        let (ready, started) = oneshot::channel();
        let (finished, stopped) = oneshot::channel();
        let (recover, mut recovering) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
        let file = folder.join("gateway.toml");
        let thread = std::thread::spawn(move || {
            let parsed = config::read(&source, &file, &gateway.protocols(), &Env::process());
            let (settings, _) = parsed.unwrap_or_else(|errors| panic!("{}", errors.render(false)));
            let result = actix_web::rt::System::new().block_on(async move {
                let running = gateway.start(&settings).await.expect("the gateway starts");
                let engine = running.engine().clone();
                let recovering_engine = engine.clone();
                actix_web::rt::spawn(async move {
                    while let Some(done) = recovering.recv().await {
                        // A store that cannot be reached has nothing to recover.
                        let _ = recovering_engine.recover().await;
                        let _ = done.send(());
                    }
                });
                let _ = ready.send((running.address, running.routes(), engine));
                let until = async move {
                    let _ = stop_requested.await;
                };
                running.run(until).await
            });
            let _ = finished.send(result);
        });
        let (address, routes, engine) =
            with_timeout("the gateway to start", started).await.expect("the gateway started");
        let (stop, stopped, thread) = (Some(stop), Some(stopped), Some(thread));
        Self {
            address,
            key: None,
            stop,
            stopped,
            recover,
            thread,
            routes,
            engine,
            folder,
            _temporary: None,
            other: None,
        }
    }

    /// The same gateway as this caller sees it. See [`super::callers`].
    pub fn as_caller(&self, caller: &str) -> Self {
        self.with_key(Some(key_of(caller)))
    }

    /// The same gateway for requests with this key. It does not stop when it is dropped.
    pub fn with_key(&self, key: Option<String>) -> Self {
        let (routes, folder, recover) = (self.routes.clone(), self.folder.clone(), self.recover.clone());
        let (stop, stopped, thread, address) = (None, None, None, self.address);
        let engine = self.engine.clone();
        Self { address, key, stop, stopped, recover, thread, routes, engine, folder, _temporary: None, other: None }
    }

    /// The header line that requests prove the caller by. Empty for the gateway itself.
    pub fn credentials(&self) -> String {
        self.key.as_ref().map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default()
    }

    /// Replaces the routes by those of another configuration with the same agents.
    pub fn replace_routes(&self, source: &str) {
        let gateway = builder();
        let parsed = config::read(source, &self.folder.join("gateway.toml"), &gateway.protocols(), &Env::process());
        let (settings, _) = parsed.unwrap_or_else(|errors| panic!("{}", errors.render(false)));
        self.routes.replace(gateway.build_routes(&settings).expect("the routes can be served"));
        if let Some((other, _)) = &self.other {
            other.replace_routes(source);
        }
    }

    /// Replaces the agents by the same agents, as a reload of the configuration does, and keeps all runs from now on.
    pub fn replace_agents(&self) {
        let retention = Retention {
            age: Duration::MAX,
            runs: u64::MAX,
            documents: u64::MAX,
            bytes: u64::MAX,
            collections: Vec::new(),
            parts: Vec::new(),
            routes: Vec::new(),
            attached: Vec::new(),
            bounds: OwnerBoundsOf::default(),
        };
        self.engine.replace(self.engine.agents(), RetentionRules { retention, scopes: Vec::new() });
        if let Some((other, _)) = &self.other {
            other.replace_agents();
        }
    }

    /// The folder that relative paths of the configuration refer to.
    pub fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    /// Starts the shutdown, which drains first. Returns at once.
    pub fn begin_shutdown(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some((other, _)) = &mut self.other {
            other.begin_shutdown();
        }
    }

    /// Stops it and waits until it has stopped.
    pub async fn stop(mut self) {
        self.begin_shutdown();
        if let Some(stopped) = self.stopped.take() {
            let result = with_timeout("the gateway to stop", stopped).await.expect("the gateway does not panic");
            result.expect("the gateway stops in order");
        }
    }

    /// Looks for runs of lost gateways now, as each gateway does every second.
    pub async fn recover(&self) {
        let (done, is_done) = oneshot::channel();
        self.recover.send(done).expect("it runs");
        with_timeout("runs to be taken over", is_done).await.expect("it runs");
    }

    /// Sends a request and returns the connection.
    pub async fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Exchange {
        let bearer = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let credentials = bearer.as_ref().map(|bearer| ("authorization", bearer.as_str()));
        let headers: Vec<(&str, &str)> = headers.iter().copied().chain(credentials).collect();
        Exchange::send(self.address, &request(method, path, &headers, body)).await
    }

    /// Sends a GET and reads the response.
    pub async fn get(&self, path: &str) -> Response {
        self.open("GET", path, &[], b"").await.response().await
    }

    /// Posts JSON and reads the response.
    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.start_post(path, body).await.response().await
    }

    /// Posts JSON and returns the connection.
    pub async fn start_post(&self, path: &str, body: &Value) -> Exchange {
        self.open("POST", path, JSON, body.to_string().as_bytes()).await
    }

    /// Starts a turn over the Agent API and returns the connection.
    pub async fn start_turn(&self, agent: &str, body: &Value) -> Exchange {
        self.start_post(&format!("/agents/{agent}/process"), body).await
    }

    /// Runs a turn over the Agent API to its end and validates the stream.
    pub async fn run_turn(&self, agent: &str, body: &Value) -> Transcript {
        let mut stream = self.start_turn(agent, body).await;
        let status = stream.status().await;
        assert_eq!(status, 200, "{}", stream.read_response().await.text());
        Transcript::parse(&stream.frames().await)
    }

    /// The stored state of a run.
    pub async fn run(&self, agent: &str, id: &str) -> Value {
        let answer = self.get(&format!("/agents/{agent}/runs/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Follows a run to its end and returns the last frame.
    pub async fn final_frame(&self, agent: &str, id: &str) -> Value {
        let mut events = self.open("GET", &format!("/agents/{agent}/runs/{id}/events"), &[], b"").await;
        let frames = events.frames().await;
        frames.last().cloned().expect("a run that is followed has an end")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The thread is not joined: a test that ends does not wait for the drain.
        self.begin_shutdown();
        drop(self.thread.take());
    }
}

/// The content type of every request with a body.
pub const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// An Agent API request with one user message and no session id.
pub fn user_turn(text: &str) -> Value {
    json!({ "input": [{ "role": "user", "content": [{ "type": "text", "text": text }] }] })
}

/// The same in a session.
pub fn user_turn_in(session: &str, text: &str) -> Value {
    let mut body = user_turn(text);
    body["session_id"] = session.into();
    body
}

/// An Agent API request that approves what the session's run asks under this id.
pub fn approval_in(session: &str, id: &str) -> Value {
    let data = json!({ "approval_request_id": id, "id": id, "approve": true });
    let content = json!({ "type": "data", "data": data });
    let message = json!({ "type": "mcp_approval_response", "role": "user", "content": [content] });
    json!({ "session_id": session, "input": [message] })
}

/// The text of the last message in a request that a scripted agent received.
pub fn last_input_text(body: &Value) -> String {
    let input = body["input"].as_array().cloned().unwrap_or_default();
    let content = input.last().and_then(|message| message["content"].as_array().cloned()).unwrap_or_default();
    content.iter().filter_map(|part| part["text"].as_str()).collect()
}

/// Prints log lines of the gateway to standard error. Set `INTERLINGUA_LOG=debug` to debug a test.
fn log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Ok(filter) = std::env::var("INTERLINGUA_LOG") {
            let filter = tracing_subscriber::EnvFilter::new(filter);
            let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
        }
    });
}
