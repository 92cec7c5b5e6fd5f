//! The upstream-facing half of a protocol: a turn with an agent, as a pure state machine.
//!
//! A [`Connector`] knows one agent. For each turn it makes an [`AgentTurn`], which says what to send, reads what comes
//! back, and emits typed events ([`AgentEvent`]). The gateway sends, waits, counts time and retries; a turn only
//! decides. So a turn may need several requests: look the agent's card up, ask, poll, subscribe again after a cut,
//! cancel by an id it learned.
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
//! Once the sink has seen the end of the turn, nothing more is asked. A turn that is canceled gets `cancel` instead, at
//! any moment, and is dropped after it.
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

    /// Signs of servers that speak the protocol. Without them, only the operator can say that a server does.
    const SIGNS: ServerSigns = ServerSigns::NONE;

    /// Its own section of an agent: `upstream.options = { … }`.
    type Options: DeserializeOwned + JsonSchema + Default + Send + Sync + 'static;

    /// A connector for one agent.
    ///
    /// # Errors
    /// A sentence for the operator.
    fn connect(url: &str, options: Self::Options) -> Result<Box<dyn Connector>, String>;

    /// JSON Schema of the options, for `interlingua schema`. Doc comments of the options become descriptions.
    #[must_use]
    fn options_schema() -> serde_json::Value {
        crate::options::schema::<Self::Options>()
    }
}

/// Makes turns with one agent.
pub trait Connector: Send + Sync + 'static {
    /// What the agent takes and gives, as far as the protocol and the options say.
    fn capabilities(&self) -> UpstreamCapabilities;

    /// A turn with the agent.
    ///
    /// # Errors
    /// If the request cannot be expressed in this protocol.
    fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault>;

    /// What an operator should know about the options: sentences that name the setting, each with the remedy in a
    /// second line if there is one. Shown by `check` and at startup, at the setting that is named first.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The lookup of the document that the agent's server publishes about it, if the options name its URL. `None`: it is
    /// searched at the well-known places ([`crate::well_known`]).
    fn document_lookup(&self) -> Option<HttpRequest> {
        None
    }

    /// The protocol's part of a new connection that outlasts turns. `None`: the protocol has none, and its turns send
    /// requests.
    fn link(&self) -> Option<Box<dyn AgentLink>> {
        None
    }

    /// Asks the agent what it is, without running it.
    fn probe(&self) -> Box<dyn AgentProbe> {
        Box::new(NoProbe::default())
    }
}

/// What one turn asks of an agent. A turn copies what it needs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TurnRequest<'a> {
    /// The request, with `id`, `session_id` and `user_id` set. Its input holds the history if
    /// [`UpstreamCapabilities::history`] asks for it.
    pub request: &'a AgentRequest,
    /// What the connector stored for this session and user ([`AgentTurn::session_state`]). `null` at first.
    pub session_state: &'a Json,
    /// Pending items that the input answers. The answers stand in the input in canonical form.
    pub answered: &'a [Pending],
    /// Where the earlier turns stand in the input. Empty: the input has only what is new, and the agent remembers the
    /// rest. Instructions stand before it, the new messages after it.
    pub history: Range<usize>,
    /// How many turns of this run came before: with the request's id, this names a turn.
    pub turn: u32,
    /// An id for each message of the input that stays the same in later turns. Empty unless
    /// [`UpstreamCapabilities::message_ids`].
    pub message_ids: &'a [String],
    /// Some client of this agent reads events of the agent's protocol that the model has no word for.
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

    /// With the earlier turns in this part of the input.
    #[must_use]
    pub fn with_history(mut self, history: Range<usize>) -> Self {
        self.history = history;
        self
    }

    /// As a later turn of its run.
    #[must_use]
    pub fn with_turn(mut self, turn: u32) -> Self {
        self.turn = turn;
        self
    }

    /// With an id for each message of the input.
    #[must_use]
    pub fn with_message_ids(mut self, ids: &'a [String]) -> Self {
        self.message_ids = ids;
        self
    }

    /// For clients that read events of the agent's protocol, or for none.
    #[must_use]
    pub fn with_protocol_events(mut self, are_read: bool) -> Self {
        self.protocol_events = are_read;
        self
    }

    /// On behalf of a user whom a client named, or of one whose id the gateway made.
    #[must_use]
    pub fn with_user_named(mut self, is_named: bool) -> Self {
        self.names_user = is_named;
        self
    }

    /// To the agent of this name.
    #[must_use]
    pub fn with_agent(mut self, agent: &'a str) -> Self {
        self.agent = agent;
        self
    }

    /// The messages that the agent has not seen, each with its place in the input: all but the history.
    pub fn new_messages(&self) -> impl Iterator<Item = (usize, &'a Message)> {
        let history = self.history.clone();
        self.request.input.iter().enumerate().filter(move |(place, _)| !history.contains(place))
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this, and hand the turn what comes back.
    Send(HttpRequest),
    /// Call [`AgentTurn::next`] again after this pause.
    Wait(Duration),
    /// Open the agent's link ([`Connector::link`]), or use the open one, and hand it to [`AgentTurn::on_link`].
    Connect,
    /// Write these messages to the link, and hand the turn the messages of the topic, each as a frame, until the turn
    /// [leaves](AgentTurn::leaves_answer) or has ended. Messages that are not read by then are kept for the next turn.
    Converse(LinkMessages),
    /// Nothing. If the sink has not seen the end of the turn, the agent broke off.
    Finished,
}

