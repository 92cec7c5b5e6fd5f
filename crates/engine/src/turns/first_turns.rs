//! Starting runs: the session, the request, the record, and the task that drives it.
//!
//! Not here: later turns of a run ([`super::later_turns`]), and what the task does ([`super::driver`]).

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::call::{ATTACHMENTS, Busy, RunInfo, RunState, Tags, Thread, attachment_key};
use interlingua_core::model::{AgentRequest, Input};
use interlingua_core::policy::FirstResponse;
use interlingua_core::{Delivery, Fault, FaultKind, Json, Record, Run, RunCall, RunId};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::canceller::Canceller;
use super::claims::HeldClaim;
use super::context::Outcome;
use super::driver::{Beginning, Driver};
use super::later_turns::LaterTurns;
use super::respond::Wanted;
use super::session_choice::{Chosen, SessionChooser};
use super::spent;
use crate::agent::{Agent, Agents};
use crate::complete::complete;
use crate::faults::store_fault;
use crate::limits::Limits;
use crate::runs::{
    AbortGuard, ActiveRun, Answer, Follower, Place, RunHandle, RunTable, Scope, Spoken, Turn, TurnPermits,
    owner_of_new_run,
};
use crate::sessions::{Session, TurnGuard};
use crate::{faults, stored_json};
use interlingua_base::clock;
use interlingua_store::{Claim, Expect, Health, Journal, Store, StoreFuture};

/// How long the turn of a run that has ended takes to be free at most.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(100);

/// Starts runs.
pub(crate) struct FirstTurns {
    pub(crate) agents: Arc<Agents>,
    pub(crate) runs: Arc<RunTable>,
    pub(crate) sessions: SessionChooser,
    pub(crate) canceller: Arc<Canceller>,
    pub(crate) driver: Arc<Driver>,
    pub(crate) later_turns: LaterTurns,
    pub(crate) limits: Limits,
}

/// What of a call concerns the run, and not its first turn.
struct NewRun {
    id: RunId,
    delivery: Delivery,
    previous: Option<RunId>,
    labels: Json,
    tags: Tags,
}

/// Where a turn stands.
enum Placed {
    At(Place),
    /// Nowhere: the session waits for answers to what this run asked.
    Waiting(RunHandle, Option<String>),
}

impl FirstTurns {
    /// Starts a turn, of a new run unless the call continues one.
    pub(crate) async fn start(&self, mut call: RunCall, scope: &Scope) -> Result<Answer, Fault> {
        // Until the call is answered: the run can be found by then.
        let _claim = HeldClaim::hold(self.runs.store(), call.claim.clone(), scope).await?;
        let agent = self.agents.offered(&call.agent, &scope.agents, &scope.denied)?;
        if self.runs.len() >= self.limits.runs {
            return Err(Fault::new(FaultKind::Overloaded, "too many runs are under way"));
        }

        call.policy = call.policy.for_delivery(call.delivery);
        call.policy.detached |= scope.detach;
        let policy = call.policy;
        // While the store fails, only runs that need not be stored are started.
        let store_fails = matches!(self.runs.store().health(), Health::Failing { .. });
        if store_fails && (policy.stored || policy.detached || matches!(call.thread, Thread::Continue(_))) {
            return Err(faults::store_unavailable());
        }

        spent::check(self.runs.store(), &scope.caller).await?;
        if let Thread::Continue(id) = call.thread {
            return self.later_turns.start(id, call, &agent, scope).await;
        }

        if call.thread == Thread::New && self.agents.is_draining(&agent.name) {
            // Nothing can wait for an answer in a conversation that is about to begin.
            return Err(faults::draining(&agent.name));
        }

        let mut permits = TurnPermits::begin(&scope.caller, &agent)?;
        let (id, delivery) = (call.id.unwrap_or_else(clock::new_id), call.delivery);
        let labels = std::mem::replace(&mut call.labels, Json::null());
        let (tags, attachments) = (std::mem::take(&mut call.tags), std::mem::take(&mut call.attachments));
        let thread = std::mem::replace(&mut call.thread, Thread::New);
        let mut spoken = Spoken::from(call);
        let chosen = self.sessions.choose(thread, &mut spoken, &policy, &agent, scope).await?;
        let Chosen { session, previous, guard, named } = chosen;
        let remembered = named.map(|named| (named, Arc::clone(&session)));
        let place = match self.place(&session, guard, &agent, &spoken, policy.busy, scope).await? {
            Placed::At(place) => place,
            Placed::Waiting(run, reason) => return Ok(Answer::Waiting(run, reason)),
        };

        let is_behind = matches!(place, Place::Behind(_));
        if is_behind {
            permits.queue()?;
        }

        let (mut turn, started) = Turn::new(session, Arc::clone(&agent), scope.origin(), place, policy, spoken);
        turn.permits = Some(permits);

        let run = new_run(&agent, &mut turn, NewRun { id, delivery, previous, labels, tags }, scope);
        let (follower, saved) = self.launch(&run, turn, store_fails, scope);
        // Written after the run: what has no run is never deleted.
        let attached = attach(self.runs.store(), id, attachments, scope);
        if let Some((named, session)) = remembered {
            self.remember(named, session).await;
        }
        attached.await?;
        if let Some(saved) = saved {
            // A run that is answered before its end is safe before it is answered.
            saved.await.unwrap_or_else(|_| Err(faults::internal()))?;
        }

        let first_event_timeout = match policy.first_response {
            FirstResponse::AwaitAgent { timeout: Some(_) } if is_behind => Duration::ZERO,
            response => response.timeout().unwrap_or(scope.first_event_timeout),
        };

        Wanted { delivery, policy, first_event_timeout, turn: 0 }.respond(follower, started).await
    }

