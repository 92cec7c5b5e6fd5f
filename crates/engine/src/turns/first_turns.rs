//! Starting runs: the session, the request, the record, and the task that drives it.
//!
//! Not here: later turns of a run ([`super::later_turns`]), and what the task does ([`super::driver`]).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core::call::{ATTACHMENTS, Busy, RunInfo, RunState, Thread, attachment_key};
use interlingua_core::model::{AgentRequest, Input};
use interlingua_core::policy::FirstResponse;
use interlingua_core::{Delivery, Fault, FaultKind, Json, Record, Run, RunCall, RunId, RunPolicy};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::canceller::Canceller;
use super::claims::HeldClaim;
use super::context::Outcome;
use super::driver::{Driver, RunStart};
use super::later_turns::LaterTurns;
use super::respond::Wanted;
use super::session_choice::{SessionChoice, SessionChooser};
use super::spent;
use crate::agent::{Agent, Agents};
use crate::complete::complete;
use crate::faults::store_fault;
use crate::limits::Limits;
use crate::runs::{
    AbortGuard, ActiveRun, Answer, Follower, Place, Publish, RunHandle, RunTable, Scope, Spoken, Turn, TurnPermits,
    owner_of_new_run,
};
use crate::sessions::{Session, TurnGuard};
use crate::{faults, stored_json};
use interlingua_base::clock;
use interlingua_store::{Claim, Expect, Health, Journal, Store, StoreFuture};

/// The maximum time until the turn of a run that has ended is free.
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

/// A first turn in preparation: its session is chosen, and a place in the session's queue completes it.
struct TurnPlan {
    agent: Arc<Agent>,
    session: Arc<Session>,
    /// The session's turn, where it was acquired to choose the session.
    guard: Option<TurnGuard>,
    id: RunId,
    info: RunInfo,
    spoken: Spoken,
    policy: RunPolicy,
    permits: TurnPermits,
    attachments: Vec<(&'static str, Json)>,
}

/// A call whose run has started, or that needs none.
#[allow(clippy::large_enum_variant, reason = "it lives for one call")]
enum StartedCall {
    Answered(Answer),
    Waiting {
        wanted: Wanted,
        follower: Follower,
        started: oneshot::Receiver<Result<(), Fault>>,
        /// Held until the call is answered: the run can be found by then.
        claim: Option<HeldClaim>,
    },
}

impl FirstTurns {
    /// Starts a turn, of a new run unless the call continues one.
    pub(crate) async fn start(&self, call: Box<RunCall>, scope: &Scope) -> Result<Answer, Fault> {
        // In a box of its own: a call that waits for its agent needs no memory for the start of the run.
        match Box::pin(self.begin(call, scope)).await? {
            StartedCall::Answered(answer) => Ok(answer),
            StartedCall::Waiting { wanted, follower, started, claim: _claim } => {
                wanted.respond(follower, started).await
            }
        }
    }

    async fn begin(&self, mut call: Box<RunCall>, scope: &Scope) -> Result<StartedCall, Fault> {
        let claim = HeldClaim::hold(self.runs.store(), call.claim.clone(), scope).await?;
        let agent = self.agents.offered(&call.agent, &scope.agents)?;
        if self.runs.len() >= self.limits.runs {
            return Err(Fault::new(FaultKind::Overloaded, "too many runs are under way"));
        }

        call.policy = call.policy.for_delivery(call.delivery);
        call.policy.detached |= scope.detach;
        let (delivery, policy) = (call.delivery, call.policy);
        // While the store fails, only runs that need not be stored are started.
        let store_fails = matches!(self.runs.store().health(), Health::Failing { .. });
        if store_fails && (policy.stored || policy.detached || matches!(call.thread, Thread::Continue(_))) {
            return Err(faults::store_unavailable());
        }

        spent::check(self.runs.store(), &scope.caller).await?;
        if let Thread::Continue(id) = call.thread {
            return self.later_turns.start(id, *call, &agent, scope).await.map(StartedCall::Answered);
        }

        if call.thread == Thread::New && self.agents.is_draining(&agent.name) {
            // Nothing can wait for an answer in a conversation that is about to begin.
            return Err(faults::draining(&agent.name));
        }

        let (mut plan, named) = self.plan(call, agent, scope).await?;
        let place = match self.place(&mut plan, scope).await? {
            ControlFlow::Continue(place) => place,
            ControlFlow::Break(answer) => return Ok(StartedCall::Answered(answer)),
        };

        let first_event_timeout = match policy.first_response {
            FirstResponse::AwaitAgent { timeout: Some(_) } if matches!(place, Place::Behind(_)) => Duration::ZERO,
            response => response.timeout().unwrap_or(scope.first_event_timeout),
        };
        let remembered = named.map(|named| (named, Arc::clone(&plan.session)));
        let (follower, started, saved) = self.launch(plan, place, store_fails, scope);
        if let Some((named, session)) = remembered {
            self.remember(named, session).await;
        }

        saved.await?;
        let wanted = Wanted { delivery, policy, first_event_timeout, turn: 0, is_duplicate: false };
        Ok(StartedCall::Waiting { wanted, follower, started, claim })
    }

