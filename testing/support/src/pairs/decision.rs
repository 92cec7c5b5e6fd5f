//! The items of the demo agent that wait for an answer, and the answers to them, for all protocols of clients.
//!
//! Not here: the form of an answer in each protocol (the drivers).

/// An answer to a pending item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Accept,
    Edit,
    Respond,
    Reject,
    /// The output of a client tool.
    Output,
    /// An answer to a question with a response schema, as JSON.
    Value,
    /// The same as plain text.
    Words,
    /// Confirms a login.
    Done,
}

pub const ALL_DECISIONS: [Decision; 8] = [
    Decision::Accept,
    Decision::Edit,
    Decision::Respond,
    Decision::Reject,
    Decision::Output,
    Decision::Value,
    Decision::Words,
    Decision::Done,
];

impl Decision {
    /// The demo command that raises the matching interrupt.
    pub const fn demo_command(self) -> &'static str {
        match self {
            Self::Accept | Self::Edit | Self::Respond | Self::Reject => "approval",
            Self::Output => "client tool",
            Self::Value | Self::Words => "question",
            Self::Done => "login",
        }
    }

    /// Text in the reply of the demo agent to this answer.
    pub const fn expected_text(self) -> &'static str {
        match self {
            Self::Accept => "The mail was sent to ada@example.com.",
            Self::Edit => "The mail was sent to grace@example.com.",
            Self::Respond => "took this for the result: later",
            Self::Reject => "I did not send it, because you rejected it",
            Self::Output => "says: Paris",
            Self::Value | Self::Words => "You answered: {\"colour\":\"blue\"}",
            Self::Done => "Thank you, you are logged in.",
        }
    }
}

/// A run that waits for input.
#[derive(Clone, Debug)]
pub struct Interrupt {
    pub session: String,
    /// The run id as in the Agent API, with its prefix.
    pub run: String,
    /// The id of the pending item.
    pub item: String,
}

impl Interrupt {
    /// The run id without a prefix.
    pub fn id(&self) -> &str {
        self.run.trim_start_matches("response_")
    }
}
