//! Sessions and documents as resources: what their owner may do with them besides asking agents.

use interlingua_core::call::{DocumentCall, Filter, RunState, SessionCall, Target};
use interlingua_core::owner::escaped;
use interlingua_core::tree::Node;
use interlingua_core::{Fault, FaultKind, Json, Owner, RunCall};
use std::sync::Arc;

use super::deliver::Named;
use super::session::Session;
use super::{ActiveRun, Agent, Answer, Engine, Scope, clock, store_fault};
use crate::store::Expect;

/// The most documents one list answers.
const MAX_DOCUMENTS: usize = 1000;

impl Engine {
    pub(super) async fn session_call(&self, call: SessionCall, scope: &Scope) -> Result<Answer, Fault> {
        match call {
            SessionCall::Create { agent, session, items, labels } => {
                if !scope.agents.iter().any(|card| card.name == agent) {
                    return Err(Fault::new(FaultKind::NoSuchAgent, format!("no agent is called '{agent}'")));
                }
                let made = self.session(&agent, &scope.owner, &session, false).await?;
                {
                    let mut doc = made.doc();
                    doc.append(&items)?;
                    doc.kept = true;
                    for (name, value) in labels.iter() {
                        doc.labels.set(name, value.clone());
                    }
                }
                self.save_session(&made).await?;
                self.show(&made, true, 0).await
            }
            SessionCall::Get { session } => {
                let found = self.owned_session(&session, scope).await?;
                self.show(&found, false, usize::MAX).await
            }
            SessionCall::GetPart { session, newest, least } => {
                let found = self.owned_session(&session, scope).await?;
                self.show(&found, newest, least).await
            }
            SessionCall::List => {
                let mut views = Vec::new();
                for card in scope.agents.iter() {
                    for doc in self.sessions_of(&card.name, &scope.owner).await? {
                        views.push(self.session_view(&doc, Vec::new()).await?);
                    }
                }
                Ok(Answer::Sessions(views))
            }
            SessionCall::Append { session, items } => {
                let found = self.owned_session(&session, scope).await?;
                found.doc().append(&items)?;
                self.save_session(&found).await?;
                self.show(&found, true, items.len()).await
            }
            SessionCall::Remove { session, item } => {
                let found = self.owned_session(&session, scope).await?;
                if !self.take_out(&found, &item).await? {
                    return Err(Fault::not_found(format_args!("item '{item}'")));
                }
                self.save_session(&found).await?;
                self.show(&found, true, 0).await
            }
            SessionCall::Label { session, labels } => {
                let found = self.owned_session(&session, scope).await?;
                for (name, value) in labels.iter() {
                    found.doc().labels.set(name, value.clone());
                }
                self.save_session(&found).await?;
                self.show(&found, true, 0).await
            }
            SessionCall::Delete { session } => {
                let found = self.owned_session(&session, scope).await?;
                self.stop_session(&found, scope).await?;
                self.remove_session(&found).await?;
                Ok(Answer::Done)
            }
        }
    }

    /// Stops what works in a session, and what waits in it: it asks nothing any more.
    async fn stop_session(&self, session: &Arc<Session>, scope: &Scope) -> Result<(), Fault> {
        let states = vec![RunState::Queued, RunState::Running, RunState::Waiting, RunState::WaitingForAuth];
        let filter = Filter { session: Some(session.id.clone()), states, limit: 100, heads: true, ..Filter::default() };
        let Answer::Runs { runs, .. } = self.list(filter, scope).await? else { return Ok(()) };
        let (mut queued, mut others) = (Vec::new(), Vec::new());
        for run in &runs {
            let (view, user) = (run.view(), run.view().info.request.user_id.clone());
            // Another user's session may have the same name.
            let of = self.session_of(&view.run().agent, &scope.owner, &session.id, user.as_deref()).await?;
            if Arc::ptr_eq(&of, session) {
                let order = if view.info.state == RunState::Queued { &mut queued } else { &mut others };
                order.push(view.run().id);
            }
        }
        // Those that wait for their turn first: none is to have it when the one under way ends.
        for id in queued.into_iter().chain(others) {
            self.cancel(&Target::Run(id), scope).await?;
        }
        Ok(())
    }

    async fn owned_session(&self, id: &str, scope: &Scope) -> Result<Arc<Session>, Fault> {
        for card in scope.agents.iter() {
            if let Some(session) = self.known_session(&card.name, &scope.owner, id).await? {
                return Ok(session);
            }
        }
        Err(Fault::not_found(format_args!("session '{id}'")))
    }

