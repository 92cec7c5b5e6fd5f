//! A turn to take: the input of its client, its place in its session's queue, and the clients that wait for its begin.
//!
//! Not here: building the request to the agent ([`crate::turns::context`]), and taking turns ([`crate::turns::driver`]).

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlingua_core::answer::{Answer, AnswerPolicy, TakenAnswers};
use interlingua_core::call::RunState;
use interlingua_core::connector::TurnRequest;
use interlingua_core::loss::Losses;
use interlingua_core::model::{AgentRequest, Input, Message};
use interlingua_core::pending::Pending;
use interlingua_core::{Fault, Json, RunCall, RunId, RunPolicy};
use tokio::sync::oneshot;

use crate::agent::Agent;
use crate::sessions::{Basis, KnownEntries, MessageOrigin, Queued, Session, TurnGuard};
use interlingua_callers::{Caller, Permit, Use};
use interlingua_observe::RequestLog;
use interlingua_upstream::pool::EndpointKey;
use interlingua_upstream::{Attempts, ForwardedHeaders, Trace};

/// A turn to be taken.
pub(crate) struct Turn {
    pub(crate) session: Arc<Session>,
    /// The caller who sent it.
    pub(crate) caller: Arc<Caller>,
    /// Counts it while it waits or is under way.
    pub(crate) permits: Option<TurnPermits>,
    /// Its agent, as configured when the turn came: a reload changes later turns only.
    pub(crate) agent: Arc<Agent>,
    /// `None` once it is being taken.
    pub(crate) place: Option<Place>,
    pub(crate) policy: RunPolicy,
    pub(crate) spoken: Spoken,
    /// The trace that the client's request is part of; once the turn is being taken, with a span of its own.
    pub(crate) trace: Option<Arc<Trace>>,
    /// The headers of its request that agents may get.
    pub(crate) forwarded: ForwardedHeaders,
    /// The protocol it came by.
    pub(crate) protocol: &'static str,
    /// The client's request, for the logs. `None` once the turn has ended.
    pub(crate) request: Option<Arc<RequestLog>>,
    /// When it came.
    pub(crate) came_at: Instant,
    /// When it was taken up. `None` before.
    pub(crate) began_at: Option<Instant>,
    /// The attempts to reach its agent.
    pub(crate) attempts: Arc<Attempts>,
    /// The number of pending items that it answers.
    pub(crate) answers: usize,
    /// The time until the agent's first event.
    pub(crate) first_event: Option<Duration>,
    /// The path of the route it came by, for the log.
    pub(crate) route: Arc<str>,
    /// The state the run goes back to if the turn never reaches the agent. `None` for a first turn: the run fails then.
    pub(crate) resumes: Option<RunState>,
    /// The claim of its request: a turn with the same claim is the same turn.
    pub(crate) claim_key: Option<String>,
    /// Gets a value once the agent has begun to answer, or the reason why it never did.
    pub(super) started: Option<oneshot::Sender<Result<(), Fault>>>,
}

/// Counts a turn of a caller and of an agent: as under way, or as queued.
pub(crate) struct TurnPermits([Permit; 2]);

impl TurnPermits {
    /// Counts a turn as under way.
    pub(crate) fn begin(caller: &Caller, agent: &Agent) -> Result<Self, Fault> {
        agent.usage.check_rate("runs")?;
        Ok(Self([caller.usage.begin(Use::Run)?, agent.usage.begin(Use::Run)?]))
    }

    /// It has to wait: counts it as queued.
    pub(crate) fn queue(&mut self) -> Result<(), Fault> {
        self.0.iter_mut().try_for_each(|permit| permit.try_change_to(Use::Queued))
    }

    /// Its turn has come, whatever else is under way.
    pub(crate) fn begin_now(&mut self) {
        for permit in &mut self.0 {
            permit.change_to(Use::Run);
        }
    }
}

