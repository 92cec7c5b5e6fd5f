//! Reading a record's lines by replaying them through [`Record`]. Lines may come from a damaged disk: anything that
//! violates the record's grammar is rejected, and nothing panics.
//!
//! Not here: writing lines ([`super::write`]).

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};

use super::message::SerializedValue;
use super::{JournalError, NAME, VERSION};
use crate::agent_event::Awaits;
use crate::event::{End, Millis};
use crate::id::RunId;
use crate::json::{Extra, Json};
use crate::model::{self, ContentType, MessageType, Role};
use crate::run::{CallHead, FailureCause, MessageEnd, MessageStart, Record, Run, RunError};

/// Latest valid time: far beyond any clock, and safe to add to.
const MAX_TIME: Millis = 1 << 53;

/// Restores a record from its lines. An incomplete last line is dropped.
///
/// # Errors
/// There is no complete first line, another version of the format wrote the lines, or a line is invalid.
pub fn read(lines: &[u8]) -> Result<Record, JournalError> {
    let mut record = None;
    replay(&mut record, lines)?;
    record.ok_or(JournalError::Empty)
}

/// Appends further lines to a record, for example those another process wrote. An incomplete last line is dropped.
///
/// # Errors
/// The lines do not continue the record, or one is invalid.
pub fn extend(record: Record, lines: &[u8]) -> Result<Record, JournalError> {
    let mut record = Some(record);
    replay(&mut record, lines)?;
    record.ok_or(JournalError::Empty)
}

/// The end of the lines of the first `events` events in bytes, including the notes and replaced inputs after the last
/// event. `None`: `lines` contains fewer events, or an invalid line before that end.
#[must_use]
pub fn end_of(lines: &[u8], events: u64) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(lines).into_iter::<Line<'_>>();
    let (mut seen, mut end) = (0, 0);
    loop {
        match values.next() {
            None => return (seen == events).then_some(end),
            Some(Ok(Line::Input { .. } | Line::Note { .. })) => {}
            Some(Ok(_)) if seen == events => return Some(end),
            Some(Ok(_)) => seen += 1,
            Some(Err(_)) => return None,
        }
        end = values.byte_offset();
    }
}

fn replay(record: &mut Option<Record>, lines: &[u8]) -> Result<(), JournalError> {
    let mut values = serde_json::Deserializer::from_slice(lines).into_iter::<Line<'_>>();
    let mut number = 0;
    loop {
        let malformed = |why: String| JournalError::Malformed { line: number, why };
        match values.next() {
            None => return Ok(()),
            Some(Err(error)) if is_truncated(lines, &error) => return Ok(()),
            Some(Err(error)) => return Err(malformed(error.to_string())),

            Some(Ok(Line::Begin { version, run })) => {
                if version != VERSION {
                    return Err(JournalError::Version(version));
                }
                let run = run.ok_or_else(|| malformed("the run is missing".into()))?;
                if record.replace(Record::new(run)).is_some() {
                    return Err(malformed("a second first line".into()));
                }
            }
            Some(Ok(line)) => {
                let record = record.as_mut().ok_or(JournalError::Empty)?;
                apply(record, line).map_err(|why| malformed(why.into()))?;
            }
        }

        number += 1;
    }
}

/// True if the input ends in the middle of a line. To the parser, a number cut off after its decimal point is a syntax
/// error and not an end of input, so any error after the last newline counts as well.
fn is_truncated(lines: &[u8], error: &serde_json::Error) -> bool {
    error.is_eof() || (lines.last() != Some(&b'\n') && error.line() == memchr::memchr_iter(b'\n', lines).count() + 1)
}

