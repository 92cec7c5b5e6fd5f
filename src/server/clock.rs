//! The clocks of a connection: how long its client may take for a head, a body, to take its answer, and between two
//! requests. Pure arithmetic of instants; the timer and the socket are in [`super::connection`].

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::ServerTimeouts;

/// What a connection waits for. Shared by its socket, which sees bytes, and by the service, which sees requests.
pub(super) struct Clock {
    timeouts: ServerTimeouts,
    phase: Cell<Phase>,
    /// Since when the client has had no room for what is to be written.
    blocked: Cell<Option<Instant>>,
    /// The last bytes that were read while a head was expected.
    tail: Cell<[u8; 3]>,
    /// Bytes were read that belong to no request yet.
    ahead: Cell<bool>,
    /// The body of the request has not come to its end.
    unread: Cell<bool>,
    expired: Cell<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No byte of the next request has come.
    Idle(Instant),
    /// Its head has begun to come.
    Head(Instant),
    /// A request is read and answered. Its body has a clock of its own ([`BodyClock`]).
    Busy,
    /// It is answered, and nobody reads the rest of its body, which has to come before the next head.
    Rest(Instant),
}

impl Clock {
    pub(super) fn new(timeouts: ServerTimeouts, now: Instant) -> Self {
        Self {
            timeouts,
            phase: Cell::new(Phase::Idle(now)),
            blocked: Cell::new(None),
            tail: Cell::new([0; 3]),
            ahead: Cell::new(false),
            unread: Cell::new(false),
            expired: Cell::new(false),
        }
    }

    /// Bytes have come. A head that has begun is not given more time by further bytes of it.
    pub(super) fn read(&self, bytes: &[u8], now: Instant) {
        if bytes.is_empty() {
            return;
        }
        match self.phase.get() {
            Phase::Idle(_) => {
                self.phase.set(Phase::Head(now));
                self.keep_tail(bytes);
            }
            Phase::Head(_) => self.keep_tail(bytes),
            Phase::Busy => self.ahead.set(true),
            Phase::Rest(_) => {}
        }
    }

    fn keep_tail(&self, bytes: &[u8]) {
        let mut tail = self.tail.get();
        for byte in &bytes[bytes.len().saturating_sub(tail.len())..] {
            tail.rotate_left(1);
            tail[2] = *byte;
        }
        self.tail.set(tail);
    }

    /// A head is complete: its request is being answered from now on.
    pub(super) fn asked(&self, has_body: bool) {
        self.unread.set(has_body);
        // Bytes behind the end of the head: the body of this request, or the beginning of the next one.
        let tail = self.tail.replace([0; 3]);
        let ends_here = tail == *b"\n\r\n" || tail[1..] == *b"\n\n";
        if let Phase::Head(_) = self.phase.replace(Phase::Busy) {
            self.ahead.set(!ends_here);
        }
    }

    /// The body of the request has come: whatever is read from now on belongs to the next one.
    pub(super) fn body_read(&self) {
        self.unread.set(false);
        self.ahead.set(false);
    }

    /// The answer is handed over to be written.
    pub(super) fn answered(&self, now: Instant) {
        // The first bytes of the next head, and its time runs: no further byte may ever come.
        let ahead = self.ahead.replace(false);
        self.phase.set(match (self.unread.replace(false), ahead) {
            (true, _) => Phase::Rest(now),
            (false, true) => Phase::Head(now),
            (false, false) => Phase::Idle(now),
        });
    }

    /// The client has no room.
    pub(super) fn blocked(&self, now: Instant) {
        if self.blocked.get().is_none() {
            self.blocked.set(Some(now));
        }
    }

    /// The client has taken something.
    pub(super) fn wrote(&self, now: Instant) {
        if self.blocked.take().is_some()
            && let Phase::Idle(_) = self.phase.get()
        {
            // The end of an answer went out late: the pause begins here.
            self.phase.set(Phase::Idle(now));
        }
    }

    /// When the connection is to be closed, should nothing happen before.
    pub(super) fn due(&self) -> Option<Instant> {
        let write = self.blocked.get().map(|since| since + self.timeouts.write);
        let read = match self.phase.get() {
            Phase::Idle(_) if write.is_some() => None,
            Phase::Idle(since) => Some(since + self.timeouts.idle),
            Phase::Head(since) | Phase::Rest(since) => Some(since + self.timeouts.head),
            Phase::Busy => None,
        };
        match (read, write) {
            (Some(read), Some(write)) => Some(read.min(write)),
            (read, write) => read.or(write),
        }
    }

    /// The time is up.
    pub(super) fn expire(&self) {
        self.expired.set(true);
    }

    pub(super) fn is_expired(&self) -> bool {
        self.expired.get()
    }

    /// Whether the client can be told why the connection ends: it has asked something, and nothing else is being
    /// written.
    pub(super) fn is_in_head(&self) -> bool {
        self.blocked.get().is_none() && matches!(self.phase.get(), Phase::Head(_))
    }

    /// What the client has taken too long for, for the log.
    pub(super) fn waits_for(&self) -> &'static str {
        match (self.blocked.get(), self.phase.get()) {
            (Some(_), _) => "the client takes nothing of its answer",
            (None, Phase::Head(_)) => "the head of a request did not come in time",
            (None, Phase::Rest(_)) => "the rest of a body that nobody reads",
            (None, _) => "no further request",
        }
    }
}

/// When a body has to have come, whole and in parts.
///
/// A body has the time of `timeouts.body`, and one second more for every 16 KiB of it, so that a large one over a slow
/// line is not cut. A client that sends next to nothing is found earlier: after a few seconds it has to have sent 1 KiB
/// for each second, and no credit lets it pause for longer than [`BodyClock::PAUSE`].
pub(super) struct BodyClock {
    whole: Instant,
    next: Instant,
}

