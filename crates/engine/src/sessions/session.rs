//! A session in memory: its owner and user, the right to take its turns, and its document.
//!
//! Not here: finding, loading and saving sessions ([`super::table`]), and the fields of a document
//! ([`super::document`]).

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlingua_core::owner::escaped;
use interlingua_core::pending::PendingKind;
use interlingua_core::{Fault, Owner, RunId};

use super::document::SessionDoc;
use super::{merge, upstream_ids};
use crate::faults::store_fault;
use interlingua_base::clock;
use interlingua_store::{Store, Ticket, TurnQueue, Version, local};

/// The identity of a session, and the key of its document in the store: the agent, the owner and the session's id, then
/// the user if another user chose the id first. Control characters separate the parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey(String);

impl SessionKey {
    /// The key of the [`Owner`].
    pub(crate) fn owner(&self) -> &str {
        self.0.split('\u{1f}').nth(1).unwrap_or_default()
    }

    /// Escapes the ids: they come from clients, and no part may contain the separator.
    pub(crate) fn new(agent: &str, owner: &Owner, session: &str) -> Self {
        Self(format!("{}{}", Self::prefix(agent, owner), escaped(session)))
    }

    /// The key of a session whose id another user chose first.
    pub(crate) fn of_user(&self, user: &str) -> Self {
        Self(format!("{}\u{1f}{}", self.0, escaped(user)))
    }

    /// The common prefix of the keys of an owner's sessions with an agent.
    pub(super) fn prefix(agent: &str, owner: &Owner) -> String {
        format!("{}\u{1f}{}\u{1f}", escaped(agent), owner.key())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The time that a session is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Until its connection ends.
    Connection,
    /// Until the retention of the store deletes it.
    Stored,
}

/// A session in memory. Lock order: `doc`, `stored`, `unanswered`.
pub(crate) struct Session {
    key: SessionKey,
    pub(crate) owner: Owner,
    pub(crate) id: String,
    /// Locked while this process takes a turn of the session.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// True if the session ends with its connection and is not stored.
    in_memory: AtomicBool,
    /// True if no client can name the session, so that only an answer to an open item leads to it.
    is_unnamed: AtomicBool,
    /// True if `in_memory` was ever true.
    began_in_memory: AtomicBool,
    doc: Mutex<SessionDoc>,
    /// The stored document that was read or written last. `None`: unknown, or no other process writes sessions.
    stored: Mutex<Option<StoredSession>>,
    /// The document of a write that failed without a clear result, so that the store may have it.
    unanswered: Mutex<Option<SessionDoc>>,
    /// True while this replica has the turn in the queue of all replicas: no other one takes turns.
    held: AtomicBool,
    /// Held while it is written or read again, and while one of its entries is removed.
    pub(super) saving: Arc<tokio::sync::Mutex<()>>,
    /// Notified when this process starts a run in the session.
    run_started: tokio::sync::Notify,
}

struct StoredSession {
    version: Version,
    doc: SessionDoc,
}

/// The right to take a turn, in this process and among all replicas. It ends with the value.
pub(crate) struct TurnGuard {
    session: Arc<Session>,
    // Dropped in this order: other replicas continue before this one does.
    ticket: HeldTicket,
    _local: tokio::sync::OwnedMutexGuard<()>,
}

impl TurnGuard {
    pub(crate) const fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Notes that the session's document is the latest one until the guard is dropped. Not for a session that lived in
    /// memory when its turn was queued: once it is stored, other replicas can take turns at the same time.
    pub(super) fn hold(&self) {
        if matches!(self.ticket.queues, TurnQueues::OfStore(_)) {
            self.session.held.store(true, Ordering::Release);
        }
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        self.session.held.store(false, Ordering::Release);
    }
}

/// The queues with the turns of a session.
#[derive(Clone)]
pub(super) enum TurnQueues {
    /// Queues of the store, which all replicas share.
    OfStore(Arc<dyn Store>),
    /// Queues of this process, for sessions that end with their connection.
    OfProcess(Arc<local::TurnQueues>),
}

impl Deref for TurnQueues {
    type Target = dyn TurnQueue;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::OfStore(store) => store.turns(),
            Self::OfProcess(queues) => &**queues,
        }
    }
}

