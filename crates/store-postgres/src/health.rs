//! Whether the database can be written, as all threads see it. Not here: trying again ([`super::writer`]).

use std::sync::Mutex;
use std::time::{Duration, Instant};

use interlingua_store::local::lock;
use interlingua_store::{Health, StoreError};

/// A database that cannot be reached for less than this is no failure yet: it may be restarting.
const GRACE: Duration = Duration::from_secs(2);

/// The state of the writer, shared with all threads. `None`: it writes.
#[derive(Default)]
pub(super) struct WriterHealth(Mutex<Option<Failing>>);

struct Failing {
    since: Instant,
    reason: String,
}

impl WriterHealth {
    /// Notes a failed attempt, after which writes count as failing since `began`. True if the one before it succeeded.
    pub(super) fn failed(&self, reason: &str, began: Instant) -> bool {
        let mut failing = lock(&self.0);
        let since = failing.as_ref().map(|failing| failing.since);
        *failing = Some(Failing { since: since.unwrap_or(began), reason: reason.to_owned() });
        since.is_none()
    }

    /// Notes a successful write. Returns how long writes had failed, if they had.
    pub(super) fn recovered(&self) -> Option<Duration> {
        lock(&self.0).take().map(|failing| failing.since.elapsed())
    }

    /// The failure of the latest attempt.
    pub(super) fn reason(&self) -> String {
        lock(&self.0).as_ref().map_or_else(String::new, |failing| failing.reason.clone())
    }

    pub(super) fn current(&self) -> Health {
        match &*lock(&self.0) {
            Some(failing) if failing.since.elapsed() >= GRACE => Health::Failing {
                since: failing.since,
                error: StoreError::Unavailable { reason: failing.reason.clone() },
            },
            _ => Health::Good,
        }
    }
}
