//! Limits on frames that advance no request: control frames and resets, including resets of answered and of unknown
//! streams. Each frame costs work, so that a few bytes could keep a worker busy.
//!
//! Not here: streams, header lists, CONTINUATION and small DATA frames, which the HTTP/2 library limits
//! (`http2/mod.rs`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::clock::Clock;
use super::frames::{FrameKind, FrameScanner};
use interlingua_config::ServerLimits;

/// Time to refill an empty allowance.
const REFILL_TIME: Duration = Duration::from_secs(10);

/// Expected window updates for one sent frame: for the stream and for the connection, from a client that reads the
/// frame in halves.
const UPDATES_PER_FRAME: u32 = 4;

/// Maximum number of outstanding expected window updates.
const MAX_UPDATES: u32 = 100_000;

/// A token bucket: allows `max` frames at once, and is refilled by a tenth of that per second.
struct Allowance {
    max: u32,
    left: u32,
    /// Time of the last refill.
    refilled: Instant,
}

impl Allowance {
    fn new(max: usize, now: Instant) -> Self {
        let max = u32::try_from(max).unwrap_or(u32::MAX).max(1);
        Self { max, left: max, refilled: now }
    }

    /// Uses one unit. False: the bucket is empty.
    fn take(&mut self, now: Instant) -> bool {
        if self.left == 0 {
            let interval = REFILL_TIME / self.max;
            let elapsed = now.duration_since(self.refilled);
            let refilled = elapsed.as_nanos().checked_div(interval.as_nanos()).unwrap_or(u128::MAX);
            self.left = u32::try_from(refilled).unwrap_or(u32::MAX).min(self.max);
            self.refilled = now;
        }
        let is_left = self.left > 0;
        self.left -= u32::from(is_left);
        is_left
    }
}

/// The remaining allowances of one client.
struct Allowances {
    resets: Allowance,
    control: Allowance,
    /// Expected window updates for the frames that were sent to the client.
    updates: u32,
}

impl Allowances {
    fn new(limits: &ServerLimits, now: Instant) -> Self {
        let control = Allowance::new(limits.http2_control_frames, now);
        Self { resets: Allowance::new(limits.http2_resets, now), control, updates: 0 }
    }

    /// Counts a frame. Returns the exceeded setting, if any.
    fn count(&mut self, frame: FrameKind, now: Instant) -> Option<&'static str> {
        let (is_allowed, limit) = match frame {
            FrameKind::Request => return None,
            FrameKind::WindowUpdate if self.updates > 0 => {
                self.updates -= 1;
                return None;
            }
            FrameKind::Reset => (self.resets.take(now), "http2_resets"),
            FrameKind::WindowUpdate | FrameKind::Control => (self.control.take(now), "http2_control_frames"),
        };
        (!is_allowed).then_some(limit)
    }
}

/// Watches the frames of a client: counts them, and reports incomplete heads to the clock.
pub(super) struct FloodGuard {
    clock: Rc<Clock>,
    scanner: RefCell<FrameScanner>,
    allowances: RefCell<Allowances>,
    exceeded: Cell<Option<&'static str>>,
}

impl FloodGuard {
    pub(super) fn new(limits: &ServerLimits, clock: Rc<Clock>, now: Instant) -> Self {
        Self {
            clock,
            scanner: RefCell::new(FrameScanner::new()),
            allowances: RefCell::new(Allowances::new(limits, now)),
            exceeded: Cell::new(None),
        }
    }

    pub(super) fn on_read(&self, bytes: &[u8], now: Instant) {
        let (mut scanner, mut allowances) = (self.scanner.borrow_mut(), self.allowances.borrow_mut());
        let was_between = scanner.read(bytes, |frame| {
            if let Some(limit) = allowances.count(frame, now) {
                self.exceeded.set(Some(limit));
            }
        });
        self.clock.on_frames(was_between, scanner.is_inside(), now);
    }

    /// A response frame was passed on for sending, so the client may send window updates.
    pub(super) fn on_sent(&self) {
        let mut allowances = self.allowances.borrow_mut();
        allowances.updates = allowances.updates.saturating_add(UPDATES_PER_FRAME).min(MAX_UPDATES);
    }

    /// The setting that the client has exceeded. `None`: none so far.
    pub(super) const fn exceeded(&self) -> Option<&'static str> {
        self.exceeded.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interlingua_config::ServerTimeouts;

    fn count(allowances: &mut Allowances, frame: FrameKind, now: Instant) -> usize {
        (0..100_000).take_while(|_| allowances.count(frame, now).is_none()).count()
    }

    fn allowances(resets: usize, control: usize, now: Instant) -> Allowances {
        Allowances { resets: Allowance::new(resets, now), control: Allowance::new(control, now), updates: 0 }
    }

    #[test]
    fn an_allowance_is_refilled_by_a_tenth_each_second() {
        let mut now = Instant::now();
        let mut allowances = allowances(100, 1000, now);
        assert_eq!(count(&mut allowances, FrameKind::Reset, now), 100);
        assert_eq!(allowances.count(FrameKind::Reset, now), Some("http2_resets"));
        assert_eq!(count(&mut allowances, FrameKind::Control, now), 1000, "apart from the others");

        now += Duration::from_secs(3);
        assert_eq!(count(&mut allowances, FrameKind::Reset, now), 30);
        now += Duration::from_secs(3600);
        assert_eq!(count(&mut allowances, FrameKind::Reset, now), 100);
    }

    #[test]
    fn a_steady_client_is_never_stopped() {
        let mut now = Instant::now();
        let mut allowances = allowances(100, 100, now);
        for _ in 0..10_000 {
            now += Duration::from_millis(110);
            assert_eq!(allowances.count(FrameKind::Reset, now), None);
        }
    }

    #[test]
    fn window_updates_match_the_sent_bytes() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let timeouts =
            ServerTimeouts { head: second, body: second, write: second, idle: second, message: second, ping: second };
        let guard = FloodGuard {
            clock: Rc::new(Clock::new(timeouts, true, now)),
            scanner: RefCell::new(FrameScanner::new()),
            allowances: RefCell::new(allowances(10, 10, now)),
            exceeded: Cell::new(None),
        };

        (0..25).for_each(|_| guard.on_sent());
        let update = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        guard.on_read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", now);
        for _ in 0..110 {
            guard.on_read(&update, now);
        }
        assert_eq!(guard.exceeded(), None);
        guard.on_read(&update, now);
        assert_eq!(guard.exceeded(), Some("http2_control_frames"));
    }
}
