//! Sessions: whose turn it is, what was said, and what the upstream knows of it.
//!
//! A session belongs to an agent and an owner. It is a small document in the store, kept in memory while a turn is
//! under way. What was said stands in entries beside it ([`super::entries`]), and in the runs those name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use interlingua_core::call::{SessionItem, SessionView};
use interlingua_core::event::Millis;
use interlingua_core::model::MessageType;
use interlingua_core::owner::escaped;
use interlingua_core::pending::PendingKind;
use interlingua_core::{Extra, Fault, FaultKind, Json, Owner, RunId};
use serde::{Deserialize, Serialize};

use super::entries::Entry;
use super::{Engine, clock, names, store_fault};
use crate::store::Expect;

/// The collection of the store that sessions are in.
pub(super) const COLLECTION: &str = "sessions";
/// More turns than this do not queue for one session.
const MAX_QUEUED: usize = 64;

/// What identifies a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key(String);

impl Key {
    /// Ids come from outside: no part holds the control character that keeps the parts apart.
    pub(super) fn new(agent: &str, owner: &Owner, session: &str) -> Self {
        Self(format!("{}{}", Self::prefix(agent, owner), escaped(session)))
    }

    /// A session that another user named by the same id.
    fn of_user(&self, user: &str) -> Self {
        Self(format!("{}\u{1f}{}", self.0, escaped(user)))
    }

    fn prefix(agent: &str, owner: &Owner) -> String {
        format!("{}\u{1f}{}\u{1f}", escaped(agent), owner.key())
    }
}

/// A session in memory.
pub(super) struct Session {
    key: Key,
    pub(super) owner: Owner,
    pub(super) id: String,
    /// Held while a turn is under way.
    turn: Arc<tokio::sync::Mutex<()>>,
    queued: Mutex<usize>,
    /// It belongs to a connection: it is not written down.
    in_memory: AtomicBool,
    doc: Mutex<Doc>,
}

/// The right to take a turn.
pub(super) type TurnGuard = tokio::sync::OwnedMutexGuard<()>;

/// What is kept of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Doc {
    pub(super) id: String,
    pub(super) agent: String,
    pub(super) created_at: Millis,
    pub(super) updated_at: Millis,
    /// Made as a resource of its own: a conversation. Its owner may change what was said.
    #[serde(default)]
    pub(super) kept: bool,
    /// The place of the first entry ([`super::entries`]).
    #[serde(default)]
    pub(super) first: u64,
    /// The place after the last one. Some between them may have been taken out.
    #[serde(default)]
    pub(super) next: u64,
    /// Whose turn the last one is, if it is one.
    #[serde(default)]
    pub(super) last: Option<RunId>,
    /// How many bytes the messages have that clients put there.
    #[serde(default)]
    pub(super) bytes: u64,
    /// Entries that are not written yet.
    #[serde(skip)]
    pub(super) fresh: BTreeMap<u64, Entry>,
    /// All of them, as documents of an earlier version hold them.
    #[serde(default, rename = "entries", skip_serializing_if = "Vec::is_empty")]
    pub(super) old: Vec<Entry>,
    /// Items of runs that were taken out.
    #[serde(default)]
    pub(super) removed: BTreeSet<String>,
    /// The id the upstream knows it by, if not its own. What was stored before owners had names of their own upstream
    /// has none: the agent goes on knowing it by the name the client chose.
    #[serde(default)]
    pub(super) upstream_id: Option<String>,
    /// Whose it is, as the upstream knows it: whoever was named first. Clients of other protocols may name nobody.
    #[serde(default)]
    pub(super) user_id: Option<String>,
    /// Before which entry the upstream has seen all.
    #[serde(default)]
    pub(super) seen: u64,
    /// What the upstream remembers is not what was said: it is told everything anew, under a new id.
    #[serde(default)]
    pub(super) stale: bool,
    /// What the connector wants to know again.
    #[serde(default = "Json::null")]
    pub(super) memory: Json,
    /// The latest run.
    #[serde(default)]
    pub(super) latest: Option<RunId>,
    /// What it waits for, and what was answered.
    #[serde(default)]
    pub(super) waiting: interlingua_core::answer::Waiting,
    /// The adapters' own facts.
    #[serde(default)]
    pub(super) labels: Extra,
}

