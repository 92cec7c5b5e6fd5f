//! Protocol-independent operations that a client can request, and their replies.
//!
//! The gateway implements each kind of [`Call`] once, for all protocols; an adapter only translates. Adapters are
//! stateless: anything that outlives a request is stored in runs, sessions and documents, each of which has an owner.

mod resent;

pub use resent::{HistoryJudge, Otherwise, Resent};

use std::collections::BTreeMap;
use std::time::Duration;

use crate::answer::{Answer, AnswerPolicy};
use crate::capability::Media;
use crate::event::{End, Millis};
use crate::fault::{Fault, FaultKind};
use crate::id::RunId;
use crate::json::{Extra, Json};
use crate::model::{self, AgentRequest};
use crate::pending::{Decision, Pending};
use crate::policy::RunPolicy;
pub use crate::policy::{Busy, Delivery};
use crate::run::{Record, Run};
use crate::well_known::{FetchedDocument, WellKnownDocument};

/// An operation a client requests.
#[derive(Clone, Debug)]
pub enum Call {
    /// Run an agent. Boxed because it is much larger than the other variants.
    Run(Box<RunCall>),
    /// Get a run in its current state. Answered by [`Reply::Run`].
    Fetch(Target),
    /// Stream the steps of a run from the first one on, including future ones.
    Follow(Target),
    /// Stream a run: its current state, then every later step, without gap or overlap.
    Attach(Target),
    /// Cancel a run. Answered by [`Reply::Run`] once the run has ended, even if it had ended before.
    Cancel(Target),
    /// Delete a run with its attachments, after canceling it if necessary. Answered by [`Reply::Done`].
    Delete(Target),
    /// Replace the tags of a run. Answered by [`Reply::Run`].
    Tag(Target, Tags),
    /// List the caller's runs. Answered by [`Reply::Runs`].
    List(Filter),
    /// Open a stream that follows no run. Answered by a stream of [`Notice`]s, which ends when the exchange closes it.
    Listen(Listen),
    /// Describe the route's agents. Answered by [`Reply::Agents`].
    Describe,
    /// Read or change a session. Answered by [`Reply::Session`] or [`Reply::Done`].
    Session(SessionCall),
    /// Read or change a document of the adapter. Answered by [`Reply::Documents`] or [`Reply::Done`].
    Document(DocumentCall),
    /// Get the document that an agent's own server publishes about the agent: from the cache, or after a short wait for
    /// that server. Answered by [`Reply::FetchedDocument`].
    FetchedDocument(WellKnownDocument),
    /// Answer after this pause, at most a second: for an adapter that waits for another request of the client, such as
    /// one that holds the same [claim](RunCall::claim). Answered by [`Reply::Done`].
    Wait(Duration),
    /// Check that the caller may use the agent with this name: fails with [`crate::FaultKind::NoSuchAgent`] or
    /// [`crate::FaultKind::Forbidden`] if not. Answered by [`Reply::Done`]; the exchange itself has the response.
    CheckAgent(String),
    /// No operation: the exchange itself has the response. Answered by [`Reply::Done`].
    Nothing,
}

