//! A store with injected faults: late results, failed calls, a panic, a lookup or a lease that is held back.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use interlingua::store::{
    Claim, Conflict, Coordination, Document, DocumentEntry, DocumentStore, DocumentWrite, Expect, Journal, LoadCost,
    Query, ReplicaStatus, Retention, RetentionReport, RunPage, RunStore, RunUpdate, Signal, Store, StoreError,
    StoreFuture, StoredRun, Ticket, TurnQueue, Version,
};
use interlingua_core::RunId;
use interlingua_core::event::Millis;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

/// Wraps another store.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    /// Calls that succeed before one fails. Negative: none fails.
    until_failure: AtomicI64,
    failed: AtomicBool,
    fail_opens: AtomicBool,
    panic_next_settle: AtomicBool,
    hold_next_load: AtomicBool,
    release: Arc<Notify>,
    /// Prefix of the lease that is held back.
    lease_to_hold: Mutex<Option<&'static str>>,
    held_lease: Arc<HeldLease>,
}

/// Events of a lease that is held back.
#[derive(Default)]
struct HeldLease {
    requested: Notify,
    released: Notify,
    acquired: Notify,
}

impl FaultyStore {
    /// Delays every result.
    pub fn slow(inner: Arc<dyn Store>) -> Self {
        let until_failure = AtomicI64::new(-1);
        let [failed, fail_opens, panic_next_settle, hold_next_load] = [(); 4].map(|()| AtomicBool::new(false));
        Self {
            inner,
            until_failure,
            failed,
            fail_opens,
            panic_next_settle,
            hold_next_load,
            release: Arc::default(),
            lease_to_hold: Mutex::default(),
            held_lease: Arc::default(),
        }
    }

    /// Fails one call after this many successful ones.
    pub fn fail_once_after(&self, calls: usize) {
        self.failed.store(false, Ordering::SeqCst);
        self.until_failure.store(i64::try_from(calls).expect("a small number"), Ordering::SeqCst);
    }

    /// Fails every `open`.
    pub fn fail_open(&self) {
        self.fail_opens.store(true, Ordering::SeqCst);
    }

    /// Panics in the next `settle`.
    pub fn panic_on_settle(&self) {
        self.panic_next_settle.store(true, Ordering::SeqCst);
    }

    /// Holds back the result of the next `load` until [`FaultyStore::release_load`].
    pub fn hold_load(&self) {
        self.hold_next_load.store(true, Ordering::SeqCst);
    }

    /// Returns the result that was held back.
    pub fn release_load(&self) {
        self.release.notify_one();
    }

    /// Holds back the next lease whose name has this prefix. The store acquires it even if its caller stops waiting.
    pub fn hold_lease(&self, prefix: &'static str) {
        *self.lease_to_hold.lock().unwrap_or_else(PoisonError::into_inner) = Some(prefix);
    }

    /// Resolves once a caller has requested the lease that is held back.
    pub async fn lease_requested(&self) {
        self.held_lease.requested.notified().await;
    }

    /// Lets the store acquire the lease that was held back. Resolves once it has.
    pub async fn release_lease(&self) {
        self.held_lease.released.notify_one();
        self.held_lease.acquired.notified().await;
    }

    /// True if a call was failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Ends all faults.
    pub fn recover(&self) {
        self.until_failure.store(-1, Ordering::SeqCst);
        self.fail_opens.store(false, Ordering::SeqCst);
    }

    /// Starts the call at once and delays its result.
    fn delayed<T: Send + 'static>(&self, call: impl FnOnce(&dyn Store) -> StoreFuture<T>) -> StoreFuture<T> {
        self.delayed_or(call, |_| {})
    }

    /// Like [`FaultyStore::delayed`]. `refused` is run if the call is failed, since a real store keeps trying to write
    /// the run.
    fn delayed_or<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Store) -> StoreFuture<T>,
        refused: impl FnOnce(&dyn Store),
    ) -> StoreFuture<T> {
        let left = self.until_failure.load(Ordering::SeqCst);
        if left >= 0 {
            self.until_failure.store(left - 1, Ordering::SeqCst);
        }

        let fails = left == 0;
        if fails {
            self.failed.store(true, Ordering::SeqCst);
        }

        let answer = if fails {
            refused(&*self.inner);
            Self::injected_error()
        } else {
            call(&*self.inner)
        };
        Box::pin(async move {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            answer.await
        })
    }

    fn injected_error<T: Send + 'static>() -> StoreFuture<T> {
        let refused = StoreError::corrupt("record", "the test says so");
        Box::pin(std::future::ready(Err(refused)))
    }
}

impl RunStore for FaultyStore {
    fn open(&self, run: &Arc<dyn Journal>, claim: Claim) -> StoreFuture<()> {
        if self.fail_opens.load(Ordering::SeqCst) {
            return Self::injected_error();
        }
        self.delayed_or(|inner| inner.open(run, claim), |inner| drop(inner.open(run, claim)))
    }

    fn touch(&self, run: &Arc<dyn Journal>) {
        self.inner.touch(run);
    }

    fn settle(&self, run: &Arc<dyn Journal>) -> StoreFuture<()> {
        assert!(!self.panic_next_settle.swap(false, Ordering::SeqCst), "the test says so");
        self.delayed_or(|inner| inner.settle(run), |inner| drop(inner.settle(run)))
    }

    fn load(&self, id: RunId) -> StoreFuture<Option<Arc<StoredRun>>> {
        let found = self.delayed(|inner| inner.load(id));
        if !self.hold_next_load.swap(false, Ordering::SeqCst) {
            return found;
        }

        let release = Arc::clone(&self.release);
        Box::pin(async move {
            release.notified().await;
            found.await
        })
    }

