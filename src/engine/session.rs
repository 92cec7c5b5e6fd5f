//! A session in memory: whose it is, who has its turn, and its document.
//!
//! Not here: finding, loading and saving sessions ([`super::session_table`]), and what a document holds
//! ([`super::session_doc`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlingua_core::owner::escaped;
use interlingua_core::pending::PendingKind;
use interlingua_core::{Fault, Owner};

use super::session_doc::SessionDoc;
use super::{faults, upstream_ids};

/// What identifies a session, and the key of its document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SessionKey(String);

impl SessionKey {
    /// Ids come from outside: they are escaped, so no part holds the control character between the parts.
    pub(super) fn new(agent: &str, owner: &Owner, session: &str) -> Self {
        Self(format!("{}{}", Self::prefix(agent, owner), escaped(session)))
    }

    /// The key of a session whose id another user chose first.
    pub(super) fn of_user(&self, user: &str) -> Self {
        Self(format!("{}\u{1f}{}", self.0, escaped(user)))
    }

    /// What all keys of an owner's sessions with an agent begin with.
    pub(super) fn prefix(agent: &str, owner: &Owner) -> String {
        format!("{}\u{1f}{}\u{1f}", escaped(agent), owner.key())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A session in memory.
pub(super) struct Session {
    key: SessionKey,
    pub(super) owner: Owner,
    pub(super) id: String,
    /// Held while a turn is under way.
    turn: Arc<tokio::sync::Mutex<()>>,
    queued: Mutex<usize>,
    /// True if it lives as long as a connection and is not stored.
    in_memory: AtomicBool,
    doc: Mutex<SessionDoc>,
}

/// The right to take a turn.
pub(super) type TurnGuard = tokio::sync::OwnedMutexGuard<()>;

impl Session {
    pub(super) fn new(key: SessionKey, owner: &Owner, doc: SessionDoc) -> Self {
        Self {
            key,
            owner: owner.clone(),
            id: doc.id.clone(),
            turn: Arc::default(),
            queued: Mutex::new(0),
            in_memory: AtomicBool::new(false),
            doc: Mutex::new(doc),
        }
    }

    pub(super) const fn key(&self) -> &SessionKey {
        &self.key
    }

    /// The document. A panic under the lock left it whole: it changes by single calls.
    pub(super) fn doc(&self) -> MutexGuard<'_, SessionDoc> {
        self.doc.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if it was never used.
    pub(super) fn is_blank(&self) -> bool {
        let doc = self.doc();
        !doc.is_conversation && doc.latest.is_none() && doc.is_empty()
    }

    /// The right to take its first turn, if nothing was said in it: of several requests that come at the same time, one
    /// gets it.
    pub(super) fn try_first_turn(&self) -> Option<TurnGuard> {
        self.try_turn().filter(|_| self.doc().has_no_turn())
    }

    /// Lets it live as long as the connection it belongs to.
    pub(super) fn keep_in_memory(&self) {
        self.in_memory.store(true, Ordering::Relaxed);
    }

    /// From now on it is stored like all others.
    pub(super) fn store_from_now_on(&self) {
        self.in_memory.store(false, Ordering::Relaxed);
    }

    /// True if it ends with its connection. A session that waits for a person's decision does not: the decision may
    /// come over another connection or another protocol.
    pub(super) fn is_in_memory(&self) -> bool {
        if !self.in_memory.load(Ordering::Relaxed) {
            return false;
        }

        let waits = self.doc().waiting.open().any(|open| open.item.kind != PendingKind::Tool);
        if waits {
            self.store_from_now_on();
        }
        !waits
    }

    /// The user where no client named one: made of the session's id, so that anonymous clients do not share one memory
    /// at the agent. Sessions in different partitions of an owner (a tenant's, a route's) may have the same id.
    pub(super) fn own_user(&self) -> String {
        match self.owner.partition() {
            None => self.id.clone(),
            Some(partition) => format!("{partition}:{}", self.id),
        }
    }

    /// The user as the agent is given it. `upstream_id` is the session's.
    pub(super) fn upstream_user(&self, name: &str, upstream_id: &str) -> String {
        // The agent knows an older session by the names as clients chose them: what it asked there can still be answered.
        let by_plain_name = upstream_id == self.id;
        if by_plain_name && !self.owner.is_shared() { name.to_owned() } else { upstream_ids::user(&self.owner, name) }
    }

    /// True if a turn of it named another user. A conversation is its owner's, whichever user speaks in it.
    pub(super) fn belongs_to_another(&self, user: &str) -> bool {
        let mut doc = self.doc();
        if doc.is_conversation {
            return false;
        }

        let is_first_turn = doc.latest.is_none();
        match &doc.user_id {
            // A client that named no user was given the session's own.
            Some(known) => known != user && *known != self.own_user(),
            None => {
                // Set at once, not with the turn: two first turns may come at the same time.
                if is_first_turn {
                    doc.user_id = Some(user.to_owned());
                }
                false
            }
        }
    }

    /// The right to take a turn, if it is free.
    pub(super) fn try_turn(&self) -> Option<TurnGuard> {
        Arc::clone(&self.turn).try_lock_owned().ok()
    }

    /// The right to take a turn, once it is free.
    pub(super) async fn turn(&self) -> TurnGuard {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Joins the queue for a turn, if fewer than `limit` are in it.
    pub(super) fn enqueue(self: &Arc<Self>, limit: usize) -> Result<Queued, Fault> {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        if *queued >= limit {
            return Err(faults::busy(&self.id));
        }
        *queued += 1;
        Ok(Queued(Arc::clone(self)))
    }
}

/// A position in the queue of a session.
pub(super) struct Queued(Arc<Session>);

impl Queued {
    /// Waits for the turn, first come, first served.
    pub(super) async fn turn(self) -> TurnGuard {
        self.0.turn().await
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut queued = self.0.queued.lock().unwrap_or_else(PoisonError::into_inner);
        *queued = queued.saturating_sub(1);
    }
}
