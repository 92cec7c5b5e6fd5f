//! A run in memory: its record under a lock, who follows it, and who may stop it.
//!
//! Not here: what drives a run forward ([`super::driver`]) and where it is kept ([`crate::store`]).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use futures_util::task::AtomicWaker;

use interlingua_core::call::{RunInfo, RunState, RunView};
use interlingua_core::event::{Event, Millis};
use interlingua_core::pending::Pending;
use interlingua_core::{End, Fault, Record, RunId};

use super::shown::Visible;
use super::{Agent, clock};
use crate::store::{DirtyFlag, Journal, StoredRun};

/// A run in memory.
pub struct ActiveRun {
    id: RunId,
    /// Its agent.
    pub(super) agent: Arc<Agent>,
    mark: DirtyFlag,
    state: Mutex<State>,
    /// How often the agent said nothing but that it lives.
    beats: AtomicU64,
    /// How many need it in memory although it has no turn under way.
    holders: AtomicUsize,
    /// Stops the turn under way.
    pub(super) cancel: Stop,
}

/// Tells a run's pump to stop: one flag, one listener. Looked at with every chunk, so it costs next to nothing.
#[derive(Default)]
pub(super) struct Stop {
    told: AtomicBool,
    listener: AtomicWaker,
}

impl Stop {
    fn tell(&self) {
        self.told.store(true, Ordering::Release);
        self.listener.wake();
    }

    /// Takes it back, for the next turn.
    pub(super) fn reset(&self) {
        self.told.store(false, Ordering::Release);
    }

    /// True once it was told.
    pub(super) fn is_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    /// Ready once it was told.
    pub(super) fn poll_told(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_told() {
            return Poll::Ready(());
        }
        self.listener.register(context.waker());
        if self.is_told() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until it is told.
    pub(super) async fn told(&self) {
        std::future::poll_fn(|context| self.poll_told(context)).await;
    }
}

/// What is under the lock.
pub(super) struct State {
    pub(super) record: Record,
    pub(super) about: RunInfo,
    /// What the run waits for, as far as that is still open.
    pub(super) pending: Vec<Pending>,
    /// How much of the record may be seen.
    shown: Visible,
    /// Whoever waits until everything is safe.
    awaits_safety: Option<Waker>,
    followers: Vec<Option<Follows>>,
    /// The pump, while it is held back by a slow reader.
    held: Option<Waker>,
    /// Turns that wait for the one under way.
    pub(super) queued: Vec<super::driver::Turn>,
    /// Why it was cancelled, if not by its client.
    pub(super) cancelled_for: Option<Fault>,
    /// It ends with the turn under way.
    pub(super) ends: bool,
    /// A mistake of the gateway left the record in pieces: nothing of it is looked at any more.
    broken: bool,
}

/// Somebody who follows a run.
struct Follows {
    /// The record's size when this follower had seen all of it last.
    seen: usize,
    waker: Option<Waker>,
    attached: bool,
}

impl ActiveRun {
    /// A new run, of which nothing is safe yet.
    pub(super) fn new(agent: Arc<Agent>, record: Record, about: RunInfo) -> Arc<Self> {
        Self::made(agent, record, about, 0)
    }

    /// A run out of the store.
    pub(super) fn stored(agent: Arc<Agent>, stored: &StoredRun) -> Arc<Self> {
        let safe = stored.record.len();
        Self::made(agent, stored.record.clone(), stored.info.clone(), safe)
    }

    fn made(agent: Arc<Agent>, record: Record, about: RunInfo, safe: u64) -> Arc<Self> {
        let shown = Visible::new(&record, safe);
        Arc::new(Self {
            id: record.run().id,
            agent,
            mark: DirtyFlag::default(),
            state: Mutex::new(State {
                record,
                about,
                pending: Vec::new(),
                shown,
                awaits_safety: None,
                followers: Vec::new(),
                held: None,
                queued: Vec::new(),
                cancelled_for: None,
                ends: false,
                broken: false,
            }),
            beats: AtomicU64::new(0),
            holders: AtomicUsize::new(0),
            cancel: Stop::default(),
        })
    }

