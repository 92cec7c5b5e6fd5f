//! Limits of single principals in the memory store: a principal that exceeds its limit loses its own oldest runs and
//! documents. Not here: the limits over all principals ([`super`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use interlingua_core::event::Millis;
use interlingua_core::id::RunId;

use super::documents::Documents;
use super::{Run, RunData, Runs};
use crate::fair::{self, OwnLoss, principal_of};
use crate::{OwnerBoundsOf, Retention, RetentionReport, StoredRun, owner_in};

impl Runs {
    /// Ended runs of principals with too many of them on a route (`None`: at all): their oldest, at most `limit`.
    pub(super) fn own_surplus(&self, route: Option<&str>, bounds: &OwnerBoundsOf, limit: usize) -> Vec<RunId> {
        if bounds.are_none() {
            return Vec::new();
        }
        let (owners, ended) = match route.map(|route| self.routes.get(route)) {
            Some(Some(runs)) => (&runs.owners, &runs.ended),
            Some(None) => return Vec::new(),
            None => (&self.owners, &self.ended),
        };
        let mut shares: Vec<(String, u64)> = owners.iter().map(|(owner, count)| (owner.to_string(), *count)).collect();
        shares.sort_unstable();

        let bound_of = |principal: &str| {
            let bounds = bounds.for_principal(principal);
            if route.is_some() { bounds.route_runs } else { bounds.runs }
        };
        let mut surplus = Vec::new();
        for loss in fair::own_losses(&shares, bound_of) {
            surplus.extend(self.oldest_of(ended, &loss, limit - surplus.len(), |_| 1));
        }
        surplus
    }

    /// The oldest ended runs of one principal, until their weights come to its loss.
    fn oldest_of(
        &self,
        ended: &BTreeSet<(Millis, RunId)>,
        loss: &OwnLoss,
        limit: usize,
        weight_of: impl Fn(&StoredRun) -> u64,
    ) -> Vec<RunId> {
        let losses: HashMap<String, u64> = loss.owners.iter().cloned().collect();
        let is_own = |id: &RunId| self.by_id.get(id).is_some_and(|run| losses.contains_key(&*run.owner));
        let own: BTreeSet<(Millis, RunId)> = ended.iter().filter(|(_, id)| is_own(id)).copied().collect();
        self.oldest(&own, losses, loss.over, limit, weight_of)
    }

    /// The bytes of each owner in ended runs and documents.
    pub(super) fn byte_shares(&self, documents: &Documents) -> Vec<(String, u64)> {
        let mut shares: BTreeMap<String, u64> = documents.shares();
        for (_, id) in &self.ended {
            if let Some(Run { owner, data: RunData::Ended(stored), .. }) = self.by_id.get(id) {
                *shares.entry(owner.to_string()).or_default() += stored.record.size() as u64;
            }
        }
        shares.into_iter().collect()
    }

    /// Deletes the oldest runs and then documents of principals that have too many bytes. `owners` gets the owners of
    /// the runs.
    pub(super) fn drop_own_bytes(
        &mut self,
        documents: &mut Documents,
        policy: &Retention,
        limit: usize,
        report: &mut RetentionReport,
        owners: &mut Vec<(RunId, Arc<str>)>,
    ) {
        if policy.bounds.are_none() {
            return;
        }
        let mut dropped = 0;
        for loss in
            fair::own_losses(&self.byte_shares(documents), |principal| policy.bounds.for_principal(principal).bytes)
        {
            let before = self.ended_bytes;
            let runs = self.oldest_of(&self.ended, &loss, limit - dropped, |stored| stored.record.size() as u64);
            self.drop_runs(None, &runs, report, owners);
            dropped += runs.len();

            let left = loss.over.saturating_sub(before - self.ended_bytes);
            let principal = loss.owners.first().map(|(owner, _)| principal_of(owner));
            documents.delete_bytes(left, principal, policy, report);
        }

        report.more |= dropped >= limit;
    }
}

impl Documents {
    /// Documents of principals with too many of them in a collection: their oldest, at most `limit`.
    pub(super) fn own_surplus(&self, collection: &str, bounds: &OwnerBoundsOf, limit: usize) -> Vec<(String, String)> {
        if bounds.are_none() {
            return Vec::new();
        }
        let mut shares: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, key) in self.by_key.keys().filter(|(name, _)| name == collection) {
            *shares.entry(owner_in(name, key)).or_default() += 1;
        }

        let shares: Vec<(String, u64)> = shares.into_iter().map(|(owner, count)| (owner.to_owned(), count)).collect();
        let losses = fair::own_losses(&shares, |principal| bounds.for_principal(principal).documents);
        if losses.is_empty() {
            return Vec::new();
        }

        let by_age = self.by_age(collection);
        let mut left: HashMap<&str, u64> =
            losses.iter().flat_map(|loss| &loss.owners).map(|(owner, loss)| (owner.as_str(), *loss)).collect();
        let mut loses = |owner: &str| left.get_mut(owner).filter(|loss| **loss > 0).map(|loss| *loss -= 1).is_some();
        let surplus = by_age.iter().filter(|(_, owner, _)| loses(owner));
        surplus.map(|(_, _, path)| (*path).clone()).take(limit).collect()
    }
}
