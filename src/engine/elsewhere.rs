//! Runs that wait, and whose questions are closed by somebody else: answered by another run of their session, over
//! whatever protocol, or withdrawn.
//!
//! A waiting run whose last open item another run's turn closes gets a turn that stands for that one: it begins when the
//! item is closed, is given up if the answer never reached the agent, and ends the run as the other turn ends. All of it
//! is told as steps, so followers, receivers and those who ask again see it in every protocol, and it is recorded, so a
//! restart finds it. Invariant: whoever is told that the answering turn has ended finds the run it answered ended too.
//!
//! Not here: which items are open, and when a request closes them (`interlingua_core::answer`).

use std::sync::Arc;

use interlingua_core::call::RunState;
use interlingua_core::event::End;
use interlingua_core::run::RunError;
use interlingua_core::{Fault, FaultKind, Owner, RunId, answer};

use super::abort_guard::Held;
use super::session::Session;
use super::{ActiveRun, Engine, RunHandle, clock, written};
use crate::store::Journal;

/// A run that another one answers, and where it stood.
struct Elsewhere {
    live: Held,
    stood: RunState,
}

/// What is said to a run whose questions are closed.
pub(super) fn closed(id: RunId, by: Option<RunId>) -> Fault {
    let message = match by {
        Some(by) => format!("what run '{id}' asked was answered already, by run '{by}'"),
        None => format!("what run '{id}' asked was answered or withdrawn already"),
    };
    Fault::new(FaultKind::Conflict, message).with_code(answer::NOT_WAITING)
}

impl Engine {
    /// The turn of `by` closes the last open items of these runs: those that wait go on with it.
    pub(super) async fn answer_elsewhere(&self, freed: &[RunId], by: RunId) -> Moved {
        let mut moved = Moved { engine: Some(self.clone()), runs: Vec::new() };
        for id in freed.iter().filter(|id| **id != by) {
            match self.moved(*id, by).await {
                Ok(Some(elsewhere)) => moved.runs.push(elsewhere),
                Ok(None) => {}
                // It is found to wait for nothing when somebody comes to it.
                Err(fault) => tracing::error!(run = %id, "a run that was answered could not be moved on: {fault}"),
            }
        }
        moved
    }

    async fn moved(&self, id: RunId, by: RunId) -> Result<Option<Elsewhere>, Fault> {
        let Some(handle) = self.handle(id).await? else { return Ok(None) };
        let waits = |state| matches!(state, RunState::Waiting | RunState::WaitingForAuth);
        if !handle.view(|view| waits(view.info.state)) {
            // It has ended: what it asked is no longer shown as open.
            if let RunHandle::InMemory(live) = &handle {
                live.update_unpublished(|state| state.pending.clear());
            }
            return Ok(None);
        }
        let live = self.raise(handle).await?;
        // Before anything comes of it, so that its receivers are told.
        if let Some(scope) = self.scope_of(&live) {
            self.start_deliveries(&RunHandle::InMemory(Arc::clone(&live)), false, &scope).await?;
        }
        let stood = live.update(|state| {
            let stood = state.about.state;
            // A turn of its own may have begun, or it was ended meanwhile.
            if !waits(stood) {
                return None;
            }
            state.record.set_time(clock::now());
            state.record.start_linked_turn(by);
            state.pending.clear();
            let now = state.record.now();
            state.set(RunState::Running, now);
            Some(stood)
        });
        let Some(stood) = stood else { return Ok(None) };
        // Safe before the session is: a crash in between fails both runs, and leaves none that waits for ever.
        self.settle_elsewhere(&live).await;
        Ok(Some(Elsewhere { live, stood }))
    }

    async fn settle_elsewhere(&self, live: &Arc<ActiveRun>) {
        live.publish();
        let settled = self.store().settle(&(Arc::clone(live) as Arc<dyn Journal>));
        match tokio::time::timeout(written::PATIENCE, settled).await {
            Ok(Ok(())) => {}
            // The store goes on trying; nobody is shown it before it is safe.
            Ok(Err(error)) => tracing::warn!(run = %live.id(), %error, "the run could not be written down"),
            Err(_) => tracing::warn!(run = %live.id(), "the run could not be written down in time"),
        }
    }

