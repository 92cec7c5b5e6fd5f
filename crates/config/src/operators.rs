//! The tables `[admin]` and `[observe]` as written.
//!
//! Not here: checks that involve more than one value (`admin.rs`, `observe.rs`).

use interlingua_core::duration::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::headers::HeaderValue;
use super::located::{Entries, Table, WithSpan};
use super::secret::SecretTable;
use super::settings::{ConsoleTexts, MetricsAccess};
use super::tls_table::TlsTable;

/// The listener for operators: console, metrics, state, reload.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AdminTable {
    /// Address and port to listen on.
    pub(super) listen: WithSpan<String>,
    /// The key that requests must send as `Authorization: Bearer`, at least 32 characters. Beyond loopback, this or
    /// `client_ca` is required. On loopback without both, the gateway generates a key at each start.
    pub(super) key: Option<WithSpan<Table<SecretTable>>>,
    /// Encrypts connections. A certificate of an authority in `client_ca` is accepted instead of the key; without a key
    /// it is required. By default connections are not encrypted.
    pub(super) tls: Option<WithSpan<Table<TlsTable>>>,
    /// Whether a proxy in front of the listener terminates TLS. Beyond loopback, this or `tls` is required.
    pub(super) behind_proxy: bool,
    /// Whether the console is served: a page for operators, approvers and developers.
    pub(super) console: bool,
    /// The readers of messages of people and agents in the console.
    pub(super) texts: ConsoleTexts,
    /// Access to `/metrics`.
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

/// Logs and telemetry of the gateway.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ObserveTable {
    /// Access log: one line for each request. Not written by default.
    pub(super) access_log: Option<WithSpan<Table<AccessLogTable>>>,
    /// The file of the audit log, relative to the folder of this file: keys, refused credentials, decisions of people,
    /// reloads, admin calls. One JSON object per line is appended. Not written by default.
    pub(super) audit: Option<WithSpan<String>>,
    /// The collector (OTLP) of the spans of requests that begin a run. By default no spans are sent.
    pub(super) traces: Option<WithSpan<Table<TracesTable>>>,
    /// The collector (OTLP) of the metrics of the GenAI conventions. Without an endpoint: the collector of the traces.
    /// By default no metrics are sent.
    pub(super) metrics: Option<WithSpan<Table<ReportsTable>>>,
    /// The collector (OTLP) of warnings, errors and the lines of the access log, whether an access log is written or
    /// not. Without an endpoint: the collector of the traces. By default no log records are sent.
    pub(super) logs: Option<WithSpan<Table<CollectorTable>>>,
    /// `service.name` in traces, metrics and log records.
    pub(super) service_name: WithSpan<String>,
    /// Whether requests and runs are counted by caller too. At most 1,000 callers are distinguished; the others are
    /// counted as `other`.
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
    pub(super) endpoint: Option<WithSpan<String>>,
    /// The protocol of the collector. By default gRPC on port 4317, HTTP with Protobuf on any other port.
    pub(super) protocol: Option<OtlpForm>,
    /// Headers of every request. Secrets are written as references.
    pub(super) headers: Entries<HeaderValue>,
}

/// The collector of metrics.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReportsTable {
    /// The collector's URL, without the path of a signal.
    pub(super) endpoint: Option<WithSpan<String>>,
    /// The protocol of the collector. By default gRPC on port 4317, HTTP with Protobuf on any other port.
    pub(super) protocol: Option<OtlpForm>,
    /// Headers of every request. Secrets are written as references.
    pub(super) headers: Entries<HeaderValue>,
    /// The interval between two reports.
    pub(super) every: WithSpan<Period>,
}

impl Default for ReportsTable {
    fn default() -> Self {
        Self { endpoint: None, protocol: None, headers: Entries::default(), every: Period::seconds(60).into() }
    }
}

/// The collector of traces.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TracesTable {
    /// The collector's URL, without the path of a signal. Required.
    pub(super) endpoint: Option<WithSpan<String>>,
    /// The protocol of the collector. By default gRPC on port 4317, HTTP with Protobuf on any other port.
    pub(super) protocol: Option<OtlpForm>,
    /// Headers of every request. Secrets are written as references.
    pub(super) headers: Entries<HeaderValue>,
    /// The share of traces that are sent, of the traces that the gateway begins. For a trace that a client began, its
    /// `traceparent` decides.
    pub(super) sample: WithSpan<f64>,
    /// Whether spans contain messages of people and agents, and arguments and results of tools.
    pub(super) content: WithSpan<bool>,
}

impl Default for TracesTable {
    fn default() -> Self {
        Self { endpoint: None, protocol: None, headers: Entries::default(), sample: 1.0.into(), content: false.into() }
    }
}

/// The protocol of a collector.
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
    /// The form of the lines.
    pub(super) format: LogForm,
    /// The file, relative to the folder of this file. Lines are appended. By default lines are written to standard
    /// output.
    pub(super) path: Option<WithSpan<String>>,
    /// The form of session ids in the log.
    pub(super) session: SessionForm,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogForm {
    /// One JSON object per line.
    #[default]
    Json,
    /// Text for people.
    Pretty,
}

/// The form of session ids in the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum SessionForm {
    /// Unchanged.
    #[default]
    Plain,
    /// As a hash that changes with each start of the gateway.
    Hashed,
}
