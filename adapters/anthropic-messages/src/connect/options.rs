//! Options of an agent that speaks Anthropic Messages.

use interlingua_adapter_kit::model_options::check_fields;
use interlingua_core::Json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Request fields that the connector writes itself, or that would change what an answer is.
const RESERVED: &[&str] =
    &["model", "max_tokens", "messages", "system", "stream", "tools", "anthropic_version", "cache_control", "thinking"];

/// The version whose requests may name a temperature.
const FIRST_VERSION: &str = "2023-06-01";
/// The smallest budget for thoughts that servers take, in tokens.
const MIN_BUDGET: u32 = 1024;

/// Options of an upstream with `protocol = "anthropic-messages"`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamOptions {
    /// The model's name. None: the name that the client gave is forwarded.
    pub model: Option<String>,
    /// The limit of an answer in tokens, where a request names none: the protocol requires one.
    pub max_tokens: u32,
    /// Instructions in front of those of every request.
    pub instructions: Option<String>,
    /// Fields of every request, as they are, such as `temperature`. What a request says itself wins.
    pub parameters: Map<String, Value>,
    /// Tools of every request in the form of this protocol, as they are, such as those that the server runs. A tool of
    /// the client with the same name wins.
    pub tools: Vec<Map<String, Value>>,
    /// The value of the header `anthropic-version`.
    pub version: String,
    /// The values of the header `anthropic-beta`.
    pub beta: Vec<String>,
    /// Writes this `anthropic_version` into the body, and leaves out the model, which is in the URL: for Vertex AI.
    pub body_version: Option<String>,
    /// Handling of instructions after the first message of the user.
    pub system_messages: SystemMessages,
    /// Whether the model thinks before it answers.
    pub thinking: Thinking,
    /// Handling of earlier reasoning without a signature of this agent.
    pub unsigned_thinking: UnsignedThinking,
    /// Whether a request's temperature, `top_p` and `top_k` are sent.
    pub sampling: Sampling,
    /// The form of earlier calls of MCP tools.
    pub mcp_history: McpHistory,
    /// Whether requests ask the server to cache the conversation.
    pub cache: bool,
    /// Whether the server learns who the user is.
    pub user_field: UserField,
    /// Extra fields of the client's request that are passed on as they are.
    pub forward_extras: Vec<String>,
    /// Whether tools stay declared for a whole session. Protocols with sessions name them once.
    pub sticky_tools: bool,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            model: None,
            max_tokens: 8192,
            instructions: None,
            parameters: Map::new(),
            tools: Vec::new(),
            version: FIRST_VERSION.to_owned(),
            beta: Vec::new(),
            body_version: None,
            system_messages: SystemMessages::default(),
            thinking: Thinking::default(),
            unsigned_thinking: UnsignedThinking::default(),
            sampling: Sampling::default(),
            mcp_history: McpHistory::default(),
            cache: false,
            user_field: UserField::default(),
            forward_extras: Vec::new(),
            sticky_tools: true,
        }
    }
}

/// Handling of instructions after the first message of the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SystemMessages {
    /// They are moved to the others, in front of the conversation.
    #[default]
    Front,
    /// They stay in their place, with the role `system`. Not every server knows it.
    Inline,
    /// They become words of the user.
    User,
}

/// Whether the model thinks before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// The server decides, which usually means not.
    #[default]
    Off,
    /// The model decides.
    Adaptive,
    /// Up to this many tokens, at least 1024.
    #[serde(untagged)]
    Budget(u32),
}

/// Handling of earlier reasoning without a signature of this agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnsignedThinking {
    /// They are left out: the original refuses them.
    #[default]
    Drop,
    /// They are sent: some servers sign nothing and want them all the same.
    Send,
}

/// Whether a request's temperature, `top_p` and `top_k` are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// Only with version `2023-06-01`: later ones refuse them.
    #[default]
    Auto,
    /// Always.
    Forward,
    /// Never.
    Drop,
}

/// The form of earlier calls of MCP tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpHistory {
    /// Calls of ordinary tools.
    #[default]
    Pairs,
    /// Blocks of their own, for servers that know them.
    Keep,
}

/// The field that names the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UserField {
    /// None.
    #[default]
    None,
    /// `metadata.user_id`.
    Metadata,
}

impl UpstreamOptions {
    /// Whether settings of sampling are sent.
    pub(super) fn sends_sampling(&self) -> bool {
        match self.sampling {
            Sampling::Auto => self.version == FIRST_VERSION,
            Sampling::Forward => true,
            Sampling::Drop => false,
        }
    }

    /// The operator's tools, as JSON.
    pub(super) fn own_tools(&self) -> impl Iterator<Item = (Option<&str>, Json)> {
        self.tools.iter().map(|tool| (tool.get("name").and_then(Value::as_str), Json::from_serialize(tool)))
    }

    /// Checks what no type can say.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(super) fn check(&self) -> Result<(), String> {
        let fields = self.forward_extras.iter().map(|name| ("forward_extras", name));
        let fields = fields.chain(self.parameters.keys().map(|name| ("parameters", name)));
        check_fields(RESERVED, fields)?;

        let is_value = |value: &String| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_value(&self.version) {
            return Err(format!("version \"{}\" is no value of a header, such as \"{FIRST_VERSION}\"", self.version));
        }
        if let Some(beta) = self.beta.iter().find(|beta| !is_value(beta)) {
            return Err(format!("beta \"{beta}\" is no value of a header"));
        }
        if self.max_tokens == 0 {
            return Err("max_tokens must be at least 1".to_owned());
        }
        if let Thinking::Budget(budget) = self.thinking
            && (budget < MIN_BUDGET || budget >= self.max_tokens)
        {
            return Err(format!(
                "thinking = {budget} must be at least {MIN_BUDGET} and less than max_tokens = {}",
                self.max_tokens
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_that_cannot_work_are_refused() {
        let check = |json: Value| serde_json::from_value::<UpstreamOptions>(json).expect("options").check();
        for good in [
            json!({}),
            json!({ "thinking": 2048, "version": "2026-10-21", "parameters": { "temperature": 0.1 } }),
            json!({ "thinking": "adaptive", "beta": ["mcp-client-2026-01-01"] }),
        ] {
            assert_eq!(check(good.clone()), Ok(()), "{good}");
        }
        for wrong in [
            json!({ "parameters": { "stream": false } }),
            json!({ "forward_extras": ["messages"] }),
            json!({ "version": "" }),
            json!({ "beta": ["a b"] }),
            json!({ "max_tokens": 0 }),
            json!({ "thinking": 100 }),
            json!({ "thinking": 8192 }),
        ] {
            assert!(check(wrong.clone()).is_err(), "{wrong}");
        }
        for unknown in [json!({ "modle": "x" }), json!({ "thinking": "much" }), json!({ "tools": ["x"] })] {
            assert!(serde_json::from_value::<UpstreamOptions>(unknown.clone()).is_err(), "{unknown}");
        }
    }
}