/// Where a turn came from.
pub(crate) struct Origin {
    pub(crate) caller: Arc<Caller>,
    pub(crate) protocol: &'static str,
    pub(crate) route: Arc<str>,
    pub(crate) trace: Option<Arc<Trace>>,
    pub(crate) request: Option<Arc<RequestLog>>,
    pub(crate) forwarded: ForwardedHeaders,
}

/// The input of a client for one turn.
pub(crate) struct Spoken {
    /// The input and the settings of the request.
    pub(crate) request: AgentRequest,
    /// Goes to the agent in front of everything else, this once.
    pub(crate) preamble: Vec<Message>,
    pub(crate) answers: Vec<Answer>,
    /// Why an answer of the client is not among them, although it may be one.
    pub(crate) undecided: Option<String>,
    pub(crate) answer_policy: AnswerPolicy,
    pub(crate) basis: Basis,
}

/// The place of a turn in its session's queue.
pub(crate) enum Place {
    /// It is first, and its request is prepared.
    Ready(TurnGuard, Box<Prepared>),
    /// Others are before it.
    Behind(Queued),
}

/// A request that is ready to be sent.
pub(crate) struct Prepared {
    /// The complete request.
    pub(crate) request: AgentRequest,
    /// The range of its input that contains earlier turns.
    pub(crate) history: Range<usize>,
    /// The origins of the messages of its input; empty if the agent does not get their ids.
    pub(crate) origins: Vec<MessageOrigin>,
    /// The run that the request is sent for, and how many of its turns came before.
    pub(crate) sent_for: Option<(RunId, u32)>,
    /// True if a client named the user.
    pub(crate) names_user: bool,
    /// The ids of the messages in its input, or none.
    pub(crate) message_ids: Vec<String>,
    /// The content of the session that does not reach the agent.
    pub(crate) losses: Losses,
    /// The session's id as the agent knows it.
    pub(crate) upstream_id: String,
    /// The state that the connector keeps for the session.
    pub(crate) connector_state: Json,
    /// The pending items that it answers.
    pub(crate) answered: Vec<Pending>,
    /// The runs whose last open item it closes.
    pub(crate) freed: Vec<RunId>,
    /// Its answers, until the agent has accepted or refused them.
    pub(crate) taken: Option<TakenAnswers>,
    /// True if a pending item was decided: the session has to be safe before the agent is called.
    pub(crate) decided: bool,
    /// The entries of the session that it was prepared from.
    pub(crate) known_entries: KnownEntries,
    /// True if the agent remembers something else than the entries, also after the turn: it did not get the history,
    /// because the turn answers an item that only its own session has.
    pub(crate) leaves_stale: bool,
    /// True if the session begins with messages of its client: they have to be safe before the agent's answer is shown.
    pub(crate) begins: bool,
    /// The input with its answers in canonical form, if that differs from what the client sent.
    pub(crate) input: Option<Input>,
    /// The input as the agent gets it, without history.
    pub(crate) said: Input,
    /// The endpoint that it was sent to.
    pub(crate) home: Option<EndpointKey>,
    /// Set if the history is sent to another endpoint: by which id the agent knew the session before.
    pub(crate) resent: Option<String>,
    /// True if the agent was not reached: no endpoint knows of the turn.
    pub(crate) is_unknown: bool,
}

impl Prepared {
    /// The agent was not reached: its endpoints know the session as before.
    pub(crate) fn forget_home(&mut self) {
        self.home = None;
        if let Some(known) = self.resent.take() {
            self.upstream_id = known;
        }
    }

    /// The number of messages at the beginning of the input that are answers sent beside it. They are not recorded.
    pub(crate) fn beside(&self) -> usize {
        self.origins.iter().filter(|origin| matches!(origin, MessageOrigin::Beside { .. })).count()
    }

    /// The request is sent in this turn of a run.
    pub(crate) fn name(&mut self, session: &str, run: RunId, turn: u32) {
        // As clients of the Agent API see it, so that one search of the logs finds both sides of a run.
        self.request.id = Some(format!("response_{run}"));
        self.sent_for = Some((run, turn));
        self.name_messages(session);
    }

