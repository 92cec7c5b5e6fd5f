//! What holds on to a run while somebody works on it, and puts it in order however that ends: done, dropped, panicked.
//!
//! Not here: what is done with it meanwhile ([`super::driver`], [`super::runs`]).

use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use interlingua_core::call::RunState;
use interlingua_core::run::RunError;
use interlingua_core::{End, FaultKind};

use super::{ActiveRun, Engine};
use crate::store::Journal;

/// Ends a run that nobody drives any more: its driver panicked, was dropped with its thread, or was never started.
/// Made before the run is known to anybody, and owned by its driver from then on.
pub(super) struct AbortGuard {
    engine: Engine,
    live: Arc<ActiveRun>,
}

impl AbortGuard {
    pub(super) const fn new(engine: Engine, live: Arc<ActiveRun>) -> Self {
        Self { engine, live }
    }

    pub(super) const fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) const fn live(&self) -> &Arc<ActiveRun> {
        &self.live
    }
}

impl Drop for AbortGuard {
    fn drop(&mut self) {
        let (engine, live) = (&self.engine, &self.live);
        // A record that a panic has left half done may panic again. While unwinding that would end the process.
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| end(engine, live)));
        if ended.is_err() {
            tracing::error!(run = %live.id(), "a run that was dropped before its end cannot be ended in order");
            live.update_unpublished(super::active_run::State::abandon);
            engine.lives().remove(live.id());
        }
    }
}

fn end(engine: &Engine, live: &Arc<ActiveRun>) {
    if !matches!(live.view(|view| view.info.state), RunState::Queued | RunState::Running) {
        return;
    }
    tracing::error!(run = %live.id(), "a run was dropped before its end");
    let code = FaultKind::Internal.code().to_owned();
    let error = RunError { code, message: "the gateway made a mistake".to_owned() };
    live.update_unpublished(|state| state.cut(End::Failed, Some(error)));
    // Begun here, done by the store: nobody waits for it.
    drop(engine.store().settle(&(Arc::clone(live) as Arc<dyn Journal>)));
    live.publish_uncommitted();
    engine.ended(live);
}

/// Holds a run in memory that stands between two turns. Dropped, the run goes back to where it is kept, unless it has
/// a turn under way by then, or others need it.
pub(super) struct Held {
    engine: Engine,
    live: Arc<ActiveRun>,
}

impl Held {
    /// To be called with the run known, and the door closed: nobody forgets it in between.
    pub(super) fn new(engine: &Engine, live: &Arc<ActiveRun>) -> Self {
        live.hold();
        Self { engine: engine.clone(), live: Arc::clone(live) }
    }
}

impl Deref for Held {
    type Target = Arc<ActiveRun>;

    fn deref(&self) -> &Arc<ActiveRun> {
        &self.live
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.live.release();
        self.engine.forget_if_idle(&self.live);
    }
}
