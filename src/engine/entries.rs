//! What was said in a session, entry by entry: each a document of its own, numbered, so that adding one costs what is
//! added and reading some costs what is read. The session's own document only counts them.
//!
//! Not here: what an entry's turn holds (its run), and whose turn it is ([`super::session`]).

use std::ops::Range;

use interlingua_core::RunId;
use interlingua_core::call::SessionItem;
use interlingua_core::model::Message;
use interlingua_core::tree::Node;
use interlingua_core::{Fault, FaultKind, Json};
use serde::{Deserialize, Serialize};

use super::session::{Doc, Session, turn_items};
use super::{Engine, clock, store_fault};
use crate::store::{Expect, part_key};

/// The collection of the store that entries are in.
const COLLECTION: &str = "entries";
/// So many are read at once: messages that clients put there may be large.
const WINDOW: u64 = 16;
/// So many bytes of messages clients may put into one session.
const MAX_BYTES: u64 = 32 << 20;

/// One thing that was said.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    /// A turn of a run: what the client said and what the agent answered.
    Turn {
        /// The run.
        run: RunId,
        /// Which of its turns.
        turn: u32,
    },
    /// A message that was put there.
    Said {
        /// Its id.
        id: String,
        /// What it says.
        message: Json,
    },
}

impl Entry {
    fn bytes(&self) -> u64 {
        match self {
            Self::Turn { .. } => 0,
            Self::Said { message, .. } => message.text().len() as u64,
        }
    }

    /// The message that was put there.
    pub(super) fn message(&self) -> Option<Message> {
        let Self::Said { message, .. } = self else { return None };
        Message::parse(&Node::with_path("", message.raw())).ok()
    }

    /// True for a turn of this run.
    fn is_of(&self, id: RunId) -> bool {
        matches!(self, Self::Turn { run, .. } if *run == id)
    }
}

/// A message that is put into a session, as it is kept.
pub(super) fn said(message: &Message) -> Entry {
    let id = message.id.clone().filter(|id| !id.is_empty());
    let id = id.unwrap_or_else(|| clock::fresh().to_prefixed("msg_"));
    Entry::Said { id, message: Json::from_serialize(message) }
}

impl Doc {
    /// Adds an entry. It is written with the session.
    pub(super) fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.last = match &entry {
            Entry::Turn { run, .. } => Some(*run),
            Entry::Said { .. } => None,
        };
        self.fresh.insert(self.next, entry);
        self.next += 1;
    }

    /// True if nothing was ever said in it.
    pub(super) const fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// Puts other entries in the place of all there are.
    pub(super) fn replace(&mut self, entries: Vec<Entry>) {
        self.fresh.clear();
        (self.first, self.bytes, self.last) = (self.next, 0, None);
        entries.into_iter().for_each(|entry| self.push(entry));
    }

    /// Takes back the entry of a turn that did not come to what was noted: the next entry takes its place.
    pub(super) fn take_back(&mut self, id: RunId, number: u32) {
        let is_it = |entry: &Entry| matches!(entry, Entry::Turn { run, turn } if *run == id && *turn == number);
        self.fresh.retain(|_, entry| !is_it(entry));
        if self.last == Some(id) {
            self.next -= 1;
            self.last = None;
        }
        self.seen = self.seen.min(self.next);
    }

    /// Adds messages, as many as there is room for: all or none.
    pub(super) fn append(&mut self, messages: &[Message]) -> Result<(), Fault> {
        let entries: Vec<Entry> = messages.iter().map(said).collect();
        let bytes = entries.iter().map(Entry::bytes).fold(self.bytes, u64::saturating_add);
        if bytes > MAX_BYTES {
            let most = MAX_BYTES >> 20;
            return Err(Fault::new(FaultKind::TooLarge, format!("a conversation holds at most {most} MiB of items")));
        }
        entries.into_iter().for_each(|entry| self.push(entry));
        Ok(())
    }

    /// Takes over what a document of an earlier version holds itself: the next write moves it.
    pub(super) fn adopt(mut self) -> Self {
        let seen = self.seen;
        for entry in std::mem::take(&mut self.old) {
            self.push(entry);
        }
        self.seen = seen;
        self
    }
}

impl Engine {
    /// Begins to write down the entries that are not yet.
    pub(super) fn write_entries(
        &self,
        session: &Session,
        doc: &Doc,
    ) -> Vec<crate::store::StoreFuture<Result<crate::store::Version, crate::store::Conflict>>> {
        let put = |(place, entry): (&u64, &Entry)| {
            let key = part_key(session.key(), *place);
            let value = serde_json::to_vec(entry).unwrap_or_default();
            self.store().put(COLLECTION, &key, value.into(), Expect::Any, clock::now())
        };
        doc.fresh.iter().map(put).collect()
    }

