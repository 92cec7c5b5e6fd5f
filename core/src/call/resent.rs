//! Conversations of clients that send all of it with each request: what they send, and how the engine finds out which
//! session it is about.
//!
//! Not here: finding it (the engine), and how a protocol shows an answer (its adapter, which is asked to compare).

use std::fmt::Debug;
use std::sync::Arc;

use crate::answer::Answer;
use crate::call::RunView;
use crate::model::Message;

/// What a client sends of a conversation besides what is new. The engine continues the session
///
/// 1. in which an open item was asked that the request answers, in its input, in [`crate::RunCall::answers`] or in
///    words. For an output of a client's tool in the input, and for words, the history also has to end with what the
///    run that asked has answered: the same id may stand in several conversations;
/// 2. else the session that the client names, or another one that began under this name, if the history ends as it
///    does;
/// 3. else a new session, of the client's name if that is free, or as [`Resent::otherwise`] says.
///
/// Only a session that begins gets the history, in front of what is new. [`crate::RunCall::preamble`] has what belongs
/// to this request only, such as instructions.
#[derive(Clone, Debug)]
pub struct Resent {
    /// The session that the client names, if it does.
    pub session: Option<String>,
    /// What the client says was said before, oldest first, up to the agent's last words.
    pub history: Vec<Message>,
    /// Compares the history with what the gateway knows.
    pub judge: Arc<dyn HistoryJudge>,
    /// What to do if the client names a session whose history is another.
    pub otherwise: Otherwise,
    /// For clients that answer in words: the answer that the input is, if its item is open. Then the input is not sent.
    /// If it is not open, the input is what it says, and this counts for nothing.
    pub in_words: Option<Answer>,
}

impl Resent {
    /// A conversation without a name.
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

/// What to do if a client names a session whose history is not the client's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Otherwise {
    /// The session stays as it is, and a new one begins. The engine finds it again under the same name.
    #[default]
    NewSession,
    /// The session begins again: with the client's history instead of its own, and for the agent as a new one.
    BeginAgain,
}

/// Compares what a client resends with what the gateway knows. Only the adapter can: a client has the answers as its
/// protocol shows them.
pub trait HistoryJudge: Debug + Send + Sync {
    /// True if the client's history ends with what the latest turn of this run answered, or with a question about one
    /// of its items as the client was asked again. Items may have been answered since: [`crate::Run::pending`] has all
    /// of them, [`RunView::pending`] only those that are still open.
    fn ends_with(&self, latest: RunView<'_>) -> bool;
}
