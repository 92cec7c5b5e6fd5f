//! The deadlines of a connection: for a request head, for a body, for reading a response, and between two requests.
//! Pure arithmetic of instants. Not here: the timer and the socket ([`super::connection`]).

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

use interlingua_config::ServerTimeouts;

/// Time for the client to read the refusal after a body timeout.
const LATE_LINGER: Duration = Duration::from_millis(500);

/// The state of a connection's timeouts. Shared by the socket, which sees bytes, and the service, which sees requests.
pub(super) struct Clock {
    timeouts: ServerTimeouts,
    phase: Cell<ConnectionPhase>,
    /// The time of the first blocked write since the last successful one. `None`: writes are not blocked.
    blocked_since: Cell<Option<Instant>>,
    /// The last bytes read while a head was expected, to detect its end.
    tail: Cell<[u8; 3]>,
    /// True if bytes of the next request have been read already.
    pipelined: Cell<bool>,
    /// True until the end of the request's body has been read.
    body_pending: Cell<bool>,
    /// True after a body timeout.
    body_late: Cell<bool>,
    expired: Cell<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    /// The TLS handshake, since this time.
    Handshake(Instant),
    /// No byte of the next request has arrived, since this time.
    Idle(Instant),
    /// The head of the next request is incomplete. Its first byte arrived at this time.
    Head(Instant),
    /// A request is being read and answered. Its body has a [`BodyClock`].
    Busy,
    /// The response was sent at this time, before the end of the body. The rest of the body is discarded: it has to
    /// arrive before the next head.
    Discarding(Instant),
    /// HTTP/2: requests overlap. Each request has a [`BodyClock`], and each piece of its response has a timeout.
    Multiplexed(OpenStreams),
}

/// The streams of an HTTP/2 connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpenStreams {
    open: usize,
    /// Start of the idle time: the start of HTTP/2, the end of the latest stream, or the success of a blocked write.
    idle_since: Instant,
    /// Arrival of the first byte of an incomplete head, or of an incomplete frame other than DATA.
    head_since: Option<Instant>,
}

impl Clock {
    /// `secure`: the connection begins with a TLS handshake.
    pub(super) fn new(timeouts: ServerTimeouts, secure: bool, now: Instant) -> Self {
        Self {
            timeouts,
            phase: Cell::new(if secure { ConnectionPhase::Handshake(now) } else { ConnectionPhase::Idle(now) }),
            blocked_since: Cell::new(None),
            tail: Cell::new([0; 3]),
            pipelined: Cell::new(false),
            body_pending: Cell::new(false),
            body_late: Cell::new(false),
            expired: Cell::new(false),
        }
    }

    /// The TLS handshake is complete.
    pub(super) fn on_handshake_end(&self, now: Instant) {
        self.phase.set(ConnectionPhase::Idle(now));
    }

    /// The client uses HTTP/2. Its first frame has the timeout of a head.
    pub(super) fn on_multiplexed(&self, now: Instant) {
        self.phase.set(ConnectionPhase::Multiplexed(OpenStreams { open: 0, idle_since: now, head_since: Some(now) }));
    }

    /// HTTP/2 frames were read. `was_between`: the read crossed a point between two messages. `is_inside`: a head, or a
    /// frame other than DATA, is incomplete now. More bytes of it do not extend its deadline.
    pub(super) fn on_frames(&self, was_between: bool, is_inside: bool, now: Instant) {
        self.update(|streams| {
            let since = streams.head_since.filter(|_| !was_between).unwrap_or(now);
            streams.head_since = is_inside.then_some(since);
        });
    }

    /// A request over HTTP/2 started.
    pub(super) fn on_stream_begin(&self) {
        self.update(|streams| streams.open += 1);
    }

    /// A request over HTTP/2 was answered or abandoned.
    pub(super) fn on_stream_end(&self, now: Instant) {
        self.update(|streams| {
            streams.open = streams.open.saturating_sub(1);
            streams.idle_since = now;
        });
    }

