//! A call of the run that is encoded, and its item.

use crate::wire::{Item, McpError};

/// A call of this run.
#[derive(Debug)]
pub(super) struct TrackedCall {
    pub(super) message: usize,
    pub(super) content: usize,
    /// `output_index` of its item. `None`: the call is deferred or hidden.
    pub(super) output_index: Option<usize>,
    pub(super) id: String,
    pub(super) call_id: String,
    pub(super) name: String,
    pub(super) form: Form,
    /// `None` until they are final.
    pub(super) arguments: Option<String>,
    /// Its result, if that arrived before the arguments were final.
    pub(super) result: Option<ToolResult>,
    pub(super) done: bool,
}

/// The encoding of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The client runs it.
    Function { namespace: Option<String> },
    /// The client runs it; the input is free text.
    Custom { namespace: Option<String> },
    /// The agent runs it.
    Mcp { label: String },
    /// Not yet known who runs it.
    Deferred { label: String },
    /// Hidden by the options.
    Hidden,
}

impl Form {
    pub(super) fn label(&self) -> Option<&str> {
        match self {
            Self::Mcp { label } | Self::Deferred { label } => Some(label),
            Self::Function { .. } | Self::Custom { .. } | Self::Hidden => None,
        }
    }
}

/// The result of a tool, as text.
#[derive(Debug)]
pub(super) enum ToolResult {
    Success(String),
    Failure(String),
}

impl TrackedCall {
    /// A call that has not been sent. `place`: the indexes of its message and of the content.
    pub(super) const fn new(place: (usize, usize), id: String, call_id: String, name: String, form: Form) -> Self {
        Self {
            message: place.0,
            content: place.1,
            output_index: None,
            id,
            call_id,
            name,
            form,
            arguments: None,
            result: None,
            done: false,
        }
    }

    /// The item. A deferred call has the form it will have if the agent runs it.
    pub(super) fn item<'a>(&'a self, status: &'static str, result: Option<&'a ToolResult>) -> Item<'a> {
        let arguments = self.arguments.as_deref().unwrap_or("");
        match &self.form {
            Form::Function { namespace } => Item::FunctionCall {
                id: &self.id,
                status,
                call_id: &self.call_id,
                name: &self.name,
                arguments,
                namespace: namespace.as_deref(),
            },
            Form::Custom { namespace } => Item::CustomToolCall {
                id: &self.id,
                status,
                call_id: &self.call_id,
                name: &self.name,
                input: arguments,
                namespace: namespace.as_deref(),
            },
            Form::Mcp { .. } | Form::Deferred { .. } | Form::Hidden => Item::McpCall {
                id: &self.id,
                status,
                server_label: self.form.label().unwrap_or(""),
                name: &self.name,
                arguments,
                output: match result {
                    Some(ToolResult::Success(output)) => Some(output),
                    Some(ToolResult::Failure(_)) | None => None,
                },
                error: match result {
                    Some(ToolResult::Failure(text)) => Some(McpError::execution(text)),
                    Some(ToolResult::Success(_)) | None => None,
                },
                approval_request_id: None,
            },
        }
    }

    /// Names of the delta event and the done event of its arguments, and of their field in the latter.
    pub(super) const fn events(&self) -> (&'static str, &'static str, &'static str) {
        match self.form {
            Form::Function { .. } => {
                ("response.function_call_arguments.delta", "response.function_call_arguments.done", "arguments")
            }
            Form::Custom { .. } => {
                ("response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", "input")
            }
            Form::Mcp { .. } | Form::Deferred { .. } | Form::Hidden => {
                ("response.mcp_call_arguments.delta", "response.mcp_call_arguments.done", "arguments")
            }
        }
    }
}
