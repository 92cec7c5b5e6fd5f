//! Which session a client means that sends all of its conversation with each request
//! ([`interlingua_core::call::Resent`]).
//!
//! Several conversations may go by one name: clients edit what was said, ask again from an earlier point, and let
//! others than the main thread speak beside it. The session of that name is the first one; a list in the store names
//! the others.
//!
//! Not here: creating sessions ([`crate::turns::session_choice`]), and what the agent is sent ([`crate::turns::context`]).

use std::sync::Arc;

use interlingua_core::answer::{Open, native};
use interlingua_core::call::{HistoryJudge, Resent};
use interlingua_core::model::{Input, Message, MessageType, Role};
use interlingua_core::pending::PendingKind;
use interlingua_core::{Fault, Json, Owner, RunId};

use super::index::PendingIndex;
use crate::agent::Agent;
use crate::faults::store_fault;
use crate::runs::{RunTable, Spoken};
use crate::sessions::Session;
use crate::stored_json;
use interlingua_base::clock;
use interlingua_store::{Expect, Version};

/// The collection of the store that the lists are in.
const COLLECTION: &str = "branches";
/// How many sessions a name has besides the one that is called so. More of them are found by their open items only.
const MAX_BRANCHES: usize = 8;
/// How often a list is written again that another request has changed meanwhile.
const MAX_WRITES: usize = 4;
/// How many answers of a request are looked for: as many as a session has open items at most.
const MAX_ANSWERS: usize = 256;
/// How many runs of a session are compared with what the client says was said.
const MAX_COMPARED_RUNS: usize = 32;
/// Reason for a repeated question: several conversations may wait for the answer.
const AMBIGUOUS: &str = "several conversations of this kind wait for an answer, and the request does not say which one it \
                         answers: give each conversation a session of its own";

/// Finds the sessions of clients that resend their conversations.
pub(crate) struct ResentChooser {
    pub(crate) runs: Arc<RunTable>,
    pub(crate) pending_index: Arc<PendingIndex>,
}

/// The session that goes on.
pub(crate) struct GoesOn {
    pub(crate) session: Arc<Session>,
    /// True if its history is the client's. False: it asked what the request answers.
    pub(crate) is_exact: bool,
}

/// A session in which a question is open, and the run that asked it.
struct Asking {
    session: Arc<Session>,
    run: RunId,
    kind: PendingKind,
}

