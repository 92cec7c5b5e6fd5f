//! All sessions: found by agent, owner and id, loaded from the store and saved to it.
//!
//! A session belongs to an agent and an owner. It is a small document in the store, kept in memory while it is in use.
//! Not here: what a run says in it ([`crate::turns::transcripts`]), and what its owner may do with it
//! ([`crate::operator::session_calls`]).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use interlingua_core::call::SessionView;
use interlingua_core::{Fault, FaultKind, Owner, RunId};
use tokio::sync::OwnedMutexGuard;

use super::document::SessionDoc;
use super::entries::SessionEntries;
use super::open_items;
use super::session::{HeldTicket, Lifetime, Queued, Session, SessionKey, TurnGuard, TurnQueues};
use crate::complete::complete;
use crate::faults::{self, store_fault};
use interlingua_base::clock;
use interlingua_store::{DocumentWrite, Expect, Store, StoreError, Ticket, TurnQueue as _, Version, local};

/// The collection of the store that sessions are in.
const COLLECTION: &str = "sessions";
/// The number of documents in one page of the list.
const PAGE: usize = 500;
/// Below this many sessions in memory no one looks for those that are not in use.
const SWEEP_MIN: usize = 64;

/// The maximum number of attempts to write a session that another replica has written meanwhile.
const MAX_WRITES: usize = 8;

/// One write of a session.
struct Snapshot {
    /// The new entries, the list of open items and, last, the session's document.
    writes: Vec<DocumentWrite>,
    /// Indices of the new entries.
    indices: Vec<u64>,
    /// Indices of the replaced entries, which the write deletes.
    replaced: Range<u64>,
}

/// All sessions.
pub(crate) struct SessionTable {
    store: Arc<dyn Store>,
    entries: SessionEntries,
    /// Queues of turns of sessions that end with their connection.
    queues: Arc<local::TurnQueues>,
    in_memory: Mutex<HashMap<SessionKey, Weak<Session>>>,
}

