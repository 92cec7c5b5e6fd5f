//! Caches the documents that agents' servers publish about them, such as cards: fetched on demand, kept for as long as
//! the server says, then fetched again on demand.
//!
//! Invariants: one fetch at a time for each document; a caller waits a bounded time and gets what is cached then; a
//! document stays until another one is fetched. A server that fails is retried after a pause and logged once.
//!
//! Not here: fetching ([`super::http`]), and what such a document means (the adapter).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlingua_core::Json;
use interlingua_core::well_known::{FetchedDocument, WellKnownDocument};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::clock;

/// Time limits of a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// How long a caller waits if nothing is cached yet.
    pub(super) first: Duration,
    /// How long a caller waits if a stale document is cached.
    pub(super) again: Duration,
    /// The limit of one fetch.
    pub(super) fetch: Duration,
    /// The pause after a failed fetch.
    pub(super) pause: Duration,
    /// How long a document is fresh if its server does not say.
    pub(super) fresh: Duration,
    /// The lower limit of what the server may say,
    pub(super) min_age: Duration,
    /// and the upper one.
    pub(super) max_age: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(5),
            again: Duration::from_secs(1),
            fetch: Duration::from_secs(15),
            pause: Duration::from_secs(30),
            fresh: Duration::from_secs(5 * 60),
            min_age: Duration::from_secs(60),
            max_age: Duration::from_secs(60 * 60),
        }
    }
}

/// A fetched document.
pub(super) struct Fetched {
    /// The part that is cached.
    pub(super) document: Json,
    /// How long it is fresh. `None`: the server does not say.
    pub(super) max_age: Option<Duration>,
}

/// The paths where a document may be found: the key of the cache.
type PathList = &'static [&'static str];

/// The cached documents of one agent.
#[derive(Default)]
pub(super) struct WellKnownCache {
    times: Times,
    entries: Mutex<Vec<(PathList, Arc<watch::Sender<CacheEntry>>)>>,
}

/// One document and the state of its fetches.
#[derive(Default)]
struct CacheEntry {
    known: Option<Arc<FetchedDocument>>,
    fetching: bool,
    /// No fetch starts before this.
    next_fetch: Option<Instant>,
    failing: bool,
}

impl WellKnownCache {
    /// Returns the document, or `None` if it could not be fetched in time. `fetch` is called if a fetch is due; its
    /// future runs on the runtime of the calling thread, even if no caller waits for it any longer.
    pub(super) async fn get<F>(
        &self,
        wanted: &WellKnownDocument,
        fetch: impl FnOnce() -> F,
    ) -> Option<Arc<FetchedDocument>>
    where
        F: Future<Output = Result<Fetched, String>> + Send + 'static,
    {
        let entry = self.entry(wanted.paths);
        let begins = entry.send_if_modified(|entry| {
            let waits = entry.next_fetch.is_some_and(|until| Instant::now() < until);
            let begins = !entry.fetching && !waits;
            entry.fetching |= begins;
            begins
        });
        if begins {
            let fetching =
                Fetching { entry: Arc::clone(&entry), agent: wanted.agent.clone(), times: self.times, over: false };
            let (fetch, bound) = (fetch(), self.times.fetch);
            tokio::spawn(async move {
                let fetched = timeout(bound, fetch).await;
                fetching.done(fetched.unwrap_or_else(|_| Err(format!("no complete answer after {bound:?}"))));
            });
        }
        let mut seen = entry.subscribe();
        let limit = if seen.borrow().known.is_some() { self.times.again } else { self.times.first };
        // The caller gets what is cached when the time is up; the fetch goes on.
        let _ = timeout(limit, seen.wait_for(|entry| !entry.fetching)).await;
        entry.borrow().known.clone()
    }

    fn entry(&self, paths: PathList) -> Arc<watch::Sender<CacheEntry>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, entry)) = entries.iter().find(|(known, _)| *known == paths) {
            return Arc::clone(entry);
        }
        let entry = Arc::new(watch::Sender::new(CacheEntry::default()));
        entries.push((paths, Arc::clone(&entry)));
        entry
    }
}

/// A running fetch. If it is dropped before its end, because its thread ended, another one may start.
struct Fetching {
    entry: Arc<watch::Sender<CacheEntry>>,
    agent: String,
    times: Times,
    /// The result is stored: another fetch may be running already.
    over: bool,
}

impl Fetching {
    fn done(mut self, fetched: Result<Fetched, String>) {
        self.over = true;
        let agent = &self.agent;
        let mut outcome = None;
        self.entry.send_modify(|entry| outcome = entry.take(fetched, self.times));
        match outcome {
            Some(FetchOutcome::Again) => tracing::info!(agent, "the agent's own card was read again"),
            Some(FetchOutcome::Gone { why, instead }) => {
                tracing::warn!(agent, why, "the agent's own card cannot be read: {instead} is shown");
            }
            None => {}
        }
    }
}

/// What is logged about a fetch.
#[derive(Debug, PartialEq, Eq)]
enum FetchOutcome {
    /// It succeeded after a failure.
    Again,
    /// It failed after a success, or as the first one.
    Gone { why: String, instead: &'static str },
}

impl CacheEntry {
    /// Stores the result of a fetch. Returns what has to be logged.
    fn take(&mut self, fetched: Result<Fetched, String>, times: Times) -> Option<FetchOutcome> {
        self.fetching = false;
        let failed_before = std::mem::replace(&mut self.failing, fetched.is_err());
        let (rest, outcome) = match fetched {
            Ok(Fetched { document, max_age }) => {
                if self.known.as_ref().is_none_or(|known| known.document != document) {
                    self.known = Some(Arc::new(FetchedDocument { document, since: clock::now() }));
                }
                let rest = max_age.unwrap_or(times.fresh).clamp(times.min_age, times.max_age);
                (rest, failed_before.then_some(FetchOutcome::Again))
            }
            Err(why) => {
                let instead = if self.known.is_some() { "the old one" } else { "what the configuration says" };
                (times.pause, (!failed_before).then_some(FetchOutcome::Gone { why, instead }))
            }
        };
        self.next_fetch = Some(Instant::now() + rest);
        outcome
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if !self.over {
            self.entry.send_if_modified(|entry| std::mem::take(&mut entry.fetching));
        }
    }
}

#[cfg(test)]
mod tests;
