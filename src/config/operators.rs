//! The tables `[admin]` and `[observe]` as written.
//!
//! Not here: checks that involve more than one value (`admin.rs`, `observe.rs`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::document::TlsTable;
use super::located::{Located, Table};
use super::secret::SecretTable;

/// A listener for operators: metrics, state, reload.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AdminTable {
    /// Address and port to listen on.
    pub(super) listen: Located<String>,
    /// What requests have to show as `Authorization: Bearer`. At least 32 characters. Beyond loopback, this or a
    /// `client_ca` is required.
    pub(super) key: Option<Located<Table<SecretTable>>>,
    /// Encrypts connections. A certificate of an authority in `client_ca` is accepted instead of the key, and asked for
    /// if there is no key. Not encrypted by default.
    pub(super) tls: Option<Located<Table<TlsTable>>>,
}

impl Default for AdminTable {
    fn default() -> Self {
        Self { listen: "127.0.0.1:9090".to_owned().into(), key: None, tls: None }
    }
}

/// What the gateway logs about itself.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ObserveTable {
    /// One line for each request. Not written by default.
    pub(super) access_log: Option<Located<Table<AccessLogTable>>>,
    /// The file of the audit log, relative to the folder of this file: keys, refused credentials, decisions of people,
    /// reloads, admin calls. Lines are appended. Not written by default.
    pub(super) audit: Option<Located<String>>,
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
