//! Later turns of a run: an answer to a waiting run starts its next turn, and a message to a working run is queued.
//!
//! A queued turn starts, or ends with a fault that is logged. The run records the fault if the turn is refused when it
//! could start. Not here: first turns ([`super::first_turns`]), the count of queued turns ([`QueuedTurn`]), and taking
//! turns ([`super::turn_driver`]).

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::call::{Busy, RunState, Target};
use interlingua_core::event::Millis;
use interlingua_core::model::{AgentRequest, Input};
use interlingua_core::pending::Pending;
use interlingua_core::{Delivery, End, Fault, FaultKind, Json, Run, RunCall, RunId, run};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::context::Outcome;
use super::driver::Driver;
use super::respond::Wanted;
use crate::agent::Agent;
use crate::backoff::Backoff;
use crate::complete::complete;
use crate::deliveries::{Deliveries, StartReason};
use crate::faults;
use crate::pending::RunLinker;
use crate::runs::{
    ActiveRun, Answer, Follower, HeldRun, Place, Publish, QueuedTurn, RunAccess, RunHandle, RunTable, Scope, Spoken,
    State, Turn, TurnPermits, WaitEnd, commit, follow,
};
use crate::sessions::Session;
use interlingua_base::clock;

/// The maximum number of turns of a run: their input is in memory while the run is.
const MAX_TURNS: usize = 4096;

/// Time that another replica has to release a run after its turn. After that the turn joins the queue again: the other
/// replica may have another turn of the run.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause before the next attempt to load such a run.
const RELEASE_INTERVAL: Duration = Duration::from_millis(20);

/// Starts later turns.
#[derive(Clone)]
pub(crate) struct LaterTurns {
    pub(crate) runs: Arc<RunTable>,
    pub(crate) access: Arc<RunAccess>,
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) linker: Arc<RunLinker>,
    pub(crate) driver: Arc<Driver>,
    /// The maximum number of turns that wait for another one of their session.
    pub(crate) queued_turns: usize,
}

/// The result of a launch.
enum LaunchResult {
    /// The turn has this index in its run. `is_ready`: its request can be sent at once.
    Started { number: usize, is_ready: bool },
    /// A request with the same message started the turn of this index.
    Duplicate(usize),
    /// Another turn goes first.
    Overtaken(Box<Turn>),
}

/// The result of a queued turn.
enum QueueEnd {
    /// The turn has this index in its run.
    Started(usize),
    /// A request with the same message started the turn of this index.
    Duplicate(usize),
    /// The run was canceled or failed, which drops its queued turns.
    RunEnded,
}

