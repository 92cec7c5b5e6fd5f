//! How long an answer may be silent, and how long it may take.
//!
//! One timer a run, set anew only when it fires and finds that something was heard meanwhile: a stream of a thousand
//! events a second touches no timer. Silence is counted from the moment somebody begins to wait, so an answer that
//! nobody had time to read is not taken for silent.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use interlingua_core::{Fault, FaultKind};
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes that count as a sign of life though no line has ended yet: one long event over a slow line. Fewer, a byte
/// now and then, do not.
const ACTIVITY_BYTES: usize = 1024;

/// What is left of the willingness to wait for an answer.
pub struct ResponseTimeouts {
    idle: Duration,
    total: Duration,
    ends: Instant,
    /// Since when nothing was heard while somebody waited.
    waiting: Option<Instant>,
    /// Bytes since the last sign of life.
    bytes_since_activity: usize,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whom the timer wakes.
    waiter: Option<Waker>,
    /// Pieces since the time was last looked at.
    unwatched: u8,
}

impl ResponseTimeouts {
    /// ResponseTimeouts for an answer that was asked for at `since`: `idle` for each silence, `total` for all of it.
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

    /// Something came: so many bytes, and perhaps the end of a line.
    pub(super) fn on_bytes(&mut self, bytes: usize, line: bool) {
        self.bytes_since_activity += bytes;
        if line || self.bytes_since_activity >= ACTIVITY_BYTES {
            self.bytes_since_activity = 0;
            self.waiting = None;
        }
    }

    /// Whether there is time left while pieces keep coming. The clock is looked at now and then: an answer without end
    /// may be a little longer for it.
    ///
    /// # Errors
    /// [`FaultKind::UpstreamTimeout`] if not.
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

    /// Ready when patience is lost. To be asked only when there is nothing to read.
    pub(super) fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Fault> {
        let begins = self.waiting.is_none();
        let waiting = *self.waiting.get_or_insert_with(Instant::now);
        let known = self.waiter.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        if begins && known && self.timer.as_ref().is_some_and(|timer| waiting < timer.deadline()) {
            // The timer knows whom to wake, and was not due a moment ago.
            return Poll::Pending;
        }
        if !known {
            self.waiter = Some(context.waker().clone());
        }
        loop {
            let deadline = after(waiting, self.idle).min(self.ends);
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            // A timer that is set too early finds out when it fires; one that is set too late cannot be: both bounds
            // only ever move on.
            ready!(timer.as_mut().poll(context));
            let now = Instant::now();
            if now >= self.ends {
                return Poll::Ready(self.too_long());
            }
            if now >= deadline {
                return Poll::Ready(
                    Fault::new(FaultKind::UpstreamTimeout, "the agent fell silent in the middle of its answer")
                        .with_detail(format_args!("nothing was heard for {:?} (timeouts.idle)", self.idle)),
                );
            }
            timer.as_mut().reset(deadline);
        }
    }
}

/// A moment, or one so far away that nobody will see it.
fn after(moment: Instant, time: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 10);
    moment.checked_add(time.min(FAR)).unwrap_or(moment)
}
