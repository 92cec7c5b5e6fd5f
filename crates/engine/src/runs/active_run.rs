//! A run in memory: its record under a lock, its followers, and the flag that stops it.
//!
//! Not here: what drives a run forward ([`crate::turns::driver`]), and all runs in memory ([`super::table`]).

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use interlingua_core::call::{RunInfo, RunState, RunView};
use interlingua_core::event::Millis;
use interlingua_core::pending::Pending;
use interlingua_core::run::RunError;
use interlingua_core::{End, Event, Fault, Record, RunId, Step};

use super::cancel_flag::CancelFlag;
use super::end_metrics;
use super::followers::Followers;
use super::unread::UnreadBudget;
use super::visibility::Visibility;
use crate::agent::Agent;
use crate::faults;
use interlingua_base::clock;
use interlingua_store::{DirtyFlag, Journal, StoredRun};

/// Events are evicted once a run without readers has grown by so many bytes.
const MIN_EVICTED: usize = 1 << 20;

/// A run in memory.
pub struct ActiveRun {
    id: RunId,
    pub(crate) agent: Arc<Agent>,
    dirty: DirtyFlag,
    state: Mutex<State>,
    /// How many keep-alives without content the agent has sent.
    keep_alives: AtomicU64,
    /// Number of turns of this process that wait for the one under way.
    pub(super) queued_turns: AtomicUsize,
    /// How many users need it in memory although no turn is under way.
    holders: AtomicUsize,
    /// How many readers it has: none of its events are evicted meanwhile.
    readers: AtomicUsize,
    /// True once its end is counted.
    counted: AtomicBool,
    /// Stops the turn under way.
    pub(crate) cancel: CancelFlag,
}

/// What is under the lock.
pub(crate) struct State {
    pub(crate) record: Record,
    pub(crate) about: RunInfo,
    /// What the run waits for, as far as that is still open.
    pub(crate) pending: Vec<Pending>,
    /// Who called for the last turn, by the name that they proved.
    pub(crate) caller: Option<Arc<str>>,
    /// Why it was canceled, if not by its client.
    pub(crate) cancel_reason: Option<Fault>,
    /// True if it ends with the turn under way.
    pub(crate) ends_after_turn: bool,
    /// True if the run waits only for a turn in its session's queue: clients see it as running.
    pub(crate) is_handed_over: bool,
    visibility: Visibility,
    followers: Followers,
    /// Wakes a task that waits until everything is safe.
    safe_waker: Option<Waker>,
    /// Wakes the driver while a slow reader or the store holds it back.
    paused: Option<Waker>,
    /// True after a panic that left the record incomplete: nothing of it is read any more.
    broken: bool,
    /// True after another replica has taken the run over, or it cannot be followed any more.
    lost: bool,
    /// The size of the record when its first events were evicted last, in bytes.
    evicted_at: usize,
}

/// What followers see of a change, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    /// Everything once it is safe, except the end of a turn. Followers are woken now.
    Now,
    /// As [`Publish::Now`], but followers are not woken yet: more is likely to follow at once.
    Deferred,
    /// Nothing yet: the change is made safe first.
    Later,
    /// Everything once it is safe, the end of a turn included.
    Concluded,
    /// Everything, safe or not: for ends that replace what could not be written.
    Forced,
}

/// What is under way in a run, for metrics.
pub(crate) struct Load {
    pub(crate) is_working: bool,
    pub(crate) followers: usize,
    pub(crate) queued: usize,
}

/// What a follower wants after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The next step.
    More,
    /// No more for now.
    Enough,
    /// No more at all.
    Close,
}

impl ActiveRun {
    /// A new run, of which nothing is safe yet.
    pub(crate) fn new(agent: Arc<Agent>, record: Record, about: RunInfo) -> Arc<Self> {
        Self::with_safe(agent, record, about, 0)
    }

    /// A run from the store.
    pub(crate) fn from_stored(agent: Arc<Agent>, stored: &StoredRun) -> Arc<Self> {
        let safe = stored.record.len();
        Self::with_safe(agent, stored.record.clone(), stored.info.clone(), safe)
    }

