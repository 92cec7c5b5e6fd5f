//! The unstored responses of one connection. They are kept in memory as long as the connection, and only requests of
//! this connection can continue from them.
//!
//! Not here: connections ([`interlingua_server`]) and continuing from a response ([`crate::turns::context`]).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlingua_core::RunId;

use super::active_run::ActiveRun;
use super::turn::Turn;
use super::unstored::UnstoredRuns;
use crate::sessions::{Basis, Session, sizes};

/// The maximum number of responses per connection. The oldest ones are dropped.
const MAX_RESPONSES: usize = 1000;
/// The maximum size of the responses per connection.
const MAX_BYTES: usize = 16 << 20;

/// The unstored responses of one connection, until it is dropped.
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
    /// Held here, because the session of an unstored response may not be stored either.
    session: Arc<Session>,
    bytes: usize,
}

impl ConnectionCache {
    pub(crate) fn new(unstored: &Arc<UnstoredRuns>) -> Arc<Self> {
        Arc::new(Self { unstored: Arc::clone(unstored), responses: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Responses> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the response of a successful turn if it is not stored. After a failed turn, drops the response that the turn
    /// continued from, so that the client does not retry from it.
    pub(crate) fn turn_concluded(&self, run: &Arc<ActiveRun>, turn: &Turn, is_good: bool) {
        if is_good && !turn.policy.stored {
            self.insert(run, &turn.session);
        }
        if let (false, Basis::After(previous)) = (is_good, &turn.spoken.basis) {
            self.evict(*previous);
        }
    }

    /// Adds a response and drops the oldest ones if necessary. A response larger than [`MAX_BYTES`] is not kept.
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

    /// False if the cache is empty.
    fn drop_oldest(&self, responses: &mut Responses) -> bool {
        self.remove(responses, 0)
    }

    /// False if there is no response at this index.
    fn remove(&self, responses: &mut Responses, index: usize) -> bool {
        let Some(response) = responses.queue.remove(index) else { return false };
        responses.bytes -= response.bytes;
        self.unstored.remove(response.run.id(), response.bytes);
        true
    }

    /// The session of a response. `None`: the response is not in the cache.
    pub(crate) fn session_of(&self, run: RunId) -> Option<Arc<Session>> {
        let responses = self.lock();
        let found = responses.queue.iter().rfind(|response| response.run.id() == run);
        found.map(|response| Arc::clone(&response.session))
    }

    pub(super) fn contains(&self, run: RunId) -> bool {
        self.lock().queue.iter().any(|response| response.run.id() == run)
    }

    /// Drops a response, if it is in the cache.
    pub fn evict(&self, run: RunId) {
        let mut responses = self.lock();
        if let Some(index) = responses.queue.iter().position(|response| response.run.id() == run) {
            self.remove(&mut responses, index);
        }
    }
}

impl Drop for ConnectionCache {
    fn drop(&mut self) {
        let mut responses = std::mem::take(&mut *self.lock());
        while self.drop_oldest(&mut responses) {}
    }
}
