//! Health of the store: whether it can write, and which runs it still has to write. Updated by the writer thread, read
//! by all threads. Not here: when writes are retried ([`super::writer`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlingua_core::call::RunInfo;
use interlingua_core::id::RunId;
use interlingua_core::run::Record;

use interlingua_store::local::lock;
use interlingua_store::{Health, Journal, StoreError};

/// A write that takes longer than this is reported as stuck.
const STUCK_TIMEOUT: Duration = Duration::from_secs(3);

/// The state of the writer thread, shared with all threads.
#[derive(Default)]
pub(super) struct WriterHealth(Mutex<WriterState>);

#[derive(Default)]
struct WriterState {
    failing: Option<(Instant, StoreError)>,
    /// When the current write began. `None`: the writer is idle.
    writing_since: Option<Instant>,
}

impl WriterHealth {
    /// Records that the writer begins or ends a write.
    pub(super) fn set_writing(&self, writing: bool) {
        lock(&self.0).writing_since = writing.then(Instant::now);
    }

    /// Records a failed write. True if the previous write succeeded.
    pub(super) fn set_failing(&self, error: &StoreError) -> bool {
        let mut state = lock(&self.0);
        let since = state.failing.as_ref().map(|(since, _)| *since);
        state.failing = Some((since.unwrap_or_else(Instant::now), error.clone()));
        since.is_none()
    }

    /// Records a successful write. Returns how long writes had been failing.
    pub(super) fn set_recovered(&self) -> Option<Duration> {
        lock(&self.0).failing.take().map(|(since, _)| since.elapsed())
    }

    pub(super) fn current(&self) -> Health {
        let state = lock(&self.0);
        if let Some((since, error)) = &state.failing {
            return Health::Failing { since: *since, error: error.clone() };
        }

        match state.writing_since.map(|since| (since, since.elapsed())) {
            Some((since, after)) if after > STUCK_TIMEOUT => {
                Health::Failing { since, error: StoreError::Timeout { after } }
            }
            _ => Health::Good,
        }
    }
}

/// A run that could not be written.
#[derive(Clone)]
pub(super) struct UnwrittenRun {
    pub(super) run: Arc<dyn Journal>,
    /// True if the run has no row yet, so that it must be opened first.
    pub(super) open: bool,
}

/// The runs that could not be written yet. Reads find them here meanwhile.
///
/// Bounded by the number of active runs when writes began to fail: no new runs are accepted until writes succeed.
#[derive(Default)]
pub(super) struct UnwrittenRuns(Mutex<HashMap<RunId, UnwrittenRun>>);

impl UnwrittenRuns {
    /// Adds a run to be written later. Of two journals of one run the newer one counts.
    pub(super) fn put(&self, run: &Arc<dyn Journal>, open: bool) {
        let mut runs = lock(&self.0);
        let open = open || runs.get(&run.id()).is_some_and(|run| run.open);
        runs.insert(run.id(), UnwrittenRun { run: Arc::clone(run), open });
    }

    /// Removes a run that is written or need not be written any more.
    pub(super) fn remove(&self, id: RunId) {
        lock(&self.0).remove(&id);
    }

    pub(super) fn get(&self, id: RunId) -> Option<UnwrittenRun> {
        let runs = lock(&self.0);
        if runs.is_empty() { None } else { runs.get(&id).cloned() }
    }

    /// Reads a value from a run that is not written. `None`: the run is written, or unknown here.
    pub(super) fn inspect<T>(&self, id: RunId, read: impl Fn(&Record, &RunInfo) -> T) -> Option<T> {
        let unwritten = self.get(id)?;
        let mut value = None;
        unwritten.run.with(&mut |record, info| value = Some(read(record, info)));
        value
    }

    pub(super) fn all(&self) -> Vec<UnwrittenRun> {
        lock(&self.0).values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
