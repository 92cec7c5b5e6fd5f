//! The connector: what it sends, what it reads, and what it remembers.

mod events;
mod hostile;
mod probe;
mod requests;
mod resume;
mod support;
mod transcripts;