    fn update(&self, change: impl FnOnce(&mut OpenStreams)) {
        if let ConnectionPhase::Multiplexed(mut streams) = self.phase.get() {
            change(&mut streams);
            self.phase.set(ConnectionPhase::Multiplexed(streams));
        }
    }

    fn is_multiplexed(&self) -> bool {
        matches!(self.phase.get(), ConnectionPhase::Multiplexed(_))
    }

    /// Bytes were read. More bytes of a head do not extend its deadline.
    pub(super) fn on_read(&self, bytes: &[u8], now: Instant) {
        if bytes.is_empty() {
            return;
        }

        match self.phase.get() {
            ConnectionPhase::Idle(_) => {
                self.phase.set(ConnectionPhase::Head(now));
                self.store_tail(bytes);
            }
            ConnectionPhase::Head(_) => self.store_tail(bytes),
            ConnectionPhase::Busy => self.pipelined.set(true),
            ConnectionPhase::Handshake(_) | ConnectionPhase::Discarding(_) | ConnectionPhase::Multiplexed(_) => {}
        }
    }

    fn store_tail(&self, bytes: &[u8]) {
        let mut tail = self.tail.get();
        for byte in &bytes[bytes.len().saturating_sub(tail.len())..] {
            tail.rotate_left(1);
            tail[2] = *byte;
        }
        self.tail.set(tail);
    }

    /// A head is complete, and the service receives its request.
    pub(super) fn on_request(&self, has_body: bool) {
        if self.is_multiplexed() {
            return;
        }
        self.body_pending.set(has_body);
        // If the last bytes do not end the head, the body of this request or the next request has begun.
        let tail = self.tail.replace([0; 3]);
        let head_ends_here = tail == *b"\n\r\n" || tail[1..] == *b"\n\n";
        if let ConnectionPhase::Head(_) = self.phase.replace(ConnectionPhase::Busy) {
            self.pipelined.set(!head_ends_here);
        }
    }

    /// The body is complete: everything read from now on belongs to the next request.
    pub(super) fn on_body_end(&self) {
        self.body_pending.set(false);
        self.pipelined.set(false);
    }

    /// The body timed out: the connection is closed soon after the refusal.
    pub(super) fn on_body_late(&self) {
        self.body_late.set(true);
    }

    /// A request with `Expect: 100-continue` was refused. The client may still send the body.
    pub(super) fn on_refusal(&self, now: Instant) {
        self.on_request(true);
        self.on_response_end(now);
    }

    /// The last byte of the response was passed on for writing.
    pub(super) fn on_response_end(&self, now: Instant) {
        if self.is_multiplexed() {
            return;
        }
        // If bytes of the next head were read already, its timeout starts now: there may never be another read.
        let pipelined = self.pipelined.replace(false);
        self.phase.set(match (self.body_pending.replace(false), pipelined) {
            (true, _) => ConnectionPhase::Discarding(now),
            (false, true) => ConnectionPhase::Head(now),
            (false, false) => ConnectionPhase::Idle(now),
        });
    }

