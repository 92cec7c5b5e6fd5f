//! The request of a turn: its input, the history if the agent needs it, and answers to open items
//! (docs/protocols/responses.md#sessions-and-history, docs/human-in-the-loop.md#rules).
//!
//! Not here: reading the history ([`super::transcripts`]), and sending the request ([`super::turn_driver`]).

use std::ops::Range;
use std::sync::Arc;

use interlingua_core::answer;
use interlingua_core::capability::HistoryNeed;
use interlingua_core::event::Millis;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{AgentRequest, Input, Message, Role};
use interlingua_core::{Fault, Json, RunId};

use super::transcripts::{Past, Said, Transcripts};
use crate::agent::{Agent, History};
use crate::faults;
use crate::runs::{Prepared, Spoken};
use crate::sessions::{Admission, Basis, Entry, EntryList, MessageOrigin, Session, SessionSnapshot, SessionTable};
use interlingua_base::clock;

/// Prepares requests.
pub(crate) struct ContextBuilder {
    sessions: Arc<SessionTable>,
    transcripts: Arc<Transcripts>,
}

/// The result of preparing a turn.
pub(super) enum Outcome {
    /// A request to send.
    Ready(Box<Prepared>),
    /// The session waits for answers to the items of this run first. The text is the reason why an answer in the
    /// request was not understood, if it has any.
    Waiting(Option<RunId>, Option<String>),
}

impl Outcome {
    /// The request, for a turn that is recorded already: fails if the session waits for answers.
    pub(super) fn ready(self) -> Result<Box<Prepared>, Fault> {
        match self {
            Self::Ready(prepared) => Ok(prepared),
            Self::Waiting(..) => Err(faults::waiting()),
        }
    }
}

/// The part of a request besides its input.
struct Memory {
    before: Before,
    /// The session's id as the agent knows it.
    upstream_id: String,
    connector_state: Json,
    losses: Losses,
    /// See [`Prepared::leaves_stale`].
    leaves_stale: bool,
    /// The first entries of a session that begins. `None`: the session continues.
    begins: Option<Vec<Entry>>,
}

/// The messages in front of the new input.
enum Before {
    /// The messages of earlier turns.
    History(Vec<Said>),
    /// The messages that the agent did not receive yet. It remembers the rest.
    Unseen(Vec<Said>),
}

impl Before {
    fn messages(self) -> (Vec<Said>, bool) {
        match self {
            Self::History(messages) => (messages, true),
            Self::Unseen(messages) => (messages, false),
        }
    }
}

/// The complete input of a request.
struct Composed {
    input: Input,
    /// The position of the history in the input.
    history: Range<usize>,
    /// The origins of its messages, which name them; empty if the agent does not receive ids.
    origins: Vec<MessageOrigin>,
}

impl ContextBuilder {
    pub(crate) const fn new(sessions: Arc<SessionTable>, transcripts: Arc<Transcripts>) -> Self {
        Self { sessions, transcripts }
    }

