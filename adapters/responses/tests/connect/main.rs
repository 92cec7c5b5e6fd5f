//! The connector: requests, reading of answers, and stored state.

mod background;
mod deviations;
mod events;
mod hostile;
mod probe;
mod requests;
mod state;
mod support;
mod tools;
mod transcripts;
