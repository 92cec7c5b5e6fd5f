//! How an answer is told as it happens: one flat row of small events with one grammar.
//!
//! ```text
//! run      = RunStarted turn+ RunFinished
//! turn     = TurnStarted [AnswerStarted message*] TurnFinished    messages may overlap
//! message  = MessageStarted content* MessageFinished              contents of one message never overlap
//! content  = ContentStarted (ContentDelta | ContentReplaced)* ContentFinished
//! ```
//!
//! Invariant: whatever the upstream does, this grammar holds, and `RunFinished` comes exactly once, last.
//!
//! An event names places in the [`Run`], it does not carry values: texts, kinds and ids are read off the run. The run
//! handed along with an event may already know more than the event tells. What holds all the same: ids, roles,
//! announced kinds and the heads of calls never change; a delta's text never changes; what an event calls finished is
//! final. An encoder that reads nothing else makes the same bytes live and on every replay.

use crate::id::RunId;
use crate::run::{Message, Run, Slot};

/// Milliseconds since 1970 in UTC.
pub type Millis = u64;

/// How a turn, a run or a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Well.
    Completed,
    /// Cut off, for instance by a limit on tokens.
    Incomplete,
    /// Badly.
    Failed,
    /// Turned away by the agent.
    Rejected,
    /// Stopped by somebody.
    Canceled,
}

impl End {
    /// The native status word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Canceled => "canceled",
        }
    }

    /// Reads a native status word; None for those that end nothing.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "completed" => Self::Completed,
            "incomplete" => Self::Incomplete,
            "failed" => Self::Failed,
            "rejected" => Self::Rejected,
            // Two spellings are in use; the native one has one `l`.
            "canceled" | "cancelled" => Self::Canceled,
            _ => return None,
        })
    }
}

/// A piece of a slot's text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which text: it counts up with every [`Event::ContentReplaced`].
    pub version: u32,
    /// First byte.
    pub start: u32,
    /// Past the last byte.
    pub end: u32,
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The run exists.
    RunStarted,
    /// The agent is asked.
    TurnStarted {
        /// Its place in [`Run::turns`].
        turn: u32,
    },
    /// The agent has begun to work on it: it said so, or its first message comes next. In records that were written
    /// before this was told, messages come without it.
    AnswerStarted {
        /// The turn.
        turn: u32,
    },
    /// A message begins.
    MessageStarted {
        /// Its place in [`Run::messages`].
        message: u32,
    },
    /// A content begins.
    ContentStarted {
        /// The message.
        message: u32,
        /// Its place in [`Message::slots`].
        content: u32,
    },
    /// The content's text grew: text, refusal, or the arguments of a call. Never empty.
    ContentDelta {
        /// The message.
        message: u32,
        /// The content.
        content: u32,
        /// What was added.
        span: Span,
    },
    /// Rare: the content's text is another now; what was told of it before does not hold.
    ContentReplaced {
        /// The message.
        message: u32,
        /// The content.
        content: u32,
        /// The version that is told now, whole.
        version: u32,
    },
    /// The content is final.
    ContentFinished {
        /// The message.
        message: u32,
        /// The content.
        content: u32,
    },
    /// The message is final.
    MessageFinished {
        /// The message.
        message: u32,
    },
    /// The agent has ended its answer, or was never reached ([`Turn::withdrawn`](crate::run::Turn::withdrawn)). The run
    /// may wait for another turn.
    TurnFinished {
        /// The turn.
        turn: u32,
        /// How.
        end: End,
    },
    /// Nothing comes after this.
    RunFinished {
        /// How.
        end: End,
    },
}

/// An event in its place: when it happened, and the run it happened in.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Counts from 0, without gaps.
    pub sequence: u64,
    /// When it happened.
    pub at: Millis,
    /// What happened.
    pub event: Event,
    /// The run, perhaps further than the event.
    pub run: &'a Run,
}

impl<'a> Step<'a> {
    /// The run's id.
    #[must_use]
    pub const fn id(&self) -> RunId {
        self.run.id
    }

    /// The message the event is about, and its place.
    #[must_use]
    pub fn message(&self) -> Option<(usize, &'a Message)> {
        let index = match self.event {
            Event::MessageStarted { message }
            | Event::ContentStarted { message, .. }
            | Event::ContentDelta { message, .. }
            | Event::ContentReplaced { message, .. }
            | Event::ContentFinished { message, .. }
            | Event::MessageFinished { message } => message as usize,
            _ => return None,
        };
        self.run.messages.get(index).map(|message| (index, message))
    }

    /// The content the event is about, and its place in the message.
    #[must_use]
    pub fn slot(&self) -> Option<(usize, &'a Slot)> {
        let index = match self.event {
            Event::ContentStarted { content, .. }
            | Event::ContentDelta { content, .. }
            | Event::ContentReplaced { content, .. }
            | Event::ContentFinished { content, .. } => content as usize,
            _ => return None,
        };
        self.message()?.1.slots.get(index).map(|slot| (index, slot))
    }

    /// The text a [`Event::ContentDelta`] adds, or a [`Event::ContentReplaced`] puts in the old one's place.
    #[must_use]
    pub fn delta(&self) -> &'a str {
        let Some((_, slot)) = self.slot() else { return "" };
        match self.event {
            Event::ContentDelta { span, .. } => slot.span(span),
            // The version as it was when it was put there; what it grew by since is told by deltas.
            Event::ContentReplaced { version, .. } => slot.replaced(version),
            _ => "",
        }
    }
}
