//! Bounds the push requests on their way: in all, of one owner, and to one receiver's server. Others wait, so that no
//! owner's receivers hold up those of others, and no server is flooded by this gateway.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// At this number of semaphores, the unused ones are dropped.
const SWEEP_AT: usize = 1024;

/// Lets a bounded number of requests through.
pub(super) struct Gate {
    all: Arc<Semaphore>,
    owners: Keyed,
    origins: Keyed,
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
    fn new(all: usize, of_one_owner: usize, to_one_origin: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all)),
            owners: Keyed::new(of_one_owner),
            origins: Keyed::new(to_one_origin),
        }
    }

    /// Waits for the right to send, first come, first served. The narrowest bound comes first: a request that waits for
    /// a slow server takes no room from others.
    pub(super) async fn enter(&self, owner: &str, origin: &str) -> Entered {
        let origin = acquire(self.origins.get(origin)).await;
        let owner = acquire(self.owners.get(owner)).await;
        let all = acquire(Arc::clone(&self.all)).await;
        Entered { _permits: [origin, owner, all] }
    }
}

async fn acquire(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.acquire_owned().await.expect("it is never closed")
}

impl Keyed {
    fn new(each: usize) -> Self {
        Self { each, known: Mutex::default() }
    }

    fn get(&self, key: &str) -> Arc<Semaphore> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= SWEEP_AT {
            // A request that waits or is on its way holds it too.
            known.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }

        let semaphore = known.entry(key.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.each)));
        Arc::clone(semaphore)
    }
}

/// The host and port of a URL.
pub(super) fn origin_of(url: &str) -> String {
    let from = url.find("://").map_or(0, |at| at + 3);
    let to = url[from..].find(['/', '?', '#']).map_or(url.len(), |at| from + at);
    // Another user or password is not another server.
    let host = url[from..to].rsplit('@').next().unwrap_or_default();
    host.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn no_one_takes_more_than_a_share_and_others_are_let_in() {
        let gate = Gate::new(5, 3, 2);
        let first = gate.enter("ada", "one").await;
        let _second = gate.enter("ada", "one").await;
        assert!(gate.enter("bob", "one").now_or_never().is_none(), "two to one server");
        let _third = gate.enter("ada", "two").await;
        assert!(gate.enter("ada", "three").now_or_never().is_none(), "three of one owner");
        let _fourth = gate.enter("bob", "three").now_or_never().expect("another owner, another server");
        let _fifth = gate.enter("bob", "three").now_or_never().expect("another owner, another server");
        assert!(gate.enter("eve", "four").now_or_never().is_none(), "five in all");
        drop(first);
        assert!(gate.enter("eve", "four").now_or_never().is_some());
    }

    #[test]
    fn an_origin_is_host_and_port() {
        for url in ["https://hooks.example:8443/a?b", "https://u:p@HOOKS.example:8443", "http://hooks.example:8443#x"] {
            assert_eq!(origin_of(url), "hooks.example:8443");
        }
    }

    #[test]
    fn semaphores_that_are_not_in_use_are_dropped() {
        let keyed = Keyed::new(1);
        let used = keyed.get("used");
        for number in 0..3 * SWEEP_AT {
            keyed.get(&number.to_string());
        }
        assert!(keyed.known.lock().expect("no panic").len() <= SWEEP_AT + 1);
        assert!(Arc::ptr_eq(&used, &keyed.get("used")));
    }
}
