//! The protocol's outgoing types, as its documentation defines them (docs/protocols/ag-kit.md#events). Incoming
//! requests are parsed field by field in [`crate::decode::request`].

use interlingua_core::{Json, Out};
use serde::Serialize;

/// One event of a stream.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(crate) enum Event<'a> {
    /// A delta of the answer.
    Text { content: &'a str },
    /// A delta of reasoning: an extension, by option.
    Reasoning { content: &'a str },
    /// A call starts.
    ToolCallStart { tool_call_id: &'a str, tool_call_name: &'a str },
    /// A delta of the call's arguments.
    ToolCallArgs { tool_call_id: &'a str, delta: &'a str },
    /// The call's arguments are complete.
    ToolCallEnd { tool_call_id: &'a str },
    /// The result of a call that the server ran.
    ToolResult { tool_call_id: &'a str, result: &'a str },
    /// The agent waits for an answer.
    Interrupt { id: &'a str, reason: &'a str, payload: &'a Json },
    /// Something failed.
    Error { error: &'a str },
}

impl Event<'_> {
    /// Writes the event as an SSE frame.
    pub(crate) fn write(&self, out: &mut Out) {
        out.frame(None, self);
    }
}

/// Writes the last frame.
pub(crate) fn done(out: &mut Out) {
    out.text_frame("[DONE]");
}

/// An error response before the stream (docs/protocols/ag-kit.md#errors).
#[derive(Debug, Serialize)]
pub(crate) struct ErrorBody<'a> {
    pub(crate) error: ErrorDetail<'a>,
}

/// The error itself.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorDetail<'a> {
    pub(crate) code: String,
    pub(crate) message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<&'a str>,
}

/// The response of `healthz` (docs/protocols/ag-kit.md#endpoints).
#[derive(Debug, Serialize)]
pub(crate) struct Health<'a> {
    pub(crate) status: &'static str,
    pub(crate) timestamp: String,
    pub(crate) service: &'static str,
    pub(crate) version: &'static str,
    pub(crate) base_path: &'a str,
}