    fn with_safe(agent: Arc<Agent>, record: Record, about: RunInfo, safe: u64) -> Arc<Self> {
        let visibility = Visibility::new(&record, safe);
        // It was counted where it was ended.
        let counted = AtomicBool::new(about.state.is_ended());
        Arc::new(Self {
            id: record.run().id,
            agent,
            dirty: DirtyFlag::default(),
            state: Mutex::new(State {
                record,
                about,
                pending: Vec::new(),
                caller: None,
                cancel_reason: None,
                ends_after_turn: false,
                is_handed_over: false,
                visibility,
                followers: Followers::default(),
                safe_waker: None,
                paused: None,
                broken: false,
                lost: false,
                evicted_at: 0,
            }),
            keep_alives: AtomicU64::new(0),
            queued_turns: AtomicUsize::new(0),
            holders: AtomicUsize::new(0),
            readers: AtomicUsize::new(0),
            counted,
            cancel: CancelFlag::default(),
        })
    }

    /// The state. A panic under the lock left the record whole: it changes by single calls.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// As a store sees it.
    pub(crate) fn journal(self: &Arc<Self>) -> Arc<dyn Journal> {
        Arc::clone(self) as Arc<dyn Journal>
    }

    /// Where it stands.
    pub(crate) fn run_state(&self) -> RunState {
        self.state().about.state
    }

