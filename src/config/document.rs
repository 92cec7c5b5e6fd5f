//! The configuration as written: every key the file may have, with its type, default and span.
//!
//! Not here: checks that involve more than one value. The doc comments of these types document the file: they become
//! the descriptions in the JSON Schema.

use std::borrow::Cow;

use interlingua_core::duration::Period;
use interlingua_core::size::Size;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer};

use super::access::{AgentLimitsTable, AuthTable, CallerTable, RouteLimitsTable, Texts, route_auth_schema};
use super::connection_tables::{ProxyValue, UpstreamTlsTable};
use super::headers::HeaderValue;
use super::located::{Entries, Located, Table};
use super::operators::{AdminTable, ObserveTable};
use super::secret::SecretTable;
use super::settings::{Forwarded, History, OnDisconnect, ParallelTurns};
use super::store_table::StoreTable;
use super::tls_table::TlsTable;
use super::upstream_settings::{Affinity, IdentityKind};

/// Replaces a protocol's own options in the tree, since only the protocol can deserialize them: the index at which
/// `Validator` holds them.
pub(super) struct OptionsRef(pub(super) usize);

impl<'de> Deserialize<'de> for OptionsRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = String::deserialize(deserializer)?;
        number.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for OptionsRef {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Options".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

/// Configuration of the Interlingua gateway.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Interlingua")]
pub(super) struct Document {
    /// How the gateway itself is reached.
    pub(super) server: Table<ServerTable>,
    /// Where runs and sessions are stored.
    pub(super) store: Table<StoreTable>,
    /// How callers prove who they are.
    pub(super) auth: Located<Table<AuthTable>>,
    /// What callers may do, by the caller's name. `default` is for callers without a table of their own, `anonymous` for
    /// those of routes without authentication.
    pub(super) callers: Entries<Table<CallerTable>>,
    /// The agents behind the gateway, by name.
    pub(super) agents: Entries<Table<AgentTable>>,
    /// Where agents are mounted, and which protocol serves them.
    pub(super) routes: Vec<Located<Table<RouteTable>>>,
    /// A listener for operators: metrics, state, reload. There is none without this table.
    pub(super) admin: Option<Located<Table<AdminTable>>>,
    /// What the gateway reports about itself.
    pub(super) observe: Table<ObserveTable>,
}

/// How the gateway itself is reached.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerTable {
    /// Address and port to listen on.
    pub(super) listen: Located<String>,
    /// The URL at which clients reach the gateway, if a proxy is in front of it.
    pub(super) public_url: Option<Located<String>>,
    /// Threads that serve requests; by default one per core.
    #[schemars(range(min = 1, max = 1024))]
    pub(super) workers: Option<Located<u64>>,
    /// The largest request body.
    pub(super) max_body: Located<Size>,
    /// How long the gateway waits for a client.
    pub(super) timeouts: Table<ServerTimeoutsTable>,
    /// What clients may use at the same time.
    pub(super) limits: Table<ServerLimitsTable>,
    /// How long the gateway goes on as before after a signal to stop, but for `/readyz`, which answers 503: a load
    /// balancer notices, and sends nothing more.
    pub(super) shutdown_delay: Located<Period>,
    /// How long runs may continue after that.
    pub(super) drain: Located<Period>,
    /// How long a stream may be idle before a keep-alive comment is sent. It keeps the connection open and detects
    /// clients that have left.
    pub(super) heartbeat: Located<Period>,
    /// Addresses or networks of proxies whose forwarded headers are trusted.
    pub(super) trusted_proxies: Vec<Located<String>>,
    /// Which headers trusted proxies set: X-Forwarded-For, -Proto, -Host, -Port and -Prefix, or Forwarded. The others
    /// are ignored, since a client may have set them.
    pub(super) forwarded: Forwarded,
    /// The hosts that requests may name, with a port if only that port is allowed. Defaults to the host of public_url
    /// and the listen address; if the gateway listens on all addresses, to any IP address. localhost and loopback
    /// addresses are always allowed.
    pub(super) allowed_hosts: Option<Vec<Located<String>>>,
    /// Encrypts connections, with TLS 1.2 or 1.3. By default they are not encrypted.
    pub(super) tls: Option<Located<Table<TlsTable>>>,
    /// Warnings that are accepted and no longer shown, by their code, or by code and agent: "client_tools:shop".
    pub(super) quiet: Vec<Located<String>>,
}

