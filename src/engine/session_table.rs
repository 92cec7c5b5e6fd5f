//! All sessions: found by agent, owner and id, loaded from the store and saved to it.
//!
//! A session belongs to an agent and an owner. It is a small document in the store, kept in memory while it is in use.
//! Not here: what a run says in it ([`super::transcripts`]), and what its owner may do with it ([`super::session_calls`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use interlingua_core::{Fault, FaultKind, Owner};

use super::faults::store_fault;
use super::session::{Session, SessionKey};
use super::session_doc::SessionDoc;
use super::session_entries::SessionEntries;
use crate::clock;
use crate::store::{Expect, Store};

/// The collection of the store that sessions are in.
const COLLECTION: &str = "sessions";
/// How many documents are listed at once.
const PAGE: usize = 500;
/// Below this many sessions in memory no one looks for those that are not in use.
const SWEEP_MIN: usize = 64;

/// All sessions.
pub(super) struct SessionTable {
    store: Arc<dyn Store>,
    entries: SessionEntries,
    in_memory: Mutex<HashMap<SessionKey, Weak<Session>>>,
}

impl SessionTable {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { entries: SessionEntries::new(Arc::clone(&store)), store, in_memory: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, Weak<Session>>> {
        self.in_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn entries(&self) -> &SessionEntries {
        &self.entries
    }

    /// A session with an id that was never used.
    pub(super) fn create(&self, agent: &str, owner: &Owner) -> Arc<Session> {
        let id = clock::new_id().to_string();
        self.insert(SessionKey::new(agent, owner, &id), owner, SessionDoc::new(&id, agent, owner, None))
    }

    /// A session, created if it is not there.
    pub(super) async fn get_or_create(&self, agent: &str, owner: &Owner, id: &str) -> Result<Arc<Session>, Fault> {
        let key = SessionKey::new(agent, owner, id);
        if let Some(session) = self.find_in_memory(&key) {
            return Ok(session);
        }

        let doc = self.load(&key).await?;
        Ok(self.insert(key, owner, doc.unwrap_or_else(|| SessionDoc::new(id, agent, owner, None))))
    }

    /// The session of this id that belongs to this user, created if it is not there. Callers that were not authenticated
    /// may name users: the first user has the id for itself, and every other one has a separate session of the same id.
    pub(super) async fn of_user(
        &self,
        agent: &str,
        owner: &Owner,
        id: &str,
        user: Option<&str>,
    ) -> Result<Arc<Session>, Fault> {
        let session = self.get_or_create(agent, owner, id).await?;
        let Some(user) = user.filter(|user| session.belongs_to_another(user)) else { return Ok(session) };

        let key = session.key().of_user(user);
        if let Some(session) = self.find_in_memory(&key) {
            return Ok(session);
        }

        let doc = self.load(&key).await?;
        let doc = doc.unwrap_or_else(|| SessionDoc::new(id, agent, owner, Some(user)));
        let session = self.insert(key, owner, doc);
        session.doc().user_id.get_or_insert_with(|| user.to_owned());
        Ok(session)
    }

    /// A session that was used before.
    pub(super) async fn find(&self, agent: &str, owner: &Owner, id: &str) -> Result<Option<Arc<Session>>, Fault> {
        let key = SessionKey::new(agent, owner, id);
        if let Some(session) = self.find_in_memory(&key) {
            return Ok(Some(session));
        }

        let doc = self.load(&key).await?;
        Ok(doc.map(|doc| self.insert(key, owner, doc)))
    }

    fn find_in_memory(&self, key: &SessionKey) -> Option<Arc<Session>> {
        self.lock().get(key).and_then(Weak::upgrade)
    }

    fn insert(&self, key: SessionKey, owner: &Owner, doc: SessionDoc) -> Arc<Session> {
        let mut sessions = self.lock();
        // Another call may have been faster.
        if let Some(session) = sessions.get(&key).and_then(Weak::upgrade) {
            return session;
        }

        let session = Arc::new(Session::new(key.clone(), owner, doc));
        sessions.insert(key, Arc::downgrade(&session));
        if sessions.len() > SWEEP_MIN && sessions.len().is_power_of_two() {
            sessions.retain(|_, session| session.strong_count() > 0);
        }
        session
    }

    async fn load(&self, key: &SessionKey) -> Result<Option<SessionDoc>, Fault> {
        let found = self.store.get(COLLECTION, key.as_str()).await.map_err(|error| store_fault(&error))?;
        found.map(|document| SessionDoc::parse(&document.value)).transpose()
    }

    /// Writes a session and its new entries. Resolves when they are safe.
    pub(super) async fn save(&self, session: &Session) -> Result<(), Fault> {
        if session.is_in_memory() {
            return Ok(());
        }

        let (entries, indices, replaced, written) = {
            let mut doc = session.doc();
            doc.updated_at = clock::now();
            let indices: Vec<u64> = doc.unsaved.keys().copied().collect();
            let replaced = doc.replaced.clone();
            (self.entries.write(session, &doc), indices, replaced, serde_json::to_vec(&*doc).unwrap_or_default())
        };

        // All at once and in this order: a reader of the session finds its entries.
        let key = session.key().as_str();
        let put = self.store.put(COLLECTION, key, written.into(), Expect::Any, clock::now());
        for put in entries.into_iter().chain([put]) {
            put.await.map_err(|error| store_fault(&error))?.map_err(|_| conflict())?;
        }

        // Only now nothing names them.
        for deleted in self.entries.delete_all_at(session, replaced.clone()) {
            let _ = deleted.await.map_err(|error| store_fault(&error))?;
        }

        let mut doc = session.doc();
        for index in indices {
            doc.unsaved.remove(&index);
        }
        if doc.replaced.start == replaced.start {
            doc.replaced.start = replaced.end;
        }

        Ok(())
    }

    /// Deletes a session and its entries.
    pub(super) async fn delete(&self, session: &Session) -> Result<(), Fault> {
        self.lock().remove(session.key());
        self.entries.delete_all(session).await?;
        let deleted = self.store.delete(COLLECTION, session.key().as_str(), Expect::Any);
        deleted.await.map_err(|error| store_fault(&error))?.map_err(|_| conflict())?;
        Ok(())
    }

    /// The documents of all sessions that an owner has with an agent.
    pub(super) async fn list(&self, agent: &str, owner: &Owner) -> Result<Vec<SessionDoc>, Fault> {
        let prefix = SessionKey::prefix(agent, owner);
        let mut docs = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.store.list(COLLECTION, &prefix, after.as_deref(), PAGE);
            let page = page.await.map_err(|error| store_fault(&error))?;
            for entry in &page {
                docs.push(SessionDoc::parse(&entry.document.value)?);
            }

            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.key.clone()),
                _ => return Ok(docs),
            }
        }
    }
}

/// Cannot happen: nothing was expected in the document's place.
fn conflict() -> Fault {
    Fault::new(FaultKind::Internal, "conflict")
}
