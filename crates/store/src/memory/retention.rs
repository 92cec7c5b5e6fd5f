//! The selections and deletions of retention. Not here: the order of the steps ([`crate::retention`]).

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;

use interlingua_core::call::RunState;
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;

use super::documents::AgedDocument;
use super::{Memory, Run, RunData, Runs, lock};
use crate::retention::{
    BATCH, Candidate, DocumentSelection, OldDocument, RetentionBackend, RuleSet, RunSelection, Shares, retain_at_once,
};
use crate::{Retention, RetentionReport};

/// Deletes a batch of the data that the policy does not keep.
pub(super) fn retain(store: &Memory, policy: &Retention, now: Millis) -> RetentionReport {
    let mut backend = MemoryRetention { store, policy, by_owner: HashMap::new() };
    match retain_at_once(&mut backend, policy, now) {
        Ok(report) => report,
        Err(never) => match never {},
    }
}

/// A retention pass. Each step takes the locks that it needs, one at a time.
struct MemoryRetention<'a> {
    store: &'a Memory,
    policy: &'a Retention,
    /// The documents of each owner in a collection, oldest first. Collected once for a pass, so that each owner that
    /// loses documents does not cost a scan. May contain documents that were changed or deleted since.
    by_owner: HashMap<String, HashMap<String, Vec<AgedDocument>>>,
}

impl RetentionBackend for MemoryRetention<'_> {
    type Error = Infallible;

    async fn ended_runs(&mut self, of: RunSelection<'_>) -> Result<Vec<Candidate>, Infallible> {
        let RunSelection { route, owner, before, limit } = of;
        let runs = lock(&self.store.runs);
        let index = route.map_or(Some(&runs.all), |route| runs.routes.get(route));
        let ended = index.and_then(|index| match owner {
            Some(owner) => index.ended_of(owner),
            None => Some(index.ended()),
        });
        let Some(ended) = ended else { return Ok(Vec::new()) };

        let ended = ended.iter().take_while(|(changed_at, _)| before.is_none_or(|before| *changed_at < before));
        Ok(ended.filter_map(|(_, id)| runs.candidate(*id, route.is_some())).take(limit).collect())
    }

    async fn stale_runs(&mut self, rules: &RuleSet<'_>) -> Result<Vec<RunId>, Infallible> {
        let active: Vec<(RunId, RunData)> = {
            let runs = lock(&self.store.runs);
            let has_route = |run: &Run| match (rules.route, &run.retention_owner) {
                (None, _) => true,
                (Some(route), Some((of_run, _))) => **of_run == *route,
                (Some(_), None) => false,
            };
            let data = |id: &RunId| Some((*id, runs.by_id.get(id).filter(|run| has_route(run))?.data.clone()));
            runs.active.iter().filter_map(data).collect()
        };

        // Read after the lock is released: states are behind the runs' own locks.
        let stale = active.into_iter().filter_map(|(id, data)| {
            let (state, changed_at) = data.with_info(|info| (info.state, info.changed_at));
            let waits = matches!(state, RunState::Waiting | RunState::WaitingForAuth);
            (waits && changed_at < rules.waiting_before).then_some((changed_at, id))
        });
        let mut stale: Vec<(Millis, RunId)> = stale.collect();
        stale.sort_unstable();
        Ok(stale.into_iter().map(|(_, id)| id).take(BATCH).collect())
    }

    async fn run_shares(&mut self, route: Option<&str>) -> Result<Shares, Infallible> {
        let runs = lock(&self.store.runs);
        let index = route.map_or(Some(&runs.all), |route| runs.routes.get(route));
        Ok(index.map_or_else(Vec::new, |index| index.shares()))
    }

    async fn route_surplus(&mut self, route: &str, max: u64) -> Result<Shares, Infallible> {
        let shares = self.run_shares(Some(route)).await?;
        Ok(shares.into_iter().filter(|(_, count)| *count > max).map(|(owner, count)| (owner, count - max)).collect())
    }

    async fn drop_runs(&mut self, dropped: Vec<Candidate>) -> Result<Vec<Candidate>, Infallible> {
        let mut runs = lock(&self.store.runs);
        for run in &dropped {
            if run.hide_only {
                runs.hide(run.id);
            } else {
                runs.delete(run.id);
            }
        }
        drop(runs);

        let mut documents = lock(&self.store.documents);
        for run in &dropped {
            documents.delete_attached(&run.owner, run.id, &self.policy.attached);
        }
        Ok(dropped)
    }

    async fn documents(&mut self, of: DocumentSelection<'_>) -> Result<Vec<OldDocument>, Infallible> {
        let DocumentSelection { collection, owner, before, limit } = of;
        let documents = lock(&self.store.documents);
        let is_old = |document: &AgedDocument| before.is_none_or(|before| document.put_at < before);
        let found = match owner {
            None => {
                let mut found: Vec<AgedDocument> = documents.in_collection(collection).filter(is_old).collect();
                found.sort_unstable();
                found
            }
            Some(owner) => {
                if !self.by_owner.contains_key(collection) {
                    self.by_owner.insert(collection.to_owned(), documents.by_owner(collection));
                }
                let of_owner = self.by_owner.get(collection).and_then(|owners| owners.get(owner));
                let unchanged = of_owner.into_iter().flatten().filter(|found| documents.has(collection, found));
                unchanged.filter(|document| is_old(document)).take(limit).cloned().collect()
            }
        };

        let old = found.into_iter().take(limit).map(|AgedDocument { key, version, .. }| {
            let size = documents.size(collection, &key, self.policy);
            OldDocument { key, version, size }
        });
        Ok(old.collect())
    }

    async fn document_shares(&mut self, collection: &str) -> Result<Shares, Infallible> {
        Ok(lock(&self.store.documents).counts(collection).into_iter().collect())
    }

    async fn delete_documents(&mut self, collection: &str, old: Vec<OldDocument>) -> Result<usize, Infallible> {
        let mut documents = lock(&self.store.documents);
        Ok(old.into_iter().filter(|document| documents.delete_old(collection, document, self.policy)).count())
    }

    async fn byte_shares(&mut self) -> Result<Shares, Infallible> {
        let mut shares: BTreeMap<String, u64> = lock(&self.store.documents).shares();
        let runs = lock(&self.store.runs);
        for (_, id) in runs.all.ended() {
            if let Some(Run { owner, data: RunData::Ended(stored), .. }) = runs.by_id.get(id) {
                *shares.entry(owner.to_string()).or_default() += stored.record.size() as u64;
            }
        }
        Ok(shares.into_iter().collect())
    }

    /// Runs that have not ended are not counted: their sizes are behind their own locks.
    async fn used_bytes(&mut self) -> Result<Option<u64>, Infallible> {
        let documents = lock(&self.store.documents).bytes();
        Ok(Some(lock(&self.store.runs).ended_bytes + documents))
    }
}

impl Runs {
    /// An ended run as retention selects it.
    fn candidate(&self, id: RunId, of_route: bool) -> Option<Candidate> {
        let run = self.by_id.get(&id)?;
        let RunData::Ended(stored) = &run.data else { return None };
        let hide_only = of_route && run.retention_owner.as_ref().is_some_and(|(_, hide_only)| *hide_only);
        Some(Candidate { id, owner: run.owner.to_string(), hide_only, size: stored.record.size() as u64 })
    }
}