impl SessionTable {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            entries: SessionEntries::new(Arc::clone(&store)),
            store,
            queues: Arc::default(),
            in_memory: Mutex::default(),
        }
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

    /// The session of this id that belongs to this user, created if it does not exist. Callers
    /// without authentication may name users: the first user has the id for itself, and every other one has a separate
    /// session of the same id.
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
            self.refresh_if_outdated(&session).await?;
            return Ok(Some(session));
        }

        let Some((doc, version)) = self.load(key).await? else { return Ok(None) };
        if self.is_sole_writer() {
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

    /// True if other replicas should find a session that they cannot know yet: its first turn begins.
    pub(crate) fn is_unknown_elsewhere(&self, session: &Session) -> bool {
        !session.lives_in_memory() && self.condition(session) == Expect::Absent
    }

    /// The condition on which a session is written.
    fn condition(&self, session: &Session) -> Expect {
        self.store.replaces(session.stored_version())
    }

    /// True if no other process writes sessions: those in memory are never outdated.
    pub(crate) fn is_sole_writer(&self) -> bool {
        self.store.replaces(None) == Expect::Any
    }

    /// Reads a session again, unless no other replica can have written it since: this replica has the session's turn,
    /// the session lives in memory, or no other process writes sessions.
    pub(crate) async fn refresh_if_outdated(&self, session: &Session) -> Result<(), Fault> {
        if session.may_be_outdated() && !self.is_sole_writer() {
            let _saving = session.saving.lock().await;
            self.read_again(session).await?;
        }
        Ok(())
    }

    /// True if a session still belongs to the user that a turn names; `None` matches every session. The user claimed
    /// the session before the turn was queued, but the claim of another user is kept if another replica stored it
    /// first.
    pub(crate) fn is_users(&self, session: &Session, user: Option<&str>) -> bool {
        user.is_none_or(|user| self.is_sole_writer() || session.claim_user(user))
    }

    /// Blocks writes of a session until the guard is dropped. Reads what other replicas have written first.
    pub(crate) async fn block_writes(&self, session: &Session) -> Result<OwnedMutexGuard<()>, Fault> {
        let saving = Arc::clone(&session.saving).lock_owned().await;
        if !self.is_sole_writer() && !session.lives_in_memory() && session.stored_version().is_some() {
            self.read_again(session).await?;
        }
        Ok(saving)
    }

    /// Reads a session again. Changes of this process that are not written yet are kept.
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
        if self.is_sole_writer() {
            return self.write(session).await;
        }

        let saving = Arc::clone(&session.saving).lock_owned().await;
        for _ in 0..MAX_WRITES {
            let expect = self.condition(session);
            let (snapshot, doc) = {
                let mut doc = session.doc();
                doc.name_write();
                (Self::snapshot(session, &mut doc, expect), doc.clone())
            };
            let Snapshot { writes, indices, replaced } = snapshot;
            let written = self.store.write(writes, clock::now());
            // Also if the caller stops waiting: a later write would repeat entries that are not noted as written.
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

    /// Like [`SessionTable::save`], and keeps the session in memory until it is written, also if the caller stops
    /// waiting. Boxed: few turns need it, and their futures would be larger.
    pub(crate) fn save_detached(
        self: &Arc<Self>,
        session: &Arc<Session>,
    ) -> LocalBoxFuture<'static, Result<(), Fault>> {
        let (table, session) = (Arc::clone(self), Arc::clone(session));
        Box::pin(complete(async move { table.save(&session).await }))
    }

    /// Writes a session that no other process writes: there is nothing to merge with, and no version to note.
    async fn write(&self, session: &Session) -> Result<(), Fault> {
        // The removal of an entry is not complete in memory before the store has deleted the entry.
        let saving = session.saving.lock().await;
        let Snapshot { writes, indices, replaced } = Self::snapshot(session, &mut session.doc(), Expect::Any);
        let written = self.store.write(writes, clock::now());
        // Writes take effect in the order of the calls.
        drop(saving);
        let written = written.await.map_err(|error| store_fault(&error))?;
        written.map_err(|_| conflict())?;
        session.doc().note_written(&indices, replaced);
        Ok(())
    }

    /// The next write of a session with this document.
    fn snapshot(session: &Session, doc: &mut SessionDoc, expect: Expect) -> Snapshot {
        doc.updated_at = clock::now();
        let mut writes = SessionEntries::writes(session, &doc.unsaved, doc.replaced.clone());
        writes.extend(open_items::write_of(session, doc));
        let value = Some(serde_json::to_vec(doc).unwrap_or_default().into());
        writes.push(DocumentWrite { collection: COLLECTION, key: session.key().as_str().to_owned(), value, expect });
        let indices = doc.unsaved.keys().copied().collect();
        Snapshot { writes, indices, replaced: doc.replaced.clone() }
    }

    /// The right to take a turn, if it is free. `continues`: the run whose next turn it is.
    pub(crate) async fn try_turn(
        &self,
        session: &Arc<Session>,
        continues: Option<RunId>,
    ) -> Result<Option<TurnGuard>, Fault> {
        let Some(local) = session.try_local_turn() else { return Ok(None) };
        let Some(ticket) = self.ticket(session, continues, 0).await? else { return Ok(None) };
        let guard = session.guard(local, ticket);
        self.begin(&guard).await?;
        Ok(Some(guard))
    }

    /// The right to take its first turn, if nothing was said in it: of several requests that come at the same time, one
    /// gets it.
    pub(crate) async fn try_first_turn(&self, session: &Arc<Session>) -> Result<Option<TurnGuard>, Fault> {
        let guard = self.try_turn(session, None).await?;
        Ok(guard.filter(|_| session.doc().has_no_turn()))
    }

    /// Joins the queue for a turn, if at most `limit` are in it, with the one under way. `continues`: the run whose
    /// next turn it is.
    pub(crate) async fn enqueue(
        &self,
        session: &Arc<Session>,
        continues: Option<RunId>,
        limit: usize,
    ) -> Result<Queued, Fault> {
        let ticket = self.ticket(session, continues, limit).await?;
        let ticket = ticket.ok_or_else(|| faults::busy(&session.id))?;
        Ok(Queued::new(Arc::clone(session), ticket))
    }

    /// True if the next turn of a run is in the queue of its session.
    pub(crate) async fn is_continued(&self, session: &Session, run: RunId) -> Result<bool, Fault> {
        let mut is_continued = self.turn_queues(session).is_continued(run).await;
        // Turns that were queued before the session was stored stay in the queue of this process.
        if session.began_in_memory() && !session.lives_in_memory() && matches!(is_continued, Ok(false)) {
            is_continued = self.queues.is_continued(run).await;
        }
        is_continued.map_err(|error| store_fault(&error))
    }

    fn turn_queues(&self, session: &Session) -> TurnQueues {
        match session.lives_in_memory() {
            true => TurnQueues::OfProcess(Arc::clone(&self.queues)),
            false => TurnQueues::OfStore(Arc::clone(&self.store)),
        }
    }

    /// The turn of a position in the queue, if it is free; the position otherwise.
    pub(crate) async fn try_turn_of(&self, queued: Queued) -> Result<Result<TurnGuard, Queued>, Fault> {
        match queued.try_turn() {
            Ok(guard) => {
                self.begin(&guard).await?;
                Ok(Ok(guard))
            }
            Err(queued) => Ok(Err(queued)),
        }
    }

    /// The turn of a position in the queue, once it comes.
    pub(crate) async fn turn_of(&self, queued: Queued) -> Result<TurnGuard, Fault> {
        let guard = queued.turn().await?;
        self.begin(&guard).await?;
        Ok(guard)
    }

    /// Begins a turn with the latest document of its session.
    pub(crate) async fn begin(&self, guard: &TurnGuard) -> Result<(), Fault> {
        self.refresh_if_outdated(guard.session()).await?;
        guard.hold();
        Ok(())
    }

    async fn ticket(
        &self,
        session: &Session,
        continues: Option<RunId>,
        most: usize,
    ) -> Result<Option<HeldTicket>, Fault> {
        let queues = self.turn_queues(session);
        let mut taking = queues.queue_turn(session.key().as_str(), continues, most);
        let hold = move |taken: Result<Option<Ticket>, StoreError>| {
            taken
                .map(|ticket| ticket.map(|ticket| HeldTicket::new(queues, ticket)))
                .map_err(|error| store_fault(&error))
        };
        match (&mut taking).now_or_never() {
            Some(taken) => hold(taken),
            // If the caller stops waiting, the place is still given up.
            None => complete(async move { hold(taking.await) }).await,
        }
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
