//! Entries of sessions in the store: each a document of its own, numbered, so that adding one costs what is added and
//! reading some costs what is read. The session's own document only counts them.
//!
//! Not here: what an entry's turn holds (its run), and whose turn it is ([`super::session`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use interlingua_core::{Fault, RunId};

use super::document::{Entry, SessionDoc, unreadable};
use super::session::Session;
use crate::faults::store_fault;
use interlingua_store::{DocumentWrite, Expect, Store, part_key};

/// The collection of the store that entries are in.
const COLLECTION: &str = "entries";
/// How many entries are read at once: messages that clients put there may be large.
const WINDOW: u64 = 16;

/// Reads and writes entries.
pub(crate) struct SessionEntries {
    store: Arc<dyn Store>,
}

impl SessionEntries {
    pub(crate) const fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Writes of the unsaved entries, and deletions of those that were replaced.
    pub(super) fn writes(session: &Session, doc: &SessionDoc) -> Vec<DocumentWrite> {
        let write = |index: u64, value: Option<Vec<u8>>| DocumentWrite {
            collection: COLLECTION,
            key: part_key(session.key().as_str(), index),
            value: value.map(Into::into),
            expect: Expect::Any,
        };
        let unsaved =
            doc.unsaved.iter().map(|(index, entry)| write(*index, Some(serde_json::to_vec(entry).unwrap_or_default())));
        unsaved.chain(doc.replaced.clone().map(|index| write(index, None))).collect()
    }

    /// Entries by index, without those that were removed.
    pub(crate) async fn read(
        &self,
        session: &Session,
        doc: &SessionDoc,
        indices: Range<u64>,
    ) -> Result<Vec<(u64, Entry)>, Fault> {
        let key = session.key().as_str();
        let prefix = part_key(key, 0);
        let digits = prefix.len() - 16;
        let mut entries = BTreeMap::new();
        let mut after = indices.start.checked_sub(1).map(|before| part_key(key, before));

        'pages: loop {
            let page = self.store.list(COLLECTION, &prefix[..digits], after.as_deref(), WINDOW as usize);
            let page = page.await.map_err(|error| store_fault(&error))?;
            for row in &page {
                let index = row.key.get(digits..).and_then(|index| u64::from_str_radix(index, 16).ok());
                let Some(index) = index.filter(|index| indices.contains(index)) else { break 'pages };
                let entry = serde_json::from_slice(&row.document.value).map_err(unreadable).inspect_err(|fault| {
                    tracing::error!(
                        session = key,
                        index,
                        reason = fault.detail,
                        "an entry of a session cannot be read"
                    );
                })?;
                entries.insert(index, entry);
            }
            match page.last() {
                Some(last) if page.len() as u64 == WINDOW => after = Some(last.key.clone()),
                _ => break,
            }
        }

        entries.extend(doc.unsaved.range(indices).map(|(index, entry)| (*index, entry.clone())));
        Ok(entries.into_iter().collect())
    }

    /// All entries of a session. In memory, so only for sessions that are known to be short.
    pub(crate) async fn read_all(&self, session: &Session) -> Result<Vec<Entry>, Fault> {
        let doc = session.doc().clone();
        let entries = self.read(session, &doc, doc.first..doc.next).await?;
        Ok(entries.into_iter().map(|(_, entry)| entry).collect())
    }

    /// True if a turn of this run is an entry of the session.
    pub(crate) async fn contain_run(&self, session: &Session, id: RunId) -> Result<bool, Fault> {
        let doc = session.doc().clone();
        for indices in windows(&doc, true) {
            if self.read(session, &doc, indices).await?.iter().any(|(_, entry)| entry.is_turn_of(id)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes one entry.
    pub(crate) async fn delete(&self, session: &Session, index: u64) -> Result<(), Fault> {
        let deleted = self.store.delete(COLLECTION, &part_key(session.key().as_str(), index), Expect::Any);
        let _ = deleted.await.map_err(|error| store_fault(&error))?;
        Ok(())
    }

    /// Deletes all entries of a session.
    pub(super) async fn delete_all(&self, session: &Session) -> Result<(), Fault> {
        let prefix = part_key(session.key().as_str(), 0);
        let prefix = &prefix[..prefix.len() - 16];
        loop {
            let page = self.store.list(COLLECTION, prefix, None, WINDOW as usize);
            let page = page.await.map_err(|error| store_fault(&error))?;
            let deletions: Vec<_> =
                page.iter().map(|row| self.store.delete(COLLECTION, &row.key, Expect::Any)).collect();
            for deleted in deletions {
                let _ = deleted.await.map_err(|error| store_fault(&error))?;
            }

            if (page.len() as u64) < WINDOW {
                return Ok(());
            }
        }
    }
}

/// The indices of a session's entries, some at a time: the newest first, or the oldest.
pub(crate) fn windows(doc: &SessionDoc, newest_first: bool) -> impl Iterator<Item = Range<u64>> + use<> {
    let (first, next) = (doc.first, doc.next);
    (0..next.saturating_sub(first).div_ceil(WINDOW)).map(move |window| {
        if newest_first {
            let end = next - window * WINDOW;
            end.saturating_sub(WINDOW).max(first)..end
        } else {
            let start = first + window * WINDOW;
            start..next.min(start + WINDOW)
        }
    })
}
