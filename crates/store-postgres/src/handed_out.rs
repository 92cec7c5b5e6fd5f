//! Orphaned runs: owned by this replica in the database, but not loaded. Records which of them were given to the engine
//! for recovery. Not here: the search for such runs ([`super::given_up`]), and the takeover of other replicas' runs
//! ([`super::recover`]).

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use uuid::Uuid;

use interlingua_store::local::lock;

/// Time that the engine has to open a run that was handed out. After it the run is handed out again.
const OPENING_TIMEOUT: Duration = Duration::from_secs(60);

/// The runs that were handed out to the engine, and those that wait for it.
#[derive(Default)]
pub(super) struct HandedOut(Mutex<RecoveryState>);

#[derive(Default)]
struct RecoveryState {
    /// When those were handed out that may not be open yet.
    since: HashMap<Uuid, Instant>,
    /// Held, and not had.
    forgotten: Vec<Uuid>,
}

impl HandedOut {
    /// Notes what is handed out now.
    pub(super) fn add(&self, runs: impl Iterator<Item = Uuid>) {
        let now = Instant::now();
        lock(&self.0).since.extend(runs.map(|run| (run, now)));
    }

    /// The runs among these that were not handed out recently.
    pub(super) fn without_handed_out(&self, runs: Vec<Uuid>) -> Vec<Uuid> {
        let mut state = lock(&self.0);
        state.since.retain(|_, since| since.elapsed() < OPENING_TIMEOUT);
        runs.into_iter().filter(|run| !state.since.contains_key(run)).collect()
    }

    /// Notes what this replica holds and does not have.
    pub(super) fn set_forgotten(&self, runs: Vec<Uuid>) {
        lock(&self.0).forgotten = runs;
    }

    pub(super) fn take_forgotten(&self) -> Vec<Uuid> {
        std::mem::take(&mut lock(&self.0).forgotten)
    }
}
