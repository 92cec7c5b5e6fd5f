//! Entries of sessions in the store.
//!
//! Each entry is a numbered document of its own, so that the cost of a read or write does not depend on the length of
//! the session. The document of the session holds only the first and the next number.
//!
//! Not here: the content of a turn (its run) and the queue of turns ([`super::session`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use interlingua_core::{Fault, RunId};

use super::entry::{Entry, EntryList, WINDOW, unreadable};
use super::session::Session;
use crate::faults::store_fault;
use interlingua_store::{DocumentWrite, Expect, Store, part_key};

/// The collection of the store.
const COLLECTION: &str = "entries";

pub(crate) struct SessionEntries {
    store: Arc<dyn Store>,
}

impl SessionEntries {
    pub(crate) const fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// The writes of unsaved entries and the deletions of replaced ones.
    pub(super) fn writes(
        session: &Session,
        unsaved: &BTreeMap<u64, Entry>,
        replaced: Range<u64>,
    ) -> Vec<DocumentWrite> {
        let write = |index: u64, value: Option<Vec<u8>>| DocumentWrite {
            collection: COLLECTION,
            key: part_key(session.key().as_str(), index),
            value: value.map(Into::into),
            expect: Expect::Any,
        };
        let unsaved =
            unsaved.iter().map(|(index, entry)| write(*index, Some(serde_json::to_vec(entry).unwrap_or_default())));
        unsaved.chain(replaced.map(|index| write(index, None))).collect()
    }

