//! Finds a message of a final output among those that were emitted, even under another id: some servers change the id
//! of a message at the end.
//!
//! Messages are found by a digest of their contents, so that the time is proportional to the size of the output.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::agent_event::{ContentEvent, MessageEvent};
use crate::json::Json;
use crate::model::{Body, Content, ContentType, ToolCall};
use crate::run::{Message, Record, Slot, text_hash};

/// Maximum number of messages with one digest, and of contents of one message, that are compared. Usually the first one
/// matches.
const MAX_COMPARED: usize = 16;

/// The finished messages by their contents.
#[derive(Debug, Default)]
pub(super) struct FinishedMessages {
    /// Indexes of finished messages without a digest yet.
    unindexed: Vec<u32>,
    by_digest: HashMap<u64, Vec<u32>>,
}

/// The state of comparing one output with the emitted messages.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Indexes of messages that are in the output under their own id, or were found.
    pub(super) taken: HashSet<u32>,
    /// Number of messages of a digest that are taken, from the first one on.
    passed: HashMap<u64, usize>,
}

impl FinishedMessages {
    /// Adds a finished message of the record.
    pub(super) fn finished(&mut self, message: u32) {
        self.unindexed.push(message);
    }

    /// The index of the first finished message with these contents that is not taken.
    pub(super) fn find(
        &mut self,
        record: &Record,
        event: &MessageEvent<'_>,
        comparison: &mut Comparison,
    ) -> Option<u32> {
        let parts: Vec<Content> = event.contents.iter().map(ContentEvent::to_content).collect();
        if parts.is_empty() {
            return None;
        }
        for message in std::mem::take(&mut self.unindexed) {
            let digest = digest(record.run().messages[message as usize].slots.iter().map(of_slot));
            self.by_digest.entry(digest).or_default().push(message);
        }
        let digest = digest(parts.iter().map(|part| of_body(&part.body)));
        let candidates = self.by_digest.get(&digest)?;
        let passed = comparison.passed.entry(digest).or_default();
        while candidates.get(*passed).is_some_and(|candidate| comparison.taken.contains(candidate)) {
            *passed += 1;
        }
        let mut rest = candidates[*passed..].iter().take(MAX_COMPARED);
        let found = rest.find(|&&candidate| {
            !comparison.taken.contains(&candidate) && says(&record.run().messages[candidate as usize], event, &parts)
        });
        found.copied()
    }
}

/// True if a message, which may still be open, has the contents of the event.
pub(super) fn is_same(emitted: &Message, event: &MessageEvent<'_>) -> bool {
    let parts: Vec<Content> = event.contents.iter().map(ContentEvent::to_content).collect();
    !parts.is_empty() && says(emitted, event, &parts)
}

/// Contents may have been emitted in another order: those without an end are emitted last.
fn says(emitted: &Message, event: &MessageEvent<'_>, parts: &[Content]) -> bool {
    let is_call = emitted.kind.is_call();
    if event.kind.as_ref().is_some_and(|kind| *kind != emitted.kind) || parts.len() != emitted.slots.len() {
        return false;
    }
    let same = |part: &Content, had: &Slot| match (&part.body, had.data()) {
        (Body::Data(said), Some(had)) if is_call => same_call(said, had),
        (said, _) => is_content(had, said),
    };
    let mut had: Vec<&Slot> = emitted.slots.iter().collect();
    parts.iter().all(|part| {
        let found = had.iter().take(MAX_COMPARED).position(|had| same(part, had));
        found.map(|place| had.remove(place)).is_some()
    })
}

fn same_call(said: &Json, had: &Json) -> bool {
    said == had || (said.is_object() && said.decode::<ToolCall>() == had.decode())
}

/// True if two values are equal, whatever the order of keys in data.
pub(super) fn same_body(said: &Body, had: &Body) -> bool {
    match (said, had) {
        (Body::Data(said), Body::Data(had)) => {
            said == had || said.decode::<Value>().is_some_and(|said| Some(said) == had.decode())
        }
        (said, had) => said == had,
    }
}

/// True if a content of the record, part of whose text may be evicted, has this value.
pub(super) fn is_content(had: &Slot, body: &Body) -> bool {
    match (body, had.value.is_none() && had.call.is_none()) {
        (Body::Text(text), true) if had.kind == ContentType::Text => had.rest_of(text) == Some(""),
        _ => same_body(&had.content().body, body),
    }
}

/// Equal for equal contents in any order.
fn digest(contents: impl Iterator<Item = u64>) -> u64 {
    contents.fold(0, u64::wrapping_add)
}

/// Like [`of_body`], for a content whose text may be partly evicted.
fn of_slot(slot: &Slot) -> u64 {
    if slot.kind == ContentType::Text && slot.value.is_none() && slot.call.is_none() {
        of_text(&slot.kind, slot.text_hash())
    } else {
        of_body(&slot.content().body)
    }
}

fn of_text(kind: &ContentType, text_hash: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (kind, text_hash).hash(&mut hasher);
    hasher.finish()
}

/// Equal for equal values.
pub(super) fn of_body(body: &Body) -> u64 {
    if let Body::Text(text) = body {
        return of_text(&ContentType::Text, text_hash(text));
    }

    let mut hasher = DefaultHasher::new();
    body.kind().hash(&mut hasher);
    match body {
        Body::Text(text) | Body::Refusal(text) => text.hash(&mut hasher),
        Body::Image(url) | Body::Video(url) => url.hash(&mut hasher),
        Body::Audio { data, format } => (data, format).hash(&mut hasher),
        Body::File(file) => (&file.url, &file.id, &file.name, &file.data).hash(&mut hasher),
        Body::Data(data) => match data.decode::<ToolCall>().filter(|call| !call.name.is_empty()) {
            // Arguments may be text or an object.
            Some(call) => (call.call_id, call.name, call.arguments).hash(&mut hasher),
            None => data.decode::<Value>().map(|value| of_value(&value)).hash(&mut hasher),
        },
        Body::Other(_) => {}
    }
    hasher.finish()
}

/// The order of an object's keys does not count.
fn of_value(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    match value {
        Value::Array(items) => items.iter().for_each(|item| of_value(item).hash(&mut hasher)),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                let mut hasher = DefaultHasher::new();
                (name, of_value(value)).hash(&mut hasher);
                hasher.finish()
            });
            fields.fold(0_u64, u64::wrapping_add).hash(&mut hasher);
        }
        scalar => scalar.to_string().hash(&mut hasher),
    }
    hasher.finish()
}