    /// Notes which of the conversations of a name is used. The client's next request finds it, also if the client
    /// leaves meanwhile.
    async fn remember(&self, named: Arc<Session>, session: Arc<Session>) {
        let sessions = Arc::clone(&self.sessions.resent);
        let remembered = complete(async move { sessions.remember(&named, &session).await }).await;
        if let Err(fault) = remembered {
            tracing::warn!(
                code = fault.code(),
                "cannot store which session continues the conversation that the client named: {fault}"
            );
        }
    }

    /// Takes the session's turn, unless that was done, and prepares the request, or joins the queue.
    async fn place(
        &self,
        session: &Arc<Session>,
        guard: Option<TurnGuard>,
        agent: &Agent,
        spoken: &Spoken,
        busy: Option<Busy>,
        scope: &Scope,
    ) -> Result<Placed, Fault> {
        let sessions = self.runs.sessions();
        let guard = match guard {
            Some(guard) => Some(guard),
            None => sessions.try_turn(session, None).await?,
        };
        let guard = match guard {
            // A client that has seen the end of a run may be faster than what comes after it.
            None if self.is_ending(session) => {
                let queued = sessions.enqueue(session, None, usize::MAX).await?;
                timeout(RELEASE_TIMEOUT, sessions.turn_of(queued)).await.ok().transpose()?
            }
            guard => guard,
        };
        if self.agents.is_draining(&agent.name) && !(guard.is_some() && waits(session)) {
            return Err(faults::draining(&agent.name));
        }
        let Some(guard) = guard else {
            match busy {
                Some(Busy::Queue) => {}
                Some(interrupts @ (Busy::Interrupt | Busy::Rollback)) => {
                    let (canceller, session, scope) = (Arc::clone(&self.canceller), Arc::clone(session), scope.clone());
                    // A client that leaves meanwhile must not leave a run half deleted.
                    complete(async move { canceller.interrupt(&session, interrupts == Busy::Rollback, &scope).await })
                        .await?;
                }
                None if agent.queue_turns => {}
                Some(Busy::Refuse) | None => return Err(faults::busy(&session.id)),
            }
            let queued = sessions.enqueue(session, None, self.limits.queued_turns).await?;
            return Ok(Placed::At(Place::Behind(queued)));
        };

        match self.driver.turns().context.prepare(session, agent, spoken).await? {
            Outcome::Ready(prepared) => Ok(Placed::At(Place::Ready(guard, prepared))),
            Outcome::Waiting(asked_by, reason) => {
                let run = match asked_by {
                    Some(id) => self.runs.find(id).await?,
                    None => None,
                };
                run.map(|run| Placed::Waiting(run, reason)).ok_or_else(faults::waiting)
            }
        }
    }

