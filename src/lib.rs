//! The gateway as a library: everything that performs I/O.
//!
//! [`Gateway`] assembles it. One module per kind of I/O: [`server`] for clients, [`upstream`] for agents, [`store`] for
//! persistence, [`engine`] for the runs between them; [`config`] for the operator's configuration. Not here: the
//! protocols, which are separate crates without I/O.

mod adapters;
pub mod cli;
mod gateway;
pub mod reload;

pub use gateway::{Gateway, LiveParts, Running};
pub use interlingua_admin as admin;
pub use interlingua_base::{clock, identity, ports, secrets, tls};
pub use interlingua_callers as callers;
pub use interlingua_config as config;
pub use interlingua_config::keys;
pub use interlingua_engine as engine;
pub use interlingua_observe as observe;
pub use interlingua_observe::metrics;
pub use interlingua_server as server;
pub use interlingua_upstream as upstream;

/// Stores of runs, sessions and documents: the trait and all implementations.
pub mod store {
    pub use interlingua_store::*;
    pub use interlingua_store_postgres::{Import, Postgres, PostgresOptions};
    pub use interlingua_store_sqlite::{Sqlite, SqliteExport, SqliteOptions};
}