    /// The answer did not reach the agent: the runs wait again, for what is open again.
    pub(super) async fn wait_again(&self, moved: &mut Moved, freed: &[RunId], session: &Session) {
        let open = |id| session.doc().waiting.pending_of(id);
        for Elsewhere { live, stood } in std::mem::take(&mut moved.runs) {
            let pending = open(live.id());
            live.update_unpublished(|state| {
                if state.record.in_turn() {
                    state.record.set_time(clock::now());
                    state.record.withdraw_turn(None);
                    state.pending = pending;
                    let now = state.record.now();
                    state.set(stood, now);
                }
            });
            self.settle_elsewhere(&live).await;
        }
        for id in freed {
            let live = self.lives().get(id).cloned();
            if let Some(live) = live.filter(|live| live.view(|view| view.run().end.is_some())) {
                let pending = open(*id);
                live.update_unpublished(|state| state.pending = pending);
            }
        }
    }

    /// The answering turn has ended, and so do the runs it answered: in the same way.
    pub(super) async fn end_elsewhere(&self, moved: &mut Moved, end: End, error: Option<&RunError>) {
        for Elsewhere { live, .. } in std::mem::take(&mut moved.runs) {
            live.update_unpublished(|state| state.cut(end, error.cloned()));
            self.settle_elsewhere(&live).await;
            self.ended(&live);
        }
    }

    /// A run that waits, though nothing of what it asked is open: the answer was given elsewhere and got lost on the way
    /// to this run. It has ended, without anybody knowing how the answer did.
    pub(super) async fn end_unasked(&self, live: &Arc<ActiveRun>) -> bool {
        let ended = live.update_unpublished(|state| {
            let waits = matches!(state.about.state, RunState::Waiting | RunState::WaitingForAuth);
            if waits {
                state.cut(End::Completed, None);
            }
            waits
        });
        if ended {
            self.settle_elsewhere(live).await;
            self.ended(live);
        }
        ended
    }

    /// Withdraws what a run that has ended still asks: nobody decides it any more, and its session is free.
    pub(super) async fn withdraw(&self, run: &RunHandle) -> Result<(), Fault> {
        let (id, agent, owner, session, user, asked) = run.view(|view| {
            let (run, about) = (view.run(), view.info);
            // In whichever turn: nothing is left open of a run that has ended for good.
            let asked = (0..run.turns.len()).any(|turn| !run.pending_of(turn).is_empty());
            (
                run.id,
                run.agent.clone(),
                about.owner.clone(),
                run.session_id.clone(),
                about.request.user_id.clone(),
                asked,
            )
        });
        if !asked {
            return Ok(());
        }
        let session = self.session_of(&agent, &Owner::from_key(&owner), &session, user.as_deref()).await?;
        if session.doc().waiting.withdraw(id) {
            self.save_session(&session).await?;
        }
        if let RunHandle::InMemory(live) = run {
            live.update_unpublished(|state| state.pending.clear());
        }
        Ok(())
    }
}

/// The runs that a turn has answered, while it is under way: should it be dropped, they end with it.
#[derive(Default)]
pub(super) struct Moved {
    engine: Option<Engine>,
    runs: Vec<Elsewhere>,
}

impl Moved {
    /// The agent has taken the answer, and works.
    pub(super) fn begin(&self) {
        for Elsewhere { live, .. } in &self.runs {
            live.update(|state| {
                if state.record.in_turn() {
                    state.record.set_time(clock::now());
                    state.record.start_answer();
                    state.about.changed_at = state.record.now().max(state.about.changed_at);
                }
            });
        }
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else { return };
        for Elsewhere { live, .. } in std::mem::take(&mut self.runs) {
            let fault = super::mistake();
            let error = RunError { code: fault.code().to_owned(), message: fault.message };
            live.update_unpublished(|state| state.cut(End::Failed, Some(error)));
            // Begun here, done by the store: nobody waits for it.
            drop(engine.store().settle(&(Arc::clone(&live) as Arc<dyn Journal>)));
            live.publish();
        }
    }
}
