//! The client-facing half of a protocol: pure state machines, one per request.
//!
//! How the server drives an [`Exchange`]:
//!
//! ```text
//! decode ─► Call ─┬─► a stream:  begin  (encode | heartbeat)*  [interrupt]      until encode or pause returns Close
//!    │            ├─► a reply:   reply ─► Done
//!    │            │                    └► Call, and again                       (item lookups, then the run)
//!    └─ Fault ────┴─► a fault:   fail
//! ```
//!
//! Invariant: an exchange never blocks, reads no clock, generates no random numbers and opens no socket. The same steps
//! always produce the same bytes, so a broken stream is resumed by encoding the recorded steps again.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

pub use crate::auth_scheme::AuthScheme;
use crate::call::{AgentCard, Call, Notice, Reply, RunView};
use crate::capability::ClientCapabilities;
use crate::console::ConsoleSupport;
use crate::event::Millis;
use crate::fault::{Fault, FaultKind};
use crate::id::RunId;
use crate::loss::Loss;
pub use crate::media_types::{MediaTypes, is_json};
pub use crate::method::Method;
use crate::out::{Head, Out};
use crate::owner::Owner;
use crate::push::PushNotifiers;
use crate::seal::Sealer;
use crate::step::Step;

/// One client-facing protocol.
///
/// `examples/custom-adapter` is a complete adapter in a crate of its own. The minimum is a name, options, and a table
/// of endpoints with an [`Exchange`] each:
///
/// ```
/// use interlingua_core::{Endpoint, Exchange, Mount, Mounted, ProtocolAdapter};
/// # use interlingua_core::{Call, Fault, Out, Request};
///
/// /// `POST /ask`; see [`Exchange`] for an implementation.
/// struct Ask {
///     agent: String,
///     prefix: String,
/// }
/// # impl Exchange for Ask {
/// #     fn decode(&mut self, _: &Request<'_>) -> Result<Call, Fault> {
/// #         Ok(Call::Nothing)
/// #     }
/// #     fn fail(&mut self, _: &Fault, _: &mut Out) {}
/// # }
///
/// /// `options = { prefix = "> " }` in `gateway.toml`. Unknown keys are reported with their line and column.
/// #[derive(Clone, Default, serde::Deserialize, schemars::JsonSchema)]
/// #[serde(default, deny_unknown_fields)]
/// struct Options {
///     prefix: String,
/// }
///
/// struct Lines;
///
/// impl ProtocolAdapter for Lines {
///     const NAME: &'static str = "lines";
///     type Options = Options;
///
///     fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
///         let agent = mount.only_agent().ok_or("a route serves one agent")?.name.clone();
///         let ask = move || Ask { agent: agent.clone(), prefix: options.prefix.clone() };
///
///         let endpoint = Endpoint::post_text("/ask", ask.clone());
///         // The fallback serves unknown paths and wrong methods: only `decode` and `fail` are called.
///         Ok(Mounted::new(vec![endpoint], Box::new(move || Box::new(ask()))))
///     }
/// }
///
/// let agent = interlingua_core::call::AgentCard { name: "demo".to_owned(), ..Default::default() };
/// let mount = Mount {
///     path: "/lines".to_owned(),
///     agents: vec![std::sync::Arc::new(agent)],
///     public_url: None,
///     schemes: Vec::new(),
/// };
/// let mounted = Lines::mount(&mount, Options::default())?;
/// assert_eq!(mounted.endpoints[0].path, "/ask");
/// # Ok::<(), String>(())
/// ```
pub trait ProtocolAdapter: 'static {
    /// The protocol's name in `gateway.toml`.
    const NAME: &'static str;
    /// The protocol's own settings of a route: `options = { … }`.
    type Options: DeserializeOwned + JsonSchema + Default + Send + Sync + 'static;
    /// Builds the endpoints, with paths relative to the mount point.
    ///
    /// # Errors
    /// A message for the operator if the protocol cannot be mounted this way.
    fn mount(mount: &Mount, options: Self::Options) -> Result<Mounted, String>;
    /// The protocol's abilities towards its clients, with these options. By default it streams text.
    #[must_use]
    fn capabilities(options: &Self::Options) -> ClientCapabilities {
        let _ = options;
        ClientCapabilities::default()
    }
    /// JSON Schema of the options, for `interlingua schema`. Doc comments of the options become descriptions.
    #[must_use]
    fn options_schema() -> serde_json::Value {
        crate::options::schema::<Self::Options>()
    }
}

