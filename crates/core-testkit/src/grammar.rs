//! A checker for the grammar of [`interlingua_core::event`]: the rules that every record follows, whatever the upstream
//! sent.
//!
//! Not here: whether the events match the agent's answer ([`super::laws`] and the normalizer's own tests).

use std::collections::HashSet;

use interlingua_core::event::{Event, Span};
use interlingua_core::model::{ContentType, ToolCall};
use interlingua_core::run::{Message, Record, Slot};
use interlingua_core::step::Step;

/// Checks the events and the final state of a record, finished or not. The rules:
///
/// - events follow the order of the grammar, and nothing follows [`Event::RunFinished`];
/// - sequence numbers have no gaps, and time never goes back;
/// - indexes count up from 0, message ids are unique in the run and not empty;
/// - spans are contiguous, not empty, do not split characters, and add up to the content's text;
/// - only texts, refusals and arguments have deltas; all other contents have a value at the end;
/// - exactly the data contents of messages announced as calls have a call head, and the final value repeats it;
/// - the ends in the events are the ends in the run.
///
/// # Errors
/// The broken rule, with the step that breaks it.
pub fn grammar(record: &Record) -> Result<(), String> {
    let mut checker = Checker::default();
    for step in record.steps(0) {
        checker.step(&step).map_err(|broken| format!("step {}: {broken} ({:?})", step.sequence, step.event))?;
    }
    checker.check_run(record)
}

/// Checks that a record has ended by the grammar: each turn has one end, and the end of the run is the last event.
///
/// # Errors
/// The broken rule.
pub fn ended(record: &Record) -> Result<(), String> {
    grammar(record)?;
    let count = |is_wanted: fn(&Event) -> bool| record.steps(0).filter(|step| is_wanted(&step.event)).count();
    let turns = record.run().turns.len();
    check(count(|event| matches!(event, Event::TurnFinished { .. })) == turns, "a turn without one end")?;
    check(count(|event| matches!(event, Event::RunFinished { .. })) == 1, "the run has not one end")?;
    let last = record.steps(record.len().saturating_sub(1)).next().map(|step| step.event);
    check(matches!(last, Some(Event::RunFinished { .. })), "an event after the end of the run")
}

#[derive(Default)]
struct Checker<'a> {
    /// The time of the last step, in Unix milliseconds.
    time: u64,
    next_sequence: u64,
    started: bool,
    finished: bool,
    turns: u32,
    in_turn: bool,
    answer_started: bool,
    messages: Vec<MessageState>,
    open_messages: usize,
    ids: HashSet<&'a str>,
}

/// A message, from its events.
#[derive(Default)]
struct MessageState {
    contents: u32,
    open: Option<OpenContent>,
    finished: bool,
}

/// The open content of a message.
#[derive(Default)]
struct OpenContent {
    version: u32,
    text: String,
}

fn check(holds: bool, violation: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(violation.to_owned()) }
}

impl<'a> Checker<'a> {
    fn step(&mut self, step: &Step<'a>) -> Result<(), String> {
        check(step.sequence == self.next_sequence, "sequence numbers have a gap")?;
        check(step.at >= self.time, "time goes back")?;
        check(!self.finished, "an event after the end of the run")?;
        (self.next_sequence, self.time) = (step.sequence + 1, step.at);

        if step.event == Event::RunStarted {
            check(!self.started, "the run starts twice")?;
            self.started = true;
            return Ok(());
        }
        check(self.started, "an event before the start of the run")?;

        match step.event {
            Event::RunStarted => Ok(()),
            Event::TurnStarted { turn } => {
                check(!self.in_turn, "turns overlap")?;
                check(turn == self.turns, "turns are not numbered consecutively")?;
                self.turns += 1;
                self.in_turn = true;
                self.answer_started = false;
                Ok(())
            }
            Event::AnswerStarted { turn } => {
                check(self.in_turn && turn + 1 == self.turns, "an answer to a turn that is not the current one")?;
                check(!self.answer_started, "an answer starts twice")?;
                let first = step.run.turns[turn as usize].first_message;
                check(self.messages.len() == first, "an answer starts after its first message")?;
                self.answer_started = true;
                Ok(())
            }
            Event::TurnFinished { turn, end } => {
                check(self.in_turn && turn + 1 == self.turns, "the end of a turn that is not the current one")?;
                check(self.open_messages == 0, "a turn ends before its messages")?;
                let actual = &step.run.turns[turn as usize];
                check(actual.end == Some(end), "the event and the turn have different ends")?;
                check(
                    actual.answer_started == self.answer_started,
                    "the events and the turn disagree about the start of the answer",
                )?;
                check(
                    !actual.withdrawn || !actual.answer_started,
                    "a turn was withdrawn after its answer had started",
                )?;
                self.in_turn = false;
                Ok(())
            }
            Event::RunFinished { end } => {
                check(!self.in_turn, "the run ends before its turn")?;
                check(self.turns > 0 && step.run.end == Some(end), "the event and the run have different ends")?;
                self.finished = true;
                Ok(())
            }
            _ => self.within_turn(step),
        }
    }

