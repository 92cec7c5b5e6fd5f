//! Frees the memory of events that a store has while no client reads them, and restores them.
//!
//! Eviction covers events and the texts that they added to messages and reasoning. All other data stays: it is small,
//! or the pending items of the run are derived from it. Not here: the choice of events, and their readers (the engine).

use std::collections::HashMap;

use super::Record;
use crate::event::Event;
use crate::model::{ContentType, MessageType};
use crate::run::evicted::EvictedText;
use crate::run::state::{Message, Slot, Version};

impl Record {
    /// Evicts the first `to` events. A store must contain them, for [`Record::restore`].
    ///
    /// The record can still grow, be rewound to events that are not evicted, and be written from there on.
    pub fn evict(&mut self, to: u64) {
        let Ok(count) = usize::try_from(to.min(self.len()).saturating_sub(self.evicted)) else { return };

        // Each text is cut once, however many events added to it.
        let mut ends: HashMap<(u32, u32, u32), usize> = HashMap::new();
        for entry in &self.log[..count] {
            match entry.event {
                Event::ContentDelta { message, content, span } => {
                    ends.insert((message, content, span.version), span.end as usize);
                }
                Event::ContentReplaced { message, content, version } => {
                    let slot = evictable(&mut self.run.messages, message, content);
                    let initial = slot.and_then(|slot| Some(slot.versions.get(version as usize)?.initial));
                    ends.insert((message, content, version), initial.unwrap_or(0));
                }
                _ => {}
            }
        }

        for ((message, content, version), end) in ends {
            if let Some(slot) = evictable(&mut self.run.messages, message, content) {
                evict_text(slot, version, end);
            }
        }

        self.log.drain(..count);
        self.log.shrink_to_fit();
        self.evicted += count as u64;
    }

    /// The number of evicted events: earlier events cannot be read or written.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// True if nothing is evicted.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.evicted == 0
    }

    /// Restores evicted events and texts from another record of the same run. False: the other record lacks some of
    /// them, and this one is unchanged.
    pub fn restore(&mut self, from: &Self) -> bool {
        if self.is_whole() {
            return true;
        }
        let Ok(count) = usize::try_from(self.evicted) else { return false };
        if !from.is_whole() || from.log.len() < count || !self.texts_are_in(from) {
            return false;
        }

        self.log.splice(..0, from.log[..count].iter().copied());
        self.evicted = 0;
        for (message, other) in self.run.messages.iter_mut().zip(&from.run.messages) {
            for (slot, other) in message.slots.iter_mut().zip(&other.slots) {
                for (version, other) in slot.versions.iter_mut().zip(&other.versions) {
                    if let Some(evicted) = version.evicted.take() {
                        version.text.insert_str(0, &other.text[..evicted.len]);
                    }
                }
            }
        }
        true
    }

    /// True if every evicted text is in the other record.
    fn texts_are_in(&self, other: &Self) -> bool {
        let text_of = |message: usize, slot: usize, version: usize| {
            Some(other.run.messages.get(message)?.slots.get(slot)?.versions.get(version)?.text.as_str())
        };
        let is_there = |message: usize, slot: usize, number: usize, version: &Version| {
            version.evicted.as_ref().is_none_or(|evicted| {
                text_of(message, slot, number).is_some_and(|text| evicted.rest_of(text).is_some())
            })
        };

        self.run.messages.iter().enumerate().all(|(message, state)| {
            state.slots.iter().enumerate().all(|(index, slot)| {
                let mut versions = slot.versions.iter().enumerate();
                versions.all(|(number, version)| is_there(message, index, number, version))
            })
        })
    }
}

/// The content if its text may be evicted: pending items are derived from all others.
fn evictable(messages: &mut [Message], message: u32, content: u32) -> Option<&mut Slot> {
    let message = messages.get_mut(message as usize)?;
    if !matches!(message.announced, MessageType::Message | MessageType::Reasoning) {
        return None;
    }
    let slot = message.slots.get_mut(content as usize)?;
    (slot.call.is_none() && slot.kind == ContentType::Text).then_some(slot)
}

/// Evicts a version of a text up to a position in the whole text, in bytes.
fn evict_text(slot: &mut Slot, version: u32, to: usize) {
    let Some(version) = slot.versions.get_mut(version as usize) else { return };
    let Some(count) = to.checked_sub(version.start()).filter(|count| *count > 0) else { return };
    let Some(text) = version.text.get(..count) else { return };

    let mut evicted = version.evicted.take().unwrap_or_default();
    EvictedText::push(&mut evicted, text);
    version.evicted = Some(evicted);
    version.text.drain(..count);
    version.text.shrink_to_fit();
}
