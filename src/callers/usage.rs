//! What one caller uses at the moment. Not here: what the caller is allowed to use ([`super::profiles`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use interlingua_core::{Fault, LimitState};

/// What one caller uses at the moment.
#[derive(Debug, Default)]
pub struct Usage {
    streams: AtomicUsize,
    sockets: AtomicUsize,
    runs: AtomicUsize,
    queued: AtomicUsize,
}

/// What is counted while a [`Permit`] exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// An answer, until its last byte.
    Stream,
    /// A WebSocket.
    Socket,
    /// A run that is under way.
    Run,
    /// A turn that waits for another one of its session.
    Queued,
}

/// Counts one use of a caller until it is dropped.
#[derive(Debug)]
pub struct Permit {
    usage: Arc<Usage>,
    what: Use,
}

impl Usage {
    /// Counts a request. `None`: the caller has no rate.
    ///
    /// # Errors
    /// [`interlingua_core::FaultKind::RateLimited`] with the limit that was reached.
    pub fn admit_request(&self) -> Result<Option<LimitState>, Fault> {
        Ok(None)
    }

    /// Counts a use until the permit is dropped.
    ///
    /// # Errors
    /// [`interlingua_core::FaultKind::RateLimited`] with the limit that was reached.
    pub fn begin(self: &Arc<Self>, what: Use) -> Result<Permit, Fault> {
        self.count(what).fetch_add(1, Ordering::Relaxed);
        Ok(Permit { usage: Arc::clone(self), what })
    }

    fn count(&self, what: Use) -> &AtomicUsize {
        match what {
            Use::Stream => &self.streams,
            Use::Socket => &self.sockets,
            Use::Run => &self.runs,
            Use::Queued => &self.queued,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.usage.count(self.what).fetch_sub(1, Ordering::Relaxed);
    }
}
