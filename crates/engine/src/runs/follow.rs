//! Following a run: step by step, from the first one or from a point on, in memory or from the store.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use interlingua_core::call::RunView;
use interlingua_core::{Fault, Step};
use tokio::time::{Instant, sleep};

use super::active_run::{ActiveRun, PinnedRun, Take};
use super::handle::RunHandle;
use super::table::RunTable;
use crate::faults;
use interlingua_store::Health;

/// The maximum time that a caller waits for an end that is being written, which takes a few milliseconds unless the
/// store fails.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause between two reads of a run that another replica is about to take.
const TAKEN_INTERVAL: Duration = Duration::from_millis(10);

/// A position in a run. Dropping it is leaving: an attached run whose last follower leaves is canceled.
pub struct Follower {
    runs: Arc<RunTable>,
    source: Source,
    /// The sequence number of the next step.
    next: u64,
}

enum Source {
    /// With the follower's index in the run.
    InMemory(PinnedRun, usize),
    Stored(RunHandle),
}

impl Follower {
    /// Follows a run from its first step on.
    pub(crate) fn new(runs: &Arc<RunTable>, run: RunHandle) -> Self {
        Self::with_attachment(runs, run, false)
    }

    /// Follows a run that is canceled when its last attached follower leaves.
    pub(crate) fn attached(runs: &Arc<RunTable>, run: RunHandle) -> Self {
        Self::with_attachment(runs, run, true)
    }

    /// The run that is followed, if it is in memory.
    pub(crate) fn active_run(&self) -> Option<&Arc<ActiveRun>> {
        match &self.source {
            Source::InMemory(run, _) => Some(run),
            Source::Stored(_) => None,
        }
    }

    fn with_attachment(runs: &Arc<RunTable>, run: RunHandle, attached: bool) -> Self {
        let source = match run {
            RunHandle::InMemory(run) => {
                let index = run.add_follower(attached);
                Source::InMemory(run, index)
            }
            stored => Source::Stored(stored),
        };
        Self { runs: Arc::clone(runs), source, next: 0 }
    }

    /// Shows the run as it stands. With `skip` the steps begin after what the view holds, otherwise with the first one.
    pub fn begin<T>(&mut self, skip: bool, read: impl FnOnce(RunView<'_>) -> T) -> T {
        let next = &mut self.next;
        let read = |view: RunView<'_>| {
            if skip {
                *next = view.record.len();
            }
            read(view)
        };
        match &self.source {
            Source::InMemory(run, _) => run.view_safe(read),
            Source::Stored(run) => run.view(read),
        }
    }

    /// Shows the steps that exist. Ready after at least one, pending if none exists yet. `Ready(false)`: there will
    /// never be another one.
    pub fn poll_steps(
        &mut self,
        context: &Context<'_>,
        take: &mut dyn FnMut(RunView<'_>, Step<'_>) -> Take,
    ) -> Poll<bool> {
        match &self.source {
            Source::InMemory(run, index) => run.poll_steps(*index, self.next, context, take).map(|seen| match seen {
                Some((next, last)) => {
                    self.next = next;
                    last != Take::Close
                }
                None => false,
            }),
            Source::Stored(run) => {
                let from = self.next;
                let next = &mut self.next;
                let last = run.view(|view| {
                    for step in view.record.steps(from) {
                        *next += 1;
                        let last = take(view, step);
                        if last != Take::More {
                            return last;
                        }
                    }
                    Take::More
                });
                Poll::Ready(self.next > from && last != Take::Close)
            }
        }
    }

    /// The number of keep-alives without content that the agent has sent. A task that waits for steps is woken by each.
    #[must_use]
    pub fn keep_alives(&self) -> u64 {
        match &self.source {
            Source::InMemory(run, _) => run.keep_alives(),
            Source::Stored(_) => 0,
        }
    }

