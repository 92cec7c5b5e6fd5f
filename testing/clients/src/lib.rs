//! Scripted clients: each plays its part of the scenarios of `interlingua_core_testkit::scenario` as a client of its
//! protocol does, and reads the answers strictly.
//!
//! Written from the protocols' own texts, never from an adapter of the gateway: an error that stands on both sides
//! would cancel out. Pure: a request is a value, an answer is bytes. A frame that breaks the protocol is a panic that
//! says which.
//!
//! Not here: sockets, and what a client should be shown.

mod a2a;
mod ag_kit;
mod ag_ui;
mod agent_api;
mod anthropic_messages;
mod chat_completions;
mod frames;
mod hitl;
mod mcp;
mod responses;

pub use frames::Frames;
pub use mcp::repeated_call;

use interlingua_core::loss::ContentKind;
use interlingua_core_testkit::scenario::{ClientAct, Item, Mark};

/// A client of one protocol.
pub trait ScriptedClient: Send + Sync + 'static {
    /// The name of the protocol in `gateway.toml`.
    fn protocol(&self) -> &'static str;

    /// Where its route is mounted. `{agent}` stands for the agent.
    fn route(&self) -> &'static str;

    /// Further lines of its route.
    fn route_settings(&self) -> &'static str {
        ""
    }

    /// Whether a client of this protocol can do this.
    fn can(&self, act: &ClientAct) -> bool;

    /// Whether it attaches only media that the agent takes. Other clients attach any, and what is not taken is lost.
    fn attaches_what_is_taken(&self) -> bool {
        false
    }

    /// Whether it receives one such question at a time, and answers each in a request of its own.
    fn answers_alone(&self, act: &ClientAct) -> bool {
        let _ = act;
        false
    }

    /// A client that sees this in an event of its stream has all it waits for, and leaves.
    fn leaves_at(&self) -> Option<&'static str> {
        None
    }

    /// Whether its run continues when it disconnects.
    fn leaves_runs_behind(&self) -> bool {
        false
    }

    /// The request that cancels a run, by its id without a prefix. `None`: it leaves instead.
    fn cancel(&self, run: &str, talk: &Talk) -> Option<Request> {
        let _ = (run, talk);
        None
    }

    /// Its form of a background turn. `None`: its protocol has none.
    fn background(&self) -> Option<&dyn Background> {
        None
    }

    /// The request of a turn.
    fn request(&self, acts: &[ClientAct], talk: &mut Talk) -> Request;

    /// Reads a complete answer.
    fn read(&self, status: u16, body: &str, talk: &mut Talk) -> ShownTurn;
}

/// Turns that are worked on without a connection of their client.
pub trait Background {
    /// The request that begins such a turn.
    fn begin(&self, acts: &[ClientAct], talk: &Talk) -> Request;

    /// Whether it is answered at once. Otherwise its client leaves before the answer.
    fn is_answered(&self) -> bool {
        true
    }

    /// Reads the answer to it: the run's id.
    fn began(&self, body: &str, talk: &mut Talk);

    /// Asks what has become of it. `None`: its protocol cannot, and has it streamed.
    fn poll(&self, talk: &Talk) -> Option<Request>;

    /// The polled answer. `None`: the agent is still working.
    fn polled(&self, body: &str, talk: &mut Talk) -> Option<ShownTurn>;

    /// Content that a stream shows and a poll does not.
    fn streamed_only(&self) -> &'static [ContentKind] {
        &[]
    }

    /// Streams it: from its beginning, or what follows `read`, a stream that was cut. `None`: its protocol cannot.
    fn follow(&self, read: &str, talk: &Talk) -> Option<Request> {
        let _ = (read, talk);
        None
    }

    /// Whether a run that is over can be followed as well.
    fn follows_ended(&self) -> bool {
        true
    }

    /// A stream that was cut and the one that followed it, as the client reads them together.
    fn join(&self, before: &str, after: &str) -> String {
        format!("{before}{after}")
    }
}

/// A request to the gateway.
#[derive(Clone, Debug)]
pub struct Request {
    /// Such as `POST`.
    pub method: &'static str,
    /// The path, from the root of the gateway.
    pub path: String,
    /// Besides `content-type`.
    pub headers: Vec<(&'static str, String)>,
    /// JSON.
    pub body: String,
}

impl Request {
    /// A `POST` of JSON.
    #[must_use]
    pub fn post(path: String, body: &serde_json::Value) -> Self {
        Self { method: "POST", path, headers: Vec::new(), body: body.to_string() }
    }

