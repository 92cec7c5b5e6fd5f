//! The configuration as written: every key of the file, with its type, default and span.
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
use super::located::{Entries, Table, WithSpan};
use super::operators::{AdminTable, ObserveTable};
use super::secret::SecretTable;
use super::settings::{ForwardedFamily, History, OnDisconnect, ParallelTurns};
use super::store_table::StoreTable;
use super::tls_table::TlsTable;
use super::upstream_settings::{Affinity, IdentityKind};

/// Placeholder for a protocol's own options, which only the protocol can deserialize: their index in `Validator`.
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
    /// The listener for clients.
    pub(super) server: Table<ServerTable>,
    /// Where runs and sessions are stored.
    pub(super) store: WithSpan<Table<StoreTable>>,
    /// Authentication of callers.
    pub(super) auth: WithSpan<Table<AuthTable>>,
    /// Rights and limits of callers, by the caller's name. By default a caller may use everything, within the default
    /// limits. `[callers.default]` applies to callers without a table, `[callers.anonymous]` to callers of routes with
    /// `auth = "none"`.
    pub(super) callers: Entries<Table<CallerTable>>,
    /// The agents behind the gateway, by name. A name can be part of a path: letters, digits, `-`, `_` and `.`.
    pub(super) agents: Entries<Table<AgentTable>>,
    /// Routes mount agents at a path and serve them over one protocol.
    pub(super) routes: Vec<WithSpan<Table<RouteTable>>>,
    /// The listener for operators: console, metrics, state, reload. Without this table the gateway has no such
    /// listener.
    pub(super) admin: Option<WithSpan<Table<AdminTable>>>,
    /// Logs and telemetry of the gateway.
    pub(super) observe: Table<ObserveTable>,
}

/// The listener for clients.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerTable {
    /// Address and port to listen on.
    pub(super) listen: WithSpan<String>,
    /// The URL that clients use, if a proxy is in front of the gateway. By default URLs contain the host of the
    /// request.
    pub(super) public_url: Option<WithSpan<String>>,
    /// Threads that serve requests; by default one per core.
    #[schemars(range(min = 1, max = 1024))]
    pub(super) workers: Option<WithSpan<u64>>,
    /// The largest request body.
    pub(super) max_body: WithSpan<Size>,
    /// Timeouts of clients.
    pub(super) timeouts: Table<ServerTimeoutsTable>,
    /// Limits of what clients use at the same time.
    pub(super) limits: Table<ServerLimitsTable>,
    /// Time between a signal to stop and the end of normal service. During this time `/readyz` answers 503, so that a
    /// load balancer stops sending requests.
    pub(super) shutdown_delay: WithSpan<Period>,
    /// Time that runs have to finish after `shutdown_delay`.
    pub(super) drain: WithSpan<Period>,
    /// Time without an event after which a stream sends a keep-alive comment. The comment keeps the connection open and
    /// detects disconnected clients.
    pub(super) heartbeat: WithSpan<Period>,
    /// Addresses or networks of proxies. Scheme, host, port and prefix of a request are read from the headers of these
    /// proxies. By default no proxy is trusted.
    pub(super) trusted_proxies: Vec<WithSpan<String>>,
    /// The headers that trusted proxies set: X-Forwarded-For, -Proto, -Host, -Port and -Prefix, or Forwarded (RFC
    /// 7239). The other family is ignored, since a client may have set it. Lists are read from the right, past the
    /// trusted proxies in X-Forwarded-For.
    pub(super) forwarded: ForwardedFamily,
    /// The hosts that requests may name, with a port if only that port is allowed; other hosts get 421. Defaults to the
    /// host of public_url and the listen address; if the gateway listens on all addresses, to any IP address. localhost
    /// and loopback addresses are always allowed.
    pub(super) allowed_hosts: Option<Vec<WithSpan<String>>>,
    /// Encrypts connections with TLS 1.2 or 1.3, and enables HTTP/2. By default connections are not encrypted.
    pub(super) tls: Option<WithSpan<Table<TlsTable>>>,
    /// Warnings of `check` that are accepted and no longer shown, by code, or by code and agent: "client_tools:shop".
    pub(super) quiet: Vec<WithSpan<String>>,
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
            forwarded: ForwardedFamily::XForwarded,
            allowed_hosts: None,
            tls: None,
            quiet: Vec::new(),
        }
    }
}

