//! The documents of an in-memory store, with the selections and deletions of retention. Not here: runs.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;

use crate::fair::principal_of;
use crate::retention::OldDocument;
use crate::{Document, Expect, Retention, Version, attached_keys, owner_in, part_keys};

/// All documents by collection and key, each with the time of its last write.
#[derive(Default)]
pub(super) struct Documents {
    pub(super) by_key: BTreeMap<(String, String), (Document, Millis)>,
    pub(super) version: u64,
}

/// A document by its age.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AgedDocument {
    pub(super) put_at: Millis,
    pub(super) key: String,
    pub(super) version: Version,
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
        let owned = self.entries(collection).filter(|(key, ..)| principal_of(owner_in(collection, key)) == principal);
        owned.count() as u64
    }

    /// The number of documents of each owner in a collection.
    pub(super) fn counts(&self, collection: &str) -> BTreeMap<String, u64> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (key, ..) in self.entries(collection) {
            *counts.entry(owner_in(collection, key)).or_default() += 1;
        }
        counts.into_iter().map(|(owner, count)| (owner.to_owned(), count)).collect()
    }

    /// The bytes of all documents.
    pub(super) fn bytes(&self) -> u64 {
        self.by_key.values().map(|(document, _)| document.value.len() as u64).sum()
    }

    /// The keys and documents of a collection, each with the time of its last write.
    fn entries<'a>(&'a self, collection: &'a str) -> impl Iterator<Item = (&'a str, &'a Document, Millis)> {
        let from = (collection.to_owned(), String::new());
        let of_collection = self.by_key.range(from..).take_while(move |((name, _), _)| name == collection);
        of_collection.map(|((_, key), (document, put_at))| (key.as_str(), document, *put_at))
    }

    /// The documents of a collection in the order of their keys.
    pub(super) fn in_collection<'a>(&'a self, collection: &'a str) -> impl Iterator<Item = AgedDocument> + 'a {
        let aged = |(key, document, put_at): (&str, &Document, Millis)| AgedDocument {
            put_at,
            key: key.to_owned(),
            version: document.version,
        };
        self.entries(collection).map(aged)
    }

    /// The documents of each owner in a collection, oldest first.
    pub(super) fn by_owner(&self, collection: &str) -> HashMap<String, Vec<AgedDocument>> {
        let mut by_owner: HashMap<String, Vec<AgedDocument>> = HashMap::new();
        for document in self.in_collection(collection) {
            by_owner.entry(owner_in(collection, &document.key).to_owned()).or_default().push(document);
        }
        by_owner.values_mut().for_each(|documents| documents.sort_unstable());
        by_owner
    }

    /// True if the document was neither deleted nor written since.
    pub(super) fn has(&self, collection: &str, aged: &AgedDocument) -> bool {
        let current = self.by_key.get(&(collection.to_owned(), aged.key.clone()));
        current.is_some_and(|(document, _)| document.version == aged.version)
    }

    /// Bytes of a document and its parts.
    pub(super) fn size(&self, collection: &str, key: &str, policy: &Retention) -> u64 {
        let own = self.by_key.get(&(collection.to_owned(), key.to_owned()));
        let own = own.map_or(0, |(document, _)| document.value.len() as u64);
        let (from, to) = part_keys(key);
        let parts = policy.parts.iter().filter(|(_, whole)| whole == collection);
        let parts =
            parts.flat_map(|(parts, _)| self.by_key.range((parts.clone(), from.clone())..(parts.clone(), to.clone())));
        own + parts.map(|(_, (document, _))| document.value.len() as u64).sum::<u64>()
    }

    /// Deletes a document and its parts, unless it was written since. Returns whether it was deleted.
    pub(super) fn delete_old(&mut self, collection: &str, old: &OldDocument, policy: &Retention) -> bool {
        let path = (collection.to_owned(), old.key.clone());
        if !self.matches(&path, Expect::Version(old.version)) {
            return false;
        }

        self.by_key.remove(&path);
        let range = part_keys(&old.key);
        for (parts, _) in policy.parts.iter().filter(|(_, whole)| whole == collection) {
            self.delete_range(parts, &range);
        }
        true
    }

    /// Deletes the documents attached to a run.
    pub(super) fn delete_attached(&mut self, owner: &str, run: RunId, collections: &[String]) {
        let range = attached_keys(owner, run);
        for collection in collections {
            self.delete_range(collection, &range);
        }
    }

    /// Deletes the documents of a collection from a key (inclusive) to a key (exclusive).
    fn delete_range(&mut self, collection: &str, (from, to): &(String, String)) {
        let between = (collection.to_owned(), from.clone())..(collection.to_owned(), to.clone());
        let keys: Vec<_> = self.by_key.range(between).map(|(path, _)| path.clone()).collect();
        for path in keys {
            self.by_key.remove(&path);
        }
    }
}
