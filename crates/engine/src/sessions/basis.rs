//! The part of a conversation that precedes a turn.
//!
//! Not here: choosing the session ([`crate::turns::session_choice`]) and the messages for the agent
//! ([`crate::turns::context`]).

use interlingua_core::RunId;
use interlingua_core::model::Message;

/// The history that a turn continues.
#[derive(Debug)]
pub(crate) enum Basis {
    /// The session as the agent remembers it.
    Session,
    /// The conversation up to and including this run.
    After(RunId),
    /// The history that the client sent. The session's own history, if any, is replaced.
    Begins(Vec<Message>),
    /// An existing session whose client sends the history with each request.
    Resent {
        /// The history according to the client.
        history: Vec<Message>,
        /// True: the session was found by its history, and the agent must continue exactly that. False: it was found by
        /// a pending item, and the agent continues from its question.
        is_exact: bool,
    },
}

impl Basis {
    /// True if the agent must continue the history of the session even if it remembers a different one.
    pub(crate) const fn is_exact(&self) -> bool {
        matches!(self, Self::After(_) | Self::Resent { is_exact: true, .. })
    }

    /// True if the client sends the whole conversation with each request.
    pub(crate) const fn is_resent(&self) -> bool {
        matches!(self, Self::Begins(_) | Self::Resent { .. })
    }

    /// The history according to the client. Empty if the client sent none.
    pub(crate) fn history(&self) -> &[Message] {
        match self {
            Self::Begins(history) | Self::Resent { history, .. } => history,
            Self::Session | Self::After(_) => &[],
        }
    }

    /// Drops the copy of the history after the request was sent: a turn can take minutes.
    pub(crate) fn forget_history(&mut self) {
        if let Self::Begins(history) | Self::Resent { history, .. } = self {
            *history = Vec::new();
        }
    }

    /// The run that the turn branches off from. `None`: the turn continues from the last run of the session.
    pub(crate) fn branch(&self, last: Option<RunId>) -> Option<RunId> {
        match self {
            Self::After(run) => Some(*run).filter(|run| last != Some(*run)),
            _ => None,
        }
    }
}
