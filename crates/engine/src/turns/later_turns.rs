//! Later turns of a run: one that waits is answered, one that works gets its next turn queued.
//!
//! Not here: first turns ([`super::first_turns`]), and taking turns ([`super::turn_driver`]).

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::call::{Busy, RunState, Target};
use interlingua_core::event::Millis;
use interlingua_core::model::{AgentRequest, Input};
use interlingua_core::{Delivery, End, Fault, FaultKind, Json, Run, RunCall, RunId, run};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::context::Outcome;
use super::driver::Driver;
use super::respond::Wanted;
use crate::agent::Agent;
use crate::complete::complete;
use crate::deliveries::{Deliveries, StartReason};
use crate::faults;
use crate::pending::RunLinker;
use crate::runs::{
    AbortGuard, ActiveRun, Answer, Follower, HeldRun, Place, Publish, QueuedTurn, RunAccess, RunHandle, RunTable,
    Scope, Spoken, State, Turn, TurnPermits, commit, follow,
};
use crate::sessions::Session;
use interlingua_base::clock;

/// The most turns of a run: their input is in memory while the run is.
const MAX_TURNS: usize = 4096;

/// How long a run may take to be free whose turn another replica has ended.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is tried meanwhile.
const RELEASE_INTERVAL: Duration = Duration::from_millis(20);

/// Starts later turns.
#[derive(Clone)]
pub(crate) struct LaterTurns {
    pub(crate) runs: Arc<RunTable>,
    pub(crate) access: Arc<RunAccess>,
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) linker: Arc<RunLinker>,
    pub(crate) driver: Arc<Driver>,
    /// The most turns that wait for another one of their session.
    pub(crate) queued_turns: usize,
}

impl LaterTurns {
    /// Starts one more turn of a run that waits, or queues it behind the turn under way.
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
                let follower = Follower::new(&self.runs, held.handle());
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
        let place = self.queue(&session, id).await?;
        let (mut turn, started) =
            Turn::new(session, Arc::clone(agent), scope.origin(), place, policy.for_later_turn(), spoken);
        (turn.permits, turn.claim_key) = (Some(permits), claim_key);

        if let Some(held) = &held {
            if held.run_state().is_waiting()
                && let Some((waiting, reason)) = self.prepare(held, agent, &mut turn).await?
            {
                return Ok(Answer::Waiting(waiting, reason));
            }
            match self.launch(held, turn, &labels)? {
                LaunchResult::At { number, is_ready, .. } => {
                    // No stream is held back for a turn that waits for its session.
                    let first_event_timeout = match is_ready {
                        true => policy.first_response.timeout().unwrap_or(scope.first_event_timeout),
                        false => Duration::ZERO,
                    };
                    return Wanted { delivery, policy, first_event_timeout, turn: number }
                        .respond(follower, started)
                        .await;
                }
                LaunchResult::Overtaken(overtaken) => turn = *overtaken,
            }
            check_queueable(&turn.session, &turn.spoken, policy.busy, clock::now())?;
            if turn.is_ready() {
                turn.reopen_answers();
                // The turn under way needs the session's turn that this one has.
                turn.place = None;
                turn.place = Some(self.queue(&turn.session, id).await?);
            }
        }

