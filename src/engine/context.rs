//! The request of a turn: its input, the history where the agent has to be sent it, and answers to what the agent waits
//! for (docs/protocols/responses.md#sessions-and-history, docs/human-in-the-loop.md#rules).
//!
//! Not here: reading the history ([`super::transcripts`]), and sending the request ([`super::turn_driver`]).

use std::sync::Arc;

use interlingua_core::answer;
use interlingua_core::call::Thread;
use interlingua_core::model::{AgentRequest, Input, Message, Role};
use interlingua_core::{Fault, Json, RunId};

use super::agent::{Agent, History};
use super::faults;
use super::session::Session;
use super::session_doc::SessionDoc;
use super::session_table::SessionTable;
use super::transcripts::Transcripts;
use super::turn::{Prepared, Spoken};
use super::upstream_ids;
use crate::clock;

/// Prepares requests.
pub(super) struct ContextBuilder {
    sessions: Arc<SessionTable>,
    transcripts: Arc<Transcripts>,
}

/// What preparing a turn comes to.
pub(super) enum Outcome {
    /// A request to send.
    Ready(Box<Prepared>),
    /// The session waits for answers first, to what this run asked.
    Waiting(Option<RunId>),
}

impl Outcome {
    /// For a turn that is recorded already: one that may not be taken fails.
    pub(super) fn ready(self) -> Result<Box<Prepared>, Fault> {
        match self {
            Self::Ready(prepared) => Ok(prepared),
            Self::Waiting(_) => Err(faults::waiting()),
        }
    }
}

/// What the agent is sent besides the input.
struct Memory {
    /// The history.
    before: Vec<Message>,
    /// The session's id as the agent knows it.
    upstream_id: String,
    connector_state: Json,
}

impl ContextBuilder {
    pub(super) const fn new(sessions: Arc<SessionTable>, transcripts: Arc<Transcripts>) -> Self {
        Self { sessions, transcripts }
    }

    /// Prepares the request of a turn. The caller holds the session's turn.
    pub(super) async fn prepare(&self, session: &Session, agent: &Agent, spoken: &Spoken) -> Result<Outcome, Fault> {
        let now = clock::now();
        let doc = session.doc().clone();
        let Memory { before, upstream_id, mut connector_state } =
            self.memory(session, &doc, agent, &spoken.thread).await?;

        // After everything that may fail or be canceled, so that such a request answers nothing; and in one step, so that
        // a refused one leaves no trace in the session.
        let (input, answers) = (spoken.request.input.clone(), spoken.answers.clone());
        let outcome = session.doc().waiting.take(input, answers, spoken.answer_policy, now);
        let (input, answered, freed) = match outcome {
            answer::Outcome::Send { input, answered, freed } => (input, answered, freed),
            answer::Outcome::Wait => {
                let run = session.doc().waiting.open().next().map(|open| open.run).or(doc.latest);
                // Answers that were collected so far survive a restart.
                self.sessions.save(session).await?;
                return Ok(Outcome::Waiting(run));
            }
            answer::Outcome::Refused(fault) => return Err(fault),
        };

        let decided = !answered.is_empty();
        let recorded = decided.then(|| input.clone());
        let said = input.clone();
        let request = request(session, &doc, spoken, with_history(&spoken.preamble, before, input), &upstream_id);
        if doc.connector_user.as_ref().is_some_and(|user| request.user_id.as_ref() != Some(user)) {
            // What an agent's server gave one user, such as a context, is not used for another one.
            connector_state = Json::null();
        }

        let prepared = Prepared {
            request,
            upstream_id,
            connector_state,
            answered,
            freed,
            decided,
            input: recorded,
            said,
            home: None,
            resent: None,
            is_unknown: false,
        };
        Ok(Outcome::Ready(Box::new(prepared)))
    }

