//! One entry of a session (a turn of a run, or a message that a client put there), the list of all entries at one moment,
//! and the replacement of all entries.
//!
//! A replacement is made at the end of a turn, before the turn is added: a branch gets the entries of the session that it
//! branches off, and runs that end with their connection are replaced by their messages. The new entries are read from
//! the store, so clients may add and remove messages meanwhile.
//!
//! Not here: reading and writing entries ([`super::entries`]), and the content of a turn (its run).

use std::collections::{BTreeMap, BTreeSet};
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
        /// The index of the turn in the run.
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
    /// True for the same message: clients may give several messages the same id.
    fn is_same_message(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Message { id, message }, Self::Message { id: other_id, message: other }) => {
                id == other_id && message == other
            }
            _ => false,
        }
    }

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

/// The extent of the entries of a session at one moment. Compared with a later one, it shows whether items were added
/// or removed in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownEntries {
    /// The index after the last entry.
    pub(crate) end: u64,
    /// The number of removals of items that this process knows of.
    pub(crate) removals: u64,
}

/// The entries of a session at one moment.
pub(crate) struct EntryList {
    pub(super) indices: Range<u64>,
    /// The number of removals of items that this process knows of.
    pub(super) removals: u64,
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

    pub(crate) const fn known(&self) -> KnownEntries {
        KnownEntries { end: self.indices.end, removals: self.removals }
    }

    /// True if the agent has received none of the entries.
    pub(crate) const fn is_unseen(&self) -> bool {
        self.seen <= self.indices.start
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

/// The entries that replace those of a session.
pub(crate) struct Replacement {
    pub(crate) entries: Vec<Entry>,
    /// Messages that clients have added to a branch before its first turn has ended. The agent has not received them.
    pub(crate) added: Vec<Entry>,
    /// True if the session branches off another one.
    pub(crate) is_branch: bool,
}

impl Replacement {
    /// Adds a message that a client has added, unless a message of the replacement is the same one.
    pub(crate) fn add(&mut self, message: Entry) {
        let mut known = self.entries.iter().chain(&self.added);
        if !known.any(|entry| entry.is_same_message(&message)) {
            self.added.push(message);
        }
    }
}

/// Changes of clients since a replacement is prepared.
#[derive(Clone, Debug)]
pub(super) struct LateChanges {
    /// The index after the entries that are replaced.
    from: u64,
    /// Later entries that were written meanwhile.
    written: BTreeMap<u64, Entry>,
    /// The ids of messages that were removed meanwhile.
    removed: BTreeSet<String>,
    /// True if another replica has added entries or removed items meanwhile: the replacement lacks these changes.
    pub(super) is_outdated: bool,
}

impl LateChanges {
    /// `from`: the index after the entries that are replaced.
    pub(super) const fn new(from: u64) -> Self {
        Self { from, written: BTreeMap::new(), removed: BTreeSet::new(), is_outdated: false }
    }

    pub(super) fn note_written(&mut self, index: u64, entry: Entry) {
        if index >= self.from {
            self.written.insert(index, entry);
        }
    }

    pub(super) fn note_removed(&mut self, index: u64, id: &str) {
        self.written.remove(&index);
        self.removed.insert(id.to_owned());
    }

    /// Repeats the changes in a replacement. `unsaved`: the entries of the session that are not written yet.
    pub(super) fn repeat_in(mut self, replacement: &mut Replacement, unsaved: &BTreeMap<u64, Entry>) {
        let is_left = |entry: &Entry| !self.removed.contains(entry.message_id());
        replacement.entries.retain(is_left);
        replacement.added.retain(is_left);
        self.written.extend(unsaved.range(self.from..).map(|(index, entry)| (*index, entry.clone())));
        self.written.into_values().for_each(|entry| replacement.add(entry));
    }
}

/// A stored session or entry that is not what it should be.
pub(super) fn unreadable(error: serde_json::Error) -> Fault {
    Fault::new(FaultKind::Internal, "the stored session cannot be read").with_detail(error)
}
