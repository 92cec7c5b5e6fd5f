//! All runs: the runs in memory, by id, and access to runs in the store.
//!
//! A run is in memory during a turn, while it has a follower, a holder or a queued turn, and while its end is written.
//! Not here: the driver of runs ([`crate::turns::driver`]), and the runs of a caller ([`super::access`]).

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlingua_core::call::RunState;
use interlingua_core::pending::Pending;
use interlingua_core::{End, Fault, Owner, RunId};
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use super::active_run::{ActiveRun, PinnedRun, Publish};
use super::elsewhere::RunsElsewhere;
use super::handle::RunHandle;
use super::loaded::LoadedRuns;
use super::unstored::UnstoredRuns;
use super::waits::{until_turn_ended, until_unheld, until_visible};
use crate::agent::Agents;
use crate::faults::{self, store_fault};
use crate::sessions::{Session, SessionTable};
use interlingua_store::{Claim, Store, StoreError, StoreFuture, StoredRun};

/// Time limit for the write of a pause. After that the next turn of the run is refused.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The runs of this process, and access to stored ones.
pub(crate) struct RunTable {
    agents: Arc<Agents>,
    store: Arc<dyn Store>,
    sessions: Arc<SessionTable>,
    unstored: Arc<UnstoredRuns>,
    /// Runs from the store that have readers.
    loaded: LoadedRuns,
    /// Runs with followers here that other processes may drive.
    elsewhere: Arc<RunsElsewhere>,
    active: Mutex<ActiveRuns>,
    /// Runs whose queued turns this process watches because a caller found them handed over.
    watched: Mutex<HashSet<RunId>>,
    /// Number of turns that have ended since the process began.
    turns_ended: AtomicU64,
    /// Number of turns that have a driver or wait for one here.
    driven: AtomicUsize,
    /// False: the gateway is closing and takes no new runs.
    is_accepting: AtomicBool,
    /// True: the gateway closes soon.
    is_stopping: AtomicBool,
    /// True: the turns under way were stopped because the gateway closes. Later ones are refused.
    is_stopped: AtomicBool,
    /// True: the gateway is closed. No run has another step.
    closed: watch::Sender<bool>,
}

/// The runs in memory, and the loads of others.
#[derive(Default)]
struct ActiveRuns {
    by_id: HashMap<RunId, Arc<ActiveRun>>,
    /// Runs that are being loaded to be in memory.
    loading: HashMap<RunId, Loading>,
}

