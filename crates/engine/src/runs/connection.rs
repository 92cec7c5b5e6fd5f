//! The responses of one connection that are not stored: they live as long as the connection, and only its requests can
//! continue from them.
//!
//! All of it is memory: nothing has to be cleaned up in the store. Not here: connections themselves
//! ([`interlingua_server`]), and continuing from a response ([`crate::turns::context`]).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlingua_core::RunId;

use super::active_run::ActiveRun;
use super::turn::Turn;
use super::unstored::UnstoredRuns;
use crate::sessions::{Basis, Session, sizes};

/// The most responses that one connection keeps: then the oldest are dropped.
const MAX_RESPONSES: usize = 1000;
/// The most bytes of them.
const MAX_BYTES: usize = 16 << 20;

/// The unstored responses of one connection. Dropping it drops all of them.
pub struct ConnectionCache {
    unstored: Arc<UnstoredRuns>,
    responses: Mutex<Responses>,
}

#[derive(Default)]
struct Responses {
    /// Oldest first.
    queue: VecDeque<Response>,
    bytes: usize,
}

struct Response {
    run: Arc<ActiveRun>,
    /// Sessions of such responses are not stored either: this keeps them.
    session: Arc<Session>,
    bytes: usize,
}

impl ConnectionCache {
    /// For a new connection.
    pub(crate) fn new(unstored: &Arc<UnstoredRuns>) -> Arc<Self> {
        Arc::new(Self { unstored: Arc::clone(unstored), responses: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Responses> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what a turn has come to, if it is not stored.
    pub(crate) fn turn_concluded(&self, run: &Arc<ActiveRun>, turn: &Turn, is_good: bool) {
        if is_good && !turn.policy.stored {
            self.insert(run, &turn.session);
        }
        // A request that failed is not tried again from the same response.
        if let (false, Basis::After(previous)) = (is_good, &turn.spoken.basis) {
            self.evict(*previous);
        }
    }

    /// Keeps a response, dropping the oldest ones for it. One that is too large is not kept.
    fn insert(&self, run: &Arc<ActiveRun>, session: &Arc<Session>) {
        let bytes = run.view(sizes::run);
        if bytes > MAX_BYTES {
            return tracing::warn!(run = %run.id(), bytes, "a response that is not stored is too large to be kept: the client cannot continue from it");
        }

        let mut responses = self.lock();
        while responses.queue.len() >= MAX_RESPONSES || responses.bytes + bytes > MAX_BYTES {
            self.drop_oldest(&mut responses);
        }

        while !self.unstored.add(run, bytes) {
            if !self.drop_oldest(&mut responses) {
                return tracing::warn!(run = %run.id(), "too many responses are kept that are not stored: the client cannot continue from this one");
            }
        }

        responses.bytes += bytes;
        responses.queue.push_back(Response { run: Arc::clone(run), session: Arc::clone(session), bytes });
    }

    /// False if there is none.
    fn drop_oldest(&self, responses: &mut Responses) -> bool {
        let Some(oldest) = responses.queue.pop_front() else { return false };
        responses.bytes -= oldest.bytes;
        self.unstored.remove(oldest.run.id(), oldest.bytes);
        true
    }

    /// The session of a response that is kept here.
    pub(crate) fn session_of(&self, run: RunId) -> Option<Arc<Session>> {
        let responses = self.lock();
        let found = responses.queue.iter().rfind(|response| response.run.id() == run);
        found.map(|response| Arc::clone(&response.session))
    }

    /// True if a response is kept here.
    pub(super) fn contains(&self, run: RunId) -> bool {
        self.lock().queue.iter().any(|response| response.run.id() == run)
    }

    /// Drops a response: a request that continued from it failed. Nothing happens if it is not kept here.
    pub fn evict(&self, run: RunId) {
        let mut responses = self.lock();
        if let Some(index) = responses.queue.iter().position(|response| response.run.id() == run)
            && let Some(response) = responses.queue.remove(index)
        {
            responses.bytes -= response.bytes;
            self.unstored.remove(response.run.id(), response.bytes);
        }
    }
}

impl Drop for ConnectionCache {
    fn drop(&mut self) {
        let mut responses = std::mem::take(&mut *self.lock());
        while self.drop_oldest(&mut responses) {}
    }
}
