//! A session in memory: whose it is, who has its turn, and its document.
//!
//! Not here: finding, loading and saving sessions ([`super::table`]), and what a document holds
//! ([`super::document`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlingua_core::owner::escaped;
use interlingua_core::pending::PendingKind;
use interlingua_core::{Fault, Owner, RunId};

use super::document::SessionDoc;
use super::{merge, upstream_ids};
use crate::faults::{self, store_fault};
use interlingua_base::clock;
use interlingua_store::{Store, Ticket, Version};

/// What identifies a session, and the key of its document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey(String);

impl SessionKey {
    /// The owner's key.
    pub(crate) fn owner(&self) -> &str {
        self.0.split('\u{1f}').nth(1).unwrap_or_default()
    }

    /// Ids come from outside: they are escaped, so no part holds the control character between the parts.
    pub(crate) fn new(agent: &str, owner: &Owner, session: &str) -> Self {
        Self(format!("{}{}", Self::prefix(agent, owner), escaped(session)))
    }

    /// The key of a session whose id another user chose first.
    pub(crate) fn of_user(&self, user: &str) -> Self {
        Self(format!("{}\u{1f}{}", self.0, escaped(user)))
    }

    /// What all keys of an owner's sessions with an agent begin with.
    pub(super) fn prefix(agent: &str, owner: &Owner) -> String {
        format!("{}\u{1f}{}\u{1f}", escaped(agent), owner.key())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// How long a session is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// As long as its connection.
    Connection,
    /// In the store.
    Stored,
}

/// A session in memory.
pub(crate) struct Session {
    key: SessionKey,
    pub(crate) owner: Owner,
    pub(crate) id: String,
    /// Held while a turn is under way.
    turn: Arc<tokio::sync::Mutex<()>>,
    queued: Mutex<usize>,
    /// True if it lives as long as a connection and is not stored.
    in_memory: AtomicBool,
    doc: Mutex<SessionDoc>,
    /// As a shared store has it. Locked after the document.
    stored: Mutex<Option<StoredSession>>,
    /// As it was written when the store gave no answer. Locked after `stored`.
    unanswered: Mutex<Option<SessionDoc>>,
    /// True while this replica has its turn: no other one takes turns meanwhile.
    held: AtomicBool,
    /// Held while it is written or read again, and while one of its entries is removed.
    pub(super) saving: Arc<tokio::sync::Mutex<()>>,
    /// Notified when this process starts a run in the session.
    run_started: tokio::sync::Notify,
}

/// A session as a shared store has it.
struct StoredSession {
    version: Version,
    doc: SessionDoc,
}

/// The right to take a turn: in this process, and among all replicas if there are others.
pub(crate) struct TurnGuard {
    session: Arc<Session>,
    // Dropped in this order: other replicas go on before this one does.
    _ticket: Option<HeldTicket>,
    _local: tokio::sync::OwnedMutexGuard<()>,
}

impl TurnGuard {
    pub(crate) const fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        self.session.held.store(false, Ordering::Release);
    }
}

/// A place in the line of all replicas. Dropped, it is given up.
pub(super) struct HeldTicket {
    store: Arc<dyn Store>,
    ticket: Option<Ticket>,
}

impl HeldTicket {
    /// Takes a place. `None`: more than `most` others are in line.
    pub(super) async fn take(
        store: Arc<dyn Store>,
        session: &SessionKey,
        continues: Option<RunId>,
        most: usize,
    ) -> Result<Option<Self>, Fault> {
        let Some(shared) = store.shared() else { return Ok(Some(Self { store, ticket: None })) };
        let ticket = shared.queue_turn(session.as_str(), continues, most).await;
        Ok(ticket.map_err(|error| store_fault(&error))?.map(|ticket| Self { store, ticket: Some(ticket) }))
    }

    /// True if no other replica had the turn when the place was taken.
    fn is_first(&self) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| ticket.is_first)
    }

    /// Waits until it is the first one.
    async fn comes(&self) -> Result<(), Fault> {
        match (self.store.shared(), &self.ticket) {
            (Some(shared), Some(ticket)) => shared.wait_for_turn(ticket).await.map_err(|error| store_fault(&error)),
            _ => Ok(()),
        }
    }
}

impl Drop for HeldTicket {
    fn drop(&mut self) {
        if let (Some(shared), Some(ticket)) = (self.store.shared(), self.ticket.take()) {
            // The store does it by itself.
            drop(shared.leave_turn(ticket));
        }
    }
}

