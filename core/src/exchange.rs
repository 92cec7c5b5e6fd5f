//! The client-facing half of a protocol: pure state machines, one for each request and its answer.
//!
//! How the server drives an [`Exchange`]:
//!
//! ```text
//! decode ─► Call ─┬─► a stream:  begin  (encode | heartbeat)*  [interrupt]      until encode or pause says Close
//!    │            ├─► a reply:   reply ─► Done
//!    │            │                    └► Call, and round again                  (item lookups, then the run)
//!    └─ Fault ────┴─► a fault:   fail
//! ```
//!
//! Invariant: an exchange never waits, reads no clock, draws no random number, opens no socket. The same steps always
//! make the same bytes, so a broken stream is resumed by encoding the recorded steps again.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::call::{AgentCard, Call, Reply, RunView};
use crate::event::{Millis, Step};
use crate::fault::Fault;
use crate::id::RunId;
use crate::out::{Head, Out};
use crate::owner::Owner;
use crate::push::PushNotifiers;

/// One client-facing protocol.
pub trait ProtocolAdapter: 'static {
    /// How `gateway.toml` names it.
    const NAME: &'static str;
    /// Its own section of a route: `options = { … }`.
    type Options: DeserializeOwned + Default + Send + Sync + 'static;
    /// Every endpoint it answers on, relative to where the operator mounts it.
    ///
    /// # Errors
    /// A sentence for the operator if it cannot be mounted so.
    fn mount(mount: &Mount, options: Self::Options) -> Result<Mounted, String>;
    /// JSON Schema of the options, for `interlingua schema`.
    #[must_use]
    fn options_schema() -> serde_json::Value {
        serde_json::json!({ "type": "object" })
    }
}

/// Where and for whom a protocol is mounted.
#[derive(Clone, Debug)]
pub struct Mount {
    /// The path, without a slash at its end; empty for the root.
    pub path: String,
    /// The route's agents: one, if the path names `{agent}`. Never empty.
    pub agents: Vec<Arc<AgentCard>>,
    /// The URL of the mount as clients see it, where the configuration knows it.
    pub public_url: Option<String>,
    /// Whether callers can prove here who they are. Where not, nobody ever has: what needs that is not offered.
    pub authenticates: bool,
}

/// A protocol, mounted.
pub struct Mounted {
    /// What it answers on, more specific paths first.
    pub endpoints: Vec<Endpoint>,
    /// Answers whatever no endpoint answers below the mount: unknown paths, wrong methods. What it reads in the request
    /// only serves to refuse it in the right dialect.
    pub fallback: Open,
    /// Lines to paste into a shell, `{url}` standing for the mount's URL.
    pub curl: Vec<String>,
    /// The URL it tells clients to come to, if it tells one at all: cards.
    pub announced_url: Option<Announced>,
    /// The largest body it reads, in bytes. None: the server's setting.
    pub max_body: Option<usize>,
    /// Headers that web pages may use, where the route lets their origin in.
    pub cors: Cors,
    /// Lets pages of any origin in: how the options of some protocols spell the route's `cors = ["*"]`.
    pub any_origin: bool,
    /// What it delivers without being asked.
    pub push: Option<PushNotifiers>,
    /// How long runs begun here are kept. None: as long as all others.
    pub retention: Option<RunRetention>,
    /// What the operator should be warned of at the start: sentences about settings that cannot have their effect.
    pub warnings: Vec<String>,
}

/// How long the runs of one route are kept. What holds for all runs stays an upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRetention {
    /// For so long after its last change a run that has ended is found.
    pub ended_ttl: Duration,
    /// For so long a run may wait; then it is cancelled.
    pub waiting_ttl: Duration,
    /// So many runs each owner has on the route at most: beyond, those of theirs that ended first are forgotten. What has
    /// not ended is not.
    pub max_runs: u64,
}

impl Mounted {
    /// Endpoints, and an exchange for whatever no endpoint answers. Nothing else.
    #[must_use]
    pub fn new(endpoints: Vec<Endpoint>, stray: Open) -> Self {
        Self {
            endpoints,
            fallback: stray,
            curl: Vec::new(),
            announced_url: None,
            max_body: None,
            cors: Cors::default(),
            any_origin: false,
            push: None,
            retention: None,
            warnings: Vec::new(),
        }
    }
}

