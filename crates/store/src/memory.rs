//! An in-memory store: fast, bounded by retention, lost when the process ends. Runs are kept as values; nothing is
//! serialized. Not here: storage that outlives the process (`interlingua-store-sqlite`).

mod documents;
mod find;
mod own_bounds;

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

use self::documents::{BATCH, Documents};
use super::local::{Leases, Signals, lock};
use super::{
    Claim, Conflict, Document, DocumentEntry, DocumentWrite, Expect, Journal, LoadCost, Query, Retention,
    RetentionReport, RunPage, Signal, Store, StoreError, StoreFuture, StoredRun, Version, before, fair,
};

/// A store that keeps everything in memory.
#[derive(Default)]
pub struct Memory {
    runs: Mutex<Runs>,
    documents: Mutex<Documents>,
    leases: Leases,
    signals: Signals,
    closed: AtomicBool,
}

#[derive(Default)]
struct Runs {
    by_id: HashMap<RunId, Run>,
    /// By owner and session: acceptance time and id of each run.
    sessions: HashMap<(String, String), BTreeSet<(Millis, RunId)>>,
    /// Ended runs by the time of their last change.
    ended: BTreeSet<(Millis, RunId)>,
    /// Runs that have not ended.
    active: HashSet<RunId>,
    /// Runs of routes that have retention rules of their own.
    routes: HashMap<Arc<str>, RouteRuns>,
    /// Number of runs per owner.
    owners: HashMap<Arc<str>, u64>,
    /// Total size of ended runs in bytes.
    ended_bytes: u64,
}

#[derive(Default)]
struct RouteRuns {
    /// Number of runs per owner.
    owners: HashMap<Arc<str>, u64>,
    ended: BTreeSet<(Millis, RunId)>,
}

