//! AgentScope 2.0: calling agents of its own service.
//!
//! See `docs/protocols/agentscope.md`. Not here: the Agent API of AgentScope Runtime, which is another protocol (the
//! native adapter), and serving this one to clients.

mod connect;

pub use connect::{AgentscopeUpstream, Events, UpstreamOptions};

/// The name of the protocol in `gateway.toml`.
const NAME: &str = "agentscope";
