//! A record in lines that people can read, for snapshots.

use std::fmt::Write as _;

use crate::event::Event;
use crate::run::Record;

/// A record, line by line.
#[must_use]
pub fn tale(record: &Record) -> String {
    let mut lines = String::new();
    for step in record.steps(0) {
        let _ = match step.event {
            Event::RunStarted => writeln!(lines, "run started"),
            Event::TurnStarted { turn } => writeln!(lines, "turn {turn} started"),
            Event::AnswerStarted { .. } => writeln!(lines, "  answer started"),
            Event::MessageStarted { message } => {
                let shown = &step.run.messages[message as usize];
                writeln!(lines, "  message {message} {} {} {}", shown.id, shown.announced, shown.role)
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
                writeln!(
                    lines,
                    "    content {message}.{content} is {}",
                    crate::Json::from_serialize(&slot.content()).text()
                )
            }
            Event::MessageFinished { message } => {
                let shown = &step.run.messages[message as usize];
                let turned = if shown.kind == shown.announced { String::new() } else { format!(" as {}", shown.kind) };
                let error =
                    shown.code.as_ref().map(|code| format!(" {code}: {}", shown.message.as_deref().unwrap_or("")));
                let end = shown.end.map_or("open", crate::End::as_str);
                writeln!(lines, "  message {message} {end}{turned}{}", error.unwrap_or_default())
            }
            Event::TurnFinished { turn, end } => {
                let error = step.run.turns[turn as usize].error.as_ref();
                let error = error.map(|error| format!(" {}: {}", error.code, error.message)).unwrap_or_default();
                let usage = step.run.turns[turn as usize].usage.as_ref();
                let usage = usage.map(|usage| format!(" usage {}", usage.text())).unwrap_or_default();
                let withdrawn = if step.run.turns[turn as usize].withdrawn { " withdrawn" } else { "" };
                writeln!(lines, "turn {turn} {}{withdrawn}{error}{usage}", end.as_str())
            }
            Event::RunFinished { end } => writeln!(lines, "run {}", end.as_str()),
        };
    }
    lines
}
