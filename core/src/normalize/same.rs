//! Finding a message of a final output among those that were told, though it came under another id. Servers that give a
//! message another id in the end are still talking about the same one.
//!
//! Messages are found by what they hold, through a digest, so that an output of many messages costs what reading it
//! costs.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::agent_event::{ContentEvent, MessageEvent};
use crate::json::Json;
use crate::model::{Body, Content, ToolCall};
use crate::run::{Message, Record, Slot};

/// Messages with one digest, and contents of one message, that are looked at: nearly always it is the first one.
const MAX_COMPARED: usize = 16;

/// What finished messages hold.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Places of messages that were finished and not looked at yet.
    fresh: Vec<u32>,
    by_digest: HashMap<u64, Vec<u32>>,
}

/// One output being compared with what was told.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Places of messages that are in the output under their own id, or were found.
    pub(super) spoken_for: HashSet<u32>,
    /// How many messages of a digest are spoken for, from the first one on.
    passed: HashMap<u64, usize>,
}

impl Told {
    /// A message of the record was finished.
    pub(super) fn finished(&mut self, message: u32) {
        self.fresh.push(message);
    }

    /// The place of the first finished message that says what is heard and is not spoken for.
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
        for message in std::mem::take(&mut self.fresh) {
            let digest = digest(record.run().messages[message as usize].slots.iter().map(Slot::content));
            self.by_digest.entry(digest).or_default().push(message);
        }
        let digest = digest(parts.iter().cloned());
        let candidates = self.by_digest.get(&digest)?;
        let passed = comparison.passed.entry(digest).or_default();
        while candidates.get(*passed).is_some_and(|candidate| comparison.spoken_for.contains(candidate)) {
            *passed += 1;
        }
        let mut rest = candidates[*passed..].iter().take(MAX_COMPARED);
        let found = rest.find(|&&candidate| {
            !comparison.spoken_for.contains(&candidate)
                && says(&record.run().messages[candidate as usize], event, &parts)
        });
        found.copied()
    }
}

/// True if a message that may still be open says what is heard.
pub(super) fn says_the_same(told: &Message, event: &MessageEvent<'_>) -> bool {
    let parts: Vec<Content> = event.contents.iter().map(ContentEvent::to_content).collect();
    !parts.is_empty() && says(told, event, &parts)
}

/// Contents may have been told in another order than they stand in: what nobody completed is told last.
fn says(told: &Message, event: &MessageEvent<'_>, parts: &[Content]) -> bool {
    let is_call = told.kind.is_call();
    if event.kind.as_ref().is_some_and(|kind| *kind != told.kind) || parts.len() != told.slots.len() {
        return false;
    }
    let same = |part: &Content, had: &Content| match (&part.body, &had.body) {
        (Body::Data(said), Body::Data(had)) if is_call => same_call(said, had),
        (said, had) => same_body(said, had),
    };
    let mut had: Vec<Content> = told.slots.iter().map(Slot::content).collect();
    parts.iter().all(|part| {
        let found = had.iter().take(MAX_COMPARED).position(|had| same(part, had));
        found.map(|place| had.remove(place)).is_some()
    })
}

fn same_call(said: &Json, had: &Json) -> bool {
    said == had || (said.is_object() && said.decode::<ToolCall>() == had.decode())
}

/// True if two values say the same.
pub(super) fn same_body(said: &Body, had: &Body) -> bool {
    match (said, had) {
        (Body::Data(said), Body::Data(had)) => {
            said == had || said.decode::<Value>().is_some_and(|said| Some(said) == had.decode())
        }
        (said, had) => said == had,
    }
}

/// The same for contents that say the same, in any order.
fn digest(contents: impl Iterator<Item = Content>) -> u64 {
    contents.map(|content| of_body(&content.body)).fold(0, u64::wrapping_add)
}

/// The same for values that say the same.
pub(super) fn of_body(body: &Body) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.kind().hash(&mut hasher);
    match body {
        Body::Text(text) | Body::Refusal(text) => text.hash(&mut hasher),
        Body::Image(url) | Body::Video(url) => url.hash(&mut hasher),
        Body::Audio { data, format } => (data, format).hash(&mut hasher),
        Body::File(file) => (&file.url, &file.id, &file.name, &file.data).hash(&mut hasher),
        Body::Data(data) => match data.decode::<ToolCall>().filter(|call| !call.name.is_empty()) {
            // Arguments may be spelled as text or as an object.
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