    /// A write is pending because the client does not read.
    pub(super) fn on_write_blocked(&self, now: Instant) {
        if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(now));
        }
    }

    /// A write succeeded.
    pub(super) fn on_write(&self, now: Instant) {
        if self.blocked_since.take().is_none() {
            return;
        }
        // The end of the response was delayed: the idle time starts now.
        if let ConnectionPhase::Idle(_) = self.phase.get() {
            self.phase.set(ConnectionPhase::Idle(now));
        }
        self.update(|streams| streams.idle_since = now);
    }

    /// The time to close the connection if nothing else happens. `None` while a request is in progress and writes are
    /// not blocked.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let write = self.blocked_since.get().map(|since| since + self.timeouts.write);
        let read = match self.phase.get() {
            ConnectionPhase::Idle(_) if write.is_some() => None,
            ConnectionPhase::Idle(since) => Some(since + self.timeouts.idle),
            ConnectionPhase::Discarding(since) if self.body_late.get() => {
                Some(since + LATE_LINGER.min(self.timeouts.head))
            }
            ConnectionPhase::Handshake(since) | ConnectionPhase::Head(since) | ConnectionPhase::Discarding(since) => {
                Some(since + self.timeouts.head)
            }
            ConnectionPhase::Busy => None,
            ConnectionPhase::Multiplexed(OpenStreams { head_since: Some(since), .. }) => {
                Some(since + self.timeouts.head)
            }
            ConnectionPhase::Multiplexed(OpenStreams { open: 0, idle_since, .. }) if write.is_none() => {
                Some(idle_since + self.timeouts.idle)
            }
            ConnectionPhase::Multiplexed(_) => None,
        };

        match (read, write) {
            (Some(read), Some(write)) => Some(read.min(write)),
            (read, write) => read.or(write),
        }
    }

    /// The start of the wait for a request, including the TLS handshake. `None` while a request is in progress, and
    /// over HTTP/2.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        match self.phase.get() {
            ConnectionPhase::Handshake(since)
            | ConnectionPhase::Idle(since)
            | ConnectionPhase::Head(since)
            | ConnectionPhase::Discarding(since) => Some(since),
            ConnectionPhase::Busy | ConnectionPhase::Multiplexed(_) => None,
        }
    }

    /// Marks the connection as timed out.
    pub(super) fn expire(&self) {
        self.expired.set(true);
    }

    pub(super) fn is_expired(&self) -> bool {
        self.expired.get()
    }

    /// True if a 408 response can be written: a request head has started, and no write is blocked.
    pub(super) fn can_send_timeout(&self) -> bool {
        self.blocked_since.get().is_none() && matches!(self.phase.get(), ConnectionPhase::Head(_))
    }

    /// The reason for a timeout, for the log.
    pub(super) fn timeout_reason(&self) -> &'static str {
        match (self.blocked_since.get(), self.phase.get()) {
            (Some(_), _) => "the client did not read its response",
            (None, ConnectionPhase::Handshake(_)) => "the TLS handshake timed out",
            (
                None,
                ConnectionPhase::Head(_) | ConnectionPhase::Multiplexed(OpenStreams { head_since: Some(_), .. }),
            ) => "the head of a request did not arrive in time",
            (None, ConnectionPhase::Discarding(_)) => "the rest of a discarded body did not arrive in time",
            (None, _) => "no further request arrived in time",
        }
    }
}

/// The deadlines of a request body, in total and for the next bytes.
///
/// A body may take `timeouts.body`, plus one second for every 16 KiB of it, so that a large body over a slow connection
/// is not cut off. A client that sends almost nothing is detected earlier: after the grace period it must have sent 1
/// KiB per second, and no pause may be longer than [`BodyClock::MAX_PAUSE`].
pub(super) struct BodyClock {
    total_deadline: Instant,
    next_deadline: Instant,
}

impl BodyClock {
    /// Time without a byte that is allowed at the start.
    const GRACE_PERIOD: Duration = Duration::from_secs(5);
    /// The longest pause between two reads.
    const MAX_PAUSE: Duration = Duration::from_secs(30);
    /// Bytes per second, after the grace period.
    const MIN_RATE: u32 = 1 << 10;
    /// Bytes that extend the total deadline by one second.
    const EXTENSION_RATE: u32 = 16 << 10;

    pub(super) fn new(timeout: Duration, now: Instant) -> Self {
        Self { total_deadline: now + timeout, next_deadline: now + timeout.min(Self::GRACE_PERIOD) }
    }

    /// The time by which the next bytes of the body must arrive.
    pub(super) fn deadline(&self) -> Instant {
        self.total_deadline.min(self.next_deadline)
    }