#[derive(Default)]
struct Loading {
    /// Number of calls that load this run.
    loaders: usize,
    /// Number of times that it left memory since the first of them began: copies that were loaded before are outdated.
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

/// A run that was brought into memory. The future, if any, resolves once the store has recorded it.
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
            watched: Mutex::default(),
            turns_ended: AtomicU64::new(0),
            driven: AtomicUsize::new(0),
            is_accepting: AtomicBool::new(true),
            is_stopping: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            closed: watch::Sender::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ActiveRuns> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watched(&self) -> MutexGuard<'_, HashSet<RunId>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) const fn sessions(&self) -> &Arc<SessionTable> {
        &self.sessions
    }

    pub(crate) const fn unstored(&self) -> &Arc<UnstoredRuns> {
        &self.unstored
    }

    /// The number of runs in memory.
    pub(crate) fn len(&self) -> usize {
        self.lock().by_id.len()
    }

    /// The number of runs with a turn under way, or with one that waits to begin.
    pub(crate) fn working(&self) -> usize {
        self.active().iter().filter(|run| run.run_state().is_working()).count()
    }

    /// True while a turn is under way, queued behind one, or being written.
    pub(crate) fn is_driving(&self) -> bool {
        self.driven.load(Ordering::Acquire) > 0
    }

    /// True if this process may drive the run: it is no copy of a run of another process.
    pub(super) fn drives(&self, run: &Arc<ActiveRun>) -> bool {
        self.lock().holds(run)
    }

    /// The number of turns that have a driver, or wait for one here.
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

    /// Adds a run.
    pub(crate) fn insert(&self, run: &Arc<ActiveRun>) {
        self.lock().insert(run);
    }

    /// Takes a run out of memory.
    pub(crate) fn remove(&self, id: RunId) {
        self.lock().remove(id);
    }

    /// A run by its id, of any owner.
    pub(crate) async fn find(&self, id: RunId) -> Result<Option<RunHandle>, Fault> {
        self.find_if_room(id, true).await
    }

    /// A run by its id, of any owner. If the memory limit for loaded runs is reached, `waits` decides whether to wait or
    /// to fail.
    pub(super) async fn find_if_room(&self, id: RunId, waits: bool) -> Result<Option<RunHandle>, Fault> {
        if let Some(run) = self.in_memory(id) {
            return self.whole(run.pin(), waits).await.map(|run| Some(RunHandle::InMemory(run)));
        }
        let Some(stored) = self.loaded.load(id, waits).await? else { return Ok(None) };
        let pending = self.open_items(&stored).await?;
        Ok(Some(RunHandle::Stored(stored, pending.into())))
    }

    /// Restores events that a run in memory has evicted.
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

    /// The pending items of a stored run that are open in its session.
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

    /// The session of a stored run that waits only for another replica to start its next turn, and the end that applies
    /// without that turn. `None` if only this process has runs.
    pub(super) async fn handover_of(&self, run: &RunHandle) -> Result<Option<(Arc<Session>, End)>, Fault> {
        let may_be = match run {
            RunHandle::Stored(stored, pending) => stored.info.state == RunState::Waiting && pending.is_empty(),
            RunHandle::InMemory(_) => false,
        };
        if !may_be || !self.store.runs_move() {
            return Ok(None);
        }
        let session = self.session_of(run).await?;
        let end = session.handed_over(run.id());
        Ok(end.map(|end| (session, end)))
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
                        // It left memory since it was found: a change of this copy would be lost.
                        None => run = self.find(id).await?.ok_or_else(|| faults::run_not_found(id))?,
                    }
                }
                RunHandle::Stored(..) => {
                    // The copy that was found may be outdated: the run may have been in memory since.
                    let loading = LoadingGuard::new(self, id);
                    run = self.find(id).await?.ok_or_else(|| faults::run_not_found(id))?;
                    let end = self.handover_of(&run).await?.map(|(_, end)| end);
                    if let RunHandle::Stored(stored, pending) = &run
                        && let Some((held, opened)) = self.activate_stored(&loading, (stored, pending), end)?
                    {
                        if let Some(opened) = opened {
                            self.opened(&held, opened).await?;
                        }
                        return Ok(held);
                    }
                }
            }
        }
    }

    /// Waits until the pause of a run is written and its users have released it. Only if runs move: a store then
    /// releases the run as soon as the pause is written, and a later change of this copy would be lost.
    async fn release_settled(&self, run: &Arc<ActiveRun>) -> Result<(), Fault> {
        if !self.store.runs_move() {
            return Ok(());
        }
        if let Some(pause) = run.settling().filter(|_| run.run_state().is_waiting()) {
            let visible = timeout(RELEASE_TIMEOUT, until_visible(run, pause)).await;
            visible.map_err(|_| faults::store_unavailable())?;
        }
        let unheld = timeout(RELEASE_TIMEOUT, until_unheld(run)).await;
        unheld.map_err(|_| faults::store_unavailable())?;
        self.release_if_idle(run);
        Ok(())
    }

    /// Waits until the store has recorded that this process has the run.
    async fn opened(&self, run: &Arc<ActiveRun>, opened: StoreFuture<()>) -> Result<(), Fault> {
        let Err(error) = opened.await else { return Ok(()) };
        // A store of one process writes the copy later. Otherwise another replica may have the run.
        if self.store.runs_move() || matches!(error, StoreError::Fenced) {
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

    /// Counts a follower of a run that another replica may drive. `None`: nothing more will happen in it, or this
    /// process drives all runs.
    pub(super) fn count_elsewhere(&self, run: &RunHandle) -> Result<Option<(PinnedRun, usize)>, Fault> {
        let RunHandle::Stored(stored, pending) = run else { return Ok(None) };
        if stored.info.state.is_ended() {
            return Ok(None);
        }
        if let Some(known) = self.elsewhere.follow(run.id()) {
            return Ok(Some(known));
        }
        let Some(updates) = self.store.follow(run.id(), stored.record.len()) else { return Ok(None) };
        let copy = self.copy(stored, pending)?;
        Ok(Some(self.elsewhere.add_and_follow(&copy, updates)))
    }

    /// A copy of a stored run, which does not grow.
    pub(super) fn copy(&self, stored: &StoredRun, pending: &[Pending]) -> Result<Arc<ActiveRun>, Fault> {
        let agent = self.agents.of_stored_run(&stored.record.run().agent);
        let copy = ActiveRun::from_stored(agent.ok_or_else(|| Fault::not_found("the run's agent"))?, stored);
        copy.update(Publish::Now, |state| state.pending = pending.to_vec());
        Ok(copy)
    }

    /// Brings a loaded run into memory unless it is there, and opens it in the store. `None`: it was in memory since it
    /// was loaded, and has to be loaded again. `end`: applies if no queued turn of another replica starts.
    fn activate_stored(
        self: &Arc<Self>,
        loading: &LoadingGuard,
        (stored, pending): (&StoredRun, &[Pending]),
        end: Option<End>,
    ) -> Result<Option<Activated>, Fault> {
        let agent = self.agents.of_stored_run(&stored.record.run().agent);
        let agent = agent.ok_or_else(|| Fault::not_found("the run's agent"))?;
        let run = ActiveRun::from_stored(agent, stored);
        run.update(Publish::Now, |state| {
            state.pending = pending.to_vec();
            state.fallback = end.map(RunState::Ended);
        });

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

    /// Keeps a run in memory. `None`: it left memory, and another copy may be there.
    fn hold(self: &Arc<Self>, run: &PinnedRun) -> Option<HeldRun> {
        let active = self.lock();
        // Any copy of a run that has ended is the latest one.
        (active.holds(run) || run.run_state().is_ended()).then(|| HeldRun::new(self, run))
    }

    /// The number of turns that have ended since the process began.
    pub(crate) fn turns_ended(&self) -> u64 {
        self.turns_ended.load(Ordering::Relaxed)
    }

    /// Counts the end of a turn, and releases its run.
    pub(crate) fn turn_ended(&self, run: &Arc<ActiveRun>) {
        self.turns_ended.fetch_add(1, Ordering::Relaxed);
        self.release(run);
    }

    /// Takes a run out of memory that is lost, that has ended and cannot be found, or that nothing needs here.
    pub(super) fn release(&self, run: &Arc<ActiveRun>) {
        if run.is_lost() {
            return self.remove_copy(run);
        }
        let is_over = run.view(|view| !view.info.stored && view.run().end.is_some());
        if is_over {
            // Clients cannot find it again. Its followers still see its end.
            self.remove(run.id());
            drop(self.store.remove(run.id()));
            return;
        }
        self.release_if_idle(run);
    }

    /// Takes a run out of memory if it is safe in the store and nothing needs it here.
    pub(super) fn release_if_idle(&self, run: &Arc<ActiveRun>) {
        // Under the lock: no call finds it meanwhile, and another copy of the same id stays.
        let mut active = self.lock();
        if !active.holds(run) {
            drop(active);
            return self.elsewhere.release_if_unfollowed(run);
        }
        if run.is_idle() || (self.store.runs_move() && run.is_at_rest()) {
            active.remove(run.id());
            drop(active);
            self.let_go(run);
        }
    }

    /// Releases a run that left memory. Its followers in this process continue with a copy that any process extends.
    fn let_go(&self, run: &Arc<ActiveRun>) {
        // Also a run that was only held here, without a turn.
        self.store.let_go(&run.journal());
        if run.is_followed() && !run.run_state().is_ended() {
            self.elsewhere.add(run);
        }
    }

    /// Makes a run that has ended impossible to find.
    pub(crate) fn forget(&self, run: &RunHandle) {
        match run {
            RunHandle::InMemory(run) => {
                run.update(Publish::Later, |state| state.about.stored = false);
                self.turn_ended(run);
            }
            RunHandle::Stored(stored, _) => drop(self.store.remove(stored.record.run().id)),
        }
    }

    /// True while new runs are accepted.
    pub(crate) fn is_accepting(&self) -> bool {
        self.is_accepting.load(Ordering::Relaxed)
    }

    /// True once the shutdown is announced, even if new runs are still accepted.
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

    /// Stops all turns under way because the gateway closes, and refuses queued ones from now on.
    pub(crate) fn stop_turns(&self) {
        self.is_stopped.store(true, Ordering::Release);
        for run in self.active() {
            run.stop(Some(faults::shutting_down()));
        }
    }

    /// True once all turns under way were stopped because the gateway closes.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// True once the gateway is closed: no run has another step.
    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Resolves once the gateway is closed.
    pub(super) async fn wait_closed(&self) {
        // The sender lives as long as the table.
        let _ = self.closed.subscribe().wait_for(|is_closed| *is_closed).await;
    }

    /// Closes the gateway: no run has another step, and followers of waiting runs stop.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
        for run in self.active().into_iter().chain(self.elsewhere.all()) {
            run.wake_followers();
        }
    }
}

/// A load of a run into memory.
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

    /// True if a copy that was loaded since is not outdated.
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

/// Keeps a run in memory between two turns. On drop, the run leaves memory unless a turn is under way by then or others
/// need it.
pub(crate) struct HeldRun {
    runs: Arc<RunTable>,
    run: PinnedRun,
}

impl HeldRun {
    /// Called with the table locked and the run in it, so that no call removes it in between.
    fn new(runs: &Arc<RunTable>, run: &Arc<ActiveRun>) -> Self {
        run.hold();
        Self { runs: Arc::clone(runs), run: run.pin() }
    }

    /// Releases the run, and waits until the turn that is its last one now has ended.
    pub(crate) async fn release_until_turn_ended(self) {
        let (runs, run) = (Arc::clone(&self.runs), Arc::clone(&self.run));
        let last = run.view(|view| view.run().turns.len()).saturating_sub(1);
        drop(self);
        until_turn_ended(&run, last).await;
        runs.release_if_idle(&run);
    }

    /// The run for readers.
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
        if self.run.state().is_released {
            // Another caller may wait to load it again.
            self.run.wake_followers();
        }
        self.runs.release_if_idle(&self.run);
    }
}
