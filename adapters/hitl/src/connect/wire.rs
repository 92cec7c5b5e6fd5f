//! Answers of the service (docs/human-in-the-loop.md#the-rest-protocol). Fields that are not needed are not read.

use interlingua_core::Json;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The answer of `invoke` and `resume`.
#[derive(Debug, Deserialize)]
pub(super) struct AgentResponse<'a> {
    pub(super) status: String,
    #[serde(default)]
    pub(super) session_id: Option<String>,
    /// Seconds since 1970.
    #[serde(default)]
    pub(super) timestamp: Option<f64>,
    #[serde(default)]
    pub(super) message: Option<String>,
    #[serde(default, borrow)]
    result: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) interrupt_data: Option<&'a RawValue>,
}

impl<'a> AgentResponse<'a> {
    /// None: no answer of this service.
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        // serde would read a list as an object with its fields in order.
        body.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice(body).ok()).flatten()
    }

    /// The whole conversation. None: there is something else in its place.
    pub(super) fn messages(&self) -> Option<Vec<Message<'a>>> {
        let Some(result) = self.result.filter(|result| result.get() != "null") else { return Some(Vec::new()) };
        let is_object = result.get().starts_with('{');
        Some(is_object.then(|| serde_json::from_str::<Conversation<'a>>(result.get()).ok()).flatten()?.messages)
    }
}

/// The value of `result`.
#[derive(Debug, Default, Deserialize)]
struct Conversation<'a> {
    #[serde(default, borrow)]
    messages: Vec<Message<'a>>,
}

/// A message in the form of LangChain.
#[derive(Debug, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// A text or a list of parts.
    #[serde(default, borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default, borrow)]
    pub(super) additional_kwargs: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) tool_calls: Option<Vec<ToolCall<'a>>>,
    #[serde(default, borrow)]
    pub(super) invalid_tool_calls: Option<Vec<ToolCall<'a>>>,
    #[serde(default)]
    pub(super) tool_call_id: Option<String>,
    #[serde(default)]
    pub(super) status: Option<String>,
}

/// A call. The arguments of an invalid one are a text.
#[derive(Debug, Deserialize)]
pub(super) struct ToolCall<'a> {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default, borrow)]
    pub(super) args: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) id: Option<String>,
}

/// The question of the service.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InterruptData {
    pub(super) action_request: ActionRequest,
    pub(super) config: Option<Config>,
    pub(super) description: Option<String>,
    pub(super) interrupt_type: Option<String>,
    pub(super) response_schema: Option<Json>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ActionRequest {
    pub(super) action: String,
    pub(super) args: Option<Json>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_excessive_bools, reason = "the service's own flags")]
pub(super) struct Config {
    pub(super) allow_accept: bool,
    pub(super) allow_edit: bool,
    pub(super) allow_respond: bool,
    pub(super) allow_ignore: bool,
}

/// The answer of `status`.
#[derive(Debug, Deserialize)]
pub(super) struct SessionStatus<'a> {
    pub(super) status: String,
    #[serde(default)]
    pub(super) last_query: Option<String>,
    #[serde(default, borrow)]
    pub(super) last_response: Option<AgentResponse<'a>>,
}