    fn load_cost(&self, id: RunId) -> StoreFuture<Option<LoadCost>> {
        self.delayed(|inner| inner.load_cost(id))
    }

    fn owner_of(&self, id: RunId) -> StoreFuture<Option<String>> {
        self.delayed(|inner| inner.owner_of(id))
    }

    fn heads(&self, ids: Vec<RunId>) -> StoreFuture<Vec<StoredRun>> {
        self.delayed(|inner| inner.heads(ids))
    }

    fn find(&self, query: Query) -> StoreFuture<RunPage> {
        self.delayed(|inner| inner.find(query))
    }

    fn latest(&self, agents: Vec<String>, owner: String, session: String) -> StoreFuture<Option<RunId>> {
        self.delayed(|inner| inner.latest(agents, owner, session))
    }

    fn remove(&self, id: RunId) -> StoreFuture<bool> {
        self.delayed(|inner| inner.remove(id))
    }
}

impl DocumentStore for FaultyStore {
    fn get(&self, collection: &str, key: &str) -> StoreFuture<Option<Document>> {
        self.delayed(|inner| inner.get(collection, key))
    }

    fn put(
        &self,
        collection: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
        now: Millis,
    ) -> StoreFuture<Result<Version, Conflict>> {
        self.delayed(|inner| inner.put(collection, key, value, expect, now))
    }

    fn write(&self, writes: Vec<DocumentWrite>, now: Millis) -> StoreFuture<Result<Version, Conflict>> {
        self.delayed(|inner| inner.write(writes, now))
    }

    fn delete(&self, collection: &str, key: &str, expect: Expect) -> StoreFuture<Result<bool, Conflict>> {
        self.delayed(|inner| inner.delete(collection, key, expect))
    }

    fn list(
        &self,
        collection: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> StoreFuture<Vec<DocumentEntry>> {
        self.delayed(|inner| inner.list(collection, prefix, after, limit))
    }

    fn count(&self, collection: &str, principal: &str) -> StoreFuture<u64> {
        let (collection, principal) = (collection.to_owned(), principal.to_owned());
        self.delayed(move |inner| inner.count(&collection, &principal))
    }
}

impl Coordination for FaultyStore {
    fn lease(&self, key: &str, holder: &str, ttl: Duration) -> StoreFuture<bool> {
        let mut to_hold = self.lease_to_hold.lock().unwrap_or_else(PoisonError::into_inner);
        if to_hold.take_if(|prefix| key.starts_with(*prefix)).is_none() {
            return self.delayed(|inner| inner.lease(key, holder, ttl));
        }

        let (inner, held) = (Arc::clone(&self.inner), Arc::clone(&self.held_lease));
        let (key, holder) = (key.to_owned(), holder.to_owned());
        held.requested.notify_one();
        let acquiring = tokio::spawn(async move {
            held.released.notified().await;
            let leased = inner.lease(&key, &holder, ttl).await;
            held.acquired.notify_one();
            leased
        });
        Box::pin(async { acquiring.await.expect("no panic") })
    }

    fn release(&self, key: &str, holder: &str) -> StoreFuture<()> {
        self.delayed(|inner| inner.release(key, holder))
    }

    fn signal(&self, id: RunId, signal: Signal) -> StoreFuture<()> {
        self.delayed(|inner| inner.signal(id, signal))
    }

    fn signals(&self) -> UnboundedReceiver<(RunId, Signal)> {
        self.inner.signals()
    }

    fn recover(&self) -> StoreFuture<Vec<RunId>> {
        self.inner.recover()
    }

    fn turns(&self) -> &dyn TurnQueue {
        self
    }

    fn replica(&self) -> Option<ReplicaStatus> {
        self.inner.replica()
    }

    fn write_timeout(&self) -> Option<Duration> {
        self.inner.write_timeout()
    }

    fn runs_move(&self) -> bool {
        self.inner.runs_move()
    }

    fn let_go(&self, run: &Arc<dyn Journal>) {
        if self.inner.runs_move() {
            drop(self.settle(run));
        }
    }

    fn follow(&self, id: RunId, from: u64) -> Option<BoxStream<'static, Result<RunUpdate, StoreError>>> {
        self.inner.follow(id, from)
    }

    fn replaces(&self, known: Option<Version>) -> Expect {
        self.inner.replaces(known)
    }
}

impl TurnQueue for FaultyStore {
    fn queue_turn(&self, session: &str, continues: Option<RunId>, most: usize) -> StoreFuture<Option<Ticket>> {
        self.delayed(|inner| inner.turns().queue_turn(session, continues, most))
    }

    fn is_continued(&self, run: RunId) -> StoreFuture<bool> {
        self.delayed(|inner| inner.turns().is_continued(run))
    }

    fn wait_for_turn(&self, ticket: &Ticket) -> StoreFuture<()> {
        self.delayed(|inner| inner.turns().wait_for_turn(ticket))
    }

    fn leave_turn(&self, ticket: Ticket) -> StoreFuture<()> {
        // A real store gives up the place later.
        let leave = |inner: &dyn Store| inner.turns().leave_turn(ticket.clone());
        self.delayed_or(leave, |inner| drop(leave(inner)))
    }
}

impl Store for FaultyStore {
    fn retain(&self, policy: Retention, now: Millis) -> StoreFuture<RetentionReport> {
        self.inner.retain(policy, now)
    }

    fn flush(&self) -> StoreFuture<()> {
        self.inner.flush()
    }

    fn close(&self) -> StoreFuture<()> {
        self.inner.close()
    }
}