/// Where a protocol is mounted, and for which agents.
#[derive(Clone, Debug)]
pub struct Mount {
    /// The mount point, without a trailing slash; empty for the root.
    pub path: String,
    /// The route's agents; exactly one if the path contains `{agent}`. Never empty.
    pub agents: Vec<Arc<AgentCard>>,
    /// The URL of the mount point as clients see it, if configured.
    pub public_url: Option<String>,
    /// The ways in which callers authenticate. Empty: callers are anonymous, and the adapter offers nothing that
    /// requires authentication.
    pub schemes: Vec<AuthScheme>,
}

impl Mount {
    /// The agent of a route that serves exactly one.
    #[must_use]
    pub fn only_agent(&self) -> Option<&AgentCard> {
        if let [agent] = self.agents.as_slice() { Some(agent) } else { None }
    }

    /// True if the route authenticates callers.
    #[must_use]
    pub fn authenticates(&self) -> bool {
        !self.schemes.is_empty()
    }
}

/// A mounted protocol.
pub struct Mounted {
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Handles every request below the mount point that matches no endpoint: unknown paths, wrong methods. It decodes
    /// the request only to return the error in the protocol's format.
    pub fallback: Open,
    /// The URL the protocol announces to clients, for example in agent cards. `None`: it announces none.
    pub announced_url: Option<AnnouncedUrl>,
    /// Maximum request body in bytes. `None`: the server's setting.
    pub max_body: Option<usize>,
    /// CORS headers, for origins the route allows.
    pub cors: Cors,
    /// Rules for the runs that are started here.
    pub runs: RunRules,
    /// Warnings for the operator at startup: settings that cannot take effect.
    pub warnings: Vec<String>,
    /// Support of the protocol in the operator's console.
    pub console: ConsoleSupport,
}

/// Rules for the runs of one route. By default a run is canceled when its client disconnects, nothing is pushed, and
/// the global settings determine how long it is kept.
#[derive(Default)]
pub struct RunRules {
    /// True: a run continues when its client disconnects, unless the route sets `on_disconnect`.
    pub detaches: bool,
    /// Push delivery; `None` if the protocol has none.
    pub push: Option<PushNotifiers>,
    /// How long the runs are kept. `None`: only the global settings apply.
    pub retention: Option<RunRetention>,
}

/// How long the runs of one route are kept. The global settings remain upper bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRetention {
    /// How long a run is kept after its last change once it has ended.
    pub ended_ttl: Duration,
    /// How long a run may wait before it is canceled.
    pub waiting_ttl: Duration,
    /// Maximum number of runs per owner on the route. Beyond it, the runs that ended first are deleted; active runs are
    /// kept.
    pub max_runs: u64,
}

impl Mounted {
    /// Endpoints and a fallback exchange, without any optional feature.
    #[must_use]
    pub fn new(endpoints: Vec<Endpoint>, fallback: Open) -> Self {
        Self {
            endpoints,
            fallback,
            announced_url: None,
            max_body: None,
            cors: Cors::default(),
            runs: RunRules::default(),
            warnings: Vec::new(),
            console: ConsoleSupport::default(),
        }
    }
}

/// The URL that a protocol announces to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnouncedUrl {
    /// This URL, for every client.
    Fixed(String),
    /// [`Request::base_url`], derived from each request.
    AsAsked,
}

/// The CORS headers of a protocol. Which origins may use them is the route's setting.
#[derive(Clone, Debug)]
pub struct Cors {
    /// Allowed request headers beyond the safelisted ones; `*` for any.
    pub allow_headers: Vec<String>,
    /// Response headers that scripts may read. If `x-ratelimit-*` headers are among them, answers have these headers,
    /// as answers of the `OpenAI` API do.
    pub expose_headers: Vec<String>,
    /// True allows any origin, for protocols whose options have their own equivalent of the route's `cors = ["*"]`.
    pub any_origin: bool,
}

impl Cors {
    /// True if answers have the `x-ratelimit-*` headers that clients of the `OpenAI` API read.
    #[must_use]
    pub fn exposes_openai_rate_limits(&self) -> bool {
        self.expose_headers.iter().any(|name| name.starts_with("x-ratelimit-"))
    }
}

