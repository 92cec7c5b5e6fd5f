//! The configuration in use: defaults applied, names resolved, secrets read.
//!
//! Not here: spans and errors. These values are validated.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use interlingua_base::rate::Rate;
use interlingua_core::network::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use url::Url;

use super::fingerprint::Fingerprint;
use super::host::{Host, Origins};
use super::observe_settings::Observe;
use super::options::Options;
use super::store_settings::Store;
use super::upstream_settings::Upstream;
use interlingua_base::secrets::Masks;
use interlingua_base::tls::TlsFiles;

/// The validated configuration.
///
/// Its `Debug` output contains no secrets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The listener for clients.
    pub server: Server,
    /// Where runs and sessions are stored.
    pub store: Store,
    /// Authentication of callers.
    pub auth: Auth,
    /// Rights and limits of callers, in the order of the file.
    pub callers: Vec<CallerProfile>,
    /// The agents, in the order of the file.
    pub agents: Vec<Arc<Agent>>,
    /// The routes, in the order of the file.
    pub routes: Vec<Arc<Route>>,
    /// The listener for operators. `None`: the file has no `[admin]`.
    pub admin: Option<Admin>,
    /// Logs and telemetry.
    pub observe: Observe,
    /// Fingerprints of the agents by name: a reload keeps an agent whose fingerprint is unchanged.
    pub(super) fingerprints: HashMap<String, Fingerprint>,
    /// The agents whose own events some client reads.
    pub(super) event_readers: HashSet<String>,
    /// Masks of the secrets in the file, and in the files and variables that it names.
    pub secrets: Masks,
}

impl Settings {
    /// The agent of this name, if the file has one.
    pub fn agent(&self, name: &str) -> Option<&Arc<Agent>> {
        self.agents.iter().find(|agent| agent.name == name)
    }

    /// The fingerprint of an agent: it changes with every setting of the agent and with every file that these settings
    /// name. `None` if the file has no such agent.
    pub fn fingerprint(&self, agent: &str) -> Option<Fingerprint> {
        self.fingerprints.get(agent).copied()
    }

    /// Whether clients of some route of this agent read events that exist only in the agent's own protocol.
    pub fn reads_protocol_events(&self, agent: &str) -> bool {
        self.event_readers.contains(agent)
    }

    /// All mounts, in the order of the file: `interlingua routes` prints them, and the server serves them.
    pub fn mounts(&self) -> Vec<Mount> {
        self.routes.iter().flat_map(Route::mounts).collect()
    }
}

/// The listener for operators.
#[derive(Clone, PartialEq, Eq)]
pub struct Admin {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// The SHA-256 of the key that requests must send. `None`: requests need a client certificate, or, without
    /// `client_ca`, the key that the gateway generates at its start.
    pub key: Option<[u8; 32]>,
    /// `None`: connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// The settings that a reload replaces.
    pub access: AdminAccess,
}

/// The settings of the admin listener that a reload replaces, other than its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdminAccess {
    /// Whether the console is served.
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

/// The listener for clients.
#[derive(Clone, Debug)]
pub struct Server {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// The URL that clients use, without a trailing slash. `None` if it is not configured.
    pub public_url: Option<String>,
    /// The number of threads that serve requests.
    pub workers: usize,
    /// The largest body of a request, in bytes.
    pub max_body: usize,
    /// Timeouts of clients.
    pub timeouts: ServerTimeouts,
    /// Limits of what clients use at the same time.
    pub limits: ServerLimits,
    /// Time between a signal to stop and the end of normal service, so that load balancers notice that the gateway is
    /// not ready.
    pub shutdown_delay: Duration,
    /// Time that runs have to finish after `shutdown_delay`.
    pub drain: Duration,
    /// Proxies whose forwarded headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// The headers that those proxies set.
    pub forwarded: ForwardedFamily,
    /// The hosts that requests may name. `None` if the file lists none.
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

/// Authentication of callers. By default no credentials are accepted.
#[derive(Clone, Debug, Default)]
pub struct Auth {
    /// The file with the hashes of API keys. The file may not exist yet.
    pub keys: Option<PathBuf>,
    /// The issuers of tokens.
    pub jwt: Vec<JwtIssuer>,
    /// Client certificates.
    pub certificates: Option<Certificates>,
    /// Whether the open streams of a caller end when its credentials expire or are revoked.
    pub revoke_streams: bool,
}

impl Auth {
    /// The configured methods.
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
    /// The accepted values of `aud`. Never empty.
    pub audience: Vec<String>,
    /// The accepted signature algorithms. Never empty.
    pub algorithms: Vec<JwtAlgorithm>,
    /// The claim that names the caller.
    pub caller: String,
    /// The claim that lists the caller's scopes.
    pub scopes: String,
    /// The source of the issuer's public keys.
    pub jwks: JwksSource,
}

/// A signature algorithm of JSON Web Tokens: only algorithms with a public key.
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
    /// All supported algorithms.
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

/// The source of an issuer's public keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwksSource {
    /// The URL that the issuer's OpenID Connect discovery document names.
    Discovery,
    /// A URL.
    Url(Url),
    /// A file.
    File(PathBuf),
}

