//! The gateway as a library: everything that waits.

pub mod config;
