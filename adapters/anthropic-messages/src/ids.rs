//! Ids of this protocol: those of messages are made of the run's.

/// Prefix of the ids of messages.
pub(crate) const MESSAGE_PREFIX: &str = "msg_";
