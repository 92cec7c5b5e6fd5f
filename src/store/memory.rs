//! A store in memory: fast, bounded by retention, gone with the process. Runs are kept as they are, nothing is written
//! out. Not here: anything that outlives the process ([`super::Sqlite`]).

mod documents;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::future::ready;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use interlingua_core::call::{Cursor, RunInfo, RunState};
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use interlingua_core::run::Record;
use tokio::sync::mpsc::UnboundedReceiver;

use self::documents::Documents;
use super::local::{Leases, Signals, lock};
use super::{
    Conflict, Document, Entry, Expect, Found, Journal, Later, Query, Retention, RunHead, Signal, Store, StoreError,
    Stored, Swept, Version, Weight, before, fair,
};

/// How many runs or documents of one kind one round of retention takes.
const BATCH: usize = 1000;

/// Keeps everything in memory.
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
    /// By owner and session: when accepted, and which.
    sessions: HashMap<(String, String), BTreeSet<(Millis, RunId)>>,
    /// Those that have ended, by their last change.
    ended: BTreeSet<(Millis, RunId)>,
    /// Those that have not.
    live: HashSet<RunId>,
    /// Those of routes that have rules of their own.
    routes: HashMap<Arc<str>, OfRoute>,
    /// How many each owner has.
    owners: HashMap<Arc<str>, u64>,
    /// How many bytes those have that have ended.
    bytes: u64,
}

/// The runs of a route.
#[derive(Default)]
struct OfRoute {
    /// How many each owner has.
    owners: HashMap<Arc<str>, u64>,
    ended: BTreeSet<(Millis, RunId)>,
}

/// One less.
fn count_down(owners: &mut HashMap<Arc<str>, u64>, owner: &Arc<str>) {
    if let Some(count) = owners.get_mut(owner) {
        *count -= 1;
        if *count == 0 {
            owners.remove(owner);
        }
    }
}

/// A run, and what never changes of it: so that most runs a query does not want are passed over without their lock.
#[derive(Clone)]
struct Run {
    agent: Arc<str>,
    owner: Arc<str>,
    session: Arc<str>,
    protocol: Arc<str>,
    created_at: Millis,
    /// Whose rules it is kept by, and whether it is only hidden by them.
    keeper: Option<(Arc<str>, bool)>,
    kept: Kept,
}

#[derive(Clone)]
enum Kept {
    /// It may grow: it is looked at where it lives.
    Active(Arc<dyn Journal>),
    /// It has ended: a copy without the engine's machinery around it.
    Ended(Arc<Stored>),
}

impl Kept {
    fn state(&self) -> (RunState, Millis, u64) {
        let state = |record: &Record, about: &RunInfo| (about.state, about.changed_at, record.size() as u64);
        match self {
            Self::Ended(stored) => state(&stored.record, &stored.about),
            Self::Active(journal) => look(&**journal, state),
        }
    }

    fn with_about<T>(&self, see: impl Fn(&RunInfo) -> T) -> T {
        match self {
            Self::Ended(stored) => see(&stored.about),
            Self::Active(journal) => look(&**journal, |_, about| see(about)),
        }
    }

    /// True if it shall not be found.
    fn is_hidden(&self) -> bool {
        matches!(self, Self::Ended(stored) if !stored.about.stored)
    }
}

impl Run {
    /// True if it has ended before its route counts runs as forgotten. One that has just ended is looked at as one that
    /// has not: its time is not over yet.
    fn is_gone(&self, gone: &[(String, Millis)]) -> bool {
        let (Some((route, _)), Kept::Ended(stored)) = (&self.keeper, &self.kept) else { return false };
        gone.iter().any(|(of, before)| **of == **route && stored.about.changed_at < *before)
    }
}

/// What a look at a run yields.
fn look<T>(journal: &dyn Journal, see: impl Fn(&Record, &RunInfo) -> T) -> T {
    let mut seen = None;
    journal.with(&mut |record, about| seen = Some(see(record, about)));
    seen.expect("a journal shows itself when it is asked to")
}

impl Runs {
    fn put(&mut self, id: RunId, run: Run) {
        let session = (run.owner.to_string(), run.session.to_string());
        self.sessions.entry(session).or_default().insert((run.created_at, id));
        if let Some((route, _)) = &run.keeper {
            let of_route = self.routes.entry(Arc::clone(route)).or_default();
            *of_route.owners.entry(Arc::clone(&run.owner)).or_default() += 1;
        }
        *self.owners.entry(Arc::clone(&run.owner)).or_default() += 1;
        self.live.insert(id);
        self.by_id.insert(id, run);
    }

