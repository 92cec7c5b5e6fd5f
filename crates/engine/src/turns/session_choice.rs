//! Choice of the session of a new run, and of the run that it follows.

use std::sync::Arc;

use interlingua_core::call::{Otherwise, Resent, Target, Thread};
use interlingua_core::{Fault, RunId, RunPolicy};

use crate::agent::Agent;
use crate::pending::{MatchedSession, PendingIndex, ResentChooser};
use crate::runs::{RunAccess, Scope, Spoken};
use crate::sessions::{Basis, Session, SessionTable, TurnGuard};

/// The maximum length of a session id from a client, in bytes.
const MAX_SESSION_ID: usize = 512;

pub(crate) struct SessionChooser {
    pub(crate) sessions: Arc<SessionTable>,
    pub(crate) access: Arc<RunAccess>,
    pub(crate) pending_index: Arc<PendingIndex>,
    pub(crate) resent: Arc<ResentChooser>,
}

/// The session of a new run.
pub(super) struct SessionChoice {
    pub(crate) session: Arc<Session>,
    /// The run that it follows in the session.
    pub(super) previous: Option<RunId>,
    /// The turn of the session, if it was acquired to choose the session.
    pub(super) guard: Option<TurnGuard>,
    /// The session that the client named, if the client sends the whole conversation with each request.
    pub(super) named: Option<Arc<Session>>,
}

impl SessionChoice {
    const fn new(session: Arc<Session>, previous: Option<RunId>) -> Self {
        Self { session, previous, guard: None, named: None }
    }

    /// A run that follows the latest run of the session.
    fn after_latest(session: Arc<Session>) -> Self {
        let previous = session.latest();
        Self::new(session, previous)
    }
}

/// The run that a new run follows.
struct Previous {
    session: String,
    user: Option<String>,
    agent: String,
    is_stored: bool,
    is_over: bool,
}

/// The parts of a request for a new run that decide about its session.
#[derive(Clone, Copy)]
struct RunContext<'a> {
    agent: &'a Agent,
    scope: &'a Scope,
    /// True if the run is not stored but kept by its connection.
    ends_with_connection: bool,
    /// True if the run is not stored or kept anywhere, and no client can name a session that is created for it.
    is_unnamed: bool,
}

impl SessionChooser {
    /// Chooses the session of a new run, and sets the history that it continues ([`Spoken::basis`]). A run that answers
    /// an open item joins the session of that item.
    pub(super) async fn choose(
        &self,
        thread: Thread,
        spoken: &mut Spoken,
        policy: &RunPolicy,
        agent: &Agent,
        scope: &Scope,
    ) -> Result<SessionChoice, Fault> {
        let ends_with_connection = scope.keeps_in_connection(policy);
        // The session of a resent conversation is found by that conversation.
        let is_resent = matches!(thread, Thread::Resent(_));
        let is_unnamed = !policy.stored && !ends_with_connection && !is_resent;
        let context = RunContext { agent, scope, ends_with_connection, is_unnamed };
        match thread {
            Thread::New | Thread::Continue(_) => {
                if let Some(session) = self.pending_index.session_of_answers(spoken, agent, &scope.owner).await? {
                    return Ok(SessionChoice::after_latest(session));
                }
                Ok(SessionChoice::new(self.create(context), None))
            }
            Thread::Session(id) => {
                let session = self.named(&id, spoken, context).await?;
                if context.ends_with_connection {
                    session.keep_in_memory();
                }
                Ok(SessionChoice::after_latest(session))
            }
            Thread::After(run) => {
                spoken.basis = Basis::After(run);
                self.after(run, context).await
            }
            Thread::Resent(resent) => self.resent(*resent, spoken, context).await,
        }
    }

