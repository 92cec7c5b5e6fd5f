//! What the tests of adapters share: hearing an upstream's bytes, and telling a record in a form people can read.
//!
//! Only with the feature `testkit`. Nothing here is meant for a running gateway.

use std::fmt::Write as _;

use crate::event::Event;
use crate::heard::Heard;
use crate::id::RunId;
use crate::model::Message;
use crate::normalize::Normalizer;
use crate::run::{Record, Run};
use crate::sse::Decoder;

/// The id runs have in tests.
pub const RUN: RunId = RunId(uuid::Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0001));

/// When runs begin in tests: 2026-11-20T10:00:00Z.
pub const NOW: u64 = 1_795_168_800_000;

/// A record that has begun its first turn with a word of the user.
#[must_use]
pub fn begun() -> Record {
    let mut record = Record::new(Run::new(RUN, "demo", "session-1", NOW));
    record.start_turn(vec![Message::user("hi")]);
    record
}

/// Hears a native event stream that comes in these pieces, and ends the run when it ends.
pub fn hear<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Record {
    let mut record = begun();
    let mut normalizer = Normalizer::new(64 << 20);
    let mut decoder = Decoder::new(8 << 20);
    let read = |data: &[u8], normalizer: &mut Normalizer, record: &mut Record| {
        if let Some(heard) = Heard::read(data) {
            normalizer.hear(record, &heard).expect("within the limit");
        }
    };
    for mut piece in pieces {
        while let Some(frame) = decoder.decode(&mut piece).expect("within the limit") {
            read(frame.data, &mut normalizer, &mut record);
        }
    }
    if let Some(frame) = decoder.finish().frame() {
        read(frame.data, &mut normalizer, &mut record);
    }
    normalizer.end_of_body(&mut record);
    let end = record.run().turns.last().and_then(|turn| turn.end).expect("the turn has ended");
    record.finish_run(end);
    record
}

/// A record, told line by line.
#[must_use]
pub fn tale(record: &Record) -> String {
    let mut lines = String::new();
    for step in record.steps(0) {
        let _ = match step.event {
            Event::RunStarted => writeln!(lines, "run started"),
            Event::TurnStarted { turn } => writeln!(lines, "turn {turn} started"),
            Event::MessageStarted { message } => {
                let told = &step.run.messages[message as usize];
                writeln!(lines, "  message {message} {} {} {}", told.id, told.announced, told.role)
            }
            Event::ContentStarted { message, content } => {
                let slot = &step.run.messages[message as usize].slots[content as usize];
                let call = slot.call.as_ref().map(|head| format!(" call {} {}", head.call_id, head.name));
                writeln!(lines, "    content {message}.{content} {}{}", slot.kind, call.unwrap_or_default())
            }
            Event::ContentDelta { message, content, .. } => {
                writeln!(lines, "      {message}.{content} + {:?}", step.delta())
            }
            Event::ContentReplaced { message, content, .. } => {
                writeln!(lines, "      {message}.{content} = {:?}", step.delta())
            }
            Event::ContentFinished { message, content } => {
                let slot = &step.run.messages[message as usize].slots[content as usize];
                writeln!(lines, "    content {message}.{content} is {}", crate::Json::of(&slot.content()).text())
            }
            Event::MessageFinished { message } => {
                let told = &step.run.messages[message as usize];
                let turned = if told.kind == told.announced { String::new() } else { format!(" as {}", told.kind) };
                let error = told.code.as_ref().map(|code| format!(" {code}: {}", told.message.as_deref().unwrap_or("")));
                let end = told.end.map_or("open", crate::End::as_str);
                writeln!(lines, "  message {message} {end}{turned}{}", error.unwrap_or_default())
            }
            Event::TurnFinished { turn, end } => {
                let error = step.run.turns[turn as usize].error.as_ref();
                let error = error.map(|error| format!(" {}: {}", error.code, error.message)).unwrap_or_default();
                let usage = step.run.turns[turn as usize].usage.as_ref();
                let usage = usage.map(|usage| format!(" usage {}", usage.text())).unwrap_or_default();
                writeln!(lines, "turn {turn} {}{error}{usage}", end.as_str())
            }
            Event::RunFinished { end } => writeln!(lines, "run {}", end.as_str()),
        };
    }
    lines
}