    /// Prepares the request of a turn. The caller holds the session's turn.
    pub(super) async fn prepare(
        &self,
        session: &Arc<Session>,
        agent: &Agent,
        spoken: &Spoken,
    ) -> Result<Outcome, Fault> {
        if !self.sessions.is_users(session, spoken.request.user_id.as_deref()) {
            // The client's next request gets a session of its own.
            return Err(faults::busy(&session.id));
        }

        let now = clock::now();
        let snapshot = session.snapshot();
        let Memory { before, upstream_id, mut connector_state, losses, leaves_stale, begins } = match &spoken.basis {
            Basis::Begins(history) => beginning(session, &snapshot, agent, history),
            _ => self.memory(session, &snapshot, agent, spoken, now).await?,
        };

        // After everything that may fail or be canceled, so that such a request answers no item; and in one step, so
        // that a refused request does not change the session.
        let (input, answers) = (spoken.request.input.clone(), spoken.answers.clone());
        let replaces_entries = begins.is_some();
        let begins_with_messages = begins.as_ref().is_some_and(|entries| !entries.is_empty());
        let admission = session.admit(input, answers, spoken.answer_policy, now, begins);
        let Admission { outcome, asked_by, entries: admitted_entries } =
            admission.ok_or_else(|| faults::busy(&session.id))?;
        let (taken, input, answered, freed) = match outcome {
            answer::Outcome::Send { taken, input, answered, freed } => (taken, input, answered, freed),
            answer::Outcome::Wait(reason) => {
                // Answers that were collected so far survive a restart. If the client disconnects, the next request
                // finds them in memory until the store has them.
                self.sessions.save_detached(session).await?;
                return Ok(Outcome::Waiting(asked_by, spoken.undecided.clone().or(reason)));
            }
            answer::Outcome::Refused(fault) => return Err(fault),
        };

        let decided = !answered.is_empty();
        let recorded = decided.then(|| input.clone());
        let said = input.clone();
        // Answers beside the input are placed in front of it, and recorded with it only if they decided an item.
        let beside = if decided { 0 } else { said.len().saturating_sub(spoken.request.input.len()) };
        let Composed { input, history, origins } = compose(spoken, before, input, beside, is_named(agent));
        let request = request(session, spoken, input, &upstream_id);
        if snapshot.connector_user.as_ref().is_some_and(|user| request.user_id.as_ref() != Some(user)) {
            // Data that an agent's server gave one user, such as a context, is not used for another one.
            connector_state = Json::null();
        }

        let prepared = Prepared {
            request,
            names_user: spoken.request.user_id.is_some() || snapshot.is_user_named,
            history,
            origins,
            sent_for: None,
            message_ids: Vec::new(),
            losses,
            upstream_id,
            connector_state,
            answered,
            freed,
            taken: Some(taken),
            decided,
            known_entries: if replaces_entries { admitted_entries } else { snapshot.entries.known() },
            leaves_stale,
            begins: begins_with_messages,
            input: recorded,
            said,
            home: None,
            resent: None,
            is_unknown: false,
        };
        Ok(Outcome::Ready(Box::new(prepared)))
    }

    /// Changes a prepared request for an endpoint that does not remember the session: the endpoint gets the whole
    /// history, under a new id.
    pub(super) async fn resend_history(
        &self,
        session: &Session,
        agent: &Agent,
        spoken: &Spoken,
        prepared: &mut Prepared,
    ) -> Result<(), Fault> {
        let entries = session.entries();
        let past = self.past(session, &entries, agent, &spoken.basis).await?;
        prepared.known_entries = entries.known();
        prepared.leaves_stale = false;
        let before = Before::History(noting_cut(past, &mut prepared.losses));

        let upstream_id = session.new_upstream_id();
        let (said, beside) = (prepared.said.clone(), prepared.beside());
        let composed = compose(spoken, before, said, beside, is_named(agent));
        let id = prepared.request.id.take();
        prepared.request = AgentRequest { id, ..request(session, spoken, composed.input, &upstream_id) };
        (prepared.history, prepared.origins) = (composed.history, composed.origins);
        prepared.name_messages(&session.id);
        prepared.connector_state = Json::null();
        prepared.resent = Some(std::mem::replace(&mut prepared.upstream_id, upstream_id));
        Ok(())
    }

    /// The part of a request besides its input: the whole history if the agent keeps none, or remembers another one. An
    /// agent that remembers another history and gets an answer continues with its own: only its own session has the
    /// item.
    async fn memory(
        &self,
        session: &Session,
        snapshot: &SessionSnapshot,
        agent: &Agent,
        spoken: &Spoken,
        now: Millis,
    ) -> Result<Memory, Fault> {
        let basis = &spoken.basis;
        let entries = &snapshot.entries;
        let is_exact = snapshot.is_conversation || basis.is_exact();
        let branches_off = basis.branch(entries.last_run).is_some();
        let remembers_otherwise = is_exact && (snapshot.is_stale || branches_off);
        let needs_history = agent.history == History::Upstream && remembers_otherwise;
        let leaves_stale = needs_history && takes_history(agent) && answers_item(session, spoken, now);
        let mut losses = Losses::new();
        let sends_all = match agent.history {
            History::Gateway => true,
            History::Upstream if needs_history && (leaves_stale || !takes_history(agent)) => {
                losses.lost(ContentKind::History, "the agent continues from its own memory");
                false
            }
            History::Upstream => needs_history,
        };

        let mut upstream_id = snapshot.upstream_id.clone();
        let mut connector_state = snapshot.connector_state.clone();
        if agent.history == History::Upstream && sends_all {
            // The agent remembers another history: it gets the whole one, under an id that it does not know.
            if !entries.is_empty() {
                upstream_id = session.new_upstream_id();
            }
            connector_state = Json::null();
        }

        let before = if sends_all {
            let past = self.past(session, entries, agent, basis).await?;
            Before::History(noting_cut(past, &mut losses))
        } else if is_exact && !leaves_stale {
            // The messages that were added to the session since the last call of the agent.
            Before::Unseen(self.transcripts.unseen(session, entries, needs_history).await?)
        } else {
            // Nothing, or everything with the next turn.
            Before::Unseen(Vec::new())
        };

        Ok(Memory { before, upstream_id, connector_state, losses, leaves_stale, begins: None })
    }