    /// Entries by their places, those left out that were taken out.
    pub(super) async fn entries(
        &self,
        session: &Session,
        doc: &Doc,
        places: Range<u64>,
    ) -> Result<Vec<(u64, Entry)>, Fault> {
        let prefix = part_key(session.key(), 0);
        let digits = prefix.len() - 16;
        let mut entries = std::collections::BTreeMap::new();
        let mut after = places.start.checked_sub(1).map(|before| part_key(session.key(), before));
        'pages: loop {
            let page = self.store().list(COLLECTION, &prefix[..digits], after.as_deref(), WINDOW as usize);
            let page = page.await.map_err(|error| store_fault(&error))?;
            for row in &page {
                let place = row.key.get(digits..).and_then(|place| u64::from_str_radix(place, 16).ok());
                let Some(place) = place.filter(|place| places.contains(place)) else { break 'pages };
                let entry = serde_json::from_slice(&row.document.value).map_err(|error| {
                    Fault::new(FaultKind::Internal, "the stored session cannot be read").with_detail(error)
                })?;
                entries.insert(place, entry);
            }
            match page.last() {
                Some(last) if page.len() as u64 == WINDOW => after = Some(last.key.clone()),
                _ => break,
            }
        }
        entries.extend(doc.fresh.range(places).map(|(place, entry)| (*place, entry.clone())));
        Ok(entries.into_iter().collect())
    }

    /// Everything that was said, as entries: in memory, so only for sessions that are known to be short.
    pub(super) async fn all_entries(&self, session: &Session) -> Result<Vec<Entry>, Fault> {
        let doc = session.doc().clone();
        let entries = self.entries(session, &doc, doc.first..doc.next).await?;
        Ok(entries.into_iter().map(|(_, entry)| entry).collect())
    }

    /// The places of a session's entries, some at a time: the newest ones first, or the oldest.
    pub(super) fn windows(doc: &Doc, newest_first: bool) -> impl Iterator<Item = Range<u64>> + use<> {
        let (first, next) = (doc.first, doc.next);
        (0..next.saturating_sub(first).div_ceil(WINDOW)).map(move |index| {
            if newest_first {
                let end = next - index * WINDOW;
                end.saturating_sub(WINDOW).max(first)..end
            } else {
                let start = first + index * WINDOW;
                start..next.min(start + WINDOW)
            }
        })
    }

    /// True if a turn of this run was said in the session.
    pub(super) async fn holds(&self, session: &Session, id: RunId) -> Result<bool, Fault> {
        let doc = session.doc().clone();
        for places in Self::windows(&doc, true) {
            if self.entries(session, &doc, places).await?.iter().any(|(_, entry)| entry.is_of(id)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What was said, oldest first: from one end at least so many items, if there are.
    pub(super) async fn items(&self, session: &Session, newest: bool, least: usize) -> Result<Vec<SessionItem>, Fault> {
        let doc = session.doc().clone();
        let mut pieces: Vec<Vec<SessionItem>> = Vec::new();
        let mut count = 0;
        'windows: for places in Self::windows(&doc, newest) {
            if count >= least {
                break;
            }
            let mut entries = self.entries(session, &doc, places).await?;
            if newest {
                entries.reverse();
            }
            for (_, entry) in entries {
                if count >= least {
                    break 'windows;
                }
                let mut items = self.items_of(&entry).await?;
                items.retain(|item| !doc.removed.contains(&item.id));
                count += items.len();
                pieces.push(items);
            }
        }
        if newest {
            pieces.reverse();
        }
        Ok(pieces.into_iter().flatten().collect())
    }

    async fn items_of(&self, entry: &Entry) -> Result<Vec<SessionItem>, Fault> {
        match entry {
            Entry::Said { id, .. } => {
                let item = |message| SessionItem { id: id.clone(), run: None, message };
                Ok(entry.message().map(item).into_iter().collect())
            }
            Entry::Turn { run, turn } => {
                let Some(handle) = self.handle(*run).await? else { return Ok(Vec::new()) };
                Ok(handle.view_safe(|view| turn_items(*run, *turn, view.run())))
            }
        }
    }

    /// Takes an item out. False: there is none of that id.
    pub(super) async fn take_out(&self, session: &Session, item: &str) -> Result<bool, Fault> {
        let doc = session.doc().clone();
        if doc.removed.contains(item) {
            return Ok(false);
        }
        for places in Self::windows(&doc, true) {
            for (place, entry) in self.entries(session, &doc, places).await? {
                let put_there = matches!(&entry, Entry::Said { id, .. } if id == item);
                // The ids of what was said in a turn name its run.
                let told = matches!(&entry, Entry::Turn { run, .. } if item.contains(&run.0.simple().to_string()))
                    && self.items_of(&entry).await?.iter().any(|known| known.id == item);
                if !put_there && !told {
                    continue;
                }
                if put_there {
                    let gone = self.store().delete(COLLECTION, &part_key(session.key(), place), Expect::Any);
                    let _ = gone.await.map_err(|error| store_fault(&error))?;
                }
                let mut doc = session.doc();
                if put_there {
                    doc.fresh.remove(&place);
                    doc.bytes = doc.bytes.saturating_sub(entry.bytes());
                    doc.stale |= place < doc.seen;
                } else {
                    doc.removed.insert(item.to_owned());
                    doc.stale = true;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Forgets all entries of a session.
    pub(super) async fn remove_entries(&self, session: &Session) -> Result<(), Fault> {
        let prefix = part_key(session.key(), 0);
        let prefix = &prefix[..prefix.len() - 16];
        loop {
            let page = self.store().list(COLLECTION, prefix, None, WINDOW as usize);
            let page = page.await.map_err(|error| store_fault(&error))?;
            let gone: Vec<_> = page.iter().map(|row| self.store().delete(COLLECTION, &row.key, Expect::Any)).collect();
            for gone in gone {
                let _ = gone.await.map_err(|error| store_fault(&error))?;
            }
            if (page.len() as u64) < WINDOW {
                return Ok(());
            }
        }
    }
}