    fn within_turn(&mut self, step: &Step<'a>) -> Result<(), String> {
        check(self.in_turn, "a message outside a turn")?;
        let (index, actual) = step.message().ok_or("a message that is not in the run")?;
        if let Event::MessageStarted { .. } = step.event {
            check(index == self.messages.len(), "messages are not numbered consecutively")?;
            check(!actual.id.is_empty(), "a message without an id")?;
            check(self.ids.insert(&actual.id), "a message id is used twice")?;
            self.messages.push(MessageState::default());
            self.open_messages += 1;
            return Ok(());
        }

        let state = self.messages.get_mut(index).ok_or("a message that has not started")?;
        check(!state.finished, "an event of a message after its end")?;
        if let Event::MessageFinished { .. } = step.event {
            check(state.open.is_none(), "a message ends before its content")?;
            check(state.contents as usize == actual.slots.len(), "a message has more contents than were emitted")?;
            check(actual.end.is_some(), "a message has no end")?;
            state.finished = true;
            self.open_messages -= 1;
            return Ok(());
        }

        let (index, slot) = step.slot().ok_or("a content that is not in the run")?;
        state.content(step, actual, index, slot)
    }

    fn check_run(&self, record: &Record) -> Result<(), String> {
        let run = record.run();
        check(self.started, "the run never started")?;
        check(self.next_sequence == record.len(), "the record is longer than its steps")?;
        check(self.finished == run.end.is_some(), "the run has an end that was not emitted")?;
        check(self.finished == run.finished_at.is_some(), "the run has an end without a time")?;
        check(self.turns as usize == run.turns.len(), "the run has turns that were not emitted")?;
        check(self.messages.len() == run.messages.len(), "the run has messages that were not emitted")?;

        for (state, actual) in self.messages.iter().zip(&run.messages) {
            check(state.finished == actual.end.is_some(), "a message has an end that was not emitted")?;
            check(state.contents as usize == actual.slots.len(), "a message has contents that were not emitted")?;
            if let Some(open) = &state.open {
                let slot = actual.slots.last().ok_or("a content that is not in the run")?;
                check(!slot.finished && slot.text() == open.text, "an open content has another text")?;
            }
        }
        Ok(())
    }
}

