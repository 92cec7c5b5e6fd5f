//! A write transaction in progress, and the work that is done in it.

use std::sync::Arc;

use rusqlite::Transaction;

use super::health::UnwrittenRuns;
use super::reader::QueryError;
use super::tracked::TrackedRuns;
use interlingua_store::{Journal, StoreError};

/// Work whose result is reported once it is durable.
pub(super) trait Task: Send {
    /// Does the work inside a transaction that may still fail to commit; in that case this is called again.
    fn attempt(&mut self, tx: &mut WriteTransaction<'_>) -> Result<(), QueryError>;
    /// Sends the result, or `error`, to the waiting caller.
    fn respond(self: Box<Self>, error: Option<&StoreError>);
    /// The run that still has to be written if this fails, and whether it must be opened first.
    fn unwritten_run(&self) -> Option<(&Arc<dyn Journal>, bool)> {
        None
    }
}

/// The written part of a run in a transaction.
pub(super) struct CommittedRun {
    pub(super) run: Arc<dyn Journal>,
    /// The number of durable events.
    pub(super) events: u64,
    /// The number of events in segments, and not only in the log.
    pub(super) archived: u64,
}

/// A transaction in progress, and the writer's state.
pub(super) struct WriteTransaction<'a> {
    pub(super) sql: &'a Transaction<'a>,
    pub(super) tracked: &'a mut TrackedRuns,
    pub(super) unwritten: &'a UnwrittenRuns,
    pub(super) version: u64,
    pub(super) log: &'a mut Vec<u8>,
    pub(super) committed: &'a mut Vec<CommittedRun>,
    /// True if this transaction must empty the log, because its lines are outdated.
    pub(super) empty_log: bool,
    pub(super) failing: Option<&'a StoreError>,
}

impl WriteTransaction<'_> {
    /// Fails while touched runs are not durable.
    pub(super) fn check_all_written(&self) -> Result<(), QueryError> {
        match self.failing {
            Some(error) if !self.unwritten.is_empty() => Err(QueryError::Store(error.clone())),
            _ => Ok(()),
        }
    }
}
