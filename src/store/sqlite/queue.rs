//! What waits for the writing thread, and how it is woken: once when it idles, never for each event. Not here: what is
//! done with the work ([`super::writer`]).

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::reader::Failed;
use super::readers::Readers;
use super::writer::Writing;
use crate::store::local::lock;
use crate::store::{Journal, Later, StoreError};

/// How long somebody who waits may have to wait for others: no two commits are closer.
const GAP: Duration = Duration::from_millis(2);

/// How far commits are apart while many runs grow all the time. Nobody sees an event before its commit, so this is what
/// a stream pays under load.
const WINDOW: Duration = Duration::from_millis(10);

/// The same while there is next to nothing to be written: a stream alone is not held up.
const QUIET: Duration = Duration::from_millis(1);

/// So much in one commit is next to nothing.
const FEW: usize = 3;

/// Nobody waits longer than this for others, however long commits take.
const LONGEST: Duration = Duration::from_millis(20);

/// Under load, commits that take long are made more rarely: writing takes one part in ten of the time.
const SHARE: u32 = 10;

/// So many commits may come at once after a pause: a run's first events are not held up.
const AT_ONCE: u32 = 4;

/// When the next commit is due: on the average one in each window, and none held up after a pause.
pub(super) struct Pace {
    /// When the last commit was over.
    committed: Instant,
    /// When the next one would be due if they all came evenly.
    even: Instant,
    window: Duration,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { committed: now, even: now, window: QUIET }
    }

    /// A commit of so much is over, and took so long.
    pub(super) fn committed(&mut self, now: Instant, work: usize, took: Duration) {
        let window = if work <= FEW { QUIET.max(took) } else { WINDOW.max(took * SHARE) };
        self.window = window.min(LONGEST);
        // Commits that somebody could not wait for are not held against those to come for longer than a window.
        self.even = (self.even.max(now) + self.window).min(now + self.window * (AT_ONCE + 1));
        self.committed = now;
    }

    /// When what has grown is written; `hurry`: somebody waits.
    fn due(&self, hurry: bool) -> Instant {
        let evenly = self.even.checked_sub(self.window * AT_ONCE).unwrap_or(self.committed);
        if hurry { evenly.min(self.committed + GAP) } else { evenly }
    }
}

/// Something to be written.
pub(super) enum Work {
    /// A run has grown.
    Touch(Arc<dyn Journal>),
    /// Somebody waits for this.
    Task(Box<dyn Task>),
    /// The last work of all.
    Close(Arc<Readers>, oneshot::Sender<Result<(), StoreError>>),
}

/// Work whose outcome is told, once it is safe.
pub(super) trait Task: Send {
    /// Does it, inside of a transaction that may still come to nothing; then this may be called again.
    fn attempt(&mut self, writing: &mut Writing<'_>) -> Result<(), Failed>;
    /// Tells whoever waits.
    fn answer(self: Box<Self>, error: Option<&StoreError>);
    /// The run that still has to be written if this fails, and whether it is to be made known.
    fn owes(&self) -> Option<(&Arc<dyn Journal>, bool)> {
        None
    }
}

/// A task made of a function.
pub(super) struct Job<T, F> {
    work: F,
    run: Option<(Arc<dyn Journal>, bool)>,
    outcome: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F> Task for Job<T, F>
where
    F: FnMut(&mut Writing<'_>) -> Result<T, Failed> + Send,
{
    fn attempt(&mut self, writing: &mut Writing<'_>) -> Result<(), Failed> {
        self.outcome = Some((self.work)(writing)?);
        Ok(())
    }

    fn answer(self: Box<Self>, error: Option<&StoreError>) {
        let outcome = match (error, self.outcome) {
            (None, Some(outcome)) => Ok(outcome),
            (error, _) => Err(error.cloned().unwrap_or(StoreError::Closed)),
        };
        // Nobody may be waiting: a dropped future cancels nothing.
        let _ = self.reply.send(outcome);
    }

    fn owes(&self) -> Option<(&Arc<dyn Journal>, bool)> {
        self.run.as_ref().map(|(run, open)| (run, *open))
    }
}

/// The work of all threads for the one that writes.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    work: Vec<Work>,
    /// Somebody waits.
    hurry: bool,
    /// The writer sleeps until it is woken.
    idle: bool,
    /// No more work is taken.
    closed: bool,
    /// The writer ends at once, whatever is queued.
    stopped: bool,
}

/// What the writer is to do now.
pub(super) enum Order {
    /// This; nothing, if only time has passed.
    Write(Vec<Work>),
    /// Nothing any more.
    Stop,
}

impl Queue {
    /// Queues a run that has grown.
    pub(super) fn touch(&self, run: &Arc<dyn Journal>) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        state.work.push(Work::Touch(Arc::clone(run)));
        if state.idle {
            state.idle = false;
            self.bell.notify_one();
        }
    }

