//! The open streams of sessions in this process: of each session, the latest one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of the latest stream of each session.
#[derive(Clone, Default)]
pub(crate) struct SessionStreams(Arc<Mutex<Streams>>);

#[derive(Default)]
struct Streams {
    latest: HashMap<String, u64>,
    count: u64,
}

/// The stream of a session, until it is dropped.
pub(crate) struct SessionStream {
    streams: SessionStreams,
    session: String,
    number: u64,
}

impl SessionStreams {
    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the stream of a session. An earlier one of the session is no longer the latest.
    pub(crate) fn open(&self, session: &str) -> SessionStream {
        let mut streams = self.lock();
        streams.count += 1;
        let number = streams.count;
        streams.latest.insert(session.to_owned(), number);
        SessionStream { streams: self.clone(), session: session.to_owned(), number }
    }
}

impl SessionStream {
    /// True unless a later stream of the session was opened.
    pub(crate) fn is_latest(&self) -> bool {
        self.streams.lock().latest.get(&self.session) == Some(&self.number)
    }
}

impl Drop for SessionStream {
    fn drop(&mut self) {
        if self.is_latest() {
            self.streams.lock().latest.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_stream_of_a_session_replaces_the_earlier_one() {
        let streams = SessionStreams::default();
        let (first, other) = (streams.open("a"), streams.open("b"));
        let second = streams.open("a");
        assert_eq!([first.is_latest(), other.is_latest(), second.is_latest()], [false, true, true]);
        drop(first);
        assert!(second.is_latest());
        drop((second, other));
        assert!(streams.lock().latest.is_empty());
    }
}
