//! The queue of the writer, filled by all threads, and when the writer wakes. Not here: how the work is done
//! ([`super::writer`]).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout};
use uuid::Uuid;

use super::work::WriteCommand;
use interlingua_store::local::lock;
use interlingua_store::{Journal, StoreError};

/// Work, and the replica that this process was when its caller asked for it. What one replica has decided is not
/// written by another one, though it is the same process.
pub(super) type QueuedWork = (Uuid, WriteCommand);

/// Work that waits for the next flush.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    wakeup: Notify,
    stopped: Notify,
}

#[derive(Default)]
struct QueueState {
    work: VecDeque<QueuedWork>,
    /// When the first of it came.
    since: Option<Instant>,
    /// A caller waits for a queued item.
    urgent: bool,
    /// No more work is accepted.
    closed: bool,
}

impl Queue {
    /// Queues a run that has new events.
    pub(super) fn touch(&self, run: &Arc<dyn Journal>) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        // What a run has is written by the replica that holds it: lost ones are never written.
        state.work.push_back((Uuid::nil(), WriteCommand::Touch(Arc::clone(run))));
        if state.work.len() == 1 {
            state.since = Some(Instant::now());
            self.wakeup.notify_one();
        }
    }

    /// Queues work that a caller waits for, as this replica.
    pub(super) fn push(&self, replica: Uuid, work: WriteCommand) {
        let mut state = lock(&self.state);
        if state.closed {
            drop(state);
            return work.fail(&StoreError::Closed);
        }
        state.closed = matches!(work, WriteCommand::Close(_));
        state.work.push_back((replica, work));
        state.since.get_or_insert_with(Instant::now);
        if !state.urgent || state.work.len() == 1 {
            self.wakeup.notify_one();
        }
        state.urgent = true;
    }

    /// Fails what begins a run and was not sent yet: its caller is refused instead of waiting.
    pub(super) fn refuse_new(&self, error: &StoreError) {
        let refused: VecDeque<QueuedWork> = {
            let mut state = lock(&self.state);
            let (refused, kept) = std::mem::take(&mut state.work).into_iter().partition(|(_, work)| work.begins_run());
            state.work = kept;
            refused
        };
        refused.into_iter().for_each(|(_, work)| work.fail(error));
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// Takes no more work, and fails what waits.
    pub(super) fn stop(&self) {
        let work = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.work)
        };
        self.stopped.notify_one();
        work.into_iter().for_each(|(_, work)| work.fail(&StoreError::Closed));
    }

    /// Waits until no more work is accepted.
    pub(super) async fn closed(&self) {
        while !self.is_closed() {
            self.stopped.notified().await;
        }
    }

    /// Takes what there is, without waiting.
    pub(super) fn take(&self) -> VecDeque<QueuedWork> {
        std::mem::take(&mut lock(&self.state).work)
    }

    /// Puts back what was taken and not done, before all that came meanwhile. `since`: when the first of it came.
    pub(super) fn put_back(&self, mut work: VecDeque<QueuedWork>, since: Option<Instant>) {
        if work.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        work.append(&mut state.work);
        state.work = work;
        state.since = since.or(state.since).or_else(|| Some(Instant::now()));
        state.urgent = true;
    }

    /// Wakes the writer though there is no work.
    pub(super) fn wake(&self) {
        self.wakeup.notify_one();
    }

    /// Waits for work, and then until it is `due`, or `urgent` if a caller waits for some of it; at most `idle` for the
    /// first. Returns when the first of it came, too.
    pub(super) async fn next(
        &self,
        due: Instant,
        urgent: Instant,
        idle: Duration,
    ) -> (VecDeque<QueuedWork>, Option<Instant>) {
        if lock(&self.state).work.is_empty() {
            // Nothing came, or it was only woken.
            let _ = timeout(idle, self.wakeup.notified()).await;
        }
        loop {
            let until = {
                let mut state = lock(&self.state);
                let until = if state.urgent { urgent } else { due };
                if state.work.is_empty() || until <= Instant::now() {
                    state.urgent = false;
                    return (std::mem::take(&mut state.work), state.since.take());
                }
                until
            };
            tokio::select! {
                () = sleep_until(until.into()) => {}
                () = self.wakeup.notified() => {}
            }
        }
    }
}
