//! Limits of events that the model cannot express ([`MessageType::ProtocolEvent`]): states can be large and frequent,
//! and no run should fail because of them.
//!
//! An event beyond the limits is dropped as a whole and recorded as a loss; the run continues. Not here: the selection
//! of events that a connector passes on.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::agent_event::{ContentEvent, ContentValue};
use crate::loss::{ContentKind, Losses};
use crate::model::{Body, MessageType};
use crate::run::{Record, content_size};

/// The largest event that is kept, in bytes.
const MAX_EVENT: usize = 256 << 10;
/// The limit of a record, divided by this, may be spent on such events.
const DIVISOR: usize = 4;

/// Maximum number of dropped messages that are remembered, so that the loss of each counts once.
const MAX_DROPPED: usize = 1024;

/// The number and bytes of such events in a run, and the dropped ones.
#[derive(Debug)]
pub(super) struct ProtocolEvents {
    /// The maximum of all such events of a run, in bytes.
    most: usize,
    /// The bytes in the run. `None`: not counted yet.
    used: Option<usize>,
    /// The bytes of each event that has not ended, by the index of its message in the turn.
    open: HashMap<usize, usize>,
    /// Hashes of the ids of messages that were dropped as a whole: a response repeats them at its end.
    dropped: HashSet<u64>,
    pub(super) losses: Losses,
}

impl ProtocolEvents {
    /// `limit`: the maximum size of the record, in bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { most: limit / DIVISOR, used: None, open: HashMap::new(), dropped: HashSet::new(), losses: Losses::new() }
    }

    /// Counts bytes of an event. `more`: `bytes` is a further part; otherwise it is the size of the whole event so far.
    /// Returns whether they fit.
    pub(super) fn admit(&mut self, record: &Record, message: Option<usize>, bytes: usize, more: bool) -> bool {
        let used = *self.used.get_or_insert_with(|| earlier(record));
        let known = message.and_then(|message| self.open.get(&message)).copied().unwrap_or(0);
        let whole = if more { known.saturating_add(bytes) } else { known.max(bytes) };
        let others = used.saturating_sub(known);
        let is_too_large = whole > MAX_EVENT;
        if is_too_large || others.saturating_add(whole) > self.most {
            let how = if is_too_large { "it is too large to be kept" } else { "the run has too many of them" };
            self.losses.lost(ContentKind::ProtocolEvent, how);
            return false;
        }

        self.used = Some(others + whole);
        if let Some(message) = message {
            self.open.insert(message, whole);
        }
        true
    }

    /// Records that a message was dropped as a whole.
    pub(super) fn note_dropped(&mut self, id: &str) {
        if self.dropped.len() < MAX_DROPPED {
            self.dropped.insert(hash(id));
        }
    }

    /// True if a message was dropped as a whole.
    pub(super) fn was_dropped(&self, id: &str) -> bool {
        !self.dropped.is_empty() && self.dropped.contains(&hash(id))
    }

    /// Removes a dropped event that had not ended from the count.
    pub(super) fn forget(&mut self, message: usize) {
        if let (Some(used), Some(bytes)) = (&mut self.used, self.open.remove(&message)) {
            *used = used.saturating_sub(bytes);
        }
    }
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

/// The bytes of such events in earlier turns of the run.
fn earlier(record: &Record) -> usize {
    let events = record.run().messages.iter().filter(|message| message.kind == MessageType::ProtocolEvent);
    events.flat_map(|message| &message.slots).filter_map(|slot| slot.value.as_ref()).map(content_size).sum()
}

/// The bytes of a content.
pub(super) fn size(event: &ContentEvent<'_>) -> usize {
    match &event.value {
        ContentValue::Data(data) => data.map_or(0, |data| data.get().len()),
        ContentValue::OwnedData(data) => data.text().len(),
        _ => match event.to_content().body {
            Body::Other(_) => 0,
            _ => content_size(&event.to_content()),
        },
    }
}
