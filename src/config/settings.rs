//! The configuration as used: every default filled in, every name resolved, every secret read.
//!
//! Nothing here remembers where it stood in the file; whatever could be wrong has been told.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize, Serializer};
use url::Url;

use super::host::{Host, Origins};
use super::network::Network;
use super::protocols::Options;

/// Everything the gateway was told.
///
/// Its `Debug` shows no secret.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How the gateway itself is reached.
    pub server: Server,
    /// Where runs and sessions are kept.
    pub store: Store,
    /// The agents, in the order of the file.
    pub agents: Vec<Arc<Agent>>,
    /// The routes, in the order of the file.
    pub routes: Vec<Arc<Route>>,
}

impl Settings {
    /// The agent of this name.
    pub fn agent(&self, name: &str) -> Option<&Arc<Agent>> {
        self.agents.iter().find(|agent| agent.name == name)
    }

    /// Everything that is mounted, in the order of the file: what `interlingua routes` shows and
    /// what the server serves.
    pub fn mounts(&self) -> Vec<Mount> {
        self.routes.iter().flat_map(Route::mounts).collect()
    }
}

/// How the gateway itself is reached.
#[derive(Clone, Debug)]
pub struct Server {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// The URL clients reach the gateway at, without a slash at its end; `None` where no proxy
    /// stands in front.
    pub public_url: Option<String>,
    /// Threads that serve requests.
    pub workers: usize,
    /// The largest body of a request, in bytes.
    pub max_body: usize,
    /// How long the gateway waits for a client.
    pub timeouts: ServerTimeouts,
    /// How much clients may use at once.
    pub limits: ServerLimits,
    /// How long runs may go on after the gateway was told to stop.
    pub drain: Duration,
    /// Proxies whose word on a client's address is taken.
    pub trusted_proxies: Vec<Network>,
    /// The headers in which they say it.
    pub forwarded: Forwarded,
    /// The hosts that requests may name, where the file lists them.
    pub allowed_hosts: Option<Vec<Host>>,
}

/// The headers in which proxies say what a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarded {
    /// `X-Forwarded-For`, `-Proto`, `-Host`, `-Port` and `-Prefix`.
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// How long the gateway waits for a client, on every request of a connection. None is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTimeouts {
    /// For the whole head of a request, from its first byte.
    pub head: Duration,
    /// For the body of a request, and one second more for every 16 KiB of it.
    pub body: Duration,
    /// For a client that has room for none of its answer.
    pub write: Duration,
    /// For the next request of a connection.
    pub idle: Duration,
}

/// How much clients may use at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections in total.
    pub connections: usize,
    /// Connections of one address; trusted proxies are exempt.
    pub connections_per_address: usize,
    /// Connections of one loopback address: a proxy on the same machine is many clients.
    pub connections_per_loopback_address: usize,
    /// Bytes of request bodies that are held at the same time, and bytes of whole answers that clients have not taken
    /// yet. Never less than `max_body`.
    pub bodies: usize,
    /// Levels of a JSON body.
    pub json_depth: usize,
    /// Values of a JSON body.
    pub json_values: usize,
}

/// Where runs and sessions are kept, and for how long.
#[derive(Clone, Debug)]
pub struct Store {
    /// What keeps them.
    pub kind: StoreKind,
    /// The SQLite file, where that is the kind; its folder may not exist yet.
    pub path: PathBuf,
    /// What is forgotten when.
    pub retention: Retention,
}

/// What keeps runs and sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// The process; what it kept is gone when it ends.
    Memory,
    /// A SQLite file.
    Sqlite,
}

/// How long finished runs are kept: as long as all bounds allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The age after which a finished run is forgotten.
    pub age: Duration,
    /// How many runs are kept; beyond, the oldest finished ones of whoever has most are forgotten.
    pub runs: u64,
    /// How many bytes are kept; beyond, the same.
    pub bytes: u64,
}

/// An agent behind the gateway.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its name; safe in paths and file names.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Who remembers what was said before.
    pub history: History,
    /// How much of it is sent, where the gateway remembers.
    pub history_limit: HistoryLimit,
    /// What becomes of a turn while another one of the same session is under way.
    pub parallel_turns: ParallelTurns,
    /// The label that tool calls of an unlabelled server get.
    pub server_label: Option<String>,
    /// The largest run, in bytes.
    pub max_run_bytes: usize,
    /// How it is reached.
    pub upstream: Upstream,
}

/// Who remembers what was said in a session before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum History {
    /// The upstream, by the session's id; only new messages are sent.
    Upstream,
    /// The gateway; the whole history is sent each time.
    Gateway,
}

