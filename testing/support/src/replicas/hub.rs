//! The part of a database server: the replicas, their runs, and the time. Not here: a replica's connection (`node`).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use interlingua::store::{Claim, Journal, Memory, Signal, Sqlite, SqliteOptions, Store, StoreError};
use interlingua_core::RunId;
use interlingua_core::call::RunState;
use interlingua_core::event::Millis;
use tokio::sync::watch;
use tokio::time::Instant;

use super::lines::Lines;
use super::lock;

/// Number of runs that one call of `recover` hands out.
const RECOVERED_AT_ONCE: usize = 8;

/// A replica's connection, as far as other replicas reach it.
pub(super) trait Peer: Send + Sync {
    /// From now on nothing of a replica reaches the store that had this id.
    fn fence(&self, member: u64);

    /// Delivers a signal, or keeps it until it can be delivered.
    fn post(&self, id: RunId, signal: Signal);
}

/// True for a run that its replica works on.
pub(super) fn is_working(state: RunState) -> bool {
    !matches!(state, RunState::Waiting | RunState::WaitingForAuth | RunState::Ended(_))
}

/// The shared part of a store.
pub struct Hub {
    pub(super) inner: Arc<dyn Store>,
    lease: Duration,
    state: Mutex<State>,
    /// Counts changes of lines.
    pub(super) turns: watch::Sender<u64>,
    /// Counts commits.
    pub(super) commits: watch::Sender<u64>,
    /// Touched runs must be settled, so that others can load them.
    settles: bool,
    _directory: Option<tempfile::TempDir>,
}

#[derive(Default)]
struct State {
    /// The offset of the clock.
    moved: Duration,
    last_member: u64,
    members: BTreeMap<u64, Member>,
    last_hold: u64,
    runs: HashMap<RunId, Run>,
    /// Runs of fenced replicas that no one has claimed, by age.
    orphans: Vec<(Millis, RunId)>,
    lines: Lines,
    leases: HashMap<String, Lease>,
    /// The number of changes of each run.
    changes: HashMap<RunId, u64>,
}

struct Member {
    node: Arc<dyn Peer>,
    connected_since: Instant,
    /// When it renewed its lease last. `None`: it does all the time.
    silent_since: Option<Instant>,
    is_fenced: bool,
}

/// The owner of a run.
struct Run {
    /// The replica that holds it, and by which hold. 0: it was handed out, and not opened yet.
    holder: Option<(u64, u64)>,
    /// It waits for the replica that takes it over.
    is_orphan: bool,
    /// The number of its events. `None`: it grows.
    length: Option<u64>,
}

struct Lease {
    holder: String,
    member: u64,
    until: Option<Instant>,
}

impl Hub {
    /// A hub around an empty store, from which everything can be loaded that was touched.
    pub fn new(inner: Arc<dyn Store>, lease: Duration) -> Arc<Self> {
        Self::with_directory(inner, lease, None)
    }

