//! Taking back the last events of a record, so that a run can be shown as it was a moment ago: as far as it is safe in
//! a store. Not here: what is safe, and who is shown what (the engine).

use super::Record;
use crate::event::Event;
use crate::json::Extra;
use crate::run::{Run, Slot, Version};

impl Record {
    /// Takes back all events from this place on. The first one, the run's beginning, stays.
    ///
    /// Costs what is taken back. What was said besides the row of events stays as it is: notes of the turn, what the
    /// end of a message said of its cost, and why a run was cut between two turns.
    pub fn rewind(&mut self, to: u64) {
        while self.len() > to.max(1) {
            let Some(entry) = self.log.pop() else { return };
            self.size = self.size.saturating_sub(size_of_val(&entry) + undo(&mut self.run, entry.event));
        }
        self.noted = self.noted.min(self.len());
    }
}

/// Takes one event back, the last one. Answers roughly how much smaller the run is.
fn undo(run: &mut Run, event: Event) -> usize {
    match event {
        Event::RunStarted => {}
        Event::TurnStarted { turn } => run.turns.truncate(turn as usize),
        Event::AnswerStarted { turn } => {
            if let Some(turn) = run.turns.get_mut(turn as usize) {
                turn.begun = false;
            }
        }
        Event::MessageStarted { message } => {
            let gone = run.messages.get(message as usize).map_or(0, |gone| 256 + gone.id.len() + gone.besides());
            run.messages.truncate(message as usize);
            return gone;
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
                version.text.truncate(span.start as usize);
            }
            forget_empty(slot);
            return span.end.saturating_sub(span.start) as usize;
        }
        Event::ContentReplaced { message, content, version } => {
            let Some(slot) = slot(run, message, content) else { return 0 };
            let gone = slot.versions.drain(version as usize..).map(|gone| gone.text.len() + size_of::<Version>()).sum();
            forget_empty(slot);
            return gone;
        }
        Event::ContentFinished { message, content } => {
            let Some(slot) = slot(run, message, content) else { return 0 };
            let gone = slot.value.as_ref().map_or(0, |value| super::weight(value) + value.extra.size());
            let gone = gone + slot.extra.size();
            (slot.value, slot.extra, slot.finished) = (None, Extra::new(), false);
            return gone;
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
            }
        }
        Event::RunFinished { .. } => (run.end, run.finished_at) = (None, None),
    }
    0
}

fn slot(run: &mut Run, message: u32, content: u32) -> Option<&mut Slot> {
    run.messages.get_mut(message as usize)?.slots.get_mut(content as usize)
}

/// A text of which nothing was said is not there.
fn forget_empty(slot: &mut Slot) {
    if let [version] = &slot.versions[..]
        && version.text.is_empty()
        && version.initial == 0
    {
        slot.versions.clear();
    }
}