    /// Counts the turn and chooses its session. Returns the session that the client named, too, if it resends its
    /// conversation.
    async fn plan(
        &self,
        call: Box<RunCall>,
        agent: Arc<Agent>,
        scope: &Scope,
    ) -> Result<(TurnPlan, Option<Arc<Session>>), Fault> {
        let permits = TurnPermits::begin(&scope.caller, &agent)?;
        let RunCall { id, delivery, thread, policy, labels, tags, attachments, .. } = *call;
        let mut spoken = Spoken::new(call.request, call.preamble, call.answers, call.answer_policy);
        let chosen = self.sessions.choose(thread, &mut spoken, &policy, &agent, scope).await?;
        let SessionChoice { session, previous, guard, named } = chosen;
        let info = RunInfo {
            protocol: scope.protocol.to_owned(),
            owner: scope.owner.key().to_owned(),
            state: RunState::Queued,
            changed_at: clock::now(),
            previous,
            delivery,
            stored: policy.stored,
            request: AgentRequest { input: Input::default(), ..spoken.request.clone() },
            labels,
            tags,
            retention: None,
        };
        let id = id.unwrap_or_else(clock::new_id);
        Ok((TurnPlan { agent, session, guard, id, info, spoken, policy, permits, attachments }, named))
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

    /// Acquires the session's turn, unless that was done, and prepares the request, or joins the queue. Breaks with the
    /// answer if the session waits for answers to the questions of another run.
    async fn place(&self, plan: &mut TurnPlan, scope: &Scope) -> Result<ControlFlow<Answer, Place>, Fault> {
        let TurnPlan { agent, session, guard, spoken, policy, permits, .. } = plan;
        let sessions = self.runs.sessions();
        let guard = match guard.take() {
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
        // The run that asked in this session continues, also while its agent drains.
        let continues = || guard.is_some() && session.has_open_item();
        if self.agents.is_draining(&agent.name) && !continues() {
            return Err(faults::draining(&agent.name));
        }
        let Some(guard) = guard else {
            match policy.busy {
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
            permits.queue()?;
            return Ok(ControlFlow::Continue(Place::Behind(queued)));
        };

        match self.driver.turns().context.prepare(session, agent, spoken).await? {
            Outcome::Ready(prepared) => Ok(ControlFlow::Continue(Place::Ready(guard, prepared))),
            Outcome::Waiting(asked_by, reason) => {
                let asked_by = asked_by.ok_or_else(faults::waiting)?;
                let run = self.runs.find(asked_by).await?.ok_or_else(faults::waiting)?;
                if let RunHandle::InMemory(run) = &run {
                    // Some of its items may have their answers now.
                    let pending = session.pending_of(asked_by);
                    run.update(Publish::Later, |state| state.pending = pending);
                }
                Ok(ControlFlow::Break(Answer::Waiting(run, reason)))
            }
        }
    }

    /// True if no run of a session has its turn, or waits for it: the last one releases it.
    fn is_ending(&self, session: &Session) -> bool {
        let latest = session.latest().and_then(|latest| self.runs.get(latest));
        latest.is_none_or(|run| !run.run_state().is_working())
    }

    /// Makes a run known, starts its task, and writes the attachments. Returns the follower for its client, the report
    /// of its start, and a future that resolves once everything is safe that the answer to the client relies on.
    ///
    /// Invariant: nothing is awaited here, so this is not async. A client may leave at every await, which drops the
    /// call; a run that is known by then would never be driven, nor end.
    fn launch(
        &self,
        plan: TurnPlan,
        place: Place,
        store_fails: bool,
        scope: &Scope,
    ) -> (Follower, oneshot::Receiver<Result<(), Fault>>, impl Future<Output = Result<(), Fault>> + use<>) {
        let TurnPlan { agent, session, id, mut info, spoken, policy, permits, attachments, .. } = plan;
        // A run may wait before this for others of its session to be stopped. The session may become a conversation
        // meanwhile.
        info.changed_at = clock::now();
        info.retention = owner_of_new_run(&agent, &session, scope);
        let is_background = info.delivery == Delivery::Background;
        let (saved, saved_receiver) = is_background.then(oneshot::channel).unzip();
        let mut record = Record::new(Run::new(id, agent.name.clone(), session.id.clone(), info.changed_at));
        let (mut turn, started) = Turn::new(session, Arc::clone(&agent), scope.origin(), place, policy, spoken);
        turn.permits = Some(permits);
        record.start_turn(turn.take_input());
        let run = ActiveRun::new(agent, record, info);

        let abort_guard = AbortGuard::new(&self.runs, &run);
        self.runs.insert(&run);
        // A caller that reads the session, or deletes it, finds this run under way.
        turn.session.note_started(id);

        let start = RunStart {
            opened: self.open(&run, store_fails),
            saved,
            scope: scope.push.is_some().then(|| Box::new(scope.clone())),
            connection: scope.connection.as_ref().map(Arc::downgrade),
        };

        let handle = RunHandle::InMemory(run.pin());
        let follower =
            if policy.detached { Follower::new(&self.runs, handle) } else { Follower::attached(&self.runs, handle) };

        self.driver.start(abort_guard, Box::new(turn), start);
        // Written after the run: an attachment without a run is never deleted.
        let attached = attach(self.runs.store(), id, attachments, scope);
        let safe = async move {
            attached.await?;
            match saved_receiver {
                // A run that is answered before its end is safe before it is answered.
                Some(saved) => saved.await.unwrap_or_else(|_| Err(Fault::internal())),
                None => Ok(()),
            }
        };
        (follower, started, safe)
    }

    fn open(&self, run: &Arc<ActiveRun>, store_fails: bool) -> StoreFuture<()> {
        if store_fails {
            // No part of such a run can be read later, so nothing has to be waited for.
            run.committed(u64::MAX);
            return Box::pin(std::future::ready(Ok(())));
        }
        self.runs.store().open(&run.journal(), Claim::New)
    }
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