/// A request to an agent.
#[derive(Clone, Debug)]
pub struct RunCall {
    /// The agent's name in the configuration; one of the route's agents.
    pub agent: String,
    /// The id of the new run. `None`: the engine assigns one.
    pub id: Option<RunId>,
    /// The request. The engine sets `session_id`, `user_id` and `id` from the other fields.
    pub request: AgentRequest,
    /// Messages sent upstream before all others in this turn only, and not stored: per-turn instructions.
    pub preamble: Vec<model::Message>,
    /// The delivery of the answer: streamed, whole, or in the background.
    pub delivery: Delivery,
    /// The conversation the run belongs to.
    pub thread: Thread,
    /// Answers to pending items that the protocol does not send as canonical messages in the request's input.
    pub answers: Vec<Answer>,
    /// The route's settings for pending items: the form of the questions, and the answers that are accepted.
    pub answer_policy: AnswerPolicy,
    /// The rules for starting, answering, keeping and ending the run.
    pub policy: RunPolicy,
    /// Data the adapter wants back with the run, such as an echo of the request. Opaque to the gateway.
    pub labels: Json,
    /// Texts by which lists find the run ([`Filter::tags`]).
    pub tags: Tags,
    /// Larger data of the adapter, by name. Not loaded with the run, and deleted with it: see [`attachment`].
    pub attachments: Vec<(&'static str, Json)>,
    /// The claim of this request, which prevents that a repetition of the request starts the same turn again. If
    /// another request has replaced the claim, the call fails with [`crate::FaultKind::Overloaded`]. The engine deletes
    /// the claim once the turn can be found, is queued, or is refused. If a turn with the same claim is queued already,
    /// the engine queues no second one and answers the call with the queued turn.
    pub claim: Option<RunClaim>,
}

/// A document in [`CLAIMS`] that the adapter wrote with [`Replaces::Nothing`], or with [`Replaces::Value`] to take over
/// the claim of a request that was lost.
#[derive(Clone, Debug, PartialEq)]
pub struct RunClaim {
    /// The document's key.
    pub key: String,
    /// The document's value, different for each claim.
    pub value: Json,
}

/// The collection of claims ([`RunCall::claim`]). They expire with the age of runs.
pub const CLAIMS: &str = "claims";

/// Texts by which lists find a run, by name. The adapter chooses the names; a client can replace all tags
/// ([`Call::Tag`]).
pub type Tags = BTreeMap<String, String>;

/// The collection of the attachments of runs.
pub const ATTACHMENTS: &str = "attachments";

/// The key of an attachment of a run in [`ATTACHMENTS`].
#[must_use]
pub fn attachment_key(run: RunId, name: &str) -> String {
    format!("{run}/{name}")
}

/// Gets an attachment of a run ([`RunCall::attachments`]). Answered by [`Reply::Documents`], whose list is empty if the
/// run has no such attachment.
#[must_use]
pub fn attachment(run: RunId, name: &str) -> Call {
    Call::Document(DocumentCall::Get { collection: ATTACHMENTS.to_owned(), key: attachment_key(run, name) })
}

impl RunCall {
    /// A streamed run in a new conversation.
    #[must_use]
    pub fn new(agent: impl Into<String>, request: AgentRequest) -> Self {
        Self {
            agent: agent.into(),
            id: None,
            request,
            preamble: Vec::new(),
            delivery: Delivery::Stream,
            thread: Thread::New,
            answers: Vec::new(),
            answer_policy: AnswerPolicy::default(),
            policy: RunPolicy::attached(),
            labels: Json::null(),
            tags: Tags::new(),
            attachments: Vec::new(),
            claim: None,
        }
    }
}

/// The conversation a run belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thread {
    /// A new conversation. If the request answers an open item, the session of that item instead.
    New,
    /// The session with this id: 1 to 512 bytes. Created if it does not exist.
    Session(String),
    /// The conversation up to this run of the caller. If another run already follows it, a new session branches off.
    After(RunId),
    /// Another turn of this run, which must not have ended. Queued while the run is busy.
    Continue(RunId),
    /// The conversation of a client that sends its history with each request. The request's input has only the new
    /// messages.
    Resent(Box<Resent>),
}

/// Selects a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The run with this id.
    Run(RunId),
    /// The latest run of a session.
    Latest(String),
}

/// Selects the notices of a stream that follows no run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// The session whose new runs are reported. `None`: no runs are reported.
    pub session: Option<ListenSession>,
    /// Report that the gateway's configuration was replaced, so that the agents of the route may be other ones.
    pub agents: bool,
}

/// The session of a [`Listen`] call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenSession {
    /// The agent's name in the configuration.
    pub agent: String,
    /// Session id. The session need not exist yet.
    pub session: String,
    /// The end user, as in the requests of the session.
    pub user: Option<String>,
    /// The latest run of the session that the client knows. If another run is the latest one, the notice is sent at
    /// once.
    pub after: Option<RunId>,
}

/// An event of a stream that follows no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The stream has begun. Always the first notice.
    Begin,
    /// This run is now the latest one of the session. Of runs that start in quick succession, only the last may be
    /// reported; each names the run before it ([`RunInfo::previous`]) if its request did.
    Run(RunId),
    /// The gateway's configuration was replaced: the agents of the route may be other ones.
    Agents,
}

