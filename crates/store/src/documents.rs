//! Documents in a store: the trait, versions and preconditions, and the form of keys.
//!
//! Not here: the meaning of documents (the engine).

use bytes::Bytes;
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;

use super::StoreFuture;

/// Version of a document: greater for every later write to the store, and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A document at one moment. Its owner defines the meaning of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Content.
    pub value: Bytes,
    /// Current version.
    pub version: Version,
    /// The version with which it was created: sorts documents by creation.
    pub created: Version,
}

/// A list entry for a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentEntry {
    /// Full key within the collection.
    pub key: String,
    /// The document itself.
    pub document: Document,
}

/// Precondition of a write to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No precondition.
    Any,
    /// The document does not exist.
    Absent,
    /// The document has this version.
    Version(Version),
}

/// One of several writes that are done together.
#[derive(Clone, Debug)]
pub struct DocumentWrite {
    /// The document's collection.
    pub collection: &'static str,
    /// Full key within the collection.
    pub key: String,
    /// The new content. `None`: the document is deleted.
    pub value: Option<Bytes>,
    /// The precondition.
    pub expect: Expect,
}

/// The precondition of a write did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict;

/// Stores documents: values by collection and key, each with a version.
pub trait DocumentStore: Send + Sync + 'static {
    /// Reads a document, if it exists.
    fn get(&self, collection: &str, key: &str) -> StoreFuture<Option<Document>>;

    /// Writes a document if the precondition holds (compare and swap): of several writers that expect the same version,
    /// one succeeds. `now` is the time of the write, for [`Retention`].
    fn put(
        &self,
        collection: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
        now: Millis,
    ) -> StoreFuture<Result<Version, Conflict>>;

    /// Writes and deletes several documents: all of them, or none if the precondition of one does not hold. Returns the
    /// greatest version that one was given.
    fn write(&self, writes: Vec<DocumentWrite>, now: Millis) -> StoreFuture<Result<Version, Conflict>>;

    /// Deletes a document if the precondition holds. `Ok(false)`: there was none, and none was expected.
    fn delete(&self, collection: &str, key: &str, expect: Expect) -> StoreFuture<Result<bool, Conflict>>;

    /// Documents whose key starts with `prefix` and is greater than `after`, sorted by key, at most `limit`. Keys are
    /// compared bytewise.
    fn list(
        &self,
        collection: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> StoreFuture<Vec<DocumentEntry>>;

    /// The number of documents of a principal in a collection. A principal is the part of an owner's key before the
    /// first `/`.
    fn count(&self, collection: &str, principal: &str) -> StoreFuture<u64>;
}

/// Key range of the documents attached to a run: first key (inclusive), last key (exclusive).
pub fn attached_keys(owner: &str, run: RunId) -> (String, String) {
    // '0' is the character after '/'.
    (owned_key(owner, &format!("{run}/")), owned_key(owner, &format!("{run}0")))
}

/// The key of a part of a document. `index` orders the parts.
#[must_use]
pub fn part_key(document: &str, index: u64) -> String {
    format!("{document}{PART}{index:016x}")
}

/// Key range of the parts of a document: first key (inclusive), last key (exclusive).
pub fn part_keys(document: &str) -> (String, String) {
    // U+001D is the character after `PART`.
    (format!("{document}{PART}"), format!("{document}\u{1d}"))
}

/// Separates a document's key from the part index. Document keys never contain this character.
const PART: char = '\u{1c}';

/// The owner in a document's key: keys start with the owner, or with an agent's name followed by the owner.
pub fn owner_in<'a>(collection: &str, key: &'a str) -> &'a str {
    let nth = usize::from(BY_AGENT.contains(&collection));
    key.split('\u{1f}').nth(nth).unwrap_or("")
}

/// Collections whose keys start with an agent's name.
const BY_AGENT: [&str; 4] = ["sessions", "asked", "branches", "entries"];

/// The key of a document that belongs to an owner, so that no owner can address another owner's documents. `owner` is
/// [`interlingua_core::Owner::key`], which never contains the separator.
#[must_use]
pub fn owned_key(owner: &str, key: &str) -> String {
    format!("{owner}\u{1f}{key}")
}
