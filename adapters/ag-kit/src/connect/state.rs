//! The stored state of a session.

use interlingua_adapter_kit::call_ids::CallIds;
use interlingua_core::Json;
use serde::{Deserialize, Serialize};

/// Calls of an interrupted answer that are remembered.
const MAX_CALLS: usize = 64;
/// Names of tools, likewise.
const MAX_TOOLS: usize = 256;
/// The longest id or name that is kept, in bytes.
const MAX_NAME: usize = 512;

/// A call whose result may come in the next answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenCall {
    /// The agent's id.
    pub(super) id: String,
    pub(super) name: String,
}

/// The state of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionState {
    /// The agent's own calls that had no result when an interrupt ended its answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<OpenCall>,
    /// Names of the tools that the client declared last: a request with a result often declares none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<String>,
    /// Ids of all calls: the agent may use one again.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) call_ids: CallIds,
}

fn is_default(call_ids: &CallIds) -> bool {
    *call_ids == CallIds::default()
}

impl SessionState {
    /// Reads what was stored. Anything else is no state.
    pub(super) fn parse(stored: &Json) -> Self {
        stored.decode().unwrap_or_default()
    }

    pub(super) fn to_json(&self) -> Json {
        Json::from_serialize(self)
    }

    pub(super) fn keep_calls(&mut self, calls: impl Iterator<Item = OpenCall>) {
        let is_short = |call: &OpenCall| call.id.len() <= MAX_NAME && call.name.len() <= MAX_NAME;
        self.calls = calls.filter(is_short).take(MAX_CALLS).collect();
    }

    pub(super) fn keep_tools(&mut self, names: impl Iterator<Item = String>) {
        self.tools = names.filter(|name| name.len() <= MAX_NAME).take(MAX_TOOLS).collect();
    }
}
