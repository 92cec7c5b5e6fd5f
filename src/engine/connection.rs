//! The responses of one connection that are not stored: they live as long as the connection they came over, and only
//! requests that come over the same one may build on them.
//!
//! All of it is memory. It goes when the connection closes, and with the process; nothing has to be cleaned up in the
//! store. Not here: connections themselves ([`crate::server`]), and what goes on from a response ([`super::context`]).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use interlingua_core::RunId;
use interlingua_core::call::Thread;

use super::driver::Turn;
use super::session::Session;
use super::{ActiveRun, Engine, context};

/// One connection keeps at most so many responses: beyond, the oldest are forgotten.
const MAX_RESPONSES: usize = 1000;
/// One connection keeps at most so many bytes of them.
const MAX_BYTES: usize = 16 << 20;
/// All connections of the process together keep at most so many bytes.
const MAX_BYTES_TOGETHER: usize = 512 << 20;

/// What one connection keeps. Dropping it forgets all of it.
pub struct ConnectionCache {
    engine: Engine,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Oldest first.
    responses: VecDeque<Response>,
    bytes: usize,
}

struct Response {
    live: Arc<ActiveRun>,
    /// Sessions of such responses are stored nowhere either: this keeps them.
    session: Arc<Session>,
    bytes: usize,
}

/// The responses that connections keep, found by their id.
#[derive(Default)]
pub(super) struct Unstored {
    runs: HashMap<RunId, Weak<ActiveRun>>,
    bytes: usize,
}

impl ConnectionCache {
    /// For a new connection.
    #[must_use]
    pub fn new(engine: &Engine) -> Arc<Self> {
        Arc::new(Self { engine: engine.clone(), kept: Mutex::default() })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what a turn has come to, if that is not stored.
    pub(super) fn concluded(&self, live: &Arc<ActiveRun>, turn: &Turn, good: bool) {
        if good && !turn.stored {
            self.keep(live, &turn.session);
        }
        // What failed is not tried again on the same ground.
        if let (false, Thread::After(previous)) = (good, &turn.thread) {
            self.evict(*previous);
        }
    }

    /// Keeps a response that ended well. The oldest make room for it; one that is too large is not kept.
    fn keep(&self, live: &Arc<ActiveRun>, session: &Arc<Session>) {
        let bytes = live.view(|view| {
            let said = view.run().turns.iter().flat_map(|turn| &turn.input).map(context::weight).sum::<usize>();
            view.record.size() + said
        });
        if bytes > MAX_BYTES {
            return tracing::warn!(run = %live.id(), bytes, "a response is too large to be kept for its connection");
        }
        let mut kept = self.kept();
        while kept.responses.len() >= MAX_RESPONSES || kept.bytes + bytes > MAX_BYTES {
            self.drop_oldest(&mut kept);
        }
        while !self.engine.unstored().add(live, bytes) {
            if !self.drop_oldest(&mut kept) {
                return tracing::warn!(run = %live.id(), "connections keep too many responses: this one is not kept");
            }
        }
        kept.bytes += bytes;
        kept.responses.push_back(Response { live: Arc::clone(live), session: Arc::clone(session), bytes });
    }

    /// False if there is none.
    fn drop_oldest(&self, kept: &mut Kept) -> bool {
        let Some(oldest) = kept.responses.pop_front() else { return false };
        kept.bytes -= oldest.bytes;
        self.engine.unstored().remove(&oldest);
        true
    }

    /// The session of a response that is kept.
    pub(super) fn session_of(&self, run: RunId) -> Option<Arc<Session>> {
        let kept = self.kept();
        let found = kept.responses.iter().rfind(|response| response.live.id() == run);
        found.map(|response| Arc::clone(&response.session))
    }

    /// Whether a response is kept here.
    pub(super) fn holds(&self, run: RunId) -> bool {
        self.kept().responses.iter().any(|response| response.live.id() == run)
    }

    /// Forgets a response: what was to go on from it failed. Nothing happens if it is not kept here.
    pub fn evict(&self, run: RunId) {
        let mut kept = self.kept();
        if let Some(place) = kept.responses.iter().position(|response| response.live.id() == run)
            && let Some(response) = kept.responses.remove(place)
        {
            kept.bytes -= response.bytes;
            self.engine.unstored().remove(&response);
        }
    }
}

impl Drop for ConnectionCache {
    fn drop(&mut self) {
        let mut kept = std::mem::take(&mut *self.kept());
        while self.drop_oldest(&mut kept) {}
    }
}

impl Unstored {
    /// False if there is no room.
    fn add(&mut self, live: &Arc<ActiveRun>, bytes: usize) -> bool {
        if self.bytes + bytes > MAX_BYTES_TOGETHER {
            return false;
        }
        self.bytes += bytes;
        self.runs.insert(live.id(), Arc::downgrade(live));
        true
    }

    fn remove(&mut self, response: &Response) {
        self.bytes -= response.bytes;
        self.runs.remove(&response.live.id());
    }

    /// A response by its id, whichever connection keeps it.
    pub(super) fn get(&self, run: RunId) -> Option<Arc<ActiveRun>> {
        self.runs.get(&run)?.upgrade()
    }
}