/// The URL of a mount as its protocol tells it to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announced {
    /// This one, whoever asks.
    Fixed(String),
    /// [`Request::base_url`]: made from what each request says.
    AsAsked,
}

/// The headers a protocol needs in a browser. Which origins may use them is the route's setting.
#[derive(Clone, Debug)]
pub struct Cors {
    /// Request headers besides the simple ones; `*` for any.
    pub allow_headers: Vec<String>,
    /// Response headers a script may read.
    pub expose_headers: Vec<String>,
}

impl Default for Cors {
    /// Any header of a request, and of an answer those that every protocol has.
    fn default() -> Self {
        Self {
            // The star does not cover `authorization`.
            allow_headers: vec!["*".to_owned(), "authorization".to_owned()],
            expose_headers: vec!["retry-after".to_owned(), "x-request-id".to_owned()],
        }
    }
}

/// The media types of bodies that an endpoint reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaTypes {
    /// In lower case, without parameters. The first one is named where a body has another or none.
    pub exact: &'static [&'static str],
    /// Every `application/…+json` as well.
    pub json_suffix: bool,
}

impl MediaTypes {
    /// JSON under any of its names.
    pub const JSON: Self = Self { exact: &["application/json"], json_suffix: true };

    /// Whether an endpoint reads bodies of this type, in lower case and without parameters.
    #[must_use]
    pub fn include(&self, media_type: &str) -> bool {
        self.exact.contains(&media_type) || (self.json_suffix && is_json_suffixed(media_type))
    }
}

/// Whether a media type is one of JSON.
#[must_use]
pub fn is_json(media_type: &str) -> bool {
    media_type == "application/json" || is_json_suffixed(media_type)
}

fn is_json_suffixed(media_type: &str) -> bool {
    media_type.starts_with("application/") && media_type.ends_with("+json")
}

/// Opens an exchange.
pub type Open = Box<dyn Fn() -> Box<dyn Exchange> + Send + Sync>;

/// An HTTP method an endpoint may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET, and HEAD with it.
    Get,
    /// POST
    Post,
    /// PUT
    Put,
    /// PATCH
    Patch,
    /// DELETE
    Delete,
}

impl Method {
    /// As HTTP spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// One row of a protocol's table.
pub struct Endpoint {
    /// The method.
    pub method: Method,
    /// The path below the mount, with `{name}` for a segment. `""` is the mount itself, without and with a slash.
    /// `{name:regex}` is understood too.
    pub path: &'static str,
    /// Also answers at the root of the host, if the route is the first of its protocol: well-known paths.
    pub at_root: bool,
    /// Needs no credentials, even if the route asks for them: cards.
    pub public: bool,
    /// Opens its exchange.
    pub open: Open,
    /// Takes WebSocket upgrades: each text frame is a request of its own, each frame written one message.
    pub websocket: bool,
    /// What bodies may be. A body of another type, or of none, is refused before it is read: web pages can send those
    /// to any address without being asked whether they may. A request without a body needs no type.
    pub reads: MediaTypes,
}

impl Endpoint {
    /// A row.
    #[must_use]
    pub fn new<E: Exchange>(method: Method, path: &'static str, open: impl Fn() -> E + Send + Sync + 'static) -> Self {
        Self {
            method,
            path,
            at_root: false,
            public: false,
            open: Box::new(move || Box::new(open())),
            websocket: false,
            reads: MediaTypes::JSON,
        }
    }

    /// Reads.
    #[must_use]
    pub fn get<E: Exchange>(path: &'static str, open: impl Fn() -> E + Send + Sync + 'static) -> Self {
        Self::new(Method::Get, path, open)
    }

    /// Asks.
    #[must_use]
    pub fn post<E: Exchange>(path: &'static str, open: impl Fn() -> E + Send + Sync + 'static) -> Self {
        Self::new(Method::Post, path, open)
    }

