//! The human-in-the-loop agent service: a REST service around approvals, with JSON requests and responses
//! (docs/human-in-the-loop.md#the-rest-protocol): the server side, and the client side for agents behind it
//! (`connect`).
//!
//! This file has the protocol's name, options and endpoints; each endpoint has a module. The engine owns a session's
//! state, messages and pending items: the adapter only stores the names of each user's sessions.

mod connect;
mod decode;
mod encode;
mod losses;
mod serve;
mod wire;

use std::sync::Arc;

use interlingua_adapter_kit::fallback;
use interlingua_core::answer::{AnswerPolicy, AskPolicy, OrphanPolicy};
use interlingua_core::call::AgentCard;
use interlingua_core::capability::{AskKinds, ClientCapabilities, Media};
use interlingua_core::console::{ConsoleSupport, DecisionNotice};
use interlingua_core::duration::Ttl;
use interlingua_core::exchange::{Cors, Mounted};
use interlingua_core::pending::Decision;
use interlingua_core::sample::{SampleInput, SampleRequest};
use interlingua_core::{Endpoint, Mount, ProtocolAdapter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub use connect::{DecisionWords, HitlUpstream, ServiceUser, UpstreamOptions};

/// The protocol's name in `gateway.toml`.
const NAME: &str = "hitl";

/// The server adapter for the human-in-the-loop agent service.
#[derive(Clone, Copy, Debug)]
pub struct Hitl;

/// Options of a route of this service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The agent, on routes with several agents.
    pub agent: Option<String>,
    /// The messages in `result.messages`.
    pub result: ResultScope,
    /// The form of reasoning.
    pub reasoning: Reasoning,
    /// Handling of a query while the session waits for an answer.
    pub invoke_while_interrupted: WhileInterrupted,
    /// If true, a client that disconnects cancels its run.
    pub cancel_on_disconnect: bool,
    /// Time after which an interrupt can only be cancelled: seconds, or `"15m"`. Default: never.
    pub interrupt_ttl: Option<Ttl>,
    /// Idle time after which the next query starts a new session. Default: never.
    pub session_idle: Option<Ttl>,
    /// If true, web pages of any origin may send requests, as with the route's `cors = ["*"]`.
    pub cors: bool,
}

/// Values of the option `result`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultScope {
    /// All messages of the session.
    #[default]
    Conversation,
    /// The messages since the request.
    Turn,
}

/// Values of the option `reasoning`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    /// Sent in `additional_kwargs.reasoning_content` of the next `ai` message.
    #[default]
    Kwargs,
    /// Omitted.
    Drop,
}

/// Values of the option `invoke_while_interrupted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhileInterrupted {
    /// The response repeats the question.
    #[default]
    Repeat,
    /// The request fails with status 409.
    Conflict,
}

/// State shared by all exchanges of one mount.
#[derive(Debug)]
struct Route {
    agent: Arc<AgentCard>,
    options: Options,
}

impl Route {
    /// A response can carry one question; tool calls are treated as questions, too.
    fn answer_policy(&self) -> AnswerPolicy {
        AnswerPolicy {
            asking: AskPolicy::OneByOneWithTools,
            ttl: self.options.interrupt_ttl.map(|ttl| ttl.0),
            orphans: OrphanPolicy::Refuse,
            accepts_single_answers: false,
            asks_again: false,
        }
    }
}

impl ProtocolAdapter for Hitl {
    const NAME: &'static str = NAME;
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        let named = options.agent.as_deref();
        let agent = match (named, mount.agents.as_slice()) {
            (None, [only]) => only,
            (None, _) => {
                return Err(
                    "this service needs exactly one agent: put {agent} into the path, or name one in the route's \
                            agents or in options.agent"
                        .to_owned(),
                );
            }
            (Some(name), agents) => agents
                .iter()
                .find(|agent| agent.name == name)
                .ok_or_else(|| format!("the route has no agent '{name}'"))?,
        };

        let cors = Cors { any_origin: options.cors, ..Cors::default() };
        let route = Arc::new(Route { agent: Arc::clone(agent), options });

        Ok(Mounted {
            cors,
            console: ConsoleSupport {
                curl: vec![
                    r#"curl {url}/agent/invoke -H 'content-type: application/json' -d '{"user_id":"ada","query":"hi"}'"#
                        .to_owned(),
                    "curl {url}/agent/status/ada".to_owned(),
                ],
                decision_notice: DecisionNotice::Polls,
                sample: Some(Box::new(sample)),
                ..ConsoleSupport::default()
            },
            ..Mounted::new(endpoints(&route), fallback::writing(serve::fault::write))
        })
    }

    fn capabilities(options: &Options) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        capabilities.streaming = false;
        // The service can ask its client to run a tool, and its answer is the output. Requests declare none.
        capabilities.client_tools = true;
        capabilities.decisions = &[Decision::Accept, Decision::Edit, Decision::Respond, Decision::Reject];
        capabilities.output_media = Media::ALL;
        capabilities.cancel = true;
        capabilities.reasoning = options.reasoning == Reasoning::Kwargs;
        capabilities.asks = AskKinds::ALL;
        capabilities
    }
}

fn endpoints(route: &Arc<Route>) -> Vec<Endpoint> {
    let route = || Arc::clone(route);
    let (invoke, resume, status, of_session) = (route(), route(), route(), route());
    let (sessions, active, delete, one, system) = (route(), route(), route(), route(), route());
    vec![
        Endpoint::post("/agent/invoke", move || serve::invoke::Invoke::new(&invoke)),
        Endpoint::post("/agent/resume", move || serve::resume::Resume::new(&resume)),
        Endpoint::get("/agent/status/{user_id}", move || serve::status::Status::new(&status)),
        Endpoint::get("/agent/status/{user_id}/{session_id}", move || serve::status::Status::new(&of_session)),
        Endpoint::get("/agent/sessionids/{user_id}", move || serve::overview::Overview::sessions(&sessions)),
        Endpoint::get("/agent/active/sessionid/{user_id}", move || serve::overview::Overview::active(&active)),
        Endpoint::delete("/agent/session/{user_id}", move || serve::delete::Delete::new(&delete)),
        Endpoint::delete("/agent/session/{user_id}/{session_id}", move || serve::delete::Delete::new(&one)),
        Endpoint::get("/system/info", move || serve::overview::Overview::system(&system)),
    ]
}

/// A request as a client sends it, for the operator's console.
fn sample(input: &SampleInput<'_>) -> SampleRequest {
    // The user is called as the session is: a service that named it itself would keep it to another one.
    let id = input.id.to_string();
    let session = input.thread.map_or(&*id, |thread| thread.session);
    SampleRequest::post("/agent/invoke", json!({ "user_id": session, "session_id": session, "query": input.text }))
}
