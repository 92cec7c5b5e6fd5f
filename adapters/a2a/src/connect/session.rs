//! The stored state of a session: the context, the waiting task, and the part of that task that was read.

use interlingua_core::Json;
use serde::{Deserialize, Serialize};

use super::slots::Slot;
use crate::dialect::Generation;

/// Artifacts of a waiting task that are remembered. Those before them would be repeated.
const MAX_ARTIFACTS: usize = 64;
/// Contents of an artifact, likewise.
const MAX_SLOTS: usize = 64;
/// The longest id that is stored, in bytes.
const MAX_ID: usize = 512;

/// The stored state for a session and user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionState {
    /// The agent's context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context_id: Option<String>,
    /// The task that waits for the next message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) task_id: Option<String>,
    /// The last task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_task_id: Option<String>,
    /// The version that the agent understands, where the card says another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// The number of questions of the waiting task that had no id.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) questions: u32,
    /// The long-running calls that the waiting task wants the outputs of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<AskedCall>,
    /// The status message that the waiting task ended with last, as a digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status_message: Option<u64>,
    /// The read part of the waiting task's artifacts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) artifacts: Vec<(String, Vec<Slot>)>,
}

/// A long-running call that a task will wait for.
pub(super) struct LongCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// Prefix of the names in its metadata.
    pub(super) prefix: String,
}

/// A long-running call, stored until its output is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AskedCall {
    pub(super) id: String,
    pub(super) name: String,
    /// Prefix of the names in its metadata.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) prefix: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl SessionState {
    /// The stored state. If it cannot be read, the session starts without state.
    pub(super) fn read(stored: &Json) -> Self {
        stored.decode().unwrap_or_default()
    }

    pub(super) fn to_json(&self) -> Json {
        Json::from_serialize(self)
    }

    /// The version that was learned.
    pub(super) fn generation(&self) -> Option<Generation> {
        [Generation::V1, Generation::V03].into_iter().find(|known| Some(known.as_str()) == self.version.as_deref())
    }

    /// Nothing waits any more.
    pub(super) fn forget_task(&mut self) {
        self.task_id = None;
        self.questions = 0;
        self.status_message = None;
        self.calls.clear();
        self.artifacts.clear();
    }

    /// Stores the state needed to continue a waiting task.
    pub(super) fn keep_artifacts<'a>(&mut self, artifacts: impl DoubleEndedIterator<Item = (&'a str, &'a [Slot])>) {
        let kept = artifacts.rev().filter(|(id, slots)| id.len() <= MAX_ID && slots.len() <= MAX_SLOTS);
        self.artifacts = kept.take(MAX_ARTIFACTS).map(|(id, slots)| (id.to_owned(), slots.to_vec())).collect();
        self.artifacts.reverse();
    }
}

/// An id that may be stored and sent back. Others are as good as none.
pub(super) fn storable(id: &str) -> Option<String> {
    (!id.is_empty() && id.len() <= MAX_ID && !id.contains(char::is_control)).then(|| id.to_owned())
}
