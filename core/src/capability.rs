//! The abilities of each half of a protocol, as data.
//!
//! Used by the configuration check (which warns before a request loses content), by the engine (the decisions that an
//! agent accepts, the need for the history), and by the tests, which run one trial for each pair of protocols that both
//! have the needed abilities.

use serde::Serialize;

use crate::answer::ALL_DECISIONS;
use crate::pending::Decision;

/// The abilities of an agent, determined by its protocol and the options of its connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UpstreamCapabilities {
    /// Answers arrive piece by piece.
    pub streaming: bool,
    /// The keeper of a session's history.
    pub history: HistoryNeed,
    /// Tools that the client runs are passed on to the agent.
    pub client_tools: bool,
    /// Decisions about a pending approval that the agent accepts. Empty: the agent asks for no approvals.
    pub decisions: &'static [Decision],
    /// Kinds of media that can be sent to the agent.
    pub input_media: Media,
    /// Kinds of media that the agent's answers can carry.
    pub output_media: Media,
    /// The way to stop the agent.
    pub cancel: Cancel,
    /// The connector can resume an answer that broke off.
    pub resume: bool,
    /// The agent reports the token usage of an answer.
    pub usage: bool,
    /// The agent sends its reasoning separately from its answer.
    pub reasoning: bool,
    /// The questions that the agent can ask.
    pub asks: AskKinds,
    /// The way in which outputs of the client's calls reach the agent.
    pub tool_outputs: ToolOutputs,
    /// Requests need an id for each message, which stays the same in later turns.
    pub message_ids: bool,
    /// The protocol whose events a run of this agent can contain although the model has no type for them
    /// ([`MessageType::ProtocolEvent`](crate::model::MessageType::ProtocolEvent)). `None`: a run contains no such
    /// events.
    pub protocol_events: Option<&'static str>,
    /// Such events are recorded even if no client reads them, by the operator's setting.
    pub keeps_unread_events: bool,
    /// True if requests contain the model that a client names, because the configuration names none.
    pub wants_model: bool,
}

impl Default for UpstreamCapabilities {
    /// An agent that keeps its own sessions, streams text, and stops when the connection closes.
    fn default() -> Self {
        Self {
            streaming: true,
            history: HistoryNeed::KeptByAgent,
            client_tools: false,
            decisions: &[],
            input_media: Media::NONE,
            output_media: Media::NONE,
            cancel: Cancel::CloseConnection,
            resume: false,
            usage: false,
            reasoning: false,
            asks: AskKinds::default(),
            tool_outputs: ToolOutputs::Each,
            message_ids: false,
            protocol_events: None,
            keeps_unread_events: false,
            wants_model: false,
        }
    }
}

/// Questions that an agent can ask, or that a protocol can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AskKinds {
    /// Approval of a call.
    pub approval: bool,
    /// An answer to a question.
    pub input: bool,
    /// A login outside of the conversation.
    pub auth: bool,
}

impl AskKinds {
    /// Every kind of question.
    pub const ALL: Self = Self { approval: true, input: true, auth: true };
}

/// The way in which outputs of parallel calls of the client reach the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutputs {
    /// Each output in a request of its own, as it arrives.
    Each,
    /// All in one request: the agent refuses a request that lacks one.
    Together,
}

/// The abilities of a protocol towards its clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ClientCapabilities {
    /// Answers are sent piece by piece.
    pub streaming: bool,
    /// The client can run tools for the agent and send their outputs back.
    pub client_tools: bool,
    /// Requests can declare tools that the client runs.
    pub tool_declarations: bool,
    /// Decisions about a pending approval that a client can make. Empty: the protocol cannot show approvals.
    pub decisions: &'static [Decision],
    /// Kinds of media that a client can send.
    pub input_media: Media,
    /// Kinds of media that answers can carry.
    pub output_media: Media,
    /// A client can cancel a run by a request.
    pub cancel: bool,
    /// A client can resume a stream that broke off.
    pub resume: bool,
    /// Answers report their token usage.
    pub usage: bool,
    /// Reasoning is sent separately from the answer.
    pub reasoning: bool,
    /// The questions that this protocol can show.
    pub asks: AskKinds,
    /// The protocol whose events its clients read although the model has no type for them. `None`: clients read no such
    /// events.
    pub protocol_events: Option<&'static str>,
    /// Clients receive such events of any protocol, as data.
    pub any_protocol_events: bool,
    /// Requests can name a model, which is passed on to the agent.
    pub names_model: bool,
}

impl ClientCapabilities {
    /// A protocol whose clients answer calls and questions of every kind, and whose runs can be canceled and resumed.
    #[must_use]
    pub fn interactive() -> Self {
        Self {
            client_tools: true,
            decisions: ALL_DECISIONS,
            input_media: Media::ALL,
            output_media: Media::ALL,
            cancel: true,
            resume: true,
            usage: true,
            reasoning: true,
            asks: AskKinds::ALL,
            ..Self::default()
        }
    }

    /// A protocol of model servers: answers have media and their token usage. `forwards_tools`: the agent receives the
    /// tools that requests declare.
    #[must_use]
    pub fn of_model_server(forwards_tools: bool) -> Self {
        Self {
            client_tools: forwards_tools,
            tool_declarations: forwards_tools,
            output_media: Media::ALL,
            usage: true,
            ..Self::default()
        }
    }
}

impl Default for ClientCapabilities {
    /// A protocol that streams text.
    fn default() -> Self {
        Self {
            streaming: true,
            client_tools: false,
            tool_declarations: false,
            decisions: &[],
            input_media: Media::NONE,
            output_media: Media::NONE,
            cancel: false,
            resume: false,
            usage: false,
            reasoning: false,
            asks: AskKinds::default(),
            protocol_events: None,
            any_protocol_events: false,
            names_model: false,
        }
    }
}

/// The keeper of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryNeed {
    /// The agent, by the id of the session. The gateway sends the history anyway if it is configured so.
    KeptByAgent,
    /// The agent alone: the protocol has no place for earlier turns.
    KeptByAgentOnly,
    /// The gateway alone: every request contains the whole history.
    SentEachTime,
}

/// The way to stop an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancel {
    /// By closing the connection.
    CloseConnection,
    /// By closing the connection and by a request of its own.
    Request,
    /// Not possible: the agent continues to work, and its answer is discarded.
    Ignored,
}

/// Kinds of media. By default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "a set of kinds, each there or not")]
pub struct Media {
    /// Images of any format.
    pub image: bool,
    /// Audio of any format.
    pub audio: bool,
    /// Video of any format.
    pub video: bool,
    /// Files of any type.
    pub file: bool,
}

impl Media {
    /// Text only.
    pub const NONE: Self = Self { image: false, audio: false, video: false, file: false };
    /// Every kind.
    pub const ALL: Self = Self { image: true, audio: true, video: true, file: true };
}
