//! Reading a record's lines, by replay through [`Record`]. Lines may come from a damaged disk: whatever the record
//! could not have told is refused, and nothing panics. Not here: writing them ([`super::write`]).

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};

use super::message::Written;
use super::{JournalError, NAME, VERSION};
use crate::event::{End, Millis};
use crate::id::RunId;
use crate::json::{Extra, Json};
use crate::model::{self, ContentType, MessageType, Role};
use crate::run::{Announced, CallHead, MessageEnd, Record, Run, RunError};

/// Later times are none: far beyond any clock, and safe to add to.
const LATEST: Millis = 1 << 53;

/// Makes a record of its lines. A last line that is torn is dropped; so are all events after it, there being none.
///
/// # Errors
/// Where the lines were never written so.
pub fn read(lines: &[u8]) -> Result<Record, JournalError> {
    let mut record = None;
    replay(&mut record, lines)?;
    record.ok_or(JournalError::Empty)
}

/// Adds the events of further lines to a record, such as another process appended. A torn last line is dropped.
///
/// # Errors
/// Where the lines do not go on from where the record is; the record then ends with the line before.
pub fn extend(record: Record, lines: &[u8]) -> Result<Record, JournalError> {
    let mut record = Some(record);
    replay(&mut record, lines)?;
    record.ok_or(JournalError::Empty)
}

fn replay(record: &mut Option<Record>, lines: &[u8]) -> Result<(), JournalError> {
    let mut values = serde_json::Deserializer::from_slice(lines).into_iter::<Line<'_>>();
    let mut number = 0;
    loop {
        let malformed = |why: String| JournalError::Malformed { line: number, why };
        match values.next() {
            None => return Ok(()),
            Some(Err(error)) if torn(lines, &error) => return Ok(()),
            Some(Err(error)) => return Err(malformed(error.to_string())),
            Some(Ok(Line::Begin { version, run })) => {
                if version != VERSION {
                    return Err(JournalError::Version(version));
                }
                let run = run.ok_or_else(|| malformed("no run is described".into()))?;
                if record.replace(Record::new(run)).is_some() {
                    return Err(malformed("it begins again".into()));
                }
            }
            Some(Ok(line)) => {
                let record = record.as_mut().ok_or(JournalError::Empty)?;
                tell(record, line).map_err(|why| malformed(why.into()))?;
            }
        }
        number += 1;
    }
}

/// True if the lines end in the middle of one. A number that stops at its point is no number for a parser, and not an
/// end of input; so an error after the last newline counts as well.
fn torn(lines: &[u8], error: &serde_json::Error) -> bool {
    error.is_eof() || (lines.last() != Some(&b'\n') && error.line() == memchr::memchr_iter(b'\n', lines).count() + 1)
}

/// Tells a record what a line says, if it can take that.
fn tell(record: &mut Record, line: Line<'_>) -> Result<(), &'static str> {
    if record.is_finished() {
        return Err("the run has ended before");
    }
    if let Some(after) = line.after() {
        record.at(record.run().created_at + after.min(LATEST));
    }
    match line {
        // Looked at by the caller.
        Line::Begin { .. } => {}
        Line::Turn { input, answered_by, .. } => {
            allow(!record.in_turn(), "the turn before has not ended")?;
            match answered_by {
                Some(other) => record.start_turn_of(other),
                None => record.start_turn(input.into_iter().map(|Written(message)| message).collect::<model::Input>()),
            }
        }
        Line::Answer { .. } => {
            let waits = record.run().turn().is_some_and(|turn| turn.end.is_none() && !turn.begun);
            allow(waits, "no turn waits for its beginning")?;
            record.start_answer();
        }
        Line::Message { announced, .. } => {
            record.start_message(announced);
        }
        Line::Content { message, kind, call, .. } => {
            let told = record.run().messages.get(message as usize).ok_or("no such message")?;
            allow(told.end.is_none(), "the message has ended")?;
            allow(told.slots.last().is_none_or(|slot| slot.finished), "the content before has not ended")?;
            record.start_content(message, kind, call);
        }
        Line::Delta { message, content, text, .. } => {
            open(record, message, content)?;
            allow(!text.is_empty(), "an empty delta")?;
            record.push(message, content, &text);
        }
        Line::Replaced { message, content, text, .. } => {
            open(record, message, content)?;
            record.replace(message, content, &text);
        }
        Line::ContentEnd { message, content, value, extra, .. } => {
            open(record, message, content)?;
            record.finish_content(message, content, value.map(|Written(value)| value), extra);
        }
        Line::MessageEnd { message, mut end, .. } => {
            let told = record.run().messages.get(message as usize).ok_or("no such message")?;
            allow(told.end.is_none(), "the message has ended")?;
            allow(told.slots.iter().all(|slot| slot.finished), "a content has not ended")?;
            end.extra = news(&told.extra, end.extra);
            record.finish_message(message, end);
        }
        Line::Note { facts } => record.note(facts.0.as_deref(), facts.1, facts.2),
        Line::TurnEnd { end, error, facts, withdrawn, .. } => {
            allow(record.in_turn(), "no turn is under way")?;
            let turn = record.run().turns.len() - 1;
            let ended = record.run().messages_of(turn).iter().all(|message| message.end.is_some());
            allow(ended, "a message has not ended")?;
            record.note(facts.0.as_deref(), facts.1, facts.2);
            if withdrawn {
                allow(!record.run().turns[turn].begun && end == End::Failed, "what has begun cannot be withdrawn")?;
                record.withdraw_turn(error);
            } else {
                record.finish_turn(end, error);
            }
        }
        Line::End { end, error, .. } => {
            allow(!record.in_turn(), "the turn has not ended")?;
            // Outside of turns nothing is open, so this only ends the run.
            record.cut(end, error);
        }
    }
    Ok(())
}

fn allow(condition: bool, why: &'static str) -> Result<(), &'static str> {
    if condition { Ok(()) } else { Err(why) }
}

fn open(record: &Record, message: u32, content: u32) -> Result<(), &'static str> {
    let told = record.run().messages.get(message as usize).ok_or("no such message")?;
    let slot = told.slots.get(content as usize).ok_or("no such content")?;
    allow(!slot.finished, "the content has ended")
}

/// The fields to merge into `known` so that `all` comes of it: a line tells the result, a record takes what is new.
fn news(known: &Extra, all: Extra) -> Extra {
    let mut old = known.iter();
    let fields = all.iter().filter(|field| old.next() != Some(*field));
    fields.map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

/// What the upstream said of a turn: its id, usage, unknown fields.
type Facts = (Option<String>, Option<Json>, Extra);

/// A line as it was read.
enum Line<'a> {
    /// The run is None if another version wrote it.
    Begin {
        version: u32,
        run: Option<Run>,
    },
    Turn {
        after: u64,
        input: Vec<Written<model::Message>>,
        answered_by: Option<RunId>,
    },
    Answer {
        after: u64,
    },
    Message {
        after: u64,
        announced: Announced,
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
        value: Option<Written<model::Content>>,
        extra: Extra,
    },
    MessageEnd {
        after: u64,
        message: u32,
        end: MessageEnd,
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
            Self::Begin { .. } | Self::Note { .. } => None,
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
        struct Items;
        impl<'de> Visitor<'de> for Items {
            type Value = Line<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a line of a journal")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Sequence(seq);
                let line = items.line()?;
                // Room for later versions to say more.
                while items.0.next_element::<IgnoredAny>()?.is_some() {}
                Ok(line)
            }
        }
        deserializer.deserialize_seq(Items)
    }
}

