//! What an operator can choose for a Responses route (section 19 of the protocol's page).
//!
//! Not here: keep-alive, retention and access. They are the gateway's settings and hold for every protocol.

use std::collections::BTreeMap;
use std::fmt;

use interlingua_core::size::Size;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::json;

/// The options of a route.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Further names of the route's agents: what a client may write as `model`, and the agent it means.
    pub models: BTreeMap<String, String>,
    /// Any `model` means the route's agent. Only for routes with one agent.
    pub any_model: bool,
    /// Tells the agent the `model` the client asked for.
    pub forward_model: bool,
    /// How calls that the agent runs itself are shown.
    pub tool_items: ToolItems,
    /// How the agent's thinking is shown.
    pub reasoning: Reasoning,
    /// Whether reasoning items of the client's history reach the agent.
    pub reasoning_input: ReasoningInput,
    /// Whether outputs of tools are unwrapped.
    pub tool_output: ToolOutput,
    /// Whether data in ordinary messages is shown, as JSON text.
    pub data: Shown,
    /// What becomes of messages of unknown types.
    pub custom_items: CustomItems,
    /// What becomes of the tools the client offers.
    pub client_tools: ClientTools,
    /// What becomes of tools that OpenAI would run.
    pub hosted_tools: Refusable,
    /// What becomes of `text.format`.
    pub structured_output: StructuredOutput,
    /// What becomes of fields nobody knows.
    pub unknown_fields: Refusable,
    /// Whether calls of the previous response may stay unanswered.
    pub open_calls: OpenCalls,
    /// How refusals in the client's history reach the agent.
    pub refusal_input: RefusalInput,
    /// `POST /responses/compact`.
    pub compact: Compact,
    /// `POST /responses/input_tokens`, an estimate.
    pub input_tokens: Switch,
    /// `/conversations` and the request's `conversation`.
    pub conversations: Switch,
    /// The WebSocket form of `/responses`.
    pub websocket: Switch,
    /// `background: true`.
    pub background: Switch,
    /// Whether a stream ends with `data: [DONE]`.
    pub done_frame: bool,
    /// What becomes of a foreground run whose client leaves.
    pub disconnect: Disconnect,
    /// The largest body, in bytes or as `"8MiB"`; by default what the server says.
    #[serde(deserialize_with = "size")]
    pub max_body: Option<usize>,
    /// The function a client sees called when the agent asks a person for something.
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
            data: Shown::default(),
            custom_items: CustomItems::default(),
            client_tools: ClientTools::default(),
            hosted_tools: Refusable::default(),
            structured_output: StructuredOutput::default(),
            unknown_fields: Refusable::default(),
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

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant),+ }
    };
}

choice! {
    /// How calls that the agent runs itself are shown (section 14).
    ToolItems {
        /// As `mcp_call` items: what all common clients understand.
        #[default]
        McpCall,
        /// Not at all.
        Hide,
        /// As `function_call` and `function_call_output` items, which several clients cannot read.
        Pair,
    }
}
choice! {
    /// How the agent's thinking is shown (section 10 c).
    Reasoning {
        /// As a summary: what all common clients show.
        #[default]
        Summary,
        /// As reasoning text.
        Text,
        /// Both ways, each delta twice.
        Both,
        /// Not at all.
        Hide,
    }
}
choice! {
    /// Whether reasoning of the client's history reaches the agent.
    ReasoningInput {
        /// It does.
        #[default]
        Forward,
        /// It does not.
        Drop,
    }
}
choice! {
    /// Whether outputs of tools are unwrapped.
    ToolOutput {
        /// A JSON list of text blocks is joined, a JSON string unquoted.
        #[default]
        Plain,
        /// As the agent wrote it.
        Raw,
    }
}
choice! {
    /// Whether something is shown.
    Shown {
        /// As text.
        #[default]
        Text,
        /// Not at all.
        Hide,
    }
}
choice! {
    /// What becomes of messages of unknown types.
    CustomItems {
        /// Kept in the stored run, not shown.
        #[default]
        Drop,
        /// Shown as an item of type `interlingua:<type>`.
        Extension,
    }
}
choice! {
    /// What becomes of the tools the client offers.
    ClientTools {
        /// The agent is told of them.
        #[default]
        Forward,
        /// The request is refused.
        Refuse,
        /// The agent is not told of them.
        Ignore,
    }
}
choice! {
    /// Whether what has no effect is refused.
    Refusable {
        /// It is accepted.
        #[default]
        Ignore,
        /// The request is refused.
        Refuse,
    }
}
choice! {
    /// What becomes of `text.format`.
    StructuredOutput {
        /// The agent is told, in the extra field `text`.
        #[default]
        Forward,
        /// The agent is told in words, in front of the conversation.
        Instruct,
        /// The request is refused.
        Refuse,
    }
}
choice! {
    /// Whether calls of the previous response may stay unanswered (human-in-the-loop page, rule 5).
    OpenCalls {
        /// They may.
        #[default]
        Allow,
        /// The request is refused, as at OpenAI.
        Refuse,
    }
}
choice! {
    /// How refusals in the client's history reach the agent.
    RefusalInput {
        /// As refusals.
        #[default]
        Refusal,
        /// As text, for agents that know no refusals.
        Text,
    }
}
choice! {
    /// `POST /responses/compact` (section 12).
    Compact {
        /// A `compaction` item that holds the whole context.
        #[default]
        Keep,
        /// 404.
        Off,
    }
}
choice! {
    /// What becomes of a foreground run whose client leaves.
    Disconnect {
        /// It is cancelled.
        #[default]
        Cancel,
        /// It goes on.
        Detach,
    }
}

