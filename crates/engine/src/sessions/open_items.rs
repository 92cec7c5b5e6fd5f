//! Stored copies of open items: one document per session with open items, so that a list of all open items reads no
//! session. Each is written together with its session.
//!
//! Not here: answers ([`crate::turns::context`]) and the search of a session by the id of an item
//! ([`crate::pending::index`]).

use std::sync::Arc;

use interlingua_core::event::Millis;
use interlingua_core::pending::Pending;
use interlingua_core::{Fault, Json, RunId};
use serde::{Deserialize, Serialize};

use super::document::SessionDoc;
use super::session::Session;
use crate::faults::store_fault;
use interlingua_store::{Document, DocumentWrite, Expect, Store, owned_key};

/// The collection of the store.
pub const COLLECTION: &str = "open";
/// The number of documents that are read at once.
const PAGE: usize = 200;
/// Lists and counts include about this many sessions at most.
const MAX_SESSIONS: usize = 10_000;

/// An open item, for a list of the items of all sessions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenItem {
    /// The question, with the decisions that the agent accepts.
    pub item: Pending,
    /// The run that asked.
    pub run: RunId,
    /// Time of the question. 0 for items that an earlier version stored.
    #[serde(default)]
    pub asked_at: Millis,
    /// Time of expiry. `None`: the item does not expire.
    pub expires: Option<Millis>,
    /// JSON Schema of the tool's arguments, if the request defined the tool.
    pub parameters: Option<Json>,
}

/// The open items of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenItems {
    /// The agent's name.
    pub agent: String,
    /// The owner: [`interlingua_core::Owner::key`].
    pub owner: String,
    /// The session's id.
    pub session: String,
    /// The user, if a client named one.
    pub user: Option<String>,
    /// The items, oldest first.
    pub items: Vec<OpenItem>,
}

/// The write that must accompany a write of the session. `None`: the session has no open items, and none are stored.
pub(super) fn write_of(session: &Session, doc: &mut SessionDoc) -> Option<DocumentWrite> {
    let items: Vec<OpenItem> = doc
        .waiting
        .open()
        .map(|open| OpenItem {
            item: Pending { request: None, extension: None, ..open.item.clone() },
            run: open.run,
            asked_at: open.asked_at,
            expires: open.expires,
            parameters: open.parameters.clone(),
        })
        .collect();
    if items.is_empty() && !doc.is_listed {
        return None;
    }

    doc.is_listed = !items.is_empty();
    let value = doc.is_listed.then(|| {
        let listed = OpenItems {
            agent: doc.agent.clone(),
            owner: session.key().owner().to_owned(),
            session: doc.id.clone(),
            user: doc.user_id.clone(),
            items,
        };
        serde_json::to_vec(&listed).unwrap_or_default().into()
    });
    Some(DocumentWrite { collection: COLLECTION, key: key(session), value, expect: Expect::Any })
}

/// The key begins with the owner, like the keys of all documents with an owner.
pub(super) fn key(session: &Session) -> String {
    let key = session.key();
    owned_key(key.owner(), key.as_str())
}

impl OpenItems {
    /// The open items of one session. `None`: it has none, or they cannot be read.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn of_session(store: &Arc<dyn Store>, session: &Session) -> Result<Option<Self>, Fault> {
        let found = store.get(COLLECTION, &key(session)).await.map_err(store_fault)?;
        Ok(found.and_then(|document| parse(&key(session), &document)))
    }

    /// The open items of all sessions, in the order of the store's keys.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn list(store: &Arc<dyn Store>) -> Result<Vec<Self>, Fault> {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        while found.len() < MAX_SESSIONS {
            let page = store.list(COLLECTION, "", after.as_deref(), PAGE).await.map_err(store_fault)?;
            // Skip unreadable documents: they must not hide all others.
            found.extend(page.iter().filter_map(|entry| parse(&entry.key, &entry.document)));
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.key.clone()),
                _ => break,
            }
        }
        Ok(found)
    }
}

/// Parses a stored document. An unreadable one is logged; the next write of its session replaces it.
fn parse(key: &str, document: &Document) -> Option<OpenItems> {
    let parsed = serde_json::from_slice(&document.value);
    parsed.inspect_err(|error| tracing::error!(key, %error, "open items are left out of the list")).ok()
}
