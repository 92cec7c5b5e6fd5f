//! The right to send to a receiver, where several replicas may: one of them has it at a time, and the next one goes on
//! where that one stopped. If a replica is lost, what it sent last may be sent once more.
//!
//! Not here: what is sent ([`super::delivery`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::store::{Expect, Store};

/// The collection of the store that has how far receivers got. Its documents go with their runs.
pub(crate) const COLLECTION: &str = "pushed";
/// For how long the right is another replica's that was lost.
const LEASE: Duration = Duration::from_secs(60);
/// How often it is renewed.
pub(super) const RENEWAL: Duration = Duration::from_secs(20);
/// How often it is tried to get it.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// A replica that sends for longer than this to one receiver is not waited for.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The right to send to one receiver. Dropped, it is given up.
pub(super) struct SoleSender {
    store: Arc<dyn Store>,
    /// The key of the receiver's document.
    key: String,
    holder: String,
    renewed_at: Instant,
}

impl SoleSender {
    /// The right, once no other replica has it, and how many steps were sent before. `None`: another one has it for too
    /// long, or the store is closed.
    pub(super) async fn wait(store: &Arc<dyn Store>, key: &str) -> Option<(Self, Option<u64>)> {
        let (holder, began) = (clock::new_id().to_string(), Instant::now());
        while began.elapsed() < TIMEOUT {
            // A store that fails is asked again: the run goes on meanwhile, and nothing is sent that is not safe.
            if matches!(store.lease(&lease(key), &holder, LEASE).await, Ok(true)) {
                let sender = Self { store: Arc::clone(store), key: key.to_owned(), holder, renewed_at: Instant::now() };
                let sent = sender.sent().await;
                return Some((sender, sent));
            }
            sleep(RETRY_INTERVAL).await;
        }
        None
    }

    async fn sent(&self) -> Option<u64> {
        let document = self.store.get(COLLECTION, &self.key).await.ok()??;
        std::str::from_utf8(&document.value).ok()?.parse().ok()
    }

    /// Notes how many steps were sent. Not waited for.
    pub(super) fn note(&self, sent: u64) {
        let value = Bytes::from(sent.to_string());
        drop(self.store.put(COLLECTION, &self.key, value, Expect::Any, clock::now()));
    }

    /// Keeps the right. False: another replica has it.
    pub(super) async fn renew(&mut self) -> bool {
        if self.renewed_at.elapsed() < RENEWAL {
            return true;
        }
        self.renewed_at = Instant::now();
        // A store that cannot be reached has given it to no one else yet.
        self.store.lease(&lease(&self.key), &self.holder, LEASE).await.unwrap_or(true)
    }
}

impl Drop for SoleSender {
    fn drop(&mut self) {
        drop(self.store.release(&lease(&self.key), &self.holder));
    }
}

fn lease(key: &str) -> String {
    format!("push/{key}")
}