    /// The earlier messages, up to the end of the session or of a branch.
    async fn past(&self, session: &Session, entries: &EntryList, agent: &Agent, basis: &Basis) -> Result<Past, Fault> {
        let limit = agent.history_limit;
        if let Some(run) = basis.branch(entries.last_run) {
            return self.transcripts.chain(run, limit).await;
        }
        if !basis.is_resent() {
            return self.transcripts.history(session, entries, limit).await;
        }

        // If the client sends the whole conversation, the agent gets all of it although the gateway limits its own
        // history.
        let past = self.transcripts.history(session, entries, limit.of_chains()).await?;
        if !past.is_cut {
            return Ok(past);
        }
        let resent = basis
            .history()
            .iter()
            .enumerate()
            .map(|(place, message)| Said { message: message.clone(), origin: MessageOrigin::Resent { place } });
        Ok(Past { messages: resent.collect(), is_cut: false })
    }
}

/// The history of a session that begins with messages of its client.
fn beginning(session: &Session, snapshot: &SessionSnapshot, agent: &Agent, history: &[Message]) -> Memory {
    // The agent may know another session of this name.
    let upstream_id = if session.is_blank() { snapshot.upstream_id.clone() } else { session.new_upstream_id() };

    let mut losses = Losses::new();
    let entries: Vec<Entry> = history.iter().map(Entry::from_message).collect();
    let before = if history.is_empty() {
        Before::Unseen(Vec::new())
    } else if takes_history(agent) {
        let said = |(message, entry): (&Message, &Entry)| Said {
            message: message.clone(),
            origin: MessageOrigin::Entry(entry.message_id().to_owned()),
        };
        Before::History(history.iter().zip(&entries).map(said).collect())
    } else {
        losses.lost(ContentKind::History, "the agent's protocol has no place for earlier turns");
        Before::Unseen(Vec::new())
    };

    let connector_state = Json::null();
    Memory { before, upstream_id, connector_state, losses, leaves_stale: false, begins: Some(entries) }
}

/// True if the turn answers a pending item of its session.
fn answers_item(session: &Session, spoken: &Spoken, now: Millis) -> bool {
    let (input, answers) = (spoken.request.input.clone(), spoken.answers.clone());
    session.answers_item(input, answers, spoken.answer_policy, now)
}

/// True if the agent's protocol has a place for earlier turns.
pub(super) fn takes_history(agent: &Agent) -> bool {
    agent.upstream.capabilities().history != HistoryNeed::KeptByAgentOnly
}

/// True if the agent receives the ids of messages.
fn is_named(agent: &Agent) -> bool {
    agent.upstream.capabilities().message_ids
}

fn noting_cut(past: Past, losses: &mut Losses) -> Vec<Said> {
    if past.is_cut {
        losses.lost(ContentKind::History, "the oldest turns exceed history_limit");
    }
    past.messages
}

/// The request in the form for the agent.
fn request(session: &Session, spoken: &Spoken, input: Input, upstream_id: &str) -> AgentRequest {
    let mut request = AgentRequest { input, ..spoken.request.clone() };
    request.session_id = Some(upstream_id.to_owned());

    // Without both ids all anonymous clients share one lock upstream
    // (docs/protocols/agent-api.md#sessions-and-background-tasks). An agent that waits for an answer knows its session
    // by both ids, so a client that names no user continues as the user named before.
    let user = session.user_of_turn(request.user_id.take());
    request.user_id = Some(session.upstream_user(&user, upstream_id));
    request
}

