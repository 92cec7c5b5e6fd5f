//! In which session an open item was asked: some clients answer without naming the session.

use std::sync::Arc;

use interlingua_core::answer::native;
use interlingua_core::owner::escaped;
use interlingua_core::{Fault, Json, Owner};

use super::active_run::ActiveRun;
use super::agent::Agent;
use super::faults::store_fault;
use super::session::Session;
use super::session_table::SessionTable;
use super::stored_json;
use super::turn::Spoken;
use crate::clock;
use crate::store::{Expect, Store};

/// The collection of the store that the index is in.
const COLLECTION: &str = "asked";

/// Finds sessions by the ids of their open items.
pub(super) struct PendingIndex {
    store: Arc<dyn Store>,
    sessions: Arc<SessionTable>,
}

impl PendingIndex {
    pub(super) const fn new(store: Arc<dyn Store>, sessions: Arc<SessionTable>) -> Self {
        Self { store, sessions }
    }

    /// The session in which one of the items was asked that a request answers.
    pub(super) async fn session_of_answers(
        &self,
        spoken: &Spoken,
        agent: &Agent,
        owner: &Owner,
    ) -> Result<Option<Arc<Session>>, Fault> {
        let in_input = spoken.request.input.iter().flat_map(native);
        let ids: Vec<String> = spoken.answers.iter().cloned().chain(in_input).map(|answer| answer.id).collect();
        for id in ids {
            let key = key(&agent.name, owner.key(), &id);
            let found = self.store.get(COLLECTION, &key).await.map_err(|error| store_fault(&error))?;
            let value = found.and_then(|document| stored_json::parse(&document.value));
            if let Some((session, user)) = value.and_then(|json| json.decode::<(String, Option<String>)>())
                && self.sessions.find(&agent.name, owner, &session).await?.is_some()
            {
                return self.sessions.of_user(&agent.name, owner, &session, user.as_deref()).await.map(Some);
            }
        }

        Ok(None)
    }

    /// Adds the open items of a run.
    pub(super) async fn add(&self, session: &Session, run: &ActiveRun) {
        if session.is_in_memory() {
            return;
        }

        let (owner, user, ids) = run.view(|view| {
            let ids: Vec<String> = view.pending.iter().map(|item| item.id.clone()).collect();
            (view.info.owner.clone(), view.info.request.user_id.clone(), ids)
        });

        for id in ids {
            let key = key(&run.agent.name, &owner, &id);
            let value = stored_json::to_bytes(&Json::from_serialize(&(&session.id, &user)));
            let put = self.store.put(COLLECTION, &key, value, Expect::Any, clock::now());
            if let Err(error) = put.await {
                tracing::error!(%error, "an open item could not be written");
            }
        }
    }
}

/// `owner` is an owner's key: it holds none of the characters between the parts.
fn key(agent: &str, owner: &str, id: &str) -> String {
    format!("{}\u{1f}{owner}\u{1f}{}", escaped(agent), escaped(id))
}