    /// Keeps a copy of a run that has ended.
    fn end(&mut self, id: RunId, stored: Arc<Stored>) {
        let Some(run) = self.by_id.get_mut(&id) else { return };
        let now = (stored.about.changed_at, id);
        self.bytes += stored.record.size() as u64;
        let before = match std::mem::replace(&mut run.kept, Kept::Ended(stored)) {
            Kept::Ended(before) => {
                self.bytes -= before.record.size() as u64;
                Some((before.about.changed_at, id))
            }
            Kept::Active(_) => None,
        };
        let of_route = run.keeper.as_ref().and_then(|(route, _)| self.routes.get_mut(route));
        for ended in of_route.map(|of_route| &mut of_route.ended).into_iter().chain([&mut self.ended]) {
            if let Some(before) = &before {
                ended.remove(before);
            }
            ended.insert(now);
        }
        self.live.remove(&id);
    }

    /// Takes a run out of its route.
    fn release(&mut self, id: RunId, run: &Run) {
        let Some((route, _)) = &run.keeper else { return };
        let Some(of_route) = self.routes.get_mut(route) else { return };
        count_down(&mut of_route.owners, &run.owner);
        if let Kept::Ended(stored) = &run.kept {
            of_route.ended.remove(&(stored.about.changed_at, id));
        }
        if of_route.owners.is_empty() {
            self.routes.remove(route);
        }
    }

    /// Nobody finds it from now on, and its route does not count it; by its id it is still there.
    fn hide(&mut self, id: RunId) {
        let Some(mut run) = self.by_id.remove(&id) else { return };
        self.release(id, &run);
        run.keeper = None;
        if let Kept::Ended(stored) = &mut run.kept {
            let about = &mut Arc::make_mut(stored).about;
            (about.stored, about.retention) = (false, None);
        }
        self.by_id.insert(id, run);
    }

    /// Those of a route whose time is over, whichever ended first. No route: of all runs.
    fn expired(&self, route: Option<&str>, before: Millis) -> Vec<RunId> {
        let ended = match route {
            Some(route) => match self.routes.get(route) {
                Some(of_route) => &of_route.ended,
                None => return Vec::new(),
            },
            None => &self.ended,
        };
        let old = ended.iter().take_while(|(changed_at, _)| *changed_at < before);
        old.map(|(_, id)| *id).take(BATCH).collect()
    }

    /// Those that are too many: of each owner for a route, of all together else; then whoever has most loses first.
    fn crowded(&self, route: Option<&str>, most: u64, room: usize) -> Vec<RunId> {
        let Some(route) = route else {
            let over = (self.by_id.len() as u64).saturating_sub(most);
            if over == 0 {
                return Vec::new();
            }
            let mut shares: Vec<(String, u64)> =
                self.owners.iter().map(|(owner, count)| (owner.to_string(), *count)).collect();
            shares.sort_unstable();
            let losses = fair::losses(&shares, over);
            let losses = shares.into_iter().zip(losses).map(|((owner, _), loss)| (owner, loss)).collect();
            return self.oldest(&self.ended, losses, over, room, |_| 1);
        };
        let Some(of_route) = self.routes.get(route) else { return Vec::new() };
        let over = of_route.owners.iter().filter(|(_, count)| **count > most);
        let losses: HashMap<String, u64> = over.map(|(owner, count)| (owner.to_string(), count - most)).collect();
        if losses.is_empty() { Vec::new() } else { self.oldest(&of_route.ended, losses, 0, room, |_| 1) }
    }

    /// Of each owner those that ended first, until it has lost what it has to; then of anybody, until all are `over`.
    fn oldest(
        &self,
        ended: &BTreeSet<(Millis, RunId)>,
        mut losses: HashMap<String, u64>,
        over: u64,
        room: usize,
        weight: impl Fn(&Stored) -> u64,
    ) -> Vec<RunId> {
        let (mut taken, mut spared, mut lost) = (Vec::new(), Vec::new(), 0);
        for (_, id) in ended {
            let Some(run) = self.by_id.get(id) else { continue };
            let Kept::Ended(stored) = &run.kept else { continue };
            let weight = weight(stored);
            match losses.get_mut(&*run.owner).filter(|loss| **loss > 0) {
                Some(loss) if taken.len() < room => {
                    *loss = loss.saturating_sub(weight);
                    lost += weight;
                    taken.push(*id);
                }
                _ => spared.push((*id, weight)),
            }
        }
        for (id, weight) in spared {
            if lost >= over || taken.len() >= room {
                break;
            }
            lost += weight;
            taken.push(id);
        }
        taken
    }

