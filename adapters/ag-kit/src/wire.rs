//! The protocol's own types, as its page spells them (section 4): what goes out. What comes in is read field by field
//! in [`crate::request`].

use interlingua_core::{Json, Out};
use serde::Serialize;

/// One event of a stream.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(crate) enum Event<'a> {
    /// A fragment of the answer.
    Text { content: &'a str },
    /// A fragment of reasoning: an extension, by option.
    Reasoning { content: &'a str },
    /// A call begins.
    ToolCallStart { tool_call_id: &'a str, tool_call_name: &'a str },
    /// A fragment of its arguments.
    ToolCallArgs { tool_call_id: &'a str, delta: &'a str },
    /// Its arguments are complete.
    ToolCallEnd { tool_call_id: &'a str },
    /// The server ran it.
    ToolResult { tool_call_id: &'a str, result: &'a str },
    /// The agent waits.
    Interrupt { id: &'a str, reason: &'a str, payload: &'a Json },
    /// Something failed.
    Error { error: &'a str },
}

impl Event<'_> {
    /// Writes its frame.
    pub(crate) fn write(&self, out: &mut Out) {
        out.frame(None, self);
    }
}

/// Writes the last frame.
pub(crate) fn done(out: &mut Out) {
    out.write_raw(b"data: [DONE]\n\n");
}

/// A refusal before the stream (section 8).
#[derive(Debug, Serialize)]
pub(crate) struct Refusal<'a> {
    pub(crate) error: RefusalError<'a>,
}

/// What is in the way.
#[derive(Debug, Serialize)]
pub(crate) struct RefusalError<'a> {
    pub(crate) code: String,
    pub(crate) message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<&'a str>,
}

/// The answer of `healthz` (section 2).
#[derive(Debug, Serialize)]
pub(crate) struct Health<'a> {
    pub(crate) status: &'static str,
    pub(crate) timestamp: String,
    pub(crate) service: &'static str,
    pub(crate) version: &'static str,
    pub(crate) base_path: &'a str,
}