/// Selects runs, and a page of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only runs of this session.
    pub session: Option<String>,
    /// Only runs started over this protocol.
    pub protocol: Option<String>,
    /// Only runs in one of these states. Empty: any state.
    pub states: Vec<RunState>,
    /// Only runs whose state changed at this time or later.
    pub changed_since: Option<Millis>,
    /// Only runs with all of these tags.
    pub tags: Tags,
    /// The order of the list.
    pub order: Order,
    /// Page size. 0: the engine's default of 50.
    pub limit: usize,
    /// Where the page starts; `None` for the first page.
    pub cursor: Option<Cursor>,
    /// True: runs are returned without inputs and messages ([`Record::head`]), which are not loaded. False: runs are
    /// returned in full, and a page ends early after a few megabytes.
    pub heads: bool,
}

/// The order of a list of runs. Runs with the same millisecond are sorted by id, in the same direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By the last state change, newest first.
    #[default]
    LatestChange,
    /// By creation, oldest first.
    OldestFirst,
    /// By creation, newest first.
    NewestFirst,
}

impl Order {
    /// The time by which a run is sorted.
    #[must_use]
    pub const fn time(self, created_at: Millis, changed_at: Millis) -> Millis {
        match self {
            Self::LatestChange => changed_at,
            Self::OldestFirst | Self::NewestFirst => created_at,
        }
    }

    /// True if the smallest time comes first.
    #[must_use]
    pub const fn is_ascending(self) -> bool {
        matches!(self, Self::OldestFirst)
    }
}

/// A position in a list, stable while runs are added and removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The time by which the list is sorted ([`Order::time`]), of the last run on the page.
    pub at: Millis,
    /// Id of that run.
    pub id: RunId,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Accepted; the upstream has not been called yet.
    Queued,
    /// The upstream is working.
    Running,
    /// Between two turns, waiting for input from a person or a program.
    Waiting,
    /// Between two turns, waiting for authentication.
    WaitingForAuth,
    /// No further turn follows.
    Ended(End),
}

impl RunState {
    /// True while a turn is under way, or waits to begin.
    #[must_use]
    pub const fn is_working(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }

    /// True between two turns.
    #[must_use]
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting | Self::WaitingForAuth)
    }

    /// True once no further turn can follow.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Ended(_))
    }

    /// A stable identifier for the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::WaitingForAuth => "waiting_for_auth",
            Self::Ended(end) => end.as_str(),
        }
    }

    /// Parses the identifier.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "queued" => Self::Queued,
            "running" => Self::Running,
            "waiting" => Self::Waiting,
            "waiting_for_auth" => Self::WaitingForAuth,
            word => Self::Ended(End::parse(word)?),
        })
    }
}

/// Metadata of a run, beside its record.
#[derive(Clone, Debug, PartialEq)]
pub struct RunInfo {
    /// Name of the protocol over which it was started.
    pub protocol: String,
    /// Its owner: [`crate::Owner::key`].
    pub owner: String,
    /// The current state.
    pub state: RunState,
    /// When the state last changed.
    pub changed_at: Millis,
    /// The run it follows, if the request named one.
    pub previous: Option<RunId>,
    /// The delivery that its request asked for.
    pub delivery: Delivery,
    /// True if the run can be found after it has ended.
    pub stored: bool,
    /// Tools, model and settings of the last request, without its input.
    pub request: AgentRequest,
    /// The adapter's data from [`RunCall::labels`].
    pub labels: Json,
    /// Texts by which lists find it: those of [`RunCall::tags`], or of the latest [`Call::Tag`].
    pub tags: Tags,
    /// The route whose retention settings apply in addition to the global ones. `None`: only the global ones apply.
    pub retention: Option<RetentionOwner>,
}

/// A route with its own retention settings ([`crate::exchange::RunRetention`]), as stored with its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionOwner {
    /// The route whose retention settings apply.
    pub route: String,
    /// True if the gateway must keep the run's conversation because later runs build on it. The route's settings then
    /// only hide the run; only the global settings delete it.
    pub remembered: bool,
}

/// A run in its current state.
#[derive(Clone, Copy, Debug)]
pub struct RunView<'a> {
    /// The run and its events.
    pub record: &'a Record,
    /// Metadata.
    pub info: &'a RunInfo,
    /// The pending items that are still unanswered.
    pub pending: &'a [Pending],
}

