//! The upstream-facing half of a protocol: a turn with an agent, as a pure state machine.
//!
//! A [`Connector`] serves one agent. For each turn it makes an [`AgentTurn`], which returns the requests to send, reads
//! the answers, and emits typed events ([`AgentEvent`]). The gateway sends, waits, measures time and retries; a turn
//! only decides. A turn may need several requests: look up the agent's card, ask, poll, subscribe again after a broken
//! connection, cancel by an id that the agent has sent.
//!
//! How the gateway drives an [`AgentTurn`]:
//!
//! ```text
//! next ─► Send(lookup)  ─► on_lookup ───────────────────────────► next
//!      ─► Send(ask)     ─► on_frame* | on_body ─► on_end ───────► next
//!      │                ├► on_frame* ─► leaves_answer ─► on_end ► next
//!      │                ├► on_frame* ─► on_cut: Ok ─────────────► next      (Err: the turn fails)
//!      │                └► on_failure: Ok ──────────────────────► next      (Err: the turn fails)
//!      ─► Wait(pause)   ─────────────────────────────────────────► next
//!      ├► Connect       ─► on_link ──────────────────────────────► next     (Err: on_failure)
//!      ├► Converse      ─► on_frame* ─► on_end | on_cut ─────────► next
//!      └► Finished
//! ```
//!
//! Once the turn has emitted its end, the gateway sends no further request and does not call `next` again. If the run
//! is canceled, at any moment, the gateway calls `cancel` instead, sends the request that it returns, and drops the
//! turn.
//!
//! Invariant: like [`crate::exchange`], nothing here waits, reads a clock, draws a random number or opens a socket.

use std::ops::Range;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::agent_event::AgentEvent;
use crate::capability::UpstreamCapabilities;
use crate::error_class;
use crate::event::Millis;
use crate::fault::Fault;
pub use crate::http_request::{HttpRequest, Purpose};
use crate::json::Json;
pub use crate::link::{AgentLink, LinkInfo, LinkMessages, LinkOut};
use crate::loss::Loss;
use crate::model::{AgentRequest, Message};
use crate::pending::Pending;
use crate::probe::{AgentProbe, NoProbe};
use crate::server_signs::ServerSigns;
use crate::sse;

/// One upstream-facing protocol.
///
/// A whole connector, for agents that answer a text with a text:
///
/// ```
/// use interlingua_core::agent_event::AgentEvent;
/// use interlingua_core::capability::UpstreamCapabilities;
/// use interlingua_core::connector::{
///     AgentTurn, Connector, EventSink, HttpRequest, Next, TurnRequest, UpstreamAdapter,
/// };
/// use interlingua_core::event::Millis;
/// use interlingua_core::options::NoOptions;
/// use interlingua_core::{Fault, sse};
///
/// struct Echo;
///
/// impl UpstreamAdapter for Echo {
///     const NAME: &'static str = "echo";
///     type Options = NoOptions;
///
///     fn connect(url: &str, _: NoOptions) -> Result<Box<dyn Connector>, String> {
///         Ok(Box::new(EchoConnector { url: url.to_owned() }))
///     }
/// }
///
/// struct EchoConnector {
///     url: String,
/// }
///
/// impl Connector for EchoConnector {
///     fn capabilities(&self) -> UpstreamCapabilities {
///         UpstreamCapabilities::default()
///     }
///
///     fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
///         let text = request.request.input.last().map(|message| message.text()).unwrap_or_default();
///         Ok(Box::new(EchoTurn { request: Some(HttpRequest::post(&self.url, text.into_bytes())) }))
///     }
/// }
///
/// struct EchoTurn {
///     request: Option<HttpRequest>,
/// }
///
/// impl AgentTurn for EchoTurn {
///     fn next(&mut self, _: Millis) -> Result<Next, Fault> {
///         Ok(self.request.take().map_or(Next::Finished, Next::Send))
///     }
///
///     fn on_frame(&mut self, frame: sse::Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
///         sink.emit(&AgentEvent::text("answer", &String::from_utf8_lossy(frame.data)))
///     }
///
///     fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
///         sink.emit(&AgentEvent::text("answer", &String::from_utf8_lossy(body)))?;
///         sink.emit(&AgentEvent::completed())
///     }
/// }
///
/// let connector = Echo::connect("http://agent/", NoOptions {}).unwrap();
/// assert!(connector.capabilities().streaming);
/// ```
pub trait UpstreamAdapter: 'static {
    /// The name in `gateway.toml`: `protocol = "…"` of an agent's upstream.
    const NAME: &'static str;

    /// Signs by which programs recognize servers of the protocol. Without signs, an operator has to name the protocol.
    const SIGNS: ServerSigns = ServerSigns::NONE;

    /// The protocol's own settings of an agent: `upstream.options = { … }`.
    type Options: DeserializeOwned + JsonSchema + Default + Send + Sync + 'static;

    /// Makes the connector of one agent. `url`: the agent's URL in the configuration.
    ///
    /// # Errors
    /// A sentence for the operator, if the URL or the options cannot be used.
    fn connect(url: &str, options: Self::Options) -> Result<Box<dyn Connector>, String>;

    /// JSON Schema of the options, for `interlingua schema`. Doc comments of the options become descriptions.
    #[must_use]
    fn options_schema() -> serde_json::Value {
        crate::options::schema::<Self::Options>()
    }
}