    /// The entries in a range of indices, saved or not. Removed entries are missing.
    pub(crate) async fn read(
        &self,
        session: &Session,
        list: &EntryList,
        indices: Range<u64>,
    ) -> Result<Vec<(u64, Entry)>, Fault> {
        let key = session.key().as_str();
        let prefix = key_prefix(session);
        let mut entries = BTreeMap::new();
        let mut after = indices.start.checked_sub(1).map(|before| part_key(key, before));

        'pages: loop {
            let page = self.store.list(COLLECTION, &prefix, after.as_deref(), WINDOW as usize);
            let page = page.await.map_err(store_fault)?;
            for row in &page {
                let index = row.key.get(prefix.len()..).and_then(|index| u64::from_str_radix(index, 16).ok());
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

        entries.extend(list.unsaved.range(indices).map(|(index, entry)| (*index, entry.clone())));
        Ok(entries.into_iter().collect())
    }

    /// All entries of a session at once. Only for sessions that are known to be short.
    pub(crate) async fn read_all(&self, session: &Session, list: &EntryList) -> Result<Vec<Entry>, Fault> {
        if list.is_empty() {
            return Ok(Vec::new());
        }
        let entries = self.read(session, list, list.indices.clone()).await?;
        Ok(entries.into_iter().map(|(_, entry)| entry).collect())
    }

    /// True if an entry of the session is a turn of this run.
    pub(crate) async fn contain_run(&self, session: &Session, id: RunId) -> Result<bool, Fault> {
        let list = session.entries();
        for indices in list.windows(true) {
            if self.read(session, &list, indices).await?.iter().any(|(_, entry)| entry.is_turn_of(id)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes an entry that holds a message. `index`: its index when it was read. False: another call has removed it.
    pub(crate) async fn remove(&self, session: &Session, index: u64, entry: &Entry) -> Result<bool, Fault> {
        // A write that is under way must not store the entry again.
        let _saving = session.saving.lock().await;
        // That write may have moved the entry behind the entries of other replicas.
        let Some(index) = self.find_moved(session, index, entry).await? else { return Ok(false) };
        let deleted = self.store.delete(COLLECTION, &part_key(session.key().as_str(), index), Expect::Any);
        let was_stored = deleted.await.map_err(store_fault)?.unwrap_or(false);
        Ok(session.remove_message(index, entry, was_stored))
    }

    /// The index of an entry that holds a message, at or after `index`. `None`: it is not there any more.
    async fn find_moved(&self, session: &Session, index: u64, entry: &Entry) -> Result<Option<u64>, Fault> {
        let list = session.entries();
        let mut indices = index..index + 1;
        while indices.start < list.indices.end {
            let entries = self.read(session, &list, indices.clone()).await?;
            let found = entries.iter().find(|(_, known)| known.message_id() == entry.message_id());
            if let Some((index, _)) = found {
                return Ok(Some(*index));
            }
            indices = indices.end..indices.end + WINDOW;
        }
        Ok(None)
    }

    pub(super) async fn delete_all(&self, session: &Session) -> Result<(), Fault> {
        let prefix = key_prefix(session);
        loop {
            let page = self.store.list(COLLECTION, &prefix, None, WINDOW as usize);
            let page = page.await.map_err(store_fault)?;
            let deletions: Vec<_> =
                page.iter().map(|row| self.store.delete(COLLECTION, &row.key, Expect::Any)).collect();
            for deleted in deletions {
                let _ = deleted.await.map_err(store_fault)?;
            }

            if (page.len() as u64) < WINDOW {
                return Ok(());
            }
        }
    }
}

impl Session {
    /// Removes an entry that holds a message. `was_stored`: it was deleted from the store just now. False: another call
    /// has removed it.
    pub(super) fn remove_message(&self, index: u64, entry: &Entry, was_stored: bool) -> bool {
        let mut doc = self.doc();
        // The end of a turn may have replaced the entries since the entry was found: a copy has another index.
        let is_replaced = index < doc.first;
        let copy = doc.unsaved.iter().find(|(_, known)| is_replaced && known.message_id() == entry.message_id());
        let index = copy.map_or(index, |(index, _)| *index);
        let was_there = doc.unsaved.remove(&index).is_some() || was_stored;
        if was_there {
            doc.bytes = doc.bytes.saturating_sub(entry.bytes());
            doc.stale |= index < doc.seen;
            // A turn under way may have sent it.
            doc.removals += 1;
            if let Some(late) = &mut doc.late {
                late.note_removed(index, entry.message_id());
            }
        }
        was_there
    }
}

/// The key of an entry without its number, which has 16 hexadecimal digits.
fn key_prefix(session: &Session) -> String {
    let mut key = part_key(session.key().as_str(), 0);
    key.truncate(key.len() - 16);
    key
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;
    use interlingua_core::Owner;
    use interlingua_core::model::Message;
    use interlingua_store::{Memory, Version};

    use super::*;
    use crate::sessions::SessionTable;

    /// A table, and a session in it with an entry that is not written.
    fn stand() -> (Arc<dyn Store>, SessionTable, Arc<Session>, Entry) {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let table = SessionTable::new(Arc::clone(&store));
        let session = table.create("friday", &Owner::from_key("ann"));
        session.append(&[Message::user("mine")]).expect("room");
        let entry = session.doc().unsaved[&0].clone();
        (store, table, session, entry)
    }

    #[tokio::test]
    async fn an_entry_that_another_replica_moves_meanwhile_is_removed_where_it_is_then() {
        let (store, table, session, mine) = stand();
        let saving = session.saving.lock().await;
        let mut removal = pin!(table.entries().remove(&session, 0, &mine));
        assert!(removal.as_mut().now_or_never().is_none());

        // The write under way finds that another replica has added an entry.
        let theirs = Entry::from_message(&Message::user("theirs"));
        let mut doc = session.doc().blank();
        doc.push(theirs.clone());
        doc.unsaved.clear();
        session.update_from(Version(1), doc);
        let entries = BTreeMap::from([(0, theirs.clone()), (1, mine.clone())]);
        let written = store.write(SessionEntries::writes(&session, &entries, 0..0), 1).await;
        written.expect("written").expect("no conflict");
        session.doc().note_written(&[1], 0..0);
        drop(saving);

        assert!(removal.await.expect("removed"));
        let left = table.entries().read_all(&session, &session.entries()).await.expect("read");
        assert_eq!(left.iter().map(Entry::message_id).collect::<Vec<_>>(), [theirs.message_id()]);
        assert!(!table.entries().remove(&session, 0, &mine).await.expect("removed"), "it is not there any more");
    }

    #[test]
    fn a_removed_entry_is_also_removed_where_the_end_of_a_turn_has_put_it_meanwhile() {
        let (_, _, session, mine) = stand();
        session.doc().note_written(&[0], 0..0);
        session.doc().replace(vec![Entry::from_message(&Message::user("chain")), mine.clone()]);
        assert!(session.remove_message(0, &mine, true));
        let doc = session.doc().clone();
        assert_eq!((doc.unsaved.keys().copied().collect::<Vec<_>>(), doc.bytes), (vec![1], doc.unsaved[&1].bytes()));
    }

    #[tokio::test]
    async fn a_session_is_not_written_while_an_entry_is_removed() {
        let (_, table, session, mine) = stand();
        let removing = session.saving.lock().await;
        let mut save = pin!(table.save(&session));
        assert!(save.as_mut().now_or_never().is_none());
        assert!(session.remove_message(0, &mine, false));
        drop(removing);
        save.await.expect("written");
        assert!(table.entries().read_all(&session, &session.entries()).await.expect("read").is_empty());
    }
}