    /// A hub with a file of its own, which is deleted in the end.
    pub fn on_file(lease: Duration) -> Arc<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let inner = Sqlite::open(&directory.path().join("store.db"), &SqliteOptions::default()).expect("a new store");
        Self::with_directory(Arc::new(inner), lease, Some(directory))
    }

    /// A hub that keeps everything in memory. Replicas read from each other what is not committed, too.
    pub fn in_memory(lease: Duration) -> Arc<Self> {
        Self::new(Arc::new(Memory::new()), lease)
    }

    fn with_directory(inner: Arc<dyn Store>, lease: Duration, directory: Option<tempfile::TempDir>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            lease,
            state: Mutex::default(),
            turns: watch::Sender::new(0),
            commits: watch::Sender::new(0),
            settles: directory.is_some(),
            _directory: directory,
        })
    }

    /// Time without a connection after which others may fence a replica.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Number of replicas that are not fenced.
    pub(super) fn replicas(&self) -> usize {
        lock(&self.state).members.values().filter(|member| !member.is_fenced).count()
    }

    /// Moves the clock, which otherwise goes as clocks do.
    pub fn advance(&self, by: Duration) {
        lock(&self.state).moved += by;
    }

    pub(super) fn enter(&self, node: Arc<dyn Peer>) -> u64 {
        let mut state = lock(&self.state);
        state.last_member += 1;
        let (id, now) = (state.last_member, state.now());
        let member = Member { node, connected_since: now, silent_since: None, is_fenced: false };
        state.members.insert(id, member);
        id
    }

    /// A replica renews its lease from now on, or stops to. False: it was fenced.
    pub(super) fn set_connected(&self, member: u64, connected: bool) -> bool {
        let mut state = lock(&self.state);
        let now = state.now();
        let Some(member) = state.members.get_mut(&member).filter(|member| !member.is_fenced) else { return false };
        if connected {
            member.connected_since = now;
            member.silent_since = None;
        } else {
            member.silent_since.get_or_insert(now);
        }
        true
    }

    /// Takes a run for a replica. Returns the number of the hold.
    pub(super) fn claim(&self, member: u64, id: RunId, claim: Claim) -> Result<u64, StoreError> {
        let mut state = lock(&self.state);
        if !state.is_active(member) {
            return Err(StoreError::Fenced);
        }

        let known = state.runs.get(&id);
        let is_own = known.and_then(|run| run.holder).is_some_and(|(holder, _)| holder == member);
        let may = match (claim, known) {
            (Claim::New, known) => known.is_none() || is_own,
            (Claim::Existing { .. }, None) => false,
            (Claim::Existing { events }, Some(run)) => {
                let is_free = is_own || (run.holder.is_none() && !run.is_orphan);
                is_free && run.length.is_none_or(|length| length == events)
            }
        };
        if !may {
            return Err(StoreError::Fenced);
        }

        state.last_hold += 1;
        let hold = state.last_hold;
        state.runs.insert(id, Run { holder: Some((member, hold)), is_orphan: false, length: None });
        Ok(hold)
    }

    /// Gives a run up that waits or has ended. No effect if it was taken again, or lost.
    pub(super) fn release(&self, member: u64, id: RunId, hold: u64, length: u64) -> bool {
        let mut state = lock(&self.state);
        let Some(run) = state.runs.get_mut(&id).filter(|run| run.holder == Some((member, hold))) else { return false };
        (run.holder, run.length) = (None, Some(length));
        true
    }

    /// Whether the run exists, whichever replica owns it.
    pub(super) fn knows(&self, id: RunId) -> bool {
        lock(&self.state).runs.contains_key(&id)
    }

    pub(super) fn holder(&self, id: RunId) -> Option<Arc<dyn Peer>> {
        let state = lock(&self.state);
        let (member, _) = state.runs.get(&id)?.holder?;
        Some(Arc::clone(&state.members.get(&member)?.node))
    }

    /// Forgets a run that is deleted, if no other replica has it.
    pub(super) fn forget(&self, member: u64, id: RunId) -> Result<(), StoreError> {
        let mut state = lock(&self.state);
        if let Some(run) = state.runs.get(&id)
            && (run.is_orphan || run.holder.is_some_and(|(holder, _)| holder != member))
        {
            return Err(StoreError::Fenced);
        }
        state.runs.remove(&id);
        Ok(())
    }

    /// Runs that the inner store has deleted.
    pub(super) fn forget_deleted(&self, ids: &[RunId]) {
        let mut state = lock(&self.state);
        for id in ids {
            state.runs.remove(id);
        }
        drop(state);
        ids.iter().for_each(|id| self.note_change(*id));
    }

    pub(super) fn of_member(&self, member: u64) -> Vec<RunId> {
        let state = lock(&self.state);
        let held = state.runs.iter().filter(|(_, run)| run.holder.is_some_and(|(holder, _)| holder == member));
        held.map(|(id, _)| *id).collect()
    }

    /// Fences replicas that have been silent for too long, and hands out some of the runs of fenced ones.
    pub(super) async fn recover(&self, member: u64) -> Result<Vec<RunId>, StoreError> {
        let lease = self.lease;
        let expired: Vec<u64> = {
            let state = lock(&self.state);
            let now = state.now();
            let is_over = |since: Instant| now.saturating_duration_since(since) >= lease;
            let may_fence = state.members.get(&member).is_some_and(|own| is_over(own.connected_since));
            let is_lost = |other: &Member| other.is_fenced || (may_fence && other.silent_since.is_some_and(is_over));
            state.members.iter().filter(|(id, other)| **id != member && is_lost(other)).map(|(id, _)| *id).collect()
        };
        for other in expired {
            self.fence_member(other).await?;
        }

        let mut state = lock(&self.state);
        if !state.is_active(member) {
            return Err(StoreError::Fenced);
        }
        let count = state.orphans.len().min(RECOVERED_AT_ONCE);
        let taken: Vec<RunId> = state.orphans.drain(..count).map(|(_, id)| id).collect();
        for id in &taken {
            if let Some(run) = state.runs.get_mut(id) {
                (run.holder, run.is_orphan) = (Some((member, 0)), false);
            }
        }
        Ok(taken)
    }

    /// The replica never learns that these runs were handed out to it.
    pub(super) fn take_back(&self, member: u64, ids: &[RunId]) {
        let mut state = lock(&self.state);
        for id in ids {
            if let Some(run) = state.runs.get_mut(id).filter(|run| run.holder == Some((member, 0))) {
                (run.holder, run.is_orphan) = (None, true);
                state.orphans.push((0, *id));
            }
        }
        state.orphans.sort_unstable();
    }

    pub(super) async fn fence_member(&self, member: u64) -> Result<(), StoreError> {
        let node = {
            let mut state = lock(&self.state);
            let Some(fenced) = state.members.get_mut(&member) else { return Ok(()) };
            fenced.is_fenced = true;
            Arc::clone(&fenced.node)
        };
        node.fence(member);
        self.take_over(member).await
    }

    /// Makes what a replica had available to others. Nothing of it reaches the inner store any more.
    pub(super) async fn take_over(&self, member: u64) -> Result<(), StoreError> {
        self.inner.flush().await?;
        let mut found = Vec::new();
        for id in self.of_member(member) {
            found.push((id, self.inner.load(id).await?));
        }

        let mut state = lock(&self.state);
        for (id, stored) in found {
            let Some(run) =
                state.runs.get_mut(&id).filter(|run| run.holder.is_some_and(|(holder, _)| holder == member))
            else {
                continue;
            };
            let Some(stored) = stored else {
                state.runs.remove(&id);
                continue;
            };
            let is_orphan = is_working(stored.info.state);
            *run = Run { holder: None, is_orphan, length: Some(stored.record.len()) };
            if is_orphan {
                state.orphans.push((stored.record.run().created_at, id));
            }
        }
        state.orphans.sort_unstable();
        state.lines.remove_member(member);
        state.leases.retain(|_, lease| lease.member != member);
        state.members.remove(&member);
        drop(state);
        self.turns.send_modify(|count| *count += 1);
        Ok(())
    }

    pub(super) fn lines<T>(&self, member: u64, change: impl FnOnce(&mut Lines) -> T) -> Result<T, StoreError> {
        let mut state = lock(&self.state);
        if !state.is_active(member) {
            return Err(StoreError::Fenced);
        }
        let result = change(&mut state.lines);
        drop(state);
        self.turns.send_modify(|count| *count += 1);
        Ok(result)
    }

    pub(super) fn read_lines<T>(&self, read: impl FnOnce(&Lines) -> T) -> T {
        read(&lock(&self.state).lines)
    }

    pub(super) fn lease_key(&self, member: u64, key: &str, holder: &str, ttl: Duration) -> bool {
        let mut state = lock(&self.state);
        let now = state.now();
        let is_other = |lease: &Lease| lease.holder != holder && lease.until.is_none_or(|until| now < until);
        if state.leases.get(key).is_some_and(is_other) {
            return false;
        }
        // Beyond the range of the clock: unlimited.
        let lease = Lease { holder: holder.to_owned(), member, until: now.checked_add(ttl) };
        state.leases.insert(key.to_owned(), lease);
        true
    }

    pub(super) fn release_key(&self, key: &str, holder: &str) {
        let mut state = lock(&self.state);
        if state.leases.get(key).is_some_and(|lease| lease.holder == holder) {
            state.leases.remove(key);
        }
    }

    /// Has the new events of a run written. May be called while the run's lock is held.
    pub(super) fn touch(&self, journal: &Arc<dyn Journal>) {
        if !self.settles {
            self.inner.touch(journal);
        } else if journal.dirty_flag().set() {
            // A file has what is only touched in a log that no one reads before a crash.
            drop(self.inner.settle(journal));
        }
    }

    /// Something of a run was committed, or it was deleted.
    pub(super) fn note_change(&self, id: RunId) {
        *lock(&self.state).changes.entry(id).or_default() += 1;
        self.commits.send_modify(|count| *count += 1);
    }

    /// The number of changes of a run.
    pub(super) fn changes(&self, id: RunId) -> u64 {
        lock(&self.state).changes.get(&id).copied().unwrap_or(0)
    }
}

impl State {
    fn now(&self) -> Instant {
        Instant::now() + self.moved
    }

    fn is_active(&self, member: u64) -> bool {
        self.members.get(&member).is_some_and(|member| !member.is_fenced)
    }
}
