//! The connector: what it sends, what it reads, and what it remembers.

mod support;
mod transcripts;
