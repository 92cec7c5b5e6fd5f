//! Options of a Chat Completions route (docs/protocols/chat-completions.md#options).
//!
//! Not here: those of an agent that speaks it ([`crate::connect`]), and settings of the gateway such as keep-alive and
//! access.

use std::collections::BTreeMap;

use interlingua_adapter_kit::model_options::{
    Busy, ClientTools, DataDisplay, Disconnect, IgnoreOrRefuse, OpenCalls, ReasoningInput, RefusalInput,
    StructuredOutput,
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
    /// Accept any `model` for the route's agent. Only for routes with one agent.
    pub any_model: bool,
    /// Send the client's `model` to the agent.
    pub forward_model: bool,
    /// The form of calls that the agent runs itself.
    pub tool_items: ToolItems,
    /// In which field the agent's reasoning is shown.
    pub reasoning: Reasoning,
    /// Whether reasoning in the client's history reaches the agent.
    pub reasoning_input: ReasoningInput,
    /// The text between two messages of the agent in the one text of an answer.
    pub separator: String,
    /// Headers and fields of the request that name the session, by precedence. A name with a hyphen is a header, any
    /// other a field, with dots for fields of fields: `metadata.session_id`.
    pub session: Vec<String>,
    /// The form of requests for an approval.
    pub approvals: ApprovalForm,
    /// Name of the function that a client declares to be asked for approvals by calls.
    pub request_approval: String,
    /// Name of the function that a client declares to be asked questions by calls.
    pub request_input: String,
    /// Handling of a request in a busy session.
    pub busy: Busy,
    /// Handling of tools that the client declares.
    pub client_tools: ClientTools,
    /// Handling of tools that OpenAI would run.
    pub hosted_tools: IgnoreOrRefuse,
    /// Handling of `response_format`.
    pub structured_output: StructuredOutput,
    /// Whether calls in the client's history may be unanswered.
    pub open_calls: OpenCalls,
    /// Handling of unknown fields.
    pub unknown_fields: IgnoreOrRefuse,
    /// Unknown fields that reach the agent as extra fields of the same name.
    pub forward_fields: Vec<String>,
    /// The form in which the agent receives refusals in the client's history.
    pub refusal_input: RefusalInput,
    /// Whether data in ordinary messages is shown, as JSON text.
    pub data: DataDisplay,
    /// The form of images with inline bytes.
    pub inline_images: InlineImages,
    /// The form in which the agent receives a tool's output with images.
    pub tool_parts: ToolParts,
    /// Whether completions of requests with `store` are served at `/chat/completions`.
    pub stored_completions: Switch,
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
            separator: "\n\n".to_owned(),
            session: vec!["x-session-id".to_owned()],
            approvals: ApprovalForm::default(),
            request_approval: "request_approval".to_owned(),
            request_input: "request_input".to_owned(),
            busy: Busy::default(),
            client_tools: ClientTools::default(),
            hosted_tools: IgnoreOrRefuse::default(),
            structured_output: StructuredOutput::default(),
            open_calls: OpenCalls::default(),
            unknown_fields: IgnoreOrRefuse::default(),
            forward_fields: Vec::new(),
            refusal_input: RefusalInput::default(),
            data: DataDisplay::default(),
            inline_images: InlineImages::default(),
            tool_parts: ToolParts::default(),
            stored_completions: Switch(true),
            disconnect: Disconnect::default(),
            max_body: None,
        }
    }
}

impl Options {
    /// The form of questions. `form`: the option `approvals` at the time of the request.
    pub(crate) fn asker(&self, form: ApprovalForm) -> ChatAsker<'_> {
        ChatAsker { form, approval_function: &self.request_approval, input_function: &self.request_input }
    }

    /// Checks what the types do not.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.asker(self.approvals).check()?;
        if self.session.iter().any(|name| name.is_empty() || name.contains(char::is_uppercase)) {
            return Err("session: names must not be empty, and in lower case".to_owned());
        }
        Ok(())
    }
}

choice! {
    /// The form of calls that the agent runs itself.
    ToolItems {
        /// Hidden: as calls, the client would run them.
        #[default]
        Hide,
        /// Lines of the reasoning.
        Reasoning,
        /// Lines of the text.
        Text,
    }
}
choice! {
    /// In which field the agent's reasoning is shown.
    Reasoning {
        /// In `reasoning_content`, which most clients read.
        #[default]
        ReasoningContent,
        /// In `reasoning`.
        Reasoning,
        /// In both.
        Both,
        /// Hidden.
        Hide,
    }
}
choice! {
    /// The form of images with inline bytes.
    InlineImages {
        /// In the field `images`, beside the text.
        #[default]
        Field,
        /// A link in the text, with all bytes.
        Markdown,
        /// Left out.
        Drop,
    }
}
choice! {
    /// The form in which the agent receives a tool's output with images.
    ToolParts {
        /// The JSON of its list of parts.
        #[default]
        Json,
        /// Only its texts.
        Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_the_schema_and_has_a_valid_default() {
        let options: Options = serde_json::from_str("{}").expect("every option has a default");
        assert_eq!((options.separator.as_str(), options.session.len()), ("\n\n", 1));

        interlingua_core_testkit::check_options::<Options>();
    }

    #[test]
    fn names_that_cannot_work_are_refused() {
        let check = |text: &str| serde_json::from_str::<Options>(text).expect("options").check();
        assert!(check("{}").is_ok() && check(r#"{"session":["x-a","metadata.session_id"]}"#).is_ok());
        for wrong in
            [r#"{"request_input":""}"#, r#"{"session":["X-Session"]}"#, r#"{"request_input":"request_approval"}"#]
        {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}