    /// The state. A panic under the lock left the record whole: it changes by single calls.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// Shows the run as it stands, for the gateway's own purposes: some of it may not be safe yet.
    pub fn view<T>(&self, look: impl FnOnce(RunView<'_>) -> T) -> T {
        let state = self.state();
        look(RunView { record: &state.record, info: &state.about, pending: &state.pending })
    }

    /// Shows the run as its clients may see it: as far as it is safe. Of a run that was made this moment that is what
    /// its client said.
    pub fn view_safe<T>(&self, look: impl FnOnce(RunView<'_>) -> T) -> T {
        let state = self.state();
        let upto = state.shown.whole();
        if upto >= state.record.len() {
            return look(RunView { record: &state.record, info: &state.about, pending: &state.pending });
        }
        // Rare, and not on the way of a stream: a copy, with the lock given back before anybody reads it.
        let (mut record, mut about) = (state.record.clone(), state.about.clone());
        let concluding = !record.in_turn();
        let pending = if concluding { Vec::new() } else { state.pending.clone() };
        drop(state);
        record.rewind(upto);
        if concluding && record.in_turn() {
            about.state = RunState::Running;
        }
        look(RunView { record: &record, info: &about, pending: &pending })
    }

    /// Shows the run as it stands, if that is between two turns and there is no event from `next` on.
    pub(super) fn if_paused<T>(&self, next: u64, look: impl FnOnce(RunView<'_>) -> T) -> Option<T> {
        let state = self.state();
        let waits = matches!(state.about.state, RunState::Waiting | RunState::WaitingForAuth);
        let all = state.shown.visible() == state.record.len() && next == state.record.len();
        let view = RunView { record: &state.record, info: &state.about, pending: &state.pending };
        (waits && all).then(|| look(view))
    }

    /// Changes the run, and wakes whoever may see more of it now.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        state.publish_all();
        state.notify();
        result
    }

    /// Changes the run, and lets nobody know yet: more is likely to come at once, and is shown together with it.
    pub(super) fn update_deferred<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        state.publish_all();
        result
    }

    /// Wakes whoever may see more of it than when it was woken last.
    pub(super) fn notify(&self) {
        self.state().notify();
    }

    /// Wakes whoever follows, though there may be nothing new to see.
    pub(super) fn wake(&self) {
        self.state().wake();
    }

    /// True if what is told is as safe at once as it will ever be.
    pub(super) fn is_safe_at_once(&self) -> bool {
        self.state().shown.is_safe_at_once()
    }

    /// The agent lives, and says no more than that: whoever follows is told so too.
    pub(super) fn keep_alive(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
        self.wake();
    }

    /// Counts up with every sign of life.
    pub(super) fn keep_alives(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Changes the run without showing it yet: what comes out is safe first.
    pub(super) fn update_unpublished<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state())
    }

    /// Everything there is may be seen as soon as it is safe.
    pub(super) fn publish(&self) {
        self.state().publish();
    }

    /// Shows everything there is, safe or not: for ends that are told in the place of what could not be written.
    pub(super) fn publish_uncommitted(&self) {
        let mut state = self.state();
        let State { record, shown, .. } = &mut *state;
        shown.uncover(record);
        state.notify();
    }

    /// True for a run that the store does not know, and that is not to be found.
    pub(super) fn is_unobserved(&self) -> bool {
        let state = self.state();
        !state.about.stored && !state.shown.is_known()
    }

    /// Waits until everything told so far is safe.
    pub(super) fn poll_safe(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.shown.is_safe(&state.record) {
            return Poll::Ready(());
        }
        state.awaits_safety = Some(context.waker().clone());
        Poll::Pending
    }

    /// Gives up what could not be written in time: the run ends here, as failed, and what nobody has seen was never
    /// told. False if it is safe after all.
    pub(super) fn fail_unwritten(&self, error: interlingua_core::run::RunError) -> bool {
        let mut state = self.state();
        if state.shown.is_safe(&state.record) {
            return false;
        }
        let upto = state.shown.whole();
        state.record.rewind(upto);
        state.cut(End::Failed, Some(error));
        self.mark.bump_generation();
        drop(state);
        self.publish_uncommitted();
        true
    }