/// Applies a line to a record, if the grammar allows it.
fn apply(record: &mut Record, line: Line<'_>) -> Result<(), &'static str> {
    if record.is_finished() {
        return Err("the run has already ended");
    }

    if let Some(after) = line.after() {
        record.set_time(record.run().created_at + after.min(MAX_TIME));
    }

    match line {
        // Handled by the caller.
        Line::Begin { .. } => {}
        Line::Turn { input, answered_by, .. } => {
            ensure(!record.in_turn(), "the turn before has not ended")?;
            match answered_by {
                Some(other) => record.start_linked_turn(other),
                None => record
                    .start_turn(input.into_iter().map(|SerializedValue(message)| message).collect::<model::Input>()),
            }
        }
        Line::Answer { .. } => {
            let expected = record.run().turn().is_some_and(|turn| turn.end.is_none() && !turn.answer_started);
            ensure(expected, "no turn waits for its answer")?;
            record.start_answer();
        }
        Line::Message { announced, .. } => {
            record.start_message(announced);
        }
        Line::Content { message, kind, call, .. } => {
            let state = record.run().messages.get(message as usize).ok_or("no such message")?;
            ensure(state.end.is_none(), "the message has ended")?;
            ensure(state.slots.last().is_none_or(|slot| slot.finished), "the content before has not ended")?;
            record.start_content(message, kind, call);
        }
        Line::Delta { message, content, text, .. } => {
            ensure_open(record, message, content)?;
            ensure(!text.is_empty(), "an empty delta")?;
            record.push(message, content, &text);
        }
        Line::Replaced { message, content, text, .. } => {
            ensure_open(record, message, content)?;
            record.replace(message, content, &text);
        }
        Line::ContentEnd { message, content, value, extra, .. } => {
            ensure_open(record, message, content)?;
            record.finish_content(message, content, value.map(|SerializedValue(value)| value), extra);
        }
        Line::MessageEnd { message, mut end, .. } => {
            let state = record.run().messages.get(message as usize).ok_or("no such message")?;
            ensure(state.end.is_none(), "the message has ended")?;
            ensure(state.slots.iter().all(|slot| slot.finished), "a content has not ended")?;
            end.extra = new_fields(&state.extra, end.extra);
            record.finish_message(message, end);
        }
        Line::Input { input } => {
            let replaces = record.run().turn().is_some_and(|turn| turn.end.is_none() && !turn.answer_started);
            ensure(replaces, "no turn waits for its answer")?;
            record.set_input(input.into_iter().map(|SerializedValue(message)| message).collect::<model::Input>());
        }
        Line::Note { facts } => record.update_turn(facts.0.as_deref(), facts.1, facts.2),
        Line::TurnEnd { end, error, facts, withdrawn, cause, awaits, .. } => {
            ensure(record.in_turn(), "no turn is active")?;
            let turn = record.run().turns.len() - 1;
            let ended = record.run().messages_of(turn).iter().all(|message| message.end.is_some());
            ensure(ended, "a message has not ended")?;

            record.update_turn(facts.0.as_deref(), facts.1, facts.2);
            if let Some(cause) = cause {
                record.set_cause(cause);
            }
            if let Some(awaits) = awaits {
                record.set_awaits(awaits);
            }
            if withdrawn {
                let valid = !record.run().turns[turn].answer_started && end == End::Failed;
                ensure(valid, "a started turn cannot be withdrawn")?;
                record.withdraw_turn(error);
            } else {
                record.finish_turn(end, error);
            }
        }
        Line::End { end, error, .. } => {
            ensure(!record.in_turn(), "the turn has not ended")?;
            // Between turns nothing is open, so this only ends the run.
            record.close(end, error);
        }
    }
    Ok(())
}

fn ensure(condition: bool, why: &'static str) -> Result<(), &'static str> {
    if condition { Ok(()) } else { Err(why) }
}

fn ensure_open(record: &Record, message: u32, content: u32) -> Result<(), &'static str> {
    let state = record.run().messages.get(message as usize).ok_or("no such message")?;
    let slot = state.slots.get(content as usize).ok_or("no such content")?;
    ensure(!slot.finished, "the content has ended")
}

/// The fields to merge into `known` to get `all`: a line contains the result, while a record merges what is new.
fn new_fields(known: &Extra, all: Extra) -> Extra {
    let mut known = known.iter();
    let fields = all.iter().filter(|field| known.next() != Some(*field));
    fields.map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

/// The upstream's fields of a turn: id, usage, unknown fields.
type Facts = (Option<String>, Option<Json>, Extra);

/// A parsed line.
enum Line<'a> {
    /// `run` is `None` if another version wrote the line.
    Begin {
        version: u32,
        run: Option<Run>,
    },
    Turn {
        after: u64,
        input: Vec<SerializedValue<model::Message>>,
        answered_by: Option<RunId>,
    },
    Answer {
        after: u64,
    },
    Message {
        after: u64,
        announced: MessageStart,
    },
    Content {
        after: u64,
        message: u32,
        kind: ContentType,
        call: Option<CallHead>,
    },
    Delta {
        after: u64,
        message: u32,
        content: u32,
        text: Cow<'a, str>,
    },
    Replaced {
        after: u64,
        message: u32,
        content: u32,
        text: Cow<'a, str>,
    },
    ContentEnd {
        after: u64,
        message: u32,
        content: u32,
        value: Option<SerializedValue<model::Content>>,
        extra: Extra,
    },
    MessageEnd {
        after: u64,
        message: u32,
        end: MessageEnd,
    },
    Input {
        input: Vec<SerializedValue<model::Message>>,
    },
    Note {
        facts: Facts,
    },
    TurnEnd {
        after: u64,
        end: End,
        error: Option<RunError>,
        facts: Facts,
        withdrawn: bool,
        cause: Option<FailureCause>,
        awaits: Option<Awaits>,
    },
    End {
        after: u64,
        end: End,
        error: Option<RunError>,
    },
}

impl Line<'_> {
    const fn after(&self) -> Option<u64> {
        match self {
            Self::Begin { .. } | Self::Input { .. } | Self::Note { .. } => None,
            Self::Turn { after, .. }
            | Self::Answer { after }
            | Self::Message { after, .. }
            | Self::Content { after, .. }
            | Self::Delta { after, .. }
            | Self::Replaced { after, .. }
            | Self::ContentEnd { after, .. }
            | Self::MessageEnd { after, .. }
            | Self::TurnEnd { after, .. }
            | Self::End { after, .. } => Some(*after),
        }
    }
}

