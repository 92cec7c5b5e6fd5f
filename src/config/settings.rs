//! The configuration as used: defaults applied, names resolved, secrets read.
//!
//! Not here: spans and errors. By now everything has been validated.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core::network::IpNet;
use interlingua_core::rate::Rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use url::Url;

use super::fingerprint::Fingerprint;
use super::host::{Host, Origins};
use super::observe_settings::Observe;
use super::options::Options;
use super::store_settings::Store;
use super::upstream_settings::Upstream;
use crate::secrets::Masks;
use crate::tls::TlsFiles;

/// The validated configuration.
///
/// Its `Debug` output contains no secrets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How the gateway itself is reached.
    pub server: Server,
    /// Where runs and sessions are stored.
    pub store: Store,
    /// How callers prove who they are.
    pub auth: Auth,
    /// What callers may do, in the order of the file.
    pub callers: Vec<CallerProfile>,
    /// The agents, in the order of the file.
    pub agents: Vec<Arc<Agent>>,
    /// The routes, in the order of the file.
    pub routes: Vec<Arc<Route>>,
    /// The listener for operators. `None`: there is none.
    pub admin: Option<Admin>,
    /// What the gateway logs about itself.
    pub observe: Observe,
    /// What distinguishes a changed agent from one that is the same, by name.
    pub(super) fingerprints: HashMap<String, Fingerprint>,
    /// The agents whose own events some client reads.
    pub(super) event_readers: HashSet<String>,
    /// Masks of the secrets in the file, and in the files and variables that it names.
    pub(crate) secrets: Masks,
}

impl Settings {
    /// The agent of this name. `None` if there is none.
    pub fn agent(&self, name: &str) -> Option<&Arc<Agent>> {
        self.agents.iter().find(|agent| agent.name == name)
    }

    /// What changes with anything that the file, or a file it names, says of an agent. `None` if there is no such agent.
    pub fn fingerprint(&self, agent: &str) -> Option<Fingerprint> {
        self.fingerprints.get(agent).copied()
    }

    /// True if some route of this agent serves a protocol whose clients read the events that only the agent's own protocol
    /// has a word for.
    pub fn reads_protocol_events(&self, agent: &str) -> bool {
        self.event_readers.contains(agent)
    }

    /// All mounts, in the order of the file: what `interlingua routes` prints and what the server serves.
    pub fn mounts(&self) -> Vec<Mount> {
        self.routes.iter().flat_map(Route::mounts).collect()
    }
}

/// The listener for operators.
#[derive(Clone, PartialEq, Eq)]
pub struct Admin {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// The SHA-256 of the key that requests have to show. `None`: they show a client certificate, or, without `client_ca`,
    /// the key that the gateway makes at its start.
    pub key: Option<[u8; 32]>,
    /// `None`: connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// The settings that a reload replaces.
    pub access: AdminAccess,
}

/// The settings of the admin listener that a reload replaces, other than its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdminAccess {
    /// True if the console is served.
    pub console: bool,
    /// The roles that may read texts in the console.
    pub texts: ConsoleTexts,
    /// Whether `/metrics` needs a key.
    pub metrics: MetricsAccess,
}

impl fmt::Debug for Admin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Admin")
            .field("listen", &self.listen)
            .field("key", &self.key.is_some())
            .field("tls", &self.tls)
            .finish()
    }
}

/// How the gateway itself is reached.
#[derive(Clone, Debug)]
pub struct Server {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// The URL at which clients reach the gateway, without a trailing slash. `None` if it is not configured.
    pub public_url: Option<String>,
    /// The number of threads that serve requests.
    pub workers: usize,
    /// The largest body of a request, in bytes.
    pub max_body: usize,
    /// How long the gateway waits for a client.
    pub timeouts: ServerTimeouts,
    /// What clients may use at the same time.
    pub limits: ServerLimits,
    /// How long the gateway goes on after a signal to stop, so that load balancers notice that it is not ready.
    pub shutdown_delay: Duration,
    /// How long runs may continue after that.
    pub drain: Duration,
    /// Proxies whose forwarded headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Which headers those proxies set.
    pub forwarded: Forwarded,
    /// The hosts that requests may name. `None` if the file does not list any.
    pub allowed_hosts: Option<Vec<Host>>,
    /// The files of TLS. `None` if connections are not encrypted.
    pub tls: Option<TlsFiles>,
}