/// A place in the queue of a session. Dropping it gives up the place.
pub(super) struct HeldTicket {
    queues: TurnQueues,
    ticket: Ticket,
}

impl HeldTicket {
    pub(super) const fn new(queues: TurnQueues, ticket: Ticket) -> Self {
        Self { queues, ticket }
    }

    /// Waits until the place is the first one.
    async fn wait(&mut self) -> Result<(), Fault> {
        if !self.ticket.is_first {
            self.queues.wait_for_turn(&self.ticket).await.map_err(|error| store_fault(&error))?;
            self.ticket.is_first = true;
        }
        Ok(())
    }
}

impl Drop for HeldTicket {
    fn drop(&mut self) {
        let ticket = Ticket { session: std::mem::take(&mut self.ticket.session), ..self.ticket };
        // Not awaited: the store completes the call by itself.
        drop(self.queues.leave_turn(ticket));
    }
}

impl Session {
    pub(crate) fn new(key: SessionKey, owner: &Owner, doc: SessionDoc) -> Self {
        Self {
            key,
            owner: owner.clone(),
            id: doc.id.clone(),
            turn: Arc::default(),
            in_memory: AtomicBool::new(false),
            is_unnamed: AtomicBool::new(false),
            began_in_memory: AtomicBool::new(false),
            doc: Mutex::new(doc),
            stored: Mutex::new(None),
            unanswered: Mutex::new(None),
            held: AtomicBool::new(false),
            saving: Arc::default(),
            run_started: tokio::sync::Notify::new(),
        }
    }

    /// True if another replica may change the session without notice: this one does not have its turn, and the session
    /// does not live in memory.
    pub(super) fn may_be_outdated(&self) -> bool {
        !self.held.load(Ordering::Acquire) && !self.lives_in_memory()
    }

    /// The version of the stored document that was read or written last. `None`: unknown.
    pub(super) fn stored_version(&self) -> Option<Version> {
        self.lock_stored().as_ref().map(|stored| stored.version)
    }

    fn lock_stored(&self) -> MutexGuard<'_, Option<StoredSession>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Merges the stored document with the changes that this process made since its last read.
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

    /// Notes that the store has no document of the session.
    pub(super) fn note_deleted(&self) {
        *self.lock_stored() = None;
    }

    /// Notes a document that was written or read.
    pub(super) fn note_stored(&self, version: Version, doc: SessionDoc) {
        *self.lock_stored() = Some(StoredSession { version, doc: as_stored(doc) });
        *self.lock_unanswered() = None;
    }

    /// Notes a document that may have been written.
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

    /// Locks the document. Poisoning is ignored: each change is one call that does not panic halfway.
    pub(super) fn doc(&self) -> MutexGuard<'_, SessionDoc> {
        self.doc.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the session was never used.
    pub(crate) fn is_blank(&self) -> bool {
        self.doc().is_blank()
    }

    /// Ends the session with its connection, unless it was used before.
    pub(crate) fn keep_in_memory(&self) {
        let doc = self.doc();
        if doc.is_blank() {
            self.in_memory.store(true, Ordering::Relaxed);
            self.began_in_memory.store(true, Ordering::Relaxed);
        }
    }

    /// Keeps the session only for its run, unless the session was used before: no client can name it. It is stored once
    /// it has open items.
    pub(crate) fn keep_for_run(&self) {
        self.is_unnamed.store(true, Ordering::Relaxed);
        self.keep_in_memory();
    }

    /// Stores the session from now on, although it was to end with its connection.
    pub(crate) fn store_from_now_on(&self) {
        self.in_memory.store(false, Ordering::Relaxed);
    }

    /// True if the session lived in memory first: its turns may be in the queues of this process.
    pub(super) fn began_in_memory(&self) -> bool {
        self.began_in_memory.load(Ordering::Relaxed)
    }

    /// True if the session ends with its connection: no other process can know it.
    pub(super) fn lives_in_memory(&self) -> bool {
        self.in_memory.load(Ordering::Relaxed)
    }

