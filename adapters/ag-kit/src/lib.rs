//! AG-Kit, the `send-message` protocol of CloudBase agents: the server side, for front ends.
//!
//! This file has the protocol's name, options and endpoints; requests are parsed in `request`, streams are written in
//! `encode`, and `send` and `health` have one exchange per endpoint. Not here: conversation history, which is the
//! agent's setting and the engine's work, and pending items between two requests ([`interlingua_core::answer`]).

mod calls;
mod encode;
mod fault;
mod health;
mod memory;
mod request;
mod send;
mod text;
mod wire;

use std::sync::Arc;

use interlingua_core::answer::{AnswerPolicy, AskPolicy, OrphanPolicy, Ttl};
use interlingua_core::call::AgentCard;
use interlingua_core::exchange::{Cors, Mounted};
use interlingua_core::{Endpoint, Mount, ProtocolAdapter};
use serde::{Deserialize, Deserializer};

/// The server adapter for AG-Kit.
#[derive(Clone, Copy, Debug)]
pub struct AgKit;

/// Options of an AG-Kit route.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The agent for paths without an agent id, on routes with several agents.
    pub agent: Option<String>,
    /// Whether bodies of the newer protocol generation, AG-UI, are accepted too.
    pub agui: Agui,
    /// How the agent's reasoning is sent.
    pub reasoning: Reasoning,
    /// How images, audio, video and files are sent.
    pub media: Media,
    /// How data contents of ordinary messages are sent.
    pub data: Data,
    /// If true, a tool output that is a JSON list of text blocks is sent as their text.
    pub unwrap_tool_output: bool,
    /// If true, client tools stay in effect until the next request with `tools`.
    #[serde(deserialize_with = "parse_switch")]
    pub sticky_tools: bool,
    /// If true, two text messages without a call in between are separated by an empty line.
    #[serde(deserialize_with = "parse_switch")]
    pub separator: bool,
    /// If true, a request without messages and without an answer starts a turn in an existing conversation.
    #[serde(deserialize_with = "parse_switch")]
    pub allow_empty: bool,
    /// What happens to a second request in a busy conversation.
    pub busy: Busy,
    /// Time after which an interrupt can only be cancelled: seconds, or `"15m"`. `None`: never.
    pub interrupt_ttl: Option<Ttl>,
    /// What happens to an answer to an unknown interrupt.
    pub orphan_answers: OrphanPolicy,
    /// Name of a request header with the user's id. `None`: the engine decides.
    pub user_header: Option<String>,
    /// If true, quiet streams get comment lines as keep-alives.
    #[serde(deserialize_with = "parse_switch")]
    pub heartbeat: bool,
    /// If true, web pages of any origin may send requests, as with the route's `cors = ["*"]`.
    #[serde(deserialize_with = "parse_switch")]
    pub cors: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            agent: None,
            agui: Agui::Off,
            reasoning: Reasoning::Drop,
            media: Media::Link,
            data: Data::Text,
            unwrap_tool_output: false,
            sticky_tools: true,
            separator: true,
            allow_empty: false,
            busy: Busy::Refuse,
            interrupt_ttl: None,
            orphan_answers: OrphanPolicy::Refuse,
            user_header: None,
            heartbeat: true,
            cors: false,
        }
    }
}

/// Values of the option `agui`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agui {
    /// AG-UI bodies are refused with an error that names AG-UI.
    Off,
    /// AG-UI bodies are passed to the AG-UI adapter.
    Auto,
}

/// Values of the option `reasoning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    /// Omitted.
    Drop,
    /// Sent as text, between `<think>` and `</think>`.
    Text,
    /// Sent as events of type `reasoning`, which standard clients do not know.
    Event,
}

/// Values of the option `media`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Media {
    /// Sent as a Markdown link, if there is an `http` or `https` URL.
    Link,
    /// Omitted.
    Drop,
}

/// Values of the option `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// Sent as JSON text.
    Text,
    /// Omitted.
    Drop,
}

/// Values of the option `busy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Busy {
    /// The request fails with status 409.
    Refuse,
    /// The request waits until the conversation is free.
    Queue,
}

