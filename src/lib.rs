//! The gateway as a library: everything that waits.

pub mod config;
pub mod store;
pub mod upstream;
