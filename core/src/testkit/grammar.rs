//! The grammar of [`crate::event`] as a checker: what must hold of every record, whatever the upstream did.
//!
//! Not here: whether what was told is what was said ([`super::laws`] and the normalizer's own tests).

use std::collections::HashSet;

use crate::event::{Event, Span, Step};
use crate::model::{ContentType, ToolCall};
use crate::run::{Message, Record, Slot};

/// Checks a record, finished or not, by its events and by what they left behind. Holds for a record if
///
/// - events come in the order of the grammar, and nothing after [`Event::RunFinished`];
/// - sequence numbers have no gaps, time never goes back;
/// - places are counted up, ids are unique in the run and never empty;
/// - spans are not empty, lie one behind the other on whole characters, and add up to the content's text;
/// - texts are told of texts, refusals and arguments only, and all else has a value in the end;
/// - data of messages announced as calls, and nothing else, have a call's head, which the final value repeats;
/// - ends say what the run says.
///
/// # Errors
/// What is broken, and where.
pub fn grammar(record: &Record) -> Result<(), String> {
    let mut checker = Checker::default();
    for step in record.steps(0) {
        checker.step(&step).map_err(|broken| format!("step {}: {broken} ({:?})", step.sequence, step.event))?;
    }
    checker.rest(record)
}

#[derive(Default)]
struct Checker<'a> {
    at: u64,
    next: u64,
    begun: bool,
    over: bool,
    turns: u32,
    in_turn: bool,
    answered: bool,
    messages: Vec<Followed>,
    open: usize,
    ids: HashSet<&'a str>,
}

/// A message as far as the events have told it.
#[derive(Default)]
struct Followed {
    contents: u32,
    open: Option<Text>,
    finished: bool,
}

/// The text of an open content.
#[derive(Default)]
struct Text {
    version: u32,
    text: String,
}

fn check(holds: bool, broken: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken.to_owned()) }
}

impl<'a> Checker<'a> {
    fn step(&mut self, step: &Step<'a>) -> Result<(), String> {
        check(step.sequence == self.next, "sequence numbers have a gap")?;
        check(step.at >= self.at, "time goes back")?;
        check(!self.over, "something comes after the end")?;
        (self.next, self.at) = (step.sequence + 1, step.at);
        if step.event == Event::RunStarted {
            check(!self.begun, "the run begins twice")?;
            self.begun = true;
            return Ok(());
        }
        check(self.begun, "something comes before the beginning")?;
        match step.event {
            Event::RunStarted => Ok(()),
            Event::TurnStarted { turn } => {
                check(!self.in_turn, "turns overlap")?;
                check(turn == self.turns, "turns are not counted up")?;
                self.turns += 1;
                self.in_turn = true;
                self.answered = false;
                Ok(())
            }
            Event::AnswerStarted { turn } => {
                check(self.in_turn && turn + 1 == self.turns, "an answer to a turn that is not under way")?;
                check(!self.answered, "an answer begins twice")?;
                let first = step.run.turns[turn as usize].first_message;
                check(self.messages.len() == first, "an answer begins after its first message")?;
                self.answered = true;
                Ok(())
            }
            Event::TurnFinished { turn, end } => {
                check(self.in_turn && turn + 1 == self.turns, "a turn ends that is not under way")?;
                check(self.open == 0, "a turn ends before its messages")?;
                let told = &step.run.turns[turn as usize];
                check(told.end == Some(end), "the turn ended otherwise")?;
                check(told.answer_started == self.answered, "the turn began otherwise")?;
                check(!told.withdrawn || !told.answer_started, "a turn was withdrawn that had begun")?;
                self.in_turn = false;
                Ok(())
            }
            Event::RunFinished { end } => {
                check(!self.in_turn, "the run ends before its turn")?;
                check(self.turns > 0 && step.run.end == Some(end), "the run ended otherwise")?;
                self.over = true;
                Ok(())
            }
            _ => self.within_turn(step),
        }
    }

    fn within_turn(&mut self, step: &Step<'a>) -> Result<(), String> {
        check(self.in_turn, "a message outside of a turn")?;
        let (index, told) = step.message().ok_or("a message that is not in the run")?;
        if let Event::MessageStarted { .. } = step.event {
            check(index == self.messages.len(), "messages are not counted up")?;
            check(!told.id.is_empty(), "a message without an id")?;
            check(self.ids.insert(&told.id), "an id for the second time")?;
            self.messages.push(Followed::default());
            self.open += 1;
            return Ok(());
        }
        let followed = self.messages.get_mut(index).ok_or("a message that has not begun")?;
        check(!followed.finished, "a message goes on after its end")?;
        if let Event::MessageFinished { .. } = step.event {
            check(followed.open.is_none(), "a message ends before its content")?;
            check(followed.contents as usize == told.slots.len(), "a message holds more than was told")?;
            check(told.end.is_some(), "a message has no end")?;
            followed.finished = true;
            self.open -= 1;
            return Ok(());
        }
        let (place, slot) = step.slot().ok_or("a content that is not in the run")?;
        followed.content(step, told, place, slot)
    }

