//! How many deliveries may be on their way at once: of the whole gateway, of one owner, to one place. Whoever wants to
//! send more waits, so that nobody's receivers hold up those of others, and no place is flooded by way of this gateway.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// With so many of them, those that nobody uses are thrown out.
const SWEEP_AT: usize = 1024;

/// Lets a bounded number in.
pub(super) struct Gate {
    all: Arc<Semaphore>,
    owners: Keyed,
    places: Keyed,
}

/// The right to send, until it is dropped.
pub(super) struct Entered {
    _permits: [OwnedSemaphorePermit; 3],
}

struct Keyed {
    each: usize,
    known: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(256, 128, 8)
    }
}

impl Gate {
    fn new(all: usize, of_one_owner: usize, to_one_place: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), owners: Keyed::new(of_one_owner), places: Keyed::new(to_one_place) }
    }

    /// Waits for the right to send, first come, first served. The narrowest bound first: who waits for a slow place
    /// takes nobody else's room.
    pub(super) async fn enter(&self, owner: &str, place: &str) -> Entered {
        let place = acquire(self.places.of(place)).await;
        let owner = acquire(self.owners.of(owner)).await;
        let all = acquire(Arc::clone(&self.all)).await;
        Entered { _permits: [place, owner, all] }
    }
}

async fn acquire(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.acquire_owned().await.expect("nobody closes it")
}

impl Keyed {
    fn new(each: usize) -> Self {
        Self { each, known: Mutex::default() }
    }

    fn of(&self, key: &str) -> Arc<Semaphore> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= SWEEP_AT {
            // Whoever waits or sends holds it too.
            known.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        let semaphore = known.entry(key.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.each)));
        Arc::clone(semaphore)
    }
}

/// Where a URL leads: what stands before its path.
pub(super) fn place_of(url: &str) -> String {
    let from = url.find("://").map_or(0, |at| at + 3);
    let to = url[from..].find(['/', '?', '#']).map_or(url.len(), |at| from + at);
    // Users and passwords do not make it another place.
    let host = url[from..to].rsplit('@').next().unwrap_or_default();
    host.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn nobody_takes_more_than_their_share_and_others_are_let_in() {
        let gate = Gate::new(5, 3, 2);
        let first = gate.enter("ada", "one").await;
        let _second = gate.enter("ada", "one").await;
        assert!(gate.enter("bob", "one").now_or_never().is_none(), "two to one place");
        let _third = gate.enter("ada", "two").await;
        assert!(gate.enter("ada", "three").now_or_never().is_none(), "three of one owner");
        let _fourth = gate.enter("bob", "three").now_or_never().expect("another owner, another place");
        let _fifth = gate.enter("bob", "three").now_or_never().expect("another owner, another place");
        assert!(gate.enter("eve", "four").now_or_never().is_none(), "five in all");
        drop(first);
        assert!(gate.enter("eve", "four").now_or_never().is_some());
    }

    #[test]
    fn a_place_is_what_stands_before_the_path() {
        for url in ["https://hooks.example:8443/a?b", "https://u:p@HOOKS.example:8443", "http://hooks.example:8443#x"] {
            assert_eq!(place_of(url), "hooks.example:8443");
        }
    }

    #[test]
    fn what_nobody_uses_is_forgotten() {
        let keyed = Keyed::new(1);
        let used = keyed.of("used");
        for number in 0..3 * SWEEP_AT {
            keyed.of(&number.to_string());
        }
        assert!(keyed.known.lock().expect("no panic").len() <= SWEEP_AT + 1);
        assert!(Arc::ptr_eq(&used, &keyed.of("used")));
    }
}
