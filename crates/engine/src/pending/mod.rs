//! Pending items: search of the session that a request answers, and runs whose items another run answers.
//!
//! Imports [`crate::deliveries`] and modules below it. Not here: reading and checking answers
//! ([`interlingua_core::answer`]).

mod index;
mod linked_runs;
mod recent;
mod resent;

pub(crate) use self::index::PendingIndex;
#[cfg(test)]
pub(crate) use self::index::parse_entry;
pub(crate) use self::linked_runs::{LinkedRuns, RunLinker};
pub(crate) use self::resent::{MatchedSession, ResentChooser};