/// Decrements an owner's count; removes the owner at 0.
fn decrement(owners: &mut HashMap<Arc<str>, u64>, owner: &Arc<str>) {
    if let Some(count) = owners.get_mut(owner) {
        *count -= 1;
        if *count == 0 {
            owners.remove(owner);
        }
    }
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
            let route_runs = self.routes.entry(Arc::clone(route)).or_default();
            *route_runs.owners.entry(Arc::clone(&run.owner)).or_default() += 1;
        }
        *self.owners.entry(Arc::clone(&run.owner)).or_default() += 1;

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

        let route_runs = run.retention_owner.as_ref().and_then(|(route, _)| self.routes.get_mut(route));
        for ended in route_runs.map(|route_runs| &mut route_runs.ended).into_iter().chain([&mut self.ended]) {
            if let Some(before) = &before {
                ended.remove(before);
            }
            ended.insert(now);
        }
        self.active.remove(&id);
    }

    /// Removes a run from its route's index.
    fn detach(&mut self, id: RunId, run: &Run) {
        let Some((route, _)) = &run.retention_owner else { return };
        let Some(route_runs) = self.routes.get_mut(route) else { return };
        decrement(&mut route_runs.owners, &run.owner);
        if let RunData::Ended(stored) = &run.data {
            route_runs.ended.remove(&(stored.info.changed_at, id));
        }
        if route_runs.owners.is_empty() {
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

    /// Ended runs of a route whose time to live is over, oldest first. No route: of all runs.
    fn expired(&self, route: Option<&str>, before: Millis) -> Vec<RunId> {
        let ended = match route {
            Some(route) => match self.routes.get(route) {
                Some(route_runs) => &route_runs.ended,
                None => return Vec::new(),
            },
            None => &self.ended,
        };
        let expired = ended.iter().take_while(|(changed_at, _)| *changed_at < before);
        expired.map(|(_, id)| *id).take(BATCH).collect()
    }

    /// Runs above the maximum. For a route the maximum holds per owner; otherwise in total, and the largest owners lose
    /// runs first.
    fn surplus(&self, route: Option<&str>, max: u64, limit: usize) -> Vec<RunId> {
        let Some(route) = route else {
            let over = (self.by_id.len() as u64).saturating_sub(max);
            if over == 0 {
                return Vec::new();
            }

            let mut shares: Vec<(String, u64)> =
                self.owners.iter().map(|(owner, count)| (owner.to_string(), *count)).collect();
            shares.sort_unstable();
            let losses = fair::losses(&shares, over);
            let losses = shares.into_iter().zip(losses).map(|((owner, _), loss)| (owner, loss)).collect();
            return self.oldest(&self.ended, losses, over, limit, |_| 1);
        };
        let Some(route_runs) = self.routes.get(route) else { return Vec::new() };

        let over = route_runs.owners.iter().filter(|(_, count)| **count > max);
        let losses: HashMap<String, u64> = over.map(|(owner, count)| (owner.to_string(), count - max)).collect();
        if losses.is_empty() { Vec::new() } else { self.oldest(&route_runs.ended, losses, 0, limit, |_| 1) }
    }

    /// The runs that ended first: of each owner until its loss is covered, then of any owner until the sum is `over`.
    fn oldest(
        &self,
        ended: &BTreeSet<(Millis, RunId)>,
        mut losses: HashMap<String, u64>,
        over: u64,
        limit: usize,
        weight_of: impl Fn(&StoredRun) -> u64,
    ) -> Vec<RunId> {
        let (mut taken, mut rest, mut freed) = (Vec::new(), Vec::new(), 0);
        for (_, id) in ended {
            let Some(run) = self.by_id.get(id) else { continue };
            let RunData::Ended(stored) = &run.data else { continue };
            let weight = weight_of(stored);
            match losses.get_mut(&*run.owner).filter(|loss| **loss > 0) {
                Some(loss) if taken.len() < limit => {
                    *loss = loss.saturating_sub(weight);
                    freed += weight;
                    taken.push(*id);
                }
                _ => rest.push((*id, weight)),
            }
        }

        for (id, weight) in rest {
            if freed >= over || taken.len() >= limit {
                break;
            }
            freed += weight;
            taken.push(id);
        }
        taken
    }

    /// Deletes or hides runs and records them in the report, with their owners in `owners`.
    fn drop_runs(
        &mut self,
        route: Option<&str>,
        ids: &[RunId],
        report: &mut RetentionReport,
        owners: &mut Vec<(RunId, Arc<str>)>,
    ) {
        for id in ids {
            let Some(run) = self.by_id.get(id) else { continue };
            owners.push((*id, Arc::clone(&run.owner)));
            if route.is_some() && run.retention_owner.as_ref().is_some_and(|(_, hide_only)| *hide_only) {
                self.hide(*id);
                report.hidden.push(*id);
            } else {
                self.delete(*id);
                report.runs.push(*id);
            }
        }
    }

    fn delete(&mut self, id: RunId) -> bool {
        let Some(run) = self.by_id.remove(&id) else { return false };
        self.detach(id, &run);
        decrement(&mut self.owners, &run.owner);
        self.active.remove(&id);
        if let RunData::Ended(stored) = &run.data {
            self.ended_bytes -= stored.record.size() as u64;
            self.ended.remove(&(stored.info.changed_at, id));
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

impl Store for Memory {
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

    fn retain(&self, policy: Retention, now: Millis) -> StoreFuture<RetentionReport> {
        self.immediate(|store| {
            let mut report = RetentionReport::default();
            let mut owners = Vec::new();
            let age = before(now, policy.age);
            let active: Vec<(RunId, RunData)> = {
                let mut runs = lock(&store.runs);
                let routes = policy.routes.iter();
                let rules =
                    routes.map(|(route, rules)| (Some(route.as_str()), before(now, rules.ended_ttl), rules.max_runs));
                for (route, ended, max) in rules.chain([(None, age, policy.runs)]) {
                    let expired = runs.expired(route, ended);
                    runs.drop_runs(route, &expired, &mut report, &mut owners);
                    let own = runs.own_surplus(route, &policy.bounds, BATCH - expired.len());
                    runs.drop_runs(route, &own, &mut report, &mut owners);
                    let limit = BATCH - expired.len() - own.len();
                    let surplus = runs.surplus(route, max, limit);
                    report.more |= surplus.len() >= limit;
                    runs.drop_runs(route, &surplus, &mut report, &mut owners);
                }

                runs.active.iter().filter_map(|id| Some((*id, runs.by_id.get(id)?.data.clone()))).collect()
            };

            // Read after the lock is released: states are behind the runs' own locks.
            let stale = active.into_iter().filter(|(_, data)| data.with_info(|info| policy.is_stale(info, now)));
            report.stale = stale.map(|(id, _)| id).take(BATCH).collect();

            let mut documents = lock(&store.documents);
            for (id, owner) in owners {
                documents.delete_attached(&owner, id, &policy.attached);
            }

            for collection in &policy.collections {
                let own = documents.own_surplus(collection, &policy.bounds, BATCH);
                report.more |= own.len() >= BATCH;
                documents.delete_all(own, &policy, &mut report);
                let surplus = documents.surplus(collection, policy.documents);
                report.more |= surplus.len() >= BATCH;
                documents.delete_all(surplus, &policy, &mut report);
            }

            let mut owners = Vec::new();
            lock(&store.runs).drop_own_bytes(&mut documents, &policy, BATCH, &mut report, &mut owners);
            let documents_bytes: u64 = documents.by_key.values().map(|(document, _)| document.value.len() as u64).sum();
            let mut runs = lock(&store.runs);
            let over = (runs.ended_bytes + documents_bytes).saturating_sub(policy.bytes);
            if over > 0 {
                let shares = runs.byte_shares(&documents);
                let losses = fair::losses(&shares, over);
                let losses: HashMap<String, u64> =
                    shares.into_iter().zip(losses).map(|((owner, _), loss)| (owner, loss)).collect();

                let before = runs.ended_bytes;
                let heavy = runs.oldest(&runs.ended, losses, 0, BATCH, |stored| stored.record.size() as u64);
                runs.drop_runs(None, &heavy, &mut report, &mut owners);

                let left = over.saturating_sub(before - runs.ended_bytes);
                let freed = documents.delete_bytes(left, None, &policy, &mut report);

                let left = left.saturating_sub(freed);
                let rest = runs.oldest(&runs.ended, HashMap::new(), left, BATCH, |stored| stored.record.size() as u64);
                runs.drop_runs(None, &rest, &mut report, &mut owners);
                report.more |= heavy.len() + rest.len() >= BATCH;
            }
            drop(runs);
            for (id, owner) in owners {
                documents.delete_attached(&owner, id, &policy.attached);
            }

            let idle = documents.by_key.iter().filter(|((collection, _), (_, put_at))| {
                *put_at < age && policy.collections.iter().any(|name| name == collection)
            });
            let idle: Vec<_> = idle.map(|(path, _)| path.clone()).take(BATCH).collect();

            report.more |= idle.len() == BATCH;
            documents.delete_all(idle, &policy, &mut report);
            report
        })
    }

    fn flush(&self) -> StoreFuture<()> {
        self.immediate(|_| ())
    }

    fn close(&self) -> StoreFuture<()> {
        let done = self.immediate(|_| ());
        self.closed.store(true, Ordering::Release);
        self.signals.close();
        // Releases the journals, which hold references to engine objects.
        *lock(&self.runs) = Runs::default();
        done
    }
}
