//! Whether the database can be written, as all threads see it. Not here: trying again ([`super::writer`]).

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::store::local::lock;
use crate::store::{Health, StoreError};

/// A database that cannot be reached for less than this is no failure yet: it may be restarting.
const GRACE: Duration = Duration::from_secs(2);

/// The state of the writer, shared with all threads.
pub(super) struct WriterHealth(Mutex<State>);

struct State {
    failing: Option<Failing>,
    /// Since then there was no outage that others may have had too.
    good_since: Instant,
}

struct Failing {
    since: Instant,
    reason: String,
}

impl Default for WriterHealth {
    fn default() -> Self {
        Self(Mutex::new(State { failing: None, good_since: Instant::now() }))
    }
}

impl WriterHealth {
    /// Notes a failed attempt, after which writes count as failing since `began`. True if the one before it succeeded.
    pub(super) fn failed(&self, reason: &str, began: Instant) -> bool {
        let mut state = lock(&self.0);
        let since = state.failing.as_ref().map(|failing| failing.since);
        state.failing = Some(Failing { since: since.unwrap_or(began), reason: reason.to_owned() });
        since.is_none()
    }

    /// Notes a successful write. Returns how long writes had failed, if they had. Less than `short`: no other
    /// replica has missed its lease because of that.
    pub(super) fn recovered(&self, short: Duration) -> Option<Duration> {
        let mut state = lock(&self.0);
        let outage = state.failing.take()?.since.elapsed();
        if outage >= short {
            state.good_since = Instant::now();
        }
        Some(outage)
    }

    /// For how long this replica has been able to write without an outage that counts. Zero while it fails.
    pub(super) fn good_for(&self) -> Duration {
        let state = lock(&self.0);
        if state.failing.is_some() { Duration::ZERO } else { state.good_since.elapsed() }
    }

    /// What the latest attempt met.
    pub(super) fn reason(&self) -> String {
        lock(&self.0).failing.as_ref().map_or_else(String::new, |failing| failing.reason.clone())
    }

    pub(super) fn current(&self) -> Health {
        match &lock(&self.0).failing {
            Some(failing) if failing.since.elapsed() >= GRACE => Health::Failing {
                since: failing.since,
                error: StoreError::Unavailable { reason: failing.reason.clone() },
            },
            _ => Health::Good,
        }
    }
}