/// Timeouts of clients, for every request of a connection.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerTimeoutsTable {
    /// For the complete request head, from its first byte.
    pub(super) head: WithSpan<Period>,
    /// For the request body, plus one second for every 16 KiB of it. After 5 s it must have arrived at 1 KiB per
    /// second.
    pub(super) body: WithSpan<Period>,
    /// For a client that accepts no bytes of its response.
    pub(super) write: WithSpan<Period>,
    /// For the next request on the connection.
    pub(super) idle: WithSpan<Period>,
    /// For a complete WebSocket message, from its first byte.
    pub(super) message: WithSpan<Period>,
    /// Interval of WebSocket pings. A client that sends nothing within this time is disconnected.
    pub(super) ping: WithSpan<Period>,
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

/// Limits of what clients use at the same time.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerLimitsTable {
    /// Connections in total.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) connections: WithSpan<u64>,
    /// Connections per client address; trusted proxies are exempt. Defaults to 256, and to `connections` for loopback
    /// addresses, where a proxy may run.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) connections_per_address: Option<WithSpan<u64>>,
    /// The size of a request head: its target, and the names and values of its fields. From 4KiB to 64KiB. A larger
    /// head gets 431.
    pub(super) head: WithSpan<Size>,
    /// Bytes of request bodies in memory; separately, the same number of response bytes that clients have not read yet.
    pub(super) bodies: WithSpan<Size>,
    /// Bytes of events that clients have not read, summed over all runs, without the first 32 KiB of each run. Beyond
    /// this limit the gateway pauses reading from agents.
    pub(super) unread: WithSpan<Size>,
    /// Nesting levels of a JSON body.
    #[schemars(range(min = 8, max = 128))]
    pub(super) json_depth: WithSpan<u64>,
    /// Values of a JSON body.
    #[schemars(range(min = 1_000, max = 10_000_000))]
    pub(super) json_values: WithSpan<u64>,
    /// Runs in memory: running, waiting, or being read.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) runs: WithSpan<u64>,
    /// Turns that wait for an earlier turn of their session.
    #[schemars(range(min = 1, max = 4_096))]
    pub(super) queued_turns: WithSpan<u64>,
    /// Stored push receivers of one caller.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) receivers: WithSpan<u64>,
    /// Deliveries of runs to push receivers, one per run and receiver. One caller may have half of them.
    #[schemars(range(min = 2, max = 1_000_000))]
    pub(super) pushes: WithSpan<u64>,
    /// Bytes of runs on one page of a list. A larger run gets a page of its own.
    pub(super) page: WithSpan<Size>,
    /// WebSockets in total.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) sockets: WithSpan<u64>,
    /// WebSockets per caller; without credentials, per client address. Defaults to 256, and to `sockets` for loopback
    /// addresses, where a proxy may run.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) sockets_per_caller: Option<WithSpan<u64>>,
    /// Streamed responses in total.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) followers: WithSpan<u64>,
    /// Concurrent requests on one HTTP/2 connection.
    #[schemars(range(min = 1, max = 1_000))]
    pub(super) http2_streams: WithSpan<u64>,
    /// Concurrent requests on all HTTP/2 connections of a client address; trusted proxies are exempt. Defaults to 1000,
    /// and to `followers` for loopback addresses, where a proxy may run. Further streams are refused with
    /// REFUSED_STREAM.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) http2_streams_per_address: Option<WithSpan<u64>>,
    /// Requests that a client may reset at once on one HTTP/2 connection; a tenth of this number is added each second.
    /// Beyond it the connection is closed.
    #[schemars(range(min = 10, max = 100_000))]
    pub(super) http2_resets: WithSpan<u64>,
    /// Frames of an HTTP/2 connection that advance no request (PING, SETTINGS, PRIORITY, empty DATA, unexpected
    /// WINDOW_UPDATE) at once; a tenth of this number is added each second. Beyond it the connection is closed.
    #[schemars(range(min = 100, max = 1_000_000))]
    pub(super) http2_control_frames: WithSpan<u64>,
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
    /// Description of the agent, shown to clients by protocols that have a field for it.
    pub(super) description: Option<String>,
    /// Version of the agent, shown to clients by protocols that have a field for it.
    pub(super) version: Option<String>,
    /// The keeper of the conversation history. Default: the upstream; the gateway for protocols whose agents store no
    /// history.
    pub(super) history: Option<WithSpan<History>>,
    /// Limits of the history that the gateway sends with a turn. A call is never sent without its output, and an answer
    /// never without its question, whatever the size.
    pub(super) history_limit: Table<HistoryLimitTable>,
    /// Handling of a turn while another turn of its session is running.
    pub(super) parallel_turns: ParallelTurns,
    /// The label of tool calls without an MCP server. Default: the agent's name.
    pub(super) server_label: Option<String>,
    /// The largest run, in bytes of agent output. A larger run fails.
    pub(super) max_run_bytes: WithSpan<Size>,
    /// Limits of the agent's runs, of all callers together. Without this table there is no limit.
    pub(super) limits: Table<AgentLimitsTable>,
    /// Protocol and address of the agent. Required.
    pub(super) upstream: Option<WithSpan<Table<UpstreamTable>>>,
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

