//! The connector for agents that speak AG-Kit.

mod answers;
mod deviations;
mod hostile;
mod requests;
mod support;
mod transcripts;
