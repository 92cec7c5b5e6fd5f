//! Which session a client means that sends all of its conversation with each request
//! ([`interlingua_core::call::Resent`]).
//!
//! Several conversations may go by one name: clients edit what was said, ask again from an earlier point, and let others
//! than the main thread speak beside it. The session of that name is the first one; a list in the store names the others.
//!
//! Not here: creating sessions ([`super::session_choice`]), and what the agent is sent ([`super::context`]).

use std::sync::Arc;

use interlingua_core::answer::{Open, native};
use interlingua_core::call::{HistoryJudge, Resent};
use interlingua_core::model::Input;
use interlingua_core::pending::PendingKind;
use interlingua_core::{Fault, Json, Owner, RunId};

use super::agent::Agent;
use super::faults::store_fault;
use super::pending_index::PendingIndex;
use super::run_table::RunTable;
use super::session::Session;
use super::stored_json;
use super::turn::Spoken;
use crate::clock;
use crate::store::{Expect, Version};

/// The collection of the store that the lists are in.
const COLLECTION: &str = "branches";
/// How many sessions a name has besides the one that is called so. More of them are found by their open items only.
const MAX_BRANCHES: usize = 8;
/// How often a list is written again that another request has changed meanwhile.
const MAX_WRITES: usize = 4;
/// How many answers of a request are looked for: as many as a session has open items at most.
const MAX_ANSWERS: usize = 256;

/// Finds the sessions of clients that resend their conversations.
pub(super) struct ResentChooser {
    pub(super) runs: Arc<RunTable>,
    pub(super) pending_index: Arc<PendingIndex>,
}

/// The session that goes on.
pub(super) struct GoesOn {
    pub(super) session: Arc<Session>,
    /// True if its history is the client's. False: it asked what the request answers.
    pub(super) is_exact: bool,
}

/// How a request gives an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    /// As a message of its input.
    InInput,
    /// Beside its input.
    Beside,
    /// In words, which are its input otherwise.
    InWords,
}

impl ResentChooser {
    /// The session that a request continues. An answer in words that counts replaces its input. `named`: the session that
    /// the client names.
    pub(super) async fn find(
        &self,
        resent: &Resent,
        named: Option<&Arc<Session>>,
        spoken: &mut Spoken,
        agent: &Agent,
        owner: &Owner,
    ) -> Result<Option<GoesOn>, Fault> {
        let known = match named {
            Some(named) if !named.is_blank() => self.of_name(named, agent, owner).await?,
            _ => Vec::new(),
        };

        if let Some((session, given)) = self.asked(&known, resent, spoken, agent, owner).await? {
            if given == Given::InWords {
                spoken.request.input = Input::default();
                spoken.answers.extend(resent.in_words.clone());
            }
            return Ok(Some(GoesOn { session, is_exact: false }));
        }

        for session in known {
            let last = session.doc().last;
            if let Some(last) = last
                && self.fits(last, &*resent.judge).await?
            {
                return Ok(Some(GoesOn { session, is_exact: true }));
            }
        }

        Ok(None)
    }

    /// Notes that a conversation under the name of a session is the one used last.
    pub(super) async fn remember(&self, named: &Session, branch: &Session) -> Result<(), Fault> {
        if named.key() == branch.key() {
            return Ok(());
        }

        let (key, branch) = (named.key().as_str(), &branch.id);
        for _ in 0..MAX_WRITES {
            let (mut branches, version) = self.branches(named).await?;
            if branches.last() == Some(branch) {
                return Ok(());
            }

            branches.retain(|known| known != branch);
            branches.push(branch.clone());
            let surplus = branches.len().saturating_sub(MAX_BRANCHES);
            branches.drain(..surplus);

            let value = stored_json::to_bytes(&Json::from_serialize(&branches));
            let expect = version.map_or(Expect::Absent, Expect::Version);
            let put = self.runs.store().put(COLLECTION, key, value, expect, clock::now());
            if put.await.map_err(|error| store_fault(&error))?.is_ok() {
                return Ok(());
            }
        }

        // The session goes on to be found by what it asks.
        tracing::debug!(session = &*named.id, "too many conversations begin at once under one name");
        Ok(())
    }

