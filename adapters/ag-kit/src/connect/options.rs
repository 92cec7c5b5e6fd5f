//! Options of an agent that speaks AG-Kit.

use interlingua_core::answer::payload::Style;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options of an agent that speaks AG-Kit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamOptions {
    /// The form of an answer to an interrupt.
    pub resume_style: ResumeStyle,
    /// The executor of a tool that the request did not declare, if its call has no result when the answer ends.
    pub unanswered_calls: UnansweredCalls,
    /// The form of tool schemas in requests.
    pub parameters: Parameters,
}

/// The form of an answer to an interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResumeStyle {
    /// The form that the interrupt's payload suggests. An answer in this form is passed on unchanged.
    #[default]
    Auto,
    /// `{"approved":true,"editedArgs":{}}`.
    Approved,
    /// `{"type":"accept","args":{}}`, as agents on LangGraph take it.
    Langgraph,
    /// `{"decisions":[]}`, as LangChain's middleware takes it.
    Decisions,
}

impl ResumeStyle {
    /// None: by the payload.
    pub(super) const fn fixed(self) -> Option<Style> {
        match self {
            Self::Auto => None,
            Self::Approved => Some(Style::Approved),
            Self::Langgraph => Some(Style::Typed),
            Self::Decisions => Some(Style::Decisions),
        }
    }
}

/// The executor of a tool that the request did not declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnansweredCalls {
    /// The client, as the protocol says.
    #[default]
    Tool,
    /// The agent, which did not send the result.
    Plugin,
}

/// The form of tool schemas in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parameters {
    /// A text that contains JSON, as in the protocol's documentation.
    #[default]
    Text,
    /// An object.
    Object,
}
