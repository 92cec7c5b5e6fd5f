//! The connector for agents that speak AG-UI: what is sent, what is read, and what real servers do.

mod deviations;
mod hostile;
mod probe;
mod questions;
mod repeated;
mod requests;
mod support;
mod transcripts;