/// Makes turns with one agent.
pub trait Connector: Send + Sync + 'static {
    /// The agent's abilities, determined by the protocol and the options.
    fn capabilities(&self) -> UpstreamCapabilities;

    /// Makes a turn with the agent.
    ///
    /// # Errors
    /// The request cannot be expressed in this protocol.
    fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault>;

    /// Warnings for the operator about the options. Each is a sentence that names the setting; a second line has the
    /// remedy, if there is one. Shown by `check` and at startup, at the first setting that the warning names.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The lookup of the document that the agent's server publishes about the agent. `None`: the options name no URL
    /// for it, and the gateway tries the well-known paths ([`crate::well_known`]).
    fn document_lookup(&self) -> Option<HttpRequest> {
        None
    }

    /// The protocol's part of a new connection that outlasts turns. `None`: the protocol has no such connections, and
    /// its turns send requests.
    fn link(&self) -> Option<Box<dyn AgentLink>> {
        None
    }

    /// Makes a probe, which identifies the agent's server without running the agent. By default a probe that sends
    /// nothing.
    fn probe(&self) -> Box<dyn AgentProbe> {
        Box::new(NoProbe::default())
    }
}

/// The request of one turn. A turn outlives this value, so it copies the parts that it needs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TurnRequest<'a> {
    /// The request, with `id`, `session_id` and `user_id` set. Its input contains the history if
    /// [`UpstreamCapabilities::history`] requires it.
    pub request: &'a AgentRequest,
    /// The connector's state after the latest turn of this session and user ([`AgentTurn::session_state`]). `null` at
    /// first.
    pub session_state: &'a Json,
    /// Pending items that the input answers. The input contains the answers in canonical form
    /// (docs/human-in-the-loop.md#canonical-form).
    pub answered: &'a [Pending],
    /// The part of the input with the earlier turns. Instructions precede it, the new messages follow it. Empty: the
    /// input has only new messages, and the agent remembers the earlier turns.
    pub history: Range<usize>,
    /// The number of earlier turns of this run: together with the request's id, it identifies a turn.
    pub turn: u32,
    /// An id for each message of the input, the same in later turns. Empty unless
    /// [`UpstreamCapabilities::message_ids`].
    pub message_ids: &'a [String],
    /// True if a client of this agent reads events of the agent's protocol for which the model has no type
    /// ([`MessageType::ProtocolEvent`](crate::model::MessageType::ProtocolEvent)).
    pub protocol_events: bool,
    /// The agent's name in the configuration.
    pub agent: &'a str,
    /// False: no client named the user, and `user_id` is an id that the gateway made for the session.
    pub names_user: bool,
}

impl<'a> TurnRequest<'a> {
    /// The first turn of a run, without history.
    #[must_use]
    pub fn new(request: &'a AgentRequest, session_state: &'a Json, answered: &'a [Pending]) -> Self {
        Self {
            request,
            session_state,
            answered,
            history: 0..0,
            turn: 0,
            message_ids: &[],
            protocol_events: false,
            agent: "",
            names_user: request.user_id.is_some(),
        }
    }

