//! One entry of a session: a turn of a run, or a message that a client put there.
//!
//! Not here: reading and writing entries ([`super::entries`]), and the content of a turn (its run).

use std::collections::BTreeMap;
use std::ops::Range;

use interlingua_core::model::Message;
use interlingua_core::tree::Node;
use interlingua_core::{Fault, FaultKind, Json, RunId};
use serde::{Deserialize, Serialize};

use interlingua_base::clock;

/// The number of entries that are read at once. Small, because clients can add large messages.
pub(super) const WINDOW: u64 = 16;

/// One entry of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entry {
    /// A turn of a run: its input and the agent's answer.
    Turn {
        /// The run.
        run: RunId,
        /// Which of its turns.
        turn: u32,
    },
    /// A message that a client put there.
    #[serde(rename = "said")]
    Message {
        /// Its id.
        id: String,
        /// The message.
        message: Json,
    },
}

impl Entry {
    /// A message as an entry. One without an id gets one.
    pub(crate) fn from_message(message: &Message) -> Self {
        let id = message.id.clone().filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| clock::new_id().to_prefixed("msg_"));
        Self::Message { id, message: Json::from_serialize(message) }
    }

    /// The message, if the entry is one.
    pub(crate) fn to_message(&self) -> Option<Message> {
        let Self::Message { message, .. } = self else { return None };
        Message::parse(&Node::with_path("", message.raw())).ok()
    }

    /// The id of the message; empty for a turn.
    pub(crate) fn message_id(&self) -> &str {
        match self {
            Self::Turn { .. } => "",
            Self::Message { id, .. } => id,
        }
    }

    /// The size of the message in bytes. Turns are counted with their runs.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Turn { .. } => 0,
            Self::Message { message, .. } => message.text().len() as u64,
        }
    }

    /// True for a turn of this run.
    pub(crate) fn is_turn_of(&self, id: RunId) -> bool {
        matches!(self, Self::Turn { run, .. } if *run == id)
    }
}

/// The entries of a session at one moment.
pub(crate) struct EntryList {
    pub(super) indices: Range<u64>,
    /// The agent has received all entries before this index.
    pub(super) seen: u64,
    pub(super) unsaved: BTreeMap<u64, Entry>,
    /// The run of the last entry, if that is a turn.
    pub(crate) last_run: Option<RunId>,
    /// True if the client said more before the first entry than is stored.
    pub(crate) is_cut: bool,
}

impl EntryList {
    /// True if the session never had an entry.
    pub(crate) const fn is_empty(&self) -> bool {
        self.indices.start == self.indices.end
    }

    /// The index after the last entry.
    pub(crate) const fn end(&self) -> u64 {
        self.indices.end
    }

    /// The indices of the entries that the agent has not received.
    pub(crate) fn unseen(&self) -> Range<u64> {
        let Range { start, end } = self.indices;
        self.seen.clamp(start.min(end), end)..end
    }

    /// The indices of all entries in ranges of at most [`WINDOW`].
    pub(crate) fn windows(&self, newest_first: bool) -> impl Iterator<Item = Range<u64>> + use<> {
        let Range { start: first, end: next } = self.indices;
        (0..next.saturating_sub(first).div_ceil(WINDOW)).map(move |window| {
            if newest_first {
                let end = next - window * WINDOW;
                end.saturating_sub(WINDOW).max(first)..end
            } else {
                let start = first + window * WINDOW;
                start..next.min(start + WINDOW)
            }
        })
    }
}

/// A stored session or entry that is not what it should be.
pub(super) fn unreadable(error: serde_json::Error) -> Fault {
    Fault::new(FaultKind::Internal, "the stored session cannot be read").with_detail(error)
}
