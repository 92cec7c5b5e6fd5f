//! Following a run: step by step, from the first one or from a point on, live or out of the store.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use interlingua_core::call::RunView;
use interlingua_core::pending::Pending;
use interlingua_core::{Event, Fault, FaultKind, RunId, Step};

use super::Engine;
use super::active_run::{ActiveRun, Take};
use super::loaded::Loaded;
use crate::store::Health;

/// An end is written in a few milliseconds. Who asks while the store cannot write is not kept for longer.
const SETTLES_IN: std::time::Duration = std::time::Duration::from_secs(1);

/// A run to look at: in memory, or out of the store.
#[derive(Clone)]
pub enum RunHandle {
    /// In memory.
    InMemory(Arc<ActiveRun>),
    /// Out of the store.
    Stored(Arc<Loaded>, Arc<[Pending]>),
}

impl RunHandle {
    /// The run's id. Locks nothing.
    #[must_use]
    pub fn id(&self) -> RunId {
        match self {
            Self::InMemory(live) => live.id(),
            Self::Stored(stored, _) => stored.record.run().id,
        }
    }

    /// Shows the run as it stands, for the gateway's own purposes: some of it may not be safe yet.
    pub fn view<T>(&self, look: impl FnOnce(RunView<'_>) -> T) -> T {
        match self {
            Self::InMemory(live) => live.view(look),
            Self::Stored(stored, pending) => look(RunView { record: &stored.record, info: &stored.info, pending }),
        }
    }

    /// Shows the run as its clients may see it: nothing that a crash could take back.
    pub fn view_safe<T>(&self, look: impl FnOnce(RunView<'_>) -> T) -> T {
        match self {
            Self::InMemory(live) => live.view_safe(look),
            Self::Stored(..) => self.view(look),
        }
    }

    /// Waits a moment while the run has come to an end that is not safe yet: who asks what became of it is told of the
    /// end, if that is soon, and otherwise sees the run as far as it is safe.
    pub(super) async fn settled(self, engine: &Engine) -> Self {
        if let Self::InMemory(live) = &self
            && let Some(unsafe_yet) = live.settling()
            && matches!(engine.health(), Health::Good)
        {
            let mut shown = 0;
            let mut follower = Follower::new(engine.clone(), self.clone(), false);
            let end = follower.until(|_| {
                shown += 1;
                shown > unsafe_yet
            });
            let _ = tokio::time::timeout(SETTLES_IN, end).await;
        }
        self
    }
}

/// Somebody's place in a run. Dropping it is leaving: an attached run whose last follower leaves is cancelled.
pub struct Follower {
    engine: Engine,
    source: Source,
    next: u64,
}

enum Source {
    InMemory(Arc<ActiveRun>, usize),
    Stored(RunHandle),
}

impl Follower {
    pub(super) fn new(engine: Engine, run: RunHandle, attached: bool) -> Self {
        let source = match run {
            RunHandle::InMemory(live) => {
                let place = live.add_follower(attached);
                Source::InMemory(live, place)
            }
            stored => Source::Stored(stored),
        };
        Self { engine, source, next: 0 }
    }

    /// Shows the run as it stands and goes on from there: what the view holds is not told again, what it lacks is.
    /// Without `skip` the steps begin with the first one.
    pub fn begin<T>(&mut self, skip: bool, look: impl FnOnce(RunView<'_>) -> T) -> T {
        match &self.source {
            Source::InMemory(live, _) => {
                let next = &mut self.next;
                live.view_safe(|view| {
                    if skip {
                        *next = view.record.len();
                    }
                    look(view)
                })
            }
            Source::Stored(run) => run.view(|view| {
                if skip {
                    self.next = view.record.len();
                }
                look(view)
            }),
        }
    }

    /// Shows the steps there are to see. Ready after at least one, pending if there is none yet. `Ready(false)`:
    /// there will never be another one.
    pub fn poll_steps(
        &mut self,
        context: &Context<'_>,
        take: &mut dyn FnMut(RunView<'_>, Step<'_>) -> Take,
    ) -> Poll<bool> {
        match &self.source {
            Source::InMemory(live, place) => live.poll_steps(*place, self.next, context, take).map(|seen| match seen {
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

    /// Counts up with every sign of life of the agent that is no step. Whoever waits for steps is woken by it.
    #[must_use]
    pub fn keep_alives(&self) -> u64 {
        match &self.source {
            Source::InMemory(live, _) => live.keep_alives(),
            Source::Stored(_) => 0,
        }
    }

    /// Shows the run, if it stands between two turns and all there is was shown.
    pub fn if_paused<T>(&self, look: impl FnOnce(RunView<'_>) -> T) -> Option<T> {
        match &self.source {
            Source::InMemory(live, _) => live.if_paused(self.next, look),
            Source::Stored(_) => None,
        }
    }

    /// Waits until `done` says so of an event that may be seen, or the run is over.
    pub(super) async fn until(&mut self, mut done: impl FnMut(Event) -> bool) {
        poll_fn(|context| {
            loop {
                let mut reached = false;
                let more = self.poll_steps(context, &mut |_, step| {
                    // Not what the run has come to by now: that may not be safe yet.
                    reached = done(step.event);
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

    /// Looks at the last step that was shown once more.
    pub(super) fn last(&self, look: impl FnOnce(Step<'_>)) {
        let last = self.next.saturating_sub(1);
        self.run().view(|view| view.record.step(last).map(look));
    }

    /// Why nothing will ever be seen of it again although it has not ended: the gateway is closed.
    #[must_use]
    pub fn broken_off(&self) -> Option<Fault> {
        if !self.engine.0.over.load(std::sync::atomic::Ordering::Acquire) {
            return None;
        }
        // An end that is on its way into the store is shown in a moment.
        let ended = self.run().view(|view| view.run().end.is_some());
        let settles = matches!(&self.source, Source::InMemory(live, _) if live.settling().is_some());
        (!ended && !settles).then(|| Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down"))
    }

    /// Why it ends without an end: the gateway has lost it.
    #[must_use]
    pub fn lost(&self) -> Option<Fault> {
        matches!(&self.source, Source::InMemory(live, _) if live.is_broken()).then(super::mistake)
    }

    /// Sees to it that nobody finds the run again. It has ended.
    pub fn forget(&self) {
        self.engine.forget(&self.run());
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> RunHandle {
        match &self.source {
            Source::InMemory(live, _) => RunHandle::InMemory(Arc::clone(live)),
            Source::Stored(run) => run.clone(),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Source::InMemory(live, place) = &self.source {
            if live.remove_follower(*place) {
                tracing::debug!(run = %live.id(), "the client left");
                live.stop(None);
            }
            self.engine.forget_if_idle(live);
        }
    }
}
