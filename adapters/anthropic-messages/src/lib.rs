//! Anthropic Messages: [`AnthropicMessagesUpstream`] calls agents and model servers that speak it.
//!
//! What is sent, read, repaired and lost is described in `docs/upstreams/anthropic-messages.md`.
//!
//! Not here: serving the protocol to clients.

mod connect;

pub use connect::{
    AnthropicMessagesUpstream, McpHistory, Sampling, SystemMessages, Thinking, UnsignedThinking, UpstreamOptions,
    UserField,
};
