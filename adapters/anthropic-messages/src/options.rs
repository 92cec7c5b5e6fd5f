//! Options of an Anthropic Messages route (docs/protocols/anthropic-messages.md#options).
//!
//! Not here: the options of agents that speak the protocol ([`crate::UpstreamOptions`]). Keep-alive, retention and
//! access are settings of the gateway and apply to every protocol.

use std::collections::BTreeMap;

use interlingua_adapter_kit::model_options::{
    Busy, ClientTools, DataDisplay, Disconnect, IgnoreOrRefuse, OpenCalls, ReasoningInput, StructuredOutput,
};
use interlingua_core::answer::chat::{ApprovalForm, ChatAsker};
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
    /// Accept any `model` for the route's agent. Only for routes with one agent. Claude Code asks for models of its
    /// own.
    pub any_model: bool,
    /// Send the client's `model` to the agent.
    pub forward_model: bool,
    /// The form of calls that the agent runs itself.
    pub tool_items: ToolItems,
    /// Whether the agent's reasoning is shown.
    pub reasoning: Reasoning,
    /// Whether thinking blocks in the client's history reach the agent.
    pub reasoning_input: ReasoningInput,
    /// Whether data in ordinary messages is shown, as JSON text.
    pub data: DataDisplay,
    /// The form of images that an agent sends inline: answers of the protocol cannot contain images.
    pub inline_images: InlineImages,
    /// Whether sources of a text are shown as citations.
    pub citations: Switch,
    /// Handling of tools that the client declares.
    pub client_tools: ClientTools,
    /// Handling of tools that Anthropic would run, or whose schema only its models know.
    pub hosted_tools: IgnoreOrRefuse,
    /// Handling of `output_config.format`.
    pub structured_output: StructuredOutput,
    /// Handling of unknown fields.
    pub unknown_fields: IgnoreOrRefuse,
    /// Whether calls in the messages may stay without a result.
    pub open_calls: OpenCalls,
    /// Whether a list of messages may end with the assistant.
    pub prefill: Prefill,
    /// Put `Error: ` in front of results that say that the tool failed.
    pub error_prefix: bool,
    /// Where the name of a session may stand, in this order: names of headers, and fields of `metadata` such as
    /// `metadata.user_id`, whose text may be JSON with a `session_id`.
    pub session: Vec<String>,
    /// The form of approvals, questions and logins.
    pub approvals: ApprovalForm,
    /// Name of the function that asks for an approval, if the request declares it.
    pub request_approval: String,
    /// Name of the function that asks a question, if the request declares it.
    pub request_input: String,
    /// Handling of a request for a session with an active run.
    pub busy: Busy,
    /// Whether `thread` is accepted (the beta `message-threads-2026-08-12`). Off: it is refused, never ignored.
    pub threads: Switch,
    /// Whether `POST /v1/messages/count_tokens` is served. It returns an estimate.
    pub count_tokens: Switch,
    /// Handling of a run whose client disconnects.
    pub disconnect: Disconnect,
    /// Maximum size of a request body, in bytes or as `"8MiB"`. Default: the limit of the server.
    pub max_body: Option<Size>,
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
            data: DataDisplay::default(),
            inline_images: InlineImages::default(),
            citations: Switch(true),
            client_tools: ClientTools::default(),
            hosted_tools: IgnoreOrRefuse::default(),
            structured_output: StructuredOutput::default(),
            unknown_fields: IgnoreOrRefuse::default(),
            open_calls: OpenCalls::default(),
            prefill: Prefill::default(),
            error_prefix: false,
            session: ["x-claude-code-session-id", "metadata.user_id", "x-session-id"].map(str::to_owned).to_vec(),
            approvals: ApprovalForm::default(),
            request_approval: "request_approval".to_owned(),
            request_input: "request_input".to_owned(),
            busy: Busy::default(),
            threads: Switch(true),
            count_tokens: Switch(true),
            disconnect: Disconnect::default(),
            max_body: None,
        }
    }
}

impl Options {
    /// The form of the route's questions.
    pub(crate) fn asker(&self) -> ChatAsker<'_> {
        ChatAsker {
            form: self.approvals,
            approval_function: &self.request_approval,
            input_function: &self.request_input,
        }
    }

    /// Checks what no type can say.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.asker().check()?;
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        match self.session.iter().find(|place| !is_name(place.strip_prefix("metadata.").unwrap_or(place))) {
            Some(place) => Err(format!("session: \"{place}\" is neither the name of a header nor \"metadata.<name>\"")),
            None => Ok(()),
        }
    }
}

choice! {
    /// The form of calls that the agent runs itself.
    ToolItems {
        /// `mcp_tool_use` and `mcp_tool_result` blocks.
        #[default]
        Mcp,
        /// Hidden.
        Hide,
        /// Text.
        Text,
    }
}
choice! {
    /// Whether the agent's reasoning is shown.
    Reasoning {
        /// If the request asks for it with `thinking`.
        #[default]
        Asked,
        /// Always.
        Always,
        /// Never.
        Hide,
    }
}
choice! {
    /// The form of inline images.
    InlineImages {
        /// A line that describes the image.
        #[default]
        Note,
        /// Markdown with a data URL.
        Markdown,
    }
}
choice! {
    /// Whether a list of messages may end with the assistant.
    Prefill {
        /// The agent receives that history and no new message.
        #[default]
        Allow,
        /// Refuse the request.
        Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_the_schema_and_nothing_else() {
        let options: Options = serde_json::from_str("{}").expect("every option has a default");
        assert!(options.threads.0 && options.max_body.is_none() && options.check().is_ok());

        interlingua_core_testkit::check_options::<Options>();
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
        for (options, expected) in [
            (r#"{"request_input":""}"#, "request_input"),
            (r#"{"request_approval":"ask","request_input":"ask"}"#, "must differ"),
            (r#"{"session":["metadata."]}"#, "session"),
            (r#"{"session":["a b"]}"#, "a b"),
        ] {
            let error = serde_json::from_str::<Options>(options).expect("options").check().expect_err("refused");
            assert!(error.contains(expected), "{error}");
        }
    }
}
