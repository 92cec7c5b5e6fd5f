//! The connector for agents that speak AG-UI: what is sent, what is read, and what real servers do.

#[allow(dead_code, reason = "each test file uses what it needs")]
mod support;
mod transcripts;
