//! Options of a Responses route (docs/protocols/responses.md#options).
//!
//! Not here: keep-alive, retention and access. They are settings of the gateway and apply to every protocol.

use std::collections::BTreeMap;

pub use interlingua_adapter_kit::model_options::{
    ClientTools, DataDisplay, Disconnect, IgnoreOrRefuse, OpenCalls, ReasoningInput, RefusalInput, StructuredOutput,
};
use interlingua_core::choice;
use interlingua_core::options::Switch;
use interlingua_core::size::Size;
use schemars::JsonSchema;
use serde::Deserialize;

/// The options of a route.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Additional model names: the `model` a client may send, and the agent it maps to.
    pub models: BTreeMap<String, String>,
    /// Accept any `model` for the route's agent. Only for routes with one agent.
    pub any_model: bool,
    /// Send the client's `model` to the agent.
    pub forward_model: bool,
    /// The form of calls that the agent runs itself.
    pub tool_items: ToolItems,
    /// The form of the agent's reasoning.
    pub reasoning: Reasoning,
    /// Whether reasoning items in the client's history reach the agent.
    pub reasoning_input: ReasoningInput,
    /// Whether tool outputs are unwrapped.
    pub tool_output: ToolOutput,
    /// Whether data in ordinary messages is shown, as JSON text.
    pub data: DataDisplay,
    /// Handling of messages of unknown types.
    pub custom_items: CustomItems,
    /// Handling of tools that the client declares.
    pub client_tools: ClientTools,
    /// Handling of tools that OpenAI would run.
    pub hosted_tools: IgnoreOrRefuse,
    /// Handling of `text.format`.
    pub structured_output: StructuredOutput,
    /// Handling of unknown fields.
    pub unknown_fields: IgnoreOrRefuse,
    /// Whether calls of the previous response may stay unanswered.
    pub open_calls: OpenCalls,
    /// The form in which the agent receives refusals in the client's history.
    pub refusal_input: RefusalInput,
    /// Whether `POST /responses/compact` is served.
    pub compact: Compact,
    /// Whether `POST /responses/input_tokens` is served. It returns an estimate.
    pub input_tokens: Switch,
    /// Whether `/conversations` and the request's `conversation` are served.
    pub conversations: Switch,
    /// Whether `/responses` accepts WebSocket connections.
    pub websocket: Switch,
    /// Whether `background: true` is accepted.
    pub background: Switch,
    /// Whether a stream ends with `data: [DONE]`.
    pub done_frame: bool,
    /// Handling of a foreground run whose client disconnects.
    pub disconnect: Disconnect,
    /// Maximum size of a request body, in bytes or as `"8MiB"`. Default: the limit of the server.
    pub max_body: Option<Size>,
    /// Name of the function call that represents a question of the agent to a person.
    pub request_input: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            models: BTreeMap::new(),
            any_model: false,
            forward_model: false,
            tool_items: ToolItems::default(),
            reasoning: Reasoning::default(),
            reasoning_input: ReasoningInput::default(),
            tool_output: ToolOutput::default(),
            data: DataDisplay::default(),
            custom_items: CustomItems::default(),
            client_tools: ClientTools::default(),
            hosted_tools: IgnoreOrRefuse::default(),
            structured_output: StructuredOutput::default(),
            unknown_fields: IgnoreOrRefuse::default(),
            open_calls: OpenCalls::default(),
            refusal_input: RefusalInput::default(),
            compact: Compact::default(),
            input_tokens: Switch(true),
            conversations: Switch(true),
            websocket: Switch(true),
            background: Switch(true),
            done_frame: true,
            disconnect: Disconnect::default(),
            max_body: None,
            request_input: "request_input".to_owned(),
        }
    }
}

choice! {
    /// The form of calls that the agent runs itself.
    ToolItems {
        /// `mcp_call` items, which all common clients understand.
        #[default]
        McpCall,
        /// Hidden.
        Hide,
        /// `function_call` and `function_call_output` items, which several clients cannot read.
        Pair,
    }
}
choice! {
    /// The form of the agent's reasoning.
    Reasoning {
        /// A summary, which all common clients show.
        #[default]
        Summary,
        /// Reasoning text.
        Text,
        /// Both, so that every delta is sent twice.
        Both,
        /// Hidden.
        Hide,
    }
}
choice! {
    /// Whether tool outputs are unwrapped.
    ToolOutput {
        /// A JSON list of text blocks is joined, a JSON string unquoted.
        #[default]
        Plain,
        /// Unchanged.
        Raw,
    }
}
choice! {
    /// Handling of messages of unknown types.
    CustomItems {
        /// Stored with the run, but not shown.
        #[default]
        Drop,
        /// DataDisplay as an item of type `interlingua:<type>`.
        Extension,
    }
}
choice! {
    /// `POST /responses/compact`.
    Compact {
        /// Return a `compaction` item that contains the complete context.
        #[default]
        Keep,
        /// Answer with 404.
        Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_the_schema_and_nothing_else() {
        let options: Options = serde_json::from_str("{}").expect("every option has a default");
        assert!(options.websocket.0 && options.max_body.is_none());

        interlingua_core_testkit::check_options::<Options>();
    }

    #[test]
    fn sizes_and_switches_accept_common_notations() {
        let options: Options =
            serde_json::from_str(r#"{"max_body":"8 MiB","websocket":"off","background":false}"#).expect("options");
        assert_eq!(
            (options.max_body, options.websocket.0, options.background.0),
            (Some(Size::mebibytes(8)), false, false)
        );

        for wrong in [r#"{"max_body":"8 miles"}"#, r#"{"websocket":"maybe"}"#, r#"{"max_body":-1}"#] {
            assert!(serde_json::from_str::<Options>(wrong).is_err(), "{wrong}");
        }
    }
}
