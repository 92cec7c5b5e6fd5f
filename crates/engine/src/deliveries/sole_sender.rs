//! The right to send to a receiver, and how much was sent: where several replicas may send, one of them has the right
//! at a time, and the next one goes on where that one stopped. If a process is lost, what it sent last may be sent once
//! more.
//!
//! A lease says who may begin. A document says how much was sent and who has begun last: it is read before each
//! request, so that a replica that was paused, or is cut off, sends nothing after another one has begun. A store in
//! which no other process writes documents needs no such read. Not here: the content of requests
//! ([`super::delivery`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::complete::complete;
use interlingua_base::clock;
use interlingua_store::{Conflict, Document, Expect, Store, StoreError, StoreFuture, Version};

/// The collection of the store that has how far receivers got. Its documents go with their runs.
pub const COLLECTION: &str = "pushed";
/// For how long the right is another replica's that was lost.
const LEASE: Duration = Duration::from_secs(60);
/// How often it is renewed.
pub(super) const RENEWAL: Duration = Duration::from_secs(20);
/// Interval of the check for another sender, while a request waits for its next attempt.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// A replica that sends for longer than this to one receiver is not waited for.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How often a document is written again that another replica has written meanwhile.
const MAX_WRITES: usize = 8;

/// The right to send to one receiver, which ends with the value.
pub(super) struct SoleSender {
    store: Arc<dyn Store>,
    /// The key of the receiver's document.
    key: String,
    lease: Arc<SenderLease>,
    /// Of the document that has how much was sent.
    version: Version,
    /// The document is being written.
    noting: Option<StoreFuture<Result<Version, Conflict>>>,
    renewed_at: Instant,
}

/// The lease of one receiver, for one holder. Each call that acquires or renews it owns a reference, so that the store
/// releases the lease after the last of these calls: a call that overtook the release would block other senders for
/// [`LEASE`].
struct SenderLease {
    store: Arc<dyn Store>,
    name: String,
    holder: String,
}

impl SenderLease {
    /// Acquires or renews the lease. False: another holder has it.
    async fn renew(self: &Arc<Self>) -> Result<bool, StoreError> {
        let lease = Arc::clone(self);
        let leased = complete(async move { Ok(lease.store.lease(&lease.name, &lease.holder, LEASE).await) });
        leased.await.unwrap_or(Err(StoreError::Closed))
    }
}

impl Drop for SenderLease {
    fn drop(&mut self) {
        // Not waited for: the store does it by itself.
        drop(self.store.release(&self.name, &self.holder));
    }
}

/// How much was sent to a receiver, and who has begun last.
struct Progress<'a> {
    sent: u64,
    /// `None`: the receiver was named again since.
    holder: Option<&'a str>,
}

impl<'a> Progress<'a> {
    fn parse(document: &'a Document) -> Option<Self> {
        let text = std::str::from_utf8(&document.value).ok()?;
        let (sent, holder) = text.split_once(' ').map_or((text, None), |(sent, holder)| (sent, Some(holder)));
        Some(Self { sent: sent.parse().ok()?, holder })
    }

    fn to_bytes(&self) -> Bytes {
        match self.holder {
            Some(holder) => format!("{} {holder}", self.sent).into(),
            None => self.sent.to_string().into(),
        }
    }
}

impl SoleSender {
    /// The right, once no other replica has it, and the first step to send. `from`: which one that is, if so many were
    /// sent before. `None`: another replica has it for too long, or the store is closed.
    pub(super) async fn wait(
        store: &Arc<dyn Store>,
        key: &str,
        from: impl Fn(Option<u64>) -> u64,
    ) -> Option<(Self, u64)> {
        // Made first: whatever ends the wait, the lease is released.
        let lease =
            SenderLease { store: Arc::clone(store), name: format!("push/{key}"), holder: clock::new_id().to_string() };
        let mut sender = Self {
            store: Arc::clone(store),
            key: key.to_owned(),
            lease: Arc::new(lease),
            version: Version(0),
            noting: None,
            renewed_at: Instant::now(),
        };
        let (began, mut backoff) = (Instant::now(), Backoff::new());
        while began.elapsed() < TIMEOUT {
            // A store that fails is asked again: the run goes on meanwhile, and nothing is sent that is not safe.
            let entered = match sender.renew_lease().await {
                Ok(true) => sender.enter(&from).await,
                Ok(false) => Ok(None),
                Err(error) => Err(error),
            };
            match entered {
                Ok(Some(from)) => return Some((sender, from)),
                Err(StoreError::Closed) => return None,
                Ok(None) | Err(_) => {}
            }
            backoff.pause().await;
        }
        None
    }

