//! The connector's stored state of a session.

use interlingua_adapter_kit::sticky::StickyTools;
use interlingua_core::Json;
use serde::{Deserialize, Serialize};

/// The field that a server's reasoning came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReasoningField {
    ReasoningContent,
    Reasoning,
    ReasoningText,
}

/// The state of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionState {
    /// None: the server sent no reasoning so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<ReasoningField>,
    /// The tools of the latest request that named some.
    #[serde(skip_serializing_if = "StickyTools::is_empty")]
    pub(super) tools: StickyTools,
}

impl SessionState {
    /// Reads what was stored. Anything else is no state.
    pub(super) fn parse(stored: &Json) -> Self {
        stored.decode().unwrap_or_default()
    }

    pub(super) fn to_json(&self) -> Json {
        Json::from_serialize(self)
    }
}
