//! Writing a record's lines. The line of a delta is what this is about: nearly all lines are one, and a store writes
//! them all. Not here: reading them back ([`super::read`]).

use serde::Serialize;

use super::message::{Content, Maybe, Message};
use super::{NAME, VERSION};
use crate::event::{End, Event, Step};
use crate::json::Extra;
use crate::run::{Record, RunError, Turn};

/// Appends the lines of all events from a place on. To continue what was written before, `from` is the record's
/// length at that time.
pub fn write(record: &Record, from: u64, out: &mut Vec<u8>) {
    let created_at = record.run().created_at;
    for step in record.steps(from) {
        line(step, created_at, out);
    }
    // Notes are no events: the latest state of them goes with whatever is written next, until the turn's end has it.
    if record.in_turn()
        && record.noted() >= from
        && let Some(turn) = record.run().turn()
        && (turn.upstream_id.is_some() || turn.usage.is_some() || !turn.extra.is_empty())
    {
        let mut line = Line::begin(out, "note");
        line.facts(turn);
        line.end();
    }
}

fn line(step: Step<'_>, created_at: u64, out: &mut Vec<u8>) {
    let run = step.run;
    let after = step.at.saturating_sub(created_at);
    match step.event {
        Event::ContentDelta { message, content, .. } => {
            // By hand: this is the hot one.
            out.extend_from_slice(b"[\"d\",");
            number(out, after);
            out.push(b',');
            number(out, message.into());
            out.push(b',');
            number(out, content.into());
            out.push(b',');
            text(out, step.delta());
            out.extend_from_slice(b"]\n");
        }
        Event::RunStarted => {
            let mut line = Line::begin(out, NAME);
            line.add(&VERSION);
            line.add(&run.id);
            line.add(&run.agent);
            line.add(&run.session_id);
            line.add(&run.created_at);
            line.end();
        }
        // The times of turns and of the run's end are taken from where they are kept whole: a step's time stops
        // counting after 49 days, and a run may wait for longer.
        Event::TurnStarted { turn } => {
            let turn = &run.turns[turn as usize];
            let input: Vec<_> = turn.input.iter().map(Message).collect();
            let mut line = Line::begin(out, "turn");
            line.add(&turn.started_at.saturating_sub(created_at));
            line.add(&input);
            if let Some(other) = &turn.answered_by {
                line.add(other);
            }
            line.end();
        }
        Event::AnswerStarted { .. } => {
            let mut line = Line::begin(out, "answer");
            line.add(&after);
            line.end();
        }
        Event::MessageStarted { message } => {
            let message = &run.messages[message as usize];
            let mut line = Line::begin(out, "message");
            line.add(&after);
            line.add(&message.id);
            line.add(&message.announced);
            line.add(&message.role);
            line.add(&Maybe(message.announced_metadata.as_ref()));
            // Perhaps further than the announcement: then the message's end, which is written too, says the same.
            line.add(&Maybe(message.usage.as_ref()));
            line.add(&message.extra);
            line.end();
        }
        Event::ContentStarted { message, content } => {
            let slot = &run.messages[message as usize].slots[content as usize];
            let call = slot.call.as_ref().map(|call| (&call.call_id, &call.name, &call.server_label));
            let mut line = Line::begin(out, "content");
            line.add(&after);
            line.add(&message);
            line.add(&slot.kind);
            line.add(&call);
            line.end();
        }
        Event::ContentReplaced { message, content, .. } => {
            let mut line = Line::begin(out, "replaced");
            line.add(&after);
            line.add(&message);
            line.add(&content);
            line.add(step.delta());
            line.end();
        }
        Event::ContentFinished { message, content } => {
            let slot = &run.messages[message as usize].slots[content as usize];
            let mut line = Line::begin(out, "content_end");
            line.add(&after);
            line.add(&message);
            line.add(&content);
            line.add(&slot.value.as_ref().map(Content));
            line.add(&slot.extra);
            line.end();
        }
        Event::MessageFinished { message: at } => {
            let message = &run.messages[at as usize];
            let mut line = Line::begin(out, "message_end");
            line.add(&after);
            line.add(&at);
            line.add(message.end.unwrap_or(End::Completed).as_str());
            line.add(&message.kind);
            line.add(&message.code);
            line.add(&message.message);
            line.add(&Maybe(message.usage.as_ref()));
            line.add(&Maybe(message.metadata.as_ref()));
            line.add(&message.extra);
            line.end();
        }
        Event::TurnFinished { turn, end } => {
            let turn = &run.turns[turn as usize];
            let mut line = Line::begin(out, "turn_end");
            line.add(&turn.ended_at.map_or(after, |at| at.saturating_sub(created_at)));
            line.add(end.as_str());
            line.add(&error(turn.error.as_ref()));
            line.facts(turn);
            if turn.withdrawn {
                line.add(&true);
            }
            line.end();
        }
        Event::RunFinished { end } => {
            let mut line = Line::begin(out, "end");
            line.add(&run.finished_at.map_or(after, |at| at.saturating_sub(created_at)));
            line.add(end.as_str());
            // A run that is cut while it waits puts its error on the turn that had ended before.
            line.add(&error(run.error()));
            line.end();
        }
    }
}

fn error(error: Option<&RunError>) -> Option<(&str, &str)> {
    error.map(|error| (error.code.as_str(), error.message.as_str()))
}

/// A line being written.
struct Line<'a>(&'a mut Vec<u8>);

impl<'a> Line<'a> {
    fn begin(out: &'a mut Vec<u8>, tag: &str) -> Self {
        out.push(b'[');
        text(out, tag);
        Self(out)
    }

    fn add<T: Serialize + ?Sized>(&mut self, value: &T) {
        self.0.push(b',');
        json(self.0, value);
    }

    fn facts(&mut self, turn: &Turn) {
        self.add(&turn.upstream_id);
        self.add(&Maybe(turn.usage.as_ref()));
        self.add::<Extra>(&turn.extra);
    }

    fn end(self) {
        self.0.extend_from_slice(b"]\n");
    }
}

fn number(out: &mut Vec<u8>, number: u64) {
    json(out, &number);
}

/// serde_json copies whole runs of characters that need no escape, straight into the buffer.
fn text(out: &mut Vec<u8>, text: &str) {
    json(out, text);
}

fn json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok(), "the model serialises, and a vector takes every byte");
}