    /// The same turn with another form of the request, of the connector's state and of the answered items, for
    /// connectors that wrap another one.
    #[must_use]
    pub fn with_parts(
        &self,
        request: &'a AgentRequest,
        session_state: &'a Json,
        answered: &'a [Pending],
    ) -> TurnRequest<'a> {
        TurnRequest { request, session_state, answered, ..self.clone() }
    }

    /// Sets the part of the input with the earlier turns.
    #[must_use]
    pub fn with_history(mut self, history: Range<usize>) -> Self {
        self.history = history;
        self
    }

    /// Sets the number of earlier turns of the run.
    #[must_use]
    pub fn with_turn(mut self, turn: u32) -> Self {
        self.turn = turn;
        self
    }

    /// Sets the ids of the messages of the input.
    #[must_use]
    pub fn with_message_ids(mut self, ids: &'a [String]) -> Self {
        self.message_ids = ids;
        self
    }

    /// Sets whether a client reads events of the agent's protocol.
    #[must_use]
    pub fn with_protocol_events(mut self, are_read: bool) -> Self {
        self.protocol_events = are_read;
        self
    }

    /// Sets whether a client named the user.
    #[must_use]
    pub fn with_user_named(mut self, is_named: bool) -> Self {
        self.names_user = is_named;
        self
    }

    /// Sets the agent's name in the configuration.
    #[must_use]
    pub fn with_agent(mut self, agent: &'a str) -> Self {
        self.agent = agent;
        self
    }

    /// The new messages, each with its index in the input: all but the history.
    pub fn new_messages(&self) -> impl Iterator<Item = (usize, &'a Message)> {
        let history = self.history.clone();
        self.request.input.iter().enumerate().filter(move |(place, _)| !history.contains(place))
    }
}

/// The next step of a turn. The gateway carries it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this request. The turn receives the answer by the method that the request's [`Purpose`] names.
    Send(HttpRequest),
    /// Call [`AgentTurn::next`] again after this pause.
    Wait(Duration),
    /// Open the agent's link ([`Connector::link`]), or use the open one, and pass it to [`AgentTurn::on_link`].
    Connect,
    /// Write these messages to the link, then pass the messages of the topic to the turn, each as a frame, until the
    /// turn [leaves](AgentTurn::leaves_answer) or has ended. Messages that are unread by then are kept for the next
    /// turn.
    Converse(LinkMessages),
    /// No further step. If the turn has not emitted its end, it fails: the agent's answer is incomplete.
    Finished,
}

/// Receives the events of a turn.
pub trait EventSink {
    /// Receives one event.
    ///
    /// # Errors
    /// The run has reached its size limit. The turn returns the fault.
    fn emit(&mut self, event: &AgentEvent<'_>) -> Result<(), Fault>;

    /// The number of events without an effect so far, for the log.
    fn ignored(&self) -> u64 {
        0
    }

    /// True once the end of the turn was emitted.
    fn has_ended(&self) -> bool {
        false
    }
}

/// One turn with an agent. See the [module](self) for the order of the calls, and `docs/extending/protocol.md` for the
/// methods that an agent needs: [`next`](Self::next), [`on_frame`](Self::on_frame) and [`on_body`](Self::on_body) are
/// required, and all others have defaults.
pub trait AgentTurn: Send + 'static {
    /// Returns the first step, and the next step after each answer, failure or pause. `now`: milliseconds since the
    /// epoch.
    ///
    /// # Errors
    /// The turn cannot continue, and fails with this fault.
    fn next(&mut self, now: Millis) -> Result<Next, Fault>;

    /// Reads the document of a [`Purpose::Lookup`] or [`Purpose::Published`] request, or the reason for its absence. By
    /// default a missing document ends the turn.
    ///
    /// # Errors
    /// The turn cannot continue without the document, and fails with this fault.
    fn on_lookup(&mut self, answer: Result<&[u8], &Fault>) -> Result<(), Fault> {
        answer.map(|_| ()).map_err(Clone::clone)
    }

    /// Receives the link after [`Next::Connect`]. If the link cannot be opened, the gateway calls
    /// [`on_failure`](Self::on_failure) instead.
    ///
    /// # Errors
    /// The turn cannot use the link, for example because the agent has lost the conversation. The turn fails with this
    /// fault.
    fn on_link(&mut self, link: &LinkInfo) -> Result<(), Fault> {
        let _ = link;
        Ok(())
    }

