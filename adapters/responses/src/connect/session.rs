//! The connector's stored state of a session.

use interlingua_core::Json;
use serde::{Deserialize, Serialize};

/// Larger states are not kept, in bytes.
const MAX_STATE: usize = 64 * 1024;

/// The state of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionState {
    /// The response that the next request continues.
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

    /// The state without values that are too large: first tools, which the client can send again, then open calls,
    /// which the server names when it refuses to continue.
    pub(super) fn to_json(&self) -> Json {
        let without_tools = || Self { tools: Vec::new(), ..self.clone() };
        let without_calls = || Self { open_calls: Vec::new(), ..without_tools() };
        let fits = |state: &Json| state.text().len() <= MAX_STATE;
        let whole = Json::from_serialize(self);
        if fits(&whole) {
            return whole;
        }
        Some(Json::from_serialize(&without_tools()))
            .filter(fits)
            .unwrap_or_else(|| Json::from_serialize(&without_calls()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_stays_small() {
        let large = |count: usize| (0..count).map(|number| format!("{number:01000}")).collect::<Vec<_>>();
        let tools = |count: usize| large(count).iter().map(Json::from_serialize).collect();
        let state = SessionState { response: Some("resp_1".to_owned()), ..SessionState::default() };
        let kept = |state: SessionState| {
            let json = state.to_json();
            assert!(json.text().len() <= MAX_STATE);
            let found = SessionState::parse(&json);
            assert_eq!(found.response.as_deref(), Some("resp_1"));
            (found.open_calls.len(), found.tools.len())
        };
        assert_eq!(kept(SessionState { open_calls: large(2), tools: tools(2), ..state.clone() }), (2, 2));
        assert_eq!(kept(SessionState { open_calls: large(2), tools: tools(99), ..state.clone() }), (2, 0));
        assert_eq!(kept(SessionState { open_calls: large(99), tools: tools(2), ..state }), (0, 0));
    }
}
