//! Keeping the gateway in order: what the last process left open, what is too old, and how the gateway is closed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use interlingua_core::run::RunError;
use interlingua_core::seal::Sealer;
use interlingua_core::{End, Fault, FaultKind, RunId};
use tokio::time::{Instant, sleep};

use super::seal_key;
use crate::agent::Agents;
use crate::deliveries::{Deliveries, LeftDeliveries, StartReason};
use crate::runs::{ActiveRun, Publish, RunHandle, RunTable, SharedRules, stop_lost};
use crate::turns::Canceller;
use interlingua_base::clock;
use interlingua_store::{Claim, Signal, StoreError, StoredRun};

/// How long runs that are stopped when the gateway closes may take to end.
const ENDING_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long deliveries may take after that for what they have not sent. An idle gateway must exit within a second.
const DELIVERING_TIMEOUT: Duration = Duration::from_millis(800);
/// How often a condition is checked while it is waited for.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// How many runs of a lost gateway are closed at the same time.
const CLOSED_AT_ONCE: usize = 16;
/// The shortest pause between two rounds.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The longest pause between two rounds.
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// A round begins early once this share of the runs that may be kept has come, one in so many, and at least so many
/// runs.
const EARLY_SHARE: u64 = 10;
const EARLY_RUNS: u64 = 100;

/// The lease of the replica that deletes what is too old.
const HOUSEKEEPING: &str = "housekeeping";
/// The lease of the replica that does so at the moment: one that has had many runs does not wait for the other.
const ROUND: &str = "housekeeping-round";

/// The unfinished runs of lost processes that the store handed out.
struct RecoveryReport {
    /// How many runs.
    left: usize,
    /// How many of them were closed: damaged ones stay as they are.
    closed: usize,
}

/// Recovers, expires and closes.
pub(crate) struct Housekeeping {
    pub(crate) agents: Arc<Agents>,
    pub(crate) runs: Arc<RunTable>,
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) left_deliveries: LeftDeliveries,
    pub(crate) canceller: Arc<Canceller>,
    pub(crate) rules: Arc<SharedRules>,
    pub(crate) sealer: Sealer,
}

