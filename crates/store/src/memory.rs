//! An in-memory store: fast, bounded by retention, lost when the process ends. Runs are kept as values; nothing is
//! serialized. Not here: storage that outlives the process (`interlingua-store-sqlite`).

mod documents;
mod find;
mod index;
mod retention;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::future::ready;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use interlingua_core::call::RunInfo;
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use interlingua_core::run::Record;
use tokio::sync::mpsc::UnboundedReceiver;

use self::documents::Documents;
use self::index::RunIndex;
use super::local::{Leases, Signals, TurnQueues, lock};
use super::{
    Claim, Conflict, Coordination, Document, DocumentEntry, DocumentStore, DocumentWrite, Expect, Journal, LoadCost,
    Query, Retention, RetentionReport, RunPage, RunStore, Signal, Store, StoreError, StoreFuture, StoredRun, TurnQueue,
    Version,
};

/// A store that keeps everything in memory.
#[derive(Default)]
pub struct Memory {
    runs: Mutex<Runs>,
    documents: Mutex<Documents>,
    leases: Leases,
    signals: Signals,
    turns: TurnQueues,
    closed: AtomicBool,
}

#[derive(Default)]
struct Runs {
    by_id: HashMap<RunId, Run>,
    /// By owner and session: acceptance time and id of each run.
    sessions: HashMap<(String, String), BTreeSet<(Millis, RunId)>>,
    /// Runs that have not ended.
    active: HashSet<RunId>,
    all: RunIndex,
    /// Runs of routes that have retention rules of their own.
    routes: HashMap<Arc<str>, RunIndex>,
    /// Total size of ended runs in bytes.
    ended_bytes: u64,
}

/// A run with its immutable attributes, so that a query can reject most runs without taking their locks.
#[derive(Clone)]
struct Run {
    agent: Arc<str>,
    owner: Arc<str>,
    session: Arc<str>,
    protocol: Arc<str>,
    created_at: Millis,
    /// The route whose retention rules apply, and whether these only hide the run.
    retention_owner: Option<(Arc<str>, bool)>,
    data: RunData,
}

#[derive(Clone)]
enum RunData {
    /// May still change: read through its journal.
    Active(Arc<dyn Journal>),
    /// Has ended: a copy without the engine's objects around it.
    Ended(Arc<StoredRun>),
}

impl RunData {
    fn with<T>(&self, read: impl Fn(&Record, &RunInfo) -> T) -> T {
        match self {
            Self::Ended(stored) => read(&stored.record, &stored.info),
            Self::Active(journal) => inspect(&**journal, read),
        }
    }

    fn with_info<T>(&self, read: impl Fn(&RunInfo) -> T) -> T {
        match self {
            Self::Ended(stored) => read(&stored.info),
            Self::Active(journal) => inspect(&**journal, |_, info| read(info)),
        }
    }

    /// True if queries must not return it.
    fn is_hidden(&self) -> bool {
        matches!(self, Self::Ended(stored) if !stored.info.stored)
    }
}

impl Run {
    /// Its place in the order of ended runs. `None`: it has not ended.
    fn ended_at(&self, id: RunId) -> Option<(Millis, RunId)> {
        match &self.data {
            RunData::Ended(stored) => Some((stored.info.changed_at, id)),
            RunData::Active(_) => None,
        }
    }

    /// True if it ended before its route's expiry time. A run that has just ended may still be held as active; that
    /// makes no difference, because its time to live is not over yet.
    fn is_expired(&self, expired_before: &[(String, Millis)]) -> bool {
        let (Some((route, _)), RunData::Ended(stored)) = (&self.retention_owner, &self.data) else { return false };
        expired_before.iter().any(|(name, before)| **name == **route && stored.info.changed_at < *before)
    }
}

/// Reads a value from a run under its lock.
fn inspect<T>(journal: &dyn Journal, read: impl Fn(&Record, &RunInfo) -> T) -> T {
    let mut value = None;
    journal.with(&mut |record, info| value = Some(read(record, info)));
    value.expect("`Journal::with` calls its argument")
}

impl Runs {
    fn put(&mut self, id: RunId, run: Run) {
        let session = (run.owner.to_string(), run.session.to_string());
        self.sessions.entry(session).or_default().insert((run.created_at, id));

        if let Some((route, _)) = &run.retention_owner {
            self.routes.entry(Arc::clone(route)).or_default().add(&run.owner);
        }
        self.all.add(&run.owner);

        self.active.insert(id);
        self.by_id.insert(id, run);
    }

    /// Replaces the journal of a run that has ended with a copy.
    fn end(&mut self, id: RunId, stored: Arc<StoredRun>) {
        let Some(run) = self.by_id.get_mut(&id) else { return };
        let now = (stored.info.changed_at, id);
        self.ended_bytes += stored.record.size() as u64;

        let before = match std::mem::replace(&mut run.data, RunData::Ended(stored)) {
            RunData::Ended(before) => {
                self.ended_bytes -= before.record.size() as u64;
                Some((before.info.changed_at, id))
            }
            RunData::Active(_) => None,
        };

        let of_route = run.retention_owner.as_ref().and_then(|(route, _)| self.routes.get_mut(route));
        for index in of_route.into_iter().chain([&mut self.all]) {
            index.end(&run.owner, before, now);
        }
        self.active.remove(&id);
    }