        drop(held);
        if let Some(permits) = &mut turn.permits {
            permits.queue()?;
        }
        // The turn is taken even if its client disconnects.
        let (this, scope) = (self.clone(), scope.clone());
        let launched = complete(async move { this.launch_in_line(&run, turn, labels, &scope).await });
        let wanted = Wanted { delivery, policy, first_event_timeout: Duration::ZERO, turn: 0 };
        respond_in_line(wanted, launched, follower, started).await
    }

    async fn queue(&self, session: &Arc<Session>, run: RunId) -> Result<Place, Fault> {
        Ok(Place::Behind(self.runs.sessions().enqueue(session, Some(run), self.queued_turns).await?))
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

    /// Takes a queued turn once the turns before it have ended. Returns the turn's index. `None`: the run was stopped
    /// meanwhile, which drops its queued turns.
    async fn launch_in_line(
        &self,
        run: &Arc<ActiveRun>,
        mut turn: Turn,
        labels: Json,
        scope: &Scope,
    ) -> Result<Option<usize>, Fault> {
        let _queued = QueuedTurn::new(&self.runs, run);
        let session = Arc::clone(&turn.session);
        let launched = loop {
            match self.launch_released(run.id(), turn, &labels, scope).await {
                Ok(Some(LaunchResult::Overtaken(overtaken))) => {
                    turn = *overtaken;
                    // The turn that goes first needs the session's turn that this one has.
                    turn.place = None;
                    turn.place = Some(self.queue(&session, run.id()).await?);
                }
                launched => break launched,
            }
        };

        if !matches!(launched, Ok(Some(LaunchResult::At { is_started: true, .. }))) {
            // Nothing else ends a run that waits only for this turn.
            self.driver.turns().concluder.handover().watch(run, &session);
        }
        Ok(match launched? {
            Some(LaunchResult::At { number, .. }) => Some(number),
            _ => None,
        })
    }

    /// Takes a turn once no other one has the session's, and no other process has the run. `None`: the run was stopped.
    async fn launch_released(
        &self,
        id: RunId,
        mut turn: Turn,
        labels: &Json,
        scope: &Scope,
    ) -> Result<Option<LaunchResult>, Fault> {
        if let Some(Place::Behind(queued)) = &mut turn.place {
            queued.wait().await?;
        }

        // Without a turn the run need not be in memory, wherever this ends.
        let run = self.activate_released(id, scope).await?;
        if run.is_stopped() || matches!(run.run_state(), RunState::Ended(End::Canceled | End::Failed)) {
            return Ok(None);
        }
        check_continuable(&run)?;
        self.deliveries.start(&run, StartReason::RunContinues, scope).await?;
        // What the process that had the turn before has written last of it.
        self.runs.session_of(&run.handle()).await?;
        self.launch(&run, turn, labels).map(Some)
    }

    /// Brings a run here that its holder is about to let go of, or has let go of.
    async fn activate_released(&self, id: RunId, scope: &Scope) -> Result<HeldRun, Fault> {
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        loop {
            match self.access.activate(id, scope).await {
                Err(fault) if fault.kind == FaultKind::Busy && Instant::now() < deadline => {
                    sleep(RELEASE_INTERVAL).await;
                }
                result => return result,
            }
        }
    }

    /// Takes the session's turn for a run that waits, if it is free, and prepares the request. Returns the run if it
    /// goes on waiting: for other answers than these.
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
                complete(async move { record_withdrawn(&runs, &active, input).await }).await?;
                Ok(Some((run.handle(), reason)))
            }
        }
    }

    /// Starts the turn's task, unless another turn goes first.
    ///
    /// Invariant: nothing is awaited here, so this is not async (see `FirstTurns::launch`).
    fn launch(&self, run: &Arc<ActiveRun>, mut turn: Turn, labels: &Json) -> Result<LaunchResult, Fault> {
        let now = clock::now();
        let (number, turn) = run.update(Publish::Now, |state| {
            if let Some(number) = number_of_same(state.record.run(), &turn) {
                turn.reopen_answers();
                return Ok((number, Err(None)));
            }
            match state.about.state {
                RunState::Ended(_) => {
                    turn.reopen_answers();
                    return Err(faults::run_ended(run.id()));
                }
                RunState::Queued | RunState::Running => {
                    if let Some(by) = state.record.run().answered_by() {
                        return Err(faults::not_waiting(run.id(), Some(by)));
                    }
                    return Ok((0, Err(Some(turn))));
                }
                // The run waits only for the first turn of the queue.
                _ if turn.is_behind() && turn.session.handed_over(run.id()).is_some() => {
                    return Ok((0, Err(Some(turn))));
                }
                RunState::Waiting | RunState::WaitingForAuth => {}
            }

            state.about.request = AgentRequest { input: Input::default(), ..turn.spoken.request.clone() };
            if !labels.is_null() {
                state.about.labels = labels.clone();
            }
            // A client that left did so before this turn.
            run.cancel.reset();
            let turn = start_turn(state, turn, now);
            Ok((state.record.run().turns.len() - 1, Ok(turn)))
        })?;

        match turn {
            Ok(turn) => {
                let is_ready = turn.is_ready();
                self.driver.start(AbortGuard::new(&self.runs, run), Box::new(turn), None);
                Ok(LaunchResult::At { number, is_ready, is_started: true })
            }
            Err(None) => Ok(LaunchResult::At { number, is_ready: false, is_started: false }),
            Err(Some(turn)) => Ok(LaunchResult::Overtaken(Box::new(turn))),
        }
    }
}

/// The result of a launch.
enum LaunchResult {
    /// It is the turn of this index in its run. `is_ready`: its request can be sent at once. `is_started`: false if a
    /// request with the same message has started it before.
    At { number: usize, is_ready: bool, is_started: bool },
    /// Another turn goes first.
    Overtaken(Box<Turn>),
}

/// Answers the client of a queued turn. `launched` resolves to the turn's index; `None`: the turn was dropped.
async fn respond_in_line(
    mut wanted: Wanted,
    launched: impl Future<Output = Result<Option<usize>, Fault>>,
    follower: Follower,
    started: oneshot::Receiver<Result<(), Fault>>,
) -> Result<Answer, Fault> {
    if wanted.delivery != Delivery::Collect {
        // Begun by being polled, not by being waited for.
        let _ = timeout(Duration::ZERO, launched).await;
        return wanted.respond(follower, started).await;
    }

    let came_at = Instant::now();
    let limit = wanted.policy.collect_timeout;
    let launched = commit::within(limit, launched).await.transpose()?;
    wanted.turn = launched.flatten().unwrap_or(usize::MAX);
    let left = if launched.is_some() { limit } else { Some(Duration::ZERO) };
    wanted.policy.collect_timeout = left.map(|left| left.saturating_sub(came_at.elapsed()));
    wanted.respond(follower, started).await
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

/// Records the start of a turn of a run that waits.
fn start_turn(state: &mut State, mut turn: Turn, now: Millis) -> Turn {
    // It may have been handed over instead of ended.
    let handed_over = turn.session.take_handed_over(state.record.run().id);
    turn.resumes = Some(handed_over.map_or(state.about.state, RunState::Ended));
    (state.cancel_reason, state.is_handed_over) = (None, false);
    state.record.set_time(now);
    state.record.start_turn(turn.take_input());
    state.pending.clear();
    // Running, not queued: only a run's first turn is waited for as if nothing had happened yet.
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
async fn record_withdrawn(runs: &RunTable, run: &Arc<ActiveRun>, input: Input) -> Result<(), Fault> {
    let now = clock::now();
    run.update(Publish::Now, |state| {
        // It may have been ended meanwhile.
        if state.about.state.is_waiting() {
            state.record.set_time(now);
            state.record.start_turn(input);
            state.record.withdraw_turn(None);
        }
    });
    let settled = commit::settle(runs.store(), run).await;
    // It is visible as soon as it is safe, however long that takes.
    run.publish(Publish::Concluded);
    settled
}
