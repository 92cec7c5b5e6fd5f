//! A cache of documents that are the same for all callers: documents that agents' servers publish, such as cards.
//! Fetched on demand, kept for the server's lifetime, then fetched again on demand.
//!
//! Invariants: one fetch at a time for each document; a caller waits a limited time and then gets the cached document;
//! a document stays until another one is fetched, or until too many others are requested. After a failure the next
//! fetch waits.
//!
//! Not here: fetching and logging ([`super::http`]), and the meaning of a document (adapters and connectors).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Time limits of a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Time that a caller waits if nothing is cached yet.
    pub(super) first: Duration,
    /// Time that a caller waits if a stale document is cached.
    pub(super) again: Duration,
    /// The limit of one fetch.
    pub(super) fetch: Duration,
    /// The pause after a failed fetch, if a document is kept meanwhile,
    pub(super) pause: Duration,
    /// and without a document.
    pub(super) pause_without: Duration,
    /// Lifetime of a document without a lifetime of its server.
    pub(super) fresh: Duration,
    /// The lower limit of what the server may say,
    pub(super) min_age: Duration,
    /// and the upper one.
    pub(super) max_age: Duration,
}

impl Times {
    /// The times for documents that clients see.
    pub(super) const DEFAULT: Self = Self {
        first: Duration::from_secs(5),
        again: Duration::from_secs(1),
        fetch: Duration::from_secs(15),
        pause: Duration::from_secs(30),
        pause_without: Duration::from_secs(30),
        fresh: Duration::from_secs(5 * 60),
        min_age: Duration::from_secs(60),
        max_age: Duration::from_secs(60 * 60),
    };
}

/// A fetched document.
pub(super) struct FreshDocument<V> {
    /// The cached part of it.
    pub(super) document: V,
    /// Its lifetime. `None`: the server sets none.
    pub(super) max_age: Option<Duration>,
}

/// The outcome of a fetch, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FetchOutcome<E> {
    /// It succeeded after a failure.
    Again,
    /// It failed after a success, or as the first one. `is_kept`: an older document is used instead.
    Gone { why: E, is_kept: bool },
}

/// Why there is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missing<E> {
    /// The last fetch failed.
    Failed(E),
    /// None was there when the caller's time was up.
    Late,
}

/// Documents by what names them, those of one agent.
pub(super) struct Documents<K, V, E> {
    times: Times,
    /// The most that are kept.
    most: usize,
    /// True if two documents say the same: the older one is kept then.
    same: fn(&V, &V) -> bool,
    /// Used last: at the end.
    entries: Mutex<Entries<K, V, E>>,
}

type Entries<K, V, E> = Vec<(K, Arc<watch::Sender<Entry<V, E>>>)>;

/// One document and the state of its fetches.
struct Entry<V, E> {
    known: Option<V>,
    fetching: bool,
    /// No fetch starts before this.
    next_fetch: Option<Instant>,
    /// Why the last fetch failed.
    failing: Option<E>,
}

impl<V, E> Default for Entry<V, E> {
    fn default() -> Self {
        Self { known: None, fetching: false, next_fetch: None, failing: None }
    }
}

