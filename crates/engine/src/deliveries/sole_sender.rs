//! The right to send to a receiver, and the number of sent steps. One replica has the right at a time, and the next one
//! continues after the last noted step. If a process is lost, its last request may be sent again.
//!
//! A replica may begin while it has the lease. A document has the number of sent steps and the replica that began last;
//! each replica reads it before each request, so that one that was paused or disconnected sends nothing after another
//! one has begun. In a store in which no other process writes documents this read is omitted. Not here: the content of
//! requests ([`super::delivery`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::complete::complete;
use interlingua_base::clock;
use interlingua_store::{Conflict, Document, Expect, Store, StoreError, StoreFuture, Version};

/// The collection with the number of sent steps of each receiver. Its documents are deleted with their runs.
pub const COLLECTION: &str = "pushed";
/// Time after which another sender can acquire the lease of a lost one, at the latest.
const LEASE: Duration = Duration::from_secs(60);
/// Interval at which leases are renewed.
pub(super) const RENEWAL: Duration = Duration::from_secs(20);
/// Interval of the check for another sender, while a request waits for its next attempt.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time to wait for the lease of another sender.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum number of attempts to write a document that other replicas write at the same time.
const MAX_WRITES: usize = 8;

/// The right to send to one receiver, which ends with the value.
pub(super) struct SoleSender {
    store: Arc<dyn Store>,
    /// The key of the receiver's document.
    key: String,
    lease: Arc<SenderLease>,
    /// The version of the progress document.
    version: Version,
    /// The write of the progress document under way.
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

/// The progress document of a receiver.
struct Progress<'a> {
    /// Number of steps that were sent or given up.
    sent: u64,
    /// The sender that began last. `None`: the receiver was named again since.
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
    /// Waits until no other sender has the right. Returns the right and the first step to send, which `from` computes
    /// from the noted number of sent steps (`None`: nothing is noted). `None`: [`TIMEOUT`] has passed, or the store is
    /// closed.
    pub(super) async fn wait(
        store: &Arc<dyn Store>,
        key: &str,
        from: impl Fn(Option<u64>) -> u64,
    ) -> Option<(Self, u64)> {
        // Made before the first request for the lease, so that it is released wherever the wait ends.
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
            // Retried if the store fails: the run continues meanwhile.
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

    /// Notes this sender as the current one. Returns the first step to send. `None`: another replica has written the
    /// document at the same time.
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

    /// Notes the number of sent steps. Waits only for the previous note.
    pub(super) async fn note(&mut self, sent: u64) {
        self.noted().await;
        let value = Progress { sent, holder: Some(&self.lease.holder) }.to_bytes();
        let expect = self.store.replaces(Some(self.version));
        self.noting = Some(self.store.put(COLLECTION, &self.key, value, expect, clock::now()));
    }

    /// Waits for the last note. A failure is ignored: the document is read before the next request.
    async fn noted(&mut self) {
        if let Some(noting) = &mut self.noting {
            if let Ok(Ok(version)) = noting.await {
                self.version = version;
            }
            self.noting = None;
        }
    }

    /// Whether this sender is still the current one. Waits while the store is unreachable, because another replica may
    /// have begun. False also if the store is closed or this replica is fenced.
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

    /// True if no other process writes the progress document.
    fn is_alone(&self) -> bool {
        self.store.replaces(Some(self.version)) == Expect::Any
    }

    /// The time of the next renewal of the lease. `None`: no other process sends, so that no renewal is needed.
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

    /// Renews the right if that is due. False: another replica has it.
    pub(super) async fn renew(&mut self) -> bool {
        self.renewed_at.elapsed() < RENEWAL || self.may_send().await
    }
}

/// Stops the sender of a receiver that was named again, on any replica: it no longer finds itself in the progress
/// document. Returns the number of sent steps. `None`: no sender has begun, or the document is damaged.
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

/// The number of steps that were sent to a receiver before it was named again. `None`: a sender has begun since,
/// nothing was sent, or the document is damaged.
pub(super) async fn unclaimed(store: &Arc<dyn Store>, key: &str) -> Result<Option<u64>, StoreError> {
    let found = store.get(COLLECTION, key).await?;
    let progress = found.as_ref().and_then(Progress::parse);
    Ok(progress.filter(|progress| progress.holder.is_none()).map(|progress| progress.sent))
}