impl Default for ServerTable {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".to_owned().into(),
            public_url: None,
            workers: None,
            max_body: Size::mebibytes(8).into(),
            timeouts: Table::default(),
            limits: Table::default(),
            shutdown_delay: Period::seconds(0).into(),
            drain: Period::seconds(30).into(),
            heartbeat: Period::seconds(15).into(),
            trusted_proxies: Vec::new(),
            forwarded: Forwarded::XForwarded,
            allowed_hosts: None,
            tls: None,
            quiet: Vec::new(),
        }
    }
}

/// How long the gateway waits for a client, on every request of a connection.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerTimeoutsTable {
    /// For the complete request head, from its first byte.
    pub(super) head: Located<Period>,
    /// For the request body, plus one second for every 16 KiB of it. After 5 s it must have arrived at 1 KiB per
    /// second.
    pub(super) body: Located<Period>,
    /// For a client that accepts no bytes of its response.
    pub(super) write: Located<Period>,
    /// For the next request on the connection.
    pub(super) idle: Located<Period>,
    /// For a complete WebSocket message, from its first byte.
    pub(super) message: Located<Period>,
    /// Between two pings of a WebSocket. A client that sends nothing between two of them is considered gone.
    pub(super) ping: Located<Period>,
}

impl Default for ServerTimeoutsTable {
    fn default() -> Self {
        Self {
            head: Period::seconds(10).into(),
            body: Period::seconds(60).into(),
            write: Period::seconds(60).into(),
            idle: Period::seconds(75).into(),
            message: Period::seconds(30).into(),
            ping: Period::seconds(30).into(),
        }
    }
}

/// What clients may use at the same time.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerLimitsTable {
    /// Connections in total.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) connections: Located<u64>,
    /// Connections per client address; trusted proxies are exempt. Defaults to 256, and to `connections` for loopback
    /// addresses, where a proxy may run.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) connections_per_address: Option<Located<u64>>,
    /// The size of a request head: its target, and the names and values of its fields. From 4KiB to 64KiB.
    pub(super) head: Located<Size>,
    /// Bytes of request bodies held in memory at the same time; separately, the same number of response bytes that
    /// clients have not read yet.
    pub(super) bodies: Located<Size>,
    /// Bytes of answers that clients have not read, of all runs together, beyond 32 KiB of each. Reading from agents pauses
    /// while they are used up.
    pub(super) unread: Located<Size>,
    /// Nesting levels of a JSON body.
    #[schemars(range(min = 8, max = 128))]
    pub(super) json_depth: Located<u64>,
    /// Values of a JSON body.
    #[schemars(range(min = 1_000, max = 10_000_000))]
    pub(super) json_values: Located<u64>,
    /// Runs in memory: those under way, and those that wait or are being read.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) runs: Located<u64>,
    /// Turns that wait for another one of their session.
    #[schemars(range(min = 1, max = 4_096))]
    pub(super) queued_turns: Located<u64>,
    /// Push receivers that a caller has named and that are still stored.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) receivers: Located<u64>,
    /// Runs being sent to a push receiver, one for each receiver. A caller may have half of them.
    #[schemars(range(min = 2, max = 1_000_000))]
    pub(super) pushes: Located<u64>,
    /// Bytes of runs on one page of a list. A larger run has a page of its own.
    pub(super) page: Located<Size>,
    /// WebSockets in total.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) sockets: Located<u64>,
    /// WebSockets per caller; without credentials, per client address. Defaults to 256, and to `sockets` for loopback
    /// addresses, where a proxy may run.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) sockets_per_caller: Option<Located<u64>>,
    /// Streamed responses in total.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) followers: Located<u64>,
    /// Requests under way on one HTTP/2 connection.
    #[schemars(range(min = 1, max = 1_000))]
    pub(super) http2_streams: Located<u64>,
    /// Requests under way on all HTTP/2 connections of a client address; trusted proxies are exempt. Defaults to 1000, and to
    /// `followers` for loopback addresses, where a proxy may run.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) http2_streams_per_address: Option<Located<u64>>,
    /// Requests that a client may reset at once on one HTTP/2 connection; a tenth of it more each second.
    #[schemars(range(min = 10, max = 100_000))]
    pub(super) http2_resets: Located<u64>,
    /// Frames of an HTTP/2 connection that bring no request on (PING, SETTINGS, PRIORITY, empty DATA, unexpected
    /// WINDOW_UPDATE) at once; a tenth of it more each second.
    #[schemars(range(min = 100, max = 1_000_000))]
    pub(super) http2_control_frames: Located<u64>,
}

