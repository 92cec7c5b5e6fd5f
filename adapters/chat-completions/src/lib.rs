//! OpenAI Chat Completions: [`ChatCompletionsUpstream`] calls agents and model servers that speak it.
//!
//! What is read, sent, repaired and lost is described in `docs/protocols/chat-completions.md`.
//!
//! Not here: serving the protocol to clients.

mod connect;

pub use connect::{
    ChatCompletionsUpstream, LimitField, Part, ReasoningInput, SystemRole, ThinkTags, UpstreamOptions, UserField,
};
