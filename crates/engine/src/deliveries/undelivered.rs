//! The list of deliveries under way, in the store: what a process has not sent when it is lost, others send.
//!
//! A document for each receiver and run while something may be left to send, under the name of the process that sends
//! it. It is written before anything of the delivery can be lost, and deleted once all is sent or given up. A process
//! shows by a lease that it lives, so looking for lost ones costs as much as there are processes, however much they
//! send. Not here: how a delivery that was left is continued ([`super::left`]), and how far it got
//! ([`super::sole_sender`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use interlingua_core::RunId;
use tokio::time::Instant;

use super::sole_sender::RENEWAL;
use crate::backoff::Backoff;
use interlingua_base::clock;
use interlingua_store::{Conflict, DocumentEntry, Expect, Store, StoreError, StoreFuture, Version};

/// The collection of the list. Keys are `<process>/<receiver>`, where a receiver's key begins with its run; values are
/// the first step to send, if no more is noted.
const COLLECTION: &str = "pushing";
/// For how long a process that was lost seems to live.
const LEASE: Duration = Duration::from_secs(60);
/// The number of documents in one page of the list.
const PAGE: usize = 256;
/// The maximum number of attempts to write a document. After them, the delivery continues without it.
const MAX_WRITES: usize = 8;

/// The deliveries of this process in the list, and those of lost ones.
pub(super) struct Undelivered {
    store: Arc<dyn Store>,
    /// The name of this process.
    process: String,
    /// `None`: the process has sent nothing yet, and has no lease.
    leased_at: Mutex<Option<Instant>>,
}

/// A delivery of this process in the list.
pub(super) struct Listed {
    list: Arc<Undelivered>,
    receiver: String,
    from: u64,
    writing: Option<StoreFuture<Result<Version, Conflict>>>,
    version: Option<Version>,
}

/// A delivery that a lost process has left.
pub(super) struct Left {
    key: String,
    /// The key of the receiver, as its owner knows it.
    pub(super) receiver: String,
    /// The first step to send, if no more is noted.
    pub(super) from: u64,
    version: Version,
}

impl Undelivered {
    pub(crate) fn new(store: &Arc<dyn Store>) -> Self {
        Self { store: Arc::clone(store), process: clock::new_id().to_string(), leased_at: Mutex::default() }
    }

    /// Puts a delivery on the list. It is there before all that is written from now on.
    pub(crate) fn add(self: &Arc<Self>, receiver: &str, from: u64) -> Listed {
        let is_first = self.lock().is_none();
        if is_first {
            // In time, or others send too what this one sends: one after the other.
            drop(self.renew());
        }
        let writing = Some(self.write(receiver, from));
        Listed { list: Arc::clone(self), receiver: receiver.to_owned(), from, writing, version: None }
    }

    fn write(&self, receiver: &str, from: u64) -> StoreFuture<Result<Version, Conflict>> {
        self.store.put(COLLECTION, &self.key(receiver), from.to_string().into(), Expect::Any, clock::now())
    }

    /// Takes a delivery off the list that was ended.
    pub(crate) fn remove(&self, receiver: &str) {
        // Not waited for: a receiver that is not there any more is sent nothing.
        drop(self.store.delete(COLLECTION, &self.key(receiver), Expect::Any));
    }

    /// Shows that this process lives.
    pub(super) async fn keep_lease(&self) {
        let is_due = self.lock().is_some_and(|at| at.elapsed() >= RENEWAL);
        if is_due && let Err(error) = self.renew().await {
            tracing::debug!(%error, "other gateways may send what this one sends");
        }
    }

    fn renew(&self) -> StoreFuture<bool> {
        *self.lock() = Some(Instant::now());
        self.store.lease(&lease(&self.process), &self.process, LEASE)
    }

    /// The lost processes that have left something.
    pub(super) async fn lost_processes(&self) -> Result<Vec<String>, StoreError> {
        let (mut lost, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
        while let Some(next) = self.store.list(COLLECTION, "", after.as_deref(), 1).await?.pop() {
            let process = next.key.split('/').next().unwrap_or_default();
            if process != self.process && self.store.lease(&lease(process), &self.process, LEASE).await? {
                lost.push(process.to_owned());
            }
            // '0' is the character after '/': the first one of the next process comes.
            after = Some(format!("{process}0"));
        }
        Ok(lost)
    }

    /// A page of what a lost process has left, after `after`.
    pub(super) async fn left_by(&self, process: &str, after: Option<&Left>) -> Result<Vec<Left>, StoreError> {
        let after = after.map(|left| left.key.as_str());
        let found = self.store.list(COLLECTION, &format!("{process}/"), after, PAGE).await?;
        Ok(found.into_iter().filter_map(Left::parse).collect())
    }

    /// Takes a delivery off the list that is continued by this process, or by none.
    pub(crate) async fn settle(&self, left: &Left) -> Result<(), StoreError> {
        self.store.delete(COLLECTION, &left.key, Expect::Version(left.version)).await.map(drop)
    }

    /// Lets others look at a process that was taken for lost.
    pub(super) fn release(&self, process: &str) {
        drop(self.store.release(&lease(process), &self.process));
    }

    fn key(&self, receiver: &str) -> String {
        format!("{}/{receiver}", self.process)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.leased_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listed {
    /// Waits until it is on the list.
    pub(super) async fn written(&mut self) {
        let mut backoff = Backoff::new();
        for _ in 0..MAX_WRITES {
            let writing = self.writing.take().unwrap_or_else(|| self.list.write(&self.receiver, self.from));
            match writing.await {
                Ok(written) => {
                    self.version = written.ok();
                    return;
                }
                Err(error) => tracing::debug!(%error, "what is left to push is not noted"),
            }
            backoff.pause().await;
        }
    }

    /// All is sent, or given up. A delivery to the same receiver that has begun since stays on the list.
    pub(crate) fn remove(self) {
        if let Some(version) = self.version {
            drop(self.list.store.delete(COLLECTION, &self.list.key(&self.receiver), Expect::Version(version)));
        }
    }
}

impl Left {
    /// The run whose receiver it is.
    pub(crate) fn run(&self) -> Option<RunId> {
        self.receiver.split('/').next().and_then(RunId::parse)
    }

    fn parse(entry: DocumentEntry) -> Option<Self> {
        let receiver = entry.key.split_once('/')?.1.to_owned();
        // A damaged number only costs steps that are sent twice: a delivery that is never begun is never settled.
        let from = std::str::from_utf8(&entry.document.value).ok().and_then(|from| from.parse().ok()).unwrap_or(0);
        Some(Self { receiver, from, version: entry.document.version, key: entry.key })
    }
}

fn lease(process: &str) -> String {
    format!("pushing/{process}")
}
