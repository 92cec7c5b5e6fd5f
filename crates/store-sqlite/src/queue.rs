//! The queue of the writer thread, and when the thread wakes: once when it is idle, never for each event. Not here: how
//! the work is done ([`super::writer`]).

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::reader::QueryError;
use super::readers::Readers;
use super::transaction::{Task, WriteTransaction};
use interlingua_store::local::lock;
use interlingua_store::{Journal, StoreError, StoreFuture};

/// Minimum time between two commits while a caller waits.
const MIN_COMMIT_GAP: Duration = Duration::from_millis(2);

/// Commit interval while many runs grow all the time. An event is published only after its commit, so this is the
/// latency that a stream pays under load.
const BUSY_INTERVAL: Duration = Duration::from_millis(10);

/// Commit interval while there is little to write: a single stream is not delayed.
const QUIET_INTERVAL: Duration = Duration::from_millis(1);

/// A commit with at most this many items counts as little to write.
const MAX_QUIET_ITEMS: usize = 3;

/// Upper bound of the commit interval, however long commits take.
const MAX_INTERVAL: Duration = Duration::from_millis(20);

/// Under load, slow commits are made less often: writing takes at most one part in this many of the time.
const WRITE_TIME_DIVISOR: u32 = 10;

/// Number of commits that may follow each other without a delay after a pause, so that a run's first events are not
/// held up.
const BURST: u32 = 4;

/// Computes when the next commit is due: on average one per interval, and none delayed after a pause.
pub(super) struct CommitPacer {
    /// When the last commit finished.
    committed: Instant,
    /// When the next commit would be due if all were evenly spaced.
    next_even: Instant,
    interval: Duration,
}

impl CommitPacer {
    pub(super) fn new(now: Instant) -> Self {
        Self { committed: now, next_even: now, interval: QUIET_INTERVAL }
    }

    /// Records a finished commit: its number of items and its duration.
    pub(super) fn committed(&mut self, now: Instant, items: usize, took: Duration) {
        let interval = if items <= MAX_QUIET_ITEMS {
            QUIET_INTERVAL.max(took)
        } else {
            BUSY_INTERVAL.max(took * WRITE_TIME_DIVISOR)
        };
        self.interval = interval.min(MAX_INTERVAL);

        // Commits made early for a waiting caller delay later ones by no more than one interval.
        self.next_even = (self.next_even.max(now) + self.interval).min(now + self.interval * (BURST + 1));
        self.committed = now;
    }

    /// When pending events are written. `urgent`: a caller waits.
    fn due(&self, urgent: bool) -> Instant {
        let paced = self.next_even.checked_sub(self.interval * BURST).unwrap_or(self.committed);
        if urgent { paced.min(self.committed + MIN_COMMIT_GAP) } else { paced }
    }
}

/// An item of work for the writer.
pub(super) enum WriteCommand {
    /// A run has new events.
    Touch(Arc<dyn Journal>),
    /// Work whose result a caller waits for.
    Task(Box<dyn Task>),
    /// The last item: closes the store.
    Close(Arc<Readers>, oneshot::Sender<Result<(), StoreError>>),
}

/// A task defined by a function.
pub(super) struct Job<T, F> {
    work: F,
    run: Option<(Arc<dyn Journal>, bool)>,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F> Task for Job<T, F>
where
    F: FnMut(&mut WriteTransaction<'_>) -> Result<T, QueryError> + Send,
{
    fn attempt(&mut self, tx: &mut WriteTransaction<'_>) -> Result<(), QueryError> {
        self.result = Some((self.work)(tx)?);
        Ok(())
    }

    fn respond(self: Box<Self>, error: Option<&StoreError>) {
        let result = match (error, self.result) {
            (None, Some(result)) => Ok(result),
            (error, _) => Err(error.cloned().unwrap_or(StoreError::Closed)),
        };
        // The caller may have stopped waiting: a dropped future cancels nothing.
        let _ = self.reply.send(result);
    }

    fn unwritten_run(&self) -> Option<(&Arc<dyn Journal>, bool)> {
        self.run.as_ref().map(|(run, open)| (run, *open))
    }
}

/// Work that all threads queue for the writer thread.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    wakeup: Condvar,
}

#[derive(Default)]
struct QueueState {
    work: Vec<WriteCommand>,
    /// A caller waits for a queued item.
    urgent: bool,
    /// The writer sleeps until it is notified.
    idle: bool,
    /// No more work is accepted.
    closed: bool,
    /// The writer ends at once, whatever is queued.
    stopped: bool,
}

/// The next step of the writer.
pub(super) enum NextStep {
    /// Write these items. Empty if only the idle time has passed.
    Write(Vec<WriteCommand>),
    /// End the thread.
    Stop,
}

impl Queue {
    /// Queues a run that has new events.
    pub(super) fn touch(&self, run: &Arc<dyn Journal>) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }

