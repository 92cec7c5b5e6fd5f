//! AG-Kit, the `send-message` protocol of CloudBase agents: serving it to front ends.
//!
//! Here are its name, its options and its table of endpoints; requests are read in `request`, answers told in
//! `encode`, one exchange for each endpoint stands in `send` and `health`. Not here: conversation history, which is
//! the agent's setting and the engine's work, and what is open between two requests ([`interlingua_core::answer`]).

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

/// Serves AG-Kit.
#[derive(Clone, Copy, Debug)]
pub struct AgKit;

/// What an operator may choose for an AG-Kit route.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Which agent answers on the plain path, where the route has several.
    pub agent: Option<String>,
    /// Whether bodies of the newer generation, AG-UI, are taken too.
    pub agui: Agui,
    /// What becomes of the agent's reasoning.
    pub reasoning: Reasoning,
    /// What becomes of images, audio, video and files.
    pub media: Media,
    /// What becomes of data in an ordinary message.
    pub data: Data,
    /// Whether a tool's output that is a JSON list of text blocks is told as their text.
    pub unwrap_tool_output: bool,
    /// Whether client tools hold until the next request that names tools.
    #[serde(deserialize_with = "switch")]
    pub sticky_tools: bool,
    /// Whether two text messages without a call in between are told apart by an empty line.
    #[serde(deserialize_with = "switch")]
    pub separator: bool,
    /// Whether a request without messages and without an answer asks the agent, in a conversation that has begun.
    #[serde(deserialize_with = "switch")]
    pub allow_empty: bool,
    /// What becomes of a second request in a busy conversation.
    pub busy: Busy,
    /// After how long an interrupt can only be cancelled. Seconds, or `"15m"`.
    pub interrupt_ttl: Option<Ttl>,
    /// What becomes of an answer to an interrupt nobody knows.
    pub orphan_answers: OrphanPolicy,
    /// A header that names the user. Without it the engine decides.
    pub user_header: Option<String>,
    /// Whether quiet streams get comment lines.
    #[serde(deserialize_with = "switch")]
    pub heartbeat: bool,
    /// Whether web pages of any origin may ask: the route's `cors = ["*"]`.
    #[serde(deserialize_with = "switch")]
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

/// `agui`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agui {
    /// They are refused, by name.
    Off,
    /// They are handed to the AG-UI adapter.
    Auto,
}

/// `reasoning`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    /// Left out.
    Drop,
    /// Told as text, between `<think>` and `</think>`.
    Text,
    /// Told as events of type `reasoning`, which stock clients do not know.
    Event,
}

/// `media`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Media {
    /// Told as a Markdown link, if it has an `http` or `https` URL.
    Link,
    /// Left out.
    Drop,
}

/// `data`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// Told as its JSON.
    Text,
    /// Left out.
    Drop,
}

/// `busy`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Busy {
    /// 409.
    Refuse,
    /// It waits for its turn.
    Queue,
}

/// The protocol's page writes `on` and `off`, TOML has booleans: both are understood.
fn switch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Bool(bool),
        Word(String),
    }
    match Written::deserialize(deserializer)? {
        Written::Bool(on) => Ok(on),
        Written::Word(word) if word == "on" => Ok(true),
        Written::Word(word) if word == "off" => Ok(false),
        Written::Word(word) => Err(serde::de::Error::custom(format!("'{word}' is neither true nor false"))),
    }
}

/// What all exchanges of one mount share.
#[derive(Debug)]
struct Route {
    path: String,
    agents: Vec<Arc<AgentCard>>,
    /// The agent of the plain path. None: the route has several, and none is chosen.
    plain: Option<Arc<AgentCard>>,
    options: Options,
}

impl Route {
    /// One interrupt fits a stream, and one answer a request (AG-Kit page, section 5, rule 5).
    fn terms(&self) -> AnswerPolicy {
        AnswerPolicy {
            asking: AskPolicy::OneByOne,
            ttl: self.options.interrupt_ttl.map(|ttl| ttl.0),
            orphans: self.options.orphan_answers,
            taken_one_by_one: false,
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
            return Err("agui = \"auto\" needs the AG-UI adapter, which this gateway does not have".to_owned());
        }
        let plain = match &options.agent {
            None if mount.agents.len() > 1 => None,
            None => mount.agents.first().cloned(),
            Some(name) => match mount.agents.iter().find(|agent| agent.name == *name) {
                Some(agent) => Some(Arc::clone(agent)),
                None => return Err(format!("the route has no agent '{name}'")),
            },
        };
        let any_origin = options.cors;
        let (path, agents) = (mount.path.clone(), mount.agents.clone());
        let route = Arc::new(Route { path, agents, plain, options });
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
        let word = |words: &[&str], text: &str| serde_json::json!({ "enum": words, "description": text });
        serde_json::json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "agent": { "type": "string", "description": "which agent answers on the plain path" },
                "agui": word(&["off", "auto"], "whether AG-UI bodies are taken too"),
                "reasoning": word(&["drop", "text", "event"], "what becomes of reasoning"),
                "media": word(&["link", "drop"], "what becomes of images, audio, video and files"),
                "data": word(&["text", "drop"], "what becomes of data in messages"),
                "unwrap_tool_output": switch("tell lists of text blocks as their text"),
                "sticky_tools": switch("remember client tools until the next request that names some"),
                "separator": switch("an empty line between two text messages"),
                "allow_empty": switch("ask the agent without messages"),
                "busy": word(&["refuse", "queue"], "what becomes of a second request in a busy conversation"),
                "interrupt_ttl": {
                    "type": ["string", "integer"],
                    "description": "after how long an interrupt can only be cancelled"
                },
                "orphan_answers": word(&["refuse", "forward"], "what becomes of answers to unknown interrupts"),
                "user_header": { "type": "string", "description": "a header that names the user" },
                "heartbeat": switch("comment lines in quiet streams"),
                "cors": switch("any web page may ask: the route's cors = [\"*\"]"),
            }
        })
    }
}
