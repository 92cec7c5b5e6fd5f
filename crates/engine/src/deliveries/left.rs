//! Deliveries of lost processes: this process continues them.
//!
//! Recovery closes a run that was under way and starts its deliveries itself. The others are runs that waited or had
//! ended before all their steps were sent. Not here: the list ([`super::undelivered`]), and how a delivery is done
//! ([`super::table`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlingua_core::call::RunState;
use interlingua_core::{FaultKind, RunId};
use tokio::time::Instant;

use super::table::Deliveries;
use super::undelivered::{Left, Undelivered};
use crate::runs::{RunTable, SharedRules};
use interlingua_store::StoreError;

/// The pause between two searches for lost processes.
const INTERVAL: Duration = Duration::from_secs(5);
/// The most deliveries that are continued at once.
const MAX_RESUMED: usize = 64;

/// Continues what lost processes have left.
pub(crate) struct LeftDeliveries {
    runs: Arc<RunTable>,
    deliveries: Arc<Deliveries>,
    rules: Arc<SharedRules>,
    looked_at: Mutex<Option<Instant>>,
    /// True once nothing is left and no other process can leave more.
    is_done: AtomicBool,
}

impl LeftDeliveries {
    pub(crate) fn new(runs: &Arc<RunTable>, deliveries: &Arc<Deliveries>, rules: &Arc<SharedRules>) -> Self {
        Self {
            runs: Arc::clone(runs),
            deliveries: Arc::clone(deliveries),
            rules: Arc::clone(rules),
            looked_at: Mutex::default(),
            is_done: AtomicBool::new(false),
        }
    }

    /// Called every second. Looks for lost processes every few seconds; in a store without replicas, until nothing is
    /// left of the processes before this one.
    pub(crate) async fn look(&self) {
        self.undelivered().keep_lease().await;
        if self.is_done.load(Ordering::Relaxed) || !self.is_due() {
            return;
        }
        match self.resume_all().await {
            Ok(is_all) => self.is_done.store(is_all && self.runs.store().replica().is_none(), Ordering::Relaxed),
            Err(error) => tracing::debug!(%error, "the unsent push requests of lost gateways cannot be listed"),
        }
    }

    fn undelivered(&self) -> &Undelivered {
        self.deliveries.undelivered()
    }

    fn is_due(&self) -> bool {
        let mut looked_at = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = looked_at.is_none_or(|at| at.elapsed() >= INTERVAL);
        if is_due {
            *looked_at = Some(Instant::now());
        }
        is_due
    }

    /// True if nothing is left.
    async fn resume_all(&self) -> Result<bool, StoreError> {
        let mut is_all = true;
        for process in self.undelivered().lost_processes().await? {
            if self.resume_of(&process).await? {
                self.undelivered().release(&process);
            } else {
                is_all = false;
            }
        }
        Ok(is_all)
    }

    /// True if a process has left nothing more.
    async fn resume_of(&self, process: &str) -> Result<bool, StoreError> {
        let (mut is_all, mut last) = (true, None);
        loop {
            let page = self.undelivered().left_by(process, last.as_ref()).await?;
            let states = self.states(&page).await?;
            for left in &page {
                if self.deliveries.resumed() >= MAX_RESUMED {
                    return Ok(false);
                }
                is_all &= self.resume(left, &states).await?;
            }
            match page.into_iter().last() {
                Some(left) => last = Some(left),
                None => return Ok(is_all),
            }
        }
    }

    /// Where the runs of a page stand. Those that are not there any more, and damaged ones, are left out.
    async fn states(&self, page: &[Left]) -> Result<HashMap<RunId, RunState>, StoreError> {
        if page.is_empty() {
            return Ok(HashMap::new());
        }
        let ids = page.iter().filter_map(Left::run).collect();
        let heads = self.runs.store().heads(ids).await?;
        Ok(heads.iter().map(|head| (head.record.run().id, head.info.state)).collect())
    }

    /// True if nothing is left of a delivery but what this process sends from now on.
    async fn resume(&self, left: &Left, states: &HashMap<RunId, RunState>) -> Result<bool, StoreError> {
        if let Some(run) = left.run() {
            if states.get(&run).is_some_and(|state| state.is_working()) {
                // Whichever replica has the run sends it, or is lost too.
                return Ok(false);
            }
            // A run without a state was deleted, or is damaged: then its events may still be there.
            if let Err(fault) = self.deliveries.resume_left(run, left, &self.rules).await {
                tracing::warn!(%run, "cannot send the push requests that a lost gateway has not sent: {fault}");
                if fault.kind == FaultKind::Overloaded {
                    return Ok(false);
                }
            }
        }
        self.undelivered().settle(left).await?;
        Ok(true)
    }
}