impl BodyClock {
    /// So long a client may send nothing at the beginning.
    const GRACE: Duration = Duration::from_secs(5);
    /// No pause is longer, however much has come before.
    const PAUSE: Duration = Duration::from_secs(30);
    /// Bytes a second, after the grace.
    const MIN_RATE: u32 = 1 << 10;
    /// Bytes that give a body another second.
    const WHOLE_RATE: u32 = 16 << 10;

    /// Begins.
    pub(super) fn new(limit: Duration, now: Instant) -> Self {
        Self { whole: now + limit, next: now + limit.min(Self::GRACE) }
    }

    /// More of the body has to have come by then.
    pub(super) fn due(&self) -> Instant {
        self.whole.min(self.next)
    }

    /// A part has come.
    pub(super) fn received(&mut self, bytes: usize, now: Instant) {
        let seconds = |rate: u32| Duration::from_secs(bytes as u64) / rate;
        self.whole += seconds(Self::WHOLE_RATE);
        self.next = (self.next + seconds(Self::MIN_RATE)).min(now + Self::PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: ServerTimeouts = ServerTimeouts {
        head: Duration::from_secs(10),
        body: Duration::from_secs(60),
        write: Duration::from_secs(50),
        idle: Duration::from_secs(75),
    };

    fn left(clock: &Clock, now: Instant) -> Option<u64> {
        clock.due().map(|due| (due - now).as_secs())
    }

    #[test]
    fn every_head_has_the_same_time_and_dripping_gives_it_no_more() {
        let mut now = Instant::now();
        let clock = Clock::new(TIMEOUTS, now);
        for _ in 0..3 {
            assert_eq!(left(&clock, now), Some(75));
            clock.read(b"G", now);
            now += Duration::from_secs(4);
            clock.read(b"ET / HTTP/1.1\r", now);
            assert_eq!(left(&clock, now), Some(6));
            clock.read(b"\n\r", now);
            clock.read(b"\n", now);
            clock.asked(false);
            assert_eq!(left(&clock, now), None);
            now += Duration::from_secs(1000);
            clock.answered(now);
        }
    }

    #[test]
    fn a_head_that_began_behind_another_request_has_its_time_when_that_is_answered() {
        let now = Instant::now();
        let clock = Clock::new(TIMEOUTS, now);
        clock.read(b"GET / HTTP/1.1\r\n\r\nGET / H", now);
        clock.asked(false);
        clock.answered(now);
        assert_eq!(left(&clock, now), Some(10));

        clock.read(b"TTP/1.1\r\n\r\n", now);
        clock.asked(false);
        clock.read(b"GET", now);
        clock.answered(now);
        assert_eq!(left(&clock, now), Some(10));
    }

    #[test]
    fn the_body_of_a_request_is_not_taken_for_the_next_one() {
        let now = Instant::now();
        let clock = Clock::new(TIMEOUTS, now);
        clock.read(b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nab", now);
        clock.asked(true);
        clock.read(b"cd", now);
        clock.body_read();
        clock.answered(now);
        assert_eq!(left(&clock, now), Some(75));
    }

    #[test]
    fn the_rest_of_a_body_that_nobody_reads_has_the_time_of_a_head_and_drips_in_vain() {
        let mut now = Instant::now();
        let clock = Clock::new(TIMEOUTS, now);
        clock.read(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", now);
        clock.asked(true);
        clock.answered(now);
        assert_eq!(left(&clock, now), Some(10));
        now += Duration::from_secs(4);
        clock.read(b"1\r\n", now);
        assert!(left(&clock, now) == Some(6) && !clock.is_in_head());

        // It came to its end, and so did another head.
        clock.asked(false);
        clock.answered(now);
        assert_eq!(left(&clock, now), Some(75));
    }

    #[test]
    fn a_client_without_room_has_its_time_whatever_else_is_under_way() {
        let mut now = Instant::now();
        let clock = Clock::new(TIMEOUTS, now);
        clock.read(b"GET / HTTP/1.1\r\n\r\n", now);
        clock.asked(false);
        clock.blocked(now);
        now += Duration::from_secs(20);
        clock.blocked(now);
        assert_eq!(left(&clock, now), Some(30));
        clock.wrote(now);
        assert_eq!(left(&clock, now), None);

        // The last bytes of an answer are stuck: the pause to the next request begins when they are gone.
        clock.blocked(now);
        clock.answered(now);
        assert_eq!(left(&clock, now), Some(50));
        now += Duration::from_secs(20);
        clock.wrote(now);
        assert_eq!(left(&clock, now), Some(75));
    }

    #[test]
    fn a_body_may_be_slow_but_not_arbitrarily_so() {
        let mut now = Instant::now();
        let left = |clock: &BodyClock, now: Instant| (clock.due() - now).as_secs();
        let mut dripped = BodyClock::new(TIMEOUTS.body, now);
        assert_eq!(left(&dripped, now), 5);
        for _ in 0..4 {
            now += Duration::from_secs(1);
            dripped.received(1, now);
        }
        assert_eq!(left(&dripped, now), 1);

        // 20 KiB a second for five minutes: slow, and honest.
        let mut slow = BodyClock::new(TIMEOUTS.body, now);
        for _ in 0..300 {
            now += Duration::from_secs(1);
            slow.received(20 << 10, now);
            assert!(left(&slow, now) > 0);
        }
        assert_eq!(left(&slow, now), 30);

        // 2 KiB a second pass for a while, and not for ever.
        let mut slower = BodyClock::new(TIMEOUTS.body, now);
        for _ in 0..60 {
            now += Duration::from_secs(1);
            slower.received(2 << 10, now);
        }
        assert!(left(&slower, now) < 10);
    }
}
