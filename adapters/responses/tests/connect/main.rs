//! The connector: what it sends, what it reads, and what it remembers.

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