impl Default for ServerLimitsTable {
    fn default() -> Self {
        Self {
            connections: 20_000.into(),
            connections_per_address: None,
            head: Size::kibibytes(32).into(),
            bodies: Size::mebibytes(256).into(),
            unread: Size::mebibytes(256).into(),
            json_depth: 128.into(),
            json_values: 100_000.into(),
            runs: 200_000.into(),
            queued_turns: 64.into(),
            receivers: 10_000.into(),
            pushes: 20_000.into(),
            page: Size::mebibytes(8).into(),
            sockets: 4_096.into(),
            sockets_per_caller: None,
            followers: 20_000.into(),
            http2_streams: 100.into(),
            http2_streams_per_address: None,
            http2_resets: 200.into(),
            http2_control_frames: 1_000.into(),
        }
    }
}

/// One agent behind the gateway.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AgentTable {
    /// What the agent is for; shown to clients.
    pub(super) description: Option<String>,
    /// The agent's version; shown to clients.
    pub(super) version: Option<String>,
    /// Who keeps the conversation history: the upstream, by session id, or the gateway, which then sends the history
    /// with every turn. The default is the upstream, and the gateway for protocols whose agents keep nothing.
    pub(super) history: Option<Located<History>>,
    /// How much history the gateway sends with a turn.
    pub(super) history_limit: Table<HistoryLimitTable>,
    /// What happens to a turn while another turn of the same session is running.
    pub(super) parallel_turns: ParallelTurns,
    /// The label for tool calls whose server has none.
    pub(super) server_label: Option<String>,
    /// The largest run, in bytes of agent output; a larger one fails.
    pub(super) max_run_bytes: Located<Size>,
    /// How many runs it takes from all callers together.
    pub(super) limits: Table<AgentLimitsTable>,
    /// How the agent is reached. Required.
    pub(super) upstream: Option<Located<Table<UpstreamTable>>>,
}

impl Default for AgentTable {
    fn default() -> Self {
        Self {
            description: None,
            version: None,
            history: None,
            history_limit: Table::default(),
            parallel_turns: ParallelTurns::Queue,
            server_label: None,
            max_run_bytes: Size::mebibytes(64).into(),
            limits: Table::default(),
            upstream: None,
        }
    }
}

/// How much history the gateway sends: the first limit reached applies.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HistoryLimitTable {
    /// The number of most recent turns.
    #[schemars(range(min = 1))]
    pub(super) turns: Located<u32>,
    /// The total size.
    pub(super) bytes: Located<Size>,
}

impl Default for HistoryLimitTable {
    fn default() -> Self {
        Self { turns: 50.into(), bytes: Size::mebibytes(1).into() }
    }
}

