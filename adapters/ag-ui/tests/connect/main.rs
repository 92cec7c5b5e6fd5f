//! The connector for agents that speak AG-UI: requests, reading of answers, and deviations of real servers.

mod deviations;
mod hostile;
mod probe;
mod questions;
mod repeated;
mod requests;
mod support;
mod transcripts;
