//! Writes the answer of a turn and the conversation of a session as JSON.

pub(crate) mod conversation;
pub(crate) mod turn;
