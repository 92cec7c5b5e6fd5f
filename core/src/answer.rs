//! Reading what a client answered to a pending item: one function for all protocols (human-in-the-loop page,
//! section 4). Never approves by default.

use crate::pending::Decision;

/// The decision a single word stands for, case ignored. None: the word decides nothing.
#[must_use]
pub fn decision_word(word: &str) -> Option<Decision> {
    Some(match word.trim().to_ascii_lowercase().as_str() {
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
}

/// The forms an answer comes in.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// Any JSON, to be read by the table of section 4.
    Payload(crate::json::Json),
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
        payload: Option<crate::json::Json>,
    },
}
