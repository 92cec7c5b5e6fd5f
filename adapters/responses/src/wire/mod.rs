//! Outgoing wire types of the protocol (docs/protocols/responses.md#response-object). They borrow their data and write
//! every required key, nulls included.
//!
//! Not here: requests. [`crate::decode`] parses them field by field, so that an error can name its field.

mod item;
mod response;

pub(crate) use item::{Empty, Item, McpError, Part, ReasoningText, SummaryText};
pub(crate) use response::{Conversation, ErrorObject, Response, Status, Usage};

use serde::Serialize;

/// Confirms a deletion.
#[derive(Serialize)]
pub(crate) struct DeletionResponse<'a> {
    pub(crate) id: &'a str,
    pub(crate) object: &'static str,
    pub(crate) deleted: bool,
}

/// Estimated number of input tokens of a request.
#[derive(Serialize)]
pub(crate) struct InputTokens {
    pub(crate) object: &'static str,
    pub(crate) input_tokens: u64,
}

/// A compacted conversation.
#[derive(Serialize)]
pub(crate) struct Compaction<'a> {
    pub(crate) id: &'a str,
    pub(crate) object: &'static str,
    pub(crate) created_at: u64,
    pub(crate) output: &'a [Item<'a>],
    pub(crate) usage: Usage,
}
