//! A store that answers late, and fails when it is told to.

#![allow(dead_code, unreachable_pub, reason = "every test uses another part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use interlingua::store::{
    Conflict, Document, Entry, Expect, Found, Journal, Later, Query, Retention, Signal, Store, StoreError, Stored,
    Swept, Version, Weight,
};
use interlingua_core::RunId;
use interlingua_core::event::Millis;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

/// Another store, behind trouble.
pub struct Troubled {
    inner: Arc<dyn Store>,
    /// So many calls go well before one fails. Negative: none fails.
    until_failure: AtomicI64,
    failed: AtomicBool,
    no_open: AtomicBool,
    panics: AtomicBool,
    holds: AtomicBool,
    goes: Arc<Notify>,
}

impl Troubled {
    /// Answers everything late.
    pub fn slow(inner: Arc<dyn Store>) -> Self {
        let until_failure = AtomicI64::new(-1);
        let [failed, no_open, panics, holds] = [(); 4].map(|()| AtomicBool::new(false));
        Self { inner, until_failure, failed, no_open, panics, holds, goes: Arc::default() }
    }

    /// After so many calls one is refused.
    pub fn fail_once_after(&self, calls: usize) {
        self.failed.store(false, Ordering::SeqCst);
        self.until_failure.store(i64::try_from(calls).expect("a small number"), Ordering::SeqCst);
    }

    /// Takes no more runs.
    pub fn fail_open(&self) {
        self.no_open.store(true, Ordering::SeqCst);
    }

    /// Panics once when a run is to be settled.
    pub fn panic_on_settle(&self) {
        self.panics.store(true, Ordering::SeqCst);
    }

    /// Holds back what the next look-up finds, until [`Troubled::let_load_go`].
    pub fn hold_load(&self) {
        self.holds.store(true, Ordering::SeqCst);
    }

    /// Answers the look-up that was held back.
    pub fn let_load_go(&self) {
        self.goes.notify_one();
    }

    /// Whether a call was refused.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Refuses nothing any more.
    pub fn recover(&self) {
        self.until_failure.store(-1, Ordering::SeqCst);
        self.no_open.store(false, Ordering::SeqCst);
    }

    /// What the store does begins at once, and is answered later.
    fn later<T: Send + 'static>(&self, call: impl FnOnce(&dyn Store) -> Later<T>) -> Later<T> {
        self.later_or(call, |_| {})
    }

    /// As [`Troubled::later`]. `refused`: what is done all the same where the call is refused, since a store goes on
    /// trying to write runs.
    fn later_or<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Store) -> Later<T>,
        refused: impl FnOnce(&dyn Store),
    ) -> Later<T> {
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
            Self::refused()
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

    fn refused<T: Send + 'static>() -> Later<T> {
        let refused = StoreError::Corrupt { what: "record".to_owned(), why: "the test says so".to_owned() };
        Box::pin(std::future::ready(Err(refused)))
    }
}

impl Store for Troubled {
    fn open(&self, run: &Arc<dyn Journal>) -> Later<()> {
        if self.no_open.load(Ordering::SeqCst) {
            return Self::refused();
        }
        self.later_or(|inner| inner.open(run), |inner| drop(inner.open(run)))
    }

    fn touch(&self, run: &Arc<dyn Journal>) {
        self.inner.touch(run);
    }

    fn settle(&self, run: &Arc<dyn Journal>) -> Later<()> {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "the test says so");
        self.later_or(|inner| inner.settle(run), |inner| drop(inner.settle(run)))
    }

    fn load(&self, id: RunId) -> Later<Option<Arc<Stored>>> {
        let found = self.later(|inner| inner.load(id));
        if !self.holds.swap(false, Ordering::SeqCst) {
            return found;
        }
        let goes = Arc::clone(&self.goes);
        Box::pin(async move {
            goes.notified().await;
            found.await
        })
    }

    fn weigh(&self, id: RunId) -> Later<Option<Weight>> {
        self.later(|inner| inner.weigh(id))
    }

    fn heads(&self, ids: Vec<RunId>) -> Later<Vec<Stored>> {
        self.later(|inner| inner.heads(ids))
    }

    fn find(&self, query: Query) -> Later<Found> {
        self.later(|inner| inner.find(query))
    }

    fn latest(&self, agents: Vec<String>, owner: String, session: String) -> Later<Option<RunId>> {
        self.later(|inner| inner.latest(agents, owner, session))
    }

    fn remove(&self, id: RunId) -> Later<bool> {
        self.later(|inner| inner.remove(id))
    }

    fn get(&self, collection: &str, key: &str) -> Later<Option<Document>> {
        self.later(|inner| inner.get(collection, key))
    }

    fn put(
        &self,
        collection: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
        now: Millis,
    ) -> Later<Result<Version, Conflict>> {
        self.later(|inner| inner.put(collection, key, value, expect, now))
    }

    fn delete(&self, collection: &str, key: &str, expect: Expect) -> Later<Result<bool, Conflict>> {
        self.later(|inner| inner.delete(collection, key, expect))
    }

    fn list(&self, collection: &str, prefix: &str, after: Option<&str>, limit: usize) -> Later<Vec<Entry>> {
        self.later(|inner| inner.list(collection, prefix, after, limit))
    }

    fn lease(&self, key: &str, holder: &str, ttl: Duration) -> Later<bool> {
        self.later(|inner| inner.lease(key, holder, ttl))
    }

    fn release(&self, key: &str, holder: &str) -> Later<()> {
        self.later(|inner| inner.release(key, holder))
    }

    fn signal(&self, id: RunId, signal: Signal) -> Later<()> {
        self.later(|inner| inner.signal(id, signal))
    }

    fn signals(&self) -> UnboundedReceiver<(RunId, Signal)> {
        self.inner.signals()
    }

    fn recover(&self) -> Later<Vec<RunId>> {
        self.inner.recover()
    }

    fn retain(&self, policy: Retention, now: Millis) -> Later<Swept> {
        self.inner.retain(policy, now)
    }

    fn flush(&self) -> Later<()> {
        self.inner.flush()
    }

    fn close(&self) -> Later<()> {
        self.inner.close()
    }
}
