//! `[store]` as it is written. Not here: its checks ([`super::store`]).

use std::time::Duration;

use interlingua_core::duration::Period;
use interlingua_core::size::Size;
use schemars::JsonSchema;

use super::located::{Located, Table};
use super::secret::SecretTable;
use super::store_settings::StoreKind;

/// Where runs and sessions are stored.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct StoreTable {
    /// The kind of store: memory, which is lost when the process ends; a SQLite file, which one gateway uses at a time; or
    /// a PostgreSQL database, which any number of gateways share.
    pub(super) kind: Located<StoreKind>,
    /// The SQLite file, relative to the folder of this file.
    pub(super) path: Located<String>,
    /// The PostgreSQL database: `{ env = "NAME" }` or `{ file = "path" }` with a URL like
    /// `postgres://user:password@host/database`.
    pub(super) url: Option<Located<SecretTable>>,
    /// The schema of the database that all tables are in. Gateways with the same schema are one.
    #[schemars(length(max = 51), regex(pattern = "^[A-Za-z_][A-Za-z0-9_-]*$"))]
    pub(super) schema: Located<String>,
    /// How long a gateway may be cut off from the database before others take its runs over, which fail then.
    pub(super) lease: Located<Period>,
    /// How many connections to the database a gateway makes.
    #[schemars(range(min = 3, max = 100))]
    pub(super) connections: Located<u64>,
    /// How long finished runs are stored.
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

/// How long finished runs are stored: the first limit reached applies.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RetentionTable {
    /// The age after which a finished run is deleted.
    pub(super) age: Located<Period>,
    /// How many runs are stored; beyond that, the oldest finished runs of the owner with the most runs are deleted.
    #[schemars(range(min = 1))]
    pub(super) runs: Located<u64>,
    /// How many bytes are stored; beyond that, runs are deleted in the same order.
    pub(super) bytes: Located<Size>,
}

impl Default for RetentionTable {
    fn default() -> Self {
        Self { age: Period::seconds(30 * 86_400).into(), runs: 100_000.into(), bytes: Size::mebibytes(20 << 10).into() }
    }
}
