//! The gateway as a library: everything that performs I/O.
//!
//! [`Gateway`] assembles it. One module per kind of I/O: [`server`] for clients, [`upstream`] for agents, [`store`] for
//! persistence, [`engine`] for the runs between them; [`config`] for the operator's configuration. Not here: the
//! protocols, which are separate crates without I/O.

mod adapters;
pub mod callers;
pub mod cli;
pub mod clock;
pub mod config;
mod console;
pub mod engine;
mod files;
mod gateway;
pub mod identity;
pub mod keys;
pub mod metrics;
pub mod observe;
pub mod ports;
mod public_url;
pub mod reload;
mod routing;
pub mod secrets;
pub mod server;
pub mod store;
pub mod tls;
pub mod upstream;

pub use gateway::{Gateway, LiveParts, Running};