    /// Removes a run from its route's index.
    fn detach(&mut self, id: RunId, run: &Run) {
        let Some((route, _)) = &run.retention_owner else { return };
        let Some(index) = self.routes.get_mut(route) else { return };
        index.remove(&run.owner, run.ended_at(id));
        if index.is_empty() {
            self.routes.remove(route);
        }
    }

    /// Hides a run: queries no longer return it and its route no longer counts it, but it can be loaded by id.
    fn hide(&mut self, id: RunId) {
        let Some(mut run) = self.by_id.remove(&id) else { return };
        self.detach(id, &run);
        run.retention_owner = None;
        if let RunData::Ended(stored) = &mut run.data {
            let info = &mut Arc::make_mut(stored).info;
            (info.stored, info.retention) = (false, None);
        }
        self.by_id.insert(id, run);
    }

    fn delete(&mut self, id: RunId) -> bool {
        let Some(run) = self.by_id.remove(&id) else { return false };
        self.detach(id, &run);
        self.all.remove(&run.owner, run.ended_at(id));
        self.active.remove(&id);
        if let RunData::Ended(stored) = &run.data {
            self.ended_bytes -= stored.record.size() as u64;
        }

        let session = (run.owner.to_string(), run.session.to_string());
        if let Some(runs) = self.sessions.get_mut(&session) {
            runs.remove(&(run.created_at, id));
            if runs.is_empty() {
                self.sessions.remove(&session);
            }
        }
        true
    }
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn immediate<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> T) -> StoreFuture<T> {
        let closed = self.closed.load(Ordering::Acquire);
        Box::pin(ready(if closed { Err(StoreError::Closed) } else { Ok(work(self)) }))
    }
}

impl RunStore for Memory {
    fn open(&self, run: &Arc<dyn Journal>, _claim: Claim) -> StoreFuture<()> {
        self.immediate(|store| {
            let entry = inspect(&**run, |record, info| Run {
                agent: record.run().agent.as_str().into(),
                owner: info.owner.as_str().into(),
                session: record.run().session_id.as_str().into(),
                protocol: info.protocol.as_str().into(),
                created_at: record.run().created_at,
                retention_owner: info.retention.as_ref().map(|owner| (owner.route.as_str().into(), owner.remembered)),
                data: RunData::Active(Arc::clone(run)),
            });
            let mut runs = lock(&store.runs);
            runs.delete(run.id());
            runs.put(run.id(), entry);
            drop(runs);
            // A crash loses the whole store, so nothing is gained by waiting.
            run.committed(u64::MAX);
        })
    }

    fn touch(&self, _run: &Arc<dyn Journal>) {}

    fn settle(&self, run: &Arc<dyn Journal>) -> StoreFuture<()> {
        self.immediate(|store| {
            let ended = inspect(&**run, |record, info| {
                record.is_finished().then(|| Arc::new(StoredRun { record: record.clone(), info: info.clone() }))
            });
            if let Some(stored) = ended {
                lock(&store.runs).end(run.id(), stored);
            }
        })
    }

    fn load(&self, id: RunId) -> StoreFuture<Option<Arc<StoredRun>>> {
        self.immediate(|store| {
            let data = lock(&store.runs).by_id.get(&id).map(|run| run.data.clone())?;
            Some(match data {
                RunData::Ended(stored) => stored,
                RunData::Active(journal) => inspect(&*journal, |record, info| {
                    Arc::new(StoredRun { record: record.clone(), info: info.clone() })
                }),
            })
        })
    }

    fn load_cost(&self, id: RunId) -> StoreFuture<Option<LoadCost>> {
        self.immediate(|store| {
            let data = lock(&store.runs).by_id.get(&id).map(|run| run.data.clone())?;
            Some(match data {
                RunData::Ended(_) => LoadCost { bytes: 0, fingerprint: None },
                RunData::Active(journal) => {
                    LoadCost { bytes: inspect(&*journal, |record, _| record.size() as u64), fingerprint: None }
                }
            })
        })
    }

    fn owner_of(&self, id: RunId) -> StoreFuture<Option<String>> {
        self.immediate(|store| lock(&store.runs).by_id.get(&id).map(|run| run.owner.to_string()))
    }

    fn heads(&self, ids: Vec<RunId>) -> StoreFuture<Vec<StoredRun>> {
        self.immediate(|store| {
            let data: Vec<RunData> = {
                let runs = lock(&store.runs);
                ids.iter().filter_map(|id| Some(runs.by_id.get(id)?.data.clone())).collect()
            };
            let head = |data: &RunData| match data {
                RunData::Ended(stored) => StoredRun::head(&stored.record, &stored.info),
                RunData::Active(journal) => inspect(&**journal, StoredRun::head),
            };
            data.iter().map(head).collect()
        })
    }