impl Server {
    /// The scheme of URLs that reach the gateway directly.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// How callers prove who they are. By default they cannot.
#[derive(Clone, Debug, Default)]
pub struct Auth {
    /// The file with the hashes of API keys. It may not exist yet.
    pub keys: Option<PathBuf>,
    /// Who issues tokens.
    pub jwt: Vec<JwtIssuer>,
    /// Client certificates.
    pub certificates: Option<Certificates>,
    /// True: the open streams of a caller end when the caller's credentials do.
    pub revoke_streams: bool,
}

impl Auth {
    /// The methods that are set up.
    #[must_use]
    pub fn methods(&self) -> Methods {
        Methods { keys: self.keys.is_some(), jwt: !self.jwt.is_empty(), certificates: self.certificates.is_some() }
    }
}

/// An issuer of JSON Web Tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtIssuer {
    /// The value that `iss` must have.
    pub issuer: String,
    /// The values of which `aud` must have one. Never empty.
    pub audience: Vec<String>,
    /// The signature algorithms that are accepted. Never empty.
    pub algorithms: Vec<JwtAlgorithm>,
    /// The claim that names the caller.
    pub caller: String,
    /// The claim that lists the caller's scopes.
    pub scopes: String,
    /// Where the issuer's public keys are.
    pub jwks: JwksSource,
}

/// A signature algorithm of JSON Web Tokens: only those with a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 7518 and RFC 8037")]
pub enum JwtAlgorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDsa,
}

impl JwtAlgorithm {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
        Self::EdDsa,
    ];

    /// The name in the header of a token.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RS256 => "RS256",
            Self::RS384 => "RS384",
            Self::RS512 => "RS512",
            Self::PS256 => "PS256",
            Self::PS384 => "PS384",
            Self::PS512 => "PS512",
            Self::ES256 => "ES256",
            Self::ES384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// Where an issuer's public keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwksSource {
    /// At the URL that the issuer's OpenID Connect discovery document names.
    Discovery,
    /// At this URL.
    Url(Url),
    /// In this file.
    File(PathBuf),
}

/// How client certificates name callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// The alternative name that names the caller.
    pub caller: CertificateName,
    /// The header, in lower case, in which a trusted proxy passes that name on. `None`: the certificate is that of the
    /// connection to the gateway.
    pub header: Option<String>,
}

/// A kind of subject alternative name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateName {
    /// A URI, as SPIFFE uses it.
    SanUri,
    /// A host name.
    SanDns,
}

/// The ways in which callers of a route may prove who they are. None of them: the callers are anonymous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Methods {
    /// By an API key.
    pub keys: bool,
    /// By a token of an issuer.
    pub jwt: bool,
    /// By a client certificate.
    pub certificates: bool,
}

impl Methods {
    /// No method: callers are anonymous.
    pub const NONE: Self = Self { keys: false, jwt: false, certificates: false };

    /// These and the one of this name: `keys`, `jwt` or `certificates`.
    pub(super) fn with(self, name: &str) -> Self {
        Self {
            keys: self.keys || name == "keys",
            jwt: self.jwt || name == "jwt",
            certificates: self.certificates || name == "certificates",
        }
    }

    /// The names of the methods, in the order of the documentation.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let names = [(self.keys, "keys"), (self.jwt, "jwt"), (self.certificates, "certificates")];
        names.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect()
    }

    /// True if callers have to prove who they are.
    #[must_use]
    pub const fn any(self) -> bool {
        self.keys || self.jwt || self.certificates
    }
}

/// What some callers may do: a table of `[callers]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerProfile {
    /// The caller's name, or any name if `scopes` is not empty. `default` is for callers without a table of their own,
    /// `anonymous` for those of routes without authentication.
    pub name: String,
    /// For callers whose tokens have all of these scopes. Empty: for the caller of this name.
    pub scopes: Vec<String>,
    /// Only for callers with credentials of this kind. `None`: of every kind.
    pub kind: Option<CallerKind>,
    /// Only for callers with tokens of this issuer. `None`: of every issuer.
    pub issuer: Option<String>,
    /// The agents they may use. `None`: all.
    pub agents: Option<Vec<String>>,
    /// The protocols they may use. `None`: all.
    pub protocols: Option<Vec<String>>,
    /// What they may do in the console. `None`: they may not sign in.
    pub console: Option<ConsoleRole>,
    /// How much of everything each of them may use.
    pub limits: CallerLimits,
}

