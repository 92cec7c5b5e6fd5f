//! Output items and their parts (section 7).

use interlingua_core::Json;
use serde::ser::{Serialize, SerializeSeq, Serializer};

/// Serializes as `[]`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Empty;

impl Serialize for Empty {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_seq(Some(0))?.end()
    }
}

/// An item of an output.
#[derive(serde::Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Item<'a> {
    Message {
        id: &'a str,
        status: &'static str,
        role: &'static str,
        content: &'a [Part<'a>],
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'a str>,
    },
    Reasoning {
        id: &'a str,
        summary: &'a [SummaryText<'a>],
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        content: &'a [ReasoningText<'a>],
        #[serde(skip_serializing_if = "Option::is_none")]
        encrypted_content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<&'static str>,
    },
    FunctionCall {
        id: &'a str,
        status: &'static str,
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<&'a str>,
    },
    CustomToolCall {
        id: &'a str,
        status: &'static str,
        call_id: &'a str,
        name: &'a str,
        input: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<&'a str>,
    },
    FunctionCallOutput {
        id: &'a str,
        call_id: &'a str,
        output: &'a str,
        status: &'static str,
    },
    CustomToolCallOutput {
        id: &'a str,
        call_id: &'a str,
        output: &'a str,
        status: &'static str,
    },
    McpCall {
        id: &'a str,
        status: &'static str,
        server_label: &'a str,
        name: &'a str,
        arguments: &'a str,
        output: Option<&'a str>,
        error: Option<McpError<'a>>,
        approval_request_id: Option<&'a str>,
    },
    McpListTools {
        id: &'a str,
        server_label: &'a str,
        tools: &'a [Json],
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a Json>,
    },
    McpApprovalRequest {
        id: &'a str,
        server_label: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    McpApprovalResponse {
        id: &'a str,
        approval_request_id: &'a str,
        approve: bool,
        reason: Option<&'a str>,
    },
    ImageGenerationCall {
        id: &'a str,
        status: &'static str,
        result: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        output_format: Option<&'a str>,
    },
    Compaction {
        id: &'a str,
        encrypted_content: &'a str,
    },
    /// A message of a type this protocol has no item for.
    #[serde(untagged)]
    Extension {
        id: &'a str,
        #[serde(rename = "type")]
        kind: String,
        status: &'static str,
        content: &'a [interlingua_core::model::Content],
    },
}

/// The error of a failed tool.
#[derive(serde::Serialize)]
pub(crate) struct McpError<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    content: [McpText<'a>; 1],
}

#[derive(serde::Serialize)]
struct McpText<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

impl<'a> McpError<'a> {
    /// The tool ran and failed with this error text.
    pub(crate) const fn execution(text: &'a str) -> Self {
        Self { kind: "mcp_tool_execution_error", content: [McpText { kind: "text", text }] }
    }
}

/// A part of a message.
#[derive(serde::Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Part<'a> {
    OutputText {
        text: &'a str,
        #[serde(serialize_with = "list")]
        annotations: &'a [Json],
        logprobs: Empty,
    },
    Refusal {
        refusal: &'a str,
    },
    /// A part the client sent.
    #[serde(untagged)]
    Input(Json),
}

fn list<S: Serializer>(values: &[Json], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values)
}

/// A part of a summary.
#[derive(serde::Serialize)]
pub(crate) struct SummaryText<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

impl<'a> SummaryText<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { kind: "summary_text", text }
    }
}

/// A part of a reasoning text.
#[derive(serde::Serialize)]
pub(crate) struct ReasoningText<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

impl<'a> ReasoningText<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { kind: "reasoning_text", text }
    }
}
