//! The meaning of the text of an agent's message, by its position.

use serde_json::value::RawValue;

use super::digest::Digest;
use super::options::UpstreamStatusText;
use super::wire::{self, filled};
use crate::wire::{Content, Part};

/// Where a message stands, which says what plain text in it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessagePosition {
    /// The status of a task that works.
    Status(UpstreamStatusText),
    /// The status at the end: part of the answer.
    Answer,
    /// Instead of a task: the whole answer.
    Reply,
}

pub(super) fn is_no_text(part: &Part<'_>) -> bool {
    !matches!(part.content, Content::Text(_))
}

/// The identity of a status message: its id, else a digest of the whole message.
pub(super) fn message_digest(raw: &RawValue) -> u64 {
    let message = wire::message(raw);
    let id = message.as_ref().and_then(|message| filled(&message.message_id));
    Digest::from_bytes(id.unwrap_or_else(|| raw.get()).as_bytes()).value()
}

/// The texts of parts, joined.
pub(super) fn plain_text(parts: &[Part<'_>]) -> String {
    let texts = parts.iter().filter_map(|part| match &part.content {
        Content::Text(text) => Some(text.as_ref()),
        _ => None,
    });
    texts.collect()
}
