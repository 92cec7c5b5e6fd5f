//! Which session a new run belongs to, and which run it follows.

use std::sync::Arc;

use interlingua_core::call::{Target, Thread};
use interlingua_core::{Fault, Owner, RunId, RunPolicy};

use super::agent::Agent;
use super::pending_index::PendingIndex;
use super::run_access::RunAccess;
use super::scope::Scope;
use super::session::Session;
use super::session_table::SessionTable;
use super::turn::Spoken;

/// The longest session id that a client may choose, in bytes.
const MAX_SESSION_ID: usize = 512;

/// Chooses sessions.
pub(super) struct SessionChooser {
    pub(super) sessions: Arc<SessionTable>,
    pub(super) access: Arc<RunAccess>,
    pub(super) pending_index: Arc<PendingIndex>,
}

/// The session a run belongs to, and the run it follows there.
type Chosen = (Arc<Session>, Option<RunId>);

/// A run to continue from.
struct Previous {
    session: String,
    user: Option<String>,
    agent: String,
    is_stored: bool,
    is_over: bool,
}

impl SessionChooser {
    /// Chooses the session of a new run. One that answers an open item joins the session where that was asked.
    pub(super) async fn choose(
        &self,
        spoken: &mut Spoken,
        policy: &RunPolicy,
        agent: &Agent,
        scope: &Scope,
    ) -> Result<Chosen, Fault> {
        match spoken.thread.clone() {
            Thread::New | Thread::Continue(_) => {
                if let Some(session) = self.pending_index.session_of_answers(spoken, agent, &scope.owner).await? {
                    spoken.thread = Thread::Session(session.id.clone());
                    let previous = session.doc().latest;
                    return Ok((session, previous));
                }
                Ok((self.create(policy, agent, scope), None))
            }
            Thread::Session(id) => {
                let user = spoken.request.user_id.as_deref();
                let session = self.named(&id, user, agent, &scope.owner).await?;
                if scope.keeps_in_connection(policy) && session.is_blank() {
                    session.keep_in_memory();
                }
                let previous = session.doc().latest;
                Ok((session, previous))
            }
            Thread::After(run) => self.after(run, policy, agent, scope).await,
        }
    }

    fn create(&self, policy: &RunPolicy, agent: &Agent, scope: &Scope) -> Arc<Session> {
        let session = self.sessions.create(&agent.name, &scope.owner);
        if scope.keeps_in_connection(policy) {
            session.keep_in_memory();
        }
        session
    }

    async fn named(&self, id: &str, user: Option<&str>, agent: &Agent, owner: &Owner) -> Result<Arc<Session>, Fault> {
        if id.is_empty() || id.len() > MAX_SESSION_ID {
            let message = format!("must have between 1 and {MAX_SESSION_ID} characters");
            return Err(Fault::invalid("session_id", message));
        }
        self.sessions.of_user(&agent.name, owner, id, user).await
    }

    /// The session of the run to continue from, or a new one if something else followed there: a branch.
    async fn after(&self, run: RunId, policy: &RunPolicy, agent: &Agent, scope: &Scope) -> Result<Chosen, Fault> {
        let unknown = || Fault::not_found("the run to go on from").with_field("thread");
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

        // A turn that ends with its connection does not join a session that stays, where it would be missing later;
        // unless it answers what was asked there.
        let would_be_missing = kept.is_none() && scope.keeps_in_connection(policy);
        let session = match kept {
            Some(session) => session,
            None => {
                let user = previous.user.as_deref();
                self.sessions.of_user(&agent.name, &scope.owner, &previous.session, user).await?
            }
        };

        // While that run is under way its end is waited for: that is what the queue is for.
        let is_newest = !previous.is_over || session.doc().ends_with(run);
        let leaves = would_be_missing && session.doc().waiting.open().next().is_none();
        if is_newest && !leaves {
            return Ok((session, Some(run)));
        }

        Ok((self.create(policy, agent, scope), Some(run)))
    }
}
