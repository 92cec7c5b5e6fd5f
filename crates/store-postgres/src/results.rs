//! The result of a flush, from its rows. Not here: the replies to waiting callers ([`super::flush`]).

use tokio_postgres::Row;
use uuid::Uuid;

use super::work::WriteOutcome;
use interlingua_store::{Conflict, StoreError, Version};

/// The results of a flush, each list in the order of its work.
#[derive(Default)]
pub(super) struct Results {
    pub(super) opened: Vec<Uuid>,
    pub(super) claimed: Vec<Uuid>,
    /// `None`: not known any more.
    pub(super) heads: Option<Vec<Uuid>>,
    pub(super) removed: Vec<Result<bool, StoreError>>,
    pub(super) written: Vec<Result<WriteOutcome, Conflict>>,
    pub(super) queued: Vec<Option<(u64, bool)>>,
}

pub(super) fn removed_in(rows: &[Row]) -> Result<bool, StoreError> {
    let (was_there, is_gone) = rows.first().map_or((false, false), |row| (row.get(0), row.get(1)));
    if was_there && !is_gone { Err(StoreError::Fenced) } else { Ok(is_gone) }
}

pub(super) fn written_in(rows: &[Row]) -> Result<WriteOutcome, Conflict> {
    let row = rows.first().ok_or(Conflict)?;
    let version = row.get::<_, Option<i64>>(0).ok_or(Conflict)?;
    Ok(WriteOutcome { version: Version(version.unsigned_abs()), deleted: row.get::<_, i64>(1) > 0 })
}

pub(super) fn place_in(rows: &[Row]) -> Option<(u64, bool)> {
    rows.first().map(|row| (row.get::<_, i64>(0).unsigned_abs(), row.get(1)))
}
