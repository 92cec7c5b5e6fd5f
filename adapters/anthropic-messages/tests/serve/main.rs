//! Serving the protocol to clients: requests as agents receive them, answers, errors and conversations.

mod answers;
mod conversations;
mod errors;
mod laws;
mod losses;
mod requests;
mod strict;
mod support;
