//! The progress of one request, as far as errors and time limits depend on it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The connection of a request: new, or pooled.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    dialled: AtomicBool,
    connected: OnceLock<Instant>,
}

impl Attempt {
    /// A new connection is requested.
    pub(super) fn note_dial(&self) {
        self.dialled.store(true, Ordering::Relaxed);
    }

    /// The connection is open. Keeps the time of the first one: a request may be sent again over a second one.
    pub(super) fn note_connection(&self) {
        let _ = self.connected.set(Instant::now());
    }

    /// True if a new connection was requested. Otherwise the request went over a pooled one.
    pub(super) fn dialled(&self) -> bool {
        self.dialled.load(Ordering::Relaxed)
    }

    /// When the connection was open, or the latest time it can be.
    pub(super) fn connected(&self, began: Instant, bound: Duration) -> Instant {
        match self.connected.get() {
            Some(moment) => *moment,
            None if self.dialled() => began + bound,
            None => began,
        }
    }
}
