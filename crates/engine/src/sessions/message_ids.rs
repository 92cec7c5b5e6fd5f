//! The ids of messages. A message keeps its id each time it is sent to an agent or listed.
//!
//! Not here: the ids of runs and items ([`interlingua_core::id`]).

use interlingua_core::RunId;

/// The origin of a message, from which its id is made. `place` counts the messages of one origin from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MessageOrigin {
    /// A message in the input of a turn.
    Input { run: RunId, turn: u32, place: usize },
    /// A message of an answer. `place` is its index in the run.
    Answer { run: RunId, place: usize },
    /// A message that a client added to the session, by the id assigned then.
    Entry(String),
    /// Instructions at the beginning of a request. They have the same ids in every turn of the session.
    Preamble { place: usize },
    /// A message of the input of the current turn.
    New { place: usize },
    /// A message of the history that the client sends with each request.
    Resent { place: usize },
    /// An answer to a pending item that the client sent outside its input.
    Beside { place: usize },
}

impl MessageOrigin {
    /// The id of the message in the current request, which belongs to `turn` of `run` in `session`.
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
fn input_id(run: RunId, turn: u32, place: usize) -> String {
    format!("msg_{}_in{turn}_{place}", run.0.simple())
}