    /// Gives the messages of the input their ids, if the agent is given them.
    pub(crate) fn name_messages(&mut self, session: &str) {
        let named = self
            .sent_for
            .into_iter()
            .flat_map(|(run, turn)| self.origins.iter().map(move |origin| origin.id(session, run, turn)));
        self.message_ids = named.collect();
    }

    /// The request as the connector gets it.
    pub(crate) fn turn_request<'a>(&'a self, agent: &'a Agent) -> TurnRequest<'a> {
        TurnRequest::new(&self.request, &self.connector_state, &self.answered)
            .with_history(self.history.clone())
            .with_turn(self.sent_for.map_or(0, |(_, turn)| turn))
            .with_message_ids(&self.message_ids)
            .with_protocol_events(agent.reads_protocol_events())
            .with_user_named(self.names_user)
            .with_agent(&agent.name)
    }
}

impl Spoken {
    /// For a turn that continues its session.
    pub(crate) const fn new(
        request: AgentRequest,
        preamble: Vec<Message>,
        answers: Vec<Answer>,
        answer_policy: AnswerPolicy,
    ) -> Self {
        Self { request, preamble, answers, undecided: None, answer_policy, basis: Basis::Session }
    }
}

impl From<RunCall> for Spoken {
    fn from(call: RunCall) -> Self {
        Self::new(call.request, call.preamble, call.answers, call.answer_policy)
    }
}

impl Turn {
    /// A turn, and what its client waits for.
    pub(crate) fn new(
        session: Arc<Session>,
        agent: Arc<Agent>,
        origin: Origin,
        place: Place,
        policy: RunPolicy,
        spoken: Spoken,
    ) -> (Self, oneshot::Receiver<Result<(), Fault>>) {
        let (started, receiver) = oneshot::channel();
        let turn = Self {
            session,
            caller: origin.caller,
            permits: None,
            protocol: origin.protocol,
            agent,
            place: Some(place),
            policy,
            spoken,
            trace: origin.trace,
            forwarded: origin.forwarded,
            request: origin.request,
            came_at: Instant::now(),
            began_at: None,
            attempts: Arc::default(),
            answers: 0,
            first_event: None,
            route: origin.route,
            resumes: None,
            claim_key: None,
            started: Some(started),
        };

        (turn, receiver)
    }

    /// The input as the run records it: with its answers in canonical form, if that is known already.
    pub(crate) fn take_input(&mut self) -> Input {
        let prepared = match &mut self.place {
            Some(Place::Ready(_, prepared)) => prepared.input.take(),
            _ => None,
        };
        prepared.unwrap_or_else(|| self.spoken.request.input.clone())
    }

    /// The agent has sent its first event.
    pub(crate) fn note_first_event(&mut self) {
        let took = self.began_at.map(|began_at| began_at.elapsed());
        if let Some(took) = took.filter(|_| self.first_event.is_none()) {
            self.agent.metrics.began_after(self.protocol, took);
            self.first_event = Some(took);
        }
    }

    /// The turn is not taken: items that it would have answered are open again, with what was decided before.
    pub(crate) fn reopen_answers(&mut self) {
        if let Some(Place::Ready(_, prepared)) = &mut self.place
            && let Some(taken) = prepared.taken.take()
        {
            self.session.put_back(taken);
        }
    }

    /// True if other turns are before it.
    pub(crate) fn is_behind(&self) -> bool {
        matches!(&self.place, Some(Place::Behind(queued)) if !queued.is_first())
    }

    /// True if its request can be sent at once.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.place, Some(Place::Ready(..)))
    }

    /// True while its client waits for it to begin.
    pub(crate) fn is_awaited(&self) -> bool {
        self.started.as_ref().is_some_and(|started| !started.is_closed())
    }

    /// Reports how it began to its client, unless that was done before.
    pub(crate) fn report_start(&mut self, result: Result<(), Fault>) {
        if let Some(started) = self.started.take() {
            // The client may have stopped waiting.
            let _ = started.send(result);
        }
    }
}
