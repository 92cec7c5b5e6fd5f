//! Runs by owner, and ended runs by the time of their last change. Not here: the runs themselves ([`super`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use interlingua_core::event::Millis;
use interlingua_core::id::RunId;

/// Ended runs by the time of their last change.
type EndedRuns = BTreeSet<(Millis, RunId)>;

/// The runs of a route, or all.
#[derive(Default)]
pub(super) struct RunIndex {
    owners: HashMap<Arc<str>, OwnerRuns>,
    ended: EndedRuns,
}

#[derive(Default)]
struct OwnerRuns {
    /// Number of all runs.
    count: u64,
    ended: EndedRuns,
}

impl RunIndex {
    /// Adds a run that has not ended.
    pub(super) fn add(&mut self, owner: &Arc<str>) {
        self.owners.entry(Arc::clone(owner)).or_default().count += 1;
    }

    /// Marks a run as ended `now`. `before`: its place until now, if it had ended already.
    pub(super) fn end(&mut self, owner: &str, before: Option<(Millis, RunId)>, now: (Millis, RunId)) {
        let of_owner = self.owners.get_mut(owner).map(|runs| &mut runs.ended);
        for ended in of_owner.into_iter().chain([&mut self.ended]) {
            if let Some(before) = &before {
                ended.remove(before);
            }
            ended.insert(now);
        }
    }

    /// Removes a run. `ended`: its place, if it had ended.
    pub(super) fn remove(&mut self, owner: &str, ended: Option<(Millis, RunId)>) {
        if let Some(ended) = &ended {
            self.ended.remove(ended);
        }
        let Some(runs) = self.owners.get_mut(owner) else { return };
        if let Some(ended) = &ended {
            runs.ended.remove(ended);
        }
        runs.count -= 1;
        if runs.count == 0 {
            self.owners.remove(owner);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    pub(super) const fn ended(&self) -> &EndedRuns {
        &self.ended
    }

    /// Ended runs of an owner. `None`: the owner has no runs.
    pub(super) fn ended_of(&self, owner: &str) -> Option<&EndedRuns> {
        self.owners.get(owner).map(|runs| &runs.ended)
    }

    /// The number of runs of each owner, sorted by owner.
    pub(super) fn shares(&self) -> Vec<(String, u64)> {
        let shares = self.owners.iter().map(|(owner, runs)| (owner.to_string(), runs.count));
        let mut shares: Vec<(String, u64)> = shares.collect();
        shares.sort_unstable();
        shares
    }
}
