//! Options of a Responses route (docs/protocols/responses.md#options).
//!
//! Not here: keep-alive, retention and access. They are settings of the gateway and apply to every protocol.

use std::collections::BTreeMap;

use interlingua_core::choice;
pub use interlingua_core::model_options::{
    ClientTools, DataDisplay, Disconnect, IgnoreOrRefuse, OpenCalls, ReasoningInput, RefusalInput, StructuredOutput,
};
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
    /// How calls that the agent runs itself are shown.
    pub tool_items: ToolItems,
    /// How the agent's reasoning is shown.
    pub reasoning: Reasoning,
    /// Whether reasoning items in the client's history reach the agent.
    pub reasoning_input: ReasoningInput,
    /// Whether tool outputs are unwrapped.
    pub tool_output: ToolOutput,
    /// Whether data in ordinary messages is shown, as JSON text.
    pub data: DataDisplay,
    /// How messages of unknown types are handled.
    pub custom_items: CustomItems,
    /// How tools that the client declares are handled.
    pub client_tools: ClientTools,
    /// How tools that OpenAI would run are handled.
    pub hosted_tools: IgnoreOrRefuse,
    /// How `text.format` is handled.
    pub structured_output: StructuredOutput,
    /// How unknown fields are handled.
    pub unknown_fields: IgnoreOrRefuse,
    /// Whether calls of the previous response may stay unanswered.
    pub open_calls: OpenCalls,
    /// How refusals in the client's history reach the agent.
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
    /// What happens to a foreground run when its client disconnects.
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
    /// How calls that the agent runs itself are shown.
    ToolItems {
        /// As `mcp_call` items, which all common clients understand.
        #[default]
        McpCall,
        /// Hidden.
        Hide,
        /// As `function_call` and `function_call_output` items, which several clients cannot read.
        Pair,
    }
}
choice! {
    /// How the agent's reasoning is shown.
    Reasoning {
        /// As a summary, which all common clients show.
        #[default]
        Summary,
        /// As reasoning text.
        Text,
        /// As both, so every delta is sent twice.
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
    /// How messages of unknown types are handled.
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

        interlingua_core::testkit::check_options::<Options>();
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