    /// The session that matches the conversation of the client, or a session that begins with that conversation.
    async fn resent(
        &self,
        resent: Resent,
        spoken: &mut Spoken,
        context: RunContext<'_>,
    ) -> Result<SessionChoice, Fault> {
        let named = match &resent.session {
            Some(id) => Some(self.named(id, spoken, context).await?),
            None => None,
        };

        let RunContext { agent, scope, .. } = context;
        let chosen = match self.resent.find(&resent, named.as_ref(), spoken, agent, &scope.owner).await? {
            Some(MatchedSession { session, is_exact }) => {
                spoken.basis = Basis::Resent { history: resent.history, is_exact };
                SessionChoice::after_latest(session)
            }
            None => {
                spoken.basis = Basis::Begins(resent.history);
                self.begin(named.as_ref(), resent.otherwise, context).await?
            }
        };

        Ok(SessionChoice { named, ..chosen })
    }

    /// The session that begins with the conversation of the client: the named session if it can be used, or a new one.
    async fn begin(
        &self,
        named: Option<&Arc<Session>>,
        otherwise: Otherwise,
        context: RunContext<'_>,
    ) -> Result<SessionChoice, Fault> {
        if let Some(named) = named {
            let guard = self.sessions.try_first_turn(named).await?;
            // Never overwrite a session that was created by a call about sessions.
            let begins_again = otherwise == Otherwise::BeginAgain && !named.is_conversation();
            if guard.is_some() || begins_again {
                return Ok(SessionChoice { guard, ..SessionChoice::new(Arc::clone(named), None) });
            }
        }

        Ok(SessionChoice::new(self.create(context), None))
    }

    fn create(&self, context: RunContext<'_>) -> Arc<Session> {
        let session = self.sessions.create(&context.agent.name, &context.scope.owner);
        if context.is_unnamed {
            session.keep_for_run();
        } else if context.ends_with_connection {
            session.keep_in_memory();
        }
        session
    }

    /// The session of a name, or of the user that the request names if another user has a session of that name.
    async fn named(&self, id: &str, spoken: &Spoken, context: RunContext<'_>) -> Result<Arc<Session>, Fault> {
        if id.is_empty() || id.len() > MAX_SESSION_ID {
            let message = format!("must have between 1 and {MAX_SESSION_ID} characters");
            return Err(Fault::invalid("session_id", message));
        }
        let user = spoken.request.user_id.as_deref();
        self.sessions.of_user(&context.agent.name, &context.scope.owner, id, user).await
    }

    /// The session of the run `run`, or a new branch if another run already followed it there.
    async fn after(&self, run: RunId, context: RunContext<'_>) -> Result<SessionChoice, Fault> {
        let RunContext { agent, scope, .. } = context;
        let unknown = || Fault::not_found("the run to continue from").with_field("thread");
        let handle = self.access.find(&Target::Run(run), scope).await.map_err(|_| unknown())?;
        let previous = handle.view(|view| {
            let (run, about) = (view.run(), view.info);
            Previous {
                session: run.session_id.clone(),
                user: about.request.user_id.clone(),
                agent: run.agent.clone(),
                is_stored: about.stored,
                is_over: run.end.is_some(),
            }
        });

        let kept = scope.connection.as_ref().and_then(|connection| connection.session_of(run));
        if !(previous.is_stored || kept.is_some()) || previous.agent != agent.name {
            return Err(unknown());
        }

        // A turn that ends with its connection does not join a stored session, where it would be missing later, unless
        // the session has open items that the turn may answer.
        let would_be_missing = kept.is_none() && context.ends_with_connection;
        let session = match kept {
            Some(session) => session,
            None => {
                let user = previous.user.as_deref();
                self.sessions.of_user(&agent.name, &scope.owner, &previous.session, user).await?
            }
        };

        // If that run has not ended, the new run joins its session and waits in the queue.
        let is_newest = !previous.is_over || session.last_run() == Some(run);
        let is_separate = would_be_missing && !session.has_open_item();
        let joins = is_newest && !is_separate;
        let session = if joins { session } else { self.create(context) };
        Ok(SessionChoice::new(session, Some(run)))
    }
}
