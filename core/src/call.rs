//! What a client may want, whatever its protocol calls it, and what it gets.
//!
//! The gateway serves each kind of [`Call`] once, for every protocol; an adapter only spells. Adapters keep no state:
//! what has to outlive a request stands in runs, sessions and documents, all of them owned by a caller.

use crate::answer::{Answer, AnswerPolicy};
use crate::event::{End, Millis};
use crate::id::RunId;
use crate::json::{Extra, Json};
use crate::model::{self, AgentRequest};
use crate::pending::Pending;
use crate::policy::RunPolicy;
pub use crate::policy::{Busy, Delivery};
use crate::run::{Record, Run};
use crate::well_known::{FetchedDocument, WellKnownDocument};

/// What a client wants.
#[derive(Clone, Debug)]
pub enum Call {
    /// Ask an agent. Boxed: it is far larger than the rest.
    Run(Box<RunCall>),
    /// A run as it stands. Answered by [`Reply::Run`].
    Fetch(Target),
    /// The steps of a run from the first one, and on as they come. Answered by a stream.
    Follow(Target),
    /// A run as it stands, then the steps that come after, cut at one point. Answered by a stream.
    Attach(Target),
    /// Stop a run. Answered by [`Reply::Run`] once it has ended; also if it had ended before.
    Cancel(Target),
    /// Forget a run, stopping it first. Answered by [`Reply::Done`].
    Delete(Target),
    /// The runs of the caller. Answered by [`Reply::Runs`].
    List(Filter),
    /// The agents of the route. Answered by [`Reply::Agents`].
    Describe,
    /// Something about a session. Answered by [`Reply::Session`] or [`Reply::Done`].
    Session(SessionCall),
    /// A small record of the adapter's own. Answered by [`Reply::Documents`] or [`Reply::Done`].
    Document(DocumentCall),
    /// What an agent's own server publishes about it, as far as it is known or soon will be: never waited for long.
    /// Answered by [`Reply::FetchedDocument`].
    FetchedDocument(WellKnownDocument),
    /// Nothing has to be asked: the exchange answers by itself. Answered by [`Reply::Done`].
    Nothing,
}

/// A question to an agent.
#[derive(Clone, Debug)]
pub struct RunCall {
    /// The agent, by its name in the configuration: one of the route's.
    pub agent: String,
    /// The id the run shall have. None: the engine makes one.
    pub id: Option<RunId>,
    /// What is said. `session_id`, `user_id` and `id` are filled in by the engine from what stands here.
    pub request: AgentRequest,
    /// Messages that go upstream in front of everything else this once and are not kept: instructions of one turn.
    pub preamble: Vec<model::Message>,
    /// How the answer is wanted.
    pub delivery: Delivery,
    /// Which conversation it belongs to.
    pub thread: Thread,
    /// Answers to pending items that the protocol does not tell as native messages in the request's input.
    pub answers: Vec<Answer>,
    /// How this protocol asks for what a run waits for.
    pub answer_policy: AnswerPolicy,
    /// How the run is started, answered, kept and ended.
    pub policy: RunPolicy,
    /// Facts the adapter wants back with the run, such as the request's echo. Nobody else reads them.
    pub labels: Json,
}

impl RunCall {
    /// A question whose answer is streamed, in a conversation of its own.
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
        }
    }
}

/// Which conversation a run belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thread {
    /// A new one.
    New,
    /// The session of this id, known or not.
    Session(String),
    /// What followed after this run of the caller. A later run may stand there already: then this is a branch.
    After(RunId),
    /// One more turn of this very run, which waits; if it is busy the turn queues.
    Continue(RunId),
}

/// Which run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// This one.
    Run(RunId),
    /// The latest one of a session.
    Latest(String),
}

