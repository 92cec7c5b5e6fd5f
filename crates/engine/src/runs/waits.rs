//! Waits within this process: for room for more of an answer, for a cancellation, for an event to be visible.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use interlingua_core::Fault;
use tokio::time::timeout;

use super::active_run::{ActiveRun, Take};
use super::commit::within;
use super::unread::UnreadBudget;
use crate::faults;

/// The bytes of the record that may be unread or not yet safe before reading from the agent pauses.
pub(crate) const MAX_BACKLOG: usize = 1 << 20;
/// The time without reading after which a reader has left.
const READER_TIMEOUT: Duration = Duration::from_secs(600);

/// Polls once.
pub(crate) async fn poll_once<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll_fn(|context| Poll::Ready(poll(context))).await
}

/// Waits until an event of a run is visible, or the run has no further one.
pub(super) async fn until_visible(run: &Arc<ActiveRun>, sequence: u64) {
    let reader = Reader { run, index: run.add_follower(false) };
    poll_fn(|context| run.poll_steps(reader.index, sequence, context, &mut |_, _| Take::Enough)).await;
}

/// Waits until no one holds a run that the store has released.
pub(super) async fn until_unheld(run: &Arc<ActiveRun>) {
    if run.state().is_released {
        let reader = Reader { run, index: run.add_follower(false) };
        poll_fn(|context| run.poll_unheld(reader.index, context)).await;
    }
}

/// Waits until the turn of this index in a run is not under way, and its end is visible.
pub(super) async fn until_turn_ended(run: &Arc<ActiveRun>, turn: usize) {
    let reader = Reader { run, index: run.add_follower(false) };
    poll_fn(|context| run.poll_turn_ended(reader.index, turn, context)).await;
}

/// A follower that reads nothing. Removed on drop.
struct Reader<'a> {
    run: &'a ActiveRun,
    index: usize,
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.run.remove_follower(self.index);
    }
}

/// Waits while the store or the readers are too far behind. `limit`: the time that the store has. Without a limit, the
/// wait ends when the store has written the events, or when this process loses the run.
pub(crate) async fn wait_for_room(
    run: &Arc<ActiveRun>,
    unread: &Arc<UnreadBudget>,
    limit: Option<Duration>,
) -> Result<(), Fault> {
    run.notify();
    if run.state().is_behind(MAX_BACKLOG) {
        let written = poll_fn(|context| run.poll_resumed(context, |state| !state.is_behind(MAX_BACKLOG)));
        let in_time = unless_canceled(run, async { Ok(within(limit, written).await) }).await?;
        in_time.ok_or_else(faults::not_written)?;
    }

    let read = poll_fn(|context| run.poll_resumed(context, |state| state.has_room(MAX_BACKLOG, unread)));
    let read = unless_canceled(run, async { Ok(timeout(READER_TIMEOUT, read).await) }).await?;
    // A client that holds its connection open and reads nothing would hold the agent without a limit.
    read.map_err(|_| {
        run.stop(None);
        faults::canceled()
    })
}

/// Does something, unless the run is canceled first.
pub(crate) async fn unless_canceled<T>(
    run: &ActiveRun,
    doing: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    tokio::select! {
        biased;
        () = run.cancel.wait() => Err(run.state().cancel_reason.clone().unwrap_or_else(faults::canceled)),
        done = doing => done,
    }
}
