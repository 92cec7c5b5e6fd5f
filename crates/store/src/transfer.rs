//! Data that is copied from one store to another of a different kind. Not here: reading (`interlingua-store-sqlite`)
//! and writing (`interlingua-store-postgres`).

use std::sync::Arc;

use super::{StoredRun, Version};
use interlingua_core::event::Millis;

/// One thing that is copied.
#[derive(Clone, Debug)]
pub enum StoredItem {
    /// A run with its journal.
    Run(Arc<StoredRun>),
    /// The latest version of a document.
    Document(StoredDocument),
}

/// A document with all its stored fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDocument {
    /// Its collection.
    pub collection: String,
    /// Full key within the collection.
    pub key: String,
    /// Current version.
    pub version: Version,
    /// The version with which it was created.
    pub created: Version,
    /// When it was written.
    pub put_at: Millis,
    /// Content.
    pub value: Vec<u8>,
}

/// The totals of a store, or the copied amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferTotals {
    /// Runs.
    pub runs: u64,
    /// The number of active runs: the next gateway that starts closes them.
    pub unfinished: u64,
    /// Events of all runs.
    pub events: u64,
    /// Documents.
    pub documents: u64,
    /// Bytes of journals and documents.
    pub bytes: u64,
}

impl StoredItem {
    /// Its kind and id, for messages. Keys of documents have names of callers in them, which are not shown.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Run(run) => format!("run {}", run.record.run().id),
            Self::Document(document) => format!("a document in {}", document.collection),
        }
    }
}
