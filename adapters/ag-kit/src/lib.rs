//! AG-Kit, the `send-message` protocol of CloudBase agents: the server side, for front ends, and the client side, for
//! agents that speak it (`connect`).
//!
//! This file has the protocol's name, options and endpoints; requests are parsed in `request`, streams are written in
//! `encode`, and `send` and `health` have one exchange per endpoint. Not here: conversation history, which is the
//! agent's setting and the engine's work, and pending items between two requests ([`interlingua_core::answer`]).

mod connect;
mod decode;
mod encode;
mod losses;
mod serve;
mod wire;

use std::sync::Arc;

use interlingua_adapter_kit::fallback;
use interlingua_core::answer::{ALL_DECISIONS, AnswerPolicy, AskPolicy, OrphanPolicy};
use interlingua_core::call::AgentCard;
use interlingua_core::capability::{self, AskKinds, ClientCapabilities};
use interlingua_core::console::ConsoleSupport;
use interlingua_core::duration::Ttl;
use interlingua_core::exchange::{Cors, Mounted};
use interlingua_core::options::Switch;
use interlingua_core::sample::{SampleInput, SampleRequest};
use interlingua_core::{Endpoint, Mount, ProtocolAdapter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub use connect::{AgKitUpstream, Parameters, ResumeStyle, UnansweredCalls, UpstreamOptions};

/// The protocol's name in `gateway.toml`.
const NAME: &str = "ag-kit";

/// The server adapter for AG-Kit.
#[derive(Clone, Copy, Debug)]
pub struct AgKit;

/// Options of an AG-Kit route.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The agent for paths without an agent id, on routes with several agents.
    pub agent: Option<String>,
    /// Handling of request bodies of AG-UI, the newer protocol generation.
    pub agui: Agui,
    /// The form of the agent's reasoning.
    pub reasoning: Reasoning,
    /// The form of images, audio, video and files.
    pub media: Media,
    /// The form of data contents of ordinary messages.
    pub data: Data,
    /// If true, a tool output that is a JSON list of text blocks is sent as their text.
    pub unwrap_tool_output: bool,
    /// If true, client tools stay in effect until the next request with `tools`.
    pub sticky_tools: Switch,
    /// If true, two text messages without a call in between are separated by an empty line.
    pub separator: Switch,
    /// If true, a request without messages and without an answer starts a turn in an existing conversation.
    pub allow_empty: Switch,
    /// Handling of a second request in a busy conversation.
    pub busy: Busy,
    /// Time after which an interrupt can only be cancelled: seconds, or `"15m"`. Default: never.
    pub interrupt_ttl: Option<Ttl>,
    /// Handling of an answer to an unknown interrupt.
    pub orphan_answers: OrphanPolicy,
    /// Name of a request header with the user's id. Default: the engine decides.
    pub user_header: Option<String>,
    /// If true, quiet streams get comment lines as keep-alives.
    pub heartbeat: Switch,
    /// If true, web pages of any origin may send requests, as with the route's `cors = ["*"]`.
    pub cors: Switch,
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
            sticky_tools: Switch(true),
            separator: Switch(true),
            allow_empty: Switch(false),
            busy: Busy::Refuse,
            interrupt_ttl: None,
            orphan_answers: OrphanPolicy::Refuse,
            user_header: None,
            heartbeat: Switch(true),
            cors: Switch(false),
        }
    }
}

/// Values of the option `agui`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Agui {
    /// AG-UI bodies are refused with an error that names AG-UI.
    Off,
}

/// Values of the option `reasoning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Media {
    /// Sent as a Markdown link, if there is an `http` or `https` URL.
    Link,
    /// Omitted.
    Drop,
}

/// Values of the option `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// Sent as JSON text.
    Text,
    /// Omitted.
    Drop,
}

/// Values of the option `busy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Busy {
    /// The request fails with status 409.
    Refuse,
    /// The request waits until the conversation is free.
    Queue,
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
    /// A stream can carry one interrupt, and a request one answer (docs/protocols/ag-kit.md#order-5).
    fn answer_policy(&self) -> AnswerPolicy {
        AnswerPolicy {
            asking: AskPolicy::OneByOne,
            ttl: self.options.interrupt_ttl.map(|ttl| ttl.0),
            orphans: self.options.orphan_answers,
            accepts_single_answers: false,
            asks_again: false,
        }
    }

    fn agent(&self, name: &str) -> Option<&Arc<AgentCard>> {
        self.agents.iter().find(|agent| agent.name == name)
    }
}

impl ProtocolAdapter for AgKit {
    const NAME: &'static str = NAME;
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        let default_agent = match &options.agent {
            None if mount.agents.len() > 1 => None,
            None => mount.agents.first().cloned(),
            Some(name) => match mount.agents.iter().find(|agent| agent.name == *name) {
                Some(agent) => Some(Arc::clone(agent)),
                None => return Err(format!("the route has no agent '{name}'")),
            },
        };

        let cors = Cors { any_origin: options.cors.0, ..Cors::default() };
        let (path, agents) = (mount.path.clone(), mount.agents.clone());
        let route = Arc::new(Route { path, agents, default_agent, options });
        let (send, cloud, health) = (Arc::clone(&route), Arc::clone(&route), route);

        let endpoints = vec![
            Endpoint::post("/send-message", move || serve::send::Send::new(&send)),
            Endpoint::post("/v1/aibot/bots/{agentId}/send-message", move || serve::send::Send::new(&cloud)),
            Endpoint::get("/healthz", move || serve::health::Health::new(&health)),
        ];
        Ok(Mounted {
            cors,
            console: ConsoleSupport {
                curl: vec![
                    r#"curl -N {url}/send-message -H 'content-type: application/json' -d '{"conversationId":"c1","messages":[{"role":"user","content":"hi"}]}'"#.to_owned(),
                ],
                sample: Some(Box::new(sample)),
                ..ConsoleSupport::default()
            },
            ..Mounted::new(endpoints, fallback::writing(serve::fault::fail))
        })
    }

    fn capabilities(options: &Options) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        capabilities.client_tools = true;
        capabilities.tool_declarations = true;
        capabilities.decisions = ALL_DECISIONS;
        capabilities.input_media = capability::Media::ALL;
        if options.media == Media::Link {
            capabilities.output_media = capability::Media::ALL;
        }
        capabilities.reasoning = options.reasoning != Reasoning::Drop;
        capabilities.asks = AskKinds::ALL;
        capabilities
    }
}

/// A request as a client sends it, for the operator's console.
fn sample(input: &SampleInput<'_>) -> SampleRequest {
    let messages = json!([{ "role": "user", "content": input.text }]);
    let id = input.id.to_string();
    let conversation = input.thread.map_or(&*id, |thread| thread.session);
    SampleRequest::post("/send-message", json!({ "conversationId": conversation, "messages": messages }))
}