    /// Changes a prepared request for an endpoint that does not remember the session: it gets the whole history, under a
    /// new id.
    pub(super) async fn resend_history(
        &self,
        session: &Session,
        agent: &Agent,
        spoken: &Spoken,
        prepared: &mut Prepared,
    ) -> Result<(), Fault> {
        let doc = session.doc().clone();
        let before = match branch(&doc, &spoken.thread) {
            Some(run) => self.transcripts.chain(run, agent.history_limit).await?,
            None => self.transcripts.history(session, &doc, agent.history_limit).await?,
        };

        let upstream_id = upstream_ids::session(&session.owner, &clock::new_id().to_string(), None);
        let input = with_history(&spoken.preamble, before, prepared.said.clone());
        let id = prepared.request.id.take();
        prepared.request = AgentRequest { id, ..request(session, &doc, spoken, input, &upstream_id) };
        prepared.connector_state = Json::null();
        prepared.resent = Some(std::mem::replace(&mut prepared.upstream_id, upstream_id));
        Ok(())
    }

    /// What the agent is sent besides the input: the whole history where it does not keep it, or has kept something else.
    async fn memory(
        &self,
        session: &Session,
        doc: &SessionDoc,
        agent: &Agent,
        thread: &Thread,
    ) -> Result<Memory, Fault> {
        let is_exact = doc.is_conversation || matches!(thread, Thread::After(_));
        let branch = branch(doc, thread);
        let sends_all = match agent.history {
            History::Gateway => true,
            History::Upstream => is_exact && (doc.stale || branch.is_some()),
        };

        let mut upstream_id = doc.upstream_id.clone().unwrap_or_else(|| doc.id.clone());
        let mut connector_state = doc.connector_state.clone();
        if agent.history == History::Upstream && sends_all {
            // The agent remembers something else: it gets everything, as a session it has not seen.
            if !doc.is_empty() {
                upstream_id = upstream_ids::session(&session.owner, &clock::new_id().to_string(), None);
            }
            connector_state = Json::null();
        }

        let before = match branch {
            Some(run) if sends_all => self.transcripts.chain(run, agent.history_limit).await?,
            None if sends_all => self.transcripts.history(session, doc, agent.history_limit).await?,
            // What was put into the session since the agent was called last.
            _ if is_exact => self.transcripts.unseen(session, doc).await?,
            _ => Vec::new(),
        };

        Ok(Memory { before, upstream_id, connector_state })
    }
}

/// The run after which the history goes on, if that is not the session's last one.
fn branch(doc: &SessionDoc, thread: &Thread) -> Option<RunId> {
    match thread {
        Thread::After(run) => (!doc.ends_with(*run)).then_some(*run),
        _ => None,
    }
}

/// The request as the agent gets it.
fn request(session: &Session, doc: &SessionDoc, spoken: &Spoken, input: Input, upstream_id: &str) -> AgentRequest {
    let mut request = AgentRequest { input, ..spoken.request.clone() };
    request.session_id = Some(upstream_id.to_owned());

    // Without both ids all anonymous clients share one lock upstream
    // (docs/protocols/agent-api.md#sessions-and-background-tasks). And an agent that waits for an answer knows its
    // session by both: a client that names no user continues as the one named before.
    let user = request.user_id.take().or_else(|| doc.user_id.clone()).unwrap_or_else(|| session.own_user());
    request.user_id = Some(session.upstream_user(&user, upstream_id));
    session.doc().user_id.get_or_insert(user);
    request
}

/// The preamble, the history, then the input. System messages of the input come before the history, as instructions do.
fn with_history(preamble: &[Message], before: Vec<Message>, input: Input) -> Input {
    if preamble.is_empty() && before.is_empty() {
        return input;
    }

    let mut input: Vec<Message> = input.into_iter().collect();
    let leading = if before.is_empty() {
        0
    } else {
        input.iter().take_while(|message| message.role == Some(Role::System)).count()
    };
    let rest = input.split_off(leading);
    preamble.iter().cloned().chain(input).chain(before).chain(rest).collect()
}
