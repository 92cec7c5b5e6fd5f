//! Pending items: which run of which session waits for an answer, and runs that an answer in another run ends.
//!
//! Imports [`crate::deliveries`] and modules below it. Not here: how an answer is read and checked
//! ([`interlingua_core::answer`]).

mod index;
mod linked_runs;
mod resent;

pub(crate) use self::index::PendingIndex;
#[cfg(test)]
pub(crate) use self::index::parse_entry;
pub(crate) use self::linked_runs::{LinkedRuns, RunLinker};
pub(crate) use self::resent::{GoesOn, ResentChooser};