/// Limits of the history that the gateway sends. The first limit reached applies.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HistoryLimitTable {
    /// The number of most recent turns.
    #[schemars(range(min = 1))]
    pub(super) turns: WithSpan<u32>,
    /// The total size.
    pub(super) bytes: WithSpan<Size>,
}

impl Default for HistoryLimitTable {
    fn default() -> Self {
        Self { turns: 50.into(), bytes: Size::mebibytes(1).into() }
    }
}

/// Protocol and address of an agent.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UpstreamTable {
    /// The protocol that the agent speaks. Required. `demo` is the built-in agent and has no URL.
    pub(super) protocol: Option<WithSpan<String>>,
    /// The URL of the agent.
    pub(super) url: Option<WithSpan<String>>,
    /// The URLs of the agent's servers, instead of one `url`: each takes a share of the runs.
    pub(super) urls: Option<WithSpan<Vec<WithSpan<Table<EndpointTable>>>>>,
    /// The server for the turns of a session, if there are several.
    pub(super) affinity: Option<WithSpan<Affinity>>,
    /// Health checks. By default a server's health is judged by its runs alone.
    pub(super) health: Option<WithSpan<Table<HealthTable>>>,
    /// Ejection of failing servers, if there are several: an ejected server gets no runs for a while.
    pub(super) eject: Option<WithSpan<Table<EjectTable>>>,
    /// The number of retries.
    pub(super) retry_budget: Table<RetryBudgetTable>,
    /// Limits of the runs on each server.
    pub(super) limits: Table<UpstreamLimitsTable>,
    /// Headers added to every request. Secrets are written as `{ env = "NAME" }` or `{ file = "path" }`; a header whose
    /// name looks like a secret must not have a literal value. These headers replace those of the client's trace.
    pub(super) headers: Entries<HeaderValue>,
    /// Names of headers that are copied from the client's request. By default only the trace is passed on: tracestate,
    /// and traceparent with a span of the gateway as parent. Headers of a connection cannot be forwarded.
    pub(super) forward: Vec<WithSpan<String>>,
    /// The identity of the caller that the agent receives.
    pub(super) identity: WithSpan<IdentityKind>,
    /// The key that signs the tokens of `identity = "jwt"`: PKCS #8 in PEM, for ES256 or EdDSA.
    pub(super) identity_key: Option<WithSpan<SecretTable>>,
    /// TLS towards the agent's servers. By default the authorities of the system are trusted, and no client certificate
    /// is sent.
    pub(super) tls: Option<WithSpan<Table<UpstreamTlsTable>>>,
    /// The HTTP proxy for all requests to the agent: its URL, or `{ url, user, password }`. Proxies of the environment
    /// are never used.
    pub(super) proxy: Option<WithSpan<ProxyValue>>,
    /// Timeouts of requests to the agent.
    pub(super) timeouts: Table<TimeoutsTable>,
    /// Retries of a request that the agent did not process: no connection was made, or the answer was 503. A request
    /// with decisions is retried only without a connection, so that no decision arrives twice.
    #[schemars(range(max = 10))]
    pub(super) retries: WithSpan<u32>,
    /// The largest single event accepted from the agent.
    pub(super) max_event: WithSpan<Size>,
    /// Whether the agent understands decisions other than yes and no (edits, texts, choices), sent as an extension of
    /// the Agent API. Only for agents of this protocol.
    pub(super) approval_extension: WithSpan<bool>,
    /// Options of the protocol: see the page of options.
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
            approval_extension: false.into(),
            options: None,
        }
    }
}

/// One server of an agent.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EndpointTable {
    /// The URL of the server. Required.
    pub(super) url: Option<WithSpan<String>>,
    /// Share of the runs, relative to the weights of the other servers.
    #[schemars(range(min = 1, max = 100))]
    pub(super) weight: WithSpan<u64>,
}

impl Default for EndpointTable {
    fn default() -> Self {
        Self { url: None, weight: 1.into() }
    }
}

