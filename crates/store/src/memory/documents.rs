//! The documents of an in-memory store, and which of them are deleted when there are too many. Not here: runs.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;

use crate::fair::principal_of;
use crate::{Document, Expect, Retention, RetentionReport, Version, attached_keys, fair, owner_in, part_keys};

/// Maximum number of runs, or of documents, that one call of `retain` deletes per rule.
pub(super) const BATCH: usize = 1000;

/// All documents by collection and key, each with the time of its last write.
#[derive(Default)]
pub(super) struct Documents {
    pub(super) by_key: BTreeMap<(String, String), (Document, Millis)>,
    pub(super) version: u64,
}

impl Documents {
    pub(super) fn matches(&self, path: &(String, String), expect: Expect) -> bool {
        let current = self.by_key.get(path).map(|(document, _)| document.version);
        match expect {
            Expect::Any => true,
            Expect::Absent => current.is_none(),
            Expect::Version(version) => current == Some(version),
        }
    }

    /// Writes a document whose precondition holds.
    pub(super) fn put(&mut self, path: (String, String), value: Bytes, now: Millis) -> Version {
        self.version += 1;
        let version = Version(self.version);
        let created = self.by_key.get(&path).map_or(version, |(document, _)| document.created);
        self.by_key.insert(path, (Document { value, version, created }, now));
        version
    }

    /// Bytes per owner.
    pub(super) fn shares(&self) -> BTreeMap<String, u64> {
        let mut shares = BTreeMap::new();
        for ((collection, key), (document, _)) in &self.by_key {
            *shares.entry(owner_in(collection, key).to_owned()).or_default() += document.value.len() as u64;
        }
        shares
    }

    /// The number of documents of a principal in a collection.
    pub(super) fn count(&self, collection: &str, principal: &str) -> u64 {
        let from = (collection.to_owned(), String::new());
        let of_collection = self.by_key.range(from..).take_while(|((name, _), _)| name == collection);
        let owned = of_collection.filter(|((name, key), _)| principal_of(owner_in(name, key)) == principal);
        owned.count() as u64
    }

    /// The documents of a collection with their owners, sorted by the time of their last write.
    pub(super) fn by_age(&self, collection: &str) -> Vec<(Millis, &str, &(String, String))> {
        let mut by_age: Vec<_> = self
            .by_key
            .iter()
            .filter(|((name, _), _)| name == collection)
            .map(|(path, (_, put_at))| (*put_at, owner_in(&path.0, &path.1), path))
            .collect();
        by_age.sort_unstable();
        by_age
    }

    /// Documents of a collection above its maximum: the largest owners lose their oldest documents first.
    pub(super) fn surplus(&self, collection: &str, max: u64) -> Vec<(String, String)> {
        let by_age = self.by_age(collection);
        let over = (by_age.len() as u64).saturating_sub(max);
        if over == 0 {
            return Vec::new();
        }

        let mut shares: BTreeMap<String, u64> = BTreeMap::new();
        for (_, owner, _) in &by_age {
            *shares.entry((*owner).to_owned()).or_default() += 1;
        }
        let shares: Vec<(String, u64)> = shares.into_iter().collect();
        let losses = fair::losses(&shares, over);

        let mut losses: HashMap<&str, u64> =
            shares.iter().zip(losses).map(|((owner, _), loss)| (owner.as_str(), loss)).collect();

        let mut loses = |owner: &str| losses.get_mut(owner).filter(|loss| **loss > 0).map(|loss| *loss -= 1).is_some();
        let surplus = by_age.iter().filter(|(_, owner, _)| loses(owner));
        surplus.map(|(_, _, path)| (*path).clone()).take(BATCH).collect()
    }

    /// Deletes documents of a principal (`None`: of all) until `over` bytes are freed: first those of the largest owners,
    /// then the oldest of any owner. Returns the bytes freed.
    pub(super) fn delete_bytes(
        &mut self,
        over: u64,
        principal: Option<&str>,
        policy: &Retention,
        report: &mut RetentionReport,
    ) -> u64 {
        let is_asked = |owner: &str| principal.is_none_or(|principal| principal_of(owner) == principal);
        let before: u64 = self.shares().values().sum();
        let shares: Vec<(String, u64)> = self.shares().into_iter().filter(|(owner, _)| is_asked(owner)).collect();
        let losses = fair::losses(&shares, over);
        let mut losses: HashMap<String, u64> =
            shares.into_iter().zip(losses).map(|((owner, _), loss)| (owner, loss)).collect();
        for by_owner in [true, false] {
            let mut freed = before - self.shares().values().sum::<u64>();
            let mut selected = Vec::new();
            for (_, owner, path) in policy.collections.iter().flat_map(|collection| self.by_age(collection)) {
                let size = self.size(path, policy);
                let loss = losses.get_mut(owner);
                let loses = if by_owner { loss.as_ref().is_some_and(|loss| **loss > 0) } else { true };
                if freed < over && loses && is_asked(owner) {
                    freed += size;
                    selected.push(path.clone());
                    if let Some(loss) = loss {
                        *loss = loss.saturating_sub(size);
                    }
                }
            }

            self.delete_all(selected, policy, report);
        }
        before - self.shares().values().sum::<u64>()
    }

    /// Bytes of a document and its parts.
    fn size(&self, path: &(String, String), policy: &Retention) -> u64 {
        let own = self.by_key.get(path).map_or(0, |(document, _)| document.value.len() as u64);
        let (from, to) = part_keys(&path.1);
        let parts = policy.parts.iter().filter(|(_, parent)| *parent == path.0);
        let parts =
            parts.flat_map(|(parts, _)| self.by_key.range((parts.clone(), from.clone())..(parts.clone(), to.clone())));
        own + parts.map(|(_, (document, _))| document.value.len() as u64).sum::<u64>()
    }

    /// Deletes documents and their parts.
    pub(super) fn delete_all(
        &mut self,
        paths: Vec<(String, String)>,
        policy: &Retention,
        report: &mut RetentionReport,
    ) {
        for path in paths {
            let (from, to) = part_keys(&path.1);
            for (parts, _) in policy.parts.iter().filter(|(_, parent)| *parent == path.0) {
                let between = (parts.clone(), from.clone())..(parts.clone(), to.clone());
                let keys: Vec<_> = self.by_key.range(between).map(|(path, _)| path.clone()).collect();
                for path in keys {
                    self.by_key.remove(&path);
                }
            }
            report.documents += usize::from(self.by_key.remove(&path).is_some());
        }
    }

    /// Deletes the documents attached to a run.
    pub(super) fn delete_attached(&mut self, owner: &str, run: RunId, collections: &[String]) {
        let (from, to) = attached_keys(owner, run);
        for collection in collections {
            let between = (collection.clone(), from.clone())..(collection.clone(), to.clone());
            let keys: Vec<_> = self.by_key.range(between).map(|(path, _)| path.clone()).collect();
            for path in keys {
                self.by_key.remove(&path);
            }
        }
    }
}
