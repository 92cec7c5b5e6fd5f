//! All runs: those in memory, by id, and the way to those in the store.
//!
//! A run is in memory while a turn is under way, while someone follows or holds it, and while its end is written. Not
//! here: what drives runs ([`crate::turns::driver`]), and whose they are ([`super::access`]).

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlingua_core::call::RunState;
use interlingua_core::pending::Pending;
use interlingua_core::{Fault, Owner, RunId};
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use super::active_run::{ActiveRun, PinnedRun, Publish};
use super::elsewhere::RunsElsewhere;
use super::handle::RunHandle;
use super::loaded::LoadedRuns;
use super::unstored::UnstoredRuns;
use super::waits::until_visible;
use crate::agent::Agents;
use crate::faults::{self, store_fault};
use crate::sessions::{Session, SessionTable};
use interlingua_store::{Claim, Store, StoreError, StoreFuture, StoredRun};

/// How long the pause of a run may take to be written before its next turn is refused.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// All runs.
pub(crate) struct RunTable {
    agents: Arc<Agents>,
    store: Arc<dyn Store>,
    sessions: Arc<SessionTable>,
    unstored: Arc<UnstoredRuns>,
    /// Runs from the store that someone reads.
    loaded: LoadedRuns,
    /// Runs that are followed here, of a store that other processes use too.
    elsewhere: Arc<RunsElsewhere>,
    active: Mutex<ActiveRuns>,
    /// Turns that have ended since the process began.
    turns_ended: AtomicU64,
    /// How many runs have a driver: it takes their turns, and writes what these came to.
    driven: AtomicUsize,
    /// False: the gateway is closing and takes no new runs.
    is_accepting: AtomicBool,
    /// True: the gateway closes soon.
    is_stopping: AtomicBool,
    /// True: the gateway is closed. No run has another step.
    closed: watch::Sender<bool>,
}

/// The runs in memory.
#[derive(Default)]
struct ActiveRuns {
    by_id: HashMap<RunId, Arc<ActiveRun>>,
    /// Runs that are being loaded to be in memory.
    loading: HashMap<RunId, Loading>,
}

#[derive(Default)]
struct Loading {
    /// How many calls load this run.
    loaders: usize,
    /// How often it has left memory since the first of them began: what they loaded before is outdated.
    left: u64,
}

impl ActiveRuns {
    fn insert(&mut self, run: &Arc<ActiveRun>) {
        self.by_id.insert(run.id(), Arc::clone(run));
    }

    fn remove(&mut self, id: RunId) {
        self.by_id.remove(&id);
        if let Some(loading) = self.loading.get_mut(&id) {
            loading.left += 1;
        }
    }

    fn holds(&self, run: &Arc<ActiveRun>) -> bool {
        self.by_id.get(&run.id()).is_some_and(|known| Arc::ptr_eq(known, run))
    }
}

/// A run that was brought into memory, and when the store knows that.
type Activated = (HeldRun, Option<StoreFuture<()>>);

