//! Waiting runs whose pending items are closed by another run's turn: answered there, over whatever protocol.
//!
//! Such a run gets a turn that stands for that other turn: it starts when the last item is closed, is withdrawn if the
//! answer never reached the agent, and ends the run as the other turn ends. All of it is recorded as steps: followers
//! and receivers see it in every protocol, and so does a restart. Invariant: a client that sees the end of the
//! answering turn finds the answered run ended too.
//!
//! Not here: which items are open, and when a request closes them (`interlingua_core::answer`).

use std::sync::Arc;

use interlingua_core::call::RunState;
use interlingua_core::event::End;
use interlingua_core::run::RunError;
use interlingua_core::{Fault, RunId};

use crate::deliveries::{Deliveries, StartReason};
use crate::faults;
use crate::runs::{ActiveRun, HeldRun, Publish, RunHandle, RunTable, SharedRules, commit};
use crate::sessions::Session;
use interlingua_base::clock;

/// Links runs to the turn that answers them.
pub(crate) struct RunLinker {
    runs: Arc<RunTable>,
    deliveries: Arc<Deliveries>,
    rules: Arc<SharedRules>,
}

/// The runs that a turn answers, while it is under way. If it is dropped, they fail.
pub(crate) struct LinkedRuns {
    runs: Arc<RunTable>,
    linked: Vec<Linked>,
}

struct Linked {
    run: HeldRun,
    /// Where it stood before.
    state: RunState,
}

impl RunLinker {
    pub(crate) const fn new(runs: Arc<RunTable>, deliveries: Arc<Deliveries>, rules: Arc<SharedRules>) -> Self {
        Self { runs, deliveries, rules }
    }

    /// The turn of `by` closes the last open items of these runs: those that wait go on with it.
    pub(crate) async fn link(&self, freed: &[RunId], by: RunId) -> LinkedRuns {
        let mut linked = LinkedRuns { runs: Arc::clone(&self.runs), linked: Vec::new() };
        for id in freed.iter().filter(|id| **id != by) {
            match self.link_one(*id, by).await {
                Ok(Some(run)) => linked.linked.push(run),
                Ok(None) => {}
                // The next call that comes to it finds that it waits for nothing.
                Err(fault) => {
                    tracing::error!(run = %id, "an answer was sent, but the run that asked still waits: {fault}")
                }
            }
        }
        linked
    }

    async fn link_one(&self, id: RunId, by: RunId) -> Result<Option<Linked>, Fault> {
        let Some(handle) = self.runs.find(id).await? else { return Ok(None) };
        if !handle.run_state().is_waiting() {
            // It has ended: what it asked is no longer shown as open.
            if let RunHandle::InMemory(run) = &handle {
                run.update(Publish::Later, |state| state.pending.clear());
            }
            return Ok(None);
        }

        let run = self.runs.activate(handle).await?;
        // Before its next step, so that its receivers get that.
        if let Some(scope) = self.rules.scope_of(&run) {
            self.deliveries.start(&run, StartReason::RunContinues, &scope).await?;
        }

        let state = run.update(Publish::Now, |state| {
            let before = state.about.state;
            // A turn of its own may have started, or it was ended meanwhile.
            before.is_waiting().then(|| {
                state.record.set_time(clock::now());
                state.record.start_linked_turn(by);
                state.pending.clear();
                state.set(RunState::Running, state.record.now());
                before
            })
        });

        let Some(state) = state else { return Ok(None) };

        // Safe before the session is: a crash in between fails both runs, and leaves none that waits for ever.
        commit::publish_and_settle(self.runs.store(), &run).await;
        Ok(Some(Linked { run, state }))
    }

    /// Ends a run that waits although nothing of what it asked is open: the answer was given to another run and got
    /// lost on the way here. How that ended is not known.
    pub(crate) async fn end_unlinked(&self, run: &Arc<ActiveRun>) {
        let ended = run.update(Publish::Later, |state| {
            let waits = state.about.state.is_waiting();
            if waits {
                state.cut(End::Completed, None);
            }
            waits
        });
        if ended {
            commit::publish_and_settle(self.runs.store(), run).await;
            self.runs.turn_ended(run);
        }
    }
}

impl LinkedRuns {
    /// For a turn that answers no other run.
    pub(crate) const fn none(runs: Arc<RunTable>) -> Self {
        Self { runs, linked: Vec::new() }
    }

    /// The agent has received the answer and works.
    pub(crate) fn start_answers(&self) {
        for Linked { run, .. } in &self.linked {
            run.update(Publish::Now, |state| {
                if state.record.in_turn() {
                    state.record.set_time(clock::now());
                    state.record.start_answer();
                    state.about.changed_at = state.record.now().max(state.about.changed_at);
                }
            });
        }
    }

    /// The answer did not reach the agent: the runs wait again, for what is open again in their session.
    pub(crate) async fn wait_again(&mut self, freed: &[RunId], session: &Session) {
        let open_items = |id| session.doc().waiting.pending_of(id);
        for Linked { run, state: before } in std::mem::take(&mut self.linked) {
            let pending = open_items(run.id());
            run.update(Publish::Later, |state| {
                if state.record.in_turn() {
                    state.record.set_time(clock::now());
                    state.record.withdraw_turn(None);
                    state.pending = pending;
                    state.set(before, state.record.now());
                }
            });
            commit::publish_and_settle(self.runs.store(), &run).await;
        }

        // Runs that had ended show as open again what they asked.
        for id in freed {
            let run = self.runs.get(*id);
            if let Some(run) = run.filter(|run| run.view(|view| view.run().end.is_some())) {
                let pending = open_items(*id);
                run.update(Publish::Later, |state| state.pending = pending);
            }
        }
    }

    /// The answering turn has ended, and the runs end in the same way.
    pub(crate) async fn end(mut self, end: End, error: Option<&RunError>) {
        for Linked { run, .. } in std::mem::take(&mut self.linked) {
            run.update(Publish::Later, |state| state.cut(end, error.cloned()));
            commit::publish_and_settle(self.runs.store(), &run).await;
            self.runs.turn_ended(&run);
        }
    }
}

impl Drop for LinkedRuns {
    fn drop(&mut self) {
        for Linked { run, .. } in std::mem::take(&mut self.linked) {
            let error = faults::to_run_error(&faults::internal());
            run.update(Publish::Later, |state| state.cut(End::Failed, Some(error)));
            // The store completes the write by itself.
            drop(self.runs.store().settle(&run.journal()));
            run.publish(Publish::Concluded);
            run.count_end();
        }
    }
}
