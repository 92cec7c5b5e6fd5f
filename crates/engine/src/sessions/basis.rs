//! What a turn goes on from, once its session is known.
//!
//! Not here: which session that is ([`crate::turns::session_choice`]), and what of it the agent is sent ([`crate::turns::context`]).

use interlingua_core::RunId;
use interlingua_core::model::Message;

use super::document::SessionDoc;

/// What a turn goes on from.
#[derive(Debug)]
pub(crate) enum Basis {
    /// The session, as the agent remembers it.
    Session,
    /// The conversation up to this run.
    After(RunId),
    /// Nothing that the session has: it begins with this history, which its client sent.
    Begins(Vec<Message>),
    /// The session, which its client knows, too.
    Resent {
        /// What the client says was said before.
        history: Vec<Message>,
        /// True if the agent has to go on from exactly what the session has. False: it goes on from what it asked.
        is_exact: bool,
    },
}

impl Basis {
    /// True if the agent goes on from what the session has, also if it remembers something else.
    pub(crate) const fn is_exact(&self) -> bool {
        matches!(self, Self::After(_) | Self::Resent { is_exact: true, .. })
    }

    /// True if the client sends all of the conversation with each request.
    pub(crate) const fn is_resent(&self) -> bool {
        matches!(self, Self::Begins(_) | Self::Resent { .. })
    }

    /// What the client says was said before.
    pub(crate) fn history(&self) -> &[Message] {
        match self {
            Self::Begins(history) | Self::Resent { history, .. } => history,
            Self::Session | Self::After(_) => &[],
        }
    }

    /// The request has been sent: while an agent works for minutes there need be no copy of the history.
    pub(crate) fn forget_history(&mut self) {
        if let Self::Begins(history) | Self::Resent { history, .. } = self {
            *history = Vec::new();
        }
    }

    /// The run after which the history goes on, if that is not the session's last one.
    pub(crate) fn branch(&self, doc: &SessionDoc) -> Option<RunId> {
        match self {
            Self::After(run) => (!doc.ends_with(*run)).then_some(*run),
            _ => None,
        }
    }
}
