//! A run in memory: its record under a lock, its followers, and the flag that stops it.
//!
//! Not here: the driver of a run ([`crate::turns::driver`]), and all runs in memory ([`super::table`]).

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

/// Events of a run without readers are evicted after it has grown by this many bytes.
const MIN_EVICTED: usize = 1 << 20;

/// A run in memory.
pub struct ActiveRun {
    id: RunId,
    pub(crate) agent: Arc<Agent>,
    dirty: DirtyFlag,
    state: Mutex<State>,
    /// Number of keep-alives without content that the agent has sent.
    keep_alives: AtomicU64,
    /// Number of users that need it in memory although no turn is under way.
    pub(super) holders: AtomicUsize,
    /// Number of readers. While there are any, no event is evicted.
    readers: AtomicUsize,
    /// True once the metrics count its end.
    counted: AtomicBool,
    /// Stops the turn under way.
    pub(crate) cancel: CancelFlag,
}

/// The part of a run under the lock.
pub(crate) struct State {
    pub(crate) record: Record,
    pub(crate) about: RunInfo,
    /// The open items that the run waits for.
    pub(crate) pending: Vec<Pending>,
    /// The authenticated name of the caller of the last turn.
    pub(crate) caller: Option<Arc<str>>,
    /// The reason why it was canceled, if not by its client.
    pub(crate) cancel_reason: Option<Fault>,
    /// True if it ends with the turn under way.
    pub(crate) ends_after_turn: bool,
    /// Number of turns of this process that wait for the one under way.
    pub(super) queued_turns: usize,
    /// The state of the run if none of its queued turns starts. `Some`: its last turn has ended and a turn in the queue
    /// of its session is next, so clients see the run as running.
    pub(crate) fallback: Option<RunState>,
    /// True if the store may have released the run with its last write: its next turn starts in a copy that is loaded
    /// again.
    pub(crate) is_released: bool,
    visibility: Visibility,
    pub(super) followers: Followers,
    /// Wakes a task that waits until everything is safe.
    safe_waker: Option<Waker>,
    /// Wakes the driver while a slow reader or the store holds it back.
    paused: Option<Waker>,
    /// True after a panic that left the record incomplete: nothing of it is read any more.
    pub(super) broken: bool,
    /// True after another replica has taken the run over, or it cannot be followed any more.
    pub(super) lost: bool,
    /// The size of the record when its first events were evicted last, in bytes.
    evicted_at: usize,
}

/// The part of a change that followers see, and the time when they see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    /// Everything once it is safe, except the end of a turn. Wakes followers now.
    Now,
    /// The same as [`Publish::Now`], without waking followers: another change is likely to follow at once.
    Deferred,
    /// Nothing yet: the change is made safe first.
    Later,
    /// Everything once it is safe, the end of a turn included.
    Concluded,
    /// Everything, safe or not: for ends that replace events that could not be written.
    Forced,
}

/// The activity in a run, for metrics.
pub(crate) struct Load {
    pub(crate) is_working: bool,
    pub(crate) followers: usize,
    pub(crate) queued: usize,
}

