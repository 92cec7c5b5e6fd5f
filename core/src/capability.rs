//! What each half of a protocol can carry, as data.
//!
//! Used by the configuration check (what does not fit is said before a request is lost), by the engine (which decisions an
//! agent takes, whether it needs the history), and by the tests, which run one trial for each pair of protocols that both
//! carry what it needs.

use serde::Serialize;

use crate::pending::Decision;

/// What an agent takes and gives, as far as its protocol and the options of its connector say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UpstreamCapabilities {
    /// Answers come piece by piece.
    pub streaming: bool,
    /// Who keeps the history of a session.
    pub history: HistoryNeed,
    /// Tools that the client runs are passed on to the agent.
    pub client_tools: bool,
    /// Decisions about a pending approval that the agent can be given. Empty: it asks for none.
    pub decisions: &'static [Decision],
    /// Kinds of media that can be sent to the agent.
    pub input_media: Media,
    /// Kinds of media that the agent's answers can carry.
    pub output_media: Media,
    /// How the agent is stopped.
    pub cancel: Cancel,
    /// An answer that breaks off can be taken up again.
    pub resume: bool,
    /// The agent says what an answer cost.
    pub usage: bool,
    /// The agent's reasoning can be told from its answer.
    pub reasoning: bool,
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
        }
    }
}

/// What a protocol can carry to its clients and back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ClientCapabilities {
    /// Answers go out piece by piece.
    pub streaming: bool,
    /// The client can offer tools of its own and run them.
    pub client_tools: bool,
    /// Decisions about a pending approval that a client can make. Empty: it cannot be asked.
    pub decisions: &'static [Decision],
    /// Kinds of media that a client can send.
    pub input_media: Media,
    /// Kinds of media that answers can carry.
    pub output_media: Media,
    /// A client can stop a run other than by leaving.
    pub cancel: bool,
    /// A client can take up a stream that broke off.
    pub resume: bool,
    /// Answers say what they cost.
    pub usage: bool,
    /// Reasoning goes out apart from the answer.
    pub reasoning: bool,
}

impl Default for ClientCapabilities {
    /// A protocol that streams text.
    fn default() -> Self {
        Self {
            streaming: true,
            client_tools: false,
            decisions: &[],
            input_media: Media::NONE,
            output_media: Media::NONE,
            cancel: false,
            resume: false,
            usage: false,
            reasoning: false,
        }
    }
}

/// Who keeps what was said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryNeed {
    /// The agent, by the id of the session. The gateway may still send it whole if it is configured so.
    KeptByAgent,
    /// Nobody but the gateway: every request holds all of it.
    SentEachTime,
}

/// How an agent is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancel {
    /// By closing the connection.
    CloseConnection,
    /// By a request of its own, besides.
    Request,
}

/// Kinds of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "a set of kinds, each there or not")]
pub struct Media {
    /// Images.
    pub image: bool,
    /// Audio.
    pub audio: bool,
    /// Video.
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
