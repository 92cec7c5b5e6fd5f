//! The stored state of a session.

use interlingua_core::Json;
use serde::{Deserialize, Serialize};

/// The state of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionState {
    /// The service's id of its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<String>,
    /// The time of the last answer, by the clock of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timestamp: Option<f64>,
    /// The number of messages after the last query that an interrupted answer has shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) shown: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
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
