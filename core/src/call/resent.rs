//! Conversations of clients that send the whole history with each request: the request, and the comparison by which
//! the engine finds the session to continue.
//!
//! Not here: the choice of the session (the engine), and the form of an answer in a protocol (its adapter, which
//! implements [`HistoryJudge`]).

use std::fmt::Debug;
use std::sync::Arc;

use crate::answer::Answer;
use crate::call::RunView;
use crate::model::Message;

/// The history that a client sends in front of its new messages. The engine chooses the session in this order:
///
/// 1. A session with an open item that the request answers: in its input, in [`crate::RunCall::answers`], or in words
///    ([`Resent::in_words`]). The id of the item is enough, with two exceptions: agents use the id of a client's tool
///    call in several conversations, and can write any id into a text. So for the output of a client's tool in the
///    input, and for an answer in words, the history must also end with the answer of the run that asked. If several
///    sessions match equally well, the client sees the question again ([`crate::call::Reply::Waiting`]).
/// 2. The session [`Resent::session`], or one of the latest that began under this name, if the history ends with the
///    answer of its latest run.
/// 3. A new session, with the name [`Resent::session`] if no session has it; otherwise [`Resent::otherwise`] decides.
///
/// A new session stores the history in front of the new messages. An existing session keeps its own history; the agent
/// receives the client's instead only if the session's own is cut at a limit. Messages for this request alone, such as
/// instructions, belong into [`crate::RunCall::preamble`].
#[derive(Clone, Debug)]
pub struct Resent {
    /// Id of the session that the client names. `None`: it names none.
    pub session: Option<String>,
    /// The history, oldest message first, up to the agent's last message.
    pub history: Vec<Message>,
    /// Compares the history with the runs of a session.
    pub judge: Arc<dyn HistoryJudge>,
    /// Handling of a named session with another history.
    pub otherwise: Otherwise,
    /// For clients that answer in words: the answer that the text of the input expresses. If its item is open, the
    /// engine takes this answer and drops the input; otherwise it sends the input and ignores the answer.
    pub in_words: Option<Answer>,
}

impl Resent {
    /// A conversation without a session id.
    #[must_use]
    pub const fn new(history: Vec<Message>, judge: Arc<dyn HistoryJudge>) -> Self {
        Self { session: None, history, judge, otherwise: Otherwise::NewSession, in_words: None }
    }
}

impl PartialEq for Resent {
    /// Judges are not compared.
    fn eq(&self, other: &Self) -> bool {
        let Self { session, history, judge: _, otherwise, in_words } = self;
        (session, history, otherwise, in_words) == (&other.session, &other.history, &other.otherwise, &other.in_words)
    }
}

impl Eq for Resent {}

/// Handling of a request that names a session with another history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Otherwise {
    /// The named session stays unchanged, and a new session begins. The engine finds it by the same name in later
    /// requests.
    #[default]
    NewSession,
    /// The named session begins again, for the agent as well: the client's history replaces its own. A session that a
    /// client created with items ([`crate::call::SessionCall::Create`]) is not replaced: a new session begins.
    BeginAgain,
}

/// Compares a client's history with a run. Adapters implement it because clients store answers in the form of their
/// protocol.
pub trait HistoryJudge: Debug + Send + Sync {
    /// True if the client's history ends with the answer of the latest turn of this run, or with the question about one
    /// of its items that the client saw again later. [`crate::Run::pending`] has all items of the turn;
    /// [`RunView::pending`] only those that are still open.
    fn ends_with(&self, latest: RunView<'_>) -> bool;
}