    /// Takes away.
    #[must_use]
    pub fn delete<E: Exchange>(path: &'static str, open: impl Fn() -> E + Send + Sync + 'static) -> Self {
        Self::new(Method::Delete, path, open)
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// To whom runs and sessions belong. [`Owner::anonymous`] without authentication.
    pub owner: Owner,
    /// Whether that was proved.
    pub authenticated: bool,
}

/// A request, and what a pure function must not fetch for itself: the time and a fresh id.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, decoded.
    pub path: &'a str,
    /// What stood in the path's `{name}`s, decoded.
    pub params: &'a [(String, String)],
    /// The query, as it came.
    pub query: &'a str,
    /// Headers, names in lower case. Bytes of a value that are no UTF-8 are replaced: such a header is there, and says
    /// nothing that anybody knows.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body.
    pub body: &'a [u8],
    /// The URL of the mount as this client sees it, without a slash at its end.
    pub base_url: &'a str,
    /// Who asks.
    pub caller: &'a Caller,
    /// The time.
    pub now: Millis,
    /// An id nobody has used, different for every request.
    pub fresh: RunId,
}

impl<'a> Request<'a> {
    /// A header's value. Names are in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// What stood in the path's `{name}`.
    #[must_use]
    pub fn param(&self, name: &str) -> &'a str {
        self.params.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }

    /// The last value of a name in the query, decoded.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<Cow<'a, str>> {
        form_urlencoded::parse(self.query.as_bytes()).filter(|(known, _)| known == name).last().map(|(_, value)| value)
    }

    /// The media type of the body, without its parameters, in lower case. Empty if none is told.
    #[must_use]
    pub fn media_type(&self) -> String {
        let told = self.header("content-type").unwrap_or("");
        told.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
    }
}

/// What an exchange says after a reply.
#[derive(Debug)]
pub enum Next {
    /// The answer is written.
    Done,
    /// Something else has to be known, or done, first.
    Call(Call),
}

/// What an exchange says after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    More,
    /// The answer is complete, whatever becomes of the run.
    Close,
    /// The answer is complete, and so is the run: it was told whole, and nobody has to find it again.
    Forget,
}

/// One question and its answer, in the client's own words.
pub trait Exchange: Send + 'static {
    /// Reads the request, and keeps whatever the answer will have to echo. Called first and once. A request whose body
    /// is not read, because it is too large or breaks off, comes with an empty one: whatever is made of it, `fail` is
    /// next.
    ///
    /// # Errors
    /// What is wrong with it; it comes back in `fail`.
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault>;

    /// Writes an answer given whole.
    ///
    /// # Errors
    /// What is wrong with it; it comes back in `fail`, what was written is dropped.
    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault>;

    /// Asked when a call met [`crate::FaultKind::NotFound`]: a lookup that may well find nothing. Some: what to do
    /// instead. None: the fault comes back in `fail`.
    fn missed(&mut self, fault: &Fault) -> Option<Call> {
        let _ = fault;
        None
    }

    /// Writes a refusal: status, headers and body.
    fn fail(&mut self, fault: &Fault, out: &mut Out);

    /// The head of a streamed answer.
    fn head(&mut self, head: &mut Head) {
        head.set("content-type", "text/event-stream; charset=utf-8");
        head.set("cache-control", "no-cache");
        head.set("x-accel-buffering", "no");
    }

    /// Begins a streamed answer: at the run's first step, or, for [`Call::Attach`], at the point where the view was
    /// taken; the steps after it follow.
    fn begin(&mut self, run: RunView<'_>, out: &mut Out) {
        let _ = (run, out);
    }

    /// Writes one step of a streamed answer. `about` is what is known of the run at this moment.
    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow;

    /// Asked once all there is was told and the run stands between two turns: what it waits for may come in an hour, or
    /// never. Protocols in which a run does not wait tell the end of the last turn, and close.
    fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        let _ = (run, out);
        Flow::More
    }

    /// Ends a streamed answer in the middle, through no fault of the run: too slow a reader, a shutdown.
    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        let _ = (fault, out);
    }

    /// Writes a sign of life into a quiet stream.
    fn heartbeat(&mut self, out: &mut Out) {
        out.comment("keep-alive");
    }

    /// The run that the request goes on from, if it names one. Asked when the request has failed: a connection that kept
    /// that run for its client forgets it then.
    fn builds_on(&self) -> Option<RunId> {
        None
    }

    /// Part of the owner's runs and sessions to work in: an A2A tenant. Asked after `decode`.
    fn partition(&self) -> Option<&str> {
        None
    }
}
