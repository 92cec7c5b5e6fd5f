//! The ids of messages: each has one that stays the same however often it is sent to an agent or listed.
//!
//! Not here: the ids of runs and items ([`interlingua_core::id`]).

use interlingua_core::RunId;

/// Where a message comes from, which is what it is named by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MessageOrigin {
    /// A message in the input of a turn.
    Input { run: RunId, turn: u32, place: usize },
    /// A message of an answer, by its place in its run.
    Answer { run: RunId, place: usize },
    /// A message that was put into the session, by the id it got then.
    Entry(String),
    /// Instructions in front of everything else. They are said with each turn, and are the same ones.
    Preamble { place: usize },
    /// A message of the input that is being sent.
    New { place: usize },
    /// A message of the conversation that the client sends with each request.
    Resent { place: usize },
    /// An answer that stands in no input: it came beside it.
    Beside { place: usize },
}

impl MessageOrigin {
    /// The id. `run` and `turn`: those that are being sent; `session`: theirs.
    pub(crate) fn id(&self, session: &str, run: RunId, turn: u32) -> String {
        match self {
            Self::Input { run, turn, place } => input_id(*run, *turn, *place),
            Self::Answer { run, place } => run.message_id(*place),
            Self::Entry(id) => id.clone(),
            Self::Resent { place } => format!("msg_{session}_was{place}"),
            Self::Preamble { place } => format!("msg_{session}_pre{place}"),
            Self::New { place } => input_id(run, turn, *place),
            Self::Beside { place } => format!("msg_{}_beside{turn}_{place}", run.0.simple()),
        }
    }
}

/// The id of a message in the input of a turn.
pub(crate) fn input_id(run: RunId, turn: u32, place: usize) -> String {
    format!("msg_{}_in{turn}_{place}", run.0.simple())
}
