//! The methods of a replica's store. Not here: connections (`connection`), and the rights to write (`hub`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use interlingua::store::{
    Claim, Conflict, Coordination, Document, DocumentEntry, DocumentStore, DocumentWrite, Expect, Health, Journal,
    LoadCost, Query, ReplicaStatus, Retention, RetentionReport, RunPage, RunStore, RunUpdate, Signal, Store,
    StoreError, StoreFuture, StoreSizes, StoredRun, Ticket, TurnQueue, Version,
};
use interlingua_core::RunId;
use interlingua_core::event::Millis;
use tokio::sync::mpsc::UnboundedReceiver;

use super::connection::Core;
use super::node::{Kind, Link, done, in_background, unavailable};
use super::replica::Replica;
use super::{followed, lock};

impl Replica {
    /// A call that only reads the inner store.
    fn reads<T: Send + 'static>(
        &self,
        name: &'static str,
        read: impl FnOnce(&dyn Store) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        self.core.call(name, Kind::Read, move |core, _| read(&*core.hub.inner))
    }

    /// A call that writes the inner store, no matter who holds what.
    fn writes<T: Send + 'static>(
        &self,
        name: &'static str,
        write: impl FnOnce(&dyn Store) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        self.core.call(name, Kind::Write, move |core, _| write(&*core.hub.inner))
    }
}

impl RunStore for Replica {
    fn open(&self, run: &Arc<dyn Journal>, claim: Claim) -> StoreFuture<()> {
        let run = Arc::clone(run);
        self.core.call("open", Kind::Write, move |core, member| {
            let hold = match core.hub.claim(member, run.id(), claim) {
                Ok(hold) => hold,
                Err(error) => return done(Err(error)),
            };
            let journal = core.guard(&run, hold);
            core.node.keep(&journal);
            core.hub.inner.open(&(journal as Arc<dyn Journal>), claim)
        })
    }

    fn touch(&self, run: &Arc<dyn Journal>) {
        self.core.touch(run);
    }

    fn settle(&self, run: &Arc<dyn Journal>) -> StoreFuture<()> {
        let run = Arc::clone(run);
        if self.core.node.link() == Link::Cut
            && let Some(journal) = self.core.node.journal(&run)
        {
            journal.is_owed.store(true, Ordering::SeqCst);
        }

        self.core.call("settle", Kind::Write, move |core, member| match core.node.journal(&run) {
            Some(journal) if journal.is_lost() => done(Err(StoreError::Fenced)),
            Some(journal) => core.settle_kept(member, journal),
            None => {
                core.free_unknown(&run);
                // Its events may already be published when the caller knows.
                in_background(async { Ok(()) })
            }
        })
    }

    fn load(&self, id: RunId) -> StoreFuture<Option<Arc<StoredRun>>> {
        self.reads("load", move |inner| inner.load(id))
    }

    fn load_cost(&self, id: RunId) -> StoreFuture<Option<LoadCost>> {
        self.reads("load_cost", move |inner| inner.load_cost(id))
    }

    fn owner_of(&self, id: RunId) -> StoreFuture<Option<String>> {
        self.reads("owner_of", move |inner| inner.owner_of(id))
    }

    fn heads(&self, ids: Vec<RunId>) -> StoreFuture<Vec<StoredRun>> {
        self.reads("heads", move |inner| inner.heads(ids))
    }

    fn find(&self, query: Query) -> StoreFuture<RunPage> {
        self.reads("find", move |inner| inner.find(query))
    }

    fn latest(&self, agents: Vec<String>, owner: String, session: String) -> StoreFuture<Option<RunId>> {
        self.reads("latest", move |inner| inner.latest(agents, owner, session))
    }