impl Doc {
    fn new(id: &str, agent: &str, owner: &Owner, apart: Option<&str>) -> Self {
        let now = clock::now();
        let upstream_id = names::session(owner, id, apart);
        Self {
            id: id.to_owned(),
            agent: agent.to_owned(),
            created_at: now,
            updated_at: now,
            kept: false,
            first: 0,
            next: 0,
            last: None,
            bytes: 0,
            fresh: BTreeMap::new(),
            old: Vec::new(),
            removed: BTreeSet::new(),
            upstream_id: (upstream_id != id).then_some(upstream_id),
            user_id: None,
            seen: 0,
            stale: false,
            memory: Json::null(),
            latest: None,
            waiting: Default::default(),
            labels: Extra::new(),
        }
    }

    /// The user that a client named. Where nobody was, a session has a name of its own, made of its id.
    fn named_user(&self) -> Option<&str> {
        let own = |user: &str| user == self.id || user.strip_suffix(&self.id).is_some_and(|rest| rest.ends_with(':'));
        self.user_id.as_deref().filter(|user| !self.kept && !own(user))
    }

    /// True if the last thing said is a turn of this run.
    pub(super) fn ends_with(&self, id: RunId) -> bool {
        self.last == Some(id)
    }
}

impl Session {
    /// The key of its document.
    pub(super) fn key(&self) -> &str {
        &self.key.0
    }

    /// The document. A panic under the lock left it whole.
    pub(super) fn doc(&self) -> MutexGuard<'_, Doc> {
        self.doc.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// True if nothing was ever said in it.
    pub(super) fn is_blank(&self) -> bool {
        let doc = self.doc();
        !doc.kept && doc.latest.is_none() && doc.is_empty()
    }

    /// Lets it live as long as the connection it belongs to.
    pub(super) fn keep_in_memory(&self) {
        self.in_memory.store(true, Ordering::Relaxed);
    }

    /// Whether it goes with its connection. One that waits for somebody's decision does not: that may come over another
    /// connection, or another protocol.
    pub(super) fn is_in_memory(&self) -> bool {
        if !self.in_memory.load(Ordering::Relaxed) {
            return false;
        }
        let waits = self.doc().waiting.open().any(|open| open.item.kind != PendingKind::Tool);
        if waits {
            self.write_down();
        }
        !waits
    }

    /// From now on it is written down like all others.
    pub(super) fn write_down(&self) {
        self.in_memory.store(false, Ordering::Relaxed);
    }

    /// Whose it is where nobody is named: its own, so that anonymous clients do not share one memory upstream. Parts of
    /// an owner's sessions (a tenant's, a route's) may have the same ids.
    pub(super) fn own_user(&self) -> String {
        match self.owner.partition() {
            None => self.id.clone(),
            Some(partition) => format!("{partition}:{}", self.id),
        }
    }

    /// Who speaks in it, as the agent is told. `upstream_id` is the session's.
    pub(super) fn upstream_user(&self, name: &str, upstream_id: &str) -> String {
        // The agent knows an older session by the names as they were chosen: what it asked there can still be answered.
        let by_plain_name = upstream_id == self.id;
        if by_plain_name && !self.owner.is_shared() { name.to_owned() } else { names::user(&self.owner, name) }
    }

    /// True if a turn of it named another user. A conversation is its owner's, whoever speaks in it.
    fn belongs_to_another(&self, user: &str) -> bool {
        let mut doc = self.doc();
        if doc.kept {
            return false;
        }
        let first = doc.latest.is_none();
        match &doc.user_id {
            // Who named no user was given the session's own.
            Some(known) => known != user && *known != self.own_user(),
            None => {
                // Said at once: two first turns may come together.
                if first {
                    doc.user_id = Some(user.to_owned());
                }
                false
            }
        }
    }

