//! Search for the session that a request continues if its client sends the whole conversation with each request
//! ([`interlingua_core::call::Resent`]).
//!
//! Several conversations may share one session name, because clients edit messages, retry from an earlier message, or
//! run subagents. The first conversation is the session of that name. A list in the store holds the ids of the others,
//! which are called branches.
//!
//! Not here: creating sessions ([`crate::turns::session_choice`]) and the messages for the agent
//! ([`crate::turns::context`]).

use std::sync::Arc;

use interlingua_core::answer::{Open, native};
use interlingua_core::call::Resent;
use interlingua_core::model::{Input, Message, MessageType, Role};
use interlingua_core::pending::PendingKind;
use interlingua_core::{Fault, Json, Owner, RunId};

use super::index::PendingIndex;
use super::recent::RecentLists;
use crate::agent::Agent;
use crate::runs::{RunTable, Spoken};
use crate::sessions::Session;

/// The ids of the branches of each session name. Branches beyond this number are found by their open items only.
const BRANCHES: RecentLists<String> = RecentLists {
    collection: "branches",
    max_len: 8,
    is_refreshed: false,
    // A later version may add items of another form.
    parse: |json| json.decode::<Vec<Json>>().unwrap_or_default().iter().filter_map(Json::decode).collect(),
};
/// Further answers of a request are ignored here. A session has at most this many open items.
const MAX_ANSWERS: usize = 256;
/// The number of runs of a session that are compared with the history of the client.
const MAX_COMPARED_RUNS: usize = 32;
/// Reason for a repeated question: several conversations may wait for the answer.
const AMBIGUOUS: &str = "several conversations of this kind wait for an answer, and the request does not say which one it \
                         answers: give each conversation a session of its own";

/// Finds the sessions of clients that resend their conversations.
pub(crate) struct ResentChooser {
    pub(crate) runs: Arc<RunTable>,
    pub(crate) pending_index: Arc<PendingIndex>,
}

/// The search for one request.
struct SessionSearch<'a> {
    chooser: &'a ResentChooser,
    resent: &'a Resent,
    agent: &'a Agent,
    owner: &'a Owner,
}

/// The existing session that a request continues.
pub(crate) struct MatchedSession {
    pub(crate) session: Arc<Session>,
    /// True: its history equals the client's. False: it has an open item that the request answers.
    pub(crate) is_exact: bool,
}

/// A session with an open item that the request may answer.
struct SessionCandidate {
    session: Arc<Session>,
    /// The run that asked.
    run: RunId,
    kind: PendingKind,
}

/// The session with the item that a request answers.
enum AnsweredSession {
    Unique(Arc<Session>, AnswerSource),
    /// One of several sessions with an equal claim.
    Ambiguous(Arc<Session>),
}

/// The part of a request that contains an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerSource {
    /// A message of the input.
    Input,
    /// [`Spoken::answers`].
    Separate,
    /// [`Resent::in_words`]: text that is ordinary input if the item is not open.
    Text,
}

impl ResentChooser {
    /// The session that a request continues. `None`: a new one. `named` is the session that the client names.
    ///
    /// If the request answers an item by text, the text is moved from the input to the answers.
    pub(crate) async fn find(
        &self,
        resent: &Resent,
        named: Option<&Arc<Session>>,
        spoken: &mut Spoken,
        agent: &Agent,
        owner: &Owner,
    ) -> Result<Option<MatchedSession>, Fault> {
        let search = SessionSearch { chooser: self, resent, agent, owner };
        let known = match named {
            Some(named) if !named.is_blank() => search.sessions_of_name(named).await?,
            _ => Vec::new(),
        };

        match search.answered_session(&known, spoken).await? {
            Some(AnsweredSession::Unique(session, source)) => {
                if source == AnswerSource::Text {
                    spoken.request.input = Input::default();
                    spoken.answers.extend(resent.in_words.clone());
                }
                return Ok(Some(MatchedSession { session, is_exact: false }));
            }
            // Discard the answers, so that the session repeats its question.
            Some(AnsweredSession::Ambiguous(session)) => {
                spoken.answers.clear();
                let others = spoken.request.input.iter().filter(|message| native(message).is_empty());
                spoken.request.input = others.cloned().collect::<Vec<Message>>().into();
                spoken.undecided = Some(AMBIGUOUS.to_owned());
                return Ok(Some(MatchedSession { session, is_exact: false }));
            }
            None => {}
        }

        for session in known {
            if let Some(last) = session.last_run()
                && search.history_matches(last).await?
            {
                return Ok(Some(MatchedSession { session, is_exact: true }));
            }
        }

        Ok(None)
    }

    /// Stores that `branch` is the latest conversation under the name of the session `named`.
    pub(crate) async fn remember(&self, named: &Session, branch: &Session) -> Result<(), Fault> {
        if named.key() != branch.key() && !BRANCHES.push(&**self.runs.store(), named.key().as_str(), &branch.id).await?
        {
            // The session can still be found by its open items.
            tracing::debug!(session = &*named.id, "too many conversations begin at once under one name");
        }
        Ok(())
    }
}