/// On or off: `"on"`, `"off"`, `true`, `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch(pub bool);

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnOff;
        impl Visitor<'_> for OnOff {
            type Value = Switch;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"on\" or \"off\"")
            }
            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Switch, E> {
                Ok(Switch(on))
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<Switch, E> {
                match word {
                    "on" => Ok(Switch(true)),
                    "off" => Ok(Switch(false)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(OnOff)
    }
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    Size::deserialize(deserializer).map(|size| Some(size.bytes()))
}

/// JSON Schema of [`Options`].
pub(crate) fn schema() -> serde_json::Value {
    let words = |words: &[&str], what: &str| json!({ "enum": words, "default": words[0], "description": what });
    let flag = |value: bool, what: &str| json!({ "type": "boolean", "default": value, "description": what });
    let switch = |what: &str| json!({ "enum": ["on", "off", true, false], "default": "on", "description": what });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "models": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": "further model names, and the agent each of them means",
            },
            "any_model": flag(false, "any model name means the route's only agent"),
            "forward_model": flag(false, "tell the agent the model the client asked for"),
            "tool_items": words(&["mcp_call", "hide", "pair"], "how calls that the agent runs itself are shown"),
            "reasoning": words(&["summary", "text", "both", "hide"], "how the agent's thinking is shown"),
            "reasoning_input": words(&["forward", "drop"], "reasoning items of the client's history"),
            "tool_output": words(&["plain", "raw"], "unwrap outputs of tools, or show them as they came"),
            "data": words(&["text", "hide"], "data in ordinary messages"),
            "custom_items": words(&["drop", "extension"], "messages of unknown types"),
            "client_tools": words(&["forward", "refuse", "ignore"], "tools the client offers"),
            "hosted_tools": words(&["ignore", "refuse"], "tools that OpenAI would run"),
            "structured_output": words(&["forward", "instruct", "refuse"], "text.format of a request"),
            "unknown_fields": words(&["ignore", "refuse"], "fields of a request nobody knows"),
            "open_calls": words(&["allow", "refuse"], "calls of the previous response without an output"),
            "refusal_input": words(&["refusal", "text"], "refusals in the client's history"),
            "compact": words(&["keep", "off"], "POST /responses/compact"),
            "input_tokens": switch("POST /responses/input_tokens, an estimate"),
            "conversations": switch("/conversations"),
            "websocket": switch("the WebSocket form of /responses"),
            "background": switch("responses that outlive their request"),
            "done_frame": flag(true, "end streams with [DONE]"),
            "disconnect": words(&["cancel", "detach"], "foreground runs whose client leaves"),
            "max_body": {
                "type": ["string", "integer"],
                "description": "the largest body, with a unit or in bytes; by default what the server says",
            },
            "request_input": {
                "type": "string",
                "default": "request_input",
                "description": "the function that is called when the agent asks a person for something",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_the_schema_and_nothing_else() {
        let options: Options = serde_json::from_str("{}").expect("all have defaults");
        assert!(options.websocket.0 && options.max_body.is_none());
        let schema = schema();
        for (name, property) in schema["properties"].as_object().expect("an object") {
            let Some(value) = property.get("default") else { continue };
            let written = json!({ name: value });
            serde_json::from_value::<Options>(written).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let unknown = serde_json::from_str::<Options>(r#"{"tool_item":"hide"}"#).expect_err("a slip").to_string();
        assert!(unknown.contains("unknown field `tool_item`") && unknown.contains("tool_items"), "{unknown}");
        let known = unknown.matches('`').count() / 2 - 1;
        assert_eq!(known, schema["properties"].as_object().expect("an object").len());
    }

    #[test]
    fn sizes_and_switches_are_read_as_people_write_them() {
        let options: Options =
            serde_json::from_str(r#"{"max_body":"8 MiB","websocket":"off","background":false}"#).expect("options");
        assert_eq!((options.max_body, options.websocket.0, options.background.0), (Some(8 << 20), false, false));
        for wrong in [r#"{"max_body":"8 miles"}"#, r#"{"websocket":"maybe"}"#, r#"{"max_body":-1}"#] {
            assert!(serde_json::from_str::<Options>(wrong).is_err(), "{wrong}");
        }
    }
}