    /// Stops the turn under way, for a reason that is told to its clients in the place of `canceled`. A run between two
    /// turns stays as it is.
    pub(super) fn stop(&self, reason: Option<Fault>) {
        let mut state = self.state();
        if !state.works() {
            return;
        }
        if state.cancelled_for.is_none() {
            state.cancelled_for = reason;
        }
        self.cancel.tell();
    }

    /// Stops the turn under way, and the run with it: it does not go on to wait, whatever the turn has come to by now.
    /// False: no turn is under way.
    pub(super) fn end(&self) -> bool {
        let mut state = self.state();
        let works = state.works();
        if works {
            state.ends = true;
            self.cancel.tell();
        }
        works
    }

    /// How many of its events may be seen, and whether that is all there will ever be.
    pub(super) fn published(&self) -> (u64, bool) {
        let state = self.state();
        (state.shown.visible(), state.is_over())
    }

    /// Which event ends a turn and is still on its way into the store, if there is one.
    pub(super) fn settling(&self) -> Option<u64> {
        let state = self.state();
        let hidden = !state.record.in_turn() && state.shown.visible() < state.record.len();
        hidden.then(|| state.record.len() - 1)
    }

    /// Waits until the pump may go on reading: what is not safe yet stays below a bound, and while somebody is attached,
    /// what nobody has read.
    pub(super) fn poll_capacity(&self, context: &Context<'_>, bound: usize) -> Poll<()> {
        let mut state = self.state();
        if state.has_room(bound) {
            state.held = None;
            return Poll::Ready(());
        }
        state.held = Some(context.waker().clone());
        Poll::Pending
    }

    /// Waits until the store is not too far behind.
    pub(super) fn poll_written(&self, context: &Context<'_>, bound: usize) -> Poll<()> {
        let mut state = self.state();
        if !state.is_behind(bound) {
            return Poll::Ready(());
        }
        state.held = Some(context.waker().clone());
        Poll::Pending
    }

    /// Begins to follow it. An attached follower takes the run along when it leaves.
    pub(super) fn add_follower(self: &Arc<Self>, attached: bool) -> usize {
        let mut state = self.state();
        let follows = Follows { seen: state.record.size(), waker: None, attached };
        if let Some(place) = state.followers.iter().position(Option::is_none) {
            state.followers[place] = Some(follows);
            place
        } else {
            state.followers.push(Some(follows));
            state.followers.len() - 1
        }
    }

    /// Ends following. True if nobody attached is left and the run has no other reason to go on.
    pub(super) fn remove_follower(&self, place: usize) -> bool {
        let mut state = self.state();
        let attached = state.followers[place].take().is_some_and(|follows| follows.attached);
        if let Some(held) = state.held.take() {
            held.wake();
        }
        attached && !state.record.is_finished() && !state.followers.iter().flatten().any(|follows| follows.attached)
    }

    /// Keeps it in memory, until [`ActiveRun::release`].
    pub(super) fn hold(&self) {
        self.holders.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn release(&self) {
        self.holders.fetch_sub(1, Ordering::AcqRel);
    }

    /// True while somebody keeps it in memory.
    pub(super) fn is_held(&self) -> bool {
        self.holders.load(Ordering::Acquire) > 0
    }

    /// True if what it holds cannot be told any more.
    pub(super) fn is_broken(&self) -> bool {
        self.state().broken
    }

    /// True if nobody follows it.
    pub(super) fn is_unreferenced(&self) -> bool {
        self.state().followers.iter().all(Option::is_none)
    }

    /// Shows the steps from a place on, as long as `take` wants more. Ready with the next place, or with none if there
    /// will never be another one; pending if there is nothing to see yet.
    pub(super) fn poll_steps(
        &self,
        place: usize,
        from: u64,
        context: &Context<'_>,
        take: &mut dyn FnMut(RunView<'_>, interlingua_core::Step<'_>) -> Take,
    ) -> Poll<Option<(u64, Take)>> {
        let mut state = self.state();
        if state.broken {
            return Poll::Ready(None);
        }
        let mut next = from;
        let mut last = Take::More;
        while next < state.shown.visible() {
            let Some(step) = state.record.step(next) else { break };
            let view = RunView { record: &state.record, info: &state.about, pending: &state.pending };
            last = take(view, step);
            next += 1;
            if last != Take::More || matches!(step.event, Event::RunFinished { .. }) {
                break;
            }
        }
        let size = state.record.size();
        let caught_up = next == state.shown.visible();
        let waits = next == from;
        if waits && caught_up && state.is_over() {
            return Poll::Ready(None);
        }
        let held = state.held.take_if(|_| caught_up);
        if let Some(follows) = state.followers[place].as_mut() {
            if caught_up {
                follows.seen = size;
            }
            if waits && !follows.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                follows.waker = Some(context.waker().clone());
            }
        }
        drop(state);
        if let Some(held) = held {
            held.wake();
        }
        if waits { Poll::Pending } else { Poll::Ready(Some((next, last))) }
    }
}

/// What a follower says after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The next one, please.
    More,
    /// Enough for now.
    Enough,
    /// Nothing more, ever.
    Close,
}

