//! The options of an MCP route (docs/protocols/mcp.md#options).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use interlingua_core::duration::{Period, Ttl};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

/// Options of an MCP route, set by the operator.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the operator")]
pub struct Options {
    /// True: tools have an output schema, and results structured content.
    pub structured: bool,
    /// True: the last block of a result names the session, unless the result is structured.
    pub session_note: bool,
    /// True: structured content contains the agent's own calls.
    pub steps: bool,
    /// The form of reasoning.
    pub reasoning: Reasoning,
    /// True: tools take attachments if their agent takes media.
    pub attachments: bool,
    /// Name of the tool that answers what a run waits for. Empty: there is no such tool.
    pub answer_tool: String,
    /// True: a model may approve calls and confirm logins with that tool.
    pub answer_tool_approves: bool,
    /// Name of the tool that waits for a run. Empty: there is no such tool.
    pub wait_tool: String,
    /// The use of tasks.
    pub tasks: Tasks,
    /// With `tasks = "auto"`: time after which a call is answered with a task.
    pub task_after: Ttl,
    /// Time for which a call waits for a question before the gateway answers it with a task.
    pub ask_first: Ttl,
    /// Time for which clients may ask for a task after its creation and after its end.
    pub task_ttl: Ttl,
    /// Time between two requests of a client for the state of a task.
    pub poll_interval: Ttl,
    /// Maximum time of a call without tasks and without progress, after which the run continues without it. `"never"`:
    /// unlimited.
    pub max_wait: Limit,
    /// Maximum time of a call without tasks and with progress. `"never"`: unlimited.
    pub max_wait_with_progress: Limit,
    /// Time for which texts are gathered for a progress notification.
    pub progress_interval: Ttl,
    /// Maximum time without a progress notification.
    pub progress_keepalive: Ttl,
    /// Time for which `requestState` is valid.
    pub answer_ttl: Ttl,
    /// Time for which `Mcp-Session-Id` is valid.
    pub session_ttl: Ttl,
    /// Maximum time of a stream of a client with a session, which then resumes it. `"never"`: unlimited.
    pub stream_for: Limit,
    /// Time for which clients may keep lists.
    pub list_ttl: Ttl,
    /// Handling of a call in a busy session.
    pub busy: Busy,
    /// True: the route offers resources.
    pub resources: bool,
    /// True: the route offers prompts.
    pub prompts: bool,
    /// Scopes that OAuth clients are to ask for.
    pub scopes: Vec<String>,
    /// Instructions for the model. Empty: one sentence that explains sessions and the tools `answer` and `wait`.
    pub instructions: String,
    /// Settings of single tools, by the name of the agent.
    pub tools: BTreeMap<String, ToolOptions>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            structured: false,
            session_note: true,
            steps: false,
            reasoning: Reasoning::default(),
            attachments: true,
            answer_tool: "answer".to_owned(),
            answer_tool_approves: false,
            wait_tool: "wait".to_owned(),
            tasks: Tasks::default(),
            task_after: Ttl::seconds(10),
            ask_first: Ttl::seconds(0),
            task_ttl: Ttl::seconds(24 * 60 * 60),
            poll_interval: Ttl::seconds(1),
            max_wait: Limit::After(Duration::from_secs(50)),
            max_wait_with_progress: Limit::Never,
            progress_interval: Ttl(Duration::from_millis(500)),
            progress_keepalive: Ttl::seconds(10),
            answer_ttl: Ttl::seconds(24 * 60 * 60),
            session_ttl: Ttl::seconds(7 * 24 * 60 * 60),
            stream_for: Limit::Never,
            list_ttl: Ttl::seconds(60),
            busy: Busy::default(),
            resources: true,
            prompts: true,
            scopes: Vec::new(),
            instructions: String::new(),
            tools: BTreeMap::new(),
        }
    }
}

/// Settings of one tool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolOptions {
    /// Name of the tool. Default: the agent's name.
    pub name: Option<String>,
    /// Title of the tool. Default: none.
    pub title: Option<String>,
    /// Description of the tool. Default: the agent's.
    pub description: Option<String>,
    /// Template of the text for the agent: `{name}` is the value of an argument.
    pub message: Option<String>,
    /// JSON Schema of the arguments. Default: a message.
    pub arguments: Option<serde_json::Map<String, serde_json::Value>>,
    /// The use of tasks. Default: the route's.
    pub tasks: Option<Tasks>,
    /// Time after which a call is answered with a task. Default: the route's.
    pub task_after: Option<Ttl>,
    /// Time for which a call waits for a question before the gateway answers it with a task. Default: the route's.
    pub ask_first: Option<Ttl>,
    /// True: the tool changes nothing.
    pub read_only: bool,
}

/// Values of the option `reasoning`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    /// Sent as progress.
    #[default]
    Progress,
    /// Omitted.
    Drop,
}

/// Values of the option `tasks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tasks {
    /// A call that takes long is answered with a task.
    #[default]
    Auto,
    /// Each call is answered with a task.
    Always,
    /// As `always`; clients without tasks are refused.
    Required,
    /// Calls are never answered with a task.
    Never,
}

/// Values of the option `busy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Busy {
    /// The call waits until the session is free.
    #[default]
    Queue,
    /// The call fails.
    Refuse,
}

/// A maximum duration: a duration, or `"never"` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// This duration.
    After(Duration),
    /// No maximum.
    Never,
}

impl Limit {
    /// The duration. `None`: no maximum.
    #[must_use]
    pub const fn duration(self) -> Option<Duration> {
        match self {
            Self::After(duration) => Some(duration),
            Self::Never => None,
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LimitVisitor;
        impl de::Visitor<'_> for LimitVisitor {
            type Value = Limit;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a duration such as \"90s\", a number of seconds, or \"never\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
                if text == "never" {
                    return Ok(Limit::Never);
                }
                Period::parse(text).map(|period| Limit::After(period.0)).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Limit, E> {
                u64::try_from(number)
                    .map(|seconds| Limit::After(Duration::from_secs(seconds)))
                    .map_err(|_| E::custom("a duration cannot be negative"))
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Limit, E> {
                Ok(Limit::After(Duration::from_secs(seconds)))
            }
        }
        deserializer.deserialize_any(LimitVisitor)
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::After(duration) => Period(*duration).serialize(serializer),
            Self::Never => serializer.serialize_str("never"),
        }
    }
}

impl JsonSchema for Limit {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let duration = Ttl::json_schema(generator);
        json_schema!({ "anyOf": [{ "type": "string", "enum": ["never"] }, duration], "examples": ["90s", "never"] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_durations_or_never() {
        let read = |text: &str| serde_json::from_str::<Limit>(text).ok();
        assert_eq!(read("\"never\""), Some(Limit::Never));
        assert_eq!(read("\"1m30s\""), Some(Limit::After(Duration::from_secs(90))));
        assert_eq!(read("5"), Some(Limit::After(Duration::from_secs(5))));
        for wrong in ["-1", "\"soon\"", "true"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn unknown_options_are_refused() {
        assert!(serde_json::from_str::<Options>(r#"{"tasks":"never","tools":{"a":{"read_only":true}}}"#).is_ok());
        for wrong in [r#"{"task":"never"}"#, r#"{"tools":{"a":{"writes":true}}}"#, r#"{"tasks":"sometimes"}"#] {
            assert!(serde_json::from_str::<Options>(wrong).is_err(), "{wrong}");
        }
    }
}
