//! Ends a run whose driver does not: it panicked, was dropped with its thread, or was never started.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use interlingua_core::{End, Fault};

use super::active_run::{ActiveRun, Publish, State};
use super::table::RunTable;
use crate::faults;

/// Made before a run is known to anyone, and owned by its driver from then on.
pub(crate) struct AbortGuard {
    runs: Arc<RunTable>,
    run: Arc<ActiveRun>,
    /// True until the driver has ended its turn.
    is_armed: bool,
}

impl AbortGuard {
    pub(crate) fn new(runs: &Arc<RunTable>, run: &Arc<ActiveRun>) -> Self {
        runs.driven().fetch_add(1, Ordering::AcqRel);
        Self { runs: Arc::clone(runs), run: Arc::clone(run), is_armed: true }
    }

    pub(crate) const fn run(&self) -> &Arc<ActiveRun> {
        &self.run
    }

    /// The driver has ended its turn. The next turn has another driver, and may start before the store has written this
    /// end.
    pub(crate) fn disarm(mut self) {
        self.is_armed = false;
    }
}

impl Drop for AbortGuard {
    fn drop(&mut self) {
        // A record that a panic left incomplete may panic again. While unwinding that would end the process.
        let ended = catch_unwind(AssertUnwindSafe(|| self.end()));
        if ended.is_err() {
            tracing::error!(run = %self.run.id(), "the task of a run stopped before the run's end, and ending the run panicked: it is removed from memory");
            self.run.update(Publish::Later, State::abandon);
            self.runs.remove(self.run.id());
        }
        self.runs.driven().fetch_sub(1, Ordering::AcqRel);
    }
}

impl AbortGuard {
    fn end(&self) {
        if !self.is_armed || !self.run.run_state().is_working() {
            return;
        }

        tracing::error!(run = %self.run.id(), "the task of a run stopped before the run's end: the run ends as failed");
        let error = faults::to_run_error(&Fault::internal());
        self.run.update(Publish::Later, |state| state.cut(End::Failed, Some(error)));
        // The store completes the write by itself.
        drop(self.runs.store().settle(&self.run.journal()));
        self.run.publish(Publish::Forced);
        self.run.count_end();
        self.runs.turn_ended(&self.run);
    }
}