    /// The ids of the sessions that began under the name of another one, the one used last at the end.
    async fn branches(&self, named: &Session) -> Result<(Vec<String>, Option<Version>), Fault> {
        let found = self.runs.store().get(COLLECTION, named.key().as_str()).await;
        let Some(document) = found.map_err(|error| store_fault(&error))? else { return Ok((Vec::new(), None)) };
        let ids = stored_json::parse(&document.value).and_then(|json| json.decode()).unwrap_or_default();
        Ok((ids, Some(document.version)))
    }

    /// The sessions of a name: those that were used last come first, the one of that name at the end.
    async fn of_name(&self, named: &Arc<Session>, agent: &Agent, owner: &Owner) -> Result<Vec<Arc<Session>>, Fault> {
        let (branches, _) = self.branches(named).await?;
        let mut sessions = Vec::with_capacity(branches.len() + 1);
        for id in branches.iter().rev() {
            sessions.extend(self.runs.sessions().find(&agent.name, owner, id).await?);
        }
        sessions.push(Arc::clone(named));
        Ok(sessions)
    }

    /// The session in which something was asked that the request answers, among the known ones or any other; and how it
    /// answers.
    async fn asked(
        &self,
        known: &[Arc<Session>],
        resent: &Resent,
        spoken: &Spoken,
        agent: &Agent,
        owner: &Owner,
    ) -> Result<Option<(Arc<Session>, Given)>, Fault> {
        let in_input = spoken.request.input.iter().flat_map(native).map(|answer| (answer.id, Given::InInput));
        let beside = spoken.answers.iter().map(|answer| (answer.id.clone(), Given::Beside));
        let in_words = resent.in_words.iter().map(|answer| (answer.id.clone(), Given::InWords));
        let answers: Vec<(String, Given)> = in_input.chain(beside).chain(in_words).take(MAX_ANSWERS).collect();
        for (id, given) in answers {
            for session in known {
                if self.asks(session, &id, given, &*resent.judge).await? {
                    return Ok(Some((Arc::clone(session), given)));
                }
            }

            let mut asking = Vec::new();
            for session in self.pending_index.sessions_of(&id, agent, owner).await? {
                let is_of_user = is_of_user(&session, spoken.request.user_id.as_deref());
                if is_of_user && self.asks(&session, &id, given, &*resent.judge).await? {
                    asking.push(session);
                }
            }
            // What could be an answer to several of them is none.
            if let [session] = asking.as_slice() {
                return Ok(Some((Arc::clone(session), given)));
            }
        }

        Ok(None)
    }

    /// True if an item is open in a session, and is the one that the client answers.
    async fn asks(&self, session: &Session, id: &str, given: Given, judge: &dyn HistoryJudge) -> Result<bool, Fault> {
        let is_it = |open: &&Open| is_answered_by(open, id);
        let found = session.doc().waiting.open().find(is_it).map(|open| (open.item.kind, open.run));
        let Some((kind, run)) = found else { return Ok(false) };
        let is_known_by_id = match given {
            // Agents may give the same ids to calls of several conversations.
            Given::InInput => kind != PendingKind::Tool,
            Given::Beside => true,
            // An agent can write any id into its text.
            Given::InWords => false,
        };
        if is_known_by_id { Ok(true) } else { self.fits(run, judge).await }
    }

    /// True if the client's history ends with what a run answered.
    async fn fits(&self, run: RunId, judge: &dyn HistoryJudge) -> Result<bool, Fault> {
        let handle = self.runs.find(run).await?;
        Ok(handle.is_some_and(|handle| handle.view_safe(|view| judge.ends_with(view))))
    }
}

/// True if an answer with this id is for an item. Some front ends show approvals as calls, and answer those.
fn is_answered_by(open: &Open, id: &str) -> bool {
    open.item.id == id || (open.item.kind != PendingKind::Tool && open.item.call_id.as_deref() == Some(id))
}

/// True unless the session is another user's than the one that the client names.
fn is_of_user(session: &Session, user: Option<&str>) -> bool {
    let doc = session.doc();
    match (doc.named_user(), user) {
        (Some(known), Some(user)) => known == user,
        _ => true,
    }
}
