//! Timeouts of an answer: maximum silence and total time.
//!
//! One timer per run, which is reset only if it fires and data arrived meanwhile: a stream of a thousand events a
//! second touches no timer. Silence is measured from the moment a reader begins to wait, so an answer that was not read
//! in time is not silent.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use interlingua_core::{Fault, FaultKind};
use tokio::time::{Instant, Sleep, sleep_until};

/// This many bytes count as activity even without the end of a line, as in one long event over a slow connection.
/// Single bytes now and then do not.
const ACTIVITY_BYTES: usize = 1024;

/// The time limits of one answer.
pub struct ResponseTimeouts {
    idle: Duration,
    total: Duration,
    ends: Instant,
    /// Since when a reader has waited without data.
    waiting: Option<Instant>,
    /// Bytes since the last activity.
    bytes_since_activity: usize,
    timer: Option<Pin<Box<Sleep>>>,
    /// The task that the timer wakes.
    waiter: Option<Waker>,
    /// Chunks since the clock was last read.
    unwatched: u8,
}

impl ResponseTimeouts {
    /// Limits for an answer that was requested at `since`: `idle` for each silence, `total` for all of it.
    #[must_use]
    pub fn new(since: Instant, idle: Duration, total: Duration) -> Self {
        Self {
            idle,
            total,
            ends: after(since, total),
            waiting: None,
            bytes_since_activity: 0,
            timer: None,
            waiter: None,
            unwatched: 0,
        }
    }

    /// Records received bytes. `line`: they contain the end of a line.
    pub(super) fn on_bytes(&mut self, bytes: usize, line: bool) {
        self.bytes_since_activity += bytes;
        if line || self.bytes_since_activity >= ACTIVITY_BYTES {
            self.bytes_since_activity = 0;
            self.waiting = None;
        }
    }

    /// Checks the total time while chunks keep coming. The clock is read for every 64th chunk, so an endless answer may
    /// take slightly longer.
    ///
    /// # Errors
    /// [`FaultKind::UpstreamTimeout`] if the time is over.
    pub(super) fn check_total(&mut self) -> Result<(), Fault> {
        const CHECK_INTERVAL: u8 = 64;
        self.unwatched += 1;
        if self.unwatched < CHECK_INTERVAL {
            return Ok(());
        }
        self.unwatched = 0;
        if Instant::now() < self.ends { Ok(()) } else { Err(self.too_long()) }
    }

    fn too_long(&self) -> Fault {
        Fault::new(FaultKind::UpstreamTimeout, "the agent took too long to answer")
            .with_detail(format_args!("the answer was not complete after {:?} (timeouts.total)", self.total))
    }

    /// Ready when a limit is exceeded. Must be polled only if there is nothing to read.
    pub(super) fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Fault> {
        let begins = self.waiting.is_none();
        let waiting = *self.waiting.get_or_insert_with(Instant::now);
        let known = self.waiter.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        if begins && known && self.timer.as_ref().is_some_and(|timer| waiting < timer.deadline()) {
            // The timer will wake this task, and was not due a moment ago.
            return Poll::Pending;
        }
        if !known {
            self.waiter = Some(context.waker().clone());
        }
        loop {
            let deadline = after(waiting, self.idle).min(self.ends);
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            // A timer that fires too early is reset below. It never fires too late, since both limits only move
            // forward.
            ready!(timer.as_mut().poll(context));
            let now = Instant::now();
            if now >= self.ends {
                return Poll::Ready(self.too_long());
            }
            if now >= deadline {
                return Poll::Ready(
                    Fault::new(FaultKind::UpstreamTimeout, "the agent fell silent in the middle of its answer")
                        .with_detail(format_args!("nothing was received for {:?} (timeouts.idle)", self.idle)),
                );
            }
            timer.as_mut().reset(deadline);
        }
    }
}

/// The sum of both, or a point in time far in the future.
fn after(moment: Instant, time: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 10);
    moment.checked_add(time.min(FAR)).unwrap_or(moment)
}