    /// True if the run has ended, or waits for its next turn.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        match &self.source {
            Source::InMemory(run, _) if run.state().fallback.is_some() => false,
            _ => self.run().view(|view| view.run().end.is_some() || view.info.state.is_waiting()),
        }
    }

    /// Shows the run if it waits between two turns and all its steps were taken.
    pub fn if_paused<T>(&self, read: impl FnOnce(RunView<'_>) -> T) -> Option<T> {
        match &self.source {
            Source::InMemory(run, _) => run.if_paused(self.next, read),
            Source::Stored(_) => None,
        }
    }

    /// Waits until `is_done` accepts a visible step, or the run is over. Only the step's event is sure: the rest of its
    /// run may not be safe yet.
    pub(crate) async fn until(&mut self, mut is_done: impl FnMut(Step<'_>) -> bool) {
        poll_fn(|context| {
            loop {
                let mut reached = false;
                let more = self.poll_steps(context, &mut |_, step| {
                    reached = is_done(step);
                    if reached { Take::Enough } else { Take::More }
                });
                match more {
                    Poll::Ready(true) if !reached => {}
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }

    /// Waits until it is known whether the run continues, if it waits only for a queued turn, and until its end is
    /// visible, if it has ended; at most until the gateway is closed.
    pub(crate) async fn until_next_known(&self) {
        if let Source::InMemory(run, index) = &self.source {
            tokio::select! {
                () = poll_fn(|context| run.poll_next_known(*index, context)) => {}
                () = self.runs.wait_closed() => {}
            }
        }
    }

    /// Shows the last step that was taken once more.
    pub(crate) fn last(&self, read: impl FnOnce(Step<'_>)) {
        let last = self.next.saturating_sub(1);
        self.run().view(|view| view.record.step(last).map(read));
    }

    /// Why there will never be another step although the run has not ended: the gateway is closed.
    #[must_use]
    pub fn broken_off(&self) -> Option<Fault> {
        if !self.runs.is_closed() {
            return None;
        }
        // An end that is on its way into the store is visible in a moment.
        let ended = self.run().view(|view| view.run().end.is_some());
        let settles = matches!(&self.source, Source::InMemory(run, _) if run.settling().is_some());
        (!ended && !settles).then(faults::shutting_down)
    }

    /// True if other gateways show the rest of the run: a client that is cut off finds it there by the number of its
    /// last step. An error in its place would take the number of a step that the client then misses.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.runs.store().runs_move() && self.run().view(|view| view.info.stored)
    }

    /// The fault to report if the steps stop without an end: a panic has left the run incomplete. `None` for a run that
    /// another gateway has taken over: it ends as that gateway commits it.
    #[must_use]
    pub fn broken(&self) -> Option<Fault> {
        match &self.source {
            Source::InMemory(run, _) if run.is_lost() && self.is_elsewhere() => None,
            Source::InMemory(run, _) => run.failure(),
            Source::Stored(_) => None,
        }
    }

    /// Lets the run continue when this follower leaves.
    pub fn detach(&self) {
        if let Source::InMemory(run, index) = &self.source {
            run.detach_follower(*index);
        }
    }

    /// Makes sure that no one finds the run again. It has ended.
    pub fn forget(&self) {
        self.runs.forget(&self.run());
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> RunHandle {
        match &self.source {
            Source::InMemory(run, _) => RunHandle::InMemory(run.clone()),
            Source::Stored(run) => run.clone(),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Source::InMemory(run, index) = &self.source {
            if run.remove_follower(*index) {
                tracing::debug!(run = %run.id(), "the client left");
                run.stop(None);
            }
            self.runs.release_if_idle(run);
        }
    }
}

/// Follows a run that another replica may drive. `None`: nothing more will happen in it, or no other process uses the
/// store.
pub(crate) fn follow_elsewhere(runs: &Arc<RunTable>, run: &RunHandle) -> Result<Option<Follower>, Fault> {
    let counted = runs.count_elsewhere(run)?;
    Ok(counted.map(|(run, index)| Follower { runs: Arc::clone(runs), source: Source::InMemory(run, index), next: 0 }))
}

/// Follows a copy of a stored run to its end: it grows if another replica may drive the run. `None`: the run is in
/// memory.
pub(crate) fn follow_copy(runs: &Arc<RunTable>, run: &RunHandle) -> Result<Option<Follower>, Fault> {
    if let Some(follower) = follow_elsewhere(runs, run)? {
        return Ok(Some(follower));
    }
    let RunHandle::Stored(stored, pending) = run else { return Ok(None) };
    Ok(Some(Follower::new(runs, RunHandle::InMemory(runs.copy(stored, pending)?.pin()))))
}

/// Follows a run that was found, wherever it is driven.
pub(crate) async fn follow(runs: &Arc<RunTable>, run: RunHandle) -> Result<Follower, Fault> {
    // Until the first update: a run that is handed over waits for no client.
    let run = if runs.handover_of(&run).await?.is_some() { run.as_running() } else { run };
    if let Some(follower) = follow_elsewhere(runs, &run)? {
        return Ok(follower);
    }
    if run.run_state().is_waiting() && matches!(run, RunHandle::Stored(..)) {
        // Its next turn may start while it is followed.
        let held = runs.activate(run).await?;
        return Ok(Follower::new(runs, held.handle()));
    }
    Ok(Follower::new(runs, run))
}

/// Waits a moment if the run's end is being written: the caller sees the end if that is soon, and otherwise the run as
/// far as it is safe.
pub(crate) async fn settled(runs: &Arc<RunTable>, run: RunHandle) -> RunHandle {
    if let RunHandle::InMemory(active) = &run
        && let Some(unsafe_yet) = active.settling()
        && matches!(runs.store().health(), Health::Good)
    {
        let mut follower = Follower::new(runs, run.clone());
        let end = follower.until(|step| step.sequence >= unsafe_yet);
        // Past that time the run is shown as far as it is safe.
        let _ = tokio::time::timeout(SETTLE_TIMEOUT, end).await;
    }
    run
}

/// Waits a moment if another replica is about to take the run's next turn. If that turn is still behind turns of other
/// runs, the run is shown as running: it waits for no client.
pub(crate) async fn taken(runs: &Arc<RunTable>, mut run: RunHandle) -> Result<RunHandle, Fault> {
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    while let Some((session, _)) = runs.handover_of(&run).await? {
        if Instant::now() >= deadline {
            runs.watch_found_handover(run.id(), &session);
            return Ok(run.as_running());
        }
        sleep(TAKEN_INTERVAL).await;
        run = runs.find(run.id()).await?.unwrap_or(run);
    }
    Ok(run)
}