impl RunTable {
    pub(crate) fn new(
        agents: Arc<Agents>,
        store: Arc<dyn Store>,
        sessions: Arc<SessionTable>,
        unstored: Arc<UnstoredRuns>,
    ) -> Self {
        Self {
            agents,
            loaded: LoadedRuns::new(Arc::clone(&store)),
            elsewhere: Arc::new(RunsElsewhere::new(Arc::clone(&store), Arc::clone(&sessions))),
            store,
            sessions,
            unstored,
            active: Mutex::default(),
            turns_ended: AtomicU64::new(0),
            driven: AtomicUsize::new(0),
            is_accepting: AtomicBool::new(true),
            is_stopping: AtomicBool::new(false),
            closed: watch::Sender::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ActiveRuns> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// True if other processes use the same store.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.shared().is_some()
    }

    pub(crate) const fn sessions(&self) -> &Arc<SessionTable> {
        &self.sessions
    }

    pub(crate) const fn unstored(&self) -> &Arc<UnstoredRuns> {
        &self.unstored
    }

    /// How many runs are in memory.
    pub(crate) fn len(&self) -> usize {
        self.lock().by_id.len()
    }

    /// How many runs have a turn under way, or one that waits to begin.
    pub(crate) fn working(&self) -> usize {
        self.active().iter().filter(|run| run.run_state().is_working()).count()
    }

    /// True while a turn is under way, or what one has come to is being written.
    pub(crate) fn is_driving(&self) -> bool {
        self.driven.load(Ordering::Acquire) > 0
    }

    /// Counts the runs that have a driver.
    pub(super) const fn driven(&self) -> &AtomicUsize {
        &self.driven
    }

    /// All runs in memory.
    pub(crate) fn active(&self) -> Vec<Arc<ActiveRun>> {
        self.lock().by_id.values().cloned().collect()
    }

    /// A run in memory.
    pub(crate) fn get(&self, id: RunId) -> Option<Arc<ActiveRun>> {
        self.lock().by_id.get(&id).cloned()
    }

    /// A run in memory, stored or not.
    pub(super) fn in_memory(&self, id: RunId) -> Option<Arc<ActiveRun>> {
        self.get(id).or_else(|| self.unstored.get(id))
    }

    /// Makes a run known.
    pub(crate) fn insert(&self, run: &Arc<ActiveRun>) {
        self.lock().insert(run);
    }

    /// Takes a run out of memory.
    pub(crate) fn remove(&self, id: RunId) {
        self.lock().remove(id);
    }

    /// A run by its id, whichever owner it has.
    pub(crate) async fn find(&self, id: RunId) -> Result<Option<RunHandle>, Fault> {
        self.find_if_room(id, true).await
    }

    /// A run by its id. `waits`: for memory to load it; otherwise the call fails if there is none.
    pub(super) async fn find_if_room(&self, id: RunId, waits: bool) -> Result<Option<RunHandle>, Fault> {
        if let Some(run) = self.in_memory(id) {
            return self.whole(run.pin(), waits).await.map(|run| Some(RunHandle::InMemory(run)));
        }
        let Some(stored) = self.loaded.load(id, waits).await? else { return Ok(None) };
        let pending = self.open_items(&stored).await?;
        Ok(Some(RunHandle::Stored(stored, pending.into())))
    }

    /// Gets events back that a run in memory has evicted: while it had no reader, only the store kept them.
    async fn whole(&self, run: PinnedRun, waits: bool) -> Result<PinnedRun, Fault> {
        if run.is_whole() {
            return Ok(run);
        }

        let stored = self.loaded.load(run.id(), waits).await?;
        if run.is_whole() {
            return Ok(run);
        }
        let stored = stored.ok_or_else(|| faults::run_not_found(run.id()))?;
        if run.restore(&stored.record) { Ok(run) } else { Err(faults::store_unavailable()) }
    }

    /// The pending items of a stored run that are still open, as its session says.
    async fn open_items(&self, stored: &StoredRun) -> Result<Vec<Pending>, Fault> {
        let run = stored.record.run();
        let asked = run.pending();
        if asked.is_empty() {
            return Ok(asked);
        }

        let user = stored.info.request.user_id.as_deref();
        let owner = Owner::from_key(&stored.info.owner);
        let session = self.sessions.of_user(&run.agent, &owner, &run.session_id, user).await?;
        Ok(session.pending_of(run.id))
    }

    /// True if a run waits only for another replica to take its next turn.
    pub(crate) async fn is_handed_over(&self, run: &RunHandle) -> Result<bool, Fault> {
        let may_be = match run {
            RunHandle::Stored(stored, pending) => stored.info.state == RunState::Waiting && pending.is_empty(),
            RunHandle::InMemory(_) => false,
        };
        if !may_be || !self.is_shared() {
            return Ok(false);
        }
        Ok(self.session_of(run).await?.handed_over(run.id()).is_some())
    }

    /// True if a queued turn of another replica continues the run. Always false in a store of one process.
    pub(crate) async fn is_continued(&self, run: RunId) -> Result<bool, Fault> {
        match self.store.shared() {
            Some(shared) => shared.is_continued(run).await.map_err(store_fault),
            None => Ok(false),
        }
    }

    /// The session of a run.
    pub(crate) async fn session_of(&self, run: &RunHandle) -> Result<Arc<Session>, Fault> {
        let (agent, owner, session, user) = run.view(|view| {
            let (run, about) = (view.run(), view.info);
            let owner = Owner::from_key(&about.owner);
            (run.agent.clone(), owner, run.session_id.clone(), about.request.user_id.clone())
        });
        self.sessions.of_user(&agent, &owner, &session, user.as_deref()).await
    }

    /// Brings a run into memory and keeps it there until the guard is dropped.
    pub(crate) async fn activate(self: &Arc<Self>, mut run: RunHandle) -> Result<HeldRun, Fault> {
        loop {
            let id = run.id();
            match run {
                RunHandle::InMemory(active) => {
                    self.release_settled(&active).await?;
                    match self.hold(&active) {
                        Some(held) => return Ok(held),
                        // It has left memory since it was found: a change to this copy would be lost.
                        None => run = self.find(id).await?.ok_or_else(|| faults::run_not_found(id))?,
                    }
                }
                RunHandle::Stored(..) => {
                    // What was found before may be outdated: the run may have been in memory since.
                    let loading = LoadingGuard::new(self, id);
                    run = match self.find(id).await?.ok_or_else(|| faults::run_not_found(id))? {
                        RunHandle::Stored(stored, pending) => {
                            if let Some((held, opened)) = self.activate_stored(&loading, &stored, &pending)? {
                                if let Some(opened) = opened {
                                    self.opened(&held, opened).await?;
                                }
                                return Ok(held);
                            }
                            RunHandle::Stored(stored, pending)
                        }
                        active => active,
                    };
                }
            }
        }
    }

    /// A shared store lets go of a run as soon as its pause is written, and its driver a moment later: waits for that,
    /// since what is changed here in between belongs to no one.
    async fn release_settled(&self, run: &Arc<ActiveRun>) -> Result<(), Fault> {
        if !self.is_shared() {
            return Ok(());
        }
        if let Some(pause) = run.settling().filter(|_| run.run_state().is_waiting()) {
            let visible = timeout(RELEASE_TIMEOUT, until_visible(run, pause)).await;
            visible.map_err(|_| faults::store_unavailable())?;
        }
        self.release_if_idle(run);
        Ok(())
    }

    /// Waits until the store knows that a run is here.
    async fn opened(&self, run: &Arc<ActiveRun>, opened: StoreFuture<()>) -> Result<(), Fault> {
        let Err(error) = opened.await else { return Ok(()) };
        if self.is_shared() {
            // Another replica has it: this copy is no one's.
            run.lose();
            self.remove_copy(run);
        }
        Err(match error {
            StoreError::Fenced => faults::busy(&run.view(|view| view.run().session_id.clone())),
            error => store_fault(&error),
        })
    }

    /// Takes this copy of a run out of memory.
    fn remove_copy(&self, run: &Arc<ActiveRun>) {
        let mut active = self.lock();
        if active.holds(run) {
            active.remove(run.id());
        }
    }

    /// Counts a follower of a run that another replica may drive. `None`: nothing more will happen in it, or no other
    /// process uses the store.
    pub(super) fn count_elsewhere(&self, run: &RunHandle) -> Result<Option<(PinnedRun, usize)>, Fault> {
        let RunHandle::Stored(stored, pending) = run else { return Ok(None) };
        if !self.is_shared() || stored.info.state.is_ended() {
            return Ok(None);
        }
        if let Some(known) = self.elsewhere.follow(run.id()) {
            return Ok(Some(known));
        }
        let copy = self.copy(stored, pending)?;
        Ok(Some(self.elsewhere.add_and_follow(&copy)))
    }

    /// A copy of a stored run, which does not grow.
    pub(super) fn copy(&self, stored: &StoredRun, pending: &[Pending]) -> Result<Arc<ActiveRun>, Fault> {
        let agent = self.agents.of_stored_run(&stored.record.run().agent);
        let copy = ActiveRun::from_stored(agent.ok_or_else(|| Fault::not_found("the run's agent"))?, stored);
        copy.update(Publish::Now, |state| state.pending = pending.to_vec());
        Ok(copy)
    }

    /// Brings a loaded run into memory unless it is there, and tells the store. `None`: it has been in memory since it
    /// was loaded, and has to be loaded again.
    fn activate_stored(
        self: &Arc<Self>,
        loading: &LoadingGuard,
        stored: &StoredRun,
        pending: &[Pending],
    ) -> Result<Option<Activated>, Fault> {
        let agent = self.agents.of_stored_run(&stored.record.run().agent);
        let agent = agent.ok_or_else(|| Fault::not_found("the run's agent"))?;
        let run = ActiveRun::from_stored(agent, stored);
        run.update(Publish::Now, |state| state.pending = pending.to_vec());

        let mut active = self.lock();
        if let Some(known) = active.by_id.get(&run.id()) {
            let held = HeldRun::new(self, known);
            return Ok(held.is_whole().then_some((held, None)));
        }

        if !loading.is_current(&active) {
            return Ok(None);
        }

        active.insert(&run);
        // Under the lock: a call that finds the run here finds it known to the store.
        let claim = Claim::Existing { events: stored.record.len() };
        let opened = self.store.open(&run.journal(), claim);
        Ok(Some((HeldRun::new(self, &run), Some(opened))))
    }

    /// Keeps a run in memory. `None`: it has left memory, and another copy may be there.
    fn hold(self: &Arc<Self>, run: &PinnedRun) -> Option<HeldRun> {
        let active = self.lock();
        // A run that has ended is not changed any more: any copy will do.
        (active.holds(run) || run.run_state().is_ended()).then(|| HeldRun::new(self, run))
    }

    /// How many turns have ended since the process began.
    pub(crate) fn turns_ended(&self) -> u64 {
        self.turns_ended.load(Ordering::Relaxed)
    }

    /// A run has no turn under way any more.
    pub(crate) fn turn_ended(&self, run: &Arc<ActiveRun>) {
        self.turns_ended.fetch_add(1, Ordering::Relaxed);
        if run.is_lost() {
            return self.remove_copy(run);
        }
        let is_over = run.view(|view| !view.info.stored && view.run().end.is_some());
        if is_over {
            // No one may find it again; its followers still see its end.
            self.remove(run.id());
            drop(self.store.remove(run.id()));
            return;
        }
        self.release_if_idle(run);
    }

    /// Takes a run out of memory if it is safe in the store and nothing needs it here.
    pub(super) fn release_if_idle(&self, run: &Arc<ActiveRun>) {
        // Under the lock: no one finds it meanwhile, and another copy of the same id stays.
        let mut active = self.lock();
        if !active.holds(run) {
            drop(active);
            return self.elsewhere.release_if_unfollowed(run);
        }
        if run.is_idle() || (self.is_shared() && run.is_at_rest()) {
            active.remove(run.id());
            drop(active);
            self.let_go(run);
        }
    }

    /// A run that waits is no one's, if there are other replicas: who follows it here sees what any of them does.
    fn let_go(&self, run: &Arc<ActiveRun>) {
        if !self.is_shared() {
            return;
        }
        // Also if it was only held here, and had no turn.
        drop(self.store.settle(&run.journal()));
        if run.is_followed() && !run.run_state().is_ended() {
            self.elsewhere.add(run);
        }
    }

    /// Makes sure that no one finds a run again that has ended.
    pub(crate) fn forget(&self, run: &RunHandle) {
        match run {
            RunHandle::InMemory(run) => {
                run.update(Publish::Later, |state| state.about.stored = false);
                self.turn_ended(run);
            }
            RunHandle::Stored(stored, _) => drop(self.store.remove(stored.record.run().id)),
        }
    }

    /// True while new runs are taken.
    pub(crate) fn is_accepting(&self) -> bool {
        self.is_accepting.load(Ordering::Relaxed)
    }

    /// True once the gateway closes soon, even if new runs are still taken.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn announce_stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stop_accepting(&self) {
        self.announce_stop();
        self.is_accepting.store(false, Ordering::Relaxed);
    }