impl Housekeeping {
    /// Keeps the store in bounds, ends runs that other processes want to be ended, and closes what a lost one left.
    /// Never returns; dropped, it stops.
    pub(crate) async fn run(&self) {
        let mut signals = self.runs.store().signals();
        let holder = clock::new_id().to_string();
        let mut is_early = false;
        loop {
            if is_early || self.has_lease(HOUSEKEEPING, &holder).await {
                self.round(&holder).await;
            }
            // No run outlives its time by much.
            let interval = (self.rules.load().retention.min_ttl() / 4).clamp(MIN_INTERVAL, MAX_INTERVAL);
            let pause = self.pause(interval);
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    early = &mut pause => {
                        is_early = early;
                        break;
                    }
                    signal = signals.recv() => {
                        let Some((id, signal)) = signal else { return };
                        self.obey(id, signal).await;
                    }
                }
            }
        }
    }

    /// Does what another replica asks for a run that this one has.
    async fn obey(&self, id: RunId, signal: Signal) {
        let Some(run) = self.runs.get(id) else { return };
        match signal {
            Signal::Cancel => drop(run.end()),
            Signal::ReceiversChanged => {
                let Some(scope) = self.rules.scope_of(&run) else { return };
                if let Err(fault) = self.deliveries.receivers_changed(&run, &scope).await {
                    tracing::warn!(run = %id, "cannot read the push receivers of a run that were configured at another gateway: {fault}");
                }
            }
        }
    }

    /// Waits for the next round. Many new runs bring it forward: in a minute, a thousand of them a second would take a
    /// multiple of what may be kept: true if it was. Meanwhile runs of lost replicas are closed, and what they did not
    /// push is sent.
    async fn pause(&self, interval: Duration) -> bool {
        let (began, ended) = (Instant::now(), self.runs.turns_ended());
        let replicas = self.runs.store().replica().map_or(1, |replica| replica.replicas);
        let many = early_runs(self.rules.load().retention.runs, replicas);
        while began.elapsed() < interval {
            if self.runs.turns_ended() - ended >= many {
                return true;
            }
            sleep(MIN_INTERVAL).await;
            self.recover_lost().await;
            self.left_deliveries.look().await;
        }
        false
    }

    /// Closes what replicas left that the others have not seen for too long.
    async fn recover_lost(&self) {
        // The store hands out some at a time.
        loop {
            match self.close_left().await {
                Ok(RecoveryReport { left: 0, .. }) => return,
                Ok(RecoveryReport { closed: 0, .. }) => {}
                Ok(RecoveryReport { closed, .. }) => {
                    tracing::warn!(runs = closed, "runs that a gateway left unfinished are closed as failed");
                }
                Err(error) => return tracing::debug!(%error, "runs of lost gateways cannot be looked for"),
            }
        }
    }

    /// One of all replicas deletes what is too old, and no two at the same time.
    async fn round(&self, holder: &str) {
        if self.has_lease(ROUND, holder).await {
            self.run_once().await;
            drop(self.runs.store().release(ROUND, holder));
        }
    }

    /// True if this replica has a lease.
    async fn has_lease(&self, key: &str, holder: &str) -> bool {
        let lease = self.runs.store().lease(key, holder, 2 * MAX_INTERVAL).await;
        lease.unwrap_or_else(|error| {
            tracing::debug!(%error, "old runs are not deleted now");
            false
        })
    }

    /// Ends what has waited for too long, and deletes what is too old.
    async fn run_once(&self) {
        // Each run once: one whose end cannot be written is not tried for ever.
        let mut tried = HashSet::new();
        let mut more = true;
        while more {
            let swept = match self.runs.store().retain(self.rules.load().retention.clone(), clock::now()).await {
                Ok(swept) => swept,
                Err(error) => return tracing::warn!(%error, "cannot delete old runs: the next round tries again"),
            };
            more = swept.more;
            for id in swept.runs.iter().chain(&swept.hidden) {
                // A reader keeps what it has; the next one finds what the store has.
                self.runs.remove(*id);
            }
            for id in swept.stale {
                more |= tried.insert(id) && self.expire(id).await;
            }
        }
    }

    /// Ends a run that has waited for longer than it may. True if it did.
    async fn expire(&self, id: RunId) -> bool {
        self.try_expire(id).await.unwrap_or_else(|fault| {
            tracing::warn!(run = %id, "cannot end a run that waits for longer than its limit: {fault}");
            false
        })
    }

    async fn try_expire(&self, id: RunId) -> Result<bool, Fault> {
        // It may have been answered since the store was asked.
        let found = self.runs.find(id).await?;
        let Some(run) = found.filter(|run| run.view(|view| self.rules.is_stale(view.info))) else {
            return Ok(false);
        };

        let run = self.runs.activate(run).await?;
        if let Some(scope) = self.rules.scope_of(&run) {
            self.deliveries.start(&run, StartReason::RunContinues, &scope).await?;
        }
        Ok(self.canceller.end_waiting(&run, |about| self.rules.is_stale(about)).await)
    }

    /// Closes the runs that were under way when the last process died: they fail, with a code of their own. Returns how
    /// many it closed.
    pub(crate) async fn recover(&self) -> Result<usize, StoreError> {
        self.close_left().await.map(|recovered| recovered.closed)
    }

    async fn close_left(&self) -> Result<RecoveryReport, StoreError> {
        seal_key::load(self.runs.store(), &self.sealer).await?;
        let ids = self.runs.store().recover().await?;
        let (left, mut closed, mut failed) = (ids.len(), 0, None);
        // Each waits for the store several times: one after the other, many runs would take minutes.
        let mut closing = stream::iter(ids).map(|id| self.recover_stored(id)).buffer_unordered(CLOSED_AT_ONCE);
        while let Some(one) = closing.next().await {
            // All are tried: what was handed out is not handed out again soon.
            match one {
                Ok(is_closed) => closed += usize::from(is_closed),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(RecoveryReport { left, closed }), Err)
    }

    /// True if the run is closed.
    async fn recover_stored(&self, id: RunId) -> Result<bool, StoreError> {
        match self.runs.store().load(id).await {
            Ok(Some(stored)) => self.recover_one(&stored).await,
            Ok(None) => Ok(false),
            // One damaged run must not keep the gateway from its start.
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::error!(%error, "a run that was under way stays as it is");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// True if the run is closed: its agent is configured.
    async fn recover_one(&self, stored: &StoredRun) -> Result<bool, StoreError> {
        let Some(agent) = self.agents.of_stored_run(&stored.record.run().agent) else { return Ok(false) };
        let run = ActiveRun::from_stored(agent, stored);
        self.runs.store().open(&run.journal(), Claim::Existing { events: stored.record.len() }).await?;
        if let Some(scope) = self.rules.scope_of(&run)
            && let Err(fault) = self.deliveries.start(&run, StartReason::RunRecovered, &scope).await
        {
            tracing::warn!(run = %run.id(), "cannot send the end of an unfinished run to its push receivers: {fault}");
        }

        let error = RunError {
            code: FaultKind::Restarted.code().to_owned(),
            message: "the gateway was restarted while the run was under way".to_owned(),
        };

        run.update(Publish::Later, |state| state.cut(End::Failed, Some(error)));
        // What an earlier turn asked is not open any more: nothing waits after a failure.
        if let Err(fault) = self.canceller.withdraw(&RunHandle::InMemory(run.pin())).await {
            tracing::warn!(run = %run.id(), "cannot close the pending items of an unfinished run: {fault}");
        }

        self.runs.store().settle(&run.journal()).await?;
        run.publish(Publish::Concluded);
        run.count_end();
        stop_lost(&self.runs, &run);
        Ok(true)
    }

    /// Takes no new runs, waits until those under way have ended and are written, and ends what is left when the time
    /// is up.
    pub(crate) async fn drain(&self, time: Duration) {
        self.runs.stop_accepting();
        wait_until(time, || !self.runs.is_driving()).await;

        self.runs.stop_turns();
        wait_until(ENDING_TIMEOUT, || !self.runs.is_driving()).await;
        // Followers of a run that waits would follow it for ever.
        self.runs.close();
    }

    /// Waits until push receivers have what has happened, as far as they take it: the rest comes later, from another
    /// process.
    pub(crate) async fn deliver_rest(&self) {
        wait_until(DELIVERING_TIMEOUT, || !self.deliveries.is_lagging()).await;
    }
}

/// Number of new runs of one replica that brings a round forward, at least 1. A replica counts only its own runs, and
/// assumes as many of every other one.
fn early_runs(kept: u64, replicas: usize) -> u64 {
    let replicas = u64::try_from(replicas).unwrap_or(u64::MAX).max(1);
    (EARLY_RUNS.max(kept / EARLY_SHARE) / replicas).max(1)
}

/// Waits until something is so, at most for this time.
async fn wait_until(time: Duration, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + time;
    while !is_so() && Instant::now() < deadline {
        sleep(CHECK_INTERVAL.min(time)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_begins_early_only_after_new_runs() {
        for (kept, replicas, expected) in [
            (0, 1, 100),
            (100_000, 1, 10_000),
            (100_000, 4, 2_500),
            (0, 0, 100),
            (0, 101, 1),
            (u64::MAX, usize::MAX, 1),
        ] {
            assert_eq!(early_runs(kept, replicas), expected, "{kept} runs, {replicas} replicas");
        }
    }
}