impl Default for Cors {
    /// Any request header, and the response headers that every protocol sends.
    fn default() -> Self {
        Self {
            // `*` does not cover `authorization`.
            allow_headers: vec!["*".to_owned(), "authorization".to_owned()],
            expose_headers: ["retry-after", "x-request-id", "ratelimit", "ratelimit-policy"]
                .map(str::to_owned)
                .to_vec(),
            any_origin: false,
        }
    }
}

/// The value of a request header; its name is in lower case.
pub type ReadHeader<'a> = dyn Fn(&str) -> Option<&'a str> + 'a;

/// Returns whether a request belongs to a protocol, judged by its headers.
pub type Recognizes = fn(&ReadHeader<'_>) -> bool;

/// Creates an exchange.
pub type Open = Box<dyn Fn() -> Box<dyn Exchange> + Send + Sync>;

/// A constructor of exchanges that share the state of a mounted route, for an [`Endpoint`].
pub fn sharing<S: Send + Sync + 'static, E: Exchange>(
    state: &Arc<S>,
    make: impl Fn(Arc<S>) -> E + Send + Sync + 'static,
) -> impl Fn() -> E + Send + Sync + 'static {
    let state = Arc::clone(state);
    move || make(Arc::clone(&state))
}

/// One endpoint of a protocol.
pub struct Endpoint {
    /// The HTTP method.
    pub method: Method,
    /// The path below the mount point. A segment may have one parameter, with a literal prefix or suffix: `{id}`,
    /// `{id}:cancel`. The last segment may be `{*rest}`, which is the rest of the path and never empty. If several
    /// paths match a request, the most specific one is used, independent of their order. `""` is the mount point
    /// itself, with and without a trailing slash.
    pub path: &'static str,
    /// Also serve the path at the root of the host if the route is the first of its protocol: well-known paths.
    pub at_root: bool,
    /// Also serve the path in front of the mount point, at the root of the host: `/.well-known/x` of a route at `/mcp`
    /// is also `/.well-known/x/mcp` (as in RFC 9728, section 3.1).
    pub before_mount: bool,
    /// Distinguishes requests of this protocol from requests of another protocol that has the same endpoint at the same
    /// path. `None`: they cannot be distinguished, and the first of the routes in the configuration answers.
    pub recognizes: Option<Recognizes>,
    /// The name of a response that several protocols share, such as `models`. If protocols at the same path have
    /// endpoints of the same name, the first of their routes in the configuration answers, and the configuration check
    /// reports no conflict. `None`: the response belongs to this protocol alone.
    pub common: Option<&'static str>,
    /// Requires no credentials even if the route does, for example for agent cards.
    pub public: bool,
    /// Creates the exchange for a request.
    pub open: Open,
    /// Accept WebSocket upgrades under these rules. `None`: the endpoint serves no WebSockets.
    pub websocket: Option<WebSocketRules>,
    /// Refuse requests over HTTP/1.1 with 505, for protocols whose responses need trailers.
    pub http2_only: bool,
    /// Accepted body types. A body of another type, or of none, is refused unread, because web pages can send such
    /// requests to any address without a CORS preflight. A request without a body needs no type.
    pub reads: MediaTypes,
}

impl Endpoint {
    /// An endpoint for JSON requests that requires credentials.
    #[must_use]
    pub fn new<E: Exchange>(method: Method, path: &'static str, open: impl Fn() -> E + Send + Sync + 'static) -> Self {
        Self {
            method,
            path,
            at_root: false,
            before_mount: false,
            recognizes: None,
            common: None,
            public: false,
            open: Box::new(move || Box::new(open())),
            websocket: None,
            http2_only: false,
            reads: MediaTypes::JSON,
        }
    }

    /// An endpoint for GET, which also answers HEAD.
    #[must_use]
    pub fn get<E: Exchange>(path: &'static str, open: impl Fn() -> E + Send + Sync + 'static) -> Self {
        Self::new(Method::Get, path, open)
    }

    /// An endpoint for POST that reads JSON; `reads` changes that.
    #[must_use]
    pub fn post<E: Exchange>(path: &'static str, open: impl Fn() -> E + Send + Sync + 'static) -> Self {
        Self::new(Method::Post, path, open)
    }