/// The request of a follower after a step.
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
        // The process that ended it counted it.
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
                queued_turns: 0,
                fallback: None,
                is_released: false,
                visibility,
                followers: Followers::default(),
                safe_waker: None,
                paused: None,
                broken: false,
                lost: false,
                evicted_at: 0,
            }),
            keep_alives: AtomicU64::new(0),
            holders: AtomicUsize::new(0),
            readers: AtomicUsize::new(0),
            counted,
            cancel: CancelFlag::default(),
        })
    }

    /// The state. The record is whole even after a panic under the lock: it changes by single calls.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the run.
    #[must_use]
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// The run as the store reads it.
    pub(crate) fn journal(self: &Arc<Self>) -> Arc<dyn Journal> {
        Arc::clone(self) as Arc<dyn Journal>
    }

    /// The current state.
    pub(crate) fn run_state(&self) -> RunState {
        self.state().about.state
    }

    /// Shows the current run to the gateway itself: its last events may not be safe yet.
    pub fn view<T>(&self, read: impl FnOnce(RunView<'_>) -> T) -> T {
        read(self.state().view())
    }

    /// Shows the part of the run that clients may see: the safe events, and the input of a new run.
    pub fn view_safe<T>(&self, read: impl FnOnce(RunView<'_>) -> T) -> T {
        let state = self.state();
        let upto = state.visibility.visible_in_view();
        if upto >= state.record.len() && state.fallback.is_none() {
            return read(state.view());
        }

        // Rare, and never for a stream: a copy, so that the lock is free during the read.
        let (mut record, mut about) = (state.record.clone(), state.about.clone());
        let (concluding, is_handed_over) = (!record.in_turn(), state.fallback.is_some());
        let pending = if concluding { Vec::new() } else { state.pending.clone() };
        drop(state);

        let turns = record.run().turns.len();
        record.rewind(upto);
        // No event of a short turn may be safe yet.
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
        (state.about.state.is_waiting() && state.fallback.is_none() && all_read).then(|| read(state.view()))
    }

    /// Changes the run, and publishes the change as `publish` demands.
    pub(crate) fn update<T>(&self, publish: Publish, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        state.publish(publish);
        result
    }

    /// Changes the turn under way, for its driver. Fails if the run was ended from outside, which ended the turn, too:
    /// with the reason, or as canceled.
    pub(crate) fn update_turn<T>(&self, publish: Publish, change: impl FnOnce(&mut State) -> T) -> Result<T, Fault> {
        self.update(publish, |state| match state.record.in_turn() {
            true => Ok(change(state)),
            false => Err(state.cancel_reason.clone().unwrap_or_else(faults::canceled)),
        })
    }

    /// Publishes earlier changes as `publish` demands.
    pub(crate) fn publish(&self, publish: Publish) {
        self.state().publish(publish);
    }

    /// Wakes followers if more events are visible than at the last wake-up.
    pub(crate) fn notify(&self) {
        self.state().notify();
    }

    /// Wakes followers even without new visible events.
    pub(super) fn wake_followers(&self) {
        self.state().followers.wake();
    }

    /// True if the store does not survive this process, so that every event is safe at once.
    pub(crate) fn is_safe_at_once(&self) -> bool {
        self.state().visibility.is_safe_at_once()
    }

    /// Counts a keep-alive without content from the agent, and wakes followers.
    pub(crate) fn keep_alive(&self) {
        self.keep_alives.fetch_add(1, Ordering::Relaxed);
        self.wake_followers();
    }

    /// Number of keep-alives without content that the agent has sent.
    pub(super) fn keep_alives(&self) -> u64 {
        self.keep_alives.load(Ordering::Relaxed)
    }

    /// True for a run that is not stored and that no client can find.
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

        // The next turn may have started already: this stops its driver.
        state.cancel_reason.get_or_insert_with(faults::not_written);
        self.cancel.set();
        let upto = state.visibility.visible_in_view();
        state.record.rewind(upto);
        state.cut(End::Failed, Some(error));
        self.dirty.bump_generation();
        state.publish(Publish::Forced);
        true
    }

    /// Stops the turn under way, or the next one if the run waits only for a queued turn. Clients see `reason` instead
    /// of `canceled`. No effect on a run that waits. Without a reason, the client of a turn has left: no effect on the
    /// turns of other clients that are queued.
    pub(crate) fn stop(&self, reason: Option<Fault>) {
        let mut state = self.state();
        let is_of_others = reason.is_none() && state.fallback.is_some();
        if is_of_others || !state.about.state.is_working() {
            return;
        }
        if state.cancel_reason.is_none() {
            state.cancel_reason = reason;
        }
        self.cancel.set();
        // Between two turns, the queued ones end the run.
        state.followers.wake();
    }

    /// Stops the turn under way, or the queued one that is next, and ends the run with it whatever its result is.
    /// False: the run waits or has ended.
    pub(crate) fn end(&self) -> bool {
        let mut state = self.state();
        let is_working = state.about.state.is_working();
        if is_working {
            state.ends_after_turn = true;
            self.cancel.set();
            // Between two turns, the queued ones end the run.
            state.followers.wake();
        }
        is_working
    }

    /// The number of visible events, and true if the run never has another one.
    pub(crate) fn published(&self) -> (u64, bool) {
        let state = self.state();
        (state.visibility.visible(), state.is_over())
    }

    /// The sequence number of an event that ends a turn and is not visible yet.
    pub(super) fn settling(&self) -> Option<u64> {
        let state = self.state();
        state.is_settling().then(|| state.record.len() - 1)
    }

    /// Waits until the run is lost, or its driver may continue. Only the driver waits: a second task would replace it.
    pub(super) fn poll_resumed(
        &self,
        context: &Context<'_>,
        may_continue: impl FnOnce(&mut State) -> bool,
    ) -> Poll<()> {
        let mut state = self.state();
        if state.lost || may_continue(&mut state) {
            state.paused = None;
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

    /// Removes a follower. True if it was the last attached one and the run has not ended.
    pub(super) fn remove_follower(&self, index: usize) -> bool {
        let mut state = self.state();
        let was_last_attached = state.followers.remove(index);
        if let Some(paused) = state.paused.take() {
            paused.wake();
        }
        was_last_attached && !state.record.is_finished()
    }

    /// Lets the run continue when this follower leaves.
    pub(super) fn detach_follower(&self, index: usize) {
        self.state().followers.detach(index);
    }

    /// The run for a reader: no further event is evicted. Events that were evicted before are missing until
    /// [`ActiveRun::restore`].
    pub(crate) fn pin(self: &Arc<Self>) -> PinnedRun {
        PinnedRun::new(self)
    }

    /// True if none of its events is evicted.
    pub(super) fn is_whole(&self) -> bool {
        self.state().record.is_whole()
    }

    /// Restores evicted events. False if the stored run does not have them.
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

    /// Counts the end of a run that has ended, once.
    pub(crate) fn count_end(&self) {
        let state = self.state();
        let is_ended = state.about.state.is_ended() && !state.broken;
        if is_ended && !self.counted.swap(true, Ordering::Relaxed) {
            end_metrics::report(state.view(), state.caller.as_ref(), &self.agent.metrics);
        }
    }

    /// The current numbers of followers and queued turns.
    pub(crate) fn load(&self) -> Load {
        let state = self.state();
        let is_queued = state.about.state == RunState::Queued;
        Load {
            is_working: state.about.state.is_working(),
            // Each queued turn follows the run, too.
            followers: state.followers.len().saturating_sub(state.queued_turns),
            queued: state.queued_turns + usize::from(is_queued),
        }
    }

    /// True if nothing needs it in memory: no turn, no holder, no follower, no pending write of an end.
    pub(super) fn is_idle(&self) -> bool {
        if self.holders.load(Ordering::Acquire) > 0 {
            return false;
        }
        let state = self.state();
        state.is_at_rest() && state.queued_turns == 0 && state.followers.is_empty()
    }

    /// True if this process need not keep a run that other replicas may drive: no turn, no holder, no pending write of
    /// an end.
    pub(super) fn is_at_rest(&self) -> bool {
        self.holders.load(Ordering::Acquire) == 0 && self.state().is_at_rest()
    }

    /// True if it has a follower.
    pub(super) fn is_followed(&self) -> bool {
        !self.state().followers.is_empty()
    }

    /// True if another replica took it over, or if it can no longer be followed.
    pub(crate) fn is_lost(&self) -> bool {
        self.state().lost
    }

    /// The reason why its events can no longer be read. `None`: they can.
    pub(crate) fn failure(&self) -> Option<Fault> {
        let state = self.state();
        state.broken.then(|| if state.lost { faults::taken_over() } else { Fault::internal() })
    }

    /// Fences the run: another replica took it over, or it can no longer be followed. Its followers stop without an
    /// end, its driver stops, and no more of it is written. No effect on a run that has ended.
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

    /// Shows steps from `from` on to a follower while `take` wants more. Ready with the next sequence number, or with
    /// `None` if the run never has another step; pending if it has none yet.
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

    /// Shows visible steps from `from` on. Returns the next sequence number and the last result of `take`.
    fn show_steps(&self, from: u64, take: &mut dyn FnMut(RunView<'_>, Step<'_>) -> Take) -> (u64, Take) {
        // Readers load the full run. A waiter that needs only the end skips evicted events.
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

    /// True while the end of a turn is not visible yet.
    pub(super) fn is_settling(&self) -> bool {
        !self.record.in_turn() && self.visibility.visible() < self.record.len()
    }

    /// True if no turn is under way, and the end of the last one is visible.
    fn is_at_rest(&self) -> bool {
        !self.about.state.is_working() && !self.is_settling()
    }

    /// True once its last event is visible.
    pub(super) fn is_over(&self) -> bool {
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

    /// Evicts the first `events` events, which are stored, if they are large enough.
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

    /// Sets the state of the run.
    pub(crate) fn set(&mut self, state: RunState, now: Millis) {
        if self.about.state != state {
            self.about.state = state;
            self.about.changed_at = now.max(self.about.changed_at);
        }
    }

    /// Ends the run in any state, unless it has ended. Its queued turns do not start.
    pub(crate) fn cut(&mut self, end: End, error: Option<RunError>) {
        self.pending.clear();
        self.fallback = None;
        if !self.record.is_finished() {
            let now = clock::now();
            self.record.set_time(now);
            self.record.close(end, error);
            self.set(RunState::Ended(end), now);
        }
    }

    /// Ends a run whose record cannot be ended: its followers stop.
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
        // Under the lock: a later reader notices that events are missing.
        if self.readers.load(Ordering::Acquire) == 0 {
            state.evict(events);
        }
    }
}

/// A run with a reader: no events are evicted until this is dropped.
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
