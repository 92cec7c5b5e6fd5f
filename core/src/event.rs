//! A streaming answer as a flat sequence of small events with one grammar.
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
//! An event contains indexes into the [`Run`], not values: texts, kinds and ids are read from the run. The run passed
//! with an event may already be ahead of the event. Still, ids, roles, announced kinds and call heads never change, the
//! text of a delta never changes, and a part of the run is final once an event has reported its end. An encoder that
//! reads nothing else produces the same bytes live and on every replay.

/// Milliseconds since the Unix epoch, UTC.
pub type Millis = u64;

/// The outcome of a turn, a run or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Success.
    Completed,
    /// Truncated, for example by a token limit.
    Incomplete,
    /// An error.
    Failed,
    /// Declined by the agent.
    Rejected,
    /// Canceled by a client or an operator.
    Canceled,
}

impl End {
    /// The status in the Agent API, which is also the stored form.
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

    /// Parses an Agent API status. `None`: the status is not final, or unknown.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "completed" => Self::Completed,
            "incomplete" => Self::Incomplete,
            "failed" => Self::Failed,
            "rejected" => Self::Rejected,
            // Upstreams use both spellings; the Agent API has one `l`.
            "canceled" | "cancelled" => Self::Canceled,
            _ => return None,
        })
    }
}

/// A byte range of a slot's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index of the text version; every [`Event::ContentReplaced`] adds one.
    pub version: u32,
    /// First byte, inclusive.
    pub start: u32,
    /// Last byte, exclusive.
    pub end: u32,
}

/// A change of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The run was accepted.
    RunStarted,
    /// A turn begins: the request goes to the agent.
    TurnStarted {
        /// Index in [`Run::turns`].
        turn: u32,
    },
    /// The agent has started to work on the turn: it said so, or its first message follows. Records written by versions
    /// before this event existed have messages without it.
    AnswerStarted {
        /// Index in [`Run::turns`].
        turn: u32,
    },
    /// A message begins.
    MessageStarted {
        /// Index in [`Run::messages`].
        message: u32,
    },
    /// A content of a message begins.
    ContentStarted {
        /// Index in [`Run::messages`].
        message: u32,
        /// Index in [`Message::slots`].
        content: u32,
    },
    /// The content's text grew: text, refusal, or the arguments of a call. Never an empty delta.
    ContentDelta {
        /// Index in [`Run::messages`].
        message: u32,
        /// Index in [`Message::slots`].
        content: u32,
        /// The added range.
        span: Span,
    },
    /// The content's text was replaced, which is rare. All text of it that was sent before is void.
    ContentReplaced {
        /// Index in [`Run::messages`].
        message: u32,
        /// Index in [`Message::slots`].
        content: u32,
        /// The version that now holds the complete text.
        version: u32,
    },
    /// The content is final.
    ContentFinished {
        /// Index in [`Run::messages`].
        message: u32,
        /// Index in [`Message::slots`].
        content: u32,
    },
    /// The message is final.
    MessageFinished {
        /// Index in [`Run::messages`].
        message: u32,
    },
    /// The agent ended its answer, or was never reached ([`Turn::withdrawn`](crate::run::Turn::withdrawn)). The run may
    /// wait for another turn.
    TurnFinished {
        /// Index in [`Run::turns`].
        turn: u32,
        /// The outcome of the turn.
        end: End,
    },
    /// The last event of a run.
    RunFinished {
        /// The outcome of the run.
        end: End,
    },
}
