//! Telling overlapping messages one after the other, for protocols whose clients cannot keep two open messages apart
//! (native strict writer, rule 13.3; AG-Kit, section 9).
//!
//! Not here: closing what the upstream left open. The record does that, so whatever is held is told in the end.

use std::collections::BTreeMap;

use crate::event::{Event, Millis, Step};

/// Puts the steps of a run in an order in which one message is open at a time.
///
/// The message that began first is told as it comes. What happens in others meanwhile is held, as places and not as
/// values, and told when it has ended: in the order in which the messages began, each in its own order. The times of
/// the steps stay what they were, so they may go back.
///
/// Where messages do not overlap nothing is held, and nothing is allocated.
#[derive(Debug, Default)]
pub struct MessageSequencer {
    open: Option<u32>,
    /// By message, and so in the order of their beginning: places in a run are given out in that order.
    held: BTreeMap<u32, Vec<Held>>,
}

/// A step without the run: that is handed in anew with every step.
#[derive(Clone, Copy, Debug)]
struct Held {
    sequence: u64,
    at: Millis,
    event: Event,
}

impl Held {
    const fn of(step: &Step<'_>) -> Self {
        Self { sequence: step.sequence, at: step.at, event: step.event }
    }

    const fn within<'a>(self, step: &Step<'a>) -> Step<'a> {
        Step { sequence: self.sequence, at: self.at, event: self.event, run: step.run }
    }

    const fn ends_message(self) -> bool {
        matches!(self.event, Event::MessageFinished { .. })
    }
}

impl MessageSequencer {
    /// An order in which nothing was told yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True if something was fed that is not told yet.
    #[must_use]
    pub fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes the next step of a run and tells none, one or several.
    #[inline]
    pub fn push<'a>(&mut self, step: Step<'a>, mut tell: impl FnMut(Step<'a>)) {
        let Some(message) = message_of(step.event) else {
            // Invariant of the record: no message is open where a turn or run begins or ends. Should one be, it goes
            // first all the same, since nothing comes after the end of a run.
            self.release_all(&step, &mut tell);
            return tell(step);
        };
        if self.open.is_some_and(|open| open != message) {
            self.held.entry(message).or_default().push(Held::of(&step));
            return;
        }
        self.open = Some(message);
        let ends = Held::of(&step).ends_message();
        tell(step);
        if ends {
            self.open = None;
            self.release(&step, &mut tell);
        }
    }

    /// Tells held messages up to and including the first that has not ended, which is then the open one.
    fn release<'a>(&mut self, step: &Step<'a>, tell: &mut impl FnMut(Step<'a>)) {
        while self.open.is_none()
            && let Some((message, held)) = self.held.pop_first()
        {
            let ended = held.last().is_some_and(|last| last.ends_message());
            held.into_iter().for_each(|held| tell(held.within(step)));
            if !ended {
                self.open = Some(message);
            }
        }
    }

    fn release_all<'a>(&mut self, step: &Step<'a>, tell: &mut impl FnMut(Step<'a>)) {
        self.open = None;
        while !self.held.is_empty() {
            self.release(step, tell);
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
    use crate::event::End;
    use crate::id::RunId;
    use crate::json::Extra;
    use crate::model::{ContentType, MessageType, Role};
    use crate::run::{Announced, MessageEnd, Record, Run};

    fn started() -> Record {
        let mut record = Record::new(Run::new(RunId(Uuid::from_u128(1)), "a", "s", 0));
        record.start_turn(Vec::new());
        record
    }

    fn begin(record: &mut Record) -> (u32, u32) {
        let message = record.start_message(Announced::new("", MessageType::Message, Role::Assistant));
        (message, record.start_content(message, ContentType::Text, None))
    }

    fn finish(record: &mut Record, message: u32, content: u32) {
        record.finish_content(message, content, None, Extra::new());
        record.finish_message(message, MessageEnd::new(End::Completed));
    }

    /// A record in which messages overlap as the choices have it.
    fn overlapping(choices: &[u8]) -> Record {
        let mut record = started();
        let mut open: Vec<(u32, u32)> = Vec::new();
        for choice in choices {
            let place = usize::from(choice / 4) % open.len().max(1);
            match choice % 4 {
                0 => open.push(begin(&mut record)),
                1 | 2 if !open.is_empty() => record.push(open[place].0, open[place].1, "x"),
                3 if !open.is_empty() => {
                    let (message, content) = open.remove(place);
                    finish(&mut record, message, content);
                }
                _ => {}
            }
        }
        record.cut(End::Completed, None);
        record
    }

    fn told(record: &Record) -> Vec<Step<'_>> {
        let mut order = MessageSequencer::new();
        let mut told = Vec::new();
        for step in record.steps(0) {
            order.push(step, |step| told.push(step));
        }
        assert!(!order.has_held());
        told
    }

    #[test]
    fn messages_that_do_not_overlap_are_told_as_they_come() {
        let mut record = started();
        for _ in 0..2 {
            let (message, content) = begin(&mut record);
            record.push(message, content, "x");
            finish(&mut record, message, content);
        }
        record.cut(End::Completed, None);
        let told: Vec<u64> = told(&record).iter().map(|step| step.sequence).collect();
        assert_eq!(told, (0..record.len()).collect::<Vec<_>>());
    }

    #[test]
    fn the_rest_of_a_held_message_is_told_as_it_comes() {
        let mut record = started();
        let first = begin(&mut record);
        let second = begin(&mut record);
        record.push(second.0, second.1, "held");
        finish(&mut record, first.0, first.1);
        let from = record.len();
        let mut order = MessageSequencer::new();
        let mut count = 0;
        record.steps(0).for_each(|step| order.push(step, |_| count += 1));
        assert_eq!(count, from, "all that was held is told when the first message has ended");
        record.push(second.0, second.1, "live");
        record.steps(from).for_each(|step| order.push(step, |step| assert_eq!(step.delta(), "live")));
    }

    proptest! {
        #[test]
        fn one_message_is_open_at_a_time_and_nothing_is_lost(choices in prop::collection::vec(any::<u8>(), 0..200)) {
            let record = overlapping(&choices);
            let told = told(&record);

            let mut sequences: Vec<u64> = told.iter().map(|step| step.sequence).collect();
            sequences.sort_unstable();
            prop_assert_eq!(sequences, (0..record.len()).collect::<Vec<_>>(), "each step once");

            let (mut open, mut begun) = (None, Vec::new());
            let mut last = BTreeMap::new();
            for step in &told {
                let Some(message) = message_of(step.event) else {
                    prop_assert!(open.is_none(), "turns and runs begin and end between messages");
                    continue;
                };
                prop_assert!(last.insert(message, step.sequence) < Some(step.sequence), "in the message's own order");
                match step.event {
                    Event::MessageStarted { .. } => {
                        prop_assert_eq!(open.replace(message), None);
                        begun.push(message);
                    }
                    Event::MessageFinished { .. } => prop_assert_eq!(open.take(), Some(message)),
                    _ => prop_assert_eq!(open, Some(message)),
                }
            }
            prop_assert!(begun.is_sorted(), "in the order of their beginning");
            let is_end = matches!(told.last().map(|step| step.event), Some(Event::RunFinished { .. }));
            prop_assert!(is_end, "the end of the run comes last");
        }
    }
}
