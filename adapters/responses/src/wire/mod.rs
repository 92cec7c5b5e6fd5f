//! The protocol's own types on their way out, as its specification spells them (sections 6, 7, 1 and 11): borrowed,
//! every required key written, nulls included.
//!
//! Not here: requests. They are read level by level, so that a complaint can name its field ([`crate::decode`]).

mod item;
mod response;

pub(crate) use item::{Empty, Item, McpError, Part, ReasoningText, SummaryText};
pub(crate) use response::{Conversation, ErrorObject, Response, Status, Usage};

use interlingua_core::Json;
use serde::Serialize;

/// A page of a list.
#[derive(Serialize)]
pub(crate) struct List<'a> {
    object: &'static str,
    data: &'a [Json],
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
    has_more: bool,
}

impl<'a> List<'a> {
    /// A page of items and their ids.
    pub(crate) fn new(data: &'a [Json], first_id: Option<&'a str>, last_id: Option<&'a str>, has_more: bool) -> Self {
        Self { object: "list", data, first_id, last_id, has_more }
    }
}

/// One model, which is an agent.
#[derive(Serialize)]
pub(crate) struct Model<'a> {
    pub(crate) id: &'a str,
    pub(crate) object: &'static str,
    pub(crate) created: u64,
    pub(crate) owned_by: &'static str,
}

/// All models.
#[derive(Serialize)]
pub(crate) struct Models<'a> {
    pub(crate) object: &'static str,
    pub(crate) data: Vec<Model<'a>>,
}

/// Something is gone.
#[derive(Serialize)]
pub(crate) struct Deleted<'a> {
    pub(crate) id: &'a str,
    pub(crate) object: &'static str,
    pub(crate) deleted: bool,
}

/// How many tokens a request would be, as far as that can be told.
#[derive(Serialize)]
pub(crate) struct InputTokens {
    pub(crate) object: &'static str,
    pub(crate) input_tokens: u64,
}

/// A conversation made small.
#[derive(Serialize)]
pub(crate) struct Compaction<'a> {
    pub(crate) id: &'a str,
    pub(crate) object: &'static str,
    pub(crate) created_at: u64,
    pub(crate) output: &'a [Item<'a>],
    pub(crate) usage: Usage,
}