impl<'de> Deserialize<'de> for Line<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LineVisitor;
        impl<'de> Visitor<'de> for LineVisitor {
            type Value = Line<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a line of a journal")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Sequence(seq);
                let line = items.line()?;
                // Ignore further items, so that later versions can add some.
                while items.0.next_element::<IgnoredAny>()?.is_some() {}
                Ok(line)
            }
        }
        deserializer.deserialize_seq(LineVisitor)
    }
}

/// The items of a line, in order.
struct Sequence<A>(A);

impl<'de, A: SeqAccess<'de>> Sequence<A> {
    fn item<T: Deserialize<'de>>(&mut self) -> Result<T, A::Error> {
        self.0.next_element()?.ok_or_else(|| A::Error::custom("the line has too few items"))
    }

    fn text(&mut self) -> Result<Cow<'de, str>, A::Error> {
        #[derive(serde::Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
        Ok(self.item::<Text<'de>>()?.0)
    }

    fn optional_json(&mut self) -> Result<Option<Json>, A::Error> {
        Ok(self.item::<Option<(Json,)>>()?.map(|(json,)| json))
    }

    fn end(&mut self) -> Result<End, A::Error> {
        End::parse(&self.text()?).ok_or_else(|| A::Error::custom("an unknown outcome"))
    }

    fn error(&mut self) -> Result<Option<RunError>, A::Error> {
        Ok(self.item::<Option<(String, String)>>()?.map(|(code, message)| RunError { code, message }))
    }

    /// An optional value. Any other is ignored, because later versions may use this position differently.
    fn optional<T: DeserializeOwned>(&mut self) -> Result<Option<T>, A::Error> {
        let value: Option<Option<serde_json::Value>> = self.0.next_element()?;
        Ok(value.flatten().and_then(|value| serde_json::from_value(value).ok()))
    }

    fn facts(&mut self) -> Result<Facts, A::Error> {
        Ok((self.item()?, self.optional_json()?, self.item()?))
    }

    fn line(&mut self) -> Result<Line<'de>, A::Error> {
        let tag = self.text()?;
        Ok(match tag.as_ref() {
            "d" => {
                Line::Delta { after: self.item()?, message: self.item()?, content: self.item()?, text: self.text()? }
            }
            NAME => {
                let version = self.item()?;
                Line::Begin { version, run: if version == VERSION { Some(self.run()?) } else { None } }
            }
            "turn" => Line::Turn { after: self.item()?, input: self.item()?, answered_by: self.optional()? },
            "answer" => Line::Answer { after: self.item()? },
            "message" => Line::Message {
                after: self.item()?,
                announced: MessageStart {
                    id: self.item()?,
                    kind: self.item::<MessageType>()?,
                    role: self.item::<Role>()?,
                    metadata: self.optional_json()?,
                    usage: self.optional_json()?,
                    extra: self.item()?,
                },
            },
            "content" => Line::Content {
                after: self.item()?,
                message: self.item()?,
                kind: self.item()?,
                call: self
                    .item::<Option<(String, String, Option<String>)>>()?
                    .map(|(call_id, name, server_label)| CallHead { call_id, name, server_label }),
            },
            "replaced" => {
                Line::Replaced { after: self.item()?, message: self.item()?, content: self.item()?, text: self.text()? }
            }
            "content_end" => Line::ContentEnd {
                after: self.item()?,
                message: self.item()?,
                content: self.item()?,
                value: self.item()?,
                extra: self.item()?,
            },
            "message_end" => Line::MessageEnd {
                after: self.item()?,
                message: self.item()?,
                end: MessageEnd {
                    end: self.end()?,
                    kind: Some(self.item()?),
                    code: self.item()?,
                    message: self.item()?,
                    usage: self.optional_json()?,
                    metadata: self.optional_json()?,
                    extra: self.item()?,
                },
            },
            "input" => Line::Input { input: self.item()? },
            "note" => Line::Note { facts: self.facts()? },
            "turn_end" => Line::TurnEnd {
                after: self.item()?,
                end: self.end()?,
                error: self.error()?,
                facts: self.facts()?,
                withdrawn: self.0.next_element()?.unwrap_or(false),
                cause: self.optional()?,
                awaits: self.optional()?,
            },
            "end" => Line::End { after: self.item()?, end: self.end()?, error: self.error()? },
            _ => return Err(A::Error::custom("an unknown type of line")),
        })
    }

    fn run(&mut self) -> Result<Run, A::Error> {
        let id: RunId = self.item()?;
        let (agent, session): (String, String) = (self.item()?, self.item()?);
        let created_at: Millis = self.item()?;
        if created_at > MAX_TIME {
            return Err(A::Error::custom("the time is out of range"));
        }
        Ok(Run::new(id, agent, session, created_at))
    }
}
