//! What the connector remembers of a session from turn to turn.

use interlingua_core::Json;
use serde::{Deserialize, Serialize};

/// Larger states are not kept, in bytes.
const MAX_STATE: usize = 64 * 1024;

/// The state of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionState {
    /// The response that the next request goes on from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response: Option<String>,
    /// The server's conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) conversation: Option<String>,
    /// Calls whose output the server waits for, and questions whose decision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) open_calls: Vec<String>,
    /// The tools of the latest request that named some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<Json>,
}

impl SessionState {
    /// Reads what was stored. Anything else is no state.
    pub(super) fn parse(stored: &Json) -> Self {
        stored.decode().unwrap_or_default()
    }

    /// Without what is too large: tools, which the client can name again.
    pub(super) fn to_json(&self) -> Json {
        let whole = Json::from_serialize(self);
        if whole.text().len() <= MAX_STATE {
            return whole;
        }
        Json::from_serialize(&Self { tools: Vec::new(), ..self.clone() })
    }
}
