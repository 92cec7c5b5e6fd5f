//! The gateway as a library: everything that performs I/O.
//!
//! [`Gateway`] assembles it. One module per kind of I/O: [`server`] for clients, [`upstream`] for agents, [`store`] for
//! persistence, [`engine`] for the runs between them; [`config`] for the operator's configuration. Not here: the
//! protocols, which are separate crates without I/O.

mod adapters;
pub mod callers;
pub mod cli;
pub mod config;
mod console;
pub mod engine;
mod gateway;
pub mod keys;
mod public_url;
pub mod reload;
mod routing;
pub mod server;
pub mod store;
pub mod upstream;

pub use gateway::{Gateway, LiveParts, Running};
pub use interlingua_base::{clock, identity, ports, secrets, tls};
pub use interlingua_observe as observe;
pub use interlingua_observe::metrics;
