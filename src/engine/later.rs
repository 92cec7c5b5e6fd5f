//! Later turns of a run: one that waits is answered, one that works gets its next turn queued behind.
//!
//! Not here: first turns, and how an answer is handed over ([`super`]); taking turns ([`super::driver`]).

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::answer;
use interlingua_core::call::{Busy, RunState};
use interlingua_core::model::{AgentRequest, Input};
use interlingua_core::{Fault, FaultKind, RunCall, RunId};
use tokio::sync::oneshot;

use super::abort_guard::AbortGuard;
use super::context::Outcome;
use super::driver::{self, Place, Turn};
use super::elsewhere;
use super::{
    ActiveRun, Agent, Answer, Engine, Follower, RunHandle, Scope, Wanted, clock, complete, session, store_fault,
};
use crate::store::Journal;

/// More turns than this a run does not have: what is said in it stays in memory while it is under way.
const MAX_TURNS: usize = 4096;

impl Engine {
    /// One more turn of a run that waits, or works.
    pub(super) async fn continue_run(
        &self,
        id: RunId,
        call: RunCall,
        agent: &Arc<Agent>,
        scope: &Scope,
    ) -> Result<Answer, Fault> {
        // Without a turn it need not be in memory, wherever this ends.
        let held = self.revive(id, scope).await?;
        self.next_turn(&held, call, agent, scope).await
    }

    async fn next_turn(
        &self,
        live: &Arc<ActiveRun>,
        call: RunCall,
        agent: &Arc<Agent>,
        scope: &Scope,
    ) -> Result<Answer, Fault> {
        let live = Arc::clone(live);
        let id = live.id();
        let (session_id, user, turns) = live.view(|view| {
            let run = view.run();
            (run.session_id.clone(), view.info.request.user_id.clone(), run.turns.len())
        });
        if let Some(by) = live.view(|view| view.run().answered_by()) {
            return Err(elsewhere::closed(id, Some(by)));
        }
        if turns >= MAX_TURNS {
            return Err(Fault::new(FaultKind::Overloaded, "the run has too many turns: begin another one"));
        }
        // Before anything comes of it.
        self.start_deliveries(&RunHandle::InMemory(Arc::clone(&live)), false, scope).await?;
        let session = self.session_of(&agent.name, &scope.owner, &session_id, user.as_deref()).await?;
        let (begun, waiting) = oneshot::channel();
        let mut turn = Turn {
            place: Some(Place::Behind(session.enqueue()?)),
            session: Arc::clone(&session),
            request: call.request,
            preamble: call.preamble,
            answers: call.answers,
            answer_policy: call.answer_policy,
            thread: call.thread,
            multi_turn: call.multi_turn,
            pause_on: call.pause_on,
            stored: call.stored,
            record_only: call.record_only,
            connection: None,
            trace: scope.trace.clone(),
            route: Arc::clone(&scope.path),
            resumes: None,
            moved: super::elsewhere::Moved::default(),
            discard_if_unreached: false,
            started: Some(begun),
        };
        let waits = live.view(|view| matches!(view.info.state, RunState::Waiting | RunState::WaitingForAuth));
        if waits && let Some(guard) = session.try_turn() {
            let asked = live.view(|view| !view.run().pending().is_empty());
            if asked && session.doc().waiting.pending_of(id).is_empty() {
                let (engine, live) = (self.clone(), Arc::clone(&live));
                complete(async move { Ok(engine.end_unasked(&live).await) }).await?;
                return Err(elsewhere::closed(id, None));
            }
            match self.prepare(turn.preparing(agent)).await? {
                Outcome::Ready(prepared) => turn.place = Some(Place::Ready(guard, prepared)),
                Outcome::Waiting(_) => {
                    let (engine, said) = (self.clone(), Arc::clone(&live));
                    complete(async move { engine.said_in_vain(&said, turn.request.input).await }).await?;
                    return Ok(Answer::Waiting(RunHandle::InMemory(live)));
                }
            }
        }
        let now = clock::now();
        let follower = Follower::new(self.clone(), RunHandle::InMemory(Arc::clone(&live)), false);
        // Invariant: nothing is awaited from here to the start of the run's task (see `Engine::run`).
        let (number, start) = live.update(|state| {
            state.about.request = AgentRequest { input: Input::default(), ..turn.request.clone() };
            if !call.labels.is_null() {
                state.about.labels = call.labels.clone();
            }
            match state.about.state {
                RunState::Ended(_) => Err(ended(id)),
                RunState::Waiting | RunState::WaitingForAuth => {
                    turn.resumes = Some(state.about.state);
                    // Whoever left before, left before this turn.
                    live.cancel.reset();
                    state.cancelled_for = None;
                    state.record.set_time(now);
                    state.record.start_turn(
                        turn.place.as_mut().and_then(Place::said).unwrap_or_else(|| turn.request.input.clone()),
                    );
                    state.pending.clear();
                    // Only a run's first turn is waited for as if nothing had happened yet.
                    state.set(RunState::Running, now);
                    Ok((state.record.run().turns.len() - 1, Some(turn)))
                }
                RunState::Queued | RunState::Running => {
                    if let Some(by) = state.record.run().answered_by() {
                        return Err(elsewhere::closed(id, Some(by)));
                    }
                    if call.busy == Some(Busy::Refuse) {
                        return Err(session::busy(&session.id));
                    }
                    // What is under way asks nothing yet: an answer can only be one that was given before.
                    let (said, answers) = (turn.request.input.clone(), turn.answers.clone());
                    let mut waiting = session.doc().waiting.clone();
                    if let answer::Outcome::Refused(fault) = waiting.take(said, answers, turn.answer_policy, now) {
                        return Err(fault);
                    }
                    state.queued.push(turn);
                    Ok((state.record.run().turns.len() - 1 + state.queued.len(), None))
                }
            }
        })?;
        // A turn that is queued behind another one begins late: no stream waits for that.
        let ready = start.as_ref().is_some_and(Turn::is_ready);
        // One that is queued is taken by the task of the turn before it.
        if let Some(turn) = start {
            driver::start(AbortGuard::new(self.clone(), live), Box::new(turn), None);
        }
        let first_word =
            if ready { call.first_event_timeout.unwrap_or(scope.first_event_timeout) } else { Duration::ZERO };
        let wanted = Wanted {
            delivery: call.delivery,
            early: call.respond_immediately,
            first_word,
            patience: call.collect_timeout,
        };
        let answer = self.deliver(wanted, follower, number, waiting).await?;
        Ok(match answer {
            Answer::Steps { follower, .. } => Answer::Steps { follower, attach: true },
            answer => answer,
        })
    }

    /// Takes down what was said to a run that waits for something else first: it reaches nobody, but it was said.
    async fn said_in_vain(&self, live: &Arc<ActiveRun>, input: Input) -> Result<(), Fault> {
        let now = clock::now();
        live.update(|state| {
            // It may have been ended meanwhile.
            if matches!(state.about.state, RunState::Waiting | RunState::WaitingForAuth) {
                state.record.set_time(now);
                state.record.start_turn(input);
                state.record.withdraw_turn(None);
            }
        });
        let settled = self.store().settle(&(Arc::clone(live) as Arc<dyn Journal>));
        let settled = settled.await;
        // It is seen as soon as it is safe, however long that takes.
        live.publish();
        settled.map_err(|error| store_fault(&error))
    }
}

fn ended(id: RunId) -> Fault {
    Fault::new(FaultKind::Conflict, format!("run '{id}' has ended"))
}
