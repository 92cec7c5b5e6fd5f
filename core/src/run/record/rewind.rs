//! Reverts the last events of a record, to show an earlier state of a run: up to the events that a store has committed.
//!
//! Not here: the commits and the visibility of states (the engine).

use super::Record;
use crate::event::Event;
use crate::json::Extra;
use crate::run::state::{Run, Slot, Version};

impl Record {
    /// Reverts all events from index `to` on. The first event, the start of the run, always stays, as do evicted
    /// events.
    ///
    /// The cost is proportional to what is reverted. Values that have no event of their own stay: updates of the turn,
    /// the usage from the end of a message, and the reason why a run was closed between two turns.
    pub fn rewind(&mut self, to: u64) {
        while self.len() > to.max(1) {
            let Some(entry) = self.log.pop() else { return };
            self.size = self.size.saturating_sub(size_of_val(&entry) + undo(&mut self.run, entry.event));
        }

        self.turn_updated_at = self.turn_updated_at.min(self.len());
    }
}

/// Reverts the last event. Returns roughly how many bytes the run shrank by.
fn undo(run: &mut Run, event: Event) -> usize {
    match event {
        Event::RunStarted => {}
        Event::TurnStarted { turn } => run.turns.truncate(turn as usize),
        Event::AnswerStarted { turn } => {
            if let Some(turn) = run.turns.get_mut(turn as usize) {
                turn.answer_started = false;
            }
        }
        Event::MessageStarted { message } => {
            let removed = run
                .messages
                .get(message as usize)
                .map_or(0, |removed| 256 + removed.id.len() + removed.metadata_size());
            run.messages.truncate(message as usize);
            return removed;
        }
        Event::ContentStarted { message, content } => {
            if let Some(message) = run.messages.get_mut(message as usize) {
                message.slots.truncate(content as usize);
            }
            return 160;
        }
        Event::ContentDelta { message, content, span } => {
            let Some(slot) = slot(run, message, content) else { return 0 };
            if let Some(version) = slot.versions.get_mut(span.version as usize) {
                version.text.truncate((span.start as usize).saturating_sub(version.start()));
            }
            remove_empty_version(slot);
            return span.end.saturating_sub(span.start) as usize;
        }
        Event::ContentReplaced { message, content, version } => {
            let Some(slot) = slot(run, message, content) else { return 0 };
            let removed =
                slot.versions.drain(version as usize..).map(|removed| removed.len() + size_of::<Version>()).sum();
            remove_empty_version(slot);
            return removed;
        }
        Event::ContentFinished { message, content } => {
            let Some(slot) = slot(run, message, content) else { return 0 };
            let removed = slot.value.as_ref().map_or(0, |value| super::content_size(value) + value.extra.size());
            let removed = removed + slot.extra.size();
            (slot.value, slot.extra, slot.finished) = (None, Extra::new(), false);
            return removed;
        }
        Event::MessageFinished { message } => {
            if let Some(message) = run.messages.get_mut(message as usize) {
                message.kind = message.announced.clone();
                message.metadata.clone_from(&message.announced_metadata);
                (message.end, message.code, message.message) = (None, None, None);
            }
        }
        Event::TurnFinished { turn, .. } => {
            if let Some(turn) = run.turns.get_mut(turn as usize) {
                (turn.end, turn.error, turn.ended_at, turn.withdrawn) = (None, None, None, false);
                turn.awaits = None;
                // The event of the end stores the cause.
                return turn.cause.take().map_or(0, |cause| cause.size());
            }
        }
        Event::RunFinished { .. } => (run.end, run.finished_at) = (None, None),
    }
    0
}

fn slot(run: &mut Run, message: u32, content: u32) -> Option<&mut Slot> {
    run.messages.get_mut(message as usize)?.slots.get_mut(content as usize)
}

/// Removes the empty first version: a slot without text has no versions.
fn remove_empty_version(slot: &mut Slot) {
    if let [version] = &slot.versions[..]
        && version.len() == 0
        && version.initial == 0
    {
        slot.versions.clear();
    }
}