    /// A `GET`.
    #[must_use]
    pub const fn get(path: String) -> Self {
        Self { method: "GET", path, headers: Vec::new(), body: String::new() }
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// The client's state of its conversation.
#[derive(Clone, Debug)]
pub struct Talk {
    /// The agent's name.
    pub agent: String,
    /// The session, as the client names it.
    pub session: String,
    /// The next turn.
    pub mark: Mark,
    /// The id of the last answer, in the protocol's form. Empty: none yet.
    pub last: String,
    /// Items that wait for this client, in order: ids of calls, approvals and questions.
    pub open: Vec<Open>,
    /// The number of messages of the conversation that were read before, for answers that repeat them.
    pub seen: usize,
    /// All messages so far, in the protocol's form, where a client sends the whole conversation with each request.
    pub said: Vec<serde_json::Value>,
    /// The state that a front end shares with its agent, if the protocol has one. `null`: none yet.
    pub state: serde_json::Value,
    /// The client's tools, in the protocol's form, where a client declares them with each request.
    pub declared: Vec<serde_json::Value>,
}

impl Talk {
    /// A conversation that has not begun.
    #[must_use]
    pub fn new(agent: &str, session: &str, play: u32) -> Self {
        Self {
            agent: agent.to_owned(),
            session: session.to_owned(),
            mark: Mark { play, turn: 0 },
            last: String::new(),
            open: Vec::new(),
            seen: 0,
            said: Vec::new(),
            state: serde_json::Value::Null,
            declared: Vec::new(),
        }
    }

    /// The user's words of a turn, with its mark.
    ///
    /// `None`: it has none.
    #[must_use]
    pub fn words(&self, acts: &[ClientAct]) -> Option<String> {
        let said = acts.iter().find_map(|act| match act {
            ClientAct::Say(words) => Some(*words),
            _ => None,
        });
        said.map(|words| self.mark.words(words))
    }

    /// The open item with this number.
    ///
    /// # Panics
    /// No open item has this number.
    #[must_use]
    pub fn open(&self, number: usize) -> &Open {
        self.open.get(number).unwrap_or_else(|| panic!("nothing waits at place {number}: {:?}", self.open))
    }
}

/// Something that waits for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Its id, as the client received it.
    pub id: String,
    /// A call, an approval, a question or a login, and anything else that the protocol needs to answer it.
    pub what: String,
}

/// The content that a client received in a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownTurn {
    /// In the order in which it came.
    pub items: Vec<Item>,
    /// The end of the turn.
    pub end: Option<End>,
    /// The protocol's code of an error.
    pub code: String,
}

/// The end of a turn, as its client can see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Well, or with a question.
    Completed,
    /// Before it was whole.
    Incomplete,
    /// With an error.
    Failed,
    /// Because it was canceled.
    Canceled,
    /// With an HTTP status instead of an answer.
    Refused(u16),
}

/// Every client.
#[must_use]
pub fn all() -> Vec<Box<dyn ScriptedClient>> {
    vec![
        Box::new(agent_api::AgentApi),
        Box::new(responses::Responses),
        Box::new(chat_completions::ChatCompletions { streams: true }),
        Box::new(anthropic_messages::AnthropicMessages::CodingAgent),
        Box::new(a2a::A2a),
        Box::new(ag_kit::AgKit),
        Box::new(ag_ui::AgUi::default()),
        Box::new(hitl::Hitl),
        Box::new(mcp::Mcp),
    ]
}

/// Clients that use their protocols in other ways, each with a name for it.
#[must_use]
pub fn variants() -> Vec<(&'static str, Box<dyn ScriptedClient>)> {
    use anthropic_messages::AnthropicMessages;

    let ag_ui = |is_v1, route| Box::new(ag_ui::AgUi { is_v1, route });
    vec![
        ("chat-completions as a whole", Box::new(chat_completions::ChatCompletions { streams: false })),
        ("anthropic-messages as a whole and in words", Box::new(AnthropicMessages::Plain)),
        ("anthropic-messages in threads", Box::new(AnthropicMessages::Threads)),
        ("ag-ui before 1.0", ag_ui(false, "ag-ui")),
        ("ag-ui with the thread's own history", ag_ui(true, "ag-ui-delta")),
        ("ag-ui with snapshots of the conversation", ag_ui(true, "ag-ui-gateway")),
    ]
}