impl State {
    /// True once its last event is shown.
    fn is_over(&self) -> bool {
        self.record.is_finished() && self.shown.visible() == self.record.len()
    }

    /// True while a turn is under way.
    const fn works(&self) -> bool {
        matches!(self.about.state, RunState::Queued | RunState::Running)
    }

    /// True unless the store or all who are attached are too far behind.
    pub(super) fn has_room(&self, bound: usize) -> bool {
        let size = self.record.size();
        if self.is_behind(bound) {
            return false;
        }
        let attached = self.followers.iter().flatten().filter(|follows| follows.attached);
        let backlog = attached.map(|follows| size.saturating_sub(follows.seen)).min();
        backlog.is_none_or(|backlog| backlog < bound)
    }

    /// True if the store is too far behind.
    pub(super) fn is_behind(&self, bound: usize) -> bool {
        self.shown.is_behind(&self.record, bound)
    }

    fn publish(&mut self) {
        self.shown.conclude(&self.record);
        self.notify();
    }

    fn publish_all(&mut self) {
        self.shown.grown(&self.record);
    }

    fn committed(&mut self, events: u64) {
        self.shown.committed(events);
        self.notify();
        if let Some(held) = self.held.take() {
            held.wake();
        }
        if self.shown.is_safe(&self.record)
            && let Some(waiting) = self.awaits_safety.take()
        {
            waiting.wake();
        }
    }

    fn notify(&mut self) {
        if self.shown.take_news() {
            self.wake();
        }
    }

    fn wake(&mut self) {
        for follows in self.followers.iter_mut().flatten() {
            if let Some(waker) = follows.waker.take() {
                waker.wake();
            }
        }
    }

    /// Sets where the run stands.
    pub(super) fn set(&mut self, state: RunState, now: Millis) {
        if self.about.state != state {
            self.about.state = state;
            self.about.changed_at = now.max(self.about.changed_at);
        }
    }

    /// Ends a run whose record cannot be ended: whoever follows it is let go.
    pub(super) fn abandon(&mut self) {
        self.broken = true;
        self.about.state = RunState::Ended(End::Failed);
        self.queued.clear();
        self.pending.clear();
        self.wake();
    }

    /// Ends the run wherever it stands. Turns that are queued behind the one under way are not taken.
    pub(super) fn cut(&mut self, end: End, error: Option<interlingua_core::run::RunError>) {
        let now = clock::now();
        self.record.set_time(now);
        self.record.close(end, error);
        self.pending.clear();
        self.queued.clear();
        self.set(RunState::Ended(end), now);
    }
}

impl Journal for ActiveRun {
    fn id(&self) -> RunId {
        self.id
    }

    fn with(&self, look: &mut dyn FnMut(&Record, &RunInfo)) {
        let state = self.state();
        look(&state.record, &state.about);
    }

    fn dirty_flag(&self) -> &DirtyFlag {
        &self.mark
    }

    fn committed(&self, events: u64) {
        self.state().committed(events);
    }
}
