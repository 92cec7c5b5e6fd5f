//! Calls to agents that speak A2A: requests, and the outcome of answers, for both versions and both bindings.

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod answers;
mod artifacts;
mod failures;
mod history;
mod hostile;
mod long_running;
mod operator;
mod parts;
mod requests;
mod resume;
mod server;
mod shapes;
mod streams;
mod transcripts;
