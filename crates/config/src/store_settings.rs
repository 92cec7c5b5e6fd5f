//! The validated settings of the store. Not here: the table as written (`store_table.rs`), and its checks (`store.rs`).

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// Storage of runs and sessions.
#[derive(Clone, Debug)]
pub struct Store {
    /// Memory, SQLite or PostgreSQL.
    pub kind: StoreKind,
    /// The SQLite file; unused by other kinds. Its folder may not exist yet.
    pub path: PathBuf,
    /// The database. `None` unless the kind is PostgreSQL.
    pub postgres: Option<PostgresStore>,
    /// Deletion of finished runs.
    pub retention: Retention,
}

/// A PostgreSQL database that several gateways share.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    /// The URL, which may contain a password.
    pub url: SecretString,
    /// The schema of all tables.
    pub schema: String,
    /// Time without a connection to the database after which other gateways take over the runs of a gateway.
    pub lease: Duration,
    /// Connections of one gateway.
    pub connections: usize,
}

/// Storage of runs and sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Memory of the process. Runs are lost when it ends.
    Memory,
    /// A SQLite file, for one gateway.
    Sqlite,
    /// A PostgreSQL database, shared by several gateways.
    Postgres,
}

/// Limits of stored finished runs. The first limit reached applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The age after which a finished run is deleted.
    pub age: Duration,
    /// The number of stored runs. Beyond it, the oldest finished runs of the owner with the most runs are deleted.
    pub runs: u64,
    /// Stored bytes. Beyond this limit, runs are deleted in the same order.
    pub bytes: u64,
}