    /// Reads one frame of an event stream. An end mark such as `[DONE]` is a frame.
    ///
    /// # Errors
    /// The frame is not in the agent's protocol, or the sink returned a fault. The turn fails.
    fn on_frame(&mut self, frame: sse::Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault>;

    /// Called when all frames that have arrived so far were read. For turns that wait for a frame which may never
    /// arrive, because a server keeps the connection open after the end of its answer.
    ///
    /// # Errors
    /// As [`on_frame`](Self::on_frame).
    fn on_frames_read(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let _ = sink;
        Ok(())
    }

    /// True if the turn does not need the rest of the current answer, which may never end. The gateway then closes the
    /// answer as if it had ended, calls [`on_end`](Self::on_end) and then [`next`](Self::next). Checked when all frames
    /// that have arrived were read.
    fn leaves_answer(&self) -> bool {
        false
    }

    /// Reads an answer that arrived as one JSON body. [`on_end`](Self::on_end) follows.
    ///
    /// # Errors
    /// The body is not in the agent's protocol, or the sink returned a fault. The turn fails.
    fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault>;

    /// The answer to a [`Purpose::Ask`] request is complete. A turn that held events back emits them now.
    ///
    /// # Errors
    /// The held data is not in the agent's protocol, or the sink returned a fault. The turn fails.
    fn on_end(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let _ = sink;
        Ok(())
    }

    /// A [`Purpose::Ask`] request failed before its answer began: the agent refused it, or could not be reached. Also
    /// called if a link could not be opened, and by default for an answer that broke off ([`on_cut`](Self::on_cut)).
    ///
    /// # Errors
    /// The fault, which ends the turn. `Ok`: the turn continues with the step that [`next`](Self::next) returns.
    fn on_failure(&mut self, fault: Fault) -> Result<(), Fault> {
        Err(fault)
    }

    /// The turn failed after its first answer had begun: the connection broke, a timeout expired, or a later request
    /// failed and [`on_failure`](Self::on_failure) returned its fault. For turns that can end with the received part,
    /// and for turns that hold events back, which they emit now. By default calls [`on_failure`](Self::on_failure).
    ///
    /// # Errors
    /// As [`on_failure`](Self::on_failure).
    fn on_cut(&mut self, fault: Fault, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let _ = sink;
        self.on_failure(fault)
    }

    /// The fault for an answer with an error status. By default determined by the status alone.
    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        refusal.to_fault()
    }

    /// The request that stops the agent, with the ids that the turn has received so far. `None`: it is enough to close
    /// the connection, or an id is not known yet ([`cancels_once_known`](Self::cancels_once_known)).
    fn cancel(&self) -> Option<HttpRequest> {
        None
    }

    /// The messages to the agent's link that stop the agent. Used if [`cancel`](Self::cancel) has no request. The
    /// gateway reads no answer to them.
    fn cancel_messages(&self) -> Option<LinkMessages> {
        None
    }

    /// True while [`cancel`](Self::cancel) needs an id that the next frames contain. The gateway then continues to read
    /// for at most two seconds, discards the events, and calls `cancel` again after each piece of the answer.
    fn cancels_once_known(&self) -> bool {
        false
    }

    /// Reads the answer to the request from [`cancel`](Self::cancel). `Some`: the agent refused and continues to work;
    /// a clause with the reason. `None`: the status determines whether the agent refused.
    fn cancel_refused(&self, status: u16, body: &[u8]) -> Option<String> {
        let _ = (status, body);
        None
    }

    /// True if the turn needs the whole history in its input, because the agent has forgotten the conversation that the
    /// turn continues, or cannot continue it. Checked before the first request, and after a refusal that arrived before
    /// any event. The gateway then makes a new turn with the history in the input, at most once per turn.
    fn needs_history(&self) -> bool {
        false
    }

    /// The content of the request that the agent did not receive, and the content of its answer that a run cannot
    /// contain. Read once, at the end of the turn.
    fn losses(&self) -> &[Loss] {
        &[]
    }

    /// The connector's new state, for the next turn of this session and user ([`TurnRequest::session_state`]). `None`:
    /// the state is unchanged.
    fn session_state(&self) -> Option<Json> {
        None
    }
}

/// An answer with an error status.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The body, or its first 64 KiB.
    pub body: &'a [u8],
    /// The pause before a retry, from the header `retry-after`.
    pub retry_after: Option<Duration>,
}

impl Refusal<'_> {
    /// The fault that the status alone determines. The body becomes its detail, for the log.
    #[must_use]
    pub fn to_fault(&self) -> Fault {
        let kind = error_class::of_status(self.status);
        let message = error_class::sentence(kind, Some(self.status));
        let mut fault = Fault::new(kind, message).with_detail(String::from_utf8_lossy(self.body));
        fault.upstream_status = Some(self.status);
        fault.retry_after = self.retry_after;
        fault
    }

    /// Whether clients may see the body: only with a status that judges *their* request. All other statuses judge the
    /// gateway's request (its URL, its credentials) or the agent's own state.
    #[must_use]
    pub const fn is_about_the_request(&self) -> bool {
        matches!(self.status, 400 | 409 | 413 | 415 | 422 | 429 | 451)
    }
}
