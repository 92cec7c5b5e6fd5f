//! Options of an agent that speaks Responses.

use std::collections::BTreeSet;

use interlingua_adapter_kit::model_options::check_fields;
use interlingua_core::duration::Period;
use interlingua_core::{Extra, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Request fields that the connector writes itself, or that would change what an answer is.
const RESERVED: &[&str] = &[
    "model",
    "input",
    "instructions",
    "stream",
    "stream_options",
    "store",
    "background",
    "previous_response_id",
    "conversation",
    "tools",
];

/// Options of an upstream with `protocol = "responses"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamOptions {
    /// The model's name. None: the name that the client gave is forwarded.
    pub model: Option<String>,
    /// Instructions in front of those of the request.
    pub instructions: Option<String>,
    /// Request fields that are sent as they are, unless the request has its own value.
    pub parameters: Map<String, Value>,
    /// Tools that the server runs, such as `{"type": "web_search"}`, in the form of this protocol. Functions of the
    /// client win over functions of the same name.
    pub tools: Vec<Map<String, Value>>,
    /// The source of the conversation's history for the server.
    pub chain: Chain,
    /// Whether the server works on a request while no connection is open.
    pub background: Background,
    /// The first pause before the gateway polls an answer in the background.
    pub poll_interval: Period,
    /// Maximum pause between two polls.
    pub max_poll_interval: Period,
    /// Where instructions of the request go.
    pub system_role: SystemRole,
    /// The result of an answer that a limit or a filter cut.
    pub incomplete: Incomplete,
    /// Whether frequency and presence penalties are sent. Strict servers refuse them.
    pub penalties: Penalties,
    /// The field that names the user.
    pub user: User,
    /// Kinds of media that the server takes in user messages. All others become a line of text.
    pub parts: BTreeSet<Part>,
    /// Extra fields of the client's request that are passed on as they are.
    pub forward_extras: Vec<String>,
    /// The form of MCP calls in the history.
    pub mcp_history: McpHistory,
    /// Whether the server keeps its answers. None: if `chain` needs it.
    pub store: Option<bool>,
    /// Whether requests to a server that stores nothing include reasoning in a form that can be sent back to it. Models
    /// that do not reason may refuse such a request.
    pub encrypted_reasoning: bool,
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
            chain: Chain::default(),
            background: Background::default(),
            poll_interval: Period::milliseconds(500),
            max_poll_interval: Period::seconds(5),
            system_role: SystemRole::default(),
            incomplete: Incomplete::default(),
            penalties: Penalties::default(),
            user: User::default(),
            parts: BTreeSet::from([Part::Text, Part::Image, Part::File]),
            forward_extras: Vec::new(),
            mcp_history: McpHistory::default(),
            store: None,
            encrypted_reasoning: true,
            sticky_tools: true,
        }
    }
}

/// The source of the conversation's history for the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Chain {
    /// Each request names the previous response. The server stores its contents.
    #[default]
    PreviousResponseId,
    /// A conversation of the server for each session.
    Conversation,
    /// The gateway sends everything with each request. The server remembers nothing.
    Full,
}

/// Whether the server works on a request while no connection is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Background {
    /// No: its answer breaks off with the connection.
    #[default]
    Off,
    /// Yes, and the gateway polls the answer.
    Poll,
    /// Yes, and the answer is streamed. A stream that breaks off is taken up where it was.
    Stream,
}

/// Where instructions of the request go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SystemRole {
    /// Into messages of this role.
    #[default]
    Developer,
    /// Into messages of this role, for servers that know no other.
    System,
    /// Into the field `instructions`.
    Instructions,
}

/// The result of an answer that a limit or a filter cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Incomplete {
    /// Incomplete, as the server reports it.
    #[default]
    Incomplete,
    /// Complete, for clients that know two ends only.
    Completed,
}

/// Whether frequency and presence penalties are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Penalties {
    /// No.
    #[default]
    Drop,
    /// Yes: not in OpenAI's description, but in that of Open Responses.
    Forward,
}

