//! A conversation with one agent, without an engine: for `interlingua probe --ask` and `interlingua call`.
//!
//! One turn after the other, in memory. It keeps the state of a session: the messages, for agents that receive the
//! history, the connector's state, and the pending items. Not here: runs that others follow, and any storage
//! (`interlingua-engine`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use interlingua_core::answer::{
    Answer, AnswerBody, AnswerPolicy, AskContext, AskPolicy, Outcome, SentAnswers, TakenAnswers, Waiting,
};
use interlingua_core::capability::{HistoryNeed, UpstreamCapabilities};
use interlingua_core::connector::TurnRequest;
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::model::{AgentRequest, Input, Message, MessageType};
use interlingua_core::normalize::Normalizer;
use interlingua_core::pending::Pending;
use interlingua_core::recording::Recording;
use interlingua_core::run::RunError;
use interlingua_core::step::Step;
use interlingua_core::{End, Fault, FaultKind, Json, Record, Run, RunId};
use serde::{Deserialize, Serialize};

use super::{Conversation, Flow, SendOptions, Upstream, answer_words};
use interlingua_base::clock;

/// The largest run, in bytes.
const MAX_RUN_BYTES: usize = 64 * 1024 * 1024;

/// A conversation with one agent.
pub struct Dialogue {
    upstream: Arc<dyn Upstream>,
    agent: String,
    /// The history is sent with each turn.
    sends_history: bool,
    model: Option<String>,
    tools: Option<Vec<Json>>,
    memory: Memory,
    past: Vec<Message>,
}

/// The state of a conversation beside its messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Memory {
    session: String,
    state: Json,
    waiting: Waiting,
}

/// The user's input.
#[derive(Clone, Copy, Debug)]
pub enum UserInput<'a> {
    /// A message.
    Text(&'a str),
    /// The answer to a pending item, in words.
    Answer {
        /// The item's id.
        item: &'a str,
        /// Yes, no, `edit JSON`, or a text.
        text: &'a str,
    },
}

/// Sees what an agent answers, as it comes.
pub trait Listener {
    /// The unchanged bytes of the answer.
    fn chunk(&mut self, chunk: &[u8]);

    /// Called for each step.
    fn step(&mut self, step: Step<'_>);
}

/// The result of a turn.
#[derive(Clone, Debug)]
pub struct TurnEnd {
    /// The end of the turn.
    pub end: End,
    /// Why it failed.
    pub error: Option<RunError>,
    /// The text of its messages.
    pub text: String,
    /// The number of messages of each type.
    pub messages: BTreeMap<String, usize>,
    /// The pending items.
    pub pending: Vec<Pending>,
    /// The losses of the turn.
    pub losses: Vec<Loss>,
    /// The number of frames without an effect.
    pub ignored: u64,
    /// From the request to the first event. `None`: there was none.
    pub first_event: Option<Duration>,
    /// All of it.
    pub took: Duration,
}

impl Dialogue {
    /// A conversation that begins. `sends_history`: the agent is sent all that was said with each turn.
    #[must_use]
    pub fn new(upstream: Arc<dyn Upstream>, agent: &str, sends_history: bool) -> Self {
        let session = format!("session_{}", clock::new_id());
        let memory = Memory { session, state: Json::null(), waiting: Waiting::default() };
        Self { upstream, agent: agent.to_owned(), sends_history, model: None, tools: None, memory, past: Vec::new() }
    }

    /// A dialogue that continues an earlier one.
    #[must_use]
    pub fn with_memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// One in the session of this id.
    #[must_use]
    pub fn in_session(mut self, session: &str) -> Self {
        session.clone_into(&mut self.memory.session);
        self
    }

    /// With requests for this model.
    #[must_use]
    pub fn with_model(mut self, model: Option<String>) -> Self {
        self.model = model;
        self
    }

    /// With tools that the client runs.
    #[must_use]
    pub fn with_tools(mut self, tools: Option<Vec<Json>>) -> Self {
        self.tools = tools;
        self
    }

    /// The state. `None`: the state includes all messages.
    #[must_use]
    pub fn memory(&self) -> Option<&Memory> {
        (!self.sends_history).then_some(&self.memory)
    }