impl Session {
    pub(crate) fn new(key: SessionKey, owner: &Owner, doc: SessionDoc) -> Self {
        Self {
            key,
            owner: owner.clone(),
            id: doc.id.clone(),
            turn: Arc::default(),
            queued: Mutex::new(0),
            in_memory: AtomicBool::new(false),
            doc: Mutex::new(doc),
            stored: Mutex::new(None),
            unanswered: Mutex::new(None),
            held: AtomicBool::new(false),
            saving: Arc::default(),
            run_started: tokio::sync::Notify::new(),
        }
    }

    /// True if its document may be outdated: other replicas write it, and this one does not have its turn.
    pub(super) fn may_be_outdated(&self) -> bool {
        !self.held.load(Ordering::Acquire) && !self.lives_in_memory()
    }

    /// The version that a shared store had when it was read or written last.
    pub(super) fn stored_version(&self) -> Option<Version> {
        self.lock_stored().as_ref().map(|stored| stored.version)
    }

    fn lock_stored(&self) -> MutexGuard<'_, Option<StoredSession>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what a shared store has. What was changed here since it was read last is kept.
    pub(super) fn update_from(&self, version: Version, theirs: SessionDoc) {
        let (mut doc, mut stored) = (self.doc(), self.lock_stored());
        if stored.as_ref().is_some_and(|stored| stored.version >= version) {
            return;
        }

        let written = self.lock_unanswered().take().filter(|written| written.is_in(&theirs));
        if let Some(written) = &written {
            let indices: Vec<u64> = written.unsaved.keys().copied().collect();
            doc.note_written(&indices, written.replaced.clone());
        }
        let base = match (written.map(as_stored), &*stored) {
            (Some(written), _) => written,
            (None, Some(stored)) => stored.doc.clone(),
            (None, None) => doc.blank(),
        };
        *doc = merge::rebase(&base, &doc, theirs.clone());
        *stored = Some(StoredSession { version, doc: theirs });
    }

    /// Notes that the store does not have it.
    pub(super) fn note_deleted(&self) {
        *self.lock_stored() = None;
    }

    /// Notes what was written to a shared store.
    pub(super) fn note_stored(&self, version: Version, doc: SessionDoc) {
        *self.lock_stored() = Some(StoredSession { version, doc: as_stored(doc) });
        *self.lock_unanswered() = None;
    }

    /// Notes what may have been written to a shared store.
    pub(super) fn note_unanswered(&self, doc: SessionDoc) {
        *self.lock_unanswered() = Some(doc);
    }

    fn lock_unanswered(&self) -> MutexGuard<'_, Option<SessionDoc>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Notes the run that this process starts, and notifies the listeners of the session.
    pub(crate) fn note_started(&self, run: RunId) {
        self.doc().latest = Some(run);
        self.run_started.notify_waiters();
    }

