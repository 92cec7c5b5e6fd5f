//! `[store]` as written in the file. Not here: its checks ([`super::store`]).

use std::time::Duration;

use interlingua_core::duration::Period;
use interlingua_core::size::Size;
use schemars::JsonSchema;

use super::located::{Table, WithSpan};
use super::secret::SecretTable;
use super::store_settings::StoreKind;

/// Storage of runs and sessions.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct StoreTable {
    /// The kind of store.
    pub(super) kind: WithSpan<StoreKind>,
    /// The SQLite file, relative to the folder of this file.
    pub(super) path: WithSpan<String>,
    /// The PostgreSQL database: `{ env = "NAME" }` or `{ file = "path" }` with a URL like
    /// `postgres://user:password@host/database`.
    pub(super) url: Option<WithSpan<SecretTable>>,
    /// The schema of all tables in the database: letters, digits, `_` and `-`, at most 51. Gateways with the same
    /// database and schema share their runs.
    #[schemars(length(max = 51), regex(pattern = "^[A-Za-z_][A-Za-z0-9_-]*$"))]
    pub(super) schema: WithSpan<String>,
    /// Time without a connection to the database after which other gateways take over the runs of this gateway. Running
    /// runs then fail.
    pub(super) lease: WithSpan<Period>,
    /// Connections of this gateway to the database. The sum over all gateways must be below the server's
    /// `max_connections`.
    #[schemars(range(min = 3, max = 100))]
    pub(super) connections: WithSpan<u64>,
    /// Limits of stored finished runs.
    pub(super) retention: Table<RetentionTable>,
}

impl Default for StoreTable {
    fn default() -> Self {
        Self {
            kind: StoreKind::Memory.into(),
            path: "data/interlingua.db".to_owned().into(),
            url: None,
            schema: "interlingua".to_owned().into(),
            lease: Period(Duration::from_secs(10)).into(),
            connections: 6.into(),
            retention: Table::default(),
        }
    }
}

/// Limits of stored finished runs. The first limit reached applies.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RetentionTable {
    /// The age after which a finished run is deleted.
    pub(super) age: WithSpan<Period>,
    /// The number of stored runs. Beyond it, the oldest finished runs of the owner with the most runs are deleted.
    #[schemars(range(min = 1))]
    pub(super) runs: WithSpan<u64>,
    /// Stored bytes. Beyond this limit, runs are deleted in the same order.
    pub(super) bytes: WithSpan<Size>,
}

impl Default for RetentionTable {
    fn default() -> Self {
        Self { age: Period::seconds(30 * 86_400).into(), runs: 100_000.into(), bytes: Size::mebibytes(20 << 10).into() }
    }
}
