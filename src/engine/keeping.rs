//! Keeping the house: what the last process left open, what is too old, and how the gateway is closed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use interlingua_core::call::{RunState, Target};
use interlingua_core::run::RunError;
use interlingua_core::{End, Fault, FaultKind, RunId};

use super::{Engine, Live, Scope, clock};
use crate::store::{Journal, Retention, Signal, StoreError};

impl Engine {
    /// Closes what the last process left open, and keeps the store in bounds from then on. Runs until it is dropped.
    pub async fn housekeeping(self, retention: Retention) {
        const PAUSE: Duration = Duration::from_secs(60);
        let mut signals = self.store().signals();
        loop {
            loop {
                match self.store().retain(retention.clone(), clock::now()).await {
                    Ok(swept) => {
                        for id in swept.stale {
                            self.expire(id).await;
                        }
                        if !swept.more {
                            break;
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "old runs could not be forgotten");
                        break;
                    }
                }
            }
            let pause = tokio::time::sleep(PAUSE);
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    signal = signals.recv() => {
                        let Some((id, Signal::Cancel)) = signal else { return };
                        if let Some(live) = self.lives().get(&id).cloned() {
                            live.stop(None);
                        }
                    }
                }
            }
        }
    }

    /// Ends a run that has waited for an answer for longer than runs are kept.
    async fn expire(&self, id: RunId) {
        let Ok(Some(run)) = self.handle(id).await else { return };
        let scope = Scope {
            owner: run.view(|view| view.about.owner.clone()),
            agents: self.0.agents.values().map(|agent| Arc::clone(&agent.card)).collect(),
            protocol: "",
            detach: false,
            patience: Duration::ZERO,
            couriers: None,
        };
        if let Err(fault) = self.cancel(&Target::Run(id), &scope).await {
            tracing::warn!(run = %id, "a run that waits for too long could not be ended: {fault}");
        }
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
            let live = Live::new(Arc::clone(agent), stored.record.clone(), stored.about.clone());
            let journal = Arc::clone(&live) as Arc<dyn Journal>;
            self.store().open(&journal).await?;
            let error = RunError {
                code: FaultKind::Restarted.code().to_owned(),
                message: "the gateway was restarted while the run was under way".to_owned(),
            };
            live.grow(|state| state.cut(End::Failed, Some(error)));
            self.store().settle(&journal).await?;
        }
        Ok(left.len())
    }

    /// Takes no new runs, waits for those under way, and ends what is left when the time is up.
    pub async fn drain(&self, patience: Duration) {
        self.0.closing.store(true, Ordering::Relaxed);
        let deadline = tokio::time::Instant::now() + patience;
        while self.working() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let left: Vec<Arc<Live>> = self.lives().values().cloned().collect();
        for live in left {
            live.stop(Some(Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down")));
        }
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        while self.working() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// True while new runs are taken.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.0.closing.load(Ordering::Relaxed)
    }

    fn working(&self) -> usize {
        let lives: Vec<Arc<Live>> = self.lives().values().cloned().collect();
        lives
            .iter()
            .filter(|live| live.view(|view| matches!(view.about.state, RunState::Queued | RunState::Running)))
            .count()
    }
}
