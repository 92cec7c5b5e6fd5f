//! AG-UI in front of and behind the gateway: [`AgUi`] serves front ends, [`AgUiUpstream`] calls agents.
//!
//! The mapping and its losses: `docs/protocols/ag-ui.md` towards clients, `docs/protocols/ag-ui.md` towards agents.

mod connect;
mod serve;

pub use connect::{
    AgUiUpstream, Events, Parts, Reasoning, ReasoningInput, ResumeStyle, UnansweredCalls, UpstreamOptions,
};
pub use serve::{AgUi, Busy, History, Media, Options, ReasoningForm, Start};

/// The protocol's name in the configuration.
const NAME: &str = "ag-ui";