impl<K, V, E> Documents<K, V, E>
where
    K: PartialEq,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    pub(super) const fn new(times: Times, most: usize, same: fn(&V, &V) -> bool) -> Self {
        Self { times, most, same, entries: Mutex::new(Vec::new()) }
    }

    /// A document. `fetch` is called if a fetch is due; its future runs on the runtime of the calling thread, even if
    /// no caller waits for it any longer. `late`: the error of a fetch that took too long. `note` gets what should be
    /// logged.
    pub(super) async fn get<F>(
        &self,
        key: K,
        fetch: impl FnOnce() -> F,
        late: impl FnOnce(Duration) -> E + Send + 'static,
        note: impl FnOnce(FetchOutcome<E>) + Send + 'static,
    ) -> Result<V, Missing<E>>
    where
        F: Future<Output = Result<FreshDocument<V>, E>> + Send + 'static,
    {
        let entry = self.entry(key);
        let begins = entry.send_if_modified(|entry| {
            let waits = entry.next_fetch.is_some_and(|until| Instant::now() < until);
            let begins = !entry.fetching && !waits;
            entry.fetching |= begins;
            begins
        });
        if begins {
            let fetching = Fetching { entry: Arc::clone(&entry), times: self.times, same: self.same, over: false };
            let (fetch, bound) = (fetch(), self.times.fetch);
            tokio::spawn(async move {
                let fetched = timeout(bound, fetch).await;
                if let Some(noted) = fetching.done(fetched.unwrap_or_else(|_| Err(late(bound)))) {
                    note(noted);
                }
            });
        }
        let mut seen = entry.subscribe();
        let limit = if seen.borrow().known.is_some() { self.times.again } else { self.times.first };
        // After the time limit the caller gets the cached document; the fetch continues.
        let _ = timeout(limit, seen.wait_for(|entry| !entry.fetching)).await;
        let entry = entry.borrow();
        match (&entry.known, &entry.failing) {
            (Some(known), _) => Ok(known.clone()),
            (None, Some(why)) => Err(Missing::Failed(why.clone())),
            (None, None) => Err(Missing::Late),
        }
    }

    fn entry(&self, key: K) -> Arc<watch::Sender<Entry<V, E>>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match entries.iter().position(|(known, _)| *known == key) {
            Some(at) => entries.remove(at),
            None => (key, Arc::new(watch::Sender::new(Entry::default()))),
        };
        let entry = Arc::clone(&found.1);
        if entries.len() >= self.most {
            entries.remove(0);
        }
        entries.push(found);
        entry
    }
}

/// A running fetch. If it is dropped before its end, because its thread ended, another one may start.
struct Fetching<V, E> {
    entry: Arc<watch::Sender<Entry<V, E>>>,
    times: Times,
    same: fn(&V, &V) -> bool,
    /// The result is stored: another fetch may be running already.
    over: bool,
}

impl<V, E: Clone> Fetching<V, E> {
    fn done(mut self, fetched: Result<FreshDocument<V>, E>) -> Option<FetchOutcome<E>> {
        self.over = true;
        let mut noted = None;
        self.entry.send_modify(|entry| noted = entry.take(fetched, self.times, self.same));
        noted
    }
}

impl<V, E: Clone> Entry<V, E> {
    /// Stores the result of a fetch. Returns what has to be logged.
    fn take(
        &mut self,
        fetched: Result<FreshDocument<V>, E>,
        times: Times,
        same: impl Fn(&V, &V) -> bool,
    ) -> Option<FetchOutcome<E>> {
        self.fetching = false;
        let failed_before = std::mem::replace(&mut self.failing, fetched.as_ref().err().cloned()).is_some();
        let (rest, noted) = match fetched {
            Ok(FreshDocument { document, max_age }) => {
                if self.known.as_ref().is_none_or(|known| !same(known, &document)) {
                    self.known = Some(document);
                }
                let rest = max_age.unwrap_or(times.fresh).clamp(times.min_age, times.max_age);
                (rest, failed_before.then_some(FetchOutcome::Again))
            }
            Err(why) => {
                let is_kept = self.known.is_some();
                let rest = if is_kept { times.pause } else { times.pause_without };
                (rest, (!failed_before).then_some(FetchOutcome::Gone { why, is_kept }))
            }
        };
        self.next_fetch = Some(Instant::now() + rest);
        noted
    }
}

impl<V, E> Drop for Fetching<V, E> {
    fn drop(&mut self) {
        if !self.over {
            self.entry.send_if_modified(|entry| std::mem::take(&mut entry.fetching));
        }
    }
}

#[cfg(test)]
mod tests;
