//! The size limits of a flush. After an outage thousands of turns may have ended: locks for all of them at once exceed
//! the lock table of the database, which would refuse the same flush however often it is sent. Not here: dividing a
//! flush that is still too large ([`super::halves`]).

use std::collections::HashSet;

use interlingua_core::id::RunId;

use super::super::tracked::RunWrites;
use super::super::work::WriteCommand;

/// Maximum number of keys that one flush locks, and so of its statements. The lock table of a database has room for 64
/// times its connections, for all gateways together.
const MAX_KEYS: usize = 500;
/// Maximum bytes of a flush, unless a single piece of work is larger.
const MAX_BYTES: usize = 16 << 20;

/// The room that is left in a flush.
#[derive(Default)]
pub(super) struct SizeBudget {
    keys: usize,
    /// Bytes of documents.
    bytes: usize,
    /// Bytes of runs in the log.
    log: usize,
    /// Bytes of runs in rows of their own, and in how many of them.
    rows: (usize, usize),
    removed: HashSet<RunId>,
}

impl SizeBudget {
    /// True if this comes into the flush, after all that came before.
    pub(super) fn takes(&mut self, work: &WriteCommand) -> bool {
        let (keys, bytes) = match work {
            WriteCommand::Documents(work) => (work.writes.len(), work.writes.iter().map(size_of).sum()),
            WriteCommand::Remove { .. }
            | WriteCommand::QueueTurn { .. }
            | WriteCommand::LeaveTurn { .. }
            | WriteCommand::Signal { .. } => (1, 0),
            _ => (0, 0),
        };
        let (before, bytes) = (self.bytes + self.log + self.rows.0, self.bytes.saturating_add(bytes));
        let is_full = self.keys + keys > MAX_KEYS || bytes.saturating_add(self.log + self.rows.0) > MAX_BYTES;
        if is_full && (self.keys > 0 || before > 0) {
            return false;
        }

        match work {
            WriteCommand::Remove { run, .. } => drop(self.removed.insert(*run)),
            // What follows the removal of the same run comes after it.
            WriteCommand::Touch(run) | WriteCommand::Open { run, .. } | WriteCommand::Settle { run, .. }
                if self.removed.contains(&run.id()) =>
            {
                return false;
            }
            _ => {}
        }
        (self.keys, self.bytes) = (self.keys + keys, bytes);
        true
    }

    /// Counts what has been added of runs.
    pub(super) fn count(&mut self, runs: &RunWrites) {
        let (bytes, counted) = self.rows;
        let added: usize = runs.segments.iter().skip(counted).map(|segment| segment.bytes.len()).sum();
        self.rows = (bytes + added, runs.segments.len());
        self.log = runs.log.len();
    }
}

fn size_of(write: &super::super::work::DocumentWriteOwned) -> usize {
    write.key.len() + write.value.as_ref().map_or(0, |value| value.len())
}
