//! Turns of a run that wait in the queue of its session while another turn of the run is under way: their count, and the
//! end of the run if none of them starts.
//!
//! They are counted under the lock of their run. The end of a turn reads the count under the same lock: no message is
//! accepted between that check and the end of the run. In a store of one process, the last one that leaves the queue
//! without a start ends the run ([`QueuedTurn`]). In other stores the next turn may be queued by another process, which
//! may be lost ([`RunTable::watch_handover`]). Not here: starting the queued turns ([`crate::turns::later_turns`]), and
//! the queue ([`crate::sessions`]).

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use interlingua_core::call::RunState;
use interlingua_core::pending::Pending;
use interlingua_core::{End, Fault, FaultKind, RunId};

use super::active_run::{ActiveRun, Publish, State};
use super::commit;
use super::table::RunTable;
use crate::backoff::Backoff;
use crate::faults;
use crate::sessions::{Queued, Session};
use interlingua_base::clock;

/// A turn that waits for another one of its run. It keeps the run in memory and follows it.
pub(crate) struct QueuedTurn {
    runs: Arc<RunTable>,
    run: Arc<ActiveRun>,
    session: Arc<Session>,
    /// Its index among the followers of the run.
    follower: usize,
    /// True if this process drives the run: a gateway that closes waits for the queued turn, too.
    is_driven: bool,
    /// True once it is not counted any more.
    has_left: bool,
}

/// The event that ends the wait of a queued turn.
pub(crate) enum WaitEnd {
    /// It is first in the queue of its session.
    First,
    /// The run was stopped between two turns, for this reason.
    Stopped(Fault),
    /// The run has ended, or this process can no longer follow it.
    Over,
}

impl QueuedTurn {
    /// Counts a turn that waits for another one of its run. `None`: the run has ended.
    pub(crate) fn join(runs: &Arc<RunTable>, run: &Arc<ActiveRun>, session: &Arc<Session>) -> Option<Self> {
        let is_driven = runs.drives(run);
        let mut state = run.state();
        if state.about.state.is_ended() {
            return None;
        }
        state.queued_turns += 1;
        let size = state.record.size();
        let follower = state.followers.add(size, false);
        drop(state);

        runs.driven().fetch_add(usize::from(is_driven), Ordering::AcqRel);
        let (runs, run, session) = (Arc::clone(runs), Arc::clone(run), Arc::clone(session));
        Some(Self { runs, run, session, follower, is_driven, has_left: false })
    }

    pub(crate) const fn run(&self) -> &Arc<ActiveRun> {
        &self.run
    }

    /// Waits until the turn is first in its queue, its run is stopped between two turns, or its run is over. Fails if
    /// the gateway closes, or if the store does.
    pub(crate) async fn wait(&self, place: &mut Queued) -> Result<WaitEnd, Fault> {
        tokio::select! {
            biased;
            end = poll_fn(|context| self.poll_interrupted(context)) => Ok(end),
            () = self.runs.wait_closed() => Err(faults::shutting_down()),
            first = place.wait() => first.map(|()| WaitEnd::First),
        }
    }

    /// Leaves the queue, after a start or without one. In a store of one process, the last one that leaves without a
    /// start ends the run, and waits until that end is written.
    pub(crate) async fn leave(mut self) {
        self.has_left = true;
        if !self.count_down() {
            return self.runs.release_if_idle(&self.run);
        }

        let id = self.run.id();
        let withdrawn = async {
            if !self.run.run_state().is_ended() || !self.session.withdraw(id) {
                return;
            }
            let mut backoff = Backoff::new();
            while let Err(fault) = self.runs.sessions().save(&self.session).await {
                if fault.kind != FaultKind::Overloaded {
                    return tracing::error!(run = %id, "the run has ended, but the session still lists its items as open: {fault}");
                }
                backoff.pause().await;
            }
        };
        let store = self.runs.store();
        commit::publish_when_safe(store, &self.run, store.write_timeout(), withdrawn).await;
        // A pause has no event of its own.
        self.run.wake_followers();
        self.runs.release(&self.run);
    }

    /// Removes the turn from the count. True if that ended the run, or made it wait.
    fn count_down(&self) -> bool {
        let open = self.session.pending_of(self.run.id());
        self.run.update(Publish::Later, |state| {
            state.followers.remove(self.follower);
            state.queued_turns -= 1;
            state.queued_turns == 0 && state.rest(open)
        })
    }

    fn poll_interrupted(&self, context: &Context<'_>) -> Poll<WaitEnd> {
        let mut state = self.run.state();
        if state.lost || state.broken || state.is_over() {
            return Poll::Ready(WaitEnd::Over);
        }
        if let Some(reason) = state.stop_between_turns(&self.run) {
            return Poll::Ready(WaitEnd::Stopped(reason));
        }
        state.followers.register(self.follower, context.waker());
        Poll::Pending
    }
}

impl Drop for QueuedTurn {
    fn drop(&mut self) {
        // Only the task of a process that exits is dropped before it has left.
        if !self.has_left && self.count_down() {
            // The store completes the write without being awaited. The end is visible once it is safe.
            drop(self.runs.store().settle(&self.run.journal()));
            self.run.publish(Publish::Concluded);
            self.run.wake_followers();
            self.run.count_end();
        }
        self.runs.driven().fetch_sub(usize::from(self.is_driven), Ordering::AcqRel);
    }
}