impl<'a> RunView<'a> {
    /// The run itself.
    #[must_use]
    pub const fn run(&self) -> &'a Run {
        self.record.run()
    }
}

/// An operation on a session. Sessions belong to an agent and an owner, not to a route.
#[derive(Clone, Debug)]
pub enum SessionCall {
    /// Create a session with these items and labels. Answered by [`Reply::Session`] without items.
    Create {
        /// The agent's name in the configuration.
        agent: String,
        /// Session id.
        session: String,
        /// The initial conversation.
        items: Vec<model::Message>,
        /// The adapter's own data, keyed by protocol name.
        labels: Extra,
    },
    /// Get a session with all of its items. Answered by [`Reply::Session`]. This call and all following ones that name
    /// a session fail with [`crate::FaultKind::NotFound`] if it does not exist.
    Get {
        /// Session id.
        session: String,
    },
    /// Get a session with only its first or last items. Answered by [`Reply::Session`].
    GetPart {
        /// Session id.
        session: String,
        /// True for the last items, false for the first.
        newest: bool,
        /// Return at least this many items, oldest first, or all if there are fewer. Turns are never split.
        least: usize,
    },
    /// List sessions of the caller. Answered by [`Reply::Sessions`].
    List(SessionFilter),
    /// Append items. Answered by [`Reply::Session`] that ends with the new items. Fails with
    /// [`crate::FaultKind::TooLarge`] once a session holds about ten megabytes of appended items.
    Append {
        /// Session id.
        session: String,
        /// Appended in this order.
        items: Vec<model::Message>,
    },
    /// Remove an item; [`crate::FaultKind::NotFound`] if the session has no such item. Answered by [`Reply::Session`]
    /// without items.
    Remove {
        /// Session id.
        session: String,
        /// Id of the item.
        item: String,
    },
    /// Set labels, replacing those of the same name. Answered by [`Reply::Session`] without items.
    Label {
        /// Session id.
        session: String,
        /// Labels to set; all others stay.
        labels: Extra,
    },
    /// Delete a session and cancel its active run. Its runs are kept. Answered by [`Reply::Done`].
    Delete {
        /// Session id.
        session: String,
    },
}

/// Selects sessions, and a page of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionFilter {
    /// Only sessions with this agent. `None`: with any agent of the route.
    pub agent: Option<String>,
    /// Only sessions with all of these labels.
    pub labels: Extra,
    /// The order of the list; [`Order::LatestChange`] sorts by [`SessionView::updated_at`].
    pub order: Order,
    /// Page size. 0: all sessions.
    pub limit: usize,
    /// Where the page starts; `None` for the first page.
    pub cursor: Option<SessionCursor>,
}

/// A position in a list of sessions, stable while sessions are added and removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionCursor {
    /// The time by which the list is sorted, of the last session on the page.
    pub at: Millis,
    /// The agent of that session.
    pub agent: String,
    /// Id of that session.
    pub id: String,
}

/// A page of sessions.
#[derive(Clone, Debug)]
pub struct SessionPage {
    /// The sessions, sorted as [`SessionFilter::order`] says, without items.
    pub sessions: Vec<SessionView>,
    /// Number of matching sessions on all pages.
    pub total: usize,
    /// Where the next page starts. `None`: this is the last page.
    pub next: Option<SessionCursor>,
}

/// A session in its current state.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// The name under which clients know the session.
    pub id: String,
    /// The agent's name in the configuration.
    pub agent: String,
    /// When the session was created.
    pub created_at: Millis,
    /// When an item was last added.
    pub updated_at: Millis,
    /// The conversation, oldest first. Empty in lists.
    pub items: Vec<SessionItem>,
    /// Unanswered pending items.
    pub pending: Vec<Pending>,
    /// The active run, or the latest one.
    pub latest: Option<RunId>,
    /// The state of that run.
    pub state: Option<RunState>,
    /// The end user, if a client named one. `None`: any user of the session's owner may continue it.
    pub user: Option<String>,
    /// The adapters' own data.
    pub labels: Extra,
}

/// One message of a session.
#[derive(Clone, Debug)]
pub struct SessionItem {
    /// The message's id, made unique in the session.
    pub id: String,
    /// The run it belongs to. `None`: it was added by [`SessionCall::Append`] or [`SessionCall::Create`].
    pub run: Option<RunId>,
    /// The item as a message of the canonical model.
    pub message: model::Message,
}

