//! State that the gateway's threads and the store's tasks share. Not here: its use.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use interlingua_core::id::RunId;
use uuid::Uuid;

use super::connect::{Connector, Notices};
use super::follows::Follows;
use super::handed_out::HandedOut;
use super::health::WriterHealth;
use super::options::PostgresOptions;
use super::queue::Queue;
use super::reads::Reads;
use super::standing::LeaseTracker;
use super::turns::TurnWaiters;
use interlingua_observe::metrics::StoreMetrics;
use interlingua_store::local::{Signals, lock};
use interlingua_store::{ReplicaStatus, StoreError};

/// Shared by all.
pub(super) struct Inner {
    pub(super) connector: Connector,
    pub(super) queue: Queue,
    pub(super) health: Arc<WriterHealth>,
    pub(super) standing: LeaseTracker,
    pub(super) lease: Duration,
    /// The channel that replicas notify each other on.
    pub(super) channel: String,
    pub(super) notices: Arc<Notices>,
    pub(super) reads: Reads,
    pub(super) turns: TurnWaiters,
    pub(super) follows: Follows,
    pub(super) signals: Signals,
    pub(super) metrics: Option<StoreMetrics>,
    pub(super) handed_out: HandedOut,
    replica: Mutex<Uuid>,
    /// The runs of this replica that others follow, as the database has them.
    followed: Mutex<Option<HashSet<RunId>>>,
    follow_notice: AtomicBool,
}

impl Inner {
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, StoreError> {
        let (connector, health) = (Connector::new(options)?, Arc::new(WriterHealth::default()));
        if let Some(metrics) = &options.metrics {
            metrics.share();
        }
        Ok(Self {
            reads: Reads::new(connector.clone(), options.readers, Arc::clone(&health)),
            connector,
            queue: Queue::default(),
            health,
            standing: LeaseTracker::default(),
            lease: options.lease,
            channel: Notices::channel(&options.schema),
            notices: Arc::default(),
            turns: TurnWaiters::default(),
            follows: Follows::default(),
            signals: Signals::default(),
            handed_out: HandedOut::default(),
            metrics: options.metrics.clone(),
            replica: Mutex::new(Uuid::nil()),
            followed: Mutex::default(),
            follow_notice: AtomicBool::new(false),
        })
    }

    /// Fails before the database was reached, and once the store is closed.
    pub(super) fn check_usable(&self) -> Result<(), StoreError> {
        if self.queue.is_closed() {
            return Err(StoreError::Closed);
        }
        if self.standing.has_joined() {
            return Ok(());
        }
        Err(StoreError::Unavailable { reason: self.health.reason() })
    }

    /// The state of this replica among the others.
    pub(super) fn status(&self) -> ReplicaStatus {
        ReplicaStatus {
            following: self.follows.len(),
            turns_waiting: self.turns.len(),
            connections: self.connector.open_connections(),
            ..self.standing.status(self.lease)
        }
    }

    /// The replica that this process is now.
    pub(super) fn replica(&self) -> Uuid {
        *lock(&self.replica)
    }

    pub(super) fn entered(&self, replica: Uuid) {
        *lock(&self.replica) = replica;
    }

    /// Everything that this replica had is another one's.
    pub(super) fn lost_all(&self) {
        self.standing.lost();
        if let Some(metrics) = &self.metrics {
            metrics.lease_lost();
        }
        self.turns.lose_all();
        *lock(&self.followed) = None;
    }

    /// `took`: the transaction.
    pub(super) fn committed(&self, took: Duration) {
        if let Some(metrics) = &self.metrics {
            metrics.committed(took);
        }
    }

    /// A transaction has written so much of runs. `lag`: since the first of it waited.
    pub(super) fn wrote(&self, bytes: usize, lag: Option<Duration>) {
        if let Some(metrics) = self.metrics.as_ref().filter(|_| bytes > 0) {
            metrics.wrote(u64::try_from(bytes).unwrap_or(u64::MAX), lag);
        }
    }

    pub(super) fn reconnected(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.reconnected();
        }
    }

    pub(super) fn failed(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.failed();
        }
    }

    /// Other replicas may follow other runs than before.
    pub(super) fn notice_follow(&self) {
        self.follow_notice.store(true, Ordering::Release);
        self.queue.wake();
    }

    pub(super) fn take_follow_notice(&self) -> bool {
        self.follow_notice.swap(false, Ordering::AcqRel)
    }

    pub(super) fn set_followed(&self, runs: HashSet<RunId>) {
        *lock(&self.followed) = Some(runs);
    }

    /// Brings what is followed up to date. Returns what was not followed before.
    pub(super) fn take_newly_followed(&self, known: &mut HashSet<RunId>) -> Vec<RunId> {
        let Some(now) = lock(&self.followed).take() else { return Vec::new() };
        let new = now.difference(known).copied().collect();
        *known = now;
        new
    }
}
