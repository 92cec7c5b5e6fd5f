//! Publishes the results of turns and the ends of runs once they are safe in the store. In a store with a time limit
//! ([`interlingua_store::Coordination::write_timeout`]), a run whose result is not written in time ends as failed.
//!
//! Not here: the result of a turn ([`crate::turns::conclude`]), and the safe part of a run ([`super::visibility`]).

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core::Fault;
use tokio::time::timeout;

use super::active_run::{ActiveRun, Publish};
use crate::faults::{self, store_fault};
use crate::sessions::{Session, SessionTable};
use interlingua_store::{Store, StoreError, StoreFuture};

/// Time that a caller waits for the store to open a run, or to write a run or a session.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits for a future, at most for `limit` if there is one. `None`: the limit has passed.
pub(crate) async fn within<T>(limit: Option<Duration>, doing: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => timeout(limit, doing).await.ok(),
        None => Some(doing.await),
    }
}

/// Waits for `before`, which writes everything that must precede the run in the store, then writes the run and
/// publishes it. False: the run is lost; or `limit` has passed before the run was safe, and it ends as failed. Without
/// a limit it waits until the run is safe or lost. A run that neither the store nor a client knows is only published.
pub(crate) async fn publish_when_safe(
    store: &Arc<dyn Store>,
    run: &Arc<ActiveRun>,
    limit: Option<Duration>,
    before: impl Future<Output = ()>,
) -> bool {
    let is_safe = publish_or_fail(store, run, limit, before).await;
    run.count_end();
    is_safe
}

async fn publish_or_fail(
    store: &Arc<dyn Store>,
    run: &Arc<ActiveRun>,
    limit: Option<Duration>,
    before: impl Future<Output = ()>,
) -> bool {
    if run.is_unobserved() {
        // The run is not in the store, and no client can find it.
        run.publish(Publish::Forced);
        return true;
    }

    let written = within(limit, async {
        before.await;
        wait_until_safe(store, run).await;
    });

    let in_time = written.await.is_some();
    run.publish(Publish::Concluded);
    if in_time {
        return !run.is_lost();
    }

    let failed = run.fail_unwritten(faults::to_run_error(&faults::not_written()));
    if failed {
        tracing::warn!(run = %run.id(), "the store did not write the run's end in time: the run ends as failed");
        // The store writes this end as soon as it can.
        store.touch(&run.journal());
    }

    !failed
}

/// Waits until the store has opened a run, for at most [`WRITE_TIMEOUT`].
pub(crate) async fn opened(opened: StoreFuture<()>) -> Result<(), Fault> {
    let opened = timeout(WRITE_TIMEOUT, opened).await;
    let opened = opened.unwrap_or(Err(StoreError::Timeout { after: WRITE_TIMEOUT }));
    opened.map_err(|error| store_fault(&error))
}

/// Saves a session, within [`WRITE_TIMEOUT`].
pub(crate) async fn saved(sessions: &SessionTable, session: &Arc<Session>) -> Result<(), Fault> {
    let saved = timeout(WRITE_TIMEOUT, sessions.save(session)).await;
    saved.unwrap_or_else(|_| Err(store_fault(&StoreError::Timeout { after: WRITE_TIMEOUT })))
}

/// Waits until the store has written the present state of a run.
pub(crate) async fn settle(store: &Arc<dyn Store>, run: &Arc<ActiveRun>) -> Result<(), Fault> {
    write(store, run).await.map_err(|error| store_fault(&error))
}

/// Starts to write a run as it is.
fn write(store: &Arc<dyn Store>, run: &Arc<ActiveRun>) -> StoreFuture<()> {
    if store.runs_move() {
        // Before the write: a turn that starts after it finds the run released.
        run.update(Publish::Later, |state| state.is_released |= state.about.state.is_waiting());
    }
    store.settle(&run.journal())
}

/// Publishes a run and writes its present state, within [`WRITE_TIMEOUT`]. A failure is only logged: the store keeps
/// trying, and followers see only events that are safe.
pub(crate) async fn publish_and_settle(store: &Arc<dyn Store>, run: &Arc<ActiveRun>) {
    run.publish(Publish::Concluded);
    match timeout(WRITE_TIMEOUT, write(store, run)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(run = %run.id(), %error, "the store could not write a run at once"),
        Err(_) => tracing::warn!(run = %run.id(), "the store did not write a run in time: it tries again"),
    }
    run.count_end();
}

/// Waits without a limit until the present state of a run is safe. A store that fails keeps trying by itself.
async fn wait_until_safe(store: &Arc<dyn Store>, run: &Arc<ActiveRun>) {
    if let Err(error) = write(store, run).await {
        tracing::debug!(run = %run.id(), %error, "the run is not written yet");
        poll_fn(|context| run.poll_safe(context)).await;
    }
}
