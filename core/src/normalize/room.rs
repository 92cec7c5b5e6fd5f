//! Drops events that exceed the limits for events without a type in the model ([`MessageType::ProtocolEvent`]), before
//! they reach the record.
//!
//! Not here: the limits ([`super::protocol_events`]).

use super::Normalizer;
use super::protocol_events::size;
use super::slots::Slots;
use crate::agent_event::{ContentEvent, ContentUpdate, MessageEvent};
use crate::event::End;
use crate::loss::Loss;
use crate::model::MessageType;
use crate::run::{MessageEnd, Record};

impl Normalizer {
    /// The content of the answer that exceeds the limits of the record.
    #[must_use]
    pub fn losses(&self) -> &[Loss] {
        self.protocol_events.losses.as_slice()
    }

    /// False for the message of an event that exceeds the limits: the event is dropped then.
    pub(super) fn reserve_message(&mut self, record: &mut Record, event: &MessageEvent<'_>) -> bool {
        let id = event.id.as_deref().filter(|id| !id.is_empty());
        let latest = id.and_then(|id| self.by_id.get(id).copied());
        let (is_one, is_over) = latest.map_or((false, false), |index| {
            let state = &self.messages[index];
            (state.kind == MessageType::ProtocolEvent, state.finished)
        });
        // The end of a finished message repeats its contents.
        if (event.kind != Some(MessageType::ProtocolEvent) && !is_one) || (is_over && event.end.is_some()) {
            return true;
        }
        let known = latest.filter(|_| !is_over);

        if known.is_none() && id.is_some_and(|id| self.protocol_events.was_dropped(id)) {
            return false;
        }

        // A content may have arrived before the type of its message.
        let held = known.map_or(0, |index| self.messages[index].slots.held());
        let bytes = event.contents.iter().map(size).sum::<usize>().max(held);
        if self.protocol_events.admit(record, known, bytes, false) {
            return true;
        }
        match known {
            Some(index) => self.drop_event(record, index),
            // More of it may come, and is dropped too.
            None if event.end.is_none() => {
                let index = self.open(event);
                self.drop_event(record, index);
            }
            None => id.into_iter().for_each(|id| self.protocol_events.note_dropped(id)),
        }
        self.begun = true;
        false
    }

    /// False for a content of an event that exceeds the limits: the event is dropped then.
    pub(super) fn reserve_content(&mut self, record: &mut Record, event: &ContentEvent<'_>) -> bool {
        let known = match event.message.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => self.by_id.get(id).copied(),
            None => self.current,
        };
        let is_one = |index: &usize| {
            let state = &self.messages[*index];
            state.kind == MessageType::ProtocolEvent && !state.finished
        };
        let Some(index) = known.filter(is_one) else { return true };
        if self.protocol_events.admit(record, Some(index), size(event), event.update == ContentUpdate::Append) {
            return true;
        }
        self.drop_event(record, index);
        false
    }

    /// Ends the message of a dropped event. Contents that are in the record already stay.
    fn drop_event(&mut self, record: &mut Record, index: usize) {
        self.protocol_events.forget(index);
        if self.stash == Some(index) {
            self.stash = None;
        }
        if self.messages[index].at.is_some() {
            return self.finish_message(record, index, MessageEnd::new(End::Incomplete));
        }
        let state = &mut self.messages[index];
        self.held = self.held.saturating_sub(state.slots.held());
        state.slots = Slots::default();
        state.finished = true;
    }
}
