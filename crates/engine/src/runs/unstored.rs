//! Runs that are stored nowhere and that connections keep in memory, found by id, with a common memory bound.
//!
//! Not here: which run a connection keeps ([`super::connection`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use interlingua_core::RunId;

use super::active_run::ActiveRun;

/// The most bytes that all connections of the process keep together.
const MAX_BYTES: usize = 512 << 20;

/// All runs that connections keep.
#[derive(Default)]
pub(crate) struct UnstoredRuns(Mutex<Runs>);

#[derive(Default)]
struct Runs {
    by_id: HashMap<RunId, Weak<ActiveRun>>,
    bytes: usize,
}

impl UnstoredRuns {
    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run by its id, whichever connection keeps it.
    pub(crate) fn get(&self, id: RunId) -> Option<Arc<ActiveRun>> {
        self.lock().by_id.get(&id)?.upgrade()
    }

    /// False if there is no room.
    pub(crate) fn add(&self, run: &Arc<ActiveRun>, bytes: usize) -> bool {
        let mut runs = self.lock();
        if runs.bytes + bytes > MAX_BYTES {
            return false;
        }
        runs.bytes += bytes;
        runs.by_id.insert(run.id(), Arc::downgrade(run));
        true
    }

    /// `bytes`: as it was added.
    pub(crate) fn remove(&self, id: RunId, bytes: usize) {
        let mut runs = self.lock();
        runs.bytes -= bytes;
        runs.by_id.remove(&id);
    }
}
