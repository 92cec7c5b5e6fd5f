//! The connector: requests, reading of answers, and stored state.

mod events;
mod hostile;
mod probe;
mod requests;
mod resume;
mod support;
mod transcripts;
