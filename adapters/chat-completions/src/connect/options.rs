//! Options of an agent that speaks Chat Completions.

use std::collections::BTreeSet;

use interlingua_adapter_kit::model_options::check_fields;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Request fields that the connector writes itself, or that would change what an answer is.
const RESERVED: &[&str] = &["model", "messages", "stream", "stream_options", "n", "tools", "functions"];

/// Options of an upstream with `protocol = "chat-completions"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamOptions {
    /// The model's name. None: the name that the client gave is forwarded.
    pub model: Option<String>,
    /// Instructions in front of those of every request.
    pub instructions: Option<String>,
    /// Fields of every request, as they are, such as `temperature`. What a request says itself wins.
    pub parameters: Map<String, Value>,
    /// Tools of every request in the form of this protocol, as they are. A tool of the client with the same name wins.
    pub tools: Vec<Map<String, Value>>,
    /// The role of instructions.
    pub system_role: SystemRole,
    /// Joins all instructions into one message at the front, for chat templates that allow only that.
    pub merge_system: bool,
    /// Kinds of media that the server takes in user messages. All others become a line of text.
    pub parts: BTreeSet<Part>,
    /// When reasoning of earlier turns is sent back.
    pub reasoning_input: ReasoningInput,
    /// Whether `<think>` in an answer's text is read as reasoning.
    pub think_tags: ThinkTags,
    /// The field for the token limit. None: by the URL's host.
    pub limit_field: Option<LimitField>,
    /// Whether the request asks the server to report token usage in the stream. Some servers refuse the field.
    pub usage: bool,
    /// The field that names the user. None: the user is not named, since strict servers refuse unknown fields.
    pub user_field: Option<UserField>,
    /// A header that names the session, for servers that cache by it.
    pub session_header: Option<String>,
    /// A request field that names the session.
    pub session_field: Option<String>,
    /// Extra fields of the client's request that are passed on as they are.
    pub forward_extras: Vec<String>,
    /// Whether tools stay declared for a whole session. Protocols with sessions name them once.
    pub sticky_tools: bool,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            model: None,
            instructions: None,
            parameters: Map::new(),
            tools: Vec::new(),
            system_role: SystemRole::default(),
            merge_system: false,
            parts: BTreeSet::from([Part::Text, Part::Image]),
            reasoning_input: ReasoningInput::default(),
            think_tags: ThinkTags::default(),
            limit_field: None,
            usage: true,
            user_field: None,
            session_header: None,
            session_field: None,
            forward_extras: Vec::new(),
            sticky_tools: true,
        }
    }
}

/// The role of instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SystemRole {
    /// The name that all servers accept.
    #[default]
    System,
    /// OpenAI's name for newer models.
    Developer,
}

/// A kind of message part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Always sent.
    Text,
    /// `image_url`.
    Image,
    /// `input_audio`.
    Audio,
    /// `file`.
    File,
    /// `video_url`.
    Video,
}

/// When reasoning of earlier turns is sent back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningInput {
    /// With messages that hold calls, and with all if the server sent reasoning in this session.
    #[default]
    Auto,
    /// With every message that had some.
    Always,
    /// Never: older models refuse it.
    Never,
}

/// Whether `<think>` in an answer's text is read as reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThinkTags {
    /// If the first visible text is `<think>`.
    #[default]
    Auto,
    /// The answer begins inside the tag: its chat template opens it.
    Opened,
    /// Never.
    Off,
}

/// The field for the token limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitField {
    /// The name that compatible servers accept.
    MaxTokens,
    /// The name that the reasoning models of OpenAI and Azure require.
    MaxCompletionTokens,
}

/// The field that names the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UserField {
    /// `user`.
    User,
    /// `safety_identifier`.
    SafetyIdentifier,
}

impl UserField {
    /// The field's name.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::SafetyIdentifier => "safety_identifier",
        }
    }
}

impl LimitField {
    /// The field's name.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }

    /// The field that the server at this host takes.
    pub(super) fn for_host(host: &str) -> Self {
        let openai = host == "api.openai.com";
        let azure = [".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"];
        if openai || azure.iter().any(|domain| host.ends_with(domain)) {
            Self::MaxCompletionTokens
        } else {
            Self::MaxTokens
        }
    }
}

impl UpstreamOptions {
    /// True if the server takes this kind of part.
    pub(super) fn takes(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// Checks what no type can say.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(super) fn check(&self) -> Result<(), String> {
        let fields = self.forward_extras.iter().map(|name| ("forward_extras", name));
        let fields = fields.chain(self.parameters.keys().map(|name| ("parameters", name)));
        let fields = fields.chain(self.session_field.iter().map(|name| ("session_field", name)));
        check_fields(RESERVED, fields)?;

        if let Some(name) = &self.session_header {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(format!("session_header \"{name}\" is no name of a header"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn azure_and_openai_have_a_field_of_their_own_for_the_limit() {
        for (host, field) in [
            ("api.openai.com", "max_completion_tokens"),
            ("eu.openai.azure.com", "max_completion_tokens"),
            ("openai.azure.com.example", "max_tokens"),
            ("localhost", "max_tokens"),
        ] {
            assert_eq!(LimitField::for_host(host).as_str(), field, "{host}");
        }
    }

    #[test]
    fn fields_of_the_gateway_cannot_be_forwarded() {
        let options = |json: Value| serde_json::from_value::<UpstreamOptions>(json).expect("options").check();
        assert_eq!(options(json!({ "forward_extras": ["top_k"], "session_header": "x-session" })), Ok(()));
        for wrong in [
            json!({ "forward_extras": ["stream"] }),
            json!({ "session_field": "messages" }),
            json!({ "parameters": { "stream": false } }),
            json!({ "session_header": "a b" }),
        ] {
            assert!(options(wrong.clone()).is_err(), "{wrong}");
        }

        assert!(serde_json::from_value::<UpstreamOptions>(json!({ "modle": "x" })).is_err());
    }
}
