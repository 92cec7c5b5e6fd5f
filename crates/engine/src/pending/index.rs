//! In which session an open item was asked: some clients answer without naming the session.

use std::sync::Arc;

use interlingua_core::answer::native;
use interlingua_core::owner::escaped;
use interlingua_core::pending::Pending;
use interlingua_core::{Fault, Json, Owner};

use crate::agent::Agent;
use crate::faults::store_fault;
use crate::runs::{ActiveRun, Spoken};
use crate::sessions::{Lifetime, Session, SessionTable};
use crate::stored_json;
use interlingua_base::clock;
use interlingua_store::{Expect, Store, StoreError, Version};

/// The collection of the store that the index is in.
const COLLECTION: &str = "asked";
/// How many sessions of an owner may ask by the same id: some agents number their calls from one in each conversation.
const MAX_SESSIONS: usize = 8;
/// How often an entry is written again that another run has changed meanwhile.
const MAX_WRITES: usize = 3;

/// A session's id, and its user if a client named one.
type Asking = (String, Option<String>);

/// Finds sessions by the ids of their open items.
pub(crate) struct PendingIndex {
    store: Arc<dyn Store>,
    sessions: Arc<SessionTable>,
}

impl PendingIndex {
    pub(crate) const fn new(store: Arc<dyn Store>, sessions: Arc<SessionTable>) -> Self {
        Self { store, sessions }
    }

    /// The sessions in which an item of this id was asked, open or not: the one that asked last comes first.
    pub(super) async fn sessions_of(&self, id: &str, agent: &Agent, owner: &Owner) -> Result<Vec<Arc<Session>>, Fault> {
        let (asking, _) = self.asking(&key(&agent.name, owner.key(), id)).await.map_err(store_fault)?;
        let mut sessions = Vec::with_capacity(asking.len());
        for (session, user) in asking.iter().rev() {
            if self.sessions.find(&agent.name, owner, session).await?.is_some() {
                sessions.push(self.sessions.of_user(&agent.name, owner, session, user.as_deref()).await?);
            }
        }
        Ok(sessions)
    }

    /// An entry of the index, the session that asked last at the end.
    async fn asking(&self, key: &str) -> Result<(Vec<Asking>, Option<Version>), StoreError> {
        let Some(document) = self.store.get(COLLECTION, key).await? else { return Ok((Vec::new(), None)) };
        let value = stored_json::parse(&document.value).unwrap_or_else(Json::null);
        Ok((parse_entry(&value), Some(document.version)))
    }

    /// The session in which one of the items was asked that a request answers.
    pub(crate) async fn session_of_answers(
        &self,
        spoken: &Spoken,
        agent: &Agent,
        owner: &Owner,
    ) -> Result<Option<Arc<Session>>, Fault> {
        let in_input = spoken.request.input.iter().flat_map(native);
        let ids: Vec<String> = spoken.answers.iter().cloned().chain(in_input).map(|answer| answer.id).collect();
        for id in ids {
            let sessions = self.sessions_of(&id, agent, owner).await?;
            let is_open = |session: &&Arc<Session>| session.doc().waiting.open().any(|open| open.item.id == id);
            if let Some(session) = sessions.iter().find(is_open).or(sessions.first()) {
                return Ok(Some(Arc::clone(session)));
            }
        }

        Ok(None)
    }

    /// Adds the open items of a run.
    pub(crate) async fn add(&self, session: &Session, run: &ActiveRun, open: &[Pending]) -> Result<(), Fault> {
        if session.resolve_lifetime() == Lifetime::Connection {
            return Ok(());
        }

        let (owner, user) = run.view(|view| (view.info.owner.clone(), view.info.request.user_id.clone()));
        for item in open {
            let key = key(&run.agent.name, &owner, &item.id);
            self.put(&key, (session.id.clone(), user.clone())).await.map_err(store_fault)?;
        }
        Ok(())
    }

    /// Adds a session to an entry.
    async fn put(&self, key: &str, asking: Asking) -> Result<(), StoreError> {
        for _ in 0..MAX_WRITES {
            let (mut all, version) = self.asking(key).await?;
            all.retain(|known| *known != asking);
            all.push(asking.clone());
            let surplus = all.len().saturating_sub(MAX_SESSIONS);
            all.drain(..surplus);

            let value = stored_json::to_bytes(&Json::from_serialize(&all));
            let expect = version.map_or(Expect::Absent, Expect::Version);
            if self.store.put(COLLECTION, key, value, expect, clock::now()).await?.is_ok() {
                return Ok(());
            }
        }
        // Others ask by the same id all the time: the client of this session begins another one.
        Ok(())
    }
}

/// The sessions of an entry. One of an earlier version has one session. A later version may add items to each.
pub(crate) fn parse_entry(value: &Json) -> Vec<Asking> {
    let asking = |fields: &[Json]| Some((fields.first()?.decode()?, fields.get(1).and_then(Json::decode)));
    let Some(fields) = value.decode::<Vec<Json>>() else { return Vec::new() };
    match asking(&fields) {
        Some(one) => vec![one],
        None => fields.iter().filter_map(|fields| asking(&fields.decode::<Vec<Json>>()?)).collect(),
    }
}

/// `owner` is an owner's key: it holds none of the characters between the parts.
fn key(agent: &str, owner: &str, id: &str) -> String {
    format!("{}\u{1f}{owner}\u{1f}{}", escaped(agent), escaped(id))
}