/// How much history the gateway sends: as much as both bounds allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimit {
    /// At most so many turns, the latest ones.
    pub turns: usize,
    /// At most so many bytes.
    pub bytes: usize,
}

/// What becomes of a turn while another one of the same session is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ParallelTurns {
    /// It waits for the other.
    Queue,
    /// It is refused.
    Refuse,
}

/// How an agent is reached.
#[derive(Clone)]
pub struct Upstream {
    /// The protocol it speaks: one of those that are compiled in.
    pub protocol: String,
    /// Where it is asked; `None` for agents that live in the gateway.
    pub url: Option<Url>,
    /// Headers sent along.
    pub headers: Vec<Header>,
    /// How long the gateway waits for what.
    pub timeouts: Timeouts,
    /// How often a request is sent again that surely was not worked on.
    pub retries: u32,
    /// The largest event accepted, in bytes.
    pub max_event: usize,
    /// Whether requests for approval are passed on as an extension of the native protocol.
    pub approval_extension: bool,
    /// The protocol's own options.
    pub options: Options,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A query may hold a key; what is left says enough.
        let url = self.url.as_ref().map(|url| format!("{}{}", url.origin().ascii_serialization(), url.path()));
        formatter
            .debug_struct("Upstream")
            .field("protocol", &self.protocol)
            .field("url", &url)
            .field("headers", &self.headers)
            .field("timeouts", &self.timeouts)
            .field("retries", &self.retries)
            .field("max_event", &self.max_event)
            .field("approval_extension", &self.approval_extension)
            .field("options", &self.options)
            .finish()
    }
}

/// A header sent along, in small letters. Its value is never shown, secret or not.
#[derive(Clone, Debug)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its whole value: printable ASCII on one line.
    pub value: SecretString,
}

/// How long the gateway waits for an upstream; none is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the first byte of the answer, once the request is sent.
    pub first_byte: Duration,
    /// For the next bytes, once some have come.
    pub idle: Duration,
    /// For all of the answer.
    pub total: Duration,
}

/// A protocol and the agents it is spoken for.
#[derive(Clone, Debug)]
pub struct Route {
    /// The protocol clients speak: one of those that are compiled in.
    pub protocol: String,
    /// The path as written, with `{agent}`; without a slash at its end unless it is `/`.
    pub path: String,
    /// The agents it serves; never empty.
    pub agents: Vec<Arc<Agent>>,
    /// How long a stream may be silent before a comment is sent.
    pub heartbeat: Duration,
    /// What becomes of a run in the foreground when its client leaves.
    pub on_disconnect: OnDisconnect,
    /// Whether its sessions are those of all other routes of the agent.
    pub shared_sessions: bool,
    /// The web pages that may use it. `None`: nobody said; the protocol's options may have.
    pub cors: Option<Origins>,
    /// [`Server::public_url`]: what protocols tell clients may need it.
    pub public_url: Option<Arc<str>>,
    /// The protocol's own options.
    pub options: Options,
}

impl Route {
    /// What stands for the agent's name in a path.
    pub(super) const AGENT: &'static str = "{agent}";

    pub(super) fn mounts(self: &Arc<Self>) -> Vec<Mount> {
        if !self.path.contains(Self::AGENT) {
            let mount = Mount { route: Arc::clone(self), path: self.path.clone(), agents: self.agents.clone() };
            return vec![mount];
        }
        self.agents
            .iter()
            .map(|agent| Mount {
                route: Arc::clone(self),
                path: self.path.replace(Self::AGENT, &agent.name),
                agents: vec![Arc::clone(agent)],
            })
            .collect()
    }
}

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RouteAuth {
    /// Anyone who can connect. The gateway has no other way yet.
    None,
}

/// What becomes of an attached run when its client leaves. Runs in the background go on anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// It is cancelled, and so is the upstream's work.
    Cancel,
    /// It goes on, and can be fetched or followed.
    Detach,
}

/// A route with its path spelled out.
///
/// Serializes as `{ "protocol", "path", "agents": [names] }`.
#[derive(Clone, Debug)]
pub struct Mount {
    /// The route it comes from.
    pub route: Arc<Route>,
    /// The path, `{agent}` replaced.
    pub path: String,
    /// The agents behind it: one, or where the protocol can tell them apart, several.
    pub agents: Vec<Arc<Agent>>,
}

impl Mount {
    /// The protocol clients speak here.
    pub fn protocol(&self) -> &str {
        &self.route.protocol
    }
}

impl Serialize for Mount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            protocol: &'a str,
            path: &'a str,
            agents: Vec<&'a str>,
        }
        let agents = self.agents.iter().map(|agent| agent.name.as_str()).collect();
        Shown { protocol: self.protocol(), path: &self.path, agents }.serialize(serializer)
    }
}
