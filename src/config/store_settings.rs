//! The store as the gateway uses it. Not here: its table as written (`store_table.rs`), and its checks (`store.rs`).

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// Where runs and sessions are stored, and for how long.
#[derive(Clone, Debug)]
pub struct Store {
    /// Memory, SQLite or PostgreSQL.
    pub kind: StoreKind,
    /// The SQLite file; unused for other kinds. Its folder may not exist yet.
    pub path: PathBuf,
    /// The database, if the store is one.
    pub postgres: Option<PostgresStore>,
    /// When finished runs are deleted.
    pub retention: Retention,
}

/// A PostgreSQL database that several gateways share.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    /// Its URL, with a password perhaps.
    pub url: SecretString,
    /// The schema that all tables are in.
    pub schema: String,
    /// How long a gateway may be cut off before others take its runs over.
    pub lease: Duration,
    /// How many connections a gateway makes.
    pub connections: usize,
}

/// Where runs and sessions are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Memory of the process, lost when it ends.
    Memory,
    /// A SQLite file.
    Sqlite,
    /// A PostgreSQL database, shared by several gateways.
    Postgres,
}

/// How long finished runs are stored: the first limit reached applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The age after which a finished run is deleted.
    pub age: Duration,
    /// How many runs are stored; beyond that, the oldest finished runs of the owner with the most runs are deleted.
    pub runs: u64,
    /// How many bytes are stored; beyond that, runs are deleted in the same order.
    pub bytes: u64,
}