impl LaterTurns {
    /// Starts one more turn of a waiting run, or queues it behind the turn under way.
    pub(crate) async fn start(
        &self,
        id: RunId,
        call: RunCall,
        agent: &Arc<Agent>,
        scope: &Scope,
    ) -> Result<Answer, Fault> {
        let found = self.access.find(&Target::Run(id), scope).await?;
        // The follower is dropped first: a run that is released without followers needs no copy.
        let (held, follower) = match self.follow_working(&found)? {
            Some(follower) => (None, follower),
            None => {
                let held = self.runs.activate(found).await?;
                let run = held.handle();
                let follower = if call.policy.detached {
                    Follower::new(&self.runs, run)
                } else {
                    Follower::attached(&self.runs, run)
                };
                (Some(held), follower)
            }
        };
        let Some(run) = follower.active_run().cloned() else { return Err(faults::run_not_found(id)) };
        check_continuable(&run)?;
        let permits = TurnPermits::begin(&scope.caller, agent)?;
        if held.is_some() {
            // Before the run takes its next step.
            self.deliveries.start(&run, StartReason::RunContinues, scope).await?;
        }

        let (delivery, policy, labels) = (call.delivery, call.policy, call.labels.clone());
        let claim_key = call.claim.as_ref().map(|claim| claim.key.clone());
        let session = self.runs.session_of(&RunHandle::InMemory(run.pin())).await?;
        // A route may name another agent than the run's.
        let agent = if agent.name == run.agent.name { agent } else { &run.agent };
        let spoken = Spoken::from(call);
        if held.is_none() {
            check_queueable(&session, &spoken, policy.busy, clock::now())?;
        }
        let place = self.queue(&session, id, self.queued_turns).await?;
        let (mut turn, started) =
            Turn::new(session, Arc::clone(agent), scope.origin(), place, policy.for_later_turn(), spoken);
        (turn.permits, turn.claim_key) = (Some(permits), claim_key);
        // No stream is held back for a turn that waits for its session.
        let mut wanted = Wanted { delivery, policy, first_event_timeout: Duration::ZERO, turn: 0, is_duplicate: false };

        if let Some(active) = &held {
            if active.run_state().is_waiting()
                && let Some((waiting, reason)) = self.prepare(active, agent, &mut turn).await?
            {
                return Ok(Answer::Waiting(waiting, reason));
            }
            match self.launch(active, turn, &labels, None)? {
                LaunchResult::Started { number, is_ready } => {
                    if is_ready {
                        let limit = policy.first_response.timeout();
                        wanted.first_event_timeout = limit.unwrap_or(scope.first_event_timeout);
                    }
                    wanted.turn = number;
                    return wanted.respond(follower, started).await;
                }
                LaunchResult::Duplicate(number) => {
                    // The next turn of the run may be queued at another gateway, which cannot take it while it is held.
                    drop(held);
                    (wanted.turn, wanted.is_duplicate) = (number, true);
                    return wanted.respond(follower, started).await;
                }
                LaunchResult::Overtaken(overtaken) => turn = *overtaken,
            }
            check_queueable(&turn.session, &turn.spoken, policy.busy, clock::now())?;
            if turn.is_ready() {
                turn.reopen_answers();
                // The turn under way needs the session's turn that this one has.
                turn.place = None;
                turn.place = Some(self.queue(&turn.session, id, self.queued_turns).await?);
            }
        }

        if let Some(permits) = &mut turn.permits {
            permits.queue()?;
        }
        let Some(queued) = QueuedTurn::join(&self.runs, &run, &turn.session) else {
            // The run has ended since it was found.
            wanted.turn = run.view(|view| number_of_same(view.run(), &turn)).ok_or_else(|| faults::run_ended(id))?;
            // This turn is not taken: its sender of `started` would keep the response waiting, its place the queue.
            drop((held, turn));
            return wanted.respond(follower, started).await;
        };
        drop(held);

        // The turn is taken even if its client disconnects.
        let (this, scope) = (self.clone(), scope.clone());
        let launched = complete(async move { this.launch_queued(queued, turn, &labels, &scope).await });
        respond_queued(wanted, launched, follower, started).await
    }

    /// Joins the queue of a session, if at most `limit` turns are in it.
    async fn queue(&self, session: &Arc<Session>, run: RunId, limit: usize) -> Result<Place, Fault> {
        Ok(Place::Behind(self.runs.sessions().enqueue(session, Some(run), limit).await?))
    }

    /// Joins the queue again, and only then gives up the old place: for other processes the run always has a queued
    /// turn. If the store fails, the turn has no place, and its next wait joins the queue.
    async fn queue_again(&self, turn: &mut Turn, run: RunId) {
        let place = self.queue(&turn.session, run, usize::MAX).await;
        turn.place = place.ok();
    }

    /// Follows a running run: the session's queue has the order of its next turns, from all processes. `None`: the run
    /// is not running, or no process drives it.
    fn follow_working(&self, run: &RunHandle) -> Result<Option<Follower>, Fault> {
        match run {
            _ if !run.run_state().is_working() => Ok(None),
            RunHandle::InMemory(_) => Ok(Some(Follower::new(&self.runs, run.clone()))),
            RunHandle::Stored(..) => follow::follow_elsewhere(&self.runs, run),
        }
    }

    /// Starts a queued turn once the turns before it have ended. Logs the reason if it does not start.
    async fn launch_queued(
        &self,
        queued: QueuedTurn,
        turn: Turn,
        labels: &Json,
        scope: &Scope,
    ) -> Result<QueueEnd, Fault> {
        let (run, session) = (Arc::clone(queued.run()), Arc::clone(&turn.session));
        let launched = self.launch_in_order(&queued, turn, labels, scope).await;
        // In a store of one process this ends a run that waited only for this turn.
        queued.leave().await;
        if !matches!(launched, Ok(QueueEnd::Started(_))) && self.runs.store().runs_move() {
            // The process that handed the run over may be lost.
            self.runs.watch_handover(run.id(), &session);
        }

        match &launched {
            Err(fault) => {
                let (code, detail) = (fault.code(), fault.detail.as_deref());
                tracing::warn!(run = %run.id(), code, detail, "a queued message gets no turn: {}", fault.message);
            }
            Ok(QueueEnd::RunEnded) => {
                tracing::info!(run = %run.id(), "a queued message gets no turn: its run has ended")
            }
            Ok(QueueEnd::Started(_) | QueueEnd::Duplicate(_)) => {}
        }
        launched.map_err(faults::logged)
    }

