//! Writes runs as frames of the Agent API.

pub(crate) mod frames;