    /// The right to take a turn, if nobody has it.
    pub(super) fn try_turn(&self) -> Option<TurnGuard> {
        Arc::clone(&self.turn).try_lock_owned().ok()
    }

    /// Joins the queue of those who wait for a turn.
    pub(super) fn enqueue(self: &Arc<Self>) -> Result<Queued, Fault> {
        let mut queued = self.queued.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *queued >= MAX_QUEUED {
            return Err(busy(&self.id));
        }
        *queued += 1;
        Ok(Queued(Arc::clone(self)))
    }
}

/// A place in the queue of a session.
pub(super) struct Queued(Arc<Session>);

impl Queued {
    /// Waits for the turn, first come, first served.
    pub(super) async fn turn(self) -> TurnGuard {
        Arc::clone(&self.0.turn).lock_owned().await
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut queued = self.0.queued.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *queued = queued.saturating_sub(1);
    }
}

/// The session has a turn under way.
pub(super) fn busy(session: &str) -> Fault {
    Fault::new(FaultKind::Busy, format!("session '{session}' has a run under way"))
}

impl Engine {
    /// A session, made if it is not there. A `new` id is not looked up.
    pub(super) async fn session(&self, agent: &str, owner: &Owner, id: &str, new: bool) -> Result<Arc<Session>, Fault> {
        let key = Key::new(agent, owner, id);
        if let Some(session) = self.session_in_memory(&key) {
            return Ok(session);
        }
        let doc = if new { None } else { self.read_session(&key).await? };
        Ok(self.remember_session(key, owner, doc.unwrap_or_else(|| Doc::new(id, agent, owner, None))))
    }

    /// The session of this id that belongs to this user. Callers that nobody authenticated may name users: the first
    /// one has the id for itself, and every other one a session apart, though they name it the same.
    pub(super) async fn session_of(
        &self,
        agent: &str,
        owner: &Owner,
        id: &str,
        user: Option<&str>,
    ) -> Result<Arc<Session>, Fault> {
        let session = self.session(agent, owner, id, false).await?;
        let Some(user) = user.filter(|user| session.belongs_to_another(user)) else { return Ok(session) };
        let key = session.key.of_user(user);
        if let Some(session) = self.session_in_memory(&key) {
            return Ok(session);
        }
        let doc = self.read_session(&key).await?;
        let session = self.remember_session(key, owner, doc.unwrap_or_else(|| Doc::new(id, agent, owner, Some(user))));
        session.doc().user_id.get_or_insert_with(|| user.to_owned());
        Ok(session)
    }

    /// A session that was used before.
    pub(super) async fn known_session(
        &self,
        agent: &str,
        owner: &Owner,
        id: &str,
    ) -> Result<Option<Arc<Session>>, Fault> {
        let key = Key::new(agent, owner, id);
        if let Some(session) = self.session_in_memory(&key) {
            return Ok(Some(session));
        }
        let doc = self.read_session(&key).await?;
        Ok(doc.map(|doc| self.remember_session(key, owner, doc)))
    }

    fn session_in_memory(&self, key: &Key) -> Option<Arc<Session>> {
        self.lock_sessions().get(key).and_then(std::sync::Weak::upgrade)
    }

    fn remember_session(&self, key: Key, owner: &Owner, doc: Doc) -> Arc<Session> {
        let mut sessions = self.lock_sessions();
        // Somebody else may have been faster.
        if let Some(session) = sessions.get(&key).and_then(std::sync::Weak::upgrade) {
            return session;
        }
        let session = Arc::new(Session {
            key: key.clone(),
            owner: owner.clone(),
            id: doc.id.clone(),
            turn: Arc::default(),
            queued: Mutex::new(0),
            in_memory: AtomicBool::new(false),
            doc: Mutex::new(doc),
        });
        sessions.insert(key, Arc::downgrade(&session));
        if sessions.len() > 64 && sessions.len().is_power_of_two() {
            sessions.retain(|_, session| session.strong_count() > 0);
        }
        session
    }

