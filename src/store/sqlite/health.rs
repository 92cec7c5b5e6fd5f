//! How the store is: whether it can write, and which runs it still has to. Written by the writing thread, read by
//! everybody. Not here: what is tried when ([`super::writer`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlingua_core::call::RunInfo;
use interlingua_core::id::RunId;
use interlingua_core::run::Record;

use crate::store::local::lock;
use crate::store::{Health, Journal, StoreError};

/// A write that takes longer than this is stuck.
const STUCK: Duration = Duration::from_secs(3);

/// What everybody may know of the writing thread.
#[derive(Default)]
pub(super) struct Pulse(Mutex<State>);

#[derive(Default)]
struct State {
    failing: Option<(Instant, StoreError)>,
    /// Since when it writes.
    writes: Option<Instant>,
}

impl Pulse {
    /// It begins to write, or has done so.
    pub(super) fn writes(&self, writes: bool) {
        lock(&self.0).writes = writes.then(Instant::now);
    }

    /// It could not write. True if it could before.
    pub(super) fn fails(&self, error: &StoreError) -> bool {
        let mut state = lock(&self.0);
        let since = state.failing.as_ref().map(|(since, _)| *since);
        state.failing = Some((since.unwrap_or_else(Instant::now), error.clone()));
        since.is_none()
    }

    /// It can write again. Answers for how long it could not.
    pub(super) fn recovers(&self) -> Option<Duration> {
        lock(&self.0).failing.take().map(|(since, _)| since.elapsed())
    }

    pub(super) fn health(&self) -> Health {
        let state = lock(&self.0);
        if let Some((since, error)) = &state.failing {
            return Health::Failing { since: *since, error: error.clone() };
        }
        match state.writes.map(|since| (since, since.elapsed())) {
            Some((since, after)) if after > STUCK => Health::Failing { since, error: StoreError::Late { after } },
            _ => Health::Good,
        }
    }
}

/// A run that could not be written.
#[derive(Clone)]
pub(super) struct Debt {
    pub(super) run: Arc<dyn Journal>,
    /// It is to be made known.
    pub(super) open: bool,
}

/// The runs that could not be written yet. They are found here meanwhile.
///
/// Bounded by what was under way when writing began to fail: no new runs are taken until it is possible again.
#[derive(Default)]
pub(super) struct Owed(Mutex<HashMap<RunId, Debt>>);

impl Owed {
    /// To be written later. Of two journals of one run the newer one counts.
    pub(super) fn put(&self, run: &Arc<dyn Journal>, open: bool) {
        let mut owed = lock(&self.0);
        let open = open || owed.get(&run.id()).is_some_and(|debt| debt.open);
        owed.insert(run.id(), Debt { run: Arc::clone(run), open });
    }

    /// It is written, or need not be.
    pub(super) fn remove(&self, id: RunId) {
        lock(&self.0).remove(&id);
    }

    pub(super) fn get(&self, id: RunId) -> Option<Debt> {
        let owed = lock(&self.0);
        if owed.is_empty() { None } else { owed.get(&id).cloned() }
    }

    /// Looks at a run that is not written. None: it is, as far as is known here.
    pub(super) fn look<T>(&self, id: RunId, see: impl Fn(&Record, &RunInfo) -> T) -> Option<T> {
        let debt = self.get(id)?;
        let mut seen = None;
        debt.run.with(&mut |record, about| seen = Some(see(record, about)));
        seen
    }

    pub(super) fn all(&self) -> Vec<Debt> {
        lock(&self.0).values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