    /// Queues work whose outcome somebody waits for.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Writing<'_>) -> Result<T, Failed> + Send + 'static,
    ) -> Later<T> {
        self.ask_for(None, work)
    }

    /// The same, about a run that is written later if not now. `open`: it is to be made known.
    pub(super) fn ask_for<T: Send + 'static>(
        &self,
        run: Option<(&Arc<dyn Journal>, bool)>,
        work: impl FnMut(&mut Writing<'_>) -> Result<T, Failed> + Send + 'static,
    ) -> Later<T> {
        let (reply, later) = oneshot::channel();
        let run = run.map(|(run, open)| (Arc::clone(run), open));
        self.push(Work::Task(Box::new(Job { work, run, outcome: None, reply })), false);
        Box::pin(async { later.await.unwrap_or(Err(StoreError::Closed)) })
    }

    /// Queues the last work of all.
    pub(super) fn close(&self, readers: Arc<Readers>) -> Later<()> {
        let (reply, later) = oneshot::channel();
        self.push(Work::Close(readers, reply), true);
        Box::pin(async { later.await.unwrap_or(Err(StoreError::Closed)) })
    }

    fn push(&self, work: Work, last: bool) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        state.closed = last;
        state.work.push(work);
        if state.idle || !state.hurry {
            state.idle = false;
            self.bell.notify_one();
        }
        state.hurry = true;
    }

    /// True once no more work is taken.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// Ends the writer. Whoever waits gets [`StoreError::Closed`].
    pub(super) fn stop(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.stopped = true;
        state.work.clear();
        self.bell.notify_all();
    }

    /// Waits for work, then for more of it, as long as it is worth waiting; or until `idle` has passed without any.
    pub(super) fn gather(&self, pace: &Pace, idle: Duration) -> Order {
        let mut state = lock(&self.state);
        let asleep = Instant::now();
        while state.work.is_empty() && !state.stopped {
            state.idle = true;
            let rest = idle.saturating_sub(asleep.elapsed());
            if rest.is_zero() {
                state.idle = false;
                return Order::Write(Vec::new());
            }
            state = self.bell.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.idle = false;
        while !state.stopped {
            let due = pace.due(state.hurry);
            let rest = due.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                state.hurry = false;
                return Order::Write(std::mem::take(&mut state.work));
            }
            state = self.bell.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        Order::Stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_come_at_once_after_a_pause_and_evenly_under_load() {
        let begun = Instant::now() + Duration::from_secs(1);
        let (mut pace, mut now, mut times) = (Pace::new(begun), begun, Vec::new());
        // There is always something to be written.
        while now < begun + Duration::from_secs(1) {
            now = now.max(pace.due(false));
            times.push(now - begun);
            now += Duration::from_micros(100);
            pace.committed(now, 50, Duration::from_micros(100));
        }
        assert!(times[3] < Duration::from_millis(1), "the first ones come at once: {:?}", &times[..6]);
        assert!((95..=110).contains(&times.len()), "{} in a second", times.len());
        // Slow ones come more rarely.
        pace.committed(now, 50, Duration::from_millis(50));
        pace.committed(now, 50, Duration::from_millis(50));
        assert_eq!(pace.window, LONGEST);
        // Whoever waits is not held up by that for long.
        assert!(pace.due(true) <= now + GAP);
        // Small ones are not held up by what was before them.
        pace.committed(now, 1, Duration::from_micros(50));
        assert!(pace.due(false) <= now + QUIET);
    }
}