    /// The session's id.
    #[must_use]
    pub fn session(&self) -> &str {
        &self.memory.session
    }

    /// The pending items of the agent.
    pub fn pending(&self) -> Vec<Pending> {
        self.memory.waiting.open().map(|open| open.item.clone()).collect()
    }

    /// Runs one turn.
    ///
    /// # Errors
    /// The answer does not match a pending item, more answers are needed first, or the agent cannot be called.
    pub async fn turn(&mut self, spoken: UserInput<'_>, listener: &mut dyn Listener) -> Result<TurnEnd, Fault> {
        let (taken, input, answered) = self.take(spoken)?;
        let run = clock::new_id();
        let mut record = Record::new(Run::new(run, &self.agent, &self.memory.session, clock::now()));
        record.start_turn(input.clone());
        let normalizer = Normalizer::new(MAX_RUN_BYTES).masking(interlingua_base::secrets::mask);

        let began = Instant::now();
        let begun = self.begin(run, &input, &answered).await;
        let mut conversation = match begun {
            Ok(conversation) => conversation,
            Err(fault) => {
                self.memory.waiting.reopen(taken);
                return Err(fault);
            }
        };
        let sent = self.memory.waiting.confirm_sent(taken);

        let mut reading = Reading { record, normalizer, seen: 0, began, first_event: None };
        if let Err(fault) = reading.listen(&mut conversation, listener).await {
            reading.normalizer.fail(&mut reading.record, &fault);
        }
        reading.show(listener);
        let end = reading.end(&conversation);
        if let Some(state) = conversation.session_state() {
            self.memory.state = state;
        }
        conversation.release();
        self.conclude(run, sent, input, &reading.record, &end);
        Ok(TurnEnd { pending: self.pending(), ..end })
    }

    /// The input for the upstream.
    fn take(&mut self, spoken: UserInput<'_>) -> Result<(TakenAnswers, Input, Vec<Pending>), Fault> {
        let (input, answers) = match spoken {
            UserInput::Text(text) => (vec![Message::user(text)], Vec::new()),
            UserInput::Answer { item, text } => {
                let known = self.memory.waiting.open().find(|open| open.item.id == item);
                let body = known
                    .map_or_else(|| AnswerBody::Text(text.to_owned()), |open| answer_words::read(&open.item, text));
                (Vec::new(), vec![Answer::new(item.to_owned(), body)])
            }
        };
        let policy = AnswerPolicy { asking: AskPolicy::OneByOne, ..AnswerPolicy::default() };
        match self.memory.waiting.take(input, answers, policy, clock::now()) {
            Outcome::Send { taken, input, answered, .. } => Ok((taken, input, answered)),
            Outcome::Wait(reason) => {
                let reason = reason.unwrap_or_else(|| "the agent waits for an answer to each item first".to_owned());
                Err(Fault::new(FaultKind::Waiting, reason))
            }
            Outcome::Refused(fault) => Err(fault),
        }
    }

    /// Calls the agent, with the history if it cannot continue otherwise.
    async fn begin(&self, run: RunId, input: &Input, answered: &[Pending]) -> Result<Conversation, Fault> {
        let takes_history = self.capabilities().history != HistoryNeed::KeptByAgentOnly;
        let mut with_history = self.sends_history;
        loop {
            let may_add = !with_history && takes_history && !self.past.is_empty();
            let state = if with_history && !self.sends_history { Json::null() } else { self.memory.state.clone() };
            let past: &[Message] = if with_history { &self.past } else { &[] };
            let request = AgentRequest {
                input: past.iter().cloned().chain(input.iter().cloned()).collect(),
                id: Some(format!("response_{run}")),
                session_id: Some(self.memory.session.clone()),
                user_id: Some(format!("user_{}", self.memory.session)),
                model: self.model.clone(),
                tools: self.tools.clone(),
                ..AgentRequest::default()
            };
            // By their place in the conversation, however much of it is sent.
            let first = if with_history { 0 } else { self.past.len() };
            let places = first..first + request.input.len();
            let named = places.filter(|_| self.capabilities().message_ids);
            let ids: Vec<String> = named.map(|place| format!("msg_{}_{place}", self.memory.session)).collect();
            let turn = TurnRequest::new(&request, &state, answered)
                .with_history(0..past.len())
                .with_message_ids(&ids)
                .with_user_named(false)
                .with_agent(&self.agent);
            let mut conversation = self.upstream.start(&turn, SendOptions::default())?;
            let begun = if may_add && conversation.needs_history() { None } else { Some(conversation.begin().await) };
            match begun {
                Some(Ok(())) => return Ok(conversation),
                Some(Err(fault)) if !(may_add && conversation.needs_history()) => return Err(fault),
                Some(Err(_)) | None => with_history = true,
            }
        }
    }