    /// Shows a session, and of what was said in it so many items from one end.
    async fn show(&self, session: &Session, newest: bool, least: usize) -> Result<Answer, Fault> {
        let items = self.items(session, newest, least).await?;
        let doc = session.doc().clone();
        Ok(Answer::Sessions(vec![self.session_view(&doc, items).await?]))
    }

    pub(super) async fn document_call(&self, call: DocumentCall, scope: &Scope) -> Result<Answer, Fault> {
        let owned = |key: &str| owned(scope, key);
        let store = self.store();
        match call {
            DocumentCall::Get { collection, key } => {
                let found = store.get(&collection, &owned(&key)).await.map_err(|error| store_fault(&error))?;
                let found = found.and_then(|document| read(&document.value));
                Ok(Answer::Documents(found.map(|value| (key, value)).into_iter().collect()))
            }
            DocumentCall::List { collection, prefix } => {
                let start = owned("").len();
                let found = store.list(&collection, &owned(&prefix), None, MAX_DOCUMENTS).await;
                let mut found = found.map_err(|error| store_fault(&error))?;
                found.sort_by_key(|entry| entry.document.created);
                let documents = found
                    .iter()
                    .filter_map(|entry| Some((entry.key.get(start..)?.to_owned(), read(&entry.document.value)?)));
                Ok(Answer::Documents(documents.collect()))
            }
            DocumentCall::Put { collection, key, value } => {
                self.check_receiver(&collection, &value, scope).await?;
                let named = value.clone();
                let value = value.text().as_bytes().to_vec();
                let put = store.put(&collection, &owned(&key), value.into(), Expect::Any, clock::now());
                if let Ok(version) = put.await.map_err(|error| store_fault(&error))? {
                    self.receiver_added(&collection, Named { key: &key, value: &named, version }, scope).await;
                }
                Ok(Answer::Done)
            }
            DocumentCall::Delete { collection, key } => {
                let gone = store.delete(&collection, &owned(&key), Expect::Any);
                let _ = gone.await.map_err(|error| store_fault(&error))?;
                self.receiver_removed(&collection, &key, scope);
                Ok(Answer::Done)
            }
        }
    }

    /// The session in which one of the items was asked that this call answers.
    pub(super) async fn session_of_answers(
        &self,
        call: &RunCall,
        agent: &Agent,
        owner: &Owner,
    ) -> Result<Option<Arc<Session>>, Fault> {
        let told = call.request.input.iter().flat_map(interlingua_core::answer::native);
        let ids: Vec<String> = call.answers.iter().cloned().chain(told).map(|answer| answer.id).collect();
        for id in ids {
            let key = asked_key(&agent.name, owner.key(), &id);
            let found = self.store().get(ASKED, &key).await.map_err(|error| store_fault(&error))?;
            let place = found.and_then(|document| read(&document.value));
            if let Some((session, user)) = place.and_then(|json| json.decode::<(String, Option<String>)>())
                && self.known_session(&agent.name, owner, &session).await?.is_some()
            {
                return self.session_of(&agent.name, owner, &session, user.as_deref()).await.map(Some);
            }
        }
        Ok(None)
    }

    /// Remembers in which session the open items of a run were asked: some clients answer without saying where.
    pub(super) async fn index_pending(&self, agent: &str, session: &Session, live: &ActiveRun) {
        if session.is_in_memory() {
            return;
        }
        let (owner, user, ids) = live.view(|view| {
            let ids: Vec<String> = view.pending.iter().map(|item| item.id.clone()).collect();
            (view.info.owner.clone(), view.info.request.user_id.clone(), ids)
        });
        for id in ids {
            let key = asked_key(agent, &owner, &id);
            let value = Json::from_serialize(&(&session.id, &user)).text().as_bytes().to_vec();
            let put = self.store().put(ASKED, &key, value.into(), Expect::Any, clock::now());
            if let Err(error) = put.await {
                tracing::error!(%error, "an open item could not be written down");
            }
        }
    }
}

/// The collection of the store that says where open items were asked.
pub(super) const ASKED: &str = "asked";

/// `owner` is one's key: it holds none of the characters that stand between the parts.
fn asked_key(agent: &str, owner: &str, id: &str) -> String {
    format!("{}\u{1f}{owner}\u{1f}{}", escaped(agent), escaped(id))
}

/// The key a document of a caller has in the store: what is another caller's is never looked at.
pub(super) fn owned(scope: &Scope, key: &str) -> String {
    crate::store::owned_key(scope.owner.key(), key)
}

/// What a stored document holds.
pub(super) fn read(bytes: &[u8]) -> Option<Json> {
    let text = std::str::from_utf8(bytes).ok()?;
    Node::parse(text.as_bytes()).ok().map(|node| node.to_json())
}