/// How an agent is reached.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UpstreamTable {
    /// The protocol the agent speaks. Required.
    pub(super) protocol: Option<Located<String>>,
    /// The URL of the agent.
    pub(super) url: Option<Located<String>>,
    /// The URLs of the agent's servers, instead of one `url`: each takes a share of the runs.
    pub(super) urls: Option<Located<Vec<Located<Table<EndpointTable>>>>>,
    /// Which server takes the turns of a session, if there are several: the one that remembers it, or another one that
    /// is sent the history if that is out ("session"); that one or none ("strict"); any ("none").
    pub(super) affinity: Option<Located<Affinity>>,
    /// How the servers are checked. By default only by the runs they get.
    pub(super) health: Option<Located<Table<HealthTable>>>,
    /// When a server of several gets no runs for a while, because they fail there.
    pub(super) eject: Option<Located<Table<EjectTable>>>,
    /// How many requests are sent again.
    pub(super) retry_budget: Table<RetryBudgetTable>,
    /// How many runs each server takes at a time.
    pub(super) limits: Table<UpstreamLimitsTable>,
    /// Headers to add to every request. Secrets are given by `{ env = "NAME" }` or `{ file = "path" }`.
    pub(super) headers: Entries<HeaderValue>,
    /// Names of headers of the client's request that the agent gets. By default it gets only those of the trace.
    pub(super) forward: Vec<Located<String>>,
    /// What the agent learns of the caller: nothing ("none"), an id that no other agent gets ("derived"), or a token that
    /// the gateway signs and that is valid for a minute ("jwt").
    pub(super) identity: Located<IdentityKind>,
    /// The key that signs the tokens: PKCS #8 in PEM, for ES256 or EdDSA.
    pub(super) identity_key: Option<Located<SecretTable>>,
    /// TLS towards the agent's servers, if it is not that of the system.
    pub(super) tls: Option<Located<Table<UpstreamTlsTable>>>,
    /// The proxy that all requests to the agent go through. Proxies of the environment are never used.
    pub(super) proxy: Option<Located<ProxyValue>>,
    /// How long the gateway waits for the upstream.
    pub(super) timeouts: Table<TimeoutsTable>,
    /// How often a request is retried if the agent cannot have started on it: no connection was made, or the upstream
    /// responded with 503.
    #[schemars(range(max = 10))]
    pub(super) retries: Located<u32>,
    /// The largest event accepted from the upstream.
    pub(super) max_event: Located<Size>,
    /// Whether the agent understands decisions beyond yes and no, sent as an extension of the Agent API: edits, texts,
    /// choices.
    pub(super) approval_extension: bool,
    /// The protocol's own options.
    pub(super) options: Option<OptionsRef>,
}

impl Default for UpstreamTable {
    fn default() -> Self {
        Self {
            protocol: None,
            url: None,
            urls: None,
            affinity: None,
            health: None,
            eject: None,
            retry_budget: Table::default(),
            limits: Table::default(),
            headers: Entries::default(),
            forward: Vec::new(),
            identity: IdentityKind::None.into(),
            identity_key: None,
            tls: None,
            proxy: None,
            timeouts: Table::default(),
            retries: 2.into(),
            max_event: Size::mebibytes(8).into(),
            approval_extension: false,
            options: None,
        }
    }
}

/// A server of an agent.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EndpointTable {
    /// Its URL. Required.
    pub(super) url: Option<Located<String>>,
    /// Its share of the runs, compared with that of the others.
    #[schemars(range(min = 1, max = 100))]
    pub(super) weight: Located<u64>,
}

impl Default for EndpointTable {
    fn default() -> Self {
        Self { url: None, weight: 1.into() }
    }
}

/// How an agent's servers are checked: by a GET, which an answer with success passes.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HealthTable {
    /// The path, from the root of the server on. Required.
    #[schemars(regex(pattern = r"^/"))]
    pub(super) path: Option<Located<String>>,
    /// The pause between two checks.
    pub(super) every: Located<Period>,
    /// Limit for an answer.
    pub(super) timeout: Located<Period>,
    /// A server is healthy again after this many successes in a row.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) healthy: Located<u64>,
    /// A server is unhealthy, and gets no runs, after this many failures in a row.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) unhealthy: Located<u64>,
}

impl Default for HealthTable {
    fn default() -> Self {
        Self {
            path: None,
            every: Period::seconds(10).into(),
            timeout: Period::seconds(2).into(),
            healthy: 2.into(),
            unhealthy: 3.into(),
        }
    }
}

/// When a server gets no runs for a while. Failures are: no connection, 502 to 504, no first byte in time, broken answers.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EjectTable {
    /// After this many failures in a row.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) failures: Located<u64>,
    /// Or if this share of at least 20 runs in ten seconds failed.
    #[schemars(range(min = 0, max = 1))]
    pub(super) share: Located<f64>,
    /// How long the first time. Each further time it is this much longer.
    pub(super) pause: Located<Period>,
    /// The longest pause.
    pub(super) longest: Located<Period>,
    /// At most this share of the servers is out at a time.
    #[schemars(range(min = 0, max = 1))]
    pub(super) most: Located<f64>,
}

