//! Serving Chat Completions: requests, answers, errors, and what holds for every answer.

mod answers;
mod conversations;
mod errors;
mod laws;
mod requests;
mod strict;
mod support;
