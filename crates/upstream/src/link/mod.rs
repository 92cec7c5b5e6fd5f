//! Agents that are reached over a link: one connection that outlasts turns, and that all sessions share.
//!
//! A task owns the connection and the protocol's [`AgentLink`](interlingua_core::connector::AgentLink). Turns write
//! messages through it and read their topics from inboxes.
//!
//! Not here: the meaning of messages (the connectors), and the ways to connect, except for lines of text ([`lines`]).

mod driver;
mod inbox;
mod lines;
mod links;
#[cfg(test)]
mod tests;
mod upstream;
mod wire;

pub use lines::lines;
pub use upstream::LinkUpstream;
pub use wire::{Dial, LinkLimits, Wire, WireWriter};
