//! One entry of a session: a turn of a run, or a message that a client put there.
//!
//! Not here: reading and writing entries ([`super::entries`]), and the content of a turn (its run).

use interlingua_core::model::Message;
use interlingua_core::tree::Node;
use interlingua_core::{Json, RunId};
use serde::{Deserialize, Serialize};

use interlingua_base::clock;

/// One entry of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entry {
    /// A turn of a run: its input and the agent's answer.
    Turn {
        /// The run.
        run: RunId,
        /// Which of its turns.
        turn: u32,
    },
    /// A message that a client put there.
    #[serde(rename = "said")]
    Message {
        /// Its id.
        id: String,
        /// The message.
        message: Json,
    },
}

impl Entry {
    /// A message as an entry. One without an id gets one.
    pub(crate) fn from_message(message: &Message) -> Self {
        let id = message.id.clone().filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| clock::new_id().to_prefixed("msg_"));
        Self::Message { id, message: Json::from_serialize(message) }
    }

    /// The message, if the entry is one.
    pub(crate) fn to_message(&self) -> Option<Message> {
        let Self::Message { message, .. } = self else { return None };
        Message::parse(&Node::with_path("", message.raw())).ok()
    }

    /// The id of the message; empty for a turn.
    pub(crate) fn message_id(&self) -> &str {
        match self {
            Self::Turn { .. } => "",
            Self::Message { id, .. } => id,
        }
    }

    /// The size of the message in bytes. Turns are counted with their runs.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Turn { .. } => 0,
            Self::Message { message, .. } => message.text().len() as u64,
        }
    }

    /// True for a turn of this run.
    pub(crate) fn is_turn_of(&self, id: RunId) -> bool {
        matches!(self, Self::Turn { run, .. } if *run == id)
    }
}