/// Parses a switch: the protocol's documentation uses `on` and `off`, TOML has booleans; both are accepted.
fn parse_switch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Switch {
        Bool(bool),
        Text(String),
    }

    match Switch::deserialize(deserializer)? {
        Switch::Bool(on) => Ok(on),
        Switch::Text(text) if text == "on" => Ok(true),
        Switch::Text(text) if text == "off" => Ok(false),
        Switch::Text(text) => {
            Err(serde::de::Error::custom(format!("must be true, false, 'on' or 'off', not '{text}'")))
        }
    }
}

/// State shared by all exchanges of one mount.
#[derive(Debug)]
struct Route {
    path: String,
    agents: Vec<Arc<AgentCard>>,
    /// The agent for paths without an agent id. `None`: the route has several agents, and the options name none.
    default_agent: Option<Arc<AgentCard>>,
    options: Options,
}

impl Route {
    /// A stream can carry one interrupt, and a request one answer (AG-Kit page, section 5, rule 5).
    fn answer_policy(&self) -> AnswerPolicy {
        AnswerPolicy {
            asking: AskPolicy::OneByOne,
            ttl: self.options.interrupt_ttl.map(|ttl| ttl.0),
            orphans: self.options.orphan_answers,
            accepts_single_answers: false,
        }
    }

    fn agent(&self, name: &str) -> Option<&Arc<AgentCard>> {
        self.agents.iter().find(|agent| agent.name == name)
    }
}

impl ProtocolAdapter for AgKit {
    const NAME: &'static str = "ag-kit";
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        if options.agui == Agui::Auto {
            return Err("agui = \"auto\" needs the AG-UI adapter, which is not part of this gateway".to_owned());
        }

        let default_agent = match &options.agent {
            None if mount.agents.len() > 1 => None,
            None => mount.agents.first().cloned(),
            Some(name) => match mount.agents.iter().find(|agent| agent.name == *name) {
                Some(agent) => Some(Arc::clone(agent)),
                None => return Err(format!("the route has no agent '{name}'")),
            },
        };

        let any_origin = options.cors;
        let (path, agents) = (mount.path.clone(), mount.agents.clone());
        let route = Arc::new(Route { path, agents, default_agent, options });
        let (send, cloud, health) = (Arc::clone(&route), Arc::clone(&route), route);

        Ok(Mounted {
            endpoints: vec![
                Endpoint::post("/send-message", move || send::Send::new(&send)),
                Endpoint::post("/v1/aibot/bots/{agentId}/send-message", move || send::Send::new(&cloud)),
                Endpoint::get("/healthz", move || health::Health::new(&health)),
            ],
            fallback: Box::new(|| Box::new(fault::Fallback)),
            curl: vec![
                r#"curl -N {url}/send-message -H 'content-type: application/json' -d '{"conversationId":"c1","messages":[{"role":"user","content":"hi"}]}'"#.to_owned(),
            ],
            announced_url: None,
            max_body: None,
            cors: Cors::default(),
            any_origin,
            push: None,
            retention: None,
            warnings: Vec::new(),
        })
    }

    fn options_schema() -> serde_json::Value {
        let switch = |text: &str| serde_json::json!({ "type": "boolean", "description": text });
        let choice = |values: &[&str], text: &str| serde_json::json!({ "enum": values, "description": text });
        serde_json::json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "agent": { "type": "string", "description": "the agent for paths without an agent id" },
                "agui": choice(&["off", "auto"], "whether AG-UI bodies are accepted too"),
                "reasoning": choice(&["drop", "text", "event"], "how reasoning is sent"),
                "media": choice(&["link", "drop"], "how images, audio, video and files are sent"),
                "data": choice(&["text", "drop"], "how data contents of messages are sent"),
                "unwrap_tool_output": switch("send tool outputs that are lists of text blocks as their text"),
                "sticky_tools": switch("keep client tools until the next request with tools"),
                "separator": switch("separate two text messages by an empty line"),
                "allow_empty": switch("allow requests without messages"),
                "busy": choice(&["refuse", "queue"], "what happens to a second request in a busy conversation"),
                "interrupt_ttl": {
                    "type": ["string", "integer"],
                    "description": "time after which an interrupt can only be cancelled"
                },
                "orphan_answers": choice(&["refuse", "forward"], "what happens to answers to unknown interrupts"),
                "user_header": { "type": "string", "description": "name of a request header with the user's id" },
                "heartbeat": switch("send comment lines in quiet streams as keep-alives"),
                "cors": switch("allow requests from any web page, as with the route's cors = [\"*\"]"),
            }
        })
    }
}
