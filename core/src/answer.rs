//! Reading what a client answered to a pending item, and handing the decision on: one way for all protocols
//! (human-in-the-loop page, sections 3, 4, 6 and 8). Never approves by default, never decides twice.
//!
//! The way of an answer: a protocol's form becomes an [`Answer`] ([`native`] finds those told as native messages);
//! [`Waiting`] knows which items are open and whether this answer may be given now; [`decide`] judges it against its
//! item; [`Decided::message`] is what goes upstream.
//!
//! Not here: what is waited for ([`crate::pending`]), who may answer (the engine), clocks.

mod decide;
pub mod langgraph;
mod native;
mod schema;
mod terms;
mod text;
mod waiting;

pub use decide::{Decided, Undecided, decide};
pub use native::native;
pub use schema::{Misfit, fits};
pub use terms::{ALL_DECISIONS, AnswerPolicy, AskPolicy, NATIVE_DECISIONS, OrphanPolicy, Ttl, offer, taken};
pub use waiting::{Asked, Open, Outcome, Waiting};

use crate::json::Json;
use crate::pending::Decision;

/// [`crate::Fault::code`] of an answer that decides nothing; the item stays open.
pub const UNDECIDED: &str = "ANSWER_UNDECIDED";
/// [`crate::Fault::code`] of an answer that decides, but what it must not; the item stays open.
pub const NOT_TAKEN: &str = "ANSWER_NOT_TAKEN";
/// [`crate::Fault::code`] of an answer to something that does not wait: unknown, answered already, or expired.
pub const NOT_WAITING: &str = "NOT_WAITING";

/// The decision a single word stands for, case ignored. None: the word decides nothing.
#[must_use]
pub fn decision_word(word: &str) -> Option<Decision> {
    let word = word.trim();
    // No word is longer: a long text costs nothing.
    if word.len() > "cancelled".len() {
        return None;
    }
    Some(match word.to_ascii_lowercase().as_str() {
        "accept" | "approve" | "approved" | "yes" | "ok" => Decision::Accept,
        "edit" => Decision::Edit,
        "respond" | "response" => Decision::Respond,
        "reject" | "rejected" | "deny" | "denied" | "no" => Decision::Reject,
        "ignore" | "cancel" | "cancelled" => Decision::Cancel,
        _ => return None,
    })
}

/// What a client answered to one pending item, before it is judged against that item.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The pending item.
    pub id: String,
    /// What was said.
    pub given: Given,
    /// The message it was said in.
    pub said: Option<Said>,
}

impl Answer {
    /// An answer in no message that anybody knows.
    #[must_use]
    pub const fn new(id: String, given: Given) -> Self {
        Self { id, given, said: None }
    }
}

/// What the native message of an answer keeps of the client's own.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Said {
    /// Its id. Of several answers in one message the first one has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

/// The forms an answer comes in.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// Any JSON, to be read by the table of section 4.
    Payload(Json),
    /// A plain text, to be read by the table of section 4.
    Text(String),
    /// A decision the protocol has a word for, with what belongs to it.
    Decided {
        /// The decision.
        decision: Decision,
        /// New arguments of an edit, JSON text.
        arguments: Option<String>,
        /// Text of a response, or why it was rejected.
        text: Option<String>,
        /// What the client sent, verbatim.
        payload: Option<Json>,
    },
}