/// Client certificates as credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// The alternative name that names the caller.
    pub caller: CertificateName,
    /// The header, in lower case, in which a trusted proxy passes that name on. `None`: the certificate of the
    /// connection to the gateway is used.
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

/// The credentials that callers of a route can use. With no method, the callers are anonymous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Methods {
    /// API keys.
    pub keys: bool,
    /// Tokens of an issuer.
    pub jwt: bool,
    /// Client certificates.
    pub certificates: bool,
}

impl Methods {
    /// No method: callers are anonymous.
    pub const NONE: Self = Self { keys: false, jwt: false, certificates: false };

    /// These methods and the one of this name: `keys`, `jwt` or `certificates`.
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

    /// Whether callers must authenticate.
    #[must_use]
    pub const fn any(self) -> bool {
        self.keys || self.jwt || self.certificates
    }
}

/// Rights and limits of some callers: a table of `[callers]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerProfile {
    /// The caller's name, or any name if `scopes` is not empty. `default` is for callers without a table, `anonymous`
    /// for callers of routes without authentication.
    pub name: String,
    /// The table applies to callers whose tokens have all of these scopes. Empty: to the caller of this name.
    pub scopes: Vec<String>,
    /// The table applies only to credentials of this kind. `None`: of every kind.
    pub kind: Option<CallerKind>,
    /// The table applies only to tokens of this issuer. `None`: of every issuer.
    pub issuer: Option<String>,
    /// The agents that the callers may use. `None`: all.
    pub agents: Option<Vec<String>>,
    /// The protocols that the callers may use. `None`: all.
    pub protocols: Option<Vec<String>>,
    /// Rights in the console. `None`: the callers cannot sign in.
    pub console: Option<ConsoleRole>,
    /// Limits of each caller.
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

/// Rights of a person in the console.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ConsoleRole {
    /// Read everything.
    View,
    /// Also decide, cancel, delete, drain, and use the playground.
    Act,
}

/// The readers of messages of people and agents in the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConsoleTexts {
    /// Everyone with access to the console.
    #[default]
    All,
    /// Everyone with the role `act`.
    Act,
    /// No one: the console shows lengths only.
    None,
}

/// Access to `/metrics` of the admin listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricsAccess {
    /// With the credentials of the other paths.
    #[default]
    Key,
    /// Without credentials.
    Open,
}

/// Limits of one caller. `None`: the limit of another setting applies, or there is no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerLimits {
    /// Requests.
    pub rate: Option<Rate>,
    /// Requests at once. `None`: one second of `rate`.
    pub burst: Option<u32>,
    /// Runs at the same time.
    pub runs: usize,
    /// Answers at the same time.
    pub streams: usize,
    /// Turns that wait for an earlier turn of their session.
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
    /// Tokens per day (UTC), of agents that report token counts.
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

/// Limits of a route or an agent, of all callers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestLimits {
    /// Requests of a route, runs of an agent. `None`: any number.
    pub rate: Option<Rate>,
    /// Requests or runs at once. `None`: one second of `rate`.
    pub burst: Option<u32>,
    /// Runs of an agent at the same time. `None`: any number.
    pub runs: Option<usize>,
}

/// The headers of trusted proxies that describe the client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardedFamily {
    /// `X-Forwarded-For`, `-Proto`, `-Host`, `-Port` and `-Prefix`.
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// Timeouts of clients, for every request of a connection. All are greater than zero.
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
    /// Interval of WebSocket pings.
    pub ping: Duration,
}