    /// True if no run of a session has its turn, or waits for it: the last one lets go of it.
    fn is_ending(&self, session: &Session) -> bool {
        let latest = session.doc().latest.and_then(|latest| self.runs.get(latest));
        latest.is_none_or(|run| !run.run_state().is_working())
    }

    /// Makes a run known and starts its task. Returns what its client follows, and what resolves once the run is safe
    /// if the client waits for that.
    ///
    /// Invariant: nothing is awaited here, so this is not async. A client may leave at every await, which drops the
    /// call; a run that is known by then would never be driven, nor end.
    fn launch(
        &self,
        run: &Arc<ActiveRun>,
        turn: Turn,
        store_fails: bool,
        scope: &Scope,
    ) -> (Follower, Option<oneshot::Receiver<Result<(), Fault>>>) {
        let abort_guard = AbortGuard::new(&self.runs, run);
        self.runs.insert(run);
        // A caller that reads the session, or deletes it, finds this run under way.
        turn.session.note_started(run.id());

        let is_background = run.view(|view| view.info.delivery == Delivery::Background);
        let (saved, saved_receiver) = if is_background { Some(oneshot::channel()).unzip() } else { (None, None) };
        let beginning = Beginning {
            opened: self.open(run, store_fails),
            saved,
            scope: scope.push.is_some().then(|| Box::new(scope.clone())),
            connection: scope.connection.as_ref().map(Arc::downgrade),
        };

        let handle = RunHandle::InMemory(run.pin());
        let follower = if turn.policy.detached {
            Follower::new(&self.runs, handle)
        } else {
            Follower::attached(&self.runs, handle)
        };

        self.driver.start(abort_guard, Box::new(turn), Some(beginning));
        (follower, saved_receiver)
    }

    fn open(&self, run: &Arc<ActiveRun>, store_fails: bool) -> StoreFuture<()> {
        if store_fails {
            // Nothing of such a run is to be found later, so there is nothing to wait for.
            run.committed(u64::MAX);
            return Box::pin(std::future::ready(Ok(())));
        }
        self.runs.store().open(&run.journal(), Claim::New)
    }
}

/// True if a session waits for answers: what goes on there belongs to the run that asked, also while its agent drains.
fn waits(session: &Session) -> bool {
    session.doc().waiting.open().next().is_some()
}

/// Writes the attachments of a run. They are on their way before the future is polled.
fn attach(
    store: &Arc<dyn Store>,
    run: RunId,
    attachments: Vec<(&'static str, Json)>,
    scope: &Scope,
) -> impl Future<Output = Result<(), Fault>> + use<> {
    let write = |(name, value): (&str, Json)| {
        let key = scope.document_key(&attachment_key(run, name));
        store.put(ATTACHMENTS, &key, stored_json::to_bytes(&value), Expect::Any, clock::now())
    };
    let writes: Vec<_> = attachments.into_iter().map(write).collect();
    async move {
        for write in writes {
            let _ = write.await.map_err(|error| store_fault(&error))?;
        }
        Ok(())
    }
}

fn new_run(agent: &Arc<Agent>, turn: &mut Turn, new: NewRun, scope: &Scope) -> Arc<ActiveRun> {
    let NewRun { id, delivery, previous, labels, tags } = new;
    let now = clock::now();
    let input = turn.take_input();
    let mut record = Record::new(Run::new(id, agent.name.clone(), turn.session.id.clone(), now));
    record.start_turn(input);
    let about = RunInfo {
        protocol: scope.protocol.to_owned(),
        owner: scope.owner.key().to_owned(),
        state: RunState::Queued,
        changed_at: now,
        previous,
        delivery,
        stored: turn.policy.stored,
        request: AgentRequest { input: Input::default(), ..turn.spoken.request.clone() },
        labels,
        tags,
        retention: owner_of_new_run(agent, &turn.session, scope),
    };

    ActiveRun::new(Arc::clone(agent), record, about)
}
