//! All sessions: found by agent, owner and id, loaded from the store and saved to it.
//!
//! A session belongs to an agent and an owner. It is a small document in the store, kept in memory while it is in use.
//! Not here: what a run says in it ([`crate::turns::transcripts`]), and what its owner may do with it
//! ([`crate::operator::session_calls`]).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use interlingua_core::call::SessionView;
use interlingua_core::{Fault, FaultKind, Owner, RunId};
use tokio::sync::OwnedMutexGuard;

use super::document::SessionDoc;
use super::entries::SessionEntries;
use super::open_items;
use super::session::{HeldTicket, Lifetime, Queued, Session, SessionKey, TurnGuard};
use crate::complete::complete;
use crate::faults::{self, store_fault};
use interlingua_base::clock;
use interlingua_store::{DocumentWrite, Expect, Store, Version};

/// The collection of the store that sessions are in.
const COLLECTION: &str = "sessions";
/// How many documents are listed at once.
const PAGE: usize = 500;
/// Below this many sessions in memory no one looks for those that are not in use.
const SWEEP_MIN: usize = 64;

/// How often a session is written again that another replica has written meanwhile.
const MAX_WRITES: usize = 8;

/// A session as it is written, and what of it is written with it.
struct Snapshot {
    writes: Vec<DocumentWrite>,
    indices: Vec<u64>,
    replaced: Range<u64>,
    doc: SessionDoc,
}

/// All sessions.
pub(crate) struct SessionTable {
    store: Arc<dyn Store>,
    entries: SessionEntries,
    in_memory: Mutex<HashMap<SessionKey, Weak<Session>>>,
}

impl SessionTable {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { entries: SessionEntries::new(Arc::clone(&store)), store, in_memory: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, Weak<Session>>> {
        self.in_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn entries(&self) -> &SessionEntries {
        &self.entries
    }

    /// A session with an id that was never used.
    pub(crate) fn create(&self, agent: &str, owner: &Owner) -> Arc<Session> {
        let id = clock::new_id().to_string();
        self.insert(SessionKey::new(agent, owner, &id), owner, SessionDoc::new(&id, agent, owner, None))
    }

    /// A session, created if it is not there.
    pub(crate) async fn get_or_create(&self, agent: &str, owner: &Owner, id: &str) -> Result<Arc<Session>, Fault> {
        let key = SessionKey::new(agent, owner, id);
        let found = self.find_by_key(&key, owner).await?;
        Ok(found.unwrap_or_else(|| self.insert(key, owner, SessionDoc::new(id, agent, owner, None))))
    }

    /// The session of this id that belongs to this user, created if it is not there. Callers that were not
    /// authenticated may name users: the first user has the id for itself, and every other one has a separate session
    /// of the same id.
    pub(crate) async fn of_user(
        &self,
        agent: &str,
        owner: &Owner,
        id: &str,
        user: Option<&str>,
    ) -> Result<Arc<Session>, Fault> {
        let session = self.get_or_create(agent, owner, id).await?;
        let Some(user) = user.filter(|user| !session.claim_user(user)) else { return Ok(session) };

        let key = session.key().of_user(user);
        let found = self.find_by_key(&key, owner).await?;
        let session = found.unwrap_or_else(|| self.insert(key, owner, SessionDoc::new(id, agent, owner, Some(user))));
        session.doc().user_id.get_or_insert_with(|| user.to_owned());
        Ok(session)
    }

    /// A session that was used before.
    pub(crate) async fn find(&self, agent: &str, owner: &Owner, id: &str) -> Result<Option<Arc<Session>>, Fault> {
        self.find_by_key(&SessionKey::new(agent, owner, id), owner).await
    }

    /// A session in memory, or in the store.
    async fn find_by_key(&self, key: &SessionKey, owner: &Owner) -> Result<Option<Arc<Session>>, Fault> {
        if let Some(session) = self.find_in_memory(key) {
            if self.is_shared() && session.may_be_outdated() {
                self.refresh(&session).await?;
            }
            return Ok(Some(session));
        }

        let Some((doc, version)) = self.load(key).await? else { return Ok(None) };
        if !self.is_shared() {
            return Ok(Some(self.insert(key.clone(), owner, doc)));
        }
        let session = Session::new(key.clone(), owner, doc.clone());
        session.note_stored(version, doc.clone());
        let session = self.insert_session(session);
        // Another call may have been faster, and older.
        session.update_from(version, doc);
        Ok(Some(session))
    }

    /// Lets go of a session: the next one who needs it reads it from the store.
    pub(crate) fn forget(&self, session: &Arc<Session>) {
        let mut sessions = self.lock();
        let is_it = |known: &Weak<Session>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(session));
        if sessions.get(session.key()).is_some_and(is_it) {
            sessions.remove(session.key());
        }
    }

    fn find_in_memory(&self, key: &SessionKey) -> Option<Arc<Session>> {
        self.lock().get(key).and_then(Weak::upgrade)
    }

