//! Evicts connections at the limit: the connection with the longest wait for a request is closed in favour of a new
//! one. So clients that send half a request, or nothing, do not lock out others.
//!
//! Used by the admin listener, because it has to answer probes. Not here: the number of connections
//! ([`super::admission`]), and the timeouts of each ([`super::clock`]).

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use tokio::sync::Notify;

use super::clock::Clock;

/// The open connections of a worker.
#[derive(Default)]
pub struct Evictable(RefCell<Vec<EvictableConnection>>);

struct EvictableConnection {
    /// Dropped with its connection.
    clock: Weak<Clock>,
    evicted: Rc<Notify>,
}

impl Evictable {
    /// Adds a connection. The caller closes it when the result is notified.
    pub(super) fn add(&self, clock: &Rc<Clock>) -> Rc<Notify> {
        let evicted = Rc::new(Notify::new());
        let mut entries = self.0.borrow_mut();
        entries.retain(|entry| entry.clock.strong_count() > 0);
        entries.push(EvictableConnection { clock: Rc::downgrade(clock), evicted: Rc::clone(&evicted) });
        evicted
    }

    /// Closes the connection with the longest wait for a request. False: no connection is waiting.
    pub(super) fn evict_oldest(&self) -> bool {
        let mut entries = self.0.borrow_mut();
        let since = |entry: &EvictableConnection| entry.clock.upgrade().and_then(|clock| clock.waiting_since());
        let waiting = entries.iter().enumerate().filter_map(|(index, entry)| Some((since(entry)?, index)));
        let Some((_, oldest)) = waiting.min() else { return false };
        // Removed, so that it is not chosen twice.
        entries.swap_remove(oldest).evicted.notify_one();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use interlingua_config::ServerTimeouts;

    fn clock(now: Instant) -> Rc<Clock> {
        let second = Duration::from_secs(1);
        let timeouts =
            ServerTimeouts { head: second, body: second, write: second, idle: second, message: second, ping: second };
        Rc::new(Clock::new(timeouts, false, now))
    }

    #[tokio::test]
    async fn the_connection_that_has_waited_longest_is_closed_and_none_that_is_answered() {
        let (evictable, now) = (Evictable::default(), Instant::now());
        let [busy, old, young] = [0, 1, 2].map(|seconds| clock(now + Duration::from_secs(seconds)));
        let [_, of_old, of_young] = [&busy, &old, &young].map(|clock| evictable.add(clock));
        busy.on_read(b"GET / HTTP/1.1\r\n\r\n", now);
        busy.on_request(false);
        old.on_read(b"GET / HT", now + Duration::from_secs(1));

        assert!(evictable.evict_oldest());
        of_old.notified().await;
        assert!(evictable.evict_oldest());
        of_young.notified().await;
        assert!(!evictable.evict_oldest(), "the last one is answered");
        drop((old, young));
    }
}
