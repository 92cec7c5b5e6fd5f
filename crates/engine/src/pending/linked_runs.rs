//! Waiting runs whose pending items are answered by a turn of another run, possibly over another protocol.
//!
//! Such a run gets a linked turn. It starts when the last item is closed, is withdrawn if the answer never reached the
//! agent, and ends the run with the same result as the answering turn. The linked turn is recorded as steps, so that
//! followers, push receivers and a restarted gateway see it. Invariant: when a client sees the end of the answering
//! turn, the answered run has ended too.
//!
//! Not here: opening and closing items (`interlingua_core::answer`).

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

/// The runs whose items a turn answers. If the value is dropped before the turn ends, these runs fail.
pub(crate) struct LinkedRuns {
    runs: Arc<RunTable>,
    linked: Vec<Linked>,
}

struct Linked {
    run: HeldRun,
    /// The state before the run was linked.
    state: RunState,
}

impl RunLinker {
    pub(crate) const fn new(runs: Arc<RunTable>, deliveries: Arc<Deliveries>, rules: Arc<SharedRules>) -> Self {
        Self { runs, deliveries, rules }
    }

    /// Links waiting runs to the current turn of `by`, which closes their last open items.
    pub(crate) async fn link(&self, freed: &[RunId], by: RunId) -> LinkedRuns {
        let mut linked = LinkedRuns::none(Arc::clone(&self.runs));
        for id in freed.iter().filter(|id| **id != by) {
            match self.link_one(*id, by).await {
                Ok(Some(run)) => linked.linked.push(run),
                Ok(None) => {}
                // The next call that continues the run ends it: `end_unlinked`.
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
            // The run has ended: show its items as closed.
            if let RunHandle::InMemory(run) = &handle {
                run.update(Publish::Later, |state| state.pending.clear());
            }
            return Ok(None);
        }

        let run = self.runs.activate(handle).await?;
        // Before its next step, so that its push receivers get that step.
        if let Some(scope) = self.rules.scope_of(&run) {
            self.deliveries.start(&run, StartReason::RunContinues, &scope).await?;
        }

        let state = run.update(Publish::Now, |state| {
            let before = state.about.state;
            // Meanwhile the run may have ended or started another turn.
            before.is_waiting().then(|| {
                state.record.set_time(clock::now());
                state.record.start_linked_turn(by);
                state.pending.clear();
                state.set(RunState::Running, state.record.now());
                before
            })
        });

        let Some(state) = state else { return Ok(None) };

        // Store the run before its session. A crash in between fails both runs, so that none waits without an open item.
        commit::publish_and_settle(self.runs.store(), &run).await;
        Ok(Some(Linked { run, state }))
    }

    /// Ends a waiting run without open items: another run received the answer, but linking failed. The run ends as
    /// completed, because the result of the other run is unknown.
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
    /// No runs, for a turn that answers no other run.
    pub(crate) const fn none(runs: Arc<RunTable>) -> Self {
        Self { runs, linked: Vec::new() }
    }

    /// Records that the agent received the answer and started to work.
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

    /// Withdraws the linked turns because the answer did not reach the agent. The items are open again in `session`.
    pub(crate) async fn wait_again(&mut self, freed: &[RunId], session: &Session) {
        for Linked { run, state: before } in std::mem::take(&mut self.linked) {
            let pending = session.pending_of(run.id());
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

        // Runs that had ended before show their items as open again.
        for id in freed {
            let run = self.runs.get(*id);
            if let Some(run) = run.filter(|run| run.view(|view| view.run().end.is_some())) {
                let pending = session.pending_of(*id);
                run.update(Publish::Later, |state| state.pending = pending);
            }
        }
    }

    /// Ends the runs with the result of the answering turn.
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
            let error = faults::to_run_error(&Fault::internal());
            run.update(Publish::Later, |state| state.cut(End::Failed, Some(error)));
            // The store completes the write without being awaited.
            drop(self.runs.store().settle(&run.journal()));
            run.publish(Publish::Concluded);
            run.count_end();
        }
    }
}
