//! The gateway as a library: everything that waits.
//!
//! [`Gateway`] puts it together. One room for each thing that waits: [`server`] for clients, [`upstream`] for agents,
//! [`store`] for what has to last, [`engine`] for the runs between them; [`config`] is how an operator says what is
//! wanted. What protocols mean lives in crates of their own, which never wait.

mod adapters;
mod announced;
pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
mod gateway;
pub mod ports;
pub mod secrets;
pub mod server;
pub mod store;
pub mod upstream;

pub use gateway::{Gateway, Running};
