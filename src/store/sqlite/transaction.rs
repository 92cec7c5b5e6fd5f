//! A transaction of the writer, as the statements for runs and documents see it.

use std::sync::Arc;

use rusqlite::Transaction;

use super::health::UnwrittenRuns;
use super::reader::QueryError;
use super::tracked::TrackedRuns;
use crate::store::{Journal, StoreError};

/// A transaction in progress, and the writer's state.
pub(super) struct WriteTransaction<'a> {
    pub(super) sql: &'a Transaction<'a>,
    pub(super) tracked: &'a mut TrackedRuns,
    pub(super) unwritten: &'a UnwrittenRuns,
    pub(super) version: u64,
    pub(super) log: &'a mut Vec<u8>,
    pub(super) committed: &'a mut Vec<(Arc<dyn Journal>, u64)>,
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
