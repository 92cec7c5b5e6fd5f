//! The rules of a [`Retention`] policy for sets of runs, for stores that select by query: pure functions. Not here: the
//! queries, and the fair division of deletions ([`super::fair`]).

use interlingua_core::event::Millis;
use interlingua_core::id::RunId;

use super::{Retention, before};

/// Maximum number of runs, or of documents, that one call of `retain` deletes per rule.
pub const BATCH: usize = 200;

/// The rules for a set of runs: those of a route, or all.
pub struct RuleSet<'a> {
    /// The route of the runs. `None`: all runs.
    pub route: Option<&'a str>,
    /// Runs that ended before this time are deleted.
    pub ended_before: Millis,
    /// Runs that have been waiting since before this time are stale.
    pub waiting_before: Millis,
    /// Maximum number of runs: per owner for a route, otherwise in total.
    pub max_runs: u64,
}

/// A run selected for deletion.
pub struct Candidate {
    /// The id of the run.
    pub id: RunId,
    /// The key of its owner.
    pub owner: String,
    /// True if the run is hidden instead of deleted, because other runs continue from it.
    pub hide_only: bool,
    /// Its size in bytes.
    pub size: u64,
}

/// The rules of each route, and then those for all runs.
pub fn rule_sets(policy: &Retention, now: Millis) -> impl Iterator<Item = RuleSet<'_>> {
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
pub fn has_to_go(size: u64, left: &mut u64) -> bool {
    let goes = *left > 0;
    *left = left.saturating_sub(size);
    goes
}
