//! The real gateway, in this process: every protocol that ships, a configuration as an operator writes it, a port of
//! its own, a folder of its own, and a thread of its own, so that a test's runtime may be as busy as it likes.

#![allow(dead_code, unreachable_pub, reason = "every test uses another part of it")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Once;
use std::thread::JoinHandle;

use interlingua::config::{self, Env};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::http::{Answer, Exchange, bounded, request};
use super::story::Story;

/// A gateway that listens. It stops when it is dropped.
pub struct Gateway {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    stopped: Option<oneshot::Receiver<()>>,
    thread: Option<JoinHandle<()>>,
    folder: PathBuf,
    _kept: Option<tempfile::TempDir>,
}

/// The lines of an agent that speaks the native protocol, with further lines of its own and of its upstream.
pub fn agent(name: &str, url: &str, own: &str, upstream: &str) -> String {
    format!("[agents.{name}]\n{own}\n[agents.{name}.upstream]\nprotocol = \"agent-api\"\nurl = \"{url}\"\n{upstream}\n")
}

/// The line of an agent that needs no upstream, and says everything at once.
pub const DEMO: &str = "[agents.demo]\nupstream = { protocol = \"demo\", options = { pace_ms = 0 } }\n";

/// A route for every agent.
pub const ROUTE: &str = "[[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{agent}\"\n";

impl Gateway {
    /// Starts one with these agents and the usual route, its runs in memory.
    pub async fn start(agents: &str) -> Self {
        Self::with(&format!("[store]\nkind = \"memory\"\n{agents}\n{ROUTE}")).await
    }

    /// Starts one with this configuration, but for the address; paths are relative to a folder that is made for it.
    pub async fn with(source: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_owned();
        let mut gateway = Self::within(source, path).await;
        gateway._kept = Some(folder);
        gateway
    }

    /// Starts one in a folder that was there before.
    pub async fn within(source: &str, folder: PathBuf) -> Self {
        log();
        let server =
            if source.contains("[server]") { "" } else { "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n" };
        let mut source = format!("{server}{source}");
        if !source.contains("allowed_hosts") {
            // Requests that tests write by hand name a host of some kind.
            source = source.replacen("[server]\n", "[server]\nallowed_hosts = [\"gateway\", \"x\"]\n", 1);
        }
        let (stop, told_to_stop) = oneshot::channel::<()>();
        let (say, started) = oneshot::channel();
        let (over, stopped) = oneshot::channel();
        let file = folder.join("gateway.toml");
        let thread = std::thread::spawn(move || {
            let gateway = interlingua::Gateway::builtin();
            let read = config::read(&source, &file, &gateway.protocols(), &Env::process());
            let (settings, _) = read.unwrap_or_else(|mistakes| panic!("{}", mistakes.render(false)));
            actix_web::rt::System::new().block_on(async move {
                let running = gateway.start(&settings).await.expect("the gateway starts");
                let _ = say.send(running.address);
                let until = async move {
                    let _ = told_to_stop.await;
                };
                running.run(until).await.expect("the gateway stops in order");
            });
            let _ = over.send(());
        });
        let address = bounded("the gateway to start", started).await.expect("the gateway started");
        Self { address, stop: Some(stop), stopped: Some(stopped), thread: Some(thread), folder, _kept: None }
    }

    /// The folder its configuration would lie in.
    pub fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    /// Begins to stop it: it drains first.
    pub fn tell_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Stops it, and waits until it has.
    pub async fn stop(mut self) {
        self.tell_to_stop();
        if let Some(stopped) = self.stopped.take() {
            bounded("the gateway to stop", stopped).await.expect("the gateway stopped in order");
        }
    }

    /// Sends a request, and hands out the connection.
    pub async fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Exchange {
        Exchange::send(self.address, &request(method, path, headers, body)).await
    }

    /// Reads something.
    pub async fn get(&self, path: &str) -> Answer {
        self.open("GET", path, &[], b"").await.answer().await
    }

    /// Posts JSON, and waits for the whole answer.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.posting(path, body).await.answer().await
    }

    /// Posts JSON, and hands out the connection.
    pub async fn posting(&self, path: &str, body: &Value) -> Exchange {
        self.open("POST", path, JSON, body.to_string().as_bytes()).await
    }

    /// Asks an agent, and hands out the stream.
    pub async fn ask(&self, agent: &str, body: &Value) -> Exchange {
        self.posting(&format!("/agents/{agent}/process"), body).await
    }

    /// Asks an agent, and reads the answer to its end.
    pub async fn story(&self, agent: &str, body: &Value) -> Story {
        let mut stream = self.ask(agent, body).await;
        let status = stream.status().await;
        assert_eq!(status, 200, "{}", stream.answer_here().await.text());
        Story::read(&stream.frames().await)
    }

    /// A run as it stands.
    pub async fn run(&self, agent: &str, id: &str) -> Value {
        let answer = self.get(&format!("/agents/{agent}/runs/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Follows a run to its end, and answers what it has come to.
    pub async fn outcome(&self, agent: &str, id: &str) -> Value {
        let mut events = self.open("GET", &format!("/agents/{agent}/runs/{id}/events"), &[], b"").await;
        let frames = events.frames().await;
        frames.last().cloned().expect("a run that is followed has an end")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Nobody waits for it: what it does from now on is nobody's matter.
        self.tell_to_stop();
        drop(self.thread.take());
    }
}

/// The media type of every question.
pub const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// A question, in a session of its own.
pub fn says(text: &str) -> Value {
    json!({ "input": [{ "role": "user", "content": [{ "type": "text", "text": text }] }] })
}

/// A question in a session.
pub fn says_in(session: &str, text: &str) -> Value {
    let mut body = says(text);
    body["session_id"] = session.into();
    body
}

/// What a scripted agent was told last.
pub fn last_said(body: &Value) -> String {
    let input = body["input"].as_array().cloned().unwrap_or_default();
    let content = input.last().and_then(|message| message["content"].as_array().cloned()).unwrap_or_default();
    content.iter().filter_map(|part| part["text"].as_str()).collect()
}

/// Log lines of the gateway, for whoever looks into a test that failed: `INTERLINGUA_LOG=debug`.
fn log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Ok(filter) = std::env::var("INTERLINGUA_LOG") {
            let filter = tracing_subscriber::EnvFilter::new(filter);
            let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
        }
    });
}
