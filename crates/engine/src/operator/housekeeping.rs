//! Recovery of unfinished runs, retention, signals of other replicas, and the end of the gateway.

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

/// Time for runs to end after the gateway has stopped them.
const ENDING_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time for deliveries to send the remaining steps after that. An idle gateway must exit within a second.
const DELIVERING_TIMEOUT: Duration = Duration::from_millis(800);
/// Interval at which an awaited condition is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Number of unfinished runs that are closed at the same time.
const CLOSED_AT_ONCE: usize = 16;
/// Minimum pause between two rounds.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum pause between two rounds.
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// Divisor of the store's limit of runs: a round begins early after this share of new runs, but after at least
/// [`EARLY_RUNS`].
const EARLY_SHARE: u64 = 10;
const EARLY_RUNS: u64 = 100;

/// The lease of the replica that runs the regular rounds.
const HOUSEKEEPING: &str = "housekeeping";
/// The lease during one round. A replica with many new runs begins a round without the other lease.
const ROUND: &str = "housekeeping-round";

/// The result of one recovery.
struct RecoveryReport {
    /// Number of unfinished runs that the store handed out.
    left: usize,
    /// Number of runs that were closed. Damaged runs, and runs whose agent is not configured, stay as they are.
    closed: usize,
}

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
    /// Runs the rounds, obeys signals of other replicas, and recovers runs and deliveries of lost ones. Returns only
    /// when the store closes its signals.
    pub(crate) async fn run(&self) {
        let mut signals = self.runs.store().signals();
        let holder = clock::new_id().to_string();
        let mut is_early = false;
        loop {
            if is_early || self.has_lease(HOUSEKEEPING, &holder).await {
                self.round(&holder).await;
            }
            // Expired data is kept for at most a quarter of the shortest time to live, within these bounds.
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

    /// Obeys the signal of another replica for a run that this one has.
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

    /// Waits for the next round. True: many new runs brought it forward, because at a thousand runs a second the store
    /// would exceed its limit several times in a minute. Meanwhile it closes runs of lost replicas and continues their
    /// deliveries.
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

    /// Closes the unfinished runs of replicas that the store has fenced.
    async fn recover_lost(&self) {
        // The store hands out some of them at a time.
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

    /// Runs one round, unless another replica runs one at this moment.
    async fn round(&self, holder: &str) {
        if self.has_lease(ROUND, holder).await {
            self.run_once().await;
            drop(self.runs.store().release(ROUND, holder));
        }
    }

    /// Acquires or renews a lease. False: another replica has it, or the store failed.
    async fn has_lease(&self, key: &str, holder: &str) -> bool {
        let lease = self.runs.store().lease(key, holder, 2 * MAX_INTERVAL).await;
        lease.unwrap_or_else(|error| {
            tracing::debug!(%error, "old runs are not deleted now");
            false
        })
    }

    /// Deletes expired data, and ends runs that have waited for too long.
    async fn run_once(&self) {
        // Each run is tried once: the loop must end although the end of a run cannot be written.
        let mut tried = HashSet::new();
        let mut more = true;
        while more {
            let swept = match self.runs.store().retain(self.rules.load().retention.clone(), clock::now()).await {
                Ok(swept) => swept,
                Err(error) => return tracing::warn!(%error, "cannot delete old runs: the next round tries again"),
            };
            more = swept.more;
            for id in swept.runs.iter().chain(&swept.hidden) {
                // Present readers keep their copy; later ones read from the store.
                self.runs.remove(*id);
            }
            for id in swept.stale {
                more |= tried.insert(id) && self.expire(id).await;
            }
        }
    }

    /// Ends a run that has waited for longer than its limit. True if it was ended.
    async fn expire(&self, id: RunId) -> bool {
        self.try_expire(id).await.unwrap_or_else(|fault| {
            tracing::warn!(run = %id, "cannot end a run that waits for longer than its limit: {fault}");
            false
        })
    }

    async fn try_expire(&self, id: RunId) -> Result<bool, Fault> {
        // A client may have answered it since the store listed it.
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

    /// Closes the unfinished runs of earlier processes and of fenced replicas: they fail, with a code of their own.
    /// Returns the number of closed runs.
    pub(crate) async fn recover(&self) -> Result<usize, StoreError> {
        self.close_left().await.map(|recovered| recovered.closed)
    }

    async fn close_left(&self) -> Result<RecoveryReport, StoreError> {
        seal_key::load(self.runs.store(), &self.sealer).await?;
        let ids = self.runs.store().recover().await?;
        let (left, mut closed, mut failed) = (ids.len(), 0, None);
        // Each run waits for the store several times: closed one after the other, many runs would take minutes.
        let mut closing = stream::iter(ids).map(|id| self.recover_stored(id)).buffer_unordered(CLOSED_AT_ONCE);
        while let Some(one) = closing.next().await {
            // All are tried although one failed: the store does not return the same runs again soon.
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
            // One damaged run must not prevent the start of the gateway.
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::error!(%error, "a run that was under way stays as it is");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Closes a run. False: its agent is not configured.
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
        // The items of earlier turns are no longer open: a failed run waits for nothing.
        if let Err(fault) = self.canceller.withdraw(&RunHandle::InMemory(run.pin())).await {
            tracing::warn!(run = %run.id(), "cannot close the pending items of an unfinished run: {fault}");
        }

        self.runs.store().settle(&run.journal()).await?;
        run.publish(Publish::Concluded);
        run.count_end();
        stop_lost(&self.runs, &run);
        Ok(true)
    }

    /// Accepts no new runs, waits at most for this time until the runs under way have ended and are written, and then
    /// stops the remaining ones.
    pub(crate) async fn drain(&self, time: Duration) {
        self.runs.stop_accepting();
        wait_until(time, || !self.runs.is_driving()).await;

        self.runs.stop_turns();
        wait_until(ENDING_TIMEOUT, || !self.runs.is_driving()).await;
        // Followers of a waiting run would never end.
        self.runs.close();
    }

    /// Waits for a short time until push receivers have all published steps. Another process sends the remaining ones
    /// later, if the store is kept.
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

/// Waits until a condition holds, at most for this time.
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
