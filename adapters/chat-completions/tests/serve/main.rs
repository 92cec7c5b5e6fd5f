//! Serving Chat Completions: requests, answers, errors, and what holds for every answer.

mod answers;
mod conversations;
mod errors;
mod laws;
mod losses;
mod requests;
mod strict;
mod support;
