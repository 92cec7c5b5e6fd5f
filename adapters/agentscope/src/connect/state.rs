//! The stored state of a session: the service's session, and the reply that waits.

use interlingua_adapter_kit::call_ids::CallIds;
use interlingua_core::Json;
use serde::{Deserialize, Serialize};

use super::wire::Usage;

/// The longest id that is stored, in bytes.
const MAX_ID: usize = 512;

/// The stored state for a session and user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionState {
    /// The service's session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    /// The reply that was read last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reply: Option<String>,
    /// The part of the reply that was read, if the reply waits for answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waiting: Option<WaitingReply>,
    /// Ids of all calls: models without ids of their own number their calls again in each answer.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) call_ids: CallIds,
}

fn is_default(call_ids: &CallIds) -> bool {
    *call_ids == CallIds::default()
}

/// A reply that waits for answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct WaitingReply {
    /// The number of emitted blocks of the reply.
    pub(super) blocks: usize,
    /// The token usage of these blocks.
    pub(super) usage: Usage,
    /// The event with the question. The stream begins with it when the reply continues.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) event: String,
}

impl SessionState {
    /// The stored state. If it cannot be read, the session starts without state.
    pub(super) fn read(stored: &Json) -> Self {
        stored.decode().unwrap_or_default()
    }

    pub(super) fn to_json(&self) -> Json {
        Json::from_serialize(self)
    }
}

/// An id that may be stored and sent back. Others are as good as none.
pub(super) fn storable(id: &str) -> Option<String> {
    (!id.is_empty() && id.len() <= MAX_ID && !id.contains(char::is_control)).then(|| id.to_owned())
}
