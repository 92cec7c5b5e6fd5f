//! Runs that the engine was handed, and those that it is to be handed because this replica holds them and does not have
//! them. Not here: finding those ([`super::given_up`]), and taking runs over ([`super::recover`]).

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::store::local::lock;

/// How long the engine may take to open a run that it was handed. After that it is handed out again.
const OPENING_TIMEOUT: Duration = Duration::from_secs(60);

/// Which runs the engine was handed, and which it should be handed.
#[derive(Default)]
pub(super) struct HandedOut(Mutex<State>);

#[derive(Default)]
struct State {
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

    /// Those of these runs that the engine was not handed a moment ago.
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