    async fn read_session(&self, key: &Key) -> Result<Option<Doc>, Fault> {
        let found = self.store().get(COLLECTION, &key.0).await.map_err(|error| store_fault(&error))?;
        found.map(|document| read_doc(&document.value)).transpose()
    }

    /// Writes a session down; resolves when it is safe.
    pub(super) async fn save_session(&self, session: &Session) -> Result<(), Fault> {
        if session.is_in_memory() {
            return Ok(());
        }
        let (entries, places, written) = {
            let mut doc = session.doc();
            doc.updated_at = clock::now();
            let places: Vec<u64> = doc.fresh.keys().copied().collect();
            (self.write_entries(session, &doc), places, serde_json::to_vec(&*doc).unwrap_or_default())
        };
        // All at once, and in this order: who reads the session finds its entries.
        let put = self.store().put(COLLECTION, &session.key.0, written.into(), Expect::Any, clock::now());
        for put in entries.into_iter().chain([put]) {
            put.await.map_err(|error| store_fault(&error))?.map_err(|_| Fault::new(FaultKind::Internal, "conflict"))?;
        }
        let mut doc = session.doc();
        for place in places {
            doc.fresh.remove(&place);
        }
        Ok(())
    }

    /// Forgets a session.
    pub(super) async fn remove_session(&self, session: &Session) -> Result<(), Fault> {
        self.lock_sessions().remove(&session.key);
        self.remove_entries(session).await?;
        let gone = self.store().delete(COLLECTION, &session.key.0, Expect::Any);
        gone.await.map_err(|error| store_fault(&error))?.map_err(|_| Fault::new(FaultKind::Internal, "conflict"))?;
        Ok(())
    }

    /// All sessions of an owner with an agent.
    pub(super) async fn sessions_of(&self, agent: &str, owner: &Owner) -> Result<Vec<Doc>, Fault> {
        const PAGE: usize = 500;
        let prefix = Key::prefix(agent, owner);
        let mut docs = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.store().list(COLLECTION, &prefix, after.as_deref(), PAGE);
            let page = page.await.map_err(|error| store_fault(&error))?;
            for entry in &page {
                docs.push(read_doc(&entry.document.value)?);
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.key.clone()),
                _ => return Ok(docs),
            }
        }
    }

    /// A session as its owner may see it.
    pub(super) async fn session_view(&self, doc: &Doc, items: Vec<SessionItem>) -> Result<SessionView, Fault> {
        let state = match doc.latest {
            Some(id) => self.handle(id).await?.map(|run| run.view(|view| view.info.state)),
            None => None,
        };
        Ok(SessionView {
            id: doc.id.clone(),
            agent: doc.agent.clone(),
            created_at: doc.created_at,
            updated_at: doc.updated_at,
            items,
            pending: doc.waiting.open().map(|open| open.item.clone()).collect(),
            latest: doc.latest,
            state,
            user: doc.named_user().map(str::to_owned),
            labels: doc.labels.clone(),
        })
    }
}

fn read_doc(bytes: &[u8]) -> Result<Doc, Fault> {
    serde_json::from_slice(bytes)
        .map(Doc::adopt)
        .map_err(|error| Fault::new(FaultKind::Internal, "the stored session cannot be read").with_detail(error))
}

/// What was said in one turn, every item with an id of its own.
pub(super) fn turn_items(run: RunId, turn: u32, told: &interlingua_core::Run) -> Vec<SessionItem> {
    let index = turn as usize;
    let Some(asked) = told.turns.get(index) else { return Vec::new() };
    let input = asked.input.iter().enumerate().map(|(place, message)| SessionItem {
        id: format!("msg_{}_in{turn}_{place}", run.0.simple()),
        run: Some(run),
        message: message.clone(),
    });
    let answer = told.messages_of(index).iter().enumerate().filter(|(_, message)| message.kind != MessageType::Error);
    let answer = answer.map(|(place, message)| SessionItem {
        id: run.message_id(asked.first_message + place),
        run: Some(run),
        message: message.to_model(),
    });
    input.chain(answer).collect()
}