/// The preamble, the history, then the input. System messages of the input are placed before the history, as
/// instructions are, unless its client sent them after it. `beside`: the number of messages at the beginning of the
/// input that are answers beside it.
fn compose(spoken: &Spoken, before: Before, input: Input, beside: usize, is_named: bool) -> Composed {
    let preamble = &spoken.preamble;
    let (before, is_history) = before.messages();
    let leading = if before.is_empty() || spoken.basis.is_resent() {
        0
    } else {
        input.iter().take_while(|message| message.role == Some(Role::System)).count()
    };
    let start = preamble.len() + leading;
    let history = if is_history { start..start + before.len() } else { 0..0 };

    let mut origins = Vec::new();
    if is_named {
        let of_input = |place: usize| match place.checked_sub(beside) {
            Some(place) => MessageOrigin::New { place },
            None => MessageOrigin::Beside { place },
        };
        origins.extend((0..preamble.len()).map(|place| MessageOrigin::Preamble { place }));
        origins.extend((0..leading).map(of_input));
        origins.extend(before.iter().map(|said| said.origin.clone()));
        origins.extend((leading..input.len()).map(of_input));
    }
    if preamble.is_empty() && before.is_empty() {
        return Composed { input, history, origins };
    }

    let mut input: Vec<Message> = input.into_iter().collect();
    let rest = input.split_off(leading);
    let before = before.into_iter().map(|said| said.message);
    let input = preamble.iter().cloned().chain(input).chain(before).chain(rest).collect();
    Composed { input, history, origins }
}

#[cfg(test)]
mod tests {
    use interlingua_core::RunCall;

    use super::*;

    #[test]
    fn history_stands_between_instructions_and_what_is_new() {
        let said =
            |text: &str| Said { message: Message::user(text), origin: MessageOrigin::Entry(format!("item_{text}")) };
        let system = Message { role: Some(Role::System), ..Message::user("be brief") };
        let spoken = |preamble: &[&str], basis| {
            let call = RunCall::new("friday", AgentRequest::default());
            let preamble = preamble.iter().map(|text| Message::user(*text)).collect();
            Spoken { basis, ..Spoken::from(RunCall { preamble, ..call }) }
        };
        let instructed = spoken(&["you are Friday"], Basis::Session);
        let input: Input = vec![system, Message::user("beside"), Message::user("new")].into();
        let texts = |composed: &Composed| composed.input.iter().map(Message::text).collect::<Vec<_>>();
        let ids = |composed: &Composed| {
            let id = |origin: &MessageOrigin| origin.id("s", RunId(uuid::Uuid::nil()), 3).replace(&"0".repeat(32), "R");
            composed.origins.iter().map(id).collect::<Vec<_>>()
        };

        let composed = compose(&instructed, Before::History(vec![said("a"), said("b")]), input.clone(), 2, true);
        assert_eq!(texts(&composed), ["you are Friday", "be brief", "a", "b", "beside", "new"]);
        assert_eq!(composed.history, 2..4);
        assert_eq!(
            ids(&composed),
            ["msg_s_pre0", "msg_R_beside3_0", "item_a", "item_b", "msg_R_beside3_1", "msg_R_in3_0"]
        );

        // Messages that the agent did not receive yet are new to it.
        let composed = compose(&spoken(&[], Basis::Session), Before::Unseen(vec![said("a")]), input.clone(), 0, false);
        assert_eq!(texts(&composed), ["be brief", "a", "beside", "new"]);
        assert_eq!((composed.history, composed.origins.len()), (0..0, 0));

        let composed = compose(&spoken(&[], Basis::Session), Before::History(Vec::new()), input.clone(), 0, true);
        assert!(composed.history.is_empty() && composed.origins.len() == 3);

        // A client that sends the whole conversation determines its order.
        let resent = spoken(&["you are Friday"], Basis::Begins(Vec::new()));
        let composed = compose(&resent, Before::History(vec![said("a")]), input, 0, true);
        assert_eq!(texts(&composed), ["you are Friday", "a", "be brief", "beside", "new"]);
        assert_eq!(composed.history, 1..2);
    }
}
