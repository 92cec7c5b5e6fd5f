//! AG-UI in front of and behind the gateway. Here: [`AgUiUpstream`] calls agents that speak it.
//!
//! Options, what is read, and what is lost: `docs/upstreams/ag-ui.md`.

mod connect;

pub use connect::{
    AgUiUpstream, Events, Parts, Reasoning, ReasoningInput, ResumeStyle, UnansweredCalls, UpstreamOptions,
};

/// The protocol's name in the configuration.
const NAME: &str = "ag-ui";