    /// Shows the run as it stands, for the gateway's own use: some of it may not be safe yet.
    pub fn view<T>(&self, read: impl FnOnce(RunView<'_>) -> T) -> T {
        read(self.state().view())
    }

    /// Shows the run as clients may see it: as far as it is safe. Of a new run that is its input.
    pub fn view_safe<T>(&self, read: impl FnOnce(RunView<'_>) -> T) -> T {
        let state = self.state();
        let upto = state.visibility.visible_in_view();
        if upto >= state.record.len() && !state.is_handed_over {
            return read(state.view());
        }

        // Rare, and not on the way of a stream: a copy, so that the lock is free while it is read.
        let (mut record, mut about) = (state.record.clone(), state.about.clone());
        let (concluding, is_handed_over) = (!record.in_turn(), state.is_handed_over);
        let pending = if concluding { Vec::new() } else { state.pending.clone() };
        drop(state);

        let turns = record.run().turns.len();
        record.rewind(upto);
        // Of a short turn nothing at all may be safe yet.
        let is_under_way = record.in_turn() || record.run().turns.len() < turns;
        if is_handed_over || (concluding && is_under_way) {
            about.state = RunState::Running;
        }

        read(RunView { record: &record, info: &about, pending: &pending })
    }

    /// Shows the run if it waits between two turns and all its events, up to `next`, were read.
    pub(super) fn if_paused<T>(&self, next: u64, read: impl FnOnce(RunView<'_>) -> T) -> Option<T> {
        let state = self.state();
        let all_read = state.visibility.visible() == state.record.len() && next == state.record.len();
        (state.about.state.is_waiting() && !state.is_handed_over && all_read).then(|| read(state.view()))
    }

    /// Changes the run, and lets followers see of it what `publish` says.
    pub(crate) fn update<T>(&self, publish: Publish, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        state.publish(publish);
        result
    }

    /// Changes the turn under way, for its driver. Refused if the run was ended from outside, which ended the turn, too:
    /// with the reason, or as canceled.
    pub(crate) fn update_turn<T>(&self, publish: Publish, change: impl FnOnce(&mut State) -> T) -> Result<T, Fault> {
        self.update(publish, |state| match state.record.in_turn() {
            true => Ok(change(state)),
            false => Err(state.cancel_reason.clone().unwrap_or_else(faults::canceled)),
        })
    }

    /// Lets followers see what is there, as `publish` says.
    pub(crate) fn publish(&self, publish: Publish) {
        self.state().publish(publish);
    }

    /// Wakes followers if there is more to see than when they were woken last.
    pub(crate) fn notify(&self) {
        self.state().notify();
    }

    /// Wakes followers even if there is nothing new to see.
    pub(super) fn wake_followers(&self) {
        self.state().followers.wake();
    }

    /// True if events are as safe at once as they will ever be.
    pub(crate) fn is_safe_at_once(&self) -> bool {
        self.state().visibility.is_safe_at_once()
    }

    /// The agent sent a keep-alive without content: followers are woken for it.
    pub(crate) fn keep_alive(&self) {
        self.keep_alives.fetch_add(1, Ordering::Relaxed);
        self.wake_followers();
    }

    /// How many keep-alives without content the agent has sent.
    pub(super) fn keep_alives(&self) -> u64 {
        self.keep_alives.load(Ordering::Relaxed)
    }

    /// True for a run that is not to be found and that the store does not know.
    pub(crate) fn is_unobserved(&self) -> bool {
        let state = self.state();
        !state.about.stored && !state.visibility.is_stored()
    }

    /// Waits until all events so far are safe, or the run is lost.
    pub(super) fn poll_safe(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.lost || state.visibility.is_safe(&state.record) {
            return Poll::Ready(());
        }
        state.safe_waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Discards events that could not be written in time, none of which was visible, and ends the run as failed. False
    /// if they are safe after all.
    pub(super) fn fail_unwritten(&self, error: RunError) -> bool {
        let mut state = self.state();
        if state.visibility.is_safe(&state.record) {
            return false;
        }

        // The next turn may have started already: its driver stops.
        state.cancel_reason.get_or_insert_with(faults::not_written);
        self.cancel.set();
        let upto = state.visibility.visible_in_view();
        state.record.rewind(upto);
        state.cut(End::Failed, Some(error));
        self.dirty.bump_generation();
        state.publish(Publish::Forced);
        true
    }

    /// Stops the turn under way. Its clients see `reason` instead of `canceled`. A run between two turns is not
    /// changed.
    pub(crate) fn stop(&self, reason: Option<Fault>) {
        let mut state = self.state();
        if !state.about.state.is_working() {
            return;
        }
        if state.cancel_reason.is_none() {
            state.cancel_reason = reason;
        }
        self.cancel.set();
    }

    /// Stops the turn under way and ends the run with it, whatever the turn has come to. False: no turn is under way.
    pub(crate) fn end(&self) -> bool {
        let mut state = self.state();
        let is_working = state.about.state.is_working();
        if is_working {
            state.ends_after_turn = true;
            self.cancel.set();
        }
        is_working
    }

    /// How many events are visible, and true if there will never be more.
    pub(crate) fn published(&self) -> (u64, bool) {
        let state = self.state();
        (state.visibility.visible(), state.is_over())
    }

    /// The sequence number of an event that ends a turn and is still on its way into the store.
    pub(super) fn settling(&self) -> Option<u64> {
        let state = self.state();
        state.is_settling().then(|| state.record.len() - 1)
    }

    /// Waits until less than `bound` bytes are not safe, less are unread by the fastest attached follower, and the
    /// budget has room.
    pub(super) fn poll_capacity(&self, context: &Context<'_>, bound: usize, unread: &Arc<UnreadBudget>) -> Poll<()> {
        let mut state = self.state();
        if state.lost || state.has_room(bound, unread) {
            state.paused = None;
            return Poll::Ready(());
        }
        state.paused = Some(context.waker().clone());
        Poll::Pending
    }

    /// Waits until less than `bound` bytes are not safe.
    pub(super) fn poll_written(&self, context: &Context<'_>, bound: usize) -> Poll<()> {
        let mut state = self.state();
        if state.lost || !state.is_behind(bound) {
            return Poll::Ready(());
        }
        state.paused = Some(context.waker().clone());
        Poll::Pending
    }

    /// Adds a follower. A run that has attached followers is canceled when the last of them leaves.
    pub(super) fn add_follower(&self, attached: bool) -> usize {
        let mut state = self.state();
        let size = state.record.size();
        state.followers.add(size, attached)
    }

    /// Removes a follower. True if it was the last attached one and the run goes on.
    pub(super) fn remove_follower(&self, index: usize) -> bool {
        let mut state = self.state();
        let was_last_attached = state.followers.remove(index);
        if let Some(paused) = state.paused.take() {
            paused.wake();
        }
        was_last_attached && !state.record.is_finished()
    }

    /// The run for a reader. It keeps what it has; if events were evicted before, they are missing until
    /// [`ActiveRun::restore`].
    pub(crate) fn pin(self: &Arc<Self>) -> PinnedRun {
        PinnedRun::new(self)
    }

    /// True if nothing of it is evicted.
    pub(super) fn is_whole(&self) -> bool {
        self.state().record.is_whole()
    }

    /// Gets evicted events back. False if the stored run does not have them.
    pub(super) fn restore(&self, stored: &Record) -> bool {
        let mut state = self.state();
        state.evicted_at = state.record.size();
        state.record.restore(stored)
    }

    /// Keeps it in memory until [`ActiveRun::release`].
    pub(super) fn hold(&self) {
        self.holders.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn release(&self) {
        self.holders.fetch_sub(1, Ordering::AcqRel);
    }

    /// Counts its end, once, if it has ended.
    pub(crate) fn count_end(&self) {
        let state = self.state();
        let is_ended = state.about.state.is_ended() && !state.broken;
        if is_ended && !self.counted.swap(true, Ordering::Relaxed) {
            end_metrics::report(state.view(), state.caller.as_ref(), &self.agent.metrics);
        }
    }

    /// How many readers it has now, and how many turns wait in it.
    pub(crate) fn load(&self) -> Load {
        let state = self.state();
        let is_queued = state.about.state == RunState::Queued;
        Load {
            is_working: state.about.state.is_working(),
            followers: state.followers.len(),
            queued: self.queued_turns.load(Ordering::Relaxed) + usize::from(is_queued),
        }
    }

    /// True if nothing needs it in memory: no turn, no holder, no follower, nothing on its way into the store.
    pub(super) fn is_idle(&self) -> bool {
        if self.holders.load(Ordering::Acquire) > 0 {
            return false;
        }
        let state = self.state();
        state.is_at_rest() && !state.is_handed_over && state.followers.is_empty()
    }

    /// True if nothing needs a run here that other replicas may drive: no turn, no holder, nothing on its way into the
    /// store.
    pub(super) fn is_at_rest(&self) -> bool {
        self.holders.load(Ordering::Acquire) == 0 && self.state().is_at_rest()
    }

    /// True if its last turn was stopped, and not by its client.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state().cancel_reason.is_some()
    }

    /// True if someone follows it.
    pub(super) fn is_followed(&self) -> bool {
        !self.state().followers.is_empty()
    }

    /// True if another replica has it, or it cannot be followed any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.state().lost
    }

    /// Why its events cannot be read any more, if they cannot.
    pub(super) fn failure(&self) -> Option<Fault> {
        let state = self.state();
        state.broken.then(|| if state.lost { faults::taken_over() } else { faults::internal() })
    }

    /// Another replica has it, or it cannot be followed any more: its followers leave without an end, its driver stops,
    /// and nothing of it is written. What has ended stays as it is.
    pub(super) fn lose(&self) {
        let mut state = self.state();
        if state.is_over() || state.lost {
            return;
        }

        state.lost = true;
        state.cancel_reason = Some(faults::taken_over());
        state.abandon();
        for waiting in [state.safe_waker.take(), state.paused.take()].into_iter().flatten() {
            waiting.wake();
        }
        drop(state);
        self.cancel.set();
    }

    /// Shows steps from `from` on to a follower, as long as `take` wants more. Ready with the next sequence number, or
    /// `None` if there will never be another step; pending if there is none yet.
    pub(super) fn poll_steps(
        &self,
        follower: usize,
        from: u64,
        context: &Context<'_>,
        take: &mut dyn FnMut(RunView<'_>, Step<'_>) -> Take,
    ) -> Poll<Option<(u64, Take)>> {
        let mut state = self.state();
        if state.broken {
            return Poll::Ready(None);
        }

        let (next, last) = state.show_steps(from, take);
        let caught_up = next == state.visibility.visible();
        let is_pending = next == from;
        if is_pending && caught_up && state.is_over() {
            return Poll::Ready(None);
        }

        let size = state.record.size();
        let paused = state.paused.take_if(|_| caught_up);
        if caught_up {
            state.followers.caught_up(follower, size);
        }

        if is_pending {
            state.followers.register(follower, context.waker());
        }

        drop(state);

        if let Some(paused) = paused {
            paused.wake();
        }

        if is_pending { Poll::Pending } else { Poll::Ready(Some((next, last))) }
    }
}

impl State {
    fn view(&self) -> RunView<'_> {
        RunView { record: &self.record, info: &self.about, pending: &self.pending }
    }

    /// Shows visible steps from `from` on; returns the next sequence number and what `take` said last.
    fn show_steps(&self, from: u64, take: &mut dyn FnMut(RunView<'_>, Step<'_>) -> Take) -> (u64, Take) {
        // Readers have a whole run; who only waits for an end need not read what is evicted.
        let (mut next, mut last) = (from.max(self.record.evicted()), Take::More);
        while next < self.visibility.visible() {
            let Some(step) = self.record.step(next) else { break };
            last = take(self.view(), step);
            next += 1;
            if last != Take::More || matches!(step.event, Event::RunFinished { .. }) {
                break;
            }
        }
        (next, last)
    }

    /// True while the end of a turn is on its way into the store.
    fn is_settling(&self) -> bool {
        !self.record.in_turn() && self.visibility.visible() < self.record.len()
    }

    /// True if no turn is under way, and none is being written.
    fn is_at_rest(&self) -> bool {
        !self.about.state.is_working() && !self.is_settling()
    }

    /// True once its last event is visible.
    fn is_over(&self) -> bool {
        self.record.is_finished() && self.visibility.visible() == self.record.len()
    }

    /// True unless the store or all attached followers are too far behind.
    pub(crate) fn has_room(&mut self, bound: usize, unread: &Arc<UnreadBudget>) -> bool {
        !self.is_behind(bound) && self.followers.has_room(self.record.size(), bound, unread)
    }

    /// True if the store is too far behind.
    pub(super) fn is_behind(&self, bound: usize) -> bool {
        self.visibility.is_behind(&self.record, bound)
    }

    /// True once the agent has begun to work on the turn under way.
    pub(crate) fn has_begun(&self) -> bool {
        self.record.run().turn().is_some_and(|turn| turn.answer_started)
    }

    fn publish(&mut self, publish: Publish) {
        let Self { record, visibility, .. } = self;
        match publish {
            Publish::Now | Publish::Deferred => visibility.record_grew(record),
            Publish::Later => {}
            Publish::Concluded => visibility.conclude(record),
            Publish::Forced => visibility.force(record),
        }

        if !matches!(publish, Publish::Deferred | Publish::Later) {
            self.notify();
        }
    }

    fn committed(&mut self, events: u64) {
        self.visibility.committed(events);
        self.notify();
        if let Some(paused) = self.paused.take() {
            paused.wake();
        }
        if self.visibility.is_safe(&self.record)
            && let Some(waiting) = self.safe_waker.take()
        {
            waiting.wake();
        }
    }

    /// Evicts the first `events` events, which the store has, if that is worth it.
    fn evict(&mut self, events: u64) {
        let is_found_later = self.about.stored && self.record.in_turn();
        let has_grown = self.record.size() >= self.evicted_at + MIN_EVICTED;
        if is_found_later && has_grown && events <= self.visibility.visible() {
            self.record.evict(events);
            self.evicted_at = self.record.size();
        }
    }

    fn notify(&mut self) {
        if self.visibility.take_news() {
            self.followers.wake();
        }
    }

    /// Sets where the run stands.
    pub(crate) fn set(&mut self, state: RunState, now: Millis) {
        if self.about.state != state {
            self.about.state = state;
            self.about.changed_at = now.max(self.about.changed_at);
        }
    }

    /// Ends the run in any state, unless it has ended. Queued turns are not taken.
    pub(crate) fn cut(&mut self, end: End, error: Option<RunError>) {
        self.pending.clear();
        self.is_handed_over = false;
        if !self.record.is_finished() {
            let now = clock::now();
            self.record.set_time(now);
            self.record.close(end, error);
            self.set(RunState::Ended(end), now);
        }
    }

    /// Ends a run whose record cannot be ended: its followers leave.
    pub(super) fn abandon(&mut self) {
        self.broken = true;
        self.about.state = RunState::Ended(End::Failed);
        self.pending.clear();
        self.followers.wake();
    }
}

impl Journal for ActiveRun {
    fn id(&self) -> RunId {
        self.id
    }

    fn with(&self, read: &mut dyn FnMut(&Record, &RunInfo)) {
        let state = self.state();
        read(&state.record, &state.about);
    }

    fn dirty_flag(&self) -> &DirtyFlag {
        &self.dirty
    }

    fn committed(&self, events: u64) {
        self.state().committed(events);
    }

    fn lost(&self) {
        self.lose();
    }

    fn archived(&self, events: u64) {
        let mut state = self.state();
        // Under the lock: a reader that comes from now on finds out that something is missing.
        if self.readers.load(Ordering::Acquire) == 0 {
            state.evict(events);
        }
    }
}

/// A run that is being read: no events are evicted until this is dropped.
pub struct PinnedRun(Arc<ActiveRun>);

impl PinnedRun {
    fn new(run: &Arc<ActiveRun>) -> Self {
        run.readers.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(run))
    }
}

impl Clone for PinnedRun {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for PinnedRun {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Deref for PinnedRun {
    type Target = Arc<ActiveRun>;

    fn deref(&self) -> &Arc<ActiveRun> {
        &self.0
    }
}