/// The kind of credentials that proved a caller's name, written as in the `auth` of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallerKind {
    /// API keys.
    Keys,
    /// JSON Web Tokens.
    Jwt,
    /// Client certificates.
    Certificates,
}

/// What someone may do in the console.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ConsoleRole {
    /// See everything.
    View,
    /// Also decide, cancel, delete, drain, and use the playground.
    Act,
}

/// Who sees in the console what people and agents say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConsoleTexts {
    /// Everyone who may sign in.
    #[default]
    All,
    /// Those who may act.
    Act,
    /// No one: lengths only.
    None,
}

/// Whether `/metrics` of the admin listener needs a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricsAccess {
    /// Like every other path of the listener.
    #[default]
    Key,
    /// Needs no credentials.
    Open,
}

/// How much one caller may use. `None` for what other settings limit, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerLimits {
    /// Requests.
    pub rate: Option<Rate>,
    /// Requests at once. `None`: as many as fit into a second of `rate`.
    pub burst: Option<u32>,
    /// Runs at the same time.
    pub runs: usize,
    /// Answers at the same time.
    pub streams: usize,
    /// Turns that wait for another one of their session.
    pub queued: usize,
    /// WebSockets at the same time.
    pub sockets: usize,
    /// Bytes of stored runs and documents.
    pub stored: Option<u64>,
    /// Stored runs.
    pub stored_runs: Option<u64>,
    /// Tasks per route.
    pub tasks: Option<u64>,
    /// Conversations.
    pub conversations: Option<u64>,
    /// Push receivers.
    pub receivers: usize,
    /// Push notifications.
    pub pushes: Rate,
    /// Tokens of agents that report them, per day (UTC).
    pub tokens_per_day: Option<u64>,
}

impl Default for CallerLimits {
    fn default() -> Self {
        Self {
            rate: None,
            burst: None,
            runs: 10_000,
            streams: 20_000,
            queued: 1_024,
            sockets: 4_096,
            stored: None,
            stored_runs: None,
            tasks: None,
            conversations: None,
            receivers: 10_000,
            pushes: Rate { count: NonZeroU32::new(6_000).unwrap_or(NonZeroU32::MIN), per: Duration::from_secs(60) },
            tokens_per_day: None,
        }
    }
}

/// How many requests a route or an agent takes, from all callers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestLimits {
    /// Requests of a route, runs of an agent. `None`: any number.
    pub rate: Option<Rate>,
    /// As many at once. `None`: as many as fit into a second of `rate`.
    pub burst: Option<u32>,
    /// Runs of an agent at the same time. `None`: any number.
    pub runs: Option<usize>,
}

/// Which headers trusted proxies set to describe the client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarded {
    /// `X-Forwarded-For`, `-Proto`, `-Host`, `-Port` and `-Prefix`.
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// How long the gateway waits for a client, on every request of a connection. All are greater than zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTimeouts {
    /// For the complete request head, from its first byte.
    pub head: Duration,
    /// For the request body, plus one second for every 16 KiB of it.
    pub body: Duration,
    /// For a client that accepts no bytes of its response.
    pub write: Duration,
    /// For the next request on the connection.
    pub idle: Duration,
    /// For a complete WebSocket message, from its first byte.
    pub message: Duration,
    /// Between two pings of a WebSocket.
    pub ping: Duration,
}