    /// Forgets runs, or hides them, and says so.
    fn take(&mut self, route: Option<&str>, old: &[RunId], swept: &mut Swept, owners: &mut Vec<(RunId, Arc<str>)>) {
        for id in old {
            let Some(run) = self.by_id.get(id) else { continue };
            owners.push((*id, Arc::clone(&run.owner)));
            if route.is_some() && run.keeper.as_ref().is_some_and(|(_, remembered)| *remembered) {
                self.hide(*id);
                swept.hidden.push(*id);
            } else {
                self.forget(*id);
                swept.runs.push(*id);
            }
        }
    }

    fn forget(&mut self, id: RunId) -> bool {
        let Some(run) = self.by_id.remove(&id) else { return false };
        self.release(id, &run);
        count_down(&mut self.owners, &run.owner);
        self.live.remove(&id);
        if let Kept::Ended(stored) = &run.kept {
            self.bytes -= stored.record.size() as u64;
            self.ended.remove(&(stored.about.changed_at, id));
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

    fn answer<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> T) -> Later<T> {
        let closed = self.closed.load(Ordering::Acquire);
        Box::pin(ready(if closed { Err(StoreError::Closed) } else { Ok(work(self)) }))
    }
}

impl Store for Memory {
    fn open(&self, run: &Arc<dyn Journal>) -> Later<()> {
        self.answer(|store| {
            let known = look(&**run, |record, about| Run {
                agent: record.run().agent.as_str().into(),
                owner: about.owner.as_str().into(),
                session: record.run().session_id.as_str().into(),
                protocol: about.protocol.as_str().into(),
                created_at: record.run().created_at,
                keeper: about.retention.as_ref().map(|keeper| (keeper.route.as_str().into(), keeper.remembered)),
                kept: Kept::Active(Arc::clone(run)),
            });
            let mut runs = lock(&store.runs);
            runs.forget(run.id());
            runs.put(run.id(), known);
            drop(runs);
            // Whatever a crash takes, it takes all of it.
            run.committed(u64::MAX);
        })
    }

    fn touch(&self, _run: &Arc<dyn Journal>) {}

    fn settle(&self, run: &Arc<dyn Journal>) -> Later<()> {
        self.answer(|store| {
            let ended = look(&**run, |record, about| {
                record.is_finished().then(|| Arc::new(Stored { record: record.clone(), about: about.clone() }))
            });
            if let Some(stored) = ended {
                lock(&store.runs).end(run.id(), stored);
            }
        })
    }

    fn load(&self, id: RunId) -> Later<Option<Arc<Stored>>> {
        self.answer(|store| {
            let kept = lock(&store.runs).by_id.get(&id).map(|run| run.kept.clone())?;
            Some(match kept {
                Kept::Ended(stored) => stored,
                Kept::Active(journal) => {
                    look(&*journal, |record, about| Arc::new(Stored { record: record.clone(), about: about.clone() }))
                }
            })
        })
    }

    fn weigh(&self, id: RunId) -> Later<Option<Weight>> {
        self.answer(|store| {
            let kept = lock(&store.runs).by_id.get(&id).map(|run| run.kept.clone())?;
            Some(match kept {
                Kept::Ended(_) => Weight { bytes: 0, state: None },
                Kept::Active(journal) => {
                    Weight { bytes: look(&*journal, |record, _| record.size() as u64), state: None }
                }
            })
        })
    }

    fn heads(&self, ids: Vec<RunId>) -> Later<Vec<Stored>> {
        self.answer(|store| {
            let kept: Vec<Kept> = {
                let runs = lock(&store.runs);
                ids.iter().filter_map(|id| Some(runs.by_id.get(id)?.kept.clone())).collect()
            };
            let head = |kept: &Kept| match kept {
                Kept::Ended(stored) => Stored::head(&stored.record, &stored.about),
                Kept::Active(journal) => look(&**journal, Stored::head),
            };
            kept.iter().map(head).collect()
        })
    }