impl Default for EjectTable {
    fn default() -> Self {
        Self {
            failures: 5.into(),
            share: 0.5.into(),
            pause: Period::seconds(30).into(),
            longest: Period::seconds(300).into(),
            most: 0.5.into(),
        }
    }
}

/// How many requests are sent again, within ten seconds: the larger limit applies.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RetryBudgetTable {
    /// Retries per request.
    #[schemars(range(min = 0, max = 1))]
    pub(super) share: Located<f64>,
    /// Retries per second that are always allowed.
    #[schemars(range(max = 1000))]
    pub(super) least: Located<u64>,
}

impl Default for RetryBudgetTable {
    fn default() -> Self {
        Self { share: 0.2.into(), least: 3.into() }
    }
}

/// How many runs each server of an agent takes at a time. What is beyond is refused with 503.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UpstreamLimitsTable {
    /// Runs under way.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) runs: Located<u64>,
    /// Runs that wait for a place.
    #[schemars(range(max = 1_000_000))]
    pub(super) queue: Located<u64>,
    /// How long they wait.
    pub(super) wait: Located<Period>,
}

impl Default for UpstreamLimitsTable {
    fn default() -> Self {
        Self { runs: 10_000.into(), queue: 1_000.into(), wait: Period::seconds(10).into() }
    }
}

/// How long the gateway waits for an upstream.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TimeoutsTable {
    /// Limit for a connection, name lookup and TLS included.
    pub(super) connect: Located<Period>,
    /// For the first byte of the response, once the request is sent.
    pub(super) first_byte: Located<Period>,
    /// Between two reads of the response.
    pub(super) idle: Located<Period>,
    /// For the complete response.
    pub(super) total: Located<Period>,
}

impl Default for TimeoutsTable {
    fn default() -> Self {
        Self {
            connect: Period::seconds(5).into(),
            first_byte: Period::seconds(60).into(),
            idle: Period::seconds(120).into(),
            total: Period::seconds(3600).into(),
        }
    }
}

/// Mounts agents at a path and serves them over one protocol.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteTable {
    /// The protocol clients speak here. Required.
    pub(super) protocol: Option<Located<String>>,
    /// The path below which the protocol's endpoints are served; `{agent}` mounts every agent separately. Required.
    #[schemars(regex(pattern = r"^/(.*[^/])?$"))]
    pub(super) path: Option<Located<String>>,
    /// The agents to serve; by default all.
    pub(super) agents: Option<Located<Vec<Located<String>>>>,
    /// How long a stream may be idle before a keep-alive comment is sent; defaults to the server's heartbeat.
    pub(super) heartbeat: Option<Located<Period>>,
    /// How callers prove who they are: a list of "keys", "jwt" and "certificates", or "none" to let anyone use the route
    /// who can connect. By default every method that `[auth]` sets up; if it sets up none, "none" has to be written once
    /// the gateway listens on a non-loopback address.
    #[schemars(schema_with = "route_auth_schema")]
    pub(super) auth: Option<Located<Texts>>,
    /// How many requests it takes from all callers together.
    pub(super) limits: Table<RouteLimitsTable>,
    /// What happens to a foreground run when its client disconnects.
    pub(super) on_disconnect: OnDisconnect,
    /// Whether the route shares its sessions with the agent's other routes.
    pub(super) shared_sessions: bool,
    /// The origins of web pages that may use the route, such as "https://app.example.com", or "*" for all. By default
    /// none.
    pub(super) cors: Option<Located<Vec<Located<String>>>>,
    /// The protocol's own options.
    pub(super) options: Option<OptionsRef>,
}

impl Default for RouteTable {
    fn default() -> Self {
        Self {
            protocol: None,
            path: None,
            agents: None,
            heartbeat: None,
            auth: None,
            limits: Table::default(),
            on_disconnect: OnDisconnect::Cancel,
            shared_sessions: true,
            cors: None,
            options: None,
        }
    }
}