/// Limits of what clients use at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections in total.
    pub connections: usize,
    /// Connections per client address; trusted proxies are exempt.
    pub connections_per_address: usize,
    /// Connections per loopback address, where a proxy may connect for many clients.
    pub connections_per_loopback_address: usize,
    /// Bytes of a request head: its target, and the names and values of its fields.
    pub head: usize,
    /// Bytes of request bodies in memory; separately, the same number of response bytes that clients have not read yet.
    /// At least `max_body`.
    pub bodies: usize,
    /// Bytes of events that attached readers have not read, summed over all runs, without the first 32 KiB of each run.
    /// Beyond this limit the gateway pauses reading from agents.
    pub unread: usize,
    /// Nesting levels of a JSON body.
    pub json_depth: usize,
    /// Values of a JSON body.
    pub json_values: usize,
    /// Runs in memory: running, waiting, or being read.
    pub runs: usize,
    /// Turns that wait for an earlier turn of their session.
    pub queued_turns: usize,
    /// Stored push receivers of one caller.
    pub receivers: usize,
    /// Deliveries of runs to push receivers, one per run and receiver. One caller may have half of them.
    pub pushes: usize,
    /// Bytes of runs on one page of a list. A larger run gets a page of its own.
    pub page: usize,
    /// WebSockets in total.
    pub sockets: usize,
    /// WebSockets per caller; without credentials, per client address. Trusted proxies are exempt.
    pub sockets_per_caller: usize,
    /// WebSockets per loopback address, without credentials.
    pub sockets_per_loopback_address: usize,
    /// Streamed responses in total.
    pub followers: usize,
    /// Concurrent requests on one HTTP/2 connection.
    pub http2_streams: usize,
    /// Concurrent requests on all HTTP/2 connections of a client address; trusted proxies are exempt.
    pub http2_streams_per_address: usize,
    /// Concurrent requests on all HTTP/2 connections of a loopback address.
    pub http2_streams_per_loopback_address: usize,
    /// Requests that a client may reset at once on one HTTP/2 connection; a tenth of this number is added each second.
    pub http2_resets: usize,
    /// Frames that advance no request, at once on one HTTP/2 connection; a tenth of this number is added each second.
    pub http2_control_frames: usize,
}

/// An agent behind the gateway.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Safe in URL paths and file names.
    pub name: String,
    /// Description for clients.
    pub description: Option<String>,
    /// Version for clients.
    pub version: Option<String>,
    /// The keeper of the conversation history.
    pub history: History,
    /// Limits of the history that the gateway sends, if it keeps the history.
    pub history_limit: HistoryLimit,
    /// Handling of a turn while another turn of its session is running.
    pub parallel_turns: ParallelTurns,
    /// The label of tool calls without an MCP server.
    pub server_label: Option<String>,
    /// The largest run, in bytes of agent output. A larger run fails.
    pub max_run_bytes: usize,
    /// Limits of the agent's runs, of all callers together.
    pub limits: RequestLimits,
    /// Protocol and address of the agent.
    pub upstream: Upstream,
}

/// The keeper of a session's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum History {
    /// The upstream, by session id. The gateway sends only new messages.
    Upstream,
    /// The gateway, which sends the history with every turn.
    Gateway,
}

/// Limits of the history that the gateway sends. The first limit reached applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimit {
    /// The number of most recent turns.
    pub turns: usize,
    /// The total size in bytes.
    pub bytes: usize,
}

/// Handling of a turn while another turn of its session is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ParallelTurns {
    /// The turn waits for the other turn to end.
    Queue,
    /// The turn is refused.
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
    /// The accepted credentials.
    pub auth: Methods,
    /// Limits of the route's requests, of all callers together.
    pub limits: RequestLimits,
    /// Time without an event after which a stream sends a keep-alive comment.
    pub heartbeat: Duration,
    /// Handling of a foreground run whose client disconnects. `None`: the protocol's default
    /// ([`RunRules::detaches`](interlingua_core::exchange::RunRules::detaches)).
    pub on_disconnect: Option<OnDisconnect>,
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

/// Handling of an attached run whose client disconnects. Background runs always continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// The run is cancelled, also at the upstream.
    Cancel,
    /// The run continues, and can be fetched or followed.
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
        struct MountView<'a> {
            protocol: &'a str,
            path: &'a str,
            agents: Vec<&'a str>,
        }

        let agents = self.agents.iter().map(|agent| agent.name.as_str()).collect();
        MountView { protocol: self.protocol(), path: &self.path, agents }.serialize(serializer)
    }
}