/// Which runs, and which page of them. The newest change of state comes first; ties go by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this session.
    pub session: Option<String>,
    /// Begun over this protocol.
    pub protocol: Option<String>,
    /// In one of these states. Empty: any.
    pub states: Vec<RunState>,
    /// Whose state changed at this time or later.
    pub changed_since: Option<Millis>,
    /// At most this many. 0: the engine's default of 50.
    pub limit: usize,
    /// Goes on after this page.
    pub cursor: Option<Cursor>,
    /// True: of what was said nothing is looked at, and the runs of the page are shown without it
    /// ([`Record::head`]). False: they are shown whole, and a page ends early once it has come to some megabytes.
    pub heads: bool,
}

/// A place in a list that stays where it is while runs come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// When the state of the last run on the page changed.
    pub changed_at: Millis,
    /// Its id.
    pub id: RunId,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Accepted; the upstream was not asked yet.
    Queued,
    /// The upstream works.
    Running,
    /// Between two turns: it waits for a person or a program.
    Waiting,
    /// Between two turns: it waits for a login.
    WaitingForAuth,
    /// Over.
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

    /// True once it is over.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Ended(_))
    }

    /// One stable word, for the store.
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

    /// Reads the word back.
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

/// What is known of a run besides what was told in it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunInfo {
    /// The protocol it was begun over.
    pub protocol: String,
    /// Who it belongs to: [`crate::Owner::key`].
    pub owner: String,
    /// Where it stands.
    pub state: RunState,
    /// When that changed last.
    pub changed_at: Millis,
    /// The run it followed, where one was named.
    pub previous: Option<RunId>,
    /// How its answer was wanted.
    pub delivery: Delivery,
    /// Whether it can be found after its end.
    pub stored: bool,
    /// Tools, model and settings of the last request, without its input.
    pub request: AgentRequest,
    /// What the adapter wanted back.
    pub labels: Json,
    /// Whose rules say how long it is kept, besides those that hold for all runs. None: nobody else's.
    pub retention: Option<RetentionOwner>,
}

/// A route with rules of its own about how long its runs are kept ([`crate::exchange::Keep`]), as its runs name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionOwner {
    /// The route.
    pub route: String,
    /// True: the gateway remembers the run's conversation, so other runs are built upon this one. By the route's rules
    /// it is then hidden, and forgotten only by those that hold for all runs.
    pub remembered: bool,
}

/// A run as it stands.
#[derive(Clone, Copy, Debug)]
pub struct RunView<'a> {
    /// What was told.
    pub record: &'a Record,
    /// What is known besides.
    pub about: &'a RunInfo,
    /// What it waits for, as far as that is still open.
    pub pending: &'a [Pending],
}

impl<'a> RunView<'a> {
    /// The run.
    #[must_use]
    pub const fn run(&self) -> &'a Run {
        self.record.run()
    }
}

/// Something about a session. Sessions belong to an agent and an owner, not to a route.
#[derive(Clone, Debug)]
pub enum SessionCall {
    /// A new one with these items and labels. Answered by [`Reply::Session`] without items.
    Create {
        /// The agent.
        agent: String,
        /// Its id.
        session: String,
        /// What was said before.
        items: Vec<model::Message>,
        /// The adapter's own facts, by the protocol's name.
        labels: Extra,
    },
    /// What is known of it, all that was said included. [`crate::FaultKind::NotFound`] if it is not known.
    Look {
        /// Its id.
        session: String,
    },
    /// What is known of it, and of what was said one end.
    Part {
        /// Its id.
        session: String,
        /// Which end: what was said last, or first.
        newest: bool,
        /// At least so many items, oldest first; fewer if there are no more. What was said in one turn is not parted.
        least: usize,
    },
    /// All sessions of the caller.
    List,
    /// Adds to what was said. Answered by [`Reply::Session`] that ends with what was added. Refused as
    /// [`crate::FaultKind::TooLarge`] once a session holds some ten megabytes of such items.
    Append {
        /// Its id.
        session: String,
        /// What is added.
        items: Vec<model::Message>,
    },
    /// Takes one item out. Answered by [`Reply::Session`] without items.
    Remove {
        /// Its id.
        session: String,
        /// The item's id.
        item: String,
    },
    /// Puts other labels in the place of those of the same name.
    Label {
        /// Its id.
        session: String,
        /// The labels.
        labels: Extra,
    },
    /// Forgets it, stopping what runs in it. Its runs stay. Answered by [`Reply::Done`].
    Delete {
        /// Its id.
        session: String,
    },
}