    fn insert(&self, key: SessionKey, owner: &Owner, doc: SessionDoc) -> Arc<Session> {
        self.insert_session(Session::new(key, owner, doc))
    }

    fn insert_session(&self, session: Session) -> Arc<Session> {
        let mut sessions = self.lock();
        // Another call may have been faster.
        if let Some(session) = sessions.get(session.key()).and_then(Weak::upgrade) {
            return session;
        }

        let session = Arc::new(session);
        sessions.insert(session.key().clone(), Arc::downgrade(&session));
        if sessions.len() > SWEEP_MIN && sessions.len().is_power_of_two() {
            sessions.retain(|_, session| session.strong_count() > 0);
        }
        session
    }

    async fn load(&self, key: &SessionKey) -> Result<Option<(SessionDoc, Version)>, Fault> {
        let found = self.store.get(COLLECTION, key.as_str()).await.map_err(|error| store_fault(&error))?;
        let Some(document) = found else { return Ok(None) };
        let doc = SessionDoc::parse(&document.value).inspect_err(|fault| {
            tracing::error!(session = key.as_str(), reason = fault.detail, "a session cannot be read");
        })?;
        Ok(Some((doc, document.version)))
    }

    /// True if other processes use the same sessions.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.shared().is_some()
    }

    /// True if other replicas should find a session that they cannot know yet: its first turn begins.
    pub(crate) fn is_unknown_elsewhere(&self, session: &Session) -> bool {
        self.has_tickets(session) && session.stored_version().is_none()
    }

    /// Reads what other replicas have written, unless this replica has the session's turn.
    pub(crate) async fn refresh_if_outdated(&self, session: &Session) -> Result<(), Fault> {
        if session.may_be_outdated() { self.refresh(session).await } else { Ok(()) }
    }

    /// Reads what other replicas have written. What was changed here and is not written yet is kept.
    async fn refresh(&self, session: &Session) -> Result<(), Fault> {
        let _saving = session.saving.lock().await;
        self.read_again(session).await
    }

    /// Blocks writes of a session until the guard is dropped. Reads what other replicas have written first.
    pub(crate) async fn block_writes(&self, session: &Session) -> Result<OwnedMutexGuard<()>, Fault> {
        let saving = Arc::clone(&session.saving).lock_owned().await;
        if self.has_tickets(session) && session.stored_version().is_some() {
            self.read_again(session).await?;
        }
        Ok(saving)
    }

    async fn read_again(&self, session: &Session) -> Result<(), Fault> {
        match self.load(session.key()).await? {
            Some((doc, version)) => session.update_from(version, doc),
            None => session.note_deleted(),
        }
        Ok(())
    }

    /// Writes a session and its new entries, at once. Resolves when they are safe.
    pub(crate) async fn save(&self, session: &Arc<Session>) -> Result<(), Fault> {
        if session.resolve_lifetime() == Lifetime::Connection {
            return Ok(());
        }
        if !self.is_shared() {
            let saving = session.saving.lock().await;
            let Snapshot { writes, indices, replaced, .. } = Self::snapshot(session, Expect::Any);
            let written = self.store.write(writes, clock::now());
            // Writes take effect in the order of the calls.
            drop(saving);
            let written = written.await.map_err(|error| store_fault(&error))?;
            written.map_err(|_| conflict())?;
            session.doc().note_written(&indices, replaced);
            return Ok(());
        }

        let saving = Arc::clone(&session.saving).lock_owned().await;
        for _ in 0..MAX_WRITES {
            let expect = session.stored_version().map_or(Expect::Absent, Expect::Version);
            session.doc().name_write();
            let Snapshot { writes, indices, replaced, doc } = Self::snapshot(session, expect);
            let written = self.store.write(writes, clock::now());
            // Whether or not the caller waits for it: what is written and not noted would be written again.
            let noted = Arc::clone(session);
            let noting = complete(async move {
                match written.await {
                    Ok(written) => Ok(written.map(|version| {
                        noted.doc().note_written(&indices, replaced);
                        noted.note_stored(version, doc);
                    })),
                    Err(error) => {
                        noted.note_unanswered(doc);
                        Err(store_fault(&error))
                    }
                }
            });
            if noting.await?.is_ok() {
                drop(saving);
                return Ok(());
            }
            self.read_again(session).await?;
        }

        Err(faults::busy(&session.id))
    }

    /// A session as it is written.
    fn snapshot(session: &Session, expect: Expect) -> Snapshot {
        let mut doc = session.doc();
        doc.updated_at = clock::now();
        let mut writes = SessionEntries::writes(session, &doc.unsaved, doc.replaced.clone());
        writes.extend(open_items::write_of(session, &mut doc));
        let value = Some(serde_json::to_vec(&*doc).unwrap_or_default().into());
        writes.push(DocumentWrite { collection: COLLECTION, key: session.key().as_str().to_owned(), value, expect });
        let indices = doc.unsaved.keys().copied().collect();
        Snapshot { writes, indices, replaced: doc.replaced.clone(), doc: doc.clone() }
    }

