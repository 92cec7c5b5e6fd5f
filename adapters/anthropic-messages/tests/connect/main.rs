//! The connector for Anthropic Messages: what goes out for a canonical request, and what comes of what servers answer.

mod answers;
mod deviations;
mod hostile;
mod requests;
mod support;
mod transcripts;
