//! The tables `[admin]` and `[observe]` as written.
//!
//! Not here: checks that involve more than one value (`admin.rs`, `observe.rs`).

use interlingua_core::duration::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::headers::HeaderValue;
use super::located::{Entries, Located, Table};
use super::secret::SecretTable;
use super::settings::{ConsoleTexts, MetricsAccess};
use super::tls_table::TlsTable;

/// A listener for operators: metrics, state, reload.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AdminTable {
    /// Address and port to listen on.
    pub(super) listen: Located<String>,
    /// What requests have to show as `Authorization: Bearer`. At least 32 characters. Beyond loopback, this or a
    /// `client_ca` is required. On loopback without both, the gateway makes a key for each start.
    pub(super) key: Option<Located<Table<SecretTable>>>,
    /// Encrypts connections. A certificate of an authority in `client_ca` is accepted instead of the key, and asked for
    /// if there is no key. Not encrypted by default.
    pub(super) tls: Option<Located<Table<TlsTable>>>,
    /// True if a proxy in front of the listener has TLS. Beyond loopback, this or `tls` is required.
    pub(super) behind_proxy: bool,
    /// Whether the console is served: a page for operators, approvers and developers.
    pub(super) console: bool,
    /// Who sees in the console what people and agents say: `all` who may sign in, those who may `act`, or `none`.
    pub(super) texts: ConsoleTexts,
    /// Access to `/metrics`: with the credentials of the other paths (`key`), or without any (`open`).
    pub(super) metrics: MetricsAccess,
}

impl Default for AdminTable {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:9090".to_owned().into(),
            key: None,
            tls: None,
            behind_proxy: false,
            console: true,
            texts: ConsoleTexts::All,
            metrics: MetricsAccess::Key,
        }
    }
}

/// What the gateway logs about itself.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ObserveTable {
    /// One line for each request. Not written by default.
    pub(super) access_log: Option<Located<Table<AccessLogTable>>>,
    /// The file of the audit log, relative to the folder of this file: keys, refused credentials, decisions of people,
    /// reloads, admin calls. Lines are appended. Not written by default.
    pub(super) audit: Option<Located<String>>,
    /// Where spans of requests that begin a run are sent (OTLP). Nowhere by default.
    pub(super) traces: Option<Located<Table<TracesTable>>>,
    /// Where the metrics of the GenAI conventions are sent (OTLP). Without an endpoint: to the collector of the traces.
    /// Nowhere by default.
    pub(super) metrics: Option<Located<Table<ReportsTable>>>,
    /// Where warnings, errors and the lines of the access log are sent (OTLP), whether they are written or not. Without
    /// an endpoint: to the collector of the traces. Nowhere by default.
    pub(super) logs: Option<Located<Table<CollectorTable>>>,
    /// The name of this gateway in traces, metrics and logs that are sent: `service.name`.
    pub(super) service_name: Located<String>,
    /// Whether requests and runs are counted by caller too. At most 1,000 callers; the others are counted as `other`.
    pub(super) caller_label: bool,
}

impl Default for ObserveTable {
    fn default() -> Self {
        Self {
            access_log: None,
            audit: None,
            traces: None,
            metrics: None,
            logs: None,
            service_name: "interlingua".to_owned().into(),
            caller_label: false,
        }
    }
}

/// A collector of telemetry.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CollectorTable {
    /// The collector's URL, without the path of a signal.
    pub(super) endpoint: Option<Located<String>>,
    /// How it is spoken to. By default gRPC on port 4317, HTTP with Protobuf on any other.
    pub(super) protocol: Option<OtlpForm>,
    /// Headers of every request; secrets by reference.
    pub(super) headers: Entries<HeaderValue>,
}

/// The metrics, and their collector.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReportsTable {
    /// The collector's URL, without the path of a signal.
    pub(super) endpoint: Option<Located<String>>,
    /// How it is spoken to. By default gRPC on port 4317, HTTP with Protobuf on any other.
    pub(super) protocol: Option<OtlpForm>,
    /// Headers of every request; secrets by reference.
    pub(super) headers: Entries<HeaderValue>,
    /// How often they are sent.
    pub(super) every: Located<Period>,
}

impl Default for ReportsTable {
    fn default() -> Self {
        Self { endpoint: None, protocol: None, headers: Entries::default(), every: Period::seconds(60).into() }
    }
}

/// The traces, and their collector.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TracesTable {
    /// The collector's URL, without the path of a signal; required.
    pub(super) endpoint: Option<Located<String>>,
    /// How it is spoken to. By default gRPC on port 4317, HTTP with Protobuf on any other.
    pub(super) protocol: Option<OtlpForm>,
    /// Headers of every request; secrets by reference.
    pub(super) headers: Entries<HeaderValue>,
    /// The share of traces that are sent, of those that the gateway begins. Whether a trace that a client has begun is
    /// sent follows from its `traceparent`.
    pub(super) sample: Located<f64>,
    /// Whether spans have what people and agents say, and the arguments and results of tools.
    pub(super) content: Located<bool>,
}

impl Default for TracesTable {
    fn default() -> Self {
        Self { endpoint: None, protocol: None, headers: Entries::default(), sample: 1.0.into(), content: false.into() }
    }
}

/// How a collector is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum OtlpForm {
    /// gRPC.
    Grpc,
    /// HTTP with Protobuf.
    Http,
}

/// The access log.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AccessLogTable {
    /// One JSON object per line, or lines for people.
    pub(super) format: LogForm,
    /// The file, relative to the folder of this file; lines are appended. Standard output by default.
    pub(super) path: Option<Located<String>>,
    /// Whether sessions are logged as they are, or as a hash that changes with each start of the gateway.
    pub(super) session: SessionForm,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogForm {
    /// One JSON object per line.
    #[default]
    Json,
    /// For people.
    Pretty,
}

/// How sessions are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum SessionForm {
    /// As they are.
    #[default]
    Plain,
    /// As a hash.
    Hashed,
}
