//! The rules by which a store deletes old runs and documents, and a report of what it deleted.
//!
//! Not here: the choice of what to delete ([`super::retention`]).

use std::time::Duration;

use interlingua_core::call::{RunInfo, RunState};
use interlingua_core::event::Millis;
use interlingua_core::exchange::RunRetention;
use interlingua_core::id::RunId;

use super::OwnerBoundsOf;

/// The rules by which [`Store::retain`] deletes.
#[derive(Clone, Debug)]
pub struct Retention {
    /// Time that a run is kept after its last change, and a document after its last write.
    pub age: Duration,
    /// Maximum number of runs. Above it, the owners with the most runs lose runs first: those that ended and changed
    /// longest ago.
    pub runs: u64,
    /// Maximum number of documents in each of the `collections`, by the same rule.
    pub documents: u64,
    /// Approximate maximum size in bytes, enforced first on runs and then on documents in `collections`, by the same
    /// rule.
    pub bytes: u64,
    /// Collections whose documents expire by age. All other documents stay.
    pub collections: Vec<String>,
    /// Collections of part documents, each with the collection of the documents they belong to: both are deleted
    /// together.
    pub parts: Vec<(String, String)>,
    /// Routes that keep their runs ([`RunInfo::retention`]) for less time, with a maximum per owner. A run that other
    /// runs continue from is hidden instead of deleted; from then on only the general rules apply to it.
    pub routes: Vec<(String, RunRetention)>,
    /// Collections whose documents are deleted with a run: those under [`owned_key`] of the run's owner and `<run>/…`.
    pub attached: Vec<String>,
    /// The limits of each principal. A principal that exceeds its limit loses its own oldest data, before the rules
    /// above delete data of anyone.
    pub bounds: OwnerBoundsOf,
}

impl Retention {
    /// For each route, the time before which its ended runs are expired.
    #[must_use]
    pub fn expiry_cutoffs(&self, now: Millis) -> Vec<(String, Millis)> {
        self.routes.iter().map(|(route, rules)| (route.clone(), before(now, rules.ended_ttl))).collect()
    }

    /// The route's rules for a run. `None`: only the general rules apply.
    #[must_use]
    pub fn rules_for(&self, info: &RunInfo) -> Option<&RunRetention> {
        let owner = info.retention.as_ref()?;
        self.routes.iter().find(|(route, _)| *route == owner.route).map(|(_, rules)| rules)
    }

    /// True if a run has ended and its time to live is over.
    #[must_use]
    pub fn is_expired(&self, info: &RunInfo, now: Millis) -> bool {
        matches!(info.state, RunState::Ended(_))
            && self.rules_for(info).is_some_and(|rules| info.changed_at < before(now, rules.ended_ttl))
    }

    /// True if a run has waited for input longer than it may.
    #[must_use]
    pub fn is_stale(&self, info: &RunInfo, now: Millis) -> bool {
        let ttl = self.rules_for(info).map_or(self.age, |rules| rules.waiting_ttl.min(self.age));

        matches!(info.state, RunState::Waiting | RunState::WaitingForAuth) && info.changed_at < before(now, ttl)
    }

    /// The shortest time to live of all rules.
    #[must_use]
    pub fn min_ttl(&self) -> Duration {
        let times = self.routes.iter().flat_map(|(_, rules)| [rules.ended_ttl, rules.waiting_ttl]);
        times.fold(self.age, Duration::min)
    }
}

/// The time `age` before `now`.
pub fn before(now: Millis, age: Duration) -> Millis {
    now.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// The deletions of one call of [`Store::retain`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionReport {
    /// Deleted runs.
    pub runs: Vec<RunId>,
    /// Runs that their owners no longer find, but that stay stored for their conversations.
    pub hidden: Vec<RunId>,
    /// Number of deleted documents.
    pub documents: usize,
    /// Runs that have waited too long. The store keeps them; the engine ends them.
    pub stale: Vec<RunId>,
    /// True if there is more to delete: call again.
    pub more: bool,
}