/// What is known of a session.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// Its id.
    pub id: String,
    /// The agent.
    pub agent: String,
    /// When it began.
    pub created_at: Millis,
    /// When something was last said in it.
    pub updated_at: Millis,
    /// What was said, oldest first. Empty in lists.
    pub items: Vec<SessionItem>,
    /// What is waited for.
    pub pending: Vec<Pending>,
    /// The run under way, or the latest one.
    pub latest: Option<RunId>,
    /// Where that run stands.
    pub state: Option<RunState>,
    /// Whose it is, where a client named somebody. None: nobody did, so whoever its owner serves may speak in it.
    pub user: Option<String>,
    /// The adapters' own facts.
    pub labels: Extra,
}

/// One thing said in a session.
#[derive(Clone, Debug)]
pub struct SessionItem {
    /// Its id: the message's own, made unique.
    pub id: String,
    /// The run it was said in. None: it was put there by [`SessionCall::Append`] or [`SessionCall::Create`].
    pub run: Option<RunId>,
    /// What was said.
    pub message: model::Message,
}

/// A small record of an adapter's own: JSON under a key, in a collection, of the caller.
#[derive(Clone, Debug)]
pub enum DocumentCall {
    /// One of them. Answered by [`Reply::Documents`], empty if it is not there.
    Get {
        /// Which collection: the protocol's name and a word.
        collection: String,
        /// Which record.
        key: String,
    },
    /// Those whose key begins so, in the order they were made.
    List {
        /// Which collection.
        collection: String,
        /// The beginning of the keys.
        prefix: String,
    },
    /// Puts it there, in the place of an older one.
    Put {
        /// Which collection.
        collection: String,
        /// Which record.
        key: String,
        /// What it holds.
        value: Json,
    },
    /// Takes it away; nothing happens if it is not there.
    Delete {
        /// Which collection.
        collection: String,
        /// Which record.
        key: String,
    },
}

/// What a client may know of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentCard {
    /// As the configuration names it.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its own version.
    pub version: String,
    /// What its tools are said to come from, where it does not say so itself. Stable.
    pub server_label: String,
    /// When the configuration was loaded.
    pub since: Millis,
    /// True if answers may carry edits and other decisions beyond yes and no.
    pub approval_extension: bool,
}

/// A whole answer.
#[derive(Debug)]
pub enum Reply<'a> {
    /// A run.
    Run(RunView<'a>),
    /// A page of runs.
    Runs(Page<'a>),
    /// The route's agents.
    Agents(&'a [std::sync::Arc<AgentCard>]),
    /// A session, or several.
    Session(&'a [SessionView]),
    /// Records: key and value.
    Documents(&'a [(String, Json)]),
    /// What an agent's own server publishes about it. None: nothing, or nothing that is known.
    FetchedDocument(Option<&'a FetchedDocument>),
    /// Nothing reached the agent: the session waits for answers to these items first (human-in-the-loop page,
    /// section 3, rule 5). The run is the one that asked.
    Waiting(RunView<'a>),
    /// It is done.
    Done,
}

/// A page of runs.
#[derive(Debug)]
pub struct Page<'a> {
    /// The runs, newest change first.
    pub runs: Vec<RunView<'a>>,
    /// How many match, on all pages.
    pub total: usize,
    /// Where the next page begins. None: this is the last one.
    pub next: Option<Cursor>,
}
