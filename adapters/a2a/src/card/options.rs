//! The options of a route that concern its card.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::security::{Requirement, Scheme};

/// Card contents set by the operator. Missing fields come from the agent's own settings.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CardOptions {
    /// Display name.
    pub name: Option<String>,
    /// Purpose of the agent.
    pub description: Option<String>,
    /// Version of the agent.
    pub version: Option<String>,
    /// Organization that offers the agent.
    pub provider: Option<Provider>,
    /// URL of the documentation.
    pub documentation_url: Option<String>,
    /// URL of an icon.
    pub icon_url: Option<String>,
    /// Media types of inputs.
    pub input_modes: Vec<String>,
    /// Media types of outputs.
    pub output_modes: Vec<String>,
    /// Skills of the agent.
    pub skills: Vec<Skill>,
    /// Security schemes by name.
    pub security_schemes: BTreeMap<String, Scheme>,
    /// Required schemes with their scopes; satisfying one entry is enough.
    pub security: Vec<Requirement>,
}

/// The organization that offers an agent.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Name of the organization.
    pub organization: String,
    /// Website of the organization.
    pub url: String,
}

/// A skill of an agent.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    /// Unique within the card.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Description of the skill.
    pub description: String,
    /// Search terms; at least one.
    pub tags: Vec<String>,
    /// Example prompts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Media types of inputs, if different from the agent's.
    #[serde(default, rename(serialize = "inputModes"), skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    /// Media types of outputs, if different from the agent's.
    #[serde(default, rename(serialize = "outputModes"), skip_serializing_if = "Vec::is_empty")]
    pub output_modes: Vec<String>,
    /// Required schemes, if different from the agent's; satisfying one entry is enough.
    #[serde(default, skip_serializing)]
    pub security: Vec<Requirement>,
}