/// Health checks of an agent's servers: a GET that must be answered with a success status.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HealthTable {
    /// The path, from the root of the server. Required.
    #[schemars(regex(pattern = r"^/"))]
    pub(super) path: Option<WithSpan<String>>,
    /// The pause between two checks.
    pub(super) every: WithSpan<Period>,
    /// Timeout of a check.
    pub(super) timeout: WithSpan<Period>,
    /// Consecutive successes after which a server is healthy again.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) healthy: WithSpan<u64>,
    /// Consecutive failures after which a server is unhealthy and gets no runs.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) unhealthy: WithSpan<u64>,
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

/// Ejection of failing servers. Failures are: no connection, 502 to 504, no first byte in time, broken answers.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EjectTable {
    /// Consecutive failures that eject a server.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) failures: WithSpan<u64>,
    /// Share of failed runs, of at least 20 runs in ten seconds, that ejects a server.
    #[schemars(range(min = 0, max = 1))]
    pub(super) share: WithSpan<f64>,
    /// Duration of the first ejection. Each further ejection is this much longer.
    pub(super) pause: WithSpan<Period>,
    /// Maximum duration of an ejection.
    pub(super) longest: WithSpan<Period>,
    /// Maximum share of the servers that is ejected at the same time.
    #[schemars(range(min = 0, max = 1))]
    pub(super) most: WithSpan<f64>,
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

/// Limits of retries. The larger limit applies.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RetryBudgetTable {
    /// Retries per request, over the last ten seconds.
    #[schemars(range(min = 0, max = 1))]
    pub(super) share: WithSpan<f64>,
    /// Retries per second that are always allowed.
    #[schemars(range(max = 1000))]
    pub(super) least: WithSpan<u64>,
}

impl Default for RetryBudgetTable {
    fn default() -> Self {
        Self { share: 0.2.into(), least: 3.into() }
    }
}

/// Limits of the runs on each server. A run beyond them is refused with 503.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UpstreamLimitsTable {
    /// Concurrent runs.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) runs: WithSpan<u64>,
    /// Runs that wait for one of these to end.
    #[schemars(range(max = 1_000_000))]
    pub(super) queue: WithSpan<u64>,
    /// Maximum waiting time.
    pub(super) wait: WithSpan<Period>,
}

impl Default for UpstreamLimitsTable {
    fn default() -> Self {
        Self { runs: 10_000.into(), queue: 1_000.into(), wait: Period::seconds(10).into() }
    }
}

/// Timeouts of requests to an agent.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TimeoutsTable {
    /// For a connection, including name lookup and TLS.
    pub(super) connect: WithSpan<Period>,
    /// For the first byte of the response, after the request was sent.
    pub(super) first_byte: WithSpan<Period>,
    /// Between two reads of the response.
    pub(super) idle: WithSpan<Period>,
    /// For the complete response.
    pub(super) total: WithSpan<Period>,
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
    /// The protocol that clients speak on this route. Required.
    pub(super) protocol: Option<WithSpan<String>>,
    /// The path below which the protocol's endpoints are served; `{agent}` mounts every agent separately. Required.
    #[schemars(regex(pattern = r"^/(.*[^/])?$"))]
    pub(super) path: Option<WithSpan<String>>,
    /// The agents to serve; by default all.
    pub(super) agents: Option<WithSpan<Vec<WithSpan<String>>>>,
    /// How long a stream may be idle before a keep-alive comment is sent; defaults to the server's heartbeat.
    pub(super) heartbeat: Option<WithSpan<Period>>,
    /// The accepted credentials: a list of "keys", "jwt" and "certificates", or "none" for a route without
    /// authentication. By default every method that `[auth]` configures. If `[auth]` configures none and the gateway
    /// listens on a non-loopback address, "none" is required.
    #[schemars(schema_with = "route_auth_schema")]
    pub(super) auth: Option<WithSpan<Texts>>,
    /// Limits of the route's requests, of all callers together. Without this table there is no limit.
    pub(super) limits: Table<RouteLimitsTable>,
    /// Handling of a foreground run whose client disconnects in the middle of a stream. By default the protocol
    /// decides; all built-in protocols cancel the run.
    pub(super) on_disconnect: Option<OnDisconnect>,
    /// Whether the route shares its sessions with the agent's other routes. If not, the agent receives derived ids of
    /// sessions and users, so that its memory is separate too.
    pub(super) shared_sessions: bool,
    /// The origins of web pages that may use the route, such as "https://app.example.com", or "*" for all, which
    /// `check` warns of. By default none.
    pub(super) cors: Option<WithSpan<Vec<WithSpan<String>>>>,
    /// Options of the protocol: see the page of options.
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
            on_disconnect: None,
            shared_sessions: true,
            cors: None,
            options: None,
        }
    }
}