    fn remove(&self, id: RunId) -> StoreFuture<bool> {
        self.core.call("remove", Kind::Write, move |core, member| {
            if let Err(error) = core.hub.forget(member, id) {
                return done(Err(error));
            }
            core.node.drop_run(id);
            let (removed, hub) = (core.hub.inner.remove(id), Arc::clone(&core.hub));
            in_background(async move {
                let removed = removed.await;
                hub.note_change(id);
                removed
            })
        })
    }
}

impl DocumentStore for Replica {
    fn get(&self, collection: &str, key: &str) -> StoreFuture<Option<Document>> {
        let (collection, key) = (collection.to_owned(), key.to_owned());
        self.reads("get", move |inner| inner.get(&collection, &key))
    }

    fn put(
        &self,
        collection: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
        now: Millis,
    ) -> StoreFuture<Result<Version, Conflict>> {
        let (collection, key) = (collection.to_owned(), key.to_owned());
        self.writes("put", move |inner| inner.put(&collection, &key, value, expect, now))
    }

    fn write(&self, writes: Vec<DocumentWrite>, now: Millis) -> StoreFuture<Result<Version, Conflict>> {
        self.writes("write", move |inner| inner.write(writes, now))
    }

    fn delete(&self, collection: &str, key: &str, expect: Expect) -> StoreFuture<Result<bool, Conflict>> {
        let (collection, key) = (collection.to_owned(), key.to_owned());
        self.writes("delete", move |inner| inner.delete(&collection, &key, expect))
    }

    fn list(
        &self,
        collection: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> StoreFuture<Vec<DocumentEntry>> {
        let (collection, prefix, after) = (collection.to_owned(), prefix.to_owned(), after.map(str::to_owned));
        self.reads("list", move |inner| inner.list(&collection, &prefix, after.as_deref(), limit))
    }

    fn count(&self, collection: &str, principal: &str) -> StoreFuture<u64> {
        let (collection, principal) = (collection.to_owned(), principal.to_owned());
        self.reads("count", move |inner| inner.count(&collection, &principal))
    }
}

impl Coordination for Replica {
    fn lease(&self, key: &str, holder: &str, ttl: Duration) -> StoreFuture<bool> {
        let (key, holder) = (key.to_owned(), holder.to_owned());
        self.core.call_beside(Kind::Write, move |core, member| done(Ok(core.hub.lease_key(member, &key, &holder, ttl))))
    }

    fn release(&self, key: &str, holder: &str) -> StoreFuture<()> {
        let (key, holder) = (key.to_owned(), holder.to_owned());
        self.core.call("release", Kind::Write, move |core, _| {
            core.hub.release_key(&key, &holder);
            done(Ok(()))
        })
    }

    fn signal(&self, id: RunId, signal: Signal) -> StoreFuture<()> {
        self.core.call("signal", Kind::Write, move |core, _| {
            if let Some(holder) = core.hub.holder(id) {
                holder.post(id, signal);
            }
            done(Ok(()))
        })
    }

    fn signals(&self) -> UnboundedReceiver<(RunId, Signal)> {
        self.core.node.listen()
    }

    fn recover(&self) -> StoreFuture<Vec<RunId>> {
        self.core.call_beside(Kind::Read, |core, member| {
            let core = core.clone();
            in_background(async move {
                let recovered = core.hub.recover(member).await?;
                if let Err(error) = core.node.answered().await {
                    core.hub.take_back(member, &recovered);
                    return Err(error);
                }
                Ok(recovered)
            })
        })
    }

    fn turns(&self) -> &dyn TurnQueue {
        self
    }

    fn replica(&self) -> Option<ReplicaStatus> {
        Some(ReplicaStatus { replicas: self.core.hub.replicas(), ..ReplicaStatus::default() })
    }

    fn write_timeout(&self) -> Option<Duration> {
        None
    }

    fn runs_move(&self) -> bool {
        true
    }

    fn let_go(&self, run: &Arc<dyn Journal>) {
        drop(self.settle(run));
    }

    fn follow(&self, id: RunId, from: u64) -> Option<BoxStream<'static, Result<RunUpdate, StoreError>>> {
        Some(followed::follow(self.core.clone(), id, from))
    }