impl MessageState {
    fn content(&mut self, step: &Step<'_>, actual: &Message, index: usize, slot: &Slot) -> Result<(), String> {
        let is_text = slot.call.is_some() || matches!(slot.kind, ContentType::Text | ContentType::Refusal);

        if let Event::ContentStarted { .. } = step.event {
            check(self.open.is_none(), "contents of one message overlap")?;
            check(index == self.contents as usize, "contents are not numbered consecutively")?;
            let holds_call = actual.announced.is_call() && slot.kind == ContentType::Data;
            check(slot.call.is_none() || holds_call, "a call head in a content that is not a call")?;
            check(slot.call.is_some() || !holds_call, "a call without a call head")?;
            check(slot.call.as_ref().is_none_or(|head| !head.call_id.is_empty()), "a call without an id")?;
            self.contents += 1;
            self.open = Some(OpenContent::default());
            return Ok(());
        }

        check(index + 1 == self.contents as usize, "a content that has ended or not started")?;
        let open = self.open.as_mut().ok_or("an event of a content after its end")?;
        match step.event {
            Event::ContentDelta { span: Span { version, start, end }, .. } => {
                check(is_text, "a delta of a content without text")?;
                check(version == open.version, "a delta of another version")?;
                check(start as usize == open.text.len() && start < end, "a delta that is empty or not contiguous")?;
                check(step.delta().len() == (end - start) as usize, "a delta that splits a character")?;
                open.text.push_str(step.delta());
            }
            Event::ContentReplaced { version, .. } => {
                check(is_text, "a replacement of a content without text")?;
                check(version == open.version + 1, "versions are not numbered consecutively")?;
                *open = OpenContent { version, text: step.delta().to_owned() };
            }
            _ => {
                check(slot.finished, "the end of a content that is not finished")?;
                check(slot.text() == open.text, "a content has another text at its end")?;
                check(is_text || slot.value.is_some(), "a content without a value")?;
                let value = slot.content();
                check(value.body.kind() == slot.kind, "a content has the value of another type")?;
                if let Some(head) = &slot.call {
                    let call: ToolCall =
                        value.as_data().and_then(interlingua_core::Json::decode).ok_or("a call without data")?;
                    let same = call.call_id == head.call_id && call.name == head.name && call.arguments == open.text;
                    check(same, "the data of a call contradicts its call head")?;
                }
                self.open = None;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::started;
    use interlingua_core::event::End;
    use interlingua_core::model::{Body, Content, MessageType, Role};
    use interlingua_core::run::{MessageEnd, MessageStart};
    use interlingua_core::{Extra, Json};

    #[test]
    fn a_record_that_follows_the_grammar_passes() {
        let mut record = started();
        let message = record.start_message(MessageStart::new("a", MessageType::Message, Role::Assistant));
        assert_eq!(grammar(&record), Ok(()));

        let content = record.start_content(message, ContentType::Text, None);
        record.push(message, content, "é");
        record.replace(message, content, "");
        record.push(message, content, "e");
        assert_eq!(grammar(&record), Ok(()));

        record.finish_content(message, content, None, Extra::new());
        record.finish_message(message, MessageEnd::new(End::Completed));
        record.close(End::Completed, None);
        assert_eq!(grammar(&record), Ok(()));
    }

    #[test]
    fn a_record_without_an_end_has_not_ended() {
        let mut record = started();
        assert!(ended(&record).expect_err("a turn").contains("a turn without one end"));
        record.finish_turn(End::Completed, None);
        assert!(ended(&record).expect_err("a pause").contains("the run has not one end"));
        record.finish_run(End::Completed);
        assert_eq!(ended(&record), Ok(()));
    }

    #[test]
    fn a_violation_of_the_grammar_is_named() {
        let mut record = started();
        for _ in 0..2 {
            let message = record.start_message(MessageStart::new("a", MessageType::Message, Role::Assistant));
            record.finish_message(message, MessageEnd::new(End::Completed));
        }
        let violation = grammar(&record).expect_err("one id twice");
        assert!(violation.contains("a message id is used twice"), "{violation}");

        let mut record = started();
        let message = record.start_message(MessageStart::new("a", MessageType::Message, Role::Assistant));
        let content = record.start_content(message, ContentType::Image, None);
        record.finish_content(message, content, None, Extra::new());
        assert!(grammar(&record).expect_err("no value").contains("a content without a value"));

        let mut record = started();
        let message = record.start_message(MessageStart::new("a", MessageType::PluginCall, Role::Assistant));
        let content = record.start_content(message, ContentType::Data, None);
        let value = Some(Content::new(Body::Data(Json::null())));
        record.finish_content(message, content, value, Extra::new());
        assert!(grammar(&record).expect_err("no call head").contains("a call without a call head"));
    }
}