    fn rest(&self, record: &Record) -> Result<(), String> {
        let run = record.run();
        check(self.begun, "the run never began")?;
        check(self.next == record.len(), "the record is longer than its steps")?;
        check(self.over == run.end.is_some(), "the run has an end that was not told")?;
        check(self.over == run.finished_at.is_some(), "the run has an end without a time")?;
        check(self.turns as usize == run.turns.len(), "the run has turns that were not told")?;
        check(self.messages.len() == run.messages.len(), "the run has messages that were not told")?;
        for (followed, told) in self.messages.iter().zip(&run.messages) {
            check(followed.finished == told.end.is_some(), "a message has an end that was not told")?;
            check(followed.contents as usize == told.slots.len(), "a message has contents that were not told")?;
            if let Some(open) = &followed.open {
                let slot = told.slots.last().ok_or("a content that is not in the run")?;
                check(!slot.finished && slot.text() == open.text, "an open content says something else")?;
            }
        }
        Ok(())
    }
}

impl Followed {
    fn content(&mut self, step: &Step<'_>, told: &Message, place: usize, slot: &Slot) -> Result<(), String> {
        let is_text = slot.call.is_some() || matches!(slot.kind, ContentType::Text | ContentType::Refusal);
        if let Event::ContentStarted { .. } = step.event {
            check(self.open.is_none(), "contents of one message overlap")?;
            check(place == self.contents as usize, "contents are not counted up")?;
            let holds_call = told.announced.is_call() && slot.kind == ContentType::Data;
            check(slot.call.is_none() || holds_call, "a call's head where no call is")?;
            check(slot.call.is_some() || !holds_call, "a call without a head")?;
            check(slot.call.as_ref().is_none_or(|head| !head.call_id.is_empty()), "a call without an id")?;
            self.contents += 1;
            self.open = Some(Text::default());
            return Ok(());
        }
        check(place + 1 == self.contents as usize, "a content that is over, or not begun")?;
        let text = self.open.as_mut().ok_or("a content goes on after its end")?;
        match step.event {
            Event::ContentDelta { span: Span { version, start, end }, .. } => {
                check(is_text, "a fragment of what is no text")?;
                check(version == text.version, "a fragment of another version")?;
                check(start as usize == text.text.len() && start < end, "a fragment that is empty, or not the next")?;
                check(step.delta().len() == (end - start) as usize, "a fragment cut within a character")?;
                text.text.push_str(step.delta());
            }
            Event::ContentReplaced { version, .. } => {
                check(is_text, "another text for what is no text")?;
                check(version == text.version + 1, "versions are not counted up")?;
                *text = Text { version, text: step.delta().to_owned() };
            }
            _ => {
                check(slot.finished, "a content ends that is not final")?;
                check(slot.text() == text.text, "a content says something else in the end")?;
                check(is_text || slot.value.is_some(), "a content without a value")?;
                let value = slot.content();
                check(value.body.kind() == slot.kind, "a content has the value of another type")?;
                if let Some(head) = &slot.call {
                    let call: ToolCall = value.as_data().and_then(crate::Json::decode).ok_or("a call without data")?;
                    let same = call.call_id == head.call_id && call.name == head.name && call.arguments == text.text;
                    check(same, "a call's data says something else")?;
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
    use crate::event::End;
    use crate::model::{Body, Content, MessageType, Role};
    use crate::run::{MessageEnd, MessageStart};
    use crate::testkit::begun;
    use crate::{Extra, Json};

    #[test]
    fn a_record_that_keeps_the_grammar_passes() {
        let mut record = begun();
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
    fn what_breaks_the_grammar_is_named() {
        let mut record = begun();
        for _ in 0..2 {
            let message = record.start_message(MessageStart::new("a", MessageType::Message, Role::Assistant));
            record.finish_message(message, MessageEnd::new(End::Completed));
        }
        let broken = grammar(&record).expect_err("one id twice");
        assert!(broken.contains("an id for the second time"), "{broken}");

        let mut record = begun();
        let message = record.start_message(MessageStart::new("a", MessageType::Message, Role::Assistant));
        let content = record.start_content(message, ContentType::Image, None);
        record.finish_content(message, content, None, Extra::new());
        assert!(grammar(&record).expect_err("no value").contains("a content without a value"));

        let mut record = begun();
        let message = record.start_message(MessageStart::new("a", MessageType::PluginCall, Role::Assistant));
        let content = record.start_content(message, ContentType::Data, None);
        let value = Some(Content::new(Body::Data(Json::null())));
        record.finish_content(message, content, value, Extra::new());
        assert!(grammar(&record).expect_err("a bare call").contains("a call without a head"));
    }
}