        state.work.push(WriteCommand::Touch(Arc::clone(run)));
        if state.idle {
            state.idle = false;
            self.wakeup.notify_one();
        }
    }

    /// Queues work whose result a caller waits for.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut WriteTransaction<'_>) -> Result<T, QueryError> + Send + 'static,
    ) -> StoreFuture<T> {
        self.submit_for(None, work)
    }

    /// Like `submit`, for work on a run that is written later if this fails. `open`: the run must be opened first.
    pub(super) fn submit_for<T: Send + 'static>(
        &self,
        run: Option<(&Arc<dyn Journal>, bool)>,
        work: impl FnMut(&mut WriteTransaction<'_>) -> Result<T, QueryError> + Send + 'static,
    ) -> StoreFuture<T> {
        let (reply, receiver) = oneshot::channel();
        let run = run.map(|(run, open)| (Arc::clone(run), open));
        self.push(WriteCommand::Task(Box::new(Job { work, run, result: None, reply })), false);
        Box::pin(async { receiver.await.unwrap_or(Err(StoreError::Closed)) })
    }

    /// Queues the closing of the store.
    pub(super) fn close(&self, readers: Arc<Readers>) -> StoreFuture<()> {
        let (reply, receiver) = oneshot::channel();
        self.push(WriteCommand::Close(readers, reply), true);
        Box::pin(async { receiver.await.unwrap_or(Err(StoreError::Closed)) })
    }

    fn push(&self, work: WriteCommand, last: bool) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }

        state.closed = last;
        state.work.push(work);
        if state.idle || !state.urgent {
            state.idle = false;
            self.wakeup.notify_one();
        }
        state.urgent = true;
    }

    /// True once no more work is accepted.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// Ends the writer. Waiting callers get [`StoreError::Closed`].
    pub(super) fn stop(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.stopped = true;
        state.work.clear();
        self.wakeup.notify_all();
    }

    /// Waits for work, then collects more until the next commit is due; returns an empty batch after `idle` without
    /// work.
    pub(super) fn next_batch(&self, pacer: &CommitPacer, idle: Duration) -> NextStep {
        let mut state = lock(&self.state);
        let started = Instant::now();
        while state.work.is_empty() && !state.stopped {
            state.idle = true;
            let remaining = idle.saturating_sub(started.elapsed());
            if remaining.is_zero() {
                state.idle = false;
                return NextStep::Write(Vec::new());
            }
            state = self.wakeup.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.idle = false;

        while !state.stopped {
            let due = pacer.due(state.urgent);
            let remaining = due.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                state.urgent = false;
                return NextStep::Write(std::mem::take(&mut state.work));
            }
            state = self.wakeup.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }

        NextStep::Stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_immediate_after_a_pause_and_evenly_spaced_under_load() {
        let start = Instant::now() + Duration::from_secs(1);
        let (mut pacer, mut now, mut times) = (CommitPacer::new(start), start, Vec::new());
        // There is always work.
        while now < start + Duration::from_secs(1) {
            now = now.max(pacer.due(false));
            times.push(now - start);
            now += Duration::from_micros(100);
            pacer.committed(now, 50, Duration::from_micros(100));
        }
        assert!(times[3] < Duration::from_millis(1), "the first ones are not delayed: {:?}", &times[..6]);
        assert!((95..=110).contains(&times.len()), "{} in a second", times.len());

        // Slow commits are made less often.
        pacer.committed(now, 50, Duration::from_millis(50));
        pacer.committed(now, 50, Duration::from_millis(50));
        assert_eq!(pacer.interval, MAX_INTERVAL);

        // A waiting caller is not delayed by that for long.
        assert!(pacer.due(true) <= now + MIN_COMMIT_GAP);

        // Small commits are not delayed by the large ones before them.
        pacer.committed(now, 1, Duration::from_micros(50));
        assert!(pacer.due(false) <= now + QUIET_INTERVAL);
    }
}