    fn capabilities(&self) -> UpstreamCapabilities {
        self.upstream.capabilities()
    }

    fn conclude(&mut self, run: RunId, sent: SentAnswers, input: Input, record: &Record, end: &TurnEnd) {
        let capabilities = self.capabilities();
        if matches!(end.end, End::Completed | End::Incomplete) {
            let asked = AskContext {
                run,
                now: clock::now(),
                terms: AnswerPolicy::default(),
                tools: self.tools.as_deref().unwrap_or_default(),
                decisions: capabilities.decisions,
                tool_outputs: capabilities.tool_outputs,
            };
            self.memory.waiting.ask(sent, end.pending.clone(), &asked);
        }
        self.past.extend(input);
        let answer = record.run().messages.iter().filter(|message| {
            !matches!(message.kind, MessageType::Error | MessageType::Heartbeat | MessageType::ProtocolEvent)
        });
        self.past.extend(answer.map(interlingua_core::run::Message::to_model));
    }
}

/// An answer that is being read.
struct Reading {
    record: Record,
    normalizer: Normalizer,
    /// The number of steps that the listener received.
    seen: u64,
    began: Instant,
    first_event: Option<Duration>,
}

impl Reading {
    async fn listen(&mut self, conversation: &mut Conversation, listener: &mut dyn Listener) -> Result<(), Fault> {
        while !self.normalizer.has_ended() {
            let next: Result<Option<Bytes>, Fault> = conversation.chunk().await;
            self.record.set_time(clock::now());
            let mut sink = Recording { record: &mut self.record, normalizer: &mut self.normalizer };
            let flow = match next {
                Ok(Some(chunk)) => {
                    listener.chunk(&chunk);
                    conversation.feed(&chunk, &mut sink).map(|()| Flow::Continues)
                }
                Ok(None) => conversation.finish(&mut sink),
                Err(fault) => conversation.fail(fault, &mut sink),
            };
            self.show(listener);
            if flow? == Flow::Ended {
                break;
            }
        }
        if !self.normalizer.has_begun()
            && !self.normalizer.has_ended()
            && let Some(foreign) = conversation.foreign()
        {
            return Err(foreign);
        }
        self.normalizer.end_of_body(&mut self.record);
        Ok(())
    }

    /// Shows what is new.
    fn show(&mut self, listener: &mut dyn Listener) {
        if self.normalizer.has_begun() && self.first_event.is_none() {
            self.first_event = Some(self.began.elapsed());
        }
        for step in self.record.steps(self.seen) {
            listener.step(step);
        }
        self.seen = self.record.len();
    }

    fn end(&self, conversation: &Conversation) -> TurnEnd {
        let run = self.record.run();
        let turn = run.turn();
        let mut messages = BTreeMap::new();
        for message in &run.messages {
            *messages.entry(message.kind.to_string()).or_insert(0) += 1;
        }
        let mut losses = Losses::new();
        losses.extend(conversation.losses().as_slice());
        losses.extend(self.normalizer.losses());
        TurnEnd {
            end: turn.and_then(|turn| turn.end).unwrap_or(End::Failed),
            error: turn.and_then(|turn| turn.error.clone()),
            text: run
                .messages
                .iter()
                .filter(|message| message.kind == MessageType::Message)
                .map(interlingua_core::run::Message::text)
                .collect(),
            messages,
            pending: run.pending(),
            losses: losses.as_slice().to_vec(),
            ignored: self.normalizer.ignored(),
            first_event: self.first_event,
            took: self.began.elapsed(),
        }
    }
}
