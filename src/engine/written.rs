//! Ends are told when they are safe in the store, and what cannot be written in time is told as failed.
//!
//! Not here: what an end is ([`super::driver`]), and how much of a run is safe ([`super::shown`]).

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core::run::RunError;
use interlingua_core::{Fault, FaultKind};
use tokio::time::timeout;

use super::{ActiveRun, Engine, store_fault};
use crate::store::{Journal, StoreError, StoreFuture};

/// What a store does not write down in this time is told as failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// When it makes sense to ask again while the store fails.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Writes down what a run has come to, once what has to stand in the store `before` it does, and shows it. If that takes
/// too long the run is told as failed, and will be found so: false.
pub(super) async fn show(
    engine: &Engine,
    live: &Arc<ActiveRun>,
    journal: &Arc<dyn Journal>,
    before: impl Future<Output = ()>,
) -> bool {
    if live.is_unobserved() {
        // The store never knew it, and nobody will look for it.
        live.publish_uncommitted();
        return true;
    }
    let safe = timeout(PATIENCE, async {
        before.await;
        written(engine, live, journal).await;
    });
    let in_time = safe.await.is_ok();
    live.publish();
    if in_time {
        return true;
    }
    let fault = fault();
    let failed = live.fail_unwritten(RunError { code: fault.code().to_owned(), message: fault.message });
    if failed {
        tracing::warn!(run = %live.id(), "the run could not be written down in time: it is told as failed");
        // As soon as it can be written, that is what is written.
        engine.store().touch(journal);
    }
    !failed
}

/// Waits until the store knows a run.
pub(super) async fn known(opened: StoreFuture<()>) -> Result<(), Fault> {
    let opened = timeout(PATIENCE, opened).await.unwrap_or(Err(StoreError::Timeout { after: PATIENCE }));
    opened.map_err(|error| store_fault(&error))
}

/// Waits until a run is safe as it is, however long that takes: a store that fails goes on trying by itself.
async fn written(engine: &Engine, live: &Arc<ActiveRun>, journal: &Arc<dyn Journal>) {
    if let Err(error) = engine.store().settle(journal).await {
        tracing::debug!(run = %live.id(), %error, "the run is not written down yet");
        poll_fn(|context| live.poll_safe(context)).await;
    }
}

/// Nothing that has to be kept is begun while the store fails.
pub(super) fn refusal() -> Fault {
    let mut fault = Fault::new(
        FaultKind::Overloaded,
        "the gateway cannot read or write its records at the moment: try again later",
    );
    fault.retry_after = Some(RETRY_AFTER);
    fault
}

/// Why a run failed whose records could not be written.
pub(super) fn fault() -> Fault {
    Fault::new(FaultKind::Internal, "the gateway could not write its records")
}
