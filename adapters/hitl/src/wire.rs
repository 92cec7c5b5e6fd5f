//! The service's types, as its documentation defines them: all keys are present, unused ones are null.

use interlingua_core::{Extra, Json};
use serde::Serialize;

/// The response of invoke and resume.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AgentResponse {
    pub(crate) session_id: String,
    pub(crate) status: &'static str,
    /// Seconds since 1970.
    pub(crate) timestamp: f64,
    pub(crate) message: Option<String>,
    pub(crate) result: Option<Conversation>,
    pub(crate) interrupt_data: Option<InterruptData>,
}

/// The value of `result`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
}

/// One message, in the format of LangChain.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Message {
    pub(crate) content: String,
    pub(crate) additional_kwargs: Kwargs,
    pub(crate) response_metadata: Empty,
    pub(crate) r#type: &'static str,
    pub(crate) name: Option<String>,
    pub(crate) id: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) ai: Option<Ai>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<Tool>,
}

/// Additional fields of an `ai` message.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Ai {
    pub(crate) tool_calls: Vec<ToolCall>,
    pub(crate) invalid_tool_calls: Vec<InvalidToolCall>,
    pub(crate) usage_metadata: Option<Empty>,
}

/// Additional fields of a `tool` message.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tool {
    pub(crate) tool_call_id: String,
    pub(crate) artifact: Option<Empty>,
    pub(crate) status: &'static str,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Kwargs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
}

/// An empty object.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Empty {}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ToolCall {
    pub(crate) name: String,
    pub(crate) args: Json,
    pub(crate) id: String,
    pub(crate) r#type: &'static str,
}

/// A call whose arguments are no JSON object; `args` is the model's text.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InvalidToolCall {
    pub(crate) name: String,
    pub(crate) args: String,
    pub(crate) id: String,
    pub(crate) error: Option<String>,
    pub(crate) r#type: &'static str,
}

/// The value of `interrupt_data`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InterruptData {
    pub(crate) action_request: ActionRequest,
    pub(crate) config: Option<Config>,
    pub(crate) description: String,
    pub(crate) interrupt_type: String,
    /// Additional fields of the source's payload, verbatim; the complete payload if it has another format.
    #[serde(flatten)]
    pub(crate) rest: Extra,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ActionRequest {
    pub(crate) action: String,
    pub(crate) args: Json,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Config {
    pub(crate) allow_accept: bool,
    pub(crate) allow_edit: bool,
    pub(crate) allow_respond: bool,
    pub(crate) allow_ignore: bool,
}

/// The response of status.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SessionStatus {
    pub(crate) user_id: String,
    pub(crate) session_id: Option<String>,
    pub(crate) status: &'static str,
    pub(crate) message: Option<String>,
    pub(crate) last_query: Option<String>,
    pub(crate) last_updated: Option<f64>,
    pub(crate) last_response: Option<AgentResponse>,
}

/// The response of delete.
#[derive(Debug, Serialize)]
pub(crate) struct DeletionResponse {
    pub(crate) status: &'static str,
    pub(crate) message: String,
}

/// The response of `/agent/sessionids`.
#[derive(Debug, Serialize)]
pub(crate) struct SessionIds {
    pub(crate) session_ids: Vec<String>,
}

/// The response of `/agent/active/sessionid`.
#[derive(Debug, Serialize)]
pub(crate) struct ActiveSession {
    pub(crate) active_session_id: String,
}

/// The response of `/system/info`.
#[derive(Debug, Serialize)]
pub(crate) struct SystemInfo {
    pub(crate) sessions_count: usize,
    pub(crate) active_users: Vec<String>,
}

/// An error response with a message.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorBody<'a> {
    pub(crate) detail: &'a str,
}

/// An error response with one error per field.
#[derive(Debug, Serialize)]
pub(crate) struct BadFields<'a> {
    pub(crate) detail: &'a [BadField],
}

/// The error of one field.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BadField {
    pub(crate) r#type: &'static str,
    pub(crate) loc: Vec<String>,
    pub(crate) msg: &'static str,
    pub(crate) input: Json,
}

/// Converts a time to seconds since 1970, the unit of this service.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of any year people will see are exact in a float")]
pub(crate) fn seconds(millis: interlingua_core::event::Millis) -> f64 {
    millis as f64 / 1000.0
}