/// What clients may use at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections in total.
    pub connections: usize,
    /// Connections per client address; trusted proxies are exempt.
    pub connections_per_address: usize,
    /// Connections per loopback address: a proxy on the same machine stands for many clients.
    pub connections_per_loopback_address: usize,
    /// Bytes of a request head: its target, and the names and values of its fields.
    pub head: usize,
    /// Bytes of request bodies held in memory at the same time; separately, the same number of response bytes that
    /// clients have not read yet. At least `max_body`.
    pub bodies: usize,
    /// Bytes of all runs that their attached readers have not read, beyond 32 KiB each. Agents wait beyond that.
    pub unread: usize,
    /// Nesting levels of a JSON body.
    pub json_depth: usize,
    /// Values of a JSON body.
    pub json_values: usize,
    /// Runs in memory: those under way, and those that wait or are being read.
    pub runs: usize,
    /// Turns that wait for another one of their session.
    pub queued_turns: usize,
    /// Push receivers that a caller has named and that are still stored.
    pub receivers: usize,
    /// Runs being sent to a push receiver, one for each receiver. A caller may have half of them.
    pub pushes: usize,
    /// Bytes of runs on one page of a list. A larger run has a page of its own.
    pub page: usize,
    /// WebSockets in total.
    pub sockets: usize,
    /// WebSockets per caller; without credentials, per client address. Trusted proxies are exempt.
    pub sockets_per_caller: usize,
    /// WebSockets per loopback address, without credentials.
    pub sockets_per_loopback_address: usize,
    /// Streamed responses in total.
    pub followers: usize,
    /// Requests under way on one HTTP/2 connection.
    pub http2_streams: usize,
    /// Requests under way on all HTTP/2 connections of a client address; trusted proxies are exempt.
    pub http2_streams_per_address: usize,
    /// Requests under way on all HTTP/2 connections of a loopback address.
    pub http2_streams_per_loopback_address: usize,
    /// Requests that a client may reset at once on one HTTP/2 connection; a tenth of it more each second.
    pub http2_resets: usize,
    /// Frames that bring no request on, at once on one HTTP/2 connection; a tenth of it more each second.
    pub http2_control_frames: usize,
}

/// An agent behind the gateway.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Safe in URL paths and file names.
    pub name: String,
    /// What the agent is for; shown to clients.
    pub description: Option<String>,
    /// Shown to clients.
    pub version: Option<String>,
    /// Who keeps the conversation history.
    pub history: History,
    /// How much of it is sent, if the gateway keeps it.
    pub history_limit: HistoryLimit,
    /// What happens to a turn while another turn of the same session is running.
    pub parallel_turns: ParallelTurns,
    /// The label for tool calls whose server has none.
    pub server_label: Option<String>,
    /// The largest run, in bytes of agent output; a larger one fails.
    pub max_run_bytes: usize,
    /// How many runs it takes from all callers together.
    pub limits: RequestLimits,
    /// How the agent is reached.
    pub upstream: Upstream,
}

/// Who keeps the conversation history of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum History {
    /// The upstream, by session id; only new messages are sent.
    Upstream,
    /// The gateway, which sends the history with every turn.
    Gateway,
}

/// How much history the gateway sends: the first limit reached applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimit {
    /// The number of most recent turns.
    pub turns: usize,
    /// The total size in bytes.
    pub bytes: usize,
}

/// What happens to a turn while another turn of the same session is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ParallelTurns {
    /// It waits for the other turn to end.
    Queue,
    /// It is rejected.
    Refuse,
}

/// A path at which agents are served over one protocol.
#[derive(Clone, Debug)]
pub struct Route {
    /// The name of a protocol that is compiled in.
    pub protocol: String,
    /// The path as written, with `{agent}`; without a trailing slash unless it is `/`.
    pub path: String,
    /// Never empty.
    pub agents: Vec<Arc<Agent>>,
    /// How callers prove who they are.
    pub auth: Methods,
    /// How many requests it takes from all callers together.
    pub limits: RequestLimits,
    /// How long a stream may be idle before a keep-alive comment is sent.
    pub heartbeat: Duration,
    /// What happens to a foreground run when its client disconnects.
    pub on_disconnect: OnDisconnect,
    /// Whether the route shares its sessions with the agent's other routes.
    pub shared_sessions: bool,
    /// The web pages that may use the route. `None` if it is not configured; the protocol's options may set it instead.
    pub cors: Option<Origins>,
    /// [`Server::public_url`], for protocols that send URLs to clients.
    pub public_url: Option<Arc<str>>,
    /// The protocol's own options.
    pub options: Options,
}

impl Route {
    /// The placeholder for the agent's name in a path.
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

/// What happens to an attached run when its client disconnects. Background runs always continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// It is cancelled, also at the upstream.
    Cancel,
    /// It continues, and can be fetched or followed.
    Detach,
}

/// A route with `{agent}` replaced in its path.
///
/// Serializes as `{ "protocol", "path", "agents": [names] }`.
#[derive(Clone, Debug)]
pub struct Mount {
    /// The route that this mount belongs to.
    pub route: Arc<Route>,
    /// The path with `{agent}` replaced.
    pub path: String,
    /// One agent, or several if the protocol can address them separately.
    pub agents: Vec<Arc<Agent>>,
}

impl Mount {
    /// The name of the route's protocol.
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
