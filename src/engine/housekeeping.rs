//! Housekeeping the house: what the last process left open, what is too old, and how the gateway is closed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use interlingua_core::call::{RetentionOwner, RunInfo, RunState};
use interlingua_core::run::RunError;
use interlingua_core::{End, Fault, FaultKind, Owner, RunId};

use super::session::Session;
use super::{ActiveRun, Agent, Engine, History, RunHandle, Scope, clock};
use crate::store::{Journal, Retention, Signal, StoreError};

/// How long runs are kept.
pub struct Housekeeping {
    /// What is forgotten when.
    pub retention: Retention,
    /// The mounts of routes that have rules of their own: what happens to their runs is delivered as it is there.
    pub scopes: Vec<Scope>,
}

/// Whose rules a new run is kept by.
pub(super) fn keeper(agent: &Agent, session: &Session, scope: &Scope) -> Option<RetentionOwner> {
    let route = scope.route.as_ref()?.to_string();
    // Then later turns are told of what was said in this one.
    let remembered = agent.history == History::Gateway || session.doc().kept;
    Some(RetentionOwner { route, remembered })
}

/// The pause between two rounds: no run outlives its time by much.
fn pause(retention: &Retention) -> Duration {
    (retention.min_ttl() / 4).clamp(Duration::from_secs(1), Duration::from_secs(60))
}

impl Engine {
    /// Closes what the last process left open, and keeps the store in bounds from then on. Runs until it is dropped.
    pub async fn housekeeping(self) {
        let rest = pause(&self.0.keeping.retention);
        let mut signals = self.store().signals();
        loop {
            self.run_housekeeping_once().await;
            let pause = tokio::time::sleep(rest);
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    signal = signals.recv() => {
                        let Some((id, Signal::Cancel)) = signal else { return };
                        if let Some(live) = self.lives().get(&id).cloned() {
                            live.end();
                        }
                    }
                }
            }
        }
    }

    /// Ends what has waited for too long, and forgets what is too old.
    async fn run_housekeeping_once(&self) {
        // Each one once: one whose end cannot be written down is not tried for ever.
        let mut tried = HashSet::new();
        let mut more = true;
        while more {
            let swept = match self.store().retain(self.0.keeping.retention.clone(), clock::now()).await {
                Ok(swept) => swept,
                Err(error) => return tracing::warn!(%error, "old runs could not be forgotten"),
            };
            more = swept.more;
            for id in swept.runs.iter().chain(&swept.hidden) {
                // Somebody may still be reading it; whoever comes finds what the store has.
                self.lives().remove(*id);
            }
            for id in swept.stale {
                more |= tried.insert(id) && self.expire(id).await;
            }
        }
    }

    /// Ends a run that has waited for an answer for longer than it may. True if it did.
    async fn expire(&self, id: RunId) -> bool {
        let stale = |about: &RunInfo| self.0.keeping.retention.is_stale(about, clock::now());
        let expired = async {
            // It may have been answered since the store was asked.
            let Some(run) = self.handle(id).await?.filter(|run| run.view(|view| stale(view.info))) else {
                return Ok(false);
            };
            let live = self.raise(run).await?;
            if let Some(scope) = self.scope_of(&live) {
                self.start_deliveries(&RunHandle::InMemory(Arc::clone(&live)), false, &scope).await?;
            }
            Ok::<bool, Fault>(self.end_waiting(&live, stale).await)
        };
        expired.await.unwrap_or_else(|fault| {
            tracing::warn!(run = %id, "a run that waits for too long could not be ended: {fault}");
            false
        })
    }

    /// Where a run was begun, if that has rules of its own.
    pub(super) fn scope_of(&self, live: &ActiveRun) -> Option<Scope> {
        live.view(|view| {
            let keeper = view.info.retention.as_ref()?;
            let scope = self.0.keeping.scopes.iter().find(|scope| {
                scope.route.as_deref() == Some(keeper.route.as_str())
                    && scope.agents.iter().any(|card| card.name == view.run().agent)
            });
            scope.map(|scope| Scope { owner: Owner::from_key(&view.info.owner), ..scope.clone() })
        })
    }

    /// Closes the runs that were under way when the last process died: they failed, with a code of their own.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        let left = self.store().recover().await?;
        for id in &left {
            let Some(stored) = self.store().load(*id).await? else { continue };
            let Some(agent) = self.0.agents.get(&stored.record.run().agent).or_else(|| self.0.agents.values().next())
            else {
                continue;
            };
            let live = ActiveRun::stored(Arc::clone(agent), &stored);
            let journal = Arc::clone(&live) as Arc<dyn Journal>;
            self.store().open(&journal).await?;
            if let Some(scope) = self.scope_of(&live)
                && let Err(fault) = self.start_deliveries(&RunHandle::InMemory(Arc::clone(&live)), false, &scope).await
            {
                tracing::warn!(run = %id, "nobody is told how a run ended: {fault}");
            }
            let error = RunError {
                code: FaultKind::Restarted.code().to_owned(),
                message: "the gateway was restarted while the run was under way".to_owned(),
            };
            live.update_unpublished(|state| state.cut(End::Failed, Some(error)));
            // What an earlier turn asked is not open any more: nothing waits after a failure.
            if let Err(fault) = self.withdraw(&RunHandle::InMemory(Arc::clone(&live))).await {
                tracing::warn!(run = %id, "what a run asked could not be withdrawn: {fault}");
            }
            self.store().settle(&journal).await?;
            live.publish();
        }
        Ok(left.len())
    }

    /// Takes no new runs, waits for those under way, and ends what is left when the time is up. Takes no longer than
    /// `patience` and [`Engine::AFTER_DRAIN`], and no time at all where there is nothing to do.
    pub async fn drain(&self, patience: Duration) {
        /// How long runs that are told to end may take for it, and deliveries for what they were not told yet.
        const ENDING: Duration = Duration::from_millis(1500);
        const DELIVERING: Duration = Engine::AFTER_DRAIN.saturating_sub(ENDING);
        self.0.closing.store(true, Ordering::Relaxed);
        within(patience, || self.working() == 0).await;
        let left: Vec<Arc<ActiveRun>> = self.lives().values().cloned().collect();
        for live in left {
            live.stop(Some(Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down")));
        }
        within(ENDING, || self.working() == 0).await;
        // What has happened is told, as far as receivers take it: after this process nobody does.
        within(DELIVERING, || !self.0.deliveries.is_lagging()).await;
        // Whoever follows a run that waits would follow it for ever.
        self.0.over.store(true, Ordering::Release);
        let left: Vec<Arc<ActiveRun>> = self.lives().values().cloned().collect();
        for live in left {
            live.wake();
        }
    }

    /// How much longer than its patience [`Engine::drain`] takes at most.
    pub const AFTER_DRAIN: Duration = Duration::from_millis(2500);

    /// True while new runs are taken.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.0.closing.load(Ordering::Relaxed)
    }

    /// How many runs have a turn under way, or one that waits to begin.
    #[must_use]
    pub fn working(&self) -> usize {
        let lives: Vec<Arc<ActiveRun>> = self.lives().values().cloned().collect();
        lives
            .iter()
            .filter(|live| live.view(|view| matches!(view.info.state, RunState::Queued | RunState::Running)))
            .count()
    }
}

/// Waits until it is so, for no longer than that.
async fn within(time: Duration, is_so: impl Fn() -> bool) {
    const GLANCE: Duration = Duration::from_millis(10);
    let deadline = tokio::time::Instant::now() + time;
    while !is_so() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(GLANCE.min(time)).await;
    }
}