/// The items of a line, taken one after the other.
struct Sequence<A>(A);

impl<'de, A: SeqAccess<'de>> Sequence<A> {
    fn item<T: Deserialize<'de>>(&mut self) -> Result<T, A::Error> {
        self.0.next_element()?.ok_or_else(|| A::Error::custom("it is too short"))
    }

    fn text(&mut self) -> Result<Cow<'de, str>, A::Error> {
        #[derive(serde::Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
        Ok(self.item::<Text<'de>>()?.0)
    }

    fn maybe(&mut self) -> Result<Option<Json>, A::Error> {
        Ok(self.item::<Option<(Json,)>>()?.map(|(json,)| json))
    }

    fn ending(&mut self) -> Result<End, A::Error> {
        End::parse(&self.text()?).ok_or_else(|| A::Error::custom("an unknown end"))
    }

    fn error(&mut self) -> Result<Option<RunError>, A::Error> {
        Ok(self.item::<Option<(String, String)>>()?.map(|(code, message)| RunError { code, message }))
    }

    /// The id of another run, if one stands here: later versions may say something else.
    fn other(&mut self) -> Result<Option<RunId>, A::Error> {
        let said: Option<serde_json::Value> = self.0.next_element()?;
        Ok(said.and_then(|said| serde_json::from_value(said).ok()))
    }

    fn facts(&mut self) -> Result<Facts, A::Error> {
        Ok((self.item()?, self.maybe()?, self.item()?))
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
            "turn" => Line::Turn { after: self.item()?, input: self.item()?, answered_by: self.other()? },
            "answer" => Line::Answer { after: self.item()? },
            "message" => Line::Message {
                after: self.item()?,
                announced: Announced {
                    id: self.item()?,
                    kind: self.item::<MessageType>()?,
                    role: self.item::<Role>()?,
                    metadata: self.maybe()?,
                    usage: self.maybe()?,
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
                    end: self.ending()?,
                    kind: Some(self.item()?),
                    code: self.item()?,
                    message: self.item()?,
                    usage: self.maybe()?,
                    metadata: self.maybe()?,
                    extra: self.item()?,
                },
            },
            "note" => Line::Note { facts: self.facts()? },
            "turn_end" => Line::TurnEnd {
                after: self.item()?,
                end: self.ending()?,
                error: self.error()?,
                facts: self.facts()?,
                withdrawn: self.0.next_element()?.unwrap_or(false),
            },
            "end" => Line::End { after: self.item()?, end: self.ending()?, error: self.error()? },
            _ => return Err(A::Error::custom("it is of no known sort")),
        })
    }

    fn run(&mut self) -> Result<Run, A::Error> {
        let id: RunId = self.item()?;
        let (agent, session): (String, String) = (self.item()?, self.item()?);
        let created_at: Millis = self.item()?;
        if created_at > LATEST {
            return Err(A::Error::custom("its time is none"));
        }
        Ok(Run::new(id, agent, session, created_at))
    }
}