    fn find(&self, query: Query) -> Later<Found> {
        self.answer(|store| {
            let filter = &query.filter;
            let wanted = |run: &Run| {
                (query.agents.is_empty() || query.agents.iter().any(|agent| **agent == *run.agent))
                    && query.owner.as_ref().is_none_or(|owner| **owner == *run.owner)
                    && !run.kept.is_hidden()
                    && filter.session.as_ref().is_none_or(|session| **session == *run.session)
                    && filter.protocol.as_ref().is_none_or(|protocol| **protocol == *run.protocol)
                    && !run.is_gone(&query.gone)
            };
            // States are asked for after the lock is given back: they stand behind the runs' own locks.
            let candidates: Vec<(RunId, Run)> = {
                let runs = lock(&store.runs);
                runs.by_id.iter().filter(|(_, run)| wanted(run)).map(|(id, run)| (*id, run.clone())).collect()
            };
            let mut heads: Vec<RunHead> = candidates
                .into_iter()
                .map(|(id, run)| {
                    let (state, changed_at, size) = run.kept.state();
                    let (agent, session) = (run.agent.to_string(), run.session.to_string());
                    RunHead { id, agent, session, state, changed_at, size }
                })
                .filter(|head| filter.states.is_empty() || filter.states.contains(&head.state))
                .filter(|head| filter.changed_since.is_none_or(|since| head.changed_at >= since))
                .collect();
            let total = heads.len();
            if let Some(cursor) = filter.cursor {
                heads.retain(|head| (head.changed_at, head.id) < (cursor.changed_at, cursor.id));
            }
            heads.sort_unstable_by_key(|head| std::cmp::Reverse((head.changed_at, head.id)));
            let limit = if filter.limit == 0 { Query::LIMIT } else { filter.limit };
            let more = heads.len() > limit;
            heads.truncate(limit);
            let last = heads.last().filter(|_| more);
            let next = last.map(|head| Cursor { changed_at: head.changed_at, id: head.id });
            Found { runs: heads, total, next }
        })
    }

    fn latest(&self, agents: Vec<String>, owner: String, session: String) -> Later<Option<RunId>> {
        self.answer(|store| {
            let runs = lock(&store.runs);
            let of_session = runs.sessions.get(&(owner, session))?;
            let wanted = |id: &RunId| {
                let run = runs.by_id.get(id).filter(|run| !run.kept.is_hidden());
                run.is_some_and(|run| agents.is_empty() || agents.iter().any(|agent| **agent == *run.agent))
            };
            of_session.iter().rev().map(|(_, id)| *id).find(wanted)
        })
    }

    fn remove(&self, id: RunId) -> Later<bool> {
        self.answer(|store| lock(&store.runs).forget(id))
    }

    fn get(&self, collection: &str, key: &str) -> Later<Option<Document>> {
        let place = (collection.to_owned(), key.to_owned());
        self.answer(|store| lock(&store.documents).by_key.get(&place).map(|(document, _)| document.clone()))
    }

    fn put(
        &self,
        collection: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
        now: Millis,
    ) -> Later<Result<Version, Conflict>> {
        let place = (collection.to_owned(), key.to_owned());
        self.answer(|store| {
            let mut documents = lock(&store.documents);
            if !documents.matches(&place, expect) {
                return Err(Conflict);
            }
            documents.version += 1;
            let version = Version(documents.version);
            let made = documents.by_key.get(&place).map_or(version, |(document, _)| document.made);
            documents.by_key.insert(place, (Document { value, version, made }, now));
            Ok(version)
        })
    }

    fn delete(&self, collection: &str, key: &str, expect: Expect) -> Later<Result<bool, Conflict>> {
        let place = (collection.to_owned(), key.to_owned());
        self.answer(|store| {
            let mut documents = lock(&store.documents);
            if !documents.matches(&place, expect) {
                return Err(Conflict);
            }
            Ok(documents.by_key.remove(&place).is_some())
        })
    }

