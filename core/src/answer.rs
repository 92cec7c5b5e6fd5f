//! Processing of clients' answers to pending items, in one way for all protocols (docs/human-in-the-loop.md#rules).
//! Never approves by default, never decides twice.
//!
//! Steps: a protocol's form becomes an [`Answer`] ([`native`] finds those in canonical messages). [`Waiting`] contains
//! the open items and decides whether the answer is allowed now. [`decide`] checks the answer against its item.
//! [`CheckedDecision::message`] makes the message for the upstream.
//!
//! Not here: the pending items of a run ([`crate::pending`]), the right to answer (the engine), clocks.

mod arguments;
pub mod chat;
mod decide;
mod native;
pub mod payload;
mod schema;
mod terms;
mod text;
mod waiting;

pub use arguments::{has_arguments, same_arguments};
pub use decide::{AnswerError, CheckedDecision, decide};
pub use native::native;
pub use schema::{SchemaMismatch, fits};
pub use terms::{ALL_DECISIONS, AnswerPolicy, AskPolicy, NATIVE_DECISIONS, OrphanPolicy, PLAIN_DECISIONS, offer};
pub use waiting::{AskContext, Open, Outcome, SentAnswers, TakenAnswers, Waiting};

pub use crate::pending::decision_word;

use crate::json::Json;
use crate::pending::Decision;

/// [`crate::Fault::code`] of an answer without a decision; the item stays open.
pub const UNDECIDED: &str = "ANSWER_UNDECIDED";
/// [`crate::Fault::code`] of an answer with a decision that is not allowed; the item stays open.
pub const NOT_TAKEN: &str = "ANSWER_NOT_TAKEN";
/// [`crate::Fault::code`] of an answer to an item that is not pending: unknown, already answered, or expired.
pub const NOT_WAITING: &str = "NOT_WAITING";

/// A client's answer to one pending item, before it is checked against the item.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Id of the pending item.
    pub id: String,
    /// The answer itself.
    pub given: AnswerBody,
    /// The client's message that contained the answer, if any.
    pub said: Option<AnswerMessage>,
}

impl Answer {
    /// An answer without a message.
    #[must_use]
    pub const fn new(id: String, given: AnswerBody) -> Self {
        Self { id, given, said: None }
    }
}

/// The parts of the client's message that the canonical message of an answer keeps.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct AnswerMessage {
    /// Message id. If one message has several answers, the first one gets the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Data of the application, kept with the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// True if the client's tool failed. The output then describes the failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// The forms of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerBody {
    /// Any JSON, interpreted by the table in docs/human-in-the-loop.md#reading-decisions.
    Payload(Json),
    /// Plain text, interpreted by the table in docs/human-in-the-loop.md#reading-decisions.
    Text(String),
    /// A decision for which the protocol has a word.
    Decided {
        /// The decision itself.
        decision: Decision,
        /// New arguments of an edit, as JSON text.
        arguments: Option<String>,
        /// Text of a response, or the reason for a rejection.
        text: Option<String>,
        /// The client's answer, verbatim.
        payload: Option<Json>,
    },
}