/// Takes the events of a turn.
pub trait EventSink {
    /// Takes one event.
    ///
    /// # Errors
    /// If the run must not grow any further. The turn passes the fault on.
    fn emit(&mut self, event: &AgentEvent<'_>) -> Result<(), Fault>;

    /// How many events had no effect so far.
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
    /// What to do first, and after each answer, failure or pause. `now`: milliseconds since the epoch.
    ///
    /// # Errors
    /// If the turn cannot go on. It then fails.
    fn next(&mut self, now: Millis) -> Result<Next, Fault>;

    /// Reads a document that was looked up, or why there is none.
    ///
    /// # Errors
    /// If the turn cannot go on without it.
    fn on_lookup(&mut self, answer: Result<&[u8], &Fault>) -> Result<(), Fault> {
        answer.map(|_| ()).map_err(Clone::clone)
    }

    /// Takes the link that [`Next::Connect`] asked for. [`on_failure`](Self::on_failure) is called instead if it cannot
    /// be opened.
    ///
    /// # Errors
    /// If the turn cannot use it: the agent has lost what the turn continues, for example.
    fn on_link(&mut self, link: &LinkInfo) -> Result<(), Fault> {
        let _ = link;
        Ok(())
    }

    /// Reads one frame of an event stream. An end mark such as `[DONE]` is a frame.
    ///
    /// # Errors
    /// If it cannot be understood. The turn then fails.
    fn on_frame(&mut self, frame: sse::Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault>;

    /// The frames that have arrived so far were read. For turns that wait for a frame which may never come, because a
    /// server keeps the connection open after the end of its answer.
    ///
    /// # Errors
    /// As [`on_frame`](Self::on_frame).
    fn on_frames_read(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let _ = sink;
        Ok(())
    }

    /// The rest of the answer that is being read is not wanted, and may never end: the gateway closes it as if it had
    /// ended, calls [`on_end`](Self::on_end), and goes on with [`next`](Self::next). Asked once the frames that have
    /// arrived were read.
    fn leaves_answer(&self) -> bool {
        false
    }

    /// Reads an answer that came as one JSON body.
    ///
    /// # Errors
    /// If it cannot be understood.
    fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault>;

    /// The answer to an [`Purpose::Ask`] is complete. For turns that hold something back.
    ///
    /// # Errors
    /// If what was held back cannot be understood.
    fn on_end(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let _ = sink;
        Ok(())
    }

    /// An [`Purpose::Ask`] failed: refused, unreachable, or broken off in the middle.
    ///
    /// # Errors
    /// The fault, unless the turn knows what to do about it: then [`next`](Self::next) says what.
    fn on_failure(&mut self, fault: Fault) -> Result<(), Fault> {
        Err(fault)
    }

    /// The answer to an [`Purpose::Ask`] broke off in the middle: a failure of which something came before. For turns
    /// that have all they need, or hold something back.
    ///
    /// # Errors
    /// As [`on_failure`](Self::on_failure), which is asked by default.
    fn on_cut(&mut self, fault: Fault, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let _ = sink;
        self.on_failure(fault)
    }

    /// The fault in an answer whose status is no success. By default by the status alone.
    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        refusal.to_fault()
    }

    /// What has to be sent so that the agent stops, besides closing the connection. Most need nothing. Called with what
    /// the turn has learned so far.
    fn cancel(&self) -> Option<HttpRequest> {
        None
    }

    /// The messages to the agent's link that stop the agent. Used if [`cancel`](Self::cancel) has no request. The
    /// gateway reads no answer to them.
    fn cancel_messages(&self) -> Option<LinkMessages> {
        None
    }

    /// True while a cancel has to wait for an id that comes with the next frames. The gateway then reads on for a
    /// moment, discards what it reads, and asks [`cancel`](Self::cancel) again after each frame.
    fn cancels_once_known(&self) -> bool {
        false
    }

    /// What the agent made of the request from [`cancel`](Self::cancel). `Some`: a clause that says why it goes on.
    fn cancel_refused(&self, status: u16, body: &[u8]) -> Option<String> {
        let _ = (status, body);
        None
    }

    /// The turn can be taken only with the whole history: its agent has forgotten what it is asked to go on from, or
    /// what it remembers cannot be gone on from. Asked before the first request, and after a refusal that came before
    /// any event. Once in a turn, the gateway then makes a new one with the history in the input.
    fn needs_history(&self) -> bool {
        false
    }

    /// What of the request the agent was not sent, and what of its answer has no place in a run. Read once, at the end.
    fn losses(&self) -> &[Loss] {
        &[]
    }

    /// What the connector wants back at the next turn of this session and user. None: nothing new.
    fn session_state(&self) -> Option<Json> {
        None
    }
}

/// An answer with a status that is no success.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The body, cut at a bound.
    pub body: &'a [u8],
    /// From the header `retry-after`.
    pub retry_after: Option<Duration>,
}

impl Refusal<'_> {
    /// The fault by the status alone. The body goes to the log.
    #[must_use]
    pub fn to_fault(&self) -> Fault {
        let kind = error_class::of_status(self.status);
        let message = error_class::sentence(kind, Some(self.status));
        let mut fault = Fault::new(kind, message).with_detail(String::from_utf8_lossy(self.body));
        fault.upstream_status = Some(self.status);
        fault.retry_after = self.retry_after;
        fault
    }

    /// Whether the body may be shown to clients: only with a status that judges *their* request. All others judge the
    /// gateway's request (its URL, its credentials) or the agent's own state.
    #[must_use]
    pub const fn is_about_the_request(&self) -> bool {
        matches!(self.status, 400 | 409 | 413 | 415 | 422 | 429 | 451)
    }
}
