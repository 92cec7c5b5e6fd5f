//! What a run's task waits for besides its agent: room for more of the answer, and a word to stop.
//!
//! Not here: what becomes of the run then ([`super::driver`]).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use interlingua_core::{Fault, FaultKind};

use super::active_run::ActiveRun;
use super::written;

/// What nobody has read may grow to this, in bytes of the record, before reading from the upstream is held back.
pub(super) const BACKLOG: usize = 1 << 20;
/// A reader that has read nothing for so long has left.
const STALLED: std::time::Duration = std::time::Duration::from_secs(600);

/// Polls once, and answers what came of it.
pub(super) async fn poll_once<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll_fn(|context| Poll::Ready(poll(context))).await
}

/// Waits while the one who reads is too far behind, or the store.
pub(super) async fn room(live: &Arc<ActiveRun>) -> Result<(), Fault> {
    live.notify();
    if live.state().is_behind(BACKLOG) {
        let caught_up = poll_fn(|context| live.poll_written(context, BACKLOG));
        let waited = cancellable(live, async { Ok(tokio::time::timeout(written::PATIENCE, caught_up).await) }).await?;
        waited.map_err(|_| written::fault())?;
    }
    let ready = poll_fn(|context| live.poll_capacity(context, BACKLOG));
    let waited = cancellable(live, async { Ok(tokio::time::timeout(STALLED, ready).await) }).await?;
    waited.map_err(|_| {
        live.stop(None);
        Fault::new(FaultKind::Canceled, "canceled")
    })
}

/// Does something, unless the run is cancelled first.
pub(super) async fn cancellable<T>(
    live: &ActiveRun,
    doing: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    tokio::select! {
        biased;
        () = live.cancel.told() => {
            Err(live.state().cancelled_for.clone().unwrap_or_else(|| Fault::new(FaultKind::Canceled, "canceled")))
        }
        done = doing => done,
    }
}