impl SessionSearch<'_> {
    /// The branches of a session name, the latest first, and then the session of that name.
    async fn sessions_of_name(&self, named: &Arc<Session>) -> Result<Vec<Arc<Session>>, Fault> {
        let runs = &self.chooser.runs;
        let (branches, _) = BRANCHES.read(&**runs.store(), named.key().as_str()).await?;
        let mut sessions = Vec::with_capacity(branches.len() + 1);
        for id in branches.iter().rev() {
            sessions.extend(runs.sessions().find(&self.agent.name, self.owner, id).await?);
        }
        sessions.push(Arc::clone(named));
        Ok(sessions)
    }

    /// The session with the open item that the request answers. The `known` sessions are preferred to all others.
    async fn answered_session(
        &self,
        known: &[Arc<Session>],
        spoken: &Spoken,
    ) -> Result<Option<AnsweredSession>, Fault> {
        let in_input = spoken.request.input.iter().flat_map(native).map(|answer| (answer.id, AnswerSource::Input));
        let separate = spoken.answers.iter().map(|answer| (answer.id.clone(), AnswerSource::Separate));
        let in_text = self.resent.in_words.iter().map(|answer| (answer.id.clone(), AnswerSource::Text));
        let answers: Vec<(String, AnswerSource)> = in_input.chain(separate).chain(in_text).take(MAX_ANSWERS).collect();
        for (id, source) in answers {
            if let Some(found) = self.answered_among(known, &id, source).await? {
                return Ok(Some(found));
            }

            let sessions = self.chooser.pending_index.sessions_of(&id, self.agent, self.owner).await?;
            let user = spoken.request.user_id.as_deref();
            let sessions: Vec<Arc<Session>> = sessions.into_iter().filter(|session| session.is_of_user(user)).collect();
            if let Some(found) = self.answered_among(&sessions, &id, source).await? {
                return Ok(Some(found));
            }
        }

        Ok(None)
    }

    /// The one of these sessions that an answer with this id belongs to. The history of the client decides between
    /// several, because some agents number their calls from one in each conversation.
    async fn answered_among(
        &self,
        sessions: &[Arc<Session>],
        id: &str,
        source: AnswerSource,
    ) -> Result<Option<AnsweredSession>, Fault> {
        let mut candidates = self.candidates(sessions, id, source).await?;
        if candidates.len() < 2 {
            return Ok(candidates.pop().map(|only| AnsweredSession::Unique(only.session, source)));
        }
        if source == AnswerSource::Input && candidates.iter().all(|candidate| candidate.kind == PendingKind::Tool) {
            // The output of a tool starts a new session here, like an output without a call.
            return Ok(None);
        }

        let mut matching = Vec::new();
        for candidate in candidates {
            if source == AnswerSource::Text || self.history_matches(candidate.run).await? {
                matching.push((self.shared_user_messages(candidate.run).await?, candidate.session));
            }
        }

        let most = matching.iter().map(|(shared, _)| *shared).max().unwrap_or_default();
        let mut best = matching.into_iter().filter(|(shared, _)| *shared == most).map(|(_, session)| session);
        Ok(best.next().map(|first| match best.next() {
            None => AnsweredSession::Unique(first, source),
            Some(_) => AnsweredSession::Ambiguous(first),
        }))
    }

    /// The sessions in which an item of this id is open.
    async fn candidates(
        &self,
        sessions: &[Arc<Session>],
        id: &str,
        source: AnswerSource,
    ) -> Result<Vec<SessionCandidate>, Fault> {
        let mut candidates = Vec::new();
        for session in sessions {
            let Some((kind, run)) = session.find_open(|open| is_answered_by(open, id)) else { continue };
            let is_id_sufficient = match source {
                // Agents may use the same ids for calls in several conversations.
                AnswerSource::Input => kind != PendingKind::Tool,
                AnswerSource::Separate => true,
                // An agent can write any id into its text.
                AnswerSource::Text => false,
            };
            if is_id_sufficient || self.history_matches(run).await? {
                candidates.push(SessionCandidate { session: Arc::clone(session), run, kind });
            }
        }
        Ok(candidates)
    }

    /// The number of user messages in the latest runs of a session if all of them are in the history of the client, in
    /// the same order. 0 otherwise: then the session is another conversation.
    async fn shared_user_messages(&self, run: RunId) -> Result<usize, Fault> {
        let mut resent_texts: Vec<String> = self.resent.history.iter().filter_map(user_text).collect();
        let (mut shared, mut next) = (0, Some(run));
        for _ in 0..MAX_COMPARED_RUNS {
            let Some(id) = next else { break };
            let Some(handle) = self.chooser.runs.find(id).await? else { break };
            let (texts, previous) = handle.view(|view| {
                let turns = view.run().turns.iter().rev();
                let texts: Vec<String> = turns.flat_map(|turn| turn.input.iter().rev().filter_map(user_text)).collect();
                (texts, view.info.previous)
            });
            for text in texts {
                // The history may have further messages in between: texts that answered an item are not in the runs.
                let Some(place) = resent_texts.iter().rposition(|known| *known == text) else { return Ok(0) };
                resent_texts.truncate(place);
                shared += 1;
            }
            next = previous;
        }
        Ok(shared)
    }

    /// True if the history of the client ends with the answer of a run.
    async fn history_matches(&self, run: RunId) -> Result<bool, Fault> {
        let handle = self.chooser.runs.find(run).await?;
        Ok(handle.is_some_and(|handle| handle.view_safe(|view| self.resent.judge.ends_with(view))))
    }
}

/// True if an answer with this id is for an item. Some front ends show an approval as a call and answer that call.
fn is_answered_by(open: &Open, id: &str) -> bool {
    open.item.id == id || (open.item.kind != PendingKind::Tool && open.item.call_id.as_deref() == Some(id))
}

/// Text of a user message. `None` for any other message.
fn user_text(message: &Message) -> Option<String> {
    let is_users = message.kind == MessageType::Message && message.role == Some(Role::User);
    is_users.then(|| message.text())
}
