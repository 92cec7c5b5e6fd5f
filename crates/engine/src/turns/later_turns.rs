//! Later turns of a run: one that waits is answered, one that works gets its next turn queued.
//!
//! Not here: first turns ([`super::first_turns`]), and taking turns ([`super::turn_driver`]).

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::call::{Busy, RunState, Target};
use interlingua_core::event::Millis;
use interlingua_core::model::{AgentRequest, Input};
use interlingua_core::{Delivery, End, Fault, FaultKind, Json, Run, RunCall, RunId, run};
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
    AbortGuard, ActiveRun, Answer, Follower, HeldRun, Place, Publish, RunAccess, RunHandle, RunTable, Scope, Spoken,
    State, Turn, TurnPermits, commit, follow,
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
        if let Some(working) = self.working_in_line(id, scope).await? {
            return self.start_in_line(working, call, agent, scope).await;
        }

        let run = self.access.activate(id, scope).await?;
        check_continuable(&run)?;
        let permits = TurnPermits::begin(&scope.caller, agent)?;
        // Before the run takes its next step.
        self.deliveries.start(&run, StartReason::RunContinues, scope).await?;

        let (delivery, policy) = (call.delivery, call.policy);
        let labels = call.labels.clone();
        let claim_key = call.claim.as_ref().map(|claim| claim.key.clone());
        let session = self.runs.session_of(&run.handle()).await?;
        // A route may name another agent than the run's.
        let agent = if agent.name == run.agent.name { agent } else { &run.agent };
        let place = Place::Behind(self.runs.sessions().enqueue(&session, Some(id), self.queued_turns).await?);
        let (mut turn, started) =
            Turn::new(session, Arc::clone(agent), scope.origin(), place, policy.for_later_turn(), Spoken::from(call));
        (turn.permits, turn.claim_key) = (Some(permits), claim_key);
        if run.run_state().is_waiting()
            && let Some((waiting, reason)) = self.prepare(&run, agent, &mut turn).await?
        {
            return Ok(Answer::Waiting(waiting, reason));
        }

        let follower = Follower::new(&self.runs, run.handle());
        let (number, is_ready) = loop {
            match self.launch(&run, turn, &labels)? {
                LaunchResult::At { number, is_ready } => break (number, is_ready),
                LaunchResult::Overtaken(mut overtaken) => {
                    overtaken.reopen_answers();
                    // The turn under way needs the session's turn that this one has.
                    overtaken.place = None;
                    let sessions = self.runs.sessions();
                    let queued = sessions.enqueue(&overtaken.session, Some(id), self.queued_turns).await?;
                    overtaken.place = Some(Place::Behind(queued));
                    turn = *overtaken;
                }
            }
        };
        // No stream is held back for a turn that is queued.
        let first_event_timeout = if is_ready {
            policy.first_response.timeout().unwrap_or(scope.first_event_timeout)
        } else {
            Duration::ZERO
        };

        Wanted { delivery, policy, first_event_timeout, turn: number }.respond(follower, started).await
    }

    /// A run that works, if other replicas may have its next turns in line: all of them are taken in the order of that
    /// line, also where the run is driven here.
    async fn working_in_line(&self, id: RunId, scope: &Scope) -> Result<Option<Follower>, Fault> {
        if !self.runs.store().runs_move() {
            return Ok(None);
        }
        let run = self.access.find(&Target::Run(id), scope).await?;
        if !run.run_state().is_working() {
            return Ok(None);
        }
        match run {
            RunHandle::InMemory(_) => Ok(Some(Follower::new(&self.runs, run))),
            RunHandle::Stored(..) => follow::follow_elsewhere(&self.runs, &run),
        }
    }

    /// Queues a turn of a run in the line of all replicas. It is taken here once those before it have ended.
    async fn start_in_line(
        &self,
        follower: Follower,
        call: RunCall,
        agent: &Arc<Agent>,
        scope: &Scope,
    ) -> Result<Answer, Fault> {
        let Some(run) = follower.active_run().cloned() else { return Err(Fault::not_found("the run")) };
        check_continuable(&run)?;
        let mut permits = TurnPermits::begin(&scope.caller, agent)?;
        let (delivery, policy, labels) = (call.delivery, call.policy, call.labels.clone());
        let claim_key = call.claim.as_ref().map(|claim| claim.key.clone());
        let session = self.runs.session_of(&RunHandle::InMemory(run.pin())).await?;
        let agent = if agent.name == run.agent.name { agent } else { &run.agent };
        let spoken = Spoken::from(call);
        check_queueable(&session, &spoken, policy.busy, clock::now())?;
        permits.queue()?;

        let place = Place::Behind(self.runs.sessions().enqueue(&session, Some(run.id()), self.queued_turns).await?);
        let (mut turn, started) =
            Turn::new(session, Arc::clone(agent), scope.origin(), place, policy.for_later_turn(), spoken);
        (turn.permits, turn.claim_key) = (Some(permits), claim_key);

        // As for a turn that is queued here, it does not matter whether its client waits for it.
        let (this, id, scope) = (self.clone(), run.id(), scope.clone());
        let launched = complete(async move { this.launch_released(id, turn, labels, &scope).await });
        if delivery != Delivery::Collect {
            // Begun by being polled, not by being waited for.
            let _ = timeout(Duration::ZERO, launched).await;
            let wanted = Wanted { delivery, policy, first_event_timeout: Duration::ZERO, turn: 0 };
            return wanted.respond(follower, started).await;
        }

        let came_at = Instant::now();
        let launched = match policy.collect_timeout {
            Some(after) => timeout(after, launched).await.ok().transpose()?,
            None => Some(launched.await?),
        };
        let (number, left) = match launched {
            Some(number) => (number.unwrap_or(usize::MAX), policy.collect_timeout),
            None => (usize::MAX, Some(Duration::ZERO)),
        };
        let mut policy = policy;
        policy.collect_timeout = left.map(|left| left.saturating_sub(came_at.elapsed()));
        Wanted { delivery, policy, first_event_timeout: Duration::ZERO, turn: number }.respond(follower, started).await
    }

    /// Takes a turn once no other replica has the session's, and none has the run. Returns the turn's index. `None`:
    /// the run was stopped meanwhile, and its queued turns with it.
    async fn launch_released(
        &self,
        id: RunId,
        mut turn: Turn,
        labels: Json,
        scope: &Scope,
    ) -> Result<Option<usize>, Fault> {
        if let Some(Place::Behind(queued)) = &mut turn.place {
            queued.comes_here().await?;
        }

        // Without a turn the run need not be in memory, wherever this ends.
        let run = self.activate_released(id, scope).await?;
        if matches!(run.run_state(), RunState::Ended(End::Canceled | End::Failed)) {
            return Ok(None);
        }
        check_continuable(&run)?;
        self.deliveries.start(&run, StartReason::RunContinues, scope).await?;
        // What the other replica has written last of it.
        self.runs.session_of(&run.handle()).await?;
        match self.launch(&run, turn, &labels)? {
            LaunchResult::At { number, .. } => Ok(Some(number)),
            LaunchResult::Overtaken(turn) => Err(faults::busy(&turn.session.id)),
        }
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

    /// Starts the turn's task, or queues the turn for the task of the turn under way.
    ///
    /// Invariant: nothing is awaited here, so this is not async (see `FirstTurns::launch`).
    fn launch(&self, run: &Arc<ActiveRun>, mut turn: Turn, labels: &Json) -> Result<LaunchResult, Fault> {
        let now = clock::now();
        let (launched, started) = run.update(Publish::Now, |state| {
            if let Some(number) = number_of_same(state.record.run(), &turn) {
                turn.reopen_answers();
                return Ok((LaunchResult::At { number, is_ready: false }, None));
            }
            if state.about.state.is_working() && turn.is_ready() {
                return Ok((LaunchResult::Overtaken(Box::new(turn)), None));
            }
            state.about.request = AgentRequest { input: Input::default(), ..turn.spoken.request.clone() };
            if !labels.is_null() {
                state.about.labels = labels.clone();
            }
            match state.about.state {
                RunState::Ended(_) => {
                    turn.reopen_answers();
                    Err(faults::run_ended(run.id()))
                }
                RunState::Waiting | RunState::WaitingForAuth => {
                    // A client that left did so before this turn.
                    run.cancel.reset();
                    let turn = start_turn(state, turn, now);
                    let number = state.record.run().turns.len() - 1;
                    Ok((LaunchResult::At { number, is_ready: turn.is_ready() }, Some(turn)))
                }
                RunState::Queued | RunState::Running => {
                    if let Some(by) = state.record.run().answered_by() {
                        return Err(faults::not_waiting(run.id(), Some(by)));
                    }
                    let ended = state.record.run().turns.len() - 1;
                    let is_same = |queued: &Turn| queued.claim_key.is_some() && queued.claim_key == turn.claim_key;
                    if let Some(place) = state.queued.iter().position(is_same) {
                        return Ok((LaunchResult::At { number: ended + place + 1, is_ready: false }, None));
                    }
                    check_queueable(&turn.session, &turn.spoken, turn.policy.busy, now)?;
                    if let Some(permits) = &mut turn.permits {
                        permits.queue()?;
                    }
                    state.queued.push_back(turn);
                    Ok((LaunchResult::At { number: ended + state.queued.len(), is_ready: false }, None))
                }
            }
        })?;

        if let Some(turn) = started {
            self.driver.start(AbortGuard::new(&self.runs, run), Box::new(turn), None);
        }

        Ok(launched)
    }
}

/// The result of a launch.
enum LaunchResult {
    /// It is the turn of this index in its run. `is_ready`: its request can be sent at once.
    At { number: usize, is_ready: bool },
    /// It was prepared while another turn has begun, which goes first.
    Overtaken(Box<Turn>),
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
    // Another replica may have handed it over instead of ending it.
    let handed_over = turn.session.take_handed_over(state.record.run().id);
    turn.resumes = Some(handed_over.map_or(state.about.state, RunState::Ended));
    state.cancel_reason = None;
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