    /// True once no run has another step.
    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Resolves once no run has another step.
    pub(super) async fn wait_closed(&self) {
        // The sender lives as long as the table.
        let _ = self.closed.subscribe().wait_for(|is_closed| *is_closed).await;
    }

    /// No run has another step from now on: followers of waiting runs leave.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
        for run in self.active().into_iter().chain(self.elsewhere.all()) {
            run.wake_followers();
        }
    }
}

/// A run is being loaded to be in memory.
struct LoadingGuard {
    runs: Arc<RunTable>,
    id: RunId,
    /// [`Loading::left`] when this began.
    left: u64,
}

impl LoadingGuard {
    fn new(runs: &Arc<RunTable>, id: RunId) -> Self {
        let mut active = runs.lock();
        let loading = active.loading.entry(id).or_default();
        loading.loaders += 1;
        let left = loading.left;
        drop(active);
        Self { runs: Arc::clone(runs), id, left }
    }

    /// True if what was loaded since is not outdated.
    fn is_current(&self, active: &ActiveRuns) -> bool {
        active.loading.get(&self.id).map_or(0, |loading| loading.left) == self.left
    }
}

impl Drop for LoadingGuard {
    fn drop(&mut self) {
        let mut active = self.runs.lock();
        if let Some(loading) = active.loading.get_mut(&self.id) {
            loading.loaders -= 1;
            if loading.loaders == 0 {
                active.loading.remove(&self.id);
            }
        }
    }
}

/// Keeps a run in memory while it stands between two turns. Dropped, the run leaves memory unless a turn is under way
/// by then or others need it.
pub(crate) struct HeldRun {
    runs: Arc<RunTable>,
    run: PinnedRun,
}

impl HeldRun {
    /// Called with the table locked and the run in it: no one takes it out in between.
    fn new(runs: &Arc<RunTable>, run: &Arc<ActiveRun>) -> Self {
        run.hold();
        Self { runs: Arc::clone(runs), run: run.pin() }
    }

    /// The run as one to be read.
    pub(crate) fn handle(&self) -> RunHandle {
        RunHandle::InMemory(self.run.clone())
    }
}

impl Deref for HeldRun {
    type Target = Arc<ActiveRun>;

    fn deref(&self) -> &Arc<ActiveRun> {
        &self.run
    }
}

impl Drop for HeldRun {
    fn drop(&mut self) {
        self.run.release();
        self.runs.release_if_idle(&self.run);
    }
}
