//! Serializes overlapping messages, for protocols whose clients cannot distinguish two open messages
//! (docs/protocols/agent-api.md#writer-3, docs/protocols/ag-kit.md#from-the-agent-to-the-client).
//!
//! Not here: closing messages that the upstream left open. The record does that, so every held step is emitted in the
//! end.

use std::collections::BTreeMap;

use interlingua_core::event::{Event, Millis};
use interlingua_core::step::Step;

/// Reorders the steps of a run so that only one message is open at a time.
///
/// The message that started first is emitted as it arrives. Steps of other messages are held, as indexes and not as
/// values, until it has ended. Then they follow in the order in which the messages started, each in its own order.
/// Steps keep their times, so times may go back.
///
/// If messages do not overlap, nothing is held and nothing is allocated.
#[derive(Debug, Default)]
pub struct MessageSequencer {
    open: Option<u32>,
    /// Held steps by message index, and so in the order in which the messages started.
    held: BTreeMap<u32, Vec<HeldStep>>,
}

/// A step without the run, which comes with the next step.
#[derive(Clone, Copy, Debug)]
struct HeldStep {
    sequence: u64,
    at: Millis,
    event: Event,
}

impl HeldStep {
    const fn from_step(step: &Step<'_>) -> Self {
        Self { sequence: step.sequence, at: step.at, event: step.event }
    }

    const fn to_step<'a>(self, step: &Step<'a>) -> Step<'a> {
        Step { sequence: self.sequence, at: self.at, event: self.event, run: step.run }
    }

    const fn ends_message(self) -> bool {
        matches!(self.event, Event::MessageFinished { .. })
    }
}

impl MessageSequencer {
    /// A sequencer for a run from its first step on.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True while steps are held.
    #[must_use]
    pub fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Processes the next step and emits any number of steps.
    #[inline]
    pub fn push<'a>(&mut self, step: Step<'a>, mut emit: impl FnMut(Step<'a>)) {
        let Some(message) = message_of(step.event) else {
            // Invariant of the record: no message is open when a turn or a run starts or ends. Release held steps
            // anyway, because nothing may follow the end of a run.
            self.release_all(&step, &mut emit);
            return emit(step);
        };

        if self.open.is_some_and(|open| open != message) {
            self.held.entry(message).or_default().push(HeldStep::from_step(&step));
            return;
        }

        self.open = Some(message);
        let ends = HeldStep::from_step(&step).ends_message();
        emit(step);
        if ends {
            self.open = None;
            self.release(&step, &mut emit);
        }
    }

    /// Emits held messages up to and including the first that has not ended, which then is the open one.
    fn release<'a>(&mut self, step: &Step<'a>, emit: &mut impl FnMut(Step<'a>)) {
        while self.open.is_none()
            && let Some((message, held)) = self.held.pop_first()
        {
            let ended = held.last().is_some_and(|last| last.ends_message());
            held.into_iter().for_each(|held| emit(held.to_step(step)));
            if !ended {
                self.open = Some(message);
            }
        }
    }

    fn release_all<'a>(&mut self, step: &Step<'a>, emit: &mut impl FnMut(Step<'a>)) {
        self.open = None;
        while !self.held.is_empty() {
            self.release(step, emit);
            self.open = None;
        }
    }
}