    fn replaces(&self, known: Option<Version>) -> Expect {
        known.map_or(Expect::Absent, Expect::Version)
    }
}

impl Store for Replica {
    fn retain(&self, policy: Retention, now: Millis) -> StoreFuture<RetentionReport> {
        self.core.call_beside(Kind::Write, move |core, _| {
            let (retained, hub) = (core.hub.inner.retain(policy, now), Arc::clone(&core.hub));
            in_background(async move {
                let report = retained.await?;
                hub.forget_deleted(&report.runs);
                Ok(report)
            })
        })
    }

    fn health(&self) -> Health {
        match self.core.node.link() {
            Link::Cut => Health::Failing { since: Instant::now(), error: unavailable() },
            _ => self.core.hub.inner.health(),
        }
    }

    fn sizes(&self) -> StoreSizes {
        self.core.hub.inner.sizes()
    }

    fn flush(&self) -> StoreFuture<()> {
        self.writes("flush", |inner| inner.flush())
    }

    fn close(&self) -> StoreFuture<()> {
        if self.core.node.link() == Link::Killed {
            return done(Ok(()));
        }

        let core = self.core.clone();
        let member = core.node.member();
        if !core.node.close() {
            return done(Err(StoreError::Closed));
        }
        in_background(async move {
            // Its reported changes are written; the others still use the store.
            core.hub.inner.flush().await?;
            core.node.lose_all();
            core.hub.take_over(member).await
        })
    }
}

impl TurnQueue for Replica {
    fn queue_turn(&self, session: &str, continues: Option<RunId>, most: usize) -> StoreFuture<Option<Ticket>> {
        let session = session.to_owned();
        let (place, taken) = (Arc::new(Mutex::new(None)), self.core.clone());
        let queued = Arc::clone(&place);
        let answer = self.core.call("queue_turn", Kind::Write, move |core, member| {
            let ticket = core.hub.lines(member, |lines| lines.join(&session, member, continues, most));
            *lock(&queued) = ticket.as_ref().ok().cloned().flatten();
            done(ticket)
        });
        Box::pin(async move {
            let answer = answer.await;
            // No one would ever give up a place that no one knows of.
            if let (Err(_), Some(ticket)) = (&answer, lock(&place).take()) {
                let _ = taken.hub.lines(taken.node.member(), |lines| lines.leave(&ticket));
            }
            answer
        })
    }

    fn is_continued(&self, run: RunId) -> StoreFuture<bool> {
        self.core.call("is_continued", Kind::Read, move |core, _| {
            done(Ok(core.hub.read_lines(|lines| lines.is_continued(run))))
        })
    }

    fn wait_for_turn(&self, ticket: &Ticket) -> StoreFuture<()> {
        let ticket = ticket.clone();
        self.core.call("wait_for_turn", Kind::Read, move |core, _| {
            let Core { hub, .. } = core.clone();
            Box::pin(async move {
                let mut turns = hub.turns.subscribe();
                loop {
                    match hub.read_lines(|lines| lines.before(&ticket)) {
                        None => return Err(StoreError::Fenced),
                        Some(0) => return Ok(()),
                        Some(_) => turns.changed().await.map_err(|_| StoreError::Closed)?,
                    }
                }
            })
        })
    }

    fn leave_turn(&self, ticket: Ticket) -> StoreFuture<()> {
        let left = ticket.clone();
        let leaving = self.core.call("leave_turn", Kind::Write, move |core, member| {
            // Everything that was called before is in the inner store's queue before this.
            let (written, hub) = (core.hub.inner.flush(), Arc::clone(&core.hub));
            in_background(async move {
                written.await?;
                hub.lines(member, |lines| lines.leave(&left))
            })
        });
        if self.core.node.link() == Link::Cut {
            self.core.node.leave_later(ticket);
        }
        leaving
    }
}
