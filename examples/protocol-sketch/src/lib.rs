//! The protocol `sketch`: a skeleton that refuses every request as not implemented.
//!
//! Each folder has one concern: `wire` the types of the specification, `decode` requests, `encode` answers, `serve` the
//! endpoints, and `connect` the calls to agents.

mod connect;
mod decode;
mod encode;
mod serve;
mod wire;

pub use connect::{SketchUpstream, UpstreamOptions};
pub use serve::{Options, Sketch};

/// The protocol's name in `gateway.toml`.
const NAME: &str = "sketch";