const fn message_of(event: Event) -> Option<u32> {
    match event {
        Event::MessageStarted { message }
        | Event::ContentStarted { message, .. }
        | Event::ContentDelta { message, .. }
        | Event::ContentReplaced { message, .. }
        | Event::ContentFinished { message, .. }
        | Event::MessageFinished { message } => Some(message),
        Event::RunStarted
        | Event::TurnStarted { .. }
        | Event::AnswerStarted { .. }
        | Event::TurnFinished { .. }
        | Event::RunFinished { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use interlingua_core::event::End;
    use interlingua_core::id::RunId;
    use interlingua_core::json::Extra;
    use interlingua_core::model::{ContentType, MessageType, Role};
    use interlingua_core::run::{MessageEnd, MessageStart, Record, Run};

    fn new_record() -> Record {
        let mut record = Record::new(Run::new(RunId(Uuid::from_u128(1)), "a", "s", 0));
        record.start_turn(Vec::new());
        record
    }

    fn start(record: &mut Record) -> (u32, u32) {
        let message = record.start_message(MessageStart::new("", MessageType::Message, Role::Assistant));
        (message, record.start_content(message, ContentType::Text, None))
    }

    fn finish(record: &mut Record, message: u32, content: u32) {
        record.finish_content(message, content, None, Extra::new());
        record.finish_message(message, MessageEnd::new(End::Completed));
    }

    /// A record with overlapping messages, as determined by `choices`.
    fn overlapping(choices: &[u8]) -> Record {
        let mut record = new_record();
        let mut open: Vec<(u32, u32)> = Vec::new();
        for choice in choices {
            let index = usize::from(choice / 4) % open.len().max(1);
            match choice % 4 {
                0 => open.push(start(&mut record)),
                1 | 2 if !open.is_empty() => record.push(open[index].0, open[index].1, "x"),
                3 if !open.is_empty() => {
                    let (message, content) = open.remove(index);
                    finish(&mut record, message, content);
                }
                _ => {}
            }
        }

        record.close(End::Completed, None);
        record
    }

    fn sequence(record: &Record) -> Vec<Step<'_>> {
        let mut sequencer = MessageSequencer::new();
        let mut emitted = Vec::new();
        for step in record.steps(0) {
            sequencer.push(step, |step| emitted.push(step));
        }
        assert!(!sequencer.has_held());
        emitted
    }

    #[test]
    fn messages_that_do_not_overlap_are_emitted_as_they_arrive() {
        let mut record = new_record();
        for _ in 0..2 {
            let (message, content) = start(&mut record);
            record.push(message, content, "x");
            finish(&mut record, message, content);
        }
        record.close(End::Completed, None);
        let emitted: Vec<u64> = sequence(&record).iter().map(|step| step.sequence).collect();
        assert_eq!(emitted, (0..record.len()).collect::<Vec<_>>());
    }

    #[test]
    fn the_rest_of_a_held_message_is_emitted_as_it_arrives() {
        let mut record = new_record();
        let first = start(&mut record);
        let second = start(&mut record);
        record.push(second.0, second.1, "held");
        finish(&mut record, first.0, first.1);

        let from = record.len();
        let mut sequencer = MessageSequencer::new();
        let mut count = 0;
        record.steps(0).for_each(|step| sequencer.push(step, |_| count += 1));
        assert_eq!(count, from, "held steps are emitted when the first message has ended");
        record.push(second.0, second.1, "live");
        record.steps(from).for_each(|step| sequencer.push(step, |step| assert_eq!(step.delta(), "live")));
    }

    proptest! {
        #[test]
        fn one_message_is_open_at_a_time_and_nothing_is_lost(choices in prop::collection::vec(any::<u8>(), 0..200)) {
            let record = overlapping(&choices);
            let emitted = sequence(&record);

            let mut sequences: Vec<u64> = emitted.iter().map(|step| step.sequence).collect();
            sequences.sort_unstable();
            prop_assert_eq!(sequences, (0..record.len()).collect::<Vec<_>>(), "each step exactly once");

            let (mut open, mut started) = (None, Vec::new());
            let mut last = BTreeMap::new();
            for step in &emitted {
                let Some(message) = message_of(step.event) else {
                    prop_assert!(open.is_none(), "turns and runs start and end between messages");
                    continue;
                };
                prop_assert!(last.insert(message, step.sequence) < Some(step.sequence), "in the message's order");
                match step.event {
                    Event::MessageStarted { .. } => {
                        prop_assert_eq!(open.replace(message), None);
                        started.push(message);
                    }
                    Event::MessageFinished { .. } => prop_assert_eq!(open.take(), Some(message)),
                    _ => prop_assert_eq!(open, Some(message)),
                }
            }
            prop_assert!(started.is_sorted(), "in the order of their start");
            let is_end = matches!(emitted.last().map(|step| step.event), Some(Event::RunFinished { .. }));
            prop_assert!(is_end, "the end of the run comes last");
        }
    }
}
