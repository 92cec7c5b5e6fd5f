//! What waits for a decision in any session: one document for each session that asks something, so that a list of all
//! of them reads no session.
//!
//! Written together with the session. Not here: answering ([`crate::turns::context`]), and finding a session by an item's id
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
/// Documents that are read at a time.
const PAGE: usize = 200;
/// Sessions that are looked at, at most: beyond that, lists and counts stop.
const MAX_SESSIONS: usize = 10_000;

/// An open item, with whom it belongs to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenItem {
    /// What is asked. Its decisions are those that the agent accepts.
    pub item: Pending,
    /// The run that asked.
    pub run: RunId,
    /// When it was asked; 0 for items of an earlier version.
    #[serde(default)]
    pub asked_at: Millis,
    /// When it expires. `None`: not by itself.
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
    /// In the order in which they were asked.
    pub items: Vec<OpenItem>,
}

/// The write that keeps the list true when a session is written. `None`: it has nothing to do with it.
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

/// The owner comes first, as in the keys of all documents that belong to one.
pub(super) fn key(session: &Session) -> String {
    let key = session.key();
    owned_key(key.owner(), key.as_str())
}

impl OpenItems {
    /// The open items of one session. `None`: it asks nothing.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn of_session(store: &Arc<dyn Store>, session: &Session) -> Result<Option<Self>, Fault> {
        let found = store.get(COLLECTION, &key(session)).await.map_err(|error| store_fault(&error))?;
        Ok(found.and_then(|document| parse(&key(session), &document)))
    }

    /// The open items of all sessions, without an order.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn list(store: &Arc<dyn Store>) -> Result<Vec<Self>, Fault> {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        while found.len() < MAX_SESSIONS {
            let page = store.list(COLLECTION, "", after.as_deref(), PAGE).await.map_err(|error| store_fault(&error))?;
            // A document that cannot be read must not hide all others.
            found.extend(page.iter().filter_map(|entry| parse(&entry.key, &entry.document)));
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.key.clone()),
                _ => break,
            }
        }
        Ok(found)
    }
}

/// A stored document. The next write of its session replaces one that cannot be read.
fn parse(key: &str, document: &Document) -> Option<OpenItems> {
    let parsed = serde_json::from_slice(&document.value);
    parsed.inspect_err(|error| tracing::error!(key, %error, "open items are left out of the list")).ok()
}