/// The session that a request answers.
enum Asked {
    /// This one.
    Of(Arc<Session>, Given),
    /// Several may be meant, of which this is one.
    OfSeveral(Arc<Session>),
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
    /// The session that a request continues. An answer in words that counts replaces its input. `named`: the session
    /// that the client names.
    pub(crate) async fn find(
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

        match self.asked(&known, resent, spoken, agent, owner).await? {
            Some(Asked::Of(session, given)) => {
                if given == Given::InWords {
                    spoken.request.input = Input::default();
                    spoken.answers.extend(resent.in_words.clone());
                }
                return Ok(Some(GoesOn { session, is_exact: false }));
            }
            // Nothing is decided, so the session repeats its question.
            Some(Asked::OfSeveral(session)) => {
                spoken.answers.clear();
                let said = spoken.request.input.iter().filter(|message| native(message).is_empty());
                spoken.request.input = said.cloned().collect::<Vec<Message>>().into();
                spoken.undecided = Some(AMBIGUOUS.to_owned());
                return Ok(Some(GoesOn { session, is_exact: false }));
            }
            None => {}
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
    pub(crate) async fn remember(&self, named: &Session, branch: &Session) -> Result<(), Fault> {
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
            if put.await.map_err(store_fault)?.is_ok() {
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
        let Some(document) = found.map_err(store_fault)? else { return Ok((Vec::new(), None)) };
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

    /// The session with the open item that the request answers, among the known ones or any other.
    async fn asked(
        &self,
        known: &[Arc<Session>],
        resent: &Resent,
        spoken: &Spoken,
        agent: &Agent,
        owner: &Owner,
    ) -> Result<Option<Asked>, Fault> {
        let in_input = spoken.request.input.iter().flat_map(native).map(|answer| (answer.id, Given::InInput));
        let beside = spoken.answers.iter().map(|answer| (answer.id.clone(), Given::Beside));
        let in_words = resent.in_words.iter().map(|answer| (answer.id.clone(), Given::InWords));
        let answers: Vec<(String, Given)> = in_input.chain(beside).chain(in_words).take(MAX_ANSWERS).collect();
        for (id, given) in answers {
            let asking = self.asking(known, &id, given, &*resent.judge).await?;
            if let Some(found) = self.only_one(asking, given, resent).await? {
                return Ok(Some(found));
            }

            let sessions = self.pending_index.sessions_of(&id, agent, owner).await?;
            let user = spoken.request.user_id.as_deref();
            let sessions: Vec<Arc<Session>> =
                sessions.into_iter().filter(|session| is_of_user(session, user)).collect();
            let asking = self.asking(&sessions, &id, given, &*resent.judge).await?;
            if let Some(found) = self.only_one(asking, given, resent).await? {
                return Ok(Some(found));
            }
        }

        Ok(None)
    }

    /// The sessions in which an item is open that may be the one that the client answers, with the runs that asked.
    async fn asking(
        &self,
        sessions: &[Arc<Session>],
        id: &str,
        given: Given,
        judge: &dyn HistoryJudge,
    ) -> Result<Vec<Asking>, Fault> {
        let mut asking = Vec::new();
        for session in sessions {
            let is_it = |open: &&Open| is_answered_by(open, id);
            let found = session.doc().waiting.open().find(is_it).map(|open| (open.item.kind, open.run));
            let Some((kind, run)) = found else { continue };
            let is_known_by_id = match given {
                // Agents may give the same ids to calls of several conversations.
                Given::InInput => kind != PendingKind::Tool,
                Given::Beside => true,
                // An agent can write any id into its text.
                Given::InWords => false,
            };
            if is_known_by_id || self.fits(run, judge).await? {
                asking.push(Asking { session: Arc::clone(session), run, kind });
            }
        }
        Ok(asking)
    }

    /// The session that the client's history belongs to, of those that ask by one id: some agents number their calls
    /// from one in each conversation.
    async fn only_one(&self, mut asking: Vec<Asking>, given: Given, resent: &Resent) -> Result<Option<Asked>, Fault> {
        let found = |asking: &Asking| Asked::Of(Arc::clone(&asking.session), given);
        if asking.len() < 2 {
            return Ok(asking.first().map(found));
        }
        if given == Given::InInput && asking.iter().all(|asking| asking.kind == PendingKind::Tool) {
            // The output of a tool begins a conversation of its own, as one without a call does.
            return Ok(None);
        }

        let mut fitting = Vec::new();
        for one in asking.drain(..) {
            if given == Given::InWords || self.fits(one.run, &*resent.judge).await? {
                fitting.push((self.shared_turns(one.run, resent).await?, one));
            }
        }
        // An answer that fits none of the histories is as ambiguous as one that fits several.
        if fitting.is_empty() {
            return Ok(None);
        }
        let most = fitting.iter().map(|(shared, _)| *shared).max().unwrap_or_default();
        let mut best = fitting.into_iter().filter(|(shared, _)| *shared == most).map(|(_, one)| one);
        let Some(first) = best.next() else { return Ok(None) };
        Ok(Some(match best.next() {
            None => found(&first),
            Some(_) => Asked::OfSeveral(first.session),
        }))
    }

    /// How many messages of the user are in the runs of a session and, in the same order, in the client's history. 0 if
    /// the session has others: it is another conversation.
    async fn shared_turns(&self, run: RunId, resent: &Resent) -> Result<usize, Fault> {
        let mut said: Vec<String> = resent.history.iter().filter_map(words_of_user).collect();
        let (mut shared, mut next) = (0, Some(run));
        for _ in 0..MAX_COMPARED_RUNS {
            let Some(id) = next else { break };
            let Some(handle) = self.runs.find(id).await? else { break };
            let (words, previous) = handle.view(|view| {
                let turns = view.run().turns.iter().rev();
                let words: Vec<String> =
                    turns.flat_map(|turn| turn.input.iter().rev().filter_map(words_of_user)).collect();
                (words, view.info.previous)
            });
            for words in words {
                // The client's history also has the words that were answers.
                let Some(place) = said.iter().rposition(|known| *known == words) else { return Ok(0) };
                said.truncate(place);
                shared += 1;
            }
            next = previous;
        }
        Ok(shared)
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

/// Text of a user message. `None` for any other message.
fn words_of_user(message: &Message) -> Option<String> {
    let is_users = message.kind == MessageType::Message && message.role == Some(Role::User);
    is_users.then(|| message.text())
}

/// True unless the session is another user's than the one that the client names.
fn is_of_user(session: &Session, user: Option<&str>) -> bool {
    let doc = session.doc();
    match (doc.named_user(), user) {
        (Some(known), Some(user)) => known == user,
        _ => true,
    }
}