/// The field that names the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum User {
    /// The user is not named.
    #[default]
    None,
    /// `safety_identifier`.
    SafetyIdentifier,
    /// `user`.
    User,
}

impl User {
    /// The field's name.
    pub(super) const fn field(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::SafetyIdentifier => Some("safety_identifier"),
            Self::User => Some("user"),
        }
    }
}

/// A kind of message part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Always sent.
    Text,
    /// `input_image`.
    Image,
    /// `input_file`.
    File,
    /// `input_audio`.
    Audio,
    /// `input_video`.
    Video,
}

/// The form of MCP calls in the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpHistory {
    /// A function call and its output, which every server accepts.
    #[default]
    Pair,
    /// One `mcp_call`.
    Keep,
}

impl UpstreamOptions {
    /// True if the server takes this kind of part.
    pub(super) fn takes(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// True if the server is to keep its answers.
    pub(super) fn stores(&self) -> bool {
        self.store.unwrap_or(self.chain != Chain::Full)
    }

    /// The operator's tools.
    pub(super) fn tools(&self) -> Vec<Extra> {
        let tools = self.tools.iter().map(Json::from_serialize);
        tools.filter_map(|tool| tool.decode()).collect()
    }

    /// Checks what no type can say.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(super) fn check(&self) -> Result<(), String> {
        let fields = self.forward_extras.iter().map(|name| ("forward_extras", name));
        let fields = fields.chain(self.parameters.keys().map(|name| ("parameters", name)));
        check_fields(RESERVED, fields)?;

        if let Some(tool) = self.tools.iter().find(|tool| !tool.get("type").is_some_and(Value::is_string)) {
            return Err(format!("tools: {} has no \"type\"", Value::Object((*tool).clone())));
        }
        if self.poll_interval.0.is_zero() || self.max_poll_interval.0 < self.poll_interval.0 {
            return Err("\"poll_interval\" is more than zero and at most \"max_poll_interval\"".to_owned());
        }
        if self.background != Background::Off && !self.stores() {
            return Err("background needs a server that keeps its answers: set store = true, or chain to \
                        \"previous_response_id\""
                .to_owned());
        }
        if self.chain == Chain::PreviousResponseId && !self.stores() {
            return Err("store = false makes the server forget every turn: set chain = \"full\"".to_owned());
        }
        Ok(())
    }

    /// Settings that may not have the effect that was meant.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(field) = self.user.field() {
            warnings.push(format!("options.user names the gateway's users to the server, in \"{field}\""));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_that_cannot_work_are_refused() {
        let check = |options: Value| serde_json::from_value::<UpstreamOptions>(options).expect("options").check();
        for right in [
            json!({}),
            json!({ "parameters": { "reasoning": { "effort": "low" } }, "tools": [{ "type": "web_search" }] }),
            json!({ "chain": "full", "store": true, "background": "poll" }),
            json!({ "chain": "conversation", "store": false }),
        ] {
            assert_eq!(check(right.clone()), Ok(()), "{right}");
        }

        for (wrong, word) in [
            (json!({ "parameters": { "store": true } }), "parameters"),
            (json!({ "forward_extras": ["previous_response_id"] }), "forward_extras"),
            (json!({ "tools": [{ "name": "x" }] }), "type"),
            (json!({ "poll_interval": "0s" }), "poll_interval"),
            (json!({ "poll_interval": "9s" }), "max_poll_interval"),
            (json!({ "chain": "full", "background": "stream" }), "background"),
            (json!({ "store": false }), "chain"),
        ] {
            let error = check(wrong.clone()).expect_err("it cannot work");
            assert!(error.contains(word), "{wrong}: {error}");
        }

        assert!(serde_json::from_value::<UpstreamOptions>(json!({ "modle": "x" })).is_err());
    }

    #[test]
    fn doubtful_options_are_reported() {
        let warnings = |options: Value| serde_json::from_value::<UpstreamOptions>(options).expect("options").warnings();
        assert_eq!(warnings(json!({})), Vec::<String>::new());
        assert!(warnings(json!({ "user": "user" }))[0].contains("users"));
    }
}