    fn find(&self, query: Query) -> StoreFuture<RunPage> {
        self.immediate(|store| find::page(&store.runs, &query))
    }

    fn latest(&self, agents: Vec<String>, owner: String, session: String) -> StoreFuture<Option<RunId>> {
        self.immediate(|store| {
            let runs = lock(&store.runs);
            let of_session = runs.sessions.get(&(owner, session))?;

            let wanted = |id: &RunId| {
                let run = runs.by_id.get(id).filter(|run| !run.data.is_hidden());
                run.is_some_and(|run| agents.is_empty() || agents.iter().any(|agent| **agent == *run.agent))
            };
            of_session.iter().rev().map(|(_, id)| *id).find(wanted)
        })
    }

    fn remove(&self, id: RunId) -> StoreFuture<bool> {
        self.immediate(|store| lock(&store.runs).delete(id))
    }
}

impl DocumentStore for Memory {
    fn get(&self, collection: &str, key: &str) -> StoreFuture<Option<Document>> {
        let path = (collection.to_owned(), key.to_owned());
        self.immediate(|store| lock(&store.documents).by_key.get(&path).map(|(document, _)| document.clone()))
    }

    fn put(
        &self,
        collection: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
        now: Millis,
    ) -> StoreFuture<Result<Version, Conflict>> {
        let path = (collection.to_owned(), key.to_owned());
        self.immediate(|store| {
            let mut documents = lock(&store.documents);
            if !documents.matches(&path, expect) {
                return Err(Conflict);
            }
            Ok(documents.put(path, value, now))
        })
    }

    fn write(&self, writes: Vec<DocumentWrite>, now: Millis) -> StoreFuture<Result<Version, Conflict>> {
        self.immediate(|store| {
            let mut documents = lock(&store.documents);
            let path = |write: &DocumentWrite| (write.collection.to_owned(), write.key.clone());
            if !writes.iter().all(|write| documents.matches(&path(write), write.expect)) {
                return Err(Conflict);
            }

            for write in writes {
                let path = path(&write);
                match write.value {
                    Some(value) => drop(documents.put(path, value, now)),
                    None => drop(documents.by_key.remove(&path)),
                }
            }
            Ok(Version(documents.version))
        })
    }

    fn delete(&self, collection: &str, key: &str, expect: Expect) -> StoreFuture<Result<bool, Conflict>> {
        let path = (collection.to_owned(), key.to_owned());
        self.immediate(|store| {
            let mut documents = lock(&store.documents);
            if !documents.matches(&path, expect) {
                return Err(Conflict);
            }
            Ok(documents.by_key.remove(&path).is_some())
        })
    }

    fn list(
        &self,
        collection: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> StoreFuture<Vec<DocumentEntry>> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded((collection.to_owned(), after.to_owned())),
            _ => Bound::Included((collection.to_owned(), prefix.to_owned())),
        };
        self.immediate(|store| {
            let documents = lock(&store.documents);
            let range = documents.by_key.range((from, Bound::Unbounded));
            range
                .take_while(|((name, key), _)| name == collection && key.starts_with(prefix))
                .take(limit)
                .map(|((_, key), (document, _))| DocumentEntry { key: key.clone(), document: document.clone() })
                .collect()
        })
    }

    fn count(&self, collection: &str, principal: &str) -> StoreFuture<u64> {
        self.immediate(|store| lock(&store.documents).count(collection, principal))
    }
}

impl Coordination for Memory {
    fn lease(&self, key: &str, holder: &str, ttl: Duration) -> StoreFuture<bool> {
        self.immediate(|store| store.leases.acquire(key, holder, ttl))
    }

    fn release(&self, key: &str, holder: &str) -> StoreFuture<()> {
        self.immediate(|store| store.leases.release(key, holder))
    }

    fn signal(&self, id: RunId, signal: Signal) -> StoreFuture<()> {
        self.immediate(|store| store.signals.send(id, signal))
    }

    fn signals(&self) -> UnboundedReceiver<(RunId, Signal)> {
        self.signals.listen()
    }

    fn recover(&self) -> StoreFuture<Vec<RunId>> {
        // A crash of the process loses all runs, so there is nothing to recover.
        self.immediate(|_| Vec::new())
    }

    fn turns(&self) -> &dyn TurnQueue {
        &self.turns
    }
}

impl Store for Memory {
    fn retain(&self, policy: Retention, now: Millis) -> StoreFuture<RetentionReport> {
        self.immediate(|store| retention::retain(store, &policy, now))
    }

    fn flush(&self) -> StoreFuture<()> {
        self.immediate(|_| ())
    }

    fn close(&self) -> StoreFuture<()> {
        let done = self.immediate(|_| ());
        self.closed.store(true, Ordering::Release);
        self.signals.close();
        self.turns.close();
        // Releases the journals, which hold references to engine objects.
        *lock(&self.runs) = Runs::default();
        done
    }
}