    /// Decides whether the session ends with its connection. A session that waits for a person's decision is stored
    /// from now on: the decision may arrive over another connection or another protocol.
    pub(crate) fn resolve_lifetime(&self) -> Lifetime {
        if !self.lives_in_memory() {
            return Lifetime::Stored;
        }
        let is_unnamed = self.is_unnamed.load(Ordering::Relaxed);
        if self.doc().waiting.open().any(|open| is_unnamed || open.item.kind != PendingKind::Tool) {
            self.store_from_now_on();
            return Lifetime::Stored;
        }
        Lifetime::Connection
    }

    /// The user of a session for which no client named one: made of the session's id, so that anonymous clients do not
    /// share one memory at the agent, and of the owner's partition (a tenant, a route), because sessions in different
    /// partitions may have the same id.
    pub(crate) fn own_user(&self) -> String {
        match self.owner.partition() {
            None => self.id.clone(),
            Some(partition) => format!("{partition}:{}", self.id),
        }
    }

    /// A new id for the session at the agent.
    pub(crate) fn new_upstream_id(&self) -> String {
        upstream_ids::session(&self.owner, &clock::new_id().to_string(), None)
    }

    /// The name of a user in requests to the agent. `upstream_id`: the session's id at the agent.
    pub(crate) fn upstream_user(&self, name: &str, upstream_id: &str) -> String {
        // Older sessions have the names that clients chose, at the agent too: its open questions stay answerable.
        let by_plain_name = upstream_id == self.id;
        if by_plain_name && !self.owner.is_shared() { name.to_owned() } else { upstream_ids::user(&self.owner, name) }
    }

    /// Claims the session for a user, if no user has it and it has no run yet. False: it belongs to another user. True
    /// for every user if it is a conversation, or if no client named a user in its first turn.
    pub(crate) fn claim_user(&self, user: &str) -> bool {
        let mut doc = self.doc();
        if doc.is_conversation {
            return true;
        }

        let is_first_turn = doc.latest.is_none();
        match &doc.user_id {
            // The session's own user stands for a client that named none.
            Some(known) => known == user || *known == self.own_user(),
            None => {
                // Set at once, not with the turn: two first turns may arrive at the same time.
                if is_first_turn {
                    doc.user_id = Some(user.to_owned());
                }
                true
            }
        }
    }

    /// The right to take a turn in this process. `None`: another turn has it.
    pub(super) fn try_local_turn(&self) -> Option<LocalTurn> {
        Arc::clone(&self.turn).try_lock_owned().ok()
    }

    /// Waits for the right to take a turn in this process.
    async fn local_turn(&self) -> LocalTurn {
        Arc::clone(&self.turn).lock_owned().await
    }

    pub(super) fn guard(self: &Arc<Self>, local: LocalTurn, ticket: HeldTicket) -> TurnGuard {
        TurnGuard { session: Arc::clone(self), ticket, _local: local }
    }
}

/// A document as it is read from the store after its write: without unsaved and replaced entries.
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
    ticket: HeldTicket,
}

impl Queued {
    pub(super) const fn new(session: Arc<Session>, ticket: HeldTicket) -> Self {
        Self { session, ticket }
    }

    /// True if the place was the first one when it was taken, or after [`Queued::wait`].
    pub(crate) const fn is_first(&self) -> bool {
        self.ticket.ticket.is_first
    }

    /// Takes the turn if the place is the first one and no turn is under way in this process.
    pub(super) fn try_turn(self) -> Result<TurnGuard, Self> {
        match self.session.try_local_turn().filter(|_| self.is_first()) {
            Some(local) => Ok(self.session.guard(local, self.ticket)),
            None => Err(self),
        }
    }

    /// Waits until the place is the first one.
    pub(crate) async fn wait(&mut self) -> Result<(), Fault> {
        self.ticket.wait().await
    }

    /// Waits for the turn. Turns are taken in the order of the queue. The session may be outdated until
    /// [`super::SessionTable::begin`].
    pub(crate) async fn turn(mut self) -> Result<TurnGuard, Fault> {
        self.wait().await?;
        let local = self.session.local_turn().await;
        Ok(self.session.guard(local, self.ticket))
    }
}