    fn list(&self, collection: &str, prefix: &str, after: Option<&str>, limit: usize) -> Later<Vec<Entry>> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded((collection.to_owned(), after.to_owned())),
            _ => Bound::Included((collection.to_owned(), prefix.to_owned())),
        };
        self.answer(|store| {
            let documents = lock(&store.documents);
            let range = documents.by_key.range((from, Bound::Unbounded));
            range
                .take_while(|((of, key), _)| of == collection && key.starts_with(prefix))
                .take(limit)
                .map(|((_, key), (document, _))| Entry { key: key.clone(), document: document.clone() })
                .collect()
        })
    }

    fn lease(&self, key: &str, holder: &str, ttl: Duration) -> Later<bool> {
        self.answer(|store| store.leases.take(key, holder, ttl))
    }

    fn release(&self, key: &str, holder: &str) -> Later<()> {
        self.answer(|store| store.leases.give_back(key, holder))
    }

    fn signal(&self, id: RunId, signal: Signal) -> Later<()> {
        self.answer(|store| store.signals.send(id, signal))
    }

    fn signals(&self) -> UnboundedReceiver<(RunId, Signal)> {
        self.signals.listen()
    }

    fn recover(&self) -> Later<Vec<RunId>> {
        // Whoever could have died has taken everything with it.
        self.answer(|_| Vec::new())
    }

    fn retain(&self, policy: Retention, now: Millis) -> Later<Swept> {
        self.answer(|store| {
            let mut swept = Swept::default();
            let mut owners = Vec::new();
            let age = before(now, policy.age);
            let live: Vec<(RunId, Kept)> = {
                let mut runs = lock(&store.runs);
                let routes = policy.routes.iter();
                let kin =
                    routes.map(|(route, keep)| (Some(route.as_str()), before(now, keep.ended_ttl), keep.max_runs));
                for (route, ended, most) in kin.chain([(None, age, policy.runs)]) {
                    let expired = runs.expired(route, ended);
                    let room = BATCH - expired.len();
                    runs.take(route, &expired, &mut swept, &mut owners);
                    let crowded = runs.crowded(route, most, room);
                    swept.more |= crowded.len() >= room;
                    runs.take(route, &crowded, &mut swept, &mut owners);
                }
                runs.live.iter().filter_map(|id| Some((*id, runs.by_id.get(id)?.kept.clone()))).collect()
            };
            // Asked after the lock is given back: their states stand behind the runs' own locks.
            let stale = live.into_iter().filter(|(_, kept)| kept.with_about(|about| policy.is_stale(about, now)));
            swept.stale = stale.map(|(id, _)| id).take(BATCH).collect();

            let mut documents = lock(&store.documents);
            for (id, owner) in owners {
                documents.forget_attached(&owner, id, &policy.attached);
            }
            for collection in &policy.collections {
                let crowded = documents.crowded(collection, policy.documents);
                swept.more |= crowded.len() >= BATCH;
                documents.forget_all(crowded, &policy, &mut swept);
            }
            let mut owners = Vec::new();
            let documents_bytes: u64 = documents.by_key.values().map(|(document, _)| document.value.len() as u64).sum();
            let mut runs = lock(&store.runs);
            let over = (runs.bytes + documents_bytes).saturating_sub(policy.bytes);
            if over > 0 {
                let mut shares = documents.shares();
                for (_, id) in &runs.ended {
                    if let Some(Run { owner, kept: Kept::Ended(stored), .. }) = runs.by_id.get(id) {
                        *shares.entry(owner.to_string()).or_default() += stored.record.size() as u64;
                    }
                }
                let shares: Vec<(String, u64)> = shares.into_iter().collect();
                let losses = fair::losses(&shares, over);
                let losses: HashMap<String, u64> =
                    shares.into_iter().zip(losses).map(|((owner, _), loss)| (owner, loss)).collect();
                let before = runs.bytes;
                let heavy = runs.oldest(&runs.ended, losses, 0, BATCH, |stored| stored.record.size() as u64);
                runs.take(None, &heavy, &mut swept, &mut owners);
                let left = over.saturating_sub(before - runs.bytes);
                let freed = documents.forget_bytes(left, &policy, &mut swept);
                let left = left.saturating_sub(freed);
                let rest = runs.oldest(&runs.ended, HashMap::new(), left, BATCH, |stored| stored.record.size() as u64);
                runs.take(None, &rest, &mut swept, &mut owners);
                swept.more |= heavy.len() + rest.len() >= BATCH;
            }
            drop(runs);
            for (id, owner) in owners {
                documents.forget_attached(&owner, id, &policy.attached);
            }
            let idle = documents.by_key.iter().filter(|((collection, _), (_, put_at))| {
                *put_at < age && policy.collections.iter().any(|of| of == collection)
            });
            let idle: Vec<_> = idle.map(|(place, _)| place.clone()).take(BATCH).collect();
            swept.more |= idle.len() == BATCH;
            documents.forget_all(idle, &policy, &mut swept);
            swept
        })
    }

    fn flush(&self) -> Later<()> {
        self.answer(|_| ())
    }

    fn close(&self) -> Later<()> {
        let done = self.answer(|_| ());
        self.closed.store(true, Ordering::Release);
        self.signals.close();
        // Runs hold on to what the engine put around them.
        *lock(&self.runs) = Runs::default();
        done
    }
}