impl ActiveRun {
    /// Ready once the turn of this index is not under way, and its end is visible.
    pub(super) fn poll_turn_ended(&self, follower: usize, turn: usize, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let is_under_way =
            state.record.run().turns.len() == turn + 1 && state.about.state.is_working() && state.fallback.is_none();
        if state.lost || state.broken || !(is_under_way || state.is_settling()) {
            return Poll::Ready(());
        }
        state.followers.register(follower, context.waker());
        Poll::Pending
    }

    /// Ready once no one holds the run, or a turn is under way.
    pub(super) fn poll_unheld(&self, follower: usize, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if self.holders.load(Ordering::Acquire) == 0 || !state.about.state.is_waiting() {
            return Poll::Ready(());
        }
        state.followers.register(follower, context.waker());
        Poll::Pending
    }

    /// Ready unless the run waits only for a queued turn, or its end is not visible yet.
    pub(super) fn poll_next_known(&self, follower: usize, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.lost || state.broken || !(state.fallback.is_some() || state.is_settling()) {
            return Poll::Ready(());
        }
        state.followers.register(follower, context.waker());
        Poll::Pending
    }
}

impl State {
    /// Number of turns of this process that wait for the one under way.
    pub(crate) const fn queued_turns(&self) -> usize {
        self.queued_turns
    }

    /// The reason why no queued turn may start, if the run was stopped between two turns.
    pub(crate) fn stop_between_turns(&self, run: &ActiveRun) -> Option<Fault> {
        if self.record.in_turn() || self.is_settling() {
            return None;
        }
        let is_canceled = self.fallback.is_some() && run.cancel.is_set();
        self.cancel_reason.clone().or_else(|| is_canceled.then(faults::canceled))
    }

    /// Sets the state that was due when the last turn ended: no queued turn has started since. `open`: the items of the
    /// run that are open now. False if the run does not wait for a queued turn, or if other processes may have queued
    /// one.
    fn rest(&mut self, open: Vec<Pending>) -> bool {
        if !self.about.state.is_working() {
            return false;
        }
        let Some(fallback) = self.fallback.take() else { return false };
        if self.record.is_finished() {
            return false;
        }

        let has_asked = !self.record.run().pending().is_empty();
        match fallback {
            RunState::Ended(end) => self.cut(end, None),
            _ if self.ends_after_turn => self.cut(End::Canceled, None),
            // Another run answered its last open item.
            _ if has_asked && open.is_empty() => self.cut(End::Completed, None),
            waiting => {
                self.pending = open;
                self.set(waiting, clock::now());
            }
        }
        true
    }
}

impl RunTable {
    /// Waits until no turn of a handed-over run is queued. If none of them started, the run ends as it would have ended
    /// without them.
    pub(crate) fn watch_handover(self: &Arc<Self>, run: RunId, session: &Arc<Session>) {
        tokio::task::spawn_local(Arc::clone(self).end_handover(run, Arc::clone(session)));
    }

    /// The same for a run that a caller found handed over: the process that watched it may be lost. One task for each
    /// run.
    pub(super) fn watch_found_handover(self: &Arc<Self>, run: RunId, session: &Arc<Session>) {
        if !self.watched().insert(run) {
            return;
        }
        let (this, session) = (Arc::clone(self), Arc::clone(session));
        tokio::task::spawn_local(async move {
            Arc::clone(&this).end_handover(run, session).await;
            this.watched().remove(&run);
        });
    }

    async fn end_handover(self: Arc<Self>, id: RunId, session: Arc<Session>) {
        let mut backoff = Backoff::new();
        while let Err(fault) = self.end_if_left(id, &session).await {
            // Busy: another process has the run in memory, and may give it up again. Restarted: the store has lost the
            // place in the queue.
            let is_retried = matches!(fault.kind, FaultKind::Overloaded | FaultKind::Busy | FaultKind::Restarted);
            if !is_retried || self.is_closed() {
                return tracing::warn!(run = %id, "a run that waits for queued turns of another gateway may stay open: {fault}");
            }
            backoff.pause().await;
        }
    }

    async fn end_if_left(self: &Arc<Self>, id: RunId, session: &Arc<Session>) -> Result<(), Fault> {
        let sessions = self.sessions();
        loop {
            let place = sessions.enqueue(session, None, usize::MAX).await?;
            let _guard = sessions.turn_of(place).await?;
            let Some(end) = session.handed_over(id) else { return Ok(()) };
            // A turn that was queued later continues the run, or leaves it as it is now.
            if sessions.is_continued(session, id).await? {
                continue;
            }

            if let Some(run) = self.find(id).await?.filter(|run| run.run_state().is_waiting()) {
                let run = self.activate(run).await?;
                // Again, while no other process can have the run: a caller that had it a moment ago has queued its turn
                // before it released the run.
                if sessions.is_continued(session, id).await? {
                    continue;
                }
                let is_ended = run.update(Publish::Later, |state| {
                    if state.queued_turns > 0 {
                        // Queued here after the store's queue was read.
                        return Err(faults::busy(&session.id));
                    }
                    let waits = state.about.state.is_waiting();
                    if waits {
                        state.cut(end, None);
                    }
                    Ok(waits)
                })?;
                if is_ended {
                    let store = self.store();
                    commit::publish_when_safe(store, &run, store.write_timeout(), async {}).await;
                    self.turn_ended(&run);
                }
            }
            session.take_handed_over(id);
            return sessions.save(session).await;
        }
    }
}
