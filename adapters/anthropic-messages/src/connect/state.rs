//! The connector's stored state of a session.

use interlingua_adapter_kit::sticky::StickyTools;
use interlingua_core::Json;
use serde::{Deserialize, Serialize};

/// The state of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionState {
    /// The tools of the latest request that named some.
    #[serde(skip_serializing_if = "StickyTools::is_empty")]
    pub(super) tools: StickyTools,
}

impl SessionState {
    /// Reads what was stored. Anything else is no state.
    pub(super) fn parse(stored: &Json) -> Self {
        stored.decode().unwrap_or_default()
    }
}