    /// An endpoint for POST that reads plain text.
    #[must_use]
    pub fn post_text<E: Exchange>(path: &'static str, open: impl Fn() -> E + Send + Sync + 'static) -> Self {
        Self { reads: MediaTypes { exact: &["text/plain"], json_suffix: false }, ..Self::post(path, open) }
    }

    /// A DELETE endpoint.
    #[must_use]
    pub fn delete<E: Exchange>(path: &'static str, open: impl Fn() -> E + Send + Sync + 'static) -> Self {
        Self::new(Method::Delete, path, open)
    }
}

/// The rules for the WebSockets of an endpoint.
pub struct WebSocketRules {
    /// The maximum number of messages that are answered at the same time. One more is queued; further ones fail with
    /// [`crate::FaultKind::RateLimited`]. 1: messages are answered in order.
    pub parallel: usize,
    /// The gateway closes a connection that is older. `None`: connections have no maximum age.
    pub max_lifetime: Option<Duration>,
    /// Makes the state of a new connection. `None`: connections have none, and [`Endpoint::open`] opens each
    /// exchange.
    pub connect: Option<Connect>,
}

/// Makes the state of a new connection.
pub type Connect = Box<dyn Fn() -> Box<dyn Connection> + Send + Sync>;

/// The state of one connection, which the exchanges of its messages share: what the client has negotiated, and the
/// requests of the gateway that the client has not answered yet. Exists until the connection is closed.
pub trait Connection: Send + 'static {
    /// Opens the exchange of the next message. Exchanges of one connection run at the same time, up to
    /// [`WebSocketRules::parallel`]; their lines are not mixed. Messages are opened in the order in which they arrive,
    /// except that a queued message is opened when another answer ends, and so after messages that were refused
    /// meanwhile.
    fn open(&self) -> Box<dyn Exchange>;
}

impl Default for WebSocketRules {
    /// One message after the other, for at most an hour.
    fn default() -> Self {
        Self { parallel: 1, max_lifetime: Some(Duration::from_secs(60 * 60)), connect: None }
    }
}

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The owner of the runs and sessions the caller sees. [`Owner::anonymous`] without authentication.
    pub owner: Owner,
    /// True if the caller proved its identity.
    pub authenticated: bool,
}

/// A request, with the current time and a new id, which a pure function cannot obtain by itself.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The HTTP method.
    pub method: &'a str,
    /// The path, decoded.
    pub path: &'a str,
    /// The values of the path's `{name}` segments, decoded.
    pub params: &'a [(String, String)],
    /// The query string, not decoded.
    pub query: &'a str,
    /// Headers, names in lower case. Bytes of a value that are not UTF-8 are replaced, so such a header is present but
    /// matches no known value.
    pub headers: &'a [(&'a str, &'a str)],
    /// Empty if the request has none. At most `max_body`.
    pub body: &'a [u8],
    /// The URL of the mount point as this client sees it, without a trailing slash.
    pub base_url: &'a str,
    /// On whose behalf the request is made.
    pub caller: &'a Caller,
    /// The current time.
    pub now: Millis,
    /// An unused id, different for every request.
    pub new_id: RunId,
    /// Seals data that the client keeps and sends back.
    pub sealer: &'a Sealer,
}

impl<'a> Request<'a> {
    /// The value of a header. `name` is in lower case. `None`: the request does not have it.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// The value of the path's `{name}` segment, decoded. Empty if the path has no such segment.
    #[must_use]
    pub fn param(&self, name: &str) -> &'a str {
        self.params.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }

    /// The last value of a query parameter, decoded. `None`: the query does not have it.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<Cow<'a, str>> {
        form_urlencoded::parse(self.query.as_bytes()).filter(|(known, _)| known == name).last().map(|(_, value)| value)
    }

    /// All query parameters, decoded, in the order of the query.
    pub fn queries(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
        form_urlencoded::parse(self.query.as_bytes())
    }

    /// The body as text.
    ///
    /// # Errors
    /// [`FaultKind::Malformed`] if the body is not UTF-8.
    pub fn text(&self) -> Result<&'a str, Fault> {
        std::str::from_utf8(self.body)
            .map_err(|error| Fault::new(FaultKind::Malformed, format!("the body is not UTF-8: {error}")))
    }

    /// The media type of the body, without parameters, in lower case. Empty if the request has none.
    #[must_use]
    pub fn media_type(&self) -> String {
        let value = self.header("content-type").unwrap_or("");
        value.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
    }
}

