//! Index from the ids of pending items to their sessions, for clients that answer without naming the session.

use std::sync::Arc;

use interlingua_core::answer::native;
use interlingua_core::owner::escaped;
use interlingua_core::pending::Pending;
use interlingua_core::{Fault, Json, Owner};

use super::recent::RecentLists;
use crate::agent::Agent;
use crate::runs::{ActiveRun, Spoken};
use crate::sessions::{Lifetime, Session, SessionTable};
use interlingua_store::Store;

/// One entry per id, with the latest sessions: some agents number their calls from one in each conversation.
const ENTRIES: RecentLists<SessionName> =
    RecentLists { collection: "asked", max_len: 8, is_refreshed: true, parse: parse_entry };

/// The id of a session, and its user if a client named one.
type SessionName = (String, Option<String>);

/// Finds sessions by the ids of their pending items.
pub(crate) struct PendingIndex {
    store: Arc<dyn Store>,
    sessions: Arc<SessionTable>,
}

impl PendingIndex {
    pub(crate) const fn new(store: Arc<dyn Store>, sessions: Arc<SessionTable>) -> Self {
        Self { store, sessions }
    }

    /// The sessions that had a pending item of this id, still open or not. The latest one is first.
    pub(super) async fn sessions_of(&self, id: &str, agent: &Agent, owner: &Owner) -> Result<Vec<Arc<Session>>, Fault> {
        let (names, _) = ENTRIES.read(&*self.store, &key(&agent.name, owner.key(), id)).await?;
        let mut sessions = Vec::with_capacity(names.len());
        for (session, user) in names.iter().rev() {
            if self.sessions.find(&agent.name, owner, session).await?.is_some() {
                sessions.push(self.sessions.of_user(&agent.name, owner, session, user.as_deref()).await?);
            }
        }
        Ok(sessions)
    }

    /// The session of the first item that a request answers, preferably one in which the item is open.
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
            let is_open = |session: &&Arc<Session>| session.find_open(|open| open.item.id == id).is_some();
            if let Some(session) = sessions.iter().find(is_open).or(sessions.first()) {
                return Ok(Some(Arc::clone(session)));
            }
        }

        Ok(None)
    }

    /// Adds the open items of a run. Sessions that end with their connection are not added.
    pub(crate) async fn add(&self, session: &Session, run: &ActiveRun, open: &[Pending]) -> Result<(), Fault> {
        if session.resolve_lifetime() == Lifetime::Connection {
            return Ok(());
        }

        let (owner, user) = run.view(|view| (view.info.owner.clone(), view.info.request.user_id.clone()));
        let name = (session.id.clone(), user);
        for item in open {
            // If many other sessions add the same id at this moment, this one is left out: a client that answers
            // without naming the session then starts a new session.
            ENTRIES.push(&*self.store, &key(&run.agent.name, &owner, &item.id), &name).await?;
        }
        Ok(())
    }
}

/// Parses an entry. An entry of an earlier version is a single session. A later version may add fields to each session.
pub(crate) fn parse_entry(value: &Json) -> Vec<SessionName> {
    let name = |fields: &[Json]| Some((fields.first()?.decode()?, fields.get(1).and_then(Json::decode)));
    let Some(fields) = value.decode::<Vec<Json>>() else { return Vec::new() };
    match name(&fields) {
        Some(one) => vec![one],
        None => fields.iter().filter_map(|fields| name(&fields.decode::<Vec<Json>>()?)).collect(),
    }
}

/// The key of an entry. The key of an owner never contains the separator, so only the other parts are escaped.
fn key(agent: &str, owner: &str, id: &str) -> String {
    format!("{}\u{1f}{owner}\u{1f}{}", escaped(agent), escaped(id))
}