/// An operation on documents: small JSON values of an adapter, by collection and key, that belong to the caller.
#[derive(Clone, Debug)]
pub enum DocumentCall {
    /// Get one document. Answered by [`Reply::Documents`], empty if it does not exist.
    Get {
        /// The protocol's name and a word, such as `a2a/push`.
        collection: String,
        /// Key of the document.
        key: String,
    },
    /// List the documents whose keys start with a prefix, in order of creation, at most 1000. Answered by
    /// [`Reply::Documents`].
    List {
        /// The protocol's name and a word, such as `a2a/push`.
        collection: String,
        /// Prefix of the keys.
        prefix: String,
    },
    /// Create or replace a document. Answered by [`Reply::Done`] if it was written. If the precondition `replaces` does
    /// not hold, nothing is written, and the answer is [`Reply::Documents`] with the current document, or without any
    /// if it does not exist.
    Put {
        /// The protocol's name and a word, such as `a2a/push`.
        collection: String,
        /// Key of the document.
        key: String,
        /// The complete new value.
        value: Json,
        /// The precondition: another request, also at another replica, may write the document at the same time.
        replaces: Replaces,
    },
    /// Delete a document. No error if it does not exist. Answered by [`Reply::Done`].
    Delete {
        /// The protocol's name and a word, such as `a2a/push`.
        collection: String,
        /// Key of the document.
        key: String,
    },
}

/// The precondition of [`DocumentCall::Put`].
#[derive(Clone, Debug, PartialEq)]
pub enum Replaces {
    /// Any document, or none.
    Anything,
    /// No document: the key must be unused.
    Nothing,
    /// A document with this value, as [`DocumentCall::Get`] returned it.
    Value(Json),
}

/// The public description of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentCard {
    /// Name in the configuration.
    pub name: String,
    /// Purpose of the agent.
    pub description: String,
    /// Version of the agent.
    pub version: String,
    /// Reported as the MCP server of tools for which the agent names none. Stable.
    pub server_label: String,
    /// When the configuration was loaded.
    pub since: Millis,
    /// The decisions about a pending approval that the agent accepts. Empty: the agent asks for no approvals.
    pub decisions: &'static [Decision],
    /// Kinds of media that can be sent to the agent.
    pub input_media: Media,
}

/// A complete reply to a [`Call`]. Adapters answer replies they do not expect with a fault.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reply<'a> {
    /// The run of a call that names one.
    Run(RunView<'a>),
    /// A page of runs.
    Runs(Page<'a>),
    /// The route's agents.
    Agents(&'a [std::sync::Arc<AgentCard>]),
    /// One session.
    Session(&'a [SessionView]),
    /// A page of sessions.
    Sessions(&'a SessionPage),
    /// Documents as key and value.
    Documents(&'a [(String, Json)]),
    /// The document that the agent's own server publishes about the agent. `None`: it publishes none, or the gateway
    /// has not fetched it yet.
    FetchedDocument(Option<&'a FetchedDocument>),
    /// The agent was not called: the session waits for answers to the open items of this run
    /// (docs/human-in-the-loop.md#rule-5). The text is the reason why the client sees the items again. `None`: the
    /// request contains nothing that could be an answer, or answers only some of the items.
    Waiting(RunView<'a>, Option<&'a str>),
    /// Success without a result.
    Done,
}

impl Reply<'_> {
    /// The fault of an exchange that does not write this reply: [`FaultKind::Waiting`] if the session waits for answers,
    /// an internal error otherwise.
    #[must_use]
    pub fn to_fault(&self) -> Fault {
        match self {
            Self::Waiting(..) => Fault::new(FaultKind::Waiting, "the session waits for an answer to a pending item"),
            _ => Fault::unexpected_reply(),
        }
    }
}

/// A page of runs.
#[derive(Debug)]
pub struct Page<'a> {
    /// The runs, sorted as [`Filter::order`] says.
    pub runs: Vec<RunView<'a>>,
    /// Number of matching runs on all pages.
    pub total: usize,
    /// Where the next page starts. `None`: this is the last page.
    pub next: Option<Cursor>,
}
