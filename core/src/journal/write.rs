//! Writing a record's lines. Optimized for deltas: nearly all lines are deltas, and a store writes all of them.
//!
//! Not here: reading lines ([`super::read`]).

use serde::Serialize;

use super::message::{Content, Message, Optional};
use super::{NAME, VERSION};
use crate::event::{End, Event};
use crate::json::Extra;
use crate::run::{self, Record, Run, RunError, Turn};
use crate::step::Step;

/// Appends the lines of all events from index `from` on to `out`. To continue earlier output, pass [`Record::len`] at
/// that time.
pub fn write(record: &Record, from: u64, out: &mut Vec<u8>) {
    let created_at = record.run().created_at;
    for step in record.steps(from) {
        write_step(step, created_at, out);
    }

    // The turn's own line was written before its input was replaced.
    if from > 0
        && record.in_turn()
        && record.input_set_at() == from
        && let Some(turn) = record.run().turn()
    {
        let input: Vec<_> = turn.input.iter().map(Message).collect();
        let mut line = Line::start(out, "input");
        line.add(&input);
        line.finish();
    }

    // Updates of a turn are not events. The latest values are written each time, until the turn's end contains them.
    if record.in_turn()
        && record.turn_updated_at() >= from
        && let Some(turn) = record.run().turn()
        && (turn.upstream_id.is_some() || turn.usage.is_some() || !turn.extra.is_empty())
    {
        let mut line = Line::start(out, "note");
        line.facts(turn);
        line.finish();
    }
}

fn write_step(step: Step<'_>, created_at: u64, out: &mut Vec<u8>) {
    let run = step.run;
    let after = step.at.saturating_sub(created_at);

    match step.event {
        Event::ContentDelta { message, content, .. } => write_delta(step, after, message, content, out),
        Event::RunStarted => write_run(run, out),
        Event::TurnStarted { turn } => write_turn(&run.turns[turn as usize], created_at, out),
        Event::AnswerStarted { .. } => {
            let mut line = Line::start(out, "answer");
            line.add(&after);
            line.finish();
        }
        Event::MessageStarted { message } => write_message(&run.messages[message as usize], after, out),
        Event::ContentStarted { message, content } => write_content(run, after, message, content, out),
        Event::ContentReplaced { message, content, .. } => {
            let mut line = Line::start(out, "replaced");
            line.add(&after);
            line.add(&message);
            line.add(&content);
            line.add(step.delta());
            line.finish();
        }
        Event::ContentFinished { message, content } => write_content_end(run, after, message, content, out),
        Event::MessageFinished { message } => write_message_end(run, after, message, out),
        Event::TurnFinished { turn, end } => {
            let turn = &run.turns[turn as usize];
            write_turn_end(turn, end, time_of(turn.ended_at, created_at, after), out);
        }
        Event::RunFinished { end } => {
            let mut line = Line::start(out, "end");
            line.add(&time_of(run.finished_at, created_at, after));
            line.add(end.as_str());
            // A run that is closed between two turns stores its error in the last turn.
            line.add(&error(run.error()));
            line.finish();
        }
    }
}

/// Written without [`Line`], because this is the hot path.
#[inline]
fn write_delta(step: Step<'_>, after: u64, message: u32, content: u32, out: &mut Vec<u8>) {
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

fn write_run(run: &Run, out: &mut Vec<u8>) {
    let mut line = Line::start(out, NAME);
    line.add(&VERSION);
    line.add(&run.id);
    line.add(&run.agent);
    line.add(&run.session_id);
    line.add(&run.created_at);
    line.finish();
}

fn write_turn(turn: &Turn, created_at: u64, out: &mut Vec<u8>) {
    let input: Vec<_> = turn.input.iter().map(Message).collect();

    let mut line = Line::start(out, "turn");
    line.add(&turn.started_at.saturating_sub(created_at));
    line.add(&input);
    if let Some(other) = &turn.answered_by {
        line.add(other);
    }
    line.finish();
}

fn write_message(message: &run::Message, after: u64, out: &mut Vec<u8>) {
    let mut line = Line::start(out, "message");
    line.add(&after);
    line.add(&message.id);
    line.add(&message.announced);
    line.add(&message.role);
    line.add(&Optional(message.announced_metadata.as_ref()));
    // The usage may be newer than the event. That is harmless: the message's end, written later, repeats it.
    line.add(&Optional(message.usage.as_ref()));
    line.add(&message.extra);
    line.finish();
}

fn write_content(run: &Run, after: u64, message: u32, content: u32, out: &mut Vec<u8>) {
    let slot = &run.messages[message as usize].slots[content as usize];
    let call = slot.call.as_ref().map(|call| (&call.call_id, &call.name, &call.server_label));

    let mut line = Line::start(out, "content");
    line.add(&after);
    line.add(&message);
    line.add(&slot.kind);
    line.add(&call);
    line.finish();
}

fn write_content_end(run: &Run, after: u64, message: u32, content: u32, out: &mut Vec<u8>) {
    let slot = &run.messages[message as usize].slots[content as usize];

    let mut line = Line::start(out, "content_end");
    line.add(&after);
    line.add(&message);
    line.add(&content);
    line.add(&slot.value.as_ref().map(Content));
    line.add(&slot.extra);
    line.finish();
}

fn write_message_end(run: &Run, after: u64, index: u32, out: &mut Vec<u8>) {
    let message = &run.messages[index as usize];

    let mut line = Line::start(out, "message_end");
    line.add(&after);
    line.add(&index);
    line.add(message.end.unwrap_or(End::Completed).as_str());
    line.add(&message.kind);
    line.add(&message.code);
    line.add(&message.message);
    line.add(&Optional(message.usage.as_ref()));
    line.add(&Optional(message.metadata.as_ref()));
    line.add(&message.extra);
    line.finish();
}

fn write_turn_end(turn: &Turn, end: End, after: u64, out: &mut Vec<u8>) {
    let mut line = Line::start(out, "turn_end");
    line.add(&after);
    line.add(end.as_str());
    line.add(&error(turn.error.as_ref()));
    line.facts(turn);

    if turn.withdrawn || turn.cause.is_some() || turn.awaits.is_some() {
        line.add(&turn.withdrawn);
    }
    if turn.cause.is_some() || turn.awaits.is_some() {
        line.add(&turn.cause);
    }
    if let Some(awaits) = &turn.awaits {
        line.add(awaits);
    }
    line.finish();
}

/// The time of the end of a turn or a run, after the run's start. It comes from the run: the time of a step (`after`)
/// is limited to 49 days after the run's start, and a run may wait longer.
fn time_of(end: Option<u64>, created_at: u64, after: u64) -> u64 {
    end.map_or(after, |at| at.saturating_sub(created_at))
}

fn error(error: Option<&RunError>) -> Option<(&str, &str)> {
    error.map(|error| (error.code.as_str(), error.message.as_str()))
}

/// A line in progress.
struct Line<'a>(&'a mut Vec<u8>);

impl<'a> Line<'a> {
    fn start(out: &'a mut Vec<u8>, tag: &str) -> Self {
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
        self.add(&Optional(turn.usage.as_ref()));
        self.add::<Extra>(&turn.extra);
    }

    fn finish(self) {
        self.0.extend_from_slice(b"]\n");
    }
}

fn number(out: &mut Vec<u8>, number: u64) {
    json(out, &number);
}

/// serde_json copies runs of characters that need no escape at once, directly into the buffer.
fn text(out: &mut Vec<u8>, text: &str) {
    json(out, text);
}

fn json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok(), "the model serializes, and a vector accepts every byte");
}