    async fn renew_lease(&mut self) -> Result<bool, StoreError> {
        self.renewed_at = Instant::now();
        self.lease.renew().await
    }

    /// Notes that this one sends from now on. `None`: another replica has written the same document at this moment.
    async fn enter(&mut self, from: &impl Fn(Option<u64>) -> u64) -> Result<Option<u64>, StoreError> {
        let found = self.store.get(COLLECTION, &self.key).await?;
        let from = from(found.as_ref().and_then(Progress::parse).map(|progress| progress.sent));
        let expect = found.map_or(Expect::Absent, |found| Expect::Version(found.version));
        let value = Progress { sent: from, holder: Some(&self.lease.holder) }.to_bytes();
        let written = self.store.put(COLLECTION, &self.key, value, expect, clock::now()).await?;
        Ok(written.ok().map(|version| {
            self.version = version;
            from
        }))
    }

    /// Notes how many steps were sent. Waits only for the note before this one.
    pub(super) async fn note(&mut self, sent: u64) {
        self.noted().await;
        let value = Progress { sent, holder: Some(&self.lease.holder) }.to_bytes();
        let expect = self.store.replaces(Some(self.version));
        self.noting = Some(self.store.put(COLLECTION, &self.key, value, expect, clock::now()));
    }

    /// Waits for the last note. If it was not written, the document says whose the right is.
    async fn noted(&mut self) {
        if let Some(noting) = &mut self.noting {
            if let Ok(Ok(version)) = noting.await {
                self.version = version;
            }
            self.noting = None;
        }
    }

    /// Waits until it is sure whether this one may still send: not while the store cannot be reached, since another
    /// replica may have begun.
    pub(super) async fn may_send(&mut self) -> bool {
        if self.is_alone() {
            return true;
        }
        let mut backoff = Backoff::new();
        loop {
            match self.is_current().await {
                Ok(is_current) => return is_current,
                Err(StoreError::Fenced | StoreError::Closed) => return false,
                Err(_) => backoff.pause().await,
            }
        }
    }

    async fn is_current(&mut self) -> Result<bool, StoreError> {
        self.noted().await;
        let found = self.store.get(COLLECTION, &self.key).await?;
        let Some(found) = found else { return Ok(false) };
        if Progress::parse(&found).is_none_or(|progress| progress.holder != Some(&self.lease.holder)) {
            return Ok(false);
        }

        self.version = found.version;
        if self.renewed_at.elapsed() < RENEWAL {
            return Ok(true);
        }
        self.renew_lease().await
    }

    /// True if no other process writes the document: it holds the last note of this sender.
    fn is_alone(&self) -> bool {
        self.store.replaces(Some(self.version)) == Expect::Any
    }

    /// When the right has to be renewed. `None`: no other process can have it.
    pub(super) fn renewal(&self) -> Option<Instant> {
        (!self.is_alone()).then(|| self.renewed_at + RENEWAL)
    }

    /// Deletes the progress of a receiver that is disabled: named again, the receiver gets only later steps. Where
    /// other processes write documents, the progress stays, and the receiver then gets the missed steps.
    pub(super) async fn forget(&mut self) {
        if !self.is_alone() {
            return;
        }
        self.noted().await;
        // Not waited for. Another version is another sender's, or the receiver's that was named again.
        drop(self.store.delete(COLLECTION, &self.key, Expect::Version(self.version)));
    }

    /// Keeps the right while there is nothing to send. False: another replica has it.
    pub(super) async fn renew(&mut self) -> bool {
        self.renewed_at.elapsed() < RENEWAL || self.may_send().await
    }
}

/// The receiver was named again: whichever replica sends to it as it was before stops. Returns how many steps were
/// sent. `None`: no replica has begun.
pub(super) async fn supersede(store: &Arc<dyn Store>, key: &str) -> Result<Option<u64>, StoreError> {
    for _ in 0..MAX_WRITES {
        let Some(found) = store.get(COLLECTION, key).await? else { return Ok(None) };
        let Some(progress) = Progress::parse(&found) else { return Ok(None) };
        let value = Progress { holder: None, ..progress }.to_bytes();
        let expect = Expect::Version(found.version);
        if store.put(COLLECTION, key, value, expect, clock::now()).await?.is_ok() {
            return Ok(Some(progress.sent));
        }
    }
    Err(StoreError::Overloaded)
}

/// How many steps were sent to a receiver that was named again, if no replica sends to it yet.
pub(super) async fn unclaimed(store: &Arc<dyn Store>, key: &str) -> Result<Option<u64>, StoreError> {
    let found = store.get(COLLECTION, key).await?;
    let progress = found.as_ref().and_then(Progress::parse);
    Ok(progress.filter(|progress| progress.holder.is_none()).map(|progress| progress.sent))
}
