//! The documents of a store in memory, and which of them are forgotten when there are too many. Not here: runs.

use std::collections::{BTreeMap, HashMap};

use interlingua_core::event::Millis;
use interlingua_core::id::RunId;

use super::BATCH;
use crate::store::{Document, Expect, Retention, Swept, attached_keys, fair, owner_in, part_keys};

/// All of them, by collection and key, each with the time it was put.
#[derive(Default)]
pub(super) struct Documents {
    pub(super) by_key: BTreeMap<(String, String), (Document, Millis)>,
    pub(super) version: u64,
}

impl Documents {
    pub(super) fn matches(&self, place: &(String, String), expect: Expect) -> bool {
        let there = self.by_key.get(place).map(|(document, _)| document.version);
        match expect {
            Expect::Anything => true,
            Expect::Absent => there.is_none(),
            Expect::Version(version) => there == Some(version),
        }
    }

    /// How many bytes each owner has.
    pub(super) fn shares(&self) -> BTreeMap<String, u64> {
        let mut shares = BTreeMap::new();
        for ((collection, key), (document, _)) in &self.by_key {
            *shares.entry(owner_in(collection, key).to_owned()).or_default() += document.value.len() as u64;
        }
        shares
    }

    /// Documents of a collection by the time they were put, and whose they are.
    fn by_age(&self, collection: &str) -> Vec<(Millis, &str, &(String, String))> {
        let mut by_age: Vec<_> = self
            .by_key
            .iter()
            .filter(|((of, _), _)| of == collection)
            .map(|(place, (_, put_at))| (*put_at, owner_in(&place.0, &place.1), place))
            .collect();
        by_age.sort_unstable();
        by_age
    }

    /// Those of a collection that are too many.
    pub(super) fn crowded(&self, collection: &str, most: u64) -> Vec<(String, String)> {
        let by_age = self.by_age(collection);
        let over = (by_age.len() as u64).saturating_sub(most);
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
        let crowded = by_age.iter().filter(|(_, owner, _)| loses(owner));
        crowded.map(|(_, _, place)| (*place).clone()).take(BATCH).collect()
    }

    /// Forgets documents of those who have most until so many bytes are gone, then whichever were put first.
    pub(super) fn forget_bytes(&mut self, over: u64, policy: &Retention, swept: &mut Swept) -> u64 {
        let before: u64 = self.shares().values().sum();
        let shares: Vec<(String, u64)> = self.shares().into_iter().collect();
        let losses = fair::losses(&shares, over);
        let mut losses: HashMap<String, u64> =
            shares.into_iter().zip(losses).map(|((owner, _), loss)| (owner, loss)).collect();
        for fair in [true, false] {
            let mut gone = before - self.shares().values().sum::<u64>();
            let mut old = Vec::new();
            for (_, owner, place) in policy.collections.iter().flat_map(|collection| self.by_age(collection)) {
                let size = self.size(place, policy);
                let loss = losses.get_mut(owner);
                let loses = if fair { loss.as_ref().is_some_and(|loss| **loss > 0) } else { true };
                if gone < over && loses {
                    gone += size;
                    old.push(place.clone());
                    if let Some(loss) = loss {
                        *loss = loss.saturating_sub(size);
                    }
                }
            }
            self.forget_all(old, policy, swept);
        }
        before - self.shares().values().sum::<u64>()
    }

    /// How many bytes a document has, with its parts.
    fn size(&self, place: &(String, String), policy: &Retention) -> u64 {
        let own = self.by_key.get(place).map_or(0, |(document, _)| document.value.len() as u64);
        let (from, to) = part_keys(&place.1);
        let parts = policy.parts.iter().filter(|(_, whole)| *whole == place.0);
        let parts =
            parts.flat_map(|(parts, _)| self.by_key.range((parts.clone(), from.clone())..(parts.clone(), to.clone())));
        own + parts.map(|(_, (document, _))| document.value.len() as u64).sum::<u64>()
    }

    /// Forgets documents and their parts.
    pub(super) fn forget_all(&mut self, places: Vec<(String, String)>, policy: &Retention, swept: &mut Swept) {
        for place in places {
            let (from, to) = part_keys(&place.1);
            for (parts, _) in policy.parts.iter().filter(|(_, whole)| *whole == place.0) {
                let between = (parts.clone(), from.clone())..(parts.clone(), to.clone());
                let keys: Vec<_> = self.by_key.range(between).map(|(place, _)| place.clone()).collect();
                for place in keys {
                    self.by_key.remove(&place);
                }
            }
            swept.documents += usize::from(self.by_key.remove(&place).is_some());
        }
    }

    /// Forgets what goes with a run.
    pub(super) fn forget_attached(&mut self, owner: &str, run: RunId, collections: &[String]) {
        let (from, to) = attached_keys(owner, run);
        for collection in collections {
            let between = (collection.clone(), from.clone())..(collection.clone(), to.clone());
            let keys: Vec<_> = self.by_key.range(between).map(|(place, _)| place.clone()).collect();
            for place in keys {
                self.by_key.remove(&place);
            }
        }
    }
}