    /// Starts a queued turn once it is first in its queue and no other process has the run. While the store fails, it
    /// tries again.
    async fn launch_in_order(
        &self,
        queued: &QueuedTurn,
        mut turn: Turn,
        labels: &Json,
        scope: &Scope,
    ) -> Result<QueueEnd, Fault> {
        let mut backoff = Backoff::new();
        loop {
            let ready = match self.wait_for_run(queued, &mut turn).await {
                Ok(ready) => ready,
                Err(fault) if matches!(fault.kind, FaultKind::Overloaded | FaultKind::Busy | FaultKind::Restarted) => {
                    if fault.kind != FaultKind::Overloaded {
                        // Another process has the run, for a turn that may be behind this one; or the store has lost
                        // the place.
                        self.queue_again(&mut turn, queued.run().id()).await;
                    }
                    backoff.pause().await;
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            let Some((run, stopped)) = ready else { return over(queued.run()) };
            if let RunState::Ended(End::Canceled | End::Failed) = run.run_state() {
                return Ok(QueueEnd::RunEnded);
            }

            let is_stopped = stopped.is_some();
            let refused = match stopped {
                None if self.runs.is_stopped() => Some(faults::shutting_down()),
                None => self.begin_deliveries(&run, scope).await.err(),
                stopped => stopped,
            };
            match self.launch(&run, turn, labels, refused)? {
                LaunchResult::Started { number, .. } => return Ok(QueueEnd::Started(number)),
                LaunchResult::Duplicate(number) => return Ok(QueueEnd::Duplicate(number)),
                LaunchResult::Overtaken(overtaken) => turn = *overtaken,
            }

            if !is_stopped {
                // The turn that goes first may need the session's turn that this one has.
                self.queue_again(&mut turn, run.id()).await;
            }
            // Its place is behind that turn now, unless that turn needs none any more: its end is being written.
            run.release_until_turn_ended().await;
        }
    }

    /// Waits until the turn is first in its queue, or its run is stopped, and brings the run into memory. Also returns
    /// the reason if the run was stopped. `None`: the run is over.
    async fn wait_for_run(
        &self,
        queued: &QueuedTurn,
        turn: &mut Turn,
    ) -> Result<Option<(HeldRun, Option<Fault>)>, Fault> {
        let mut place = match turn.place.take() {
            Some(Place::Behind(place)) => place,
            _ => self.runs.sessions().enqueue(&turn.session, Some(queued.run().id()), usize::MAX).await?,
        };
        let end = queued.wait(&mut place).await;
        turn.place = Some(Place::Behind(place));
        let stopped = match end? {
            WaitEnd::First => None,
            WaitEnd::Stopped(reason) => Some(reason),
            WaitEnd::Over => return Ok(None),
        };

        let deadline = Instant::now() + RELEASE_TIMEOUT;
        loop {
            match self.runs.activate(RunHandle::InMemory(queued.run().pin())).await {
                // The process that ended the turn before is about to release the run.
                Err(fault) if fault.kind == FaultKind::Busy && Instant::now() < deadline => {
                    sleep(RELEASE_INTERVAL).await;
                }
                run => return Ok(Some((run?, stopped))),
            }
        }
    }

    /// Starts the deliveries of a run before its next step, and reads the session as the last process wrote it.
    async fn begin_deliveries(&self, run: &HeldRun, scope: &Scope) -> Result<(), Fault> {
        self.deliveries.start(run, StartReason::RunContinues, scope).await?;
        self.runs.session_of(&run.handle()).await.map(drop)
    }

    /// Acquires the session's turn for a waiting run, if it is free, and prepares the request. Returns the run if the
    /// request answers none of its open items, so that it still waits.
    async fn prepare(
        &self,
        run: &HeldRun,
        agent: &Agent,
        turn: &mut Turn,
    ) -> Result<Option<(RunHandle, Option<String>)>, Fault> {
        let Some(Place::Behind(queued)) = turn.place.take() else { return Ok(None) };
        let guard = match self.runs.sessions().try_turn_of(queued).await? {
            Ok(guard) => guard,
            Err(queued) => {
                turn.place = Some(Place::Behind(queued));
                return Ok(None);
            }
        };
        let asked = run.view(|view| !view.run().pending().is_empty());
        if asked && turn.session.pending_of(run.id()).is_empty() {
            let (linker, active) = (Arc::clone(&self.linker), Arc::clone(run));
            complete(async move {
                linker.end_unlinked(&active).await;
                Ok(())
            })
            .await?;
            return Err(faults::not_waiting(run.id(), None));
        }

        match self.driver.turns().context.prepare(&turn.session, agent, &turn.spoken).await? {
            Outcome::Ready(prepared) => {
                turn.place = Some(Place::Ready(guard, prepared));
                Ok(None)
            }
            Outcome::Waiting(_, reason) => {
                let (runs, active) = (Arc::clone(&self.runs), Arc::clone(run));
                let input = std::mem::take(&mut turn.spoken.request.input);
                // Some of its items may have their answers now.
                let pending = turn.session.pending_of(run.id());
                complete(async move { record_withdrawn(&runs, &active, input, pending).await }).await?;
                Ok(Some((run.handle(), reason)))
            }
        }
    }

    /// Starts the turn's task, unless another turn goes first. `refused`: the turn is recorded and ends with this
    /// fault.
    ///
    /// Invariant: nothing is awaited here, so this is not async (see `FirstTurns::launch`).
    fn launch(
        &self,
        run: &Arc<ActiveRun>,
        mut turn: Turn,
        labels: &Json,
        refused: Option<Fault>,
    ) -> Result<LaunchResult, Fault> {
        let now = clock::now();
        let launched = run.update(Publish::Now, |state| {
            if let Some(number) = number_of_same(state.record.run(), &turn) {
                turn.reopen_answers();
                return Ok(Err(LaunchResult::Duplicate(number)));
            }
            if state.about.state.is_ended() {
                turn.reopen_answers();
                return Err(faults::run_ended(run.id()));
            }
            if let Some(by) = state.record.run().answered_by().filter(|_| state.about.state.is_working()) {
                return Err(faults::not_waiting(run.id(), Some(by)));
            }
            if !may_start(state, &turn, refused.is_some()) {
                return Ok(Err(LaunchResult::Overtaken(Box::new(turn))));
            }

            state.about.request = AgentRequest { input: Input::default(), ..turn.spoken.request.clone() };
            if !labels.is_null() {
                state.about.labels = labels.clone();
            }
            // A turn that was refused leaves its reason to the queued turns after it.
            let refused = refused
                .or_else(|| state.stop_between_turns(run).filter(|_| state.fallback.is_some()))
                // Under the run's lock: a gateway that stops finds the turn under way, or the turn finds that it stops.
                .or_else(|| self.runs.is_stopped().then(faults::shutting_down));
            if refused.is_none() {
                // A client that left did so before this turn.
                run.cancel.reset();
                state.cancel_reason = None;
            }
            let turn = start_turn(state, turn, now);
            Ok(Ok((state.record.run().turns.len() - 1, turn, refused)))
        })?;

        let (number, turn, refused) = match launched {
            Ok(started) => started,
            Err(result) => return Ok(result),
        };
        let is_ready = turn.is_ready();
        self.driver.start_next(run, Box::new(turn), refused);
        Ok(LaunchResult::Started { number, is_ready })
    }
}

/// Answers the client of a queued turn. `launched` resolves when the turn starts, or when it is certain that it does
/// not.
async fn respond_queued(
    mut wanted: Wanted,
    launched: impl Future<Output = Result<QueueEnd, Fault>>,
    follower: Follower,
    started: oneshot::Receiver<Result<(), Fault>>,
) -> Result<Answer, Fault> {
    if wanted.delivery != Delivery::Collect {
        // The first poll starts it: nothing waits for it.
        let _ = timeout(Duration::ZERO, launched).await;
        return wanted.respond(follower, started).await;
    }

    let came_at = Instant::now();
    let limit = wanted.policy.collect_timeout;
    let launched = commit::within(limit, launched).await.transpose()?;
    let left = if launched.is_some() { limit } else { Some(Duration::ZERO) };
    wanted.policy.collect_timeout = left.map(|left| left.saturating_sub(came_at.elapsed()));
    wanted.is_duplicate = matches!(launched, Some(QueueEnd::Duplicate(_)));
    wanted.turn = match launched {
        Some(QueueEnd::Started(number) | QueueEnd::Duplicate(number)) => number,
        // The client gets the run, once its end is visible.
        Some(QueueEnd::RunEnded) | None => usize::MAX,
    };
    wanted.respond(follower, started).await
}

/// The result of a queued turn whose run is over.
fn over(run: &ActiveRun) -> Result<QueueEnd, Fault> {
    if let Some(fault) = run.failure() {
        return Err(fault);
    }
    match run.run_state() {
        RunState::Ended(End::Canceled | End::Failed) => Ok(QueueEnd::RunEnded),
        // Its turn ended at the moment of the cancellation.
        _ if run.cancel.is_set() => Ok(QueueEnd::RunEnded),
        _ => Err(faults::run_ended(run.id())),
    }
}

/// Whether a turn may start now, in a run that has not ended.
fn may_start(state: &State, turn: &Turn, is_refused: bool) -> bool {
    if state.about.state.is_working() {
        // Only if the turn before it has ended and left the run to the queue.
        return state.fallback.is_some() && (is_refused || !turn.is_behind());
    }
    // The store may have released the run since it was loaded.
    let is_current = !state.is_released;
    let is_handed_over = state.fallback.is_some() || turn.session.handed_over(state.record.run().id).is_some();
    is_current && (is_refused || !(is_handed_over && turn.is_behind()))
}

/// The index of the turn that has the same message, for a turn with a claim: a request that came at the same moment
/// has started it.
fn number_of_same(run: &Run, turn: &Turn) -> Option<usize> {
    turn.claim_key.as_ref()?;
    let ids = |input: &Input| input.iter().filter_map(|message| message.id.clone()).collect::<Vec<_>>();
    let own = ids(&turn.spoken.request.input);
    let is_same = |known: &run::Turn| !own.is_empty() && !known.withdrawn && ids(&known.input) == own;
    run.turns.iter().rposition(is_same)
}

fn check_continuable(run: &ActiveRun) -> Result<(), Fault> {
    let (answered_by, turns) = run.view(|view| (view.run().answered_by(), view.run().turns.len()));
    if answered_by.is_some() {
        return Err(faults::not_waiting(run.id(), answered_by));
    }
    if turns >= MAX_TURNS {
        return Err(Fault::new(FaultKind::Overloaded, "the run has too many turns: start another one"));
    }
    Ok(())
}

/// Records the start of a turn of a run that waits, or that was left to its queue.
fn start_turn(state: &mut State, mut turn: Turn, now: Millis) -> Turn {
    let noted = turn.session.take_handed_over(state.record.run().id).map(RunState::Ended);
    turn.resumes = state.fallback.take().or(noted).or(Some(state.about.state));
    state.record.set_time(now);
    state.record.start_turn(turn.take_input());
    state.pending.clear();
    // Running, not queued: clients see only a run's first turn as queued.
    state.set(RunState::Running, now);
    turn
}

/// Whether a turn may queue behind the one under way.
fn check_queueable(session: &Session, spoken: &Spoken, busy: Option<Busy>, now: Millis) -> Result<(), Fault> {
    if busy == Some(Busy::Refuse) {
        return Err(faults::busy(&session.id));
    }

    // The turn under way asks nothing yet: an answer can only be one that was given before.
    session.check_answers(spoken.request.input.clone(), spoken.answers.clone(), spoken.answer_policy, now)
}

/// Records input to a run that waits for something else first: it does not reach the agent, but the client sent it.
async fn record_withdrawn(
    runs: &RunTable,
    run: &Arc<ActiveRun>,
    input: Input,
    pending: Vec<Pending>,
) -> Result<(), Fault> {
    let now = clock::now();
    run.update(Publish::Now, |state| {
        // It may have been ended meanwhile.
        if state.about.state.is_waiting() {
            state.record.set_time(now);
            state.record.start_turn(input);
            state.record.withdraw_turn(None);
            state.pending = pending;
        }
    });
    let settled = commit::settle(runs.store(), run).await;
    // It is visible as soon as it is safe, however long that takes.
    run.publish(Publish::Concluded);
    settled
}