    /// Resolves when this process starts a run in the session.
    pub(crate) fn run_started(&self) -> tokio::sync::futures::Notified<'_> {
        self.run_started.notified()
    }

    /// The document. A panic under the lock left it whole: it changes by single calls.
    pub(super) fn doc(&self) -> MutexGuard<'_, SessionDoc> {
        self.doc.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if it was never used.
    pub(crate) fn is_blank(&self) -> bool {
        self.doc().is_blank()
    }

    /// Lets it live as long as the connection it belongs to, unless it was used before.
    pub(crate) fn keep_in_memory(&self) {
        let doc = self.doc();
        if doc.is_blank() {
            self.in_memory.store(true, Ordering::Relaxed);
        }
    }

    /// From now on it is stored like all others.
    pub(crate) fn store_from_now_on(&self) {
        self.in_memory.store(false, Ordering::Relaxed);
    }

    /// True if no other process can know it: it was begun to live as long as a connection.
    pub(super) fn lives_in_memory(&self) -> bool {
        self.in_memory.load(Ordering::Relaxed)
    }

    /// Decides whether it ends with its connection. A session that waits for a person's decision is stored from now on:
    /// the decision may come over another connection or another protocol.
    pub(crate) fn resolve_lifetime(&self) -> Lifetime {
        if !self.lives_in_memory() {
            return Lifetime::Stored;
        }
        if self.doc().waiting.open().any(|open| open.item.kind != PendingKind::Tool) {
            self.store_from_now_on();
            return Lifetime::Stored;
        }
        Lifetime::Connection
    }

    /// The user where no client named one: made of the session's id, so that anonymous clients do not share one memory
    /// at the agent. Sessions in different partitions of an owner (a tenant's, a route's) may have the same id.
    pub(crate) fn own_user(&self) -> String {
        match self.owner.partition() {
            None => self.id.clone(),
            Some(partition) => format!("{partition}:{}", self.id),
        }
    }

    /// An id by which the agent does not know the session yet.
    pub(crate) fn new_upstream_id(&self) -> String {
        upstream_ids::session(&self.owner, &clock::new_id().to_string(), None)
    }

    /// The user as the agent is given it. `upstream_id` is the session's.
    pub(crate) fn upstream_user(&self, name: &str, upstream_id: &str) -> String {
        // The agent knows an older session by the names as clients chose them: what it asked there can still be
        // answered.
        let by_plain_name = upstream_id == self.id;
        if by_plain_name && !self.owner.is_shared() { name.to_owned() } else { upstream_ids::user(&self.owner, name) }
    }

    /// Claims it for a user. False: it is another user's. A conversation is its owner's, whichever user speaks in it.
    pub(crate) fn claim_user(&self, user: &str) -> bool {
        let mut doc = self.doc();
        if doc.is_conversation {
            return true;
        }

        let is_first_turn = doc.latest.is_none();
        match &doc.user_id {
            // A client that named no user was given the session's own.
            Some(known) => known == user || *known == self.own_user(),
            None => {
                // Set at once, not with the turn: two first turns may come at the same time.
                if is_first_turn {
                    doc.user_id = Some(user.to_owned());
                }
                true
            }
        }
    }

    /// The right to take a turn in this process, if it is free.
    pub(super) fn try_local_turn(&self) -> Option<LocalTurn> {
        Arc::clone(&self.turn).try_lock_owned().ok()
    }

    /// The right to take a turn in this process, once it is free.
    async fn local_turn(&self) -> LocalTurn {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// The right to take a turn, of both rights.
    pub(super) fn guard(self: &Arc<Self>, local: LocalTurn, ticket: Option<HeldTicket>) -> TurnGuard {
        TurnGuard { session: Arc::clone(self), _ticket: ticket, _local: local }
    }

    /// From now on no other replica takes a turn, and its document is the latest one.
    pub(super) fn hold(&self) {
        self.held.store(true, Ordering::Release);
    }

    /// Joins the queue of this process for a turn, if fewer than `limit` are in it.
    pub(crate) fn enqueue(self: &Arc<Self>, limit: usize) -> Result<Queued, Fault> {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        if *queued >= limit {
            return Err(faults::busy(&self.id));
        }
        *queued += 1;
        Ok(Queued { session: Arc::clone(self), ticket: None })
    }
}

/// A document that was written, as it is when it is read again.
fn as_stored(mut doc: SessionDoc) -> SessionDoc {
    doc.unsaved.clear();
    doc.replaced = 0..0;
    doc.late = None;
    doc
}

/// The right to take a turn in this process.
pub(super) type LocalTurn = tokio::sync::OwnedMutexGuard<()>;

/// A position in the queue of a session.
pub(crate) struct Queued {
    session: Arc<Session>,
    ticket: Option<HeldTicket>,
}

impl Queued {
    pub(crate) const fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// With a place in the line of all replicas.
    pub(super) fn with_ticket(mut self, ticket: HeldTicket) -> Self {
        self.ticket = Some(ticket);
        self
    }

    /// The turn, if it is free.
    pub(crate) fn try_turn(mut self) -> Result<TurnGuard, Self> {
        let is_first = self.ticket.as_ref().is_none_or(HeldTicket::is_first);
        match self.session.try_local_turn().filter(|_| is_first) {
            Some(local) => Ok(self.session.guard(local, self.ticket.take())),
            None => Err(self),
        }
    }

    /// Waits until no other replica has the turn.
    pub(crate) async fn comes_here(&mut self) -> Result<(), Fault> {
        if let Some(ticket) = &mut self.ticket {
            ticket.comes().await?;
            ticket.ticket.iter_mut().for_each(|ticket| ticket.is_first = true);
        }
        Ok(())
    }

    /// Waits for the turn, first come, first served.
    pub(super) async fn turn(mut self) -> Result<TurnGuard, Fault> {
        if let Some(ticket) = &self.ticket {
            ticket.comes().await?;
        }
        let local = self.session.local_turn().await;
        Ok(self.session.guard(local, self.ticket.take()))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut queued = self.session.queued.lock().unwrap_or_else(PoisonError::into_inner);
        *queued = queued.saturating_sub(1);
    }
}