/// The step of an exchange after a reply.
#[derive(Debug)]
pub enum Next {
    /// The response is complete.
    Done,
    /// Another operation is needed first.
    Call(Call),
}

/// The state of a streamed response after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continue.
    More,
    /// The response is complete, even if the run continues.
    Close,
    /// The response is complete and contains the whole run, so that no later request needs to find the run.
    Forget,
    /// The response continues with the call that [`Exchange::next_call`] returns: with the run that answers this one,
    /// with the next run of a session, or with [`Call::Listen`]. The run of this stream continues without it.
    Next,
}

/// One request and its response, in the client's protocol.
///
/// Each exchange implements `decode` and `fail`. Further methods, by what it does:
///
/// | the exchange | implements |
/// |---|---|
/// | answers with a whole reply | `reply`, and `on_not_found` if a lookup may find nothing |
/// | streams a run | `encode`, and `head` unless it is an event stream |
/// | streams runs that wait for answers | `pause` |
/// | shows a run from its current state on ([`Call::Attach`]) | `begin` |
/// | ends a broken stream with an error of the protocol | `interrupt` |
/// | keeps quiet streams alive otherwise than with SSE comments | `heartbeat` |
/// | has deadlines, or delays output | `wake_at`, `on_time` |
/// | streams several runs, or events of a session | `next_call`, `on_notice` |
/// | can be resumed by a browser's `EventSource` | `resumes` |
/// | refuses requests in another form than `decode` would choose | `read_head` |
/// | cannot express everything | `losses` |
///
/// The following exchange runs an agent and writes each delta as one line of JSON. It needs no server to be tested:
///
/// ```
/// use interlingua_core::model::{AgentRequest, ContentType, Message, MessageType, Role};
/// use interlingua_core::out::Head;
/// use interlingua_core::run::MessageStart;
/// use interlingua_core::{
///     Call, End, Event, Exchange, Fault, Flow, Out, Record, Request, Run, RunCall, RunId, Step,
/// };
///
/// struct Ask {
///     agent: String,
/// }
///
/// impl Exchange for Ask {
///     fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
///         let input = vec![Message::user(request.text()?)].into();
///         let request = AgentRequest { input, ..AgentRequest::default() };
///
///         Ok(Call::Run(Box::new(RunCall::new(self.agent.clone(), request))))
///     }
///
///     fn head(&mut self, head: &mut Head) {
///         head.set("content-type", "application/x-ndjson");
///     }
///
///     fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
///         match step.event {
///             Event::ContentDelta { .. } => {
///                 out.write_json(step.delta());
///                 out.write_raw(b"\n");
///             }
///             Event::RunFinished { .. } => return Flow::Close,
///             _ => {}
///         }
///         Flow::More
///     }
///
///     fn fail(&mut self, fault: &Fault, out: &mut Out) {
///         out.status(fault.kind.status());
///         out.json(&serde_json::json!({ "error": fault.message }));
///     }
/// }
///
/// // A recorded run: the agent answers with two deltas.
/// let id = RunId::parse("run_0198f2a07b1c7aaabbbb0123456789ab").expect("a run id");
/// let mut record = Record::new(Run::new(id, "demo", "session-1", 0));
/// record.start_turn(vec![Message::user("hi")]);
/// let message = record.start_message(MessageStart::new("", MessageType::Message, Role::Assistant));
/// let content = record.start_content(message, ContentType::Text, None);
/// record.push(message, content, "Hel");
/// record.push(message, content, "lo");
/// record.close(End::Completed, None);
///
/// let mut ask = Ask { agent: "demo".to_owned() };
/// let mut out = Out::new();
/// let flows: Vec<Flow> = record.steps(0).map(|step| ask.encode(step, &mut out)).collect();
/// assert_eq!(&out.body[..], b"\"Hel\"\n\"lo\"\n");
/// assert_eq!(flows.last(), Some(&Flow::Close));
/// ```
pub trait Exchange: Send + 'static {
    /// Decodes the request and stores whatever the response has to echo. Called first, once, unless `read_head` is
    /// called.
    ///
    /// # Errors
    /// The problem with the request; it is passed to `fail`.
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault>;

    /// Reads the head of a request that is refused before its body is read, so that `fail`, which follows, writes the
    /// refusal in the form that the client expects. The body of `request` is empty. By default decodes it and ignores
    /// the result.
    fn read_head(&mut self, request: &Request<'_>) {
        let _ = self.decode(request);
    }

    /// Writes a complete reply. Needed by exchanges whose calls have replies: all but those that stream every answer.
    /// By default fails with [`Reply::to_fault`].
    ///
    /// # Errors
    /// The reply cannot be expressed. The fault is passed to `fail`; anything written is dropped.
    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let _ = out;
        Err(reply.to_fault())
    }

    /// Called when a call fails with [`crate::FaultKind::NotFound`], for lookups of objects that may not exist. `Some`:
    /// the call to make instead. `None`: the fault is passed to `fail`.
    fn on_not_found(&mut self, fault: &Fault) -> Option<Call> {
        let _ = fault;
        None
    }

    /// Writes an error response: status, headers and body. For [`crate::FaultKind::Unauthenticated`] it may set
    /// `www-authenticate`; otherwise the gateway sets that header.
    fn fail(&mut self, fault: &Fault, out: &mut Out);

    /// Sets the head of a streamed response. The default is an SSE stream.
    fn head(&mut self, head: &mut Head) {
        head.set_event_stream();
    }

    /// True if the client named the last event that it has received. If the run has no later event, the response is
    /// 204, which stops a browser's `EventSource`; after an empty stream it would reconnect again and again.
    fn resumes(&self) -> bool {
        false
    }

    /// Begins a streamed response: at the run's first step or, for [`Call::Attach`], at the step after the given view.
    fn begin(&mut self, run: RunView<'_>, out: &mut Out) {
        let _ = (run, out);
    }

    /// Writes one step of a streamed response. Needed by exchanges whose calls open streams
    /// ([`crate::Delivery::Stream`], [`Call::Follow`], [`Call::Attach`]). By default ends the response without content.
    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        let _ = (step, out);
        Flow::Close
    }

    /// The call with which a streamed response continues, after [`Flow::Next`]. A stream begins as the first one did,
    /// with [`Exchange::begin`]; another reply is passed to [`Exchange::reply`] and written into the stream; a fault is
    /// passed to [`Exchange::interrupt`] and ends the stream. `None` ends the stream.
    fn next_call(&mut self) -> Option<Call> {
        None
    }

    /// Writes a notice into a stream that follows no run ([`Call::Listen`]).
    fn on_notice(&mut self, notice: Notice, out: &mut Out) -> Flow {
        let _ = (notice, out);
        Flow::More
    }

    /// Called when all steps are written and the run is between two turns: the next turn may begin in an hour, or
    /// never. Protocols in which a run does not wait write the end of the last turn and close.
    fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        let _ = (run, out);
        Flow::More
    }

    /// Ends a streamed response early for a reason outside the run: a shutdown, revoked credentials.
    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        let _ = (fault, out);
    }

    /// True if a client whose stream is cut at a shutdown resumes it at another gateway, so that its stream ends without
    /// [`Exchange::interrupt`] if other gateways show the rest of the run.
    fn is_resumed_elsewhere(&self) -> bool {
        true
    }

    /// Writes a keep-alive into a quiet stream.
    fn heartbeat(&mut self, out: &mut Out) {
        out.comment("keep-alive");
    }

    /// The time at which a streamed response needs [`Exchange::on_time`], for deadlines of the protocol and for output
    /// that is delayed. `None`: never. Read whenever the stream has been written to.
    fn wake_at(&self) -> Option<Millis> {
        None
    }

    /// The time of [`Exchange::wake_at`] has come. May write to the stream. Called at most once in a millisecond.
    fn on_time(&mut self, now: Millis, out: &mut Out) -> Flow {
        let _ = (now, out);
        Flow::More
    }

    /// The content of the request that the agent does not receive, and the content of the answer that this response
    /// does not show. Read once, when the response is complete or its client has disconnected.
    fn losses(&self) -> &[Loss] {
        &[]
    }

    /// The run that the request continues from. `None`: it names no run. Called after the request has failed: a
    /// connection that kept that run for its client then discards it.
    fn builds_on(&self) -> Option<RunId> {
        None
    }

    /// The partition of the owner's data that the request uses, such as an A2A tenant. `None`: no partition. Called
    /// after `decode`.
    fn partition(&self) -> Option<&str> {
        None
    }
}
