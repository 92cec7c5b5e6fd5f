//! What agents' servers publish about them, such as cards, as far as it is known: fetched when somebody asks, kept for
//! as long as the server says, fetched again when somebody asks later.
//!
//! Invariants: one fetch at a time for each document; whoever asks waits a bounded time and gets what is known then;
//! what was found once stays until something else is found. A server that has nothing to say is asked again after a
//! pause, and complained about once.
//!
//! Not here: the fetching ([`super::http`]), and what such a document means (the adapter).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlingua_core::Json;
use interlingua_core::well_known::{FetchedDocument, WellKnownDocument};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::clock;

/// How long is waited for what, and kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Whoever asks waits so long where nothing is known yet.
    pub(super) first: Duration,
    /// And so long where something is known already.
    pub(super) again: Duration,
    /// A fetch may take so long.
    pub(super) fetch: Duration,
    /// Nothing is fetched for so long after a fetch that failed.
    pub(super) pause: Duration,
    /// A document is fresh for so long if its server does not say.
    pub(super) fresh: Duration,
    /// Whatever the server says, not for less time,
    pub(super) least: Duration,
    /// and not for more.
    pub(super) most: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(5),
            again: Duration::from_secs(1),
            fetch: Duration::from_secs(15),
            pause: Duration::from_secs(30),
            fresh: Duration::from_secs(5 * 60),
            least: Duration::from_secs(60),
            most: Duration::from_secs(60 * 60),
        }
    }
}

/// What was fetched.
pub(super) struct Fetched {
    /// What is kept of it.
    pub(super) document: Json,
    /// For how long its server says that it is fresh.
    pub(super) max_age: Option<Duration>,
}

/// Where a document may lie: what tells two of them apart.
type Paths = &'static [&'static str];

/// The documents of one agent.
#[derive(Default)]
pub(super) struct Shelf {
    times: Times,
    places: Mutex<Vec<(Paths, Arc<watch::Sender<Place>>)>>,
}

/// The place of one document.
#[derive(Default)]
struct Place {
    known: Option<Arc<FetchedDocument>>,
    fetching: bool,
    /// Nothing is fetched before.
    rests_until: Option<Instant>,
    failing: bool,
}

impl Shelf {
    /// The document, as far as it is known. `fetch` is called if it has to be fetched; its future runs on the runtime
    /// of the thread that asks, whether anybody still waits for it or not.
    pub(super) async fn get<F>(
        &self,
        wanted: &WellKnownDocument,
        fetch: impl FnOnce() -> F,
    ) -> Option<Arc<FetchedDocument>>
    where
        F: Future<Output = Result<Fetched, String>> + Send + 'static,
    {
        let place = self.place(wanted.paths);
        let begins = place.send_if_modified(|place| {
            let rests = place.rests_until.is_some_and(|until| Instant::now() < until);
            let begins = !place.fetching && !rests;
            place.fetching |= begins;
            begins
        });
        if begins {
            let fetching =
                Fetching { place: Arc::clone(&place), agent: wanted.agent.clone(), times: self.times, over: false };
            let (fetch, bound) = (fetch(), self.times.fetch);
            tokio::spawn(async move {
                let fetched = timeout(bound, fetch).await;
                fetching.done(fetched.unwrap_or_else(|_| Err(format!("no whole answer after {bound:?}"))));
            });
        }
        let mut seen = place.subscribe();
        let patience = if seen.borrow().known.is_some() { self.times.again } else { self.times.first };
        // What is known when patience ends has to do; the fetch goes on.
        let _ = timeout(patience, seen.wait_for(|place| !place.fetching)).await;
        place.borrow().known.clone()
    }

    fn place(&self, paths: Paths) -> Arc<watch::Sender<Place>> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, place)) = places.iter().find(|(known, _)| *known == paths) {
            return Arc::clone(place);
        }
        let place = Arc::new(watch::Sender::new(Place::default()));
        places.push((paths, Arc::clone(&place)));
        place
    }
}

/// A fetch under way. Dropped in the middle, with the thread it ran on, it makes way for another one.
struct Fetching {
    place: Arc<watch::Sender<Place>>,
    agent: String,
    times: Times,
    /// Its result is taken in: the place may be another fetch's already.
    over: bool,
}

impl Fetching {
    fn done(mut self, fetched: Result<Fetched, String>) {
        self.over = true;
        let agent = &self.agent;
        let mut news = None;
        self.place.send_modify(|place| news = place.take(fetched, self.times));
        match news {
            Some(News::Again) => tracing::info!(agent, "the agent's own card was read again"),
            Some(News::Gone { why, instead }) => {
                tracing::warn!(agent, why, "the agent's own card cannot be read: {instead} is shown");
            }
            None => {}
        }
    }
}

/// What an operator should hear of a fetch.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// It has worked after it had not.
    Again,
    /// It has not worked after it had, or at first.
    Gone { why: String, instead: &'static str },
}

impl Place {
    /// Takes in what a fetch has come to.
    fn take(&mut self, fetched: Result<Fetched, String>, times: Times) -> Option<News> {
        self.fetching = false;
        let failed_before = std::mem::replace(&mut self.failing, fetched.is_err());
        let (rest, news) = match fetched {
            Ok(Fetched { document, max_age }) => {
                if self.known.as_ref().is_none_or(|known| known.document != document) {
                    self.known = Some(Arc::new(FetchedDocument { document, since: clock::now() }));
                }
                let rest = max_age.unwrap_or(times.fresh).clamp(times.least, times.most);
                (rest, failed_before.then_some(News::Again))
            }
            Err(why) => {
                let instead = if self.known.is_some() { "the old one" } else { "what the configuration says" };
                (times.pause, (!failed_before).then_some(News::Gone { why, instead }))
            }
        };
        self.rests_until = Some(Instant::now() + rest);
        news
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if !self.over {
            self.place.send_if_modified(|place| std::mem::take(&mut place.fetching));
        }
    }
}

#[cfg(test)]
mod tests;