    /// The right to take a turn, if it is free. `continues`: the run whose next turn it is.
    pub(crate) async fn try_turn(
        &self,
        session: &Arc<Session>,
        continues: Option<RunId>,
    ) -> Result<Option<TurnGuard>, Fault> {
        let Some(local) = session.try_local_turn() else { return Ok(None) };
        if !self.has_tickets(session) {
            return Ok(Some(session.guard(local, None)));
        }
        let Some(ticket) = self.ticket(session, continues, 0).await? else { return Ok(None) };
        self.begin(session.guard(local, Some(ticket))).await.map(Some)
    }

    /// The right to take its first turn, if nothing was said in it: of several requests that come at the same time, one
    /// gets it.
    pub(crate) async fn try_first_turn(&self, session: &Arc<Session>) -> Result<Option<TurnGuard>, Fault> {
        let guard = self.try_turn(session, None).await?;
        Ok(guard.filter(|_| session.doc().has_no_turn()))
    }

    /// Joins the queue for a turn, if fewer than `limit` are in it. `continues`: the run whose next turn it is.
    pub(crate) async fn enqueue(
        &self,
        session: &Arc<Session>,
        continues: Option<RunId>,
        limit: usize,
    ) -> Result<Queued, Fault> {
        let queued = session.enqueue(limit)?;
        if !self.has_tickets(session) {
            return Ok(queued);
        }
        let ticket = self.ticket(session, continues, limit).await?;
        Ok(queued.with_ticket(ticket.ok_or_else(|| faults::busy(&session.id))?))
    }

    /// The turn of a position in the queue, if it is free; the position otherwise.
    pub(crate) async fn try_turn_of(&self, queued: Queued) -> Result<Result<TurnGuard, Queued>, Fault> {
        let has_tickets = self.has_tickets(queued.session());
        match queued.try_turn() {
            Ok(guard) if has_tickets => self.begin(guard).await.map(Ok),
            turn => Ok(turn),
        }
    }

    /// The turn of a position in the queue, once it comes.
    pub(crate) async fn turn_of(&self, queued: Queued) -> Result<TurnGuard, Fault> {
        let has_tickets = self.has_tickets(queued.session());
        let guard = queued.turn().await?;
        if has_tickets { self.begin(guard).await } else { Ok(guard) }
    }

    /// Other replicas take no turn from now on, and what they have written is known.
    async fn begin(&self, guard: TurnGuard) -> Result<TurnGuard, Fault> {
        self.refresh(guard.session()).await?;
        guard.session().hold();
        Ok(guard)
    }

    fn has_tickets(&self, session: &Session) -> bool {
        self.is_shared() && !session.lives_in_memory()
    }

    async fn ticket(
        &self,
        session: &Session,
        continues: Option<RunId>,
        most: usize,
    ) -> Result<Option<HeldTicket>, Fault> {
        let (store, key) = (Arc::clone(&self.store), session.key().clone());
        // A caller that leaves meanwhile would leave its place behind.
        complete(async move { HeldTicket::take(store, &key, continues, most).await }).await
    }

    /// Deletes a session and its entries.
    pub(crate) async fn delete(&self, session: &Session) -> Result<(), Fault> {
        self.lock().remove(session.key());
        self.entries.delete_all(session).await?;
        let unlisted = self.store.delete(open_items::COLLECTION, &open_items::key(session), Expect::Any);
        unlisted.await.map_err(|error| store_fault(&error))?.map_err(|_| conflict())?;
        let deleted = self.store.delete(COLLECTION, session.key().as_str(), Expect::Any);
        deleted.await.map_err(|error| store_fault(&error))?.map_err(|_| conflict())?;
        session.note_deleted();
        Ok(())
    }

    /// Reads all sessions that an owner has with an agent, one after the other.
    pub(crate) async fn visit(
        &self,
        agent: &str,
        owner: &Owner,
        mut read: impl FnMut(SessionView),
    ) -> Result<(), Fault> {
        let prefix = SessionKey::prefix(agent, owner);
        let mut after: Option<String> = None;
        loop {
            let page = self.store.list(COLLECTION, &prefix, after.as_deref(), PAGE);
            let page = page.await.map_err(|error| store_fault(&error))?;
            for entry in &page {
                match SessionDoc::parse(&entry.document.value) {
                    Ok(doc) => read(doc.view()),
                    // One damaged session must not hide all others.
                    Err(fault) => {
                        tracing::error!(session = entry.key, reason = fault.detail, "a session is left out of a list")
                    }
                }
            }

            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.key.clone()),
                _ => return Ok(()),
            }
        }
    }
}

/// Cannot happen: nothing was expected in the document's place.
fn conflict() -> Fault {
    Fault::new(FaultKind::Internal, "conflict")
}