    pub(super) fn received(&mut self, bytes: usize, now: Instant) {
        let seconds = |rate: u32| Duration::from_secs(bytes as u64) / rate;
        self.total_deadline += seconds(Self::EXTENSION_RATE);
        self.next_deadline = (self.next_deadline + seconds(Self::MIN_RATE)).min(now + Self::MAX_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: ServerTimeouts = ServerTimeouts {
        message: Duration::from_secs(30),
        ping: Duration::from_secs(30),
        head: Duration::from_secs(10),
        body: Duration::from_secs(60),
        write: Duration::from_secs(50),
        idle: Duration::from_secs(75),
    };

    fn seconds_left(clock: &Clock, now: Instant) -> Option<u64> {
        clock.deadline().map(|deadline| (deadline - now).as_secs())
    }

    #[test]
    fn slow_bytes_do_not_extend_the_deadline_of_a_head() {
        let mut now = Instant::now();
        let clock = Clock::new(TIMEOUTS, false, now);

        for _ in 0..3 {
            assert_eq!(seconds_left(&clock, now), Some(75));
            clock.on_read(b"G", now);
            now += Duration::from_secs(4);
            clock.on_read(b"ET / HTTP/1.1\r", now);
            assert_eq!(seconds_left(&clock, now), Some(6));
            clock.on_read(b"\n\r", now);
            clock.on_read(b"\n", now);
            clock.on_request(false);
            assert_eq!(seconds_left(&clock, now), None);
            now += Duration::from_secs(1000);
            clock.on_response_end(now);
        }
    }

    #[test]
    fn the_time_of_a_pipelined_head_starts_when_the_previous_request_is_answered() {
        let now = Instant::now();
        let clock = Clock::new(TIMEOUTS, false, now);
        clock.on_read(b"GET / HTTP/1.1\r\n\r\nGET / H", now);
        clock.on_request(false);
        clock.on_response_end(now);
        assert_eq!(seconds_left(&clock, now), Some(10));

        clock.on_read(b"TTP/1.1\r\n\r\n", now);
        clock.on_request(false);
        clock.on_read(b"GET", now);
        clock.on_response_end(now);
        assert_eq!(seconds_left(&clock, now), Some(10));
    }

    #[test]
    fn a_body_is_not_mistaken_for_the_next_request() {
        let now = Instant::now();
        let clock = Clock::new(TIMEOUTS, false, now);
        clock.on_read(b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nab", now);
        clock.on_request(true);
        clock.on_read(b"cd", now);
        clock.on_body_end();
        clock.on_response_end(now);

        assert_eq!(seconds_left(&clock, now), Some(75));
    }

    #[test]
    fn slow_bytes_do_not_extend_the_deadline_of_a_discarded_body() {
        let mut now = Instant::now();
        let clock = Clock::new(TIMEOUTS, false, now);
        clock.on_read(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", now);
        clock.on_request(true);
        clock.on_response_end(now);
        assert_eq!(seconds_left(&clock, now), Some(10));
        now += Duration::from_secs(4);
        clock.on_read(b"1\r\n", now);
        assert!(seconds_left(&clock, now) == Some(6) && !clock.can_send_timeout());

        // The body has ended, and another head is complete.
        clock.on_request(false);
        clock.on_response_end(now);
        assert_eq!(seconds_left(&clock, now), Some(75));
    }

    #[test]
    fn a_client_that_does_not_read_is_timed_out_in_every_phase() {
        let mut now = Instant::now();
        let clock = Clock::new(TIMEOUTS, false, now);
        clock.on_read(b"GET / HTTP/1.1\r\n\r\n", now);
        clock.on_request(false);
        clock.on_write_blocked(now);
        now += Duration::from_secs(20);
        clock.on_write_blocked(now);
        assert_eq!(seconds_left(&clock, now), Some(30));
        clock.on_write(now);
        assert_eq!(seconds_left(&clock, now), None);

        // The last bytes of a response are stuck: the idle time starts once they are written.
        clock.on_write_blocked(now);
        clock.on_response_end(now);
        assert_eq!(seconds_left(&clock, now), Some(50));
        now += Duration::from_secs(20);
        clock.on_write(now);
        assert_eq!(seconds_left(&clock, now), Some(75));
    }

    #[test]
    fn a_handshake_has_the_time_of_a_head_and_then_the_connection_is_idle() {
        let mut now = Instant::now();
        let clock = Clock::new(TIMEOUTS, true, now);
        let head = seconds_left(&clock, now).expect("a deadline");
        now += Duration::from_secs(1);
        clock.on_write_blocked(now);
        clock.on_write(now);
        assert_eq!(seconds_left(&clock, now), Some(head - 1));
        assert!(!clock.can_send_timeout());

        clock.on_handshake_end(now);
        assert_eq!(seconds_left(&clock, now), Some(75));
    }

    #[test]
    fn an_http2_connection_is_idle_without_streams_and_a_head_has_its_time() {
        let mut now = Instant::now();
        let clock = Clock::new(TIMEOUTS, true, now);
        clock.on_handshake_end(now);
        clock.on_multiplexed(now);
        assert_eq!(seconds_left(&clock, now), Some(10), "the first frame");
        clock.on_frames(true, false, now);
        assert_eq!(seconds_left(&clock, now), Some(75));

        // Frames that begin no stream do not extend the idle time.
        now += Duration::from_secs(5);
        clock.on_frames(true, false, now);
        assert_eq!(seconds_left(&clock, now), Some(70));
        // A head arrives slowly; the read with its end contains the start of another one.
        clock.on_frames(false, true, now);
        now += Duration::from_secs(4);
        clock.on_frames(false, true, now);
        assert_eq!(seconds_left(&clock, now), Some(6));
        clock.on_frames(true, true, now);
        assert!(seconds_left(&clock, now) == Some(10) && !clock.can_send_timeout());
        clock.on_frames(true, false, now);

        // Reports of HTTP/1.1 requests have no effect.
        clock.on_stream_begin();
        clock.on_request(true);
        clock.on_stream_begin();
        clock.on_response_end(now);
        clock.on_stream_end(now);
        assert_eq!(seconds_left(&clock, now), None, "one is open");
        clock.on_write_blocked(now);
        clock.on_stream_end(now);
        assert_eq!(seconds_left(&clock, now), Some(50));
        now += Duration::from_secs(20);
        clock.on_write(now);
        assert_eq!(seconds_left(&clock, now), Some(75));
    }

    #[test]
    fn a_body_may_be_slow_within_limits() {
        let mut now = Instant::now();
        let seconds_left = |clock: &BodyClock, now: Instant| (clock.deadline() - now).as_secs();
        let mut almost_silent = BodyClock::new(TIMEOUTS.body, now);
        assert_eq!(seconds_left(&almost_silent, now), 5);
        for _ in 0..4 {
            now += Duration::from_secs(1);
            almost_silent.received(1, now);
        }
        assert_eq!(seconds_left(&almost_silent, now), 1);

        // 20 KiB per second for five minutes: slow, but accepted.
        let mut slow = BodyClock::new(TIMEOUTS.body, now);
        for _ in 0..300 {
            now += Duration::from_secs(1);
            slow.received(20 << 10, now);
            assert!(seconds_left(&slow, now) > 0);
        }
        assert_eq!(seconds_left(&slow, now), 30);

        // 2 KiB per second are accepted for a limited time.
        let mut slower = BodyClock::new(TIMEOUTS.body, now);
        for _ in 0..60 {
            now += Duration::from_secs(1);
            slower.received(2 << 10, now);
        }
        assert!(seconds_left(&slower, now) < 10);
    }
}
