//! A record of the attempts to begin a turn: the endpoint, the time of admission, and the retries.
//!
//! Shared by the engine, which chooses endpoints, and the transport, which sends. No decision depends on it; the access
//! log and spans read it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use interlingua_core::event::Millis;

use super::pool::EndpointAddress;
use interlingua_base::clock;

/// The most requests sent again of which more than the number is noted.
const MAX_RETRIES: usize = 8;

/// Notes of one turn.
#[derive(Debug, Default)]
pub struct Attempts(Mutex<AttemptLog>);

/// The record of a turn's attempts.
#[derive(Clone, Debug, Default)]
pub struct AttemptLog {
    /// The endpoint that was chosen last. `None`: none was.
    pub endpoint: Option<Arc<EndpointAddress>>,
    /// When there was a place for the turn at an endpoint.
    pub placed_at: Option<Instant>,
    /// The number of retries.
    pub retries: u32,
    /// The first of those.
    pub first_retries: Vec<Retry>,
}

/// A request that was sent again.
#[derive(Clone, Debug)]
pub struct Retry {
    /// When it was known that it has to be.
    pub at: Millis,
    /// The code of the fault, or the status that it was answered with.
    pub reason: String,
}

impl Attempts {
    /// There is a place for the turn at this endpoint. `None`: the agent is in this process.
    pub fn placed(&self, endpoint: Option<&Arc<EndpointAddress>>) {
        let mut noted = self.lock_log();
        noted.endpoint = endpoint.cloned();
        noted.placed_at.get_or_insert_with(Instant::now);
    }

    /// A request is sent again.
    pub fn retried(&self, reason: impl Into<String>) {
        let mut noted = self.lock_log();
        noted.retries += 1;
        if noted.first_retries.len() < MAX_RETRIES {
            let retry = Retry { at: clock::now(), reason: reason.into() };
            noted.first_retries.push(retry);
        }
    }

    /// All notes so far.
    #[must_use]
    pub fn take(&self) -> AttemptLog {
        std::mem::take(&mut self.lock_log())
    }

    fn lock_log(&self) -> MutexGuard<'_, AttemptLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
