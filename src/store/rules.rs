//! The rules of a [`Retention`] policy for sets of runs, for stores that select by query: pure functions. Not here: the
//! queries, and the fair division of deletions ([`super::fair`]).

use interlingua_core::event::Millis;
use interlingua_core::id::RunId;

use super::{Retention, before};

/// Maximum number of runs, or of documents, that one call of `retain` deletes per rule.
pub(super) const BATCH: usize = 200;

/// The rules for a set of runs: those of a route, or all.
pub(super) struct RuleSet<'a> {
    pub(super) route: Option<&'a str>,
    /// Runs that ended before this time are deleted.
    pub(super) ended_before: Millis,
    /// Runs that have been waiting since before this time are stale.
    pub(super) waiting_before: Millis,
    /// Maximum number of runs: per owner for a route, otherwise in total.
    pub(super) max_runs: u64,
}

/// A run selected for deletion.
pub(super) struct Candidate {
    pub(super) id: RunId,
    pub(super) owner: String,
    /// True if the run is hidden instead of deleted, because other runs continue from it.
    pub(super) hide_only: bool,
    pub(super) size: u64,
}

/// The rules of each route, and then those for all runs.
pub(super) fn rule_sets(policy: &Retention, now: Millis) -> impl Iterator<Item = RuleSet<'_>> {
    let expired_before = before(now, policy.age);
    let routes = policy.routes.iter().map(move |(route, rules)| RuleSet {
        route: Some(route),
        ended_before: before(now, rules.ended_ttl),
        waiting_before: before(now, rules.waiting_ttl),
        max_runs: rules.max_runs,
    });
    let general =
        RuleSet { route: None, ended_before: expired_before, waiting_before: expired_before, max_runs: policy.runs };
    routes.chain([general])
}

/// True if something of this size has to go, while there are `left` bytes to be freed.
pub(super) fn has_to_go(size: u64, left: &mut u64) -> bool {
    let goes = *left > 0;
    *left = left.saturating_sub(size);
    goes
}
