//! Prints a record in readable lines, for snapshots.

use std::fmt::Write as _;

use interlingua_core::event::Event;
use interlingua_core::run::Record;

/// The record, one event per line.
#[must_use]
pub fn render(record: &Record) -> String {
    let mut lines = String::new();
    for step in record.steps(0) {
        let _ = match step.event {
            Event::RunStarted => writeln!(lines, "run started"),
            Event::TurnStarted { turn } => writeln!(lines, "turn {turn} started"),
            Event::AnswerStarted { .. } => writeln!(lines, "  answer started"),
            Event::MessageStarted { message } => {
                let started = &step.run.messages[message as usize];
                writeln!(lines, "  message {message} {} {} {}", started.id, started.announced, started.role)
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
                    interlingua_core::Json::from_serialize(&slot.content()).text()
                )
            }
            Event::MessageFinished { message } => {
                let finished = &step.run.messages[message as usize];
                let new_kind = Some(&finished.kind).filter(|kind| **kind != finished.announced);
                let new_kind = new_kind.map(|kind| format!(" as {kind}")).unwrap_or_default();
                let text = finished.message.as_deref().unwrap_or("");
                let error = finished.code.as_ref().map(|code| format!(" {code}: {text}")).unwrap_or_default();

                let end = finished.end.map_or("open", interlingua_core::End::as_str);
                writeln!(lines, "  message {message} {end}{new_kind}{error}")
            }
            Event::TurnFinished { turn, end } => {
                let finished = &step.run.turns[turn as usize];
                let error = finished.error.as_ref();
                let error = error.map(|error| format!(" {}: {}", error.code, error.message)).unwrap_or_default();
                let usage = finished.usage.as_ref();
                let usage = usage.map(|usage| format!(" usage {}", usage.text())).unwrap_or_default();
                let withdrawn = if finished.withdrawn { " withdrawn" } else { "" };

                writeln!(lines, "turn {turn} {}{withdrawn}{error}{usage}", end.as_str())
            }
            Event::RunFinished { end } => writeln!(lines, "run {}", end.as_str()),
        };
    }
    lines
}
