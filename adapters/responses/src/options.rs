//! Options of a Responses route (section 19 of the protocol's page).
//!
//! Not here: keep-alive, retention and access. They are settings of the gateway and apply to every protocol.

use std::collections::BTreeMap;
use std::fmt;

use interlingua_core::size::Size;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::json;

/// The options of a route.
#[derive(Clone, Debug, serde::Deserialize)]
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
    /// Maximum size of a request body, in bytes or as `"8MiB"`. `None`: the limit of the server.
    #[serde(deserialize_with = "size")]
    pub max_body: Option<usize>,
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
    /// How the agent's reasoning is shown (section 10 c).
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
    /// Whether reasoning in the client's history reaches the agent.
    ReasoningInput {
        /// Send it to the agent.
        #[default]
        Forward,
        /// Leave it out.
        Drop,
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
    /// How data in ordinary messages is shown.
    DataDisplay {
        /// As text.
        #[default]
        Text,
        /// Hidden.
        Hide,
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
    /// How tools that the client declares are handled.
    ClientTools {
        /// Send them to the agent.
        #[default]
        Forward,
        /// Refuse the request.
        Refuse,
        /// Do not send them to the agent.
        Ignore,
    }
}
choice! {
    /// Whether a setting without effect is refused.
    IgnoreOrRefuse {
        /// Accept it.
        #[default]
        Ignore,
        /// Refuse the request.
        Refuse,
    }
}
choice! {
    /// How `text.format` is handled.
    StructuredOutput {
        /// Send it to the agent, in the extra field `text`.
        #[default]
        Forward,
        /// Send it as a system message before the conversation.
        Instruct,
        /// Refuse the request.
        Refuse,
    }
}
choice! {
    /// Whether calls of the previous response may stay unanswered (human-in-the-loop page, rule 5).
    OpenCalls {
        /// They may.
        #[default]
        Allow,
        /// Refuse the request, as OpenAI does.
        Refuse,
    }
}
choice! {
    /// How refusals in the client's history reach the agent.
    RefusalInput {
        /// As refusals.
        #[default]
        Refusal,
        /// As text, for agents that do not support refusals.
        Text,
    }
}
choice! {
    /// `POST /responses/compact` (section 12).
    Compact {
        /// Return a `compaction` item that contains the complete context.
        #[default]
        Keep,
        /// Answer with 404.
        Off,
    }
}
choice! {
    /// What happens to a foreground run when its client disconnects.
    Disconnect {
        /// Cancel it.
        #[default]
        Cancel,
        /// Let it continue.
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
    let words = |words: &[&str], text: &str| json!({ "enum": words, "default": words[0], "description": text });
    let flag = |value: bool, text: &str| json!({ "type": "boolean", "default": value, "description": text });
    let switch = |text: &str| json!({ "enum": ["on", "off", true, false], "default": "on", "description": text });

    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "models": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": "additional model names, and the agent each of them maps to",
            },
            "any_model": flag(false, "accept any model name for the route's only agent"),
            "forward_model": flag(false, "send the client's model to the agent"),
            "tool_items": words(&["mcp_call", "hide", "pair"], "how calls that the agent runs itself are shown"),
            "reasoning": words(&["summary", "text", "both", "hide"], "how the agent's reasoning is shown"),
            "reasoning_input": words(&["forward", "drop"], "reasoning items in the client's history"),
            "tool_output": words(&["plain", "raw"], "unwrap tool outputs, or show them unchanged"),
            "data": words(&["text", "hide"], "data in ordinary messages"),
            "custom_items": words(&["drop", "extension"], "messages of unknown types"),
            "client_tools": words(&["forward", "refuse", "ignore"], "tools that the client declares"),
            "hosted_tools": words(&["ignore", "refuse"], "tools that OpenAI would run"),
            "structured_output": words(&["forward", "instruct", "refuse"], "text.format of a request"),
            "unknown_fields": words(&["ignore", "refuse"], "unknown fields of a request"),
            "open_calls": words(&["allow", "refuse"], "calls of the previous response without an output"),
            "refusal_input": words(&["refusal", "text"], "refusals in the client's history"),
            "compact": words(&["keep", "off"], "POST /responses/compact"),
            "input_tokens": switch("POST /responses/input_tokens, an estimate"),
            "conversations": switch("/conversations"),
            "websocket": switch("WebSocket connections to /responses"),
            "background": switch("responses that continue after their request"),
            "done_frame": flag(true, "end streams with [DONE]"),
            "disconnect": words(&["cancel", "detach"], "foreground runs whose client disconnects"),
            "max_body": {
                "type": ["string", "integer"],
                "description": "maximum request body size, with a unit or in bytes; default: the limit of the server",
            },
            "request_input": {
                "type": "string",
                "default": "request_input",
                "description": "name of the function call that represents a question of the agent to a person",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_the_schema_and_nothing_else() {
        let options: Options = serde_json::from_str("{}").expect("every option has a default");
        assert!(options.websocket.0 && options.max_body.is_none());

        let schema = schema();
        for (name, property) in schema["properties"].as_object().expect("an object") {
            let Some(value) = property.get("default") else { continue };
            let written = json!({ name: value });
            serde_json::from_value::<Options>(written).unwrap_or_else(|error| panic!("{name}: {error}"));
        }

        let unknown = serde_json::from_str::<Options>(r#"{"tool_item":"hide"}"#).expect_err("a typo").to_string();
        assert!(unknown.contains("unknown field `tool_item`") && unknown.contains("tool_items"), "{unknown}");
        let known = unknown.matches('`').count() / 2 - 1;
        assert_eq!(known, schema["properties"].as_object().expect("an object").len());
    }

    #[test]
    fn sizes_and_switches_accept_common_notations() {
        let options: Options =
            serde_json::from_str(r#"{"max_body":"8 MiB","websocket":"off","background":false}"#).expect("options");
        assert_eq!((options.max_body, options.websocket.0, options.background.0), (Some(8 << 20), false, false));

        for wrong in [r#"{"max_body":"8 miles"}"#, r#"{"websocket":"maybe"}"#, r#"{"max_body":-1}"#] {
            assert!(serde_json::from_str::<Options>(wrong).is_err(), "{wrong}");
        }
    }
}
