//! The human-in-the-loop agent service: a REST service around approvals, JSON in and out (human-in-the-loop page,
//! section 7): serving it.
//!
//! Here are its name, its options and its table of endpoints; each endpoint has a file. What a session is doing, what
//! it said and what it waits for is the engine's: the adapter keeps the names of each user's sessions, nothing else.

mod body;
mod conversation;
mod delete;
mod fault;
mod invoke;
mod names;
mod overview;
mod resume;
mod status;
mod turn;
mod wire;

use std::sync::Arc;

use interlingua_core::answer::{AnswerPolicy, AskPolicy, OrphanPolicy, Ttl};
use interlingua_core::call::AgentCard;
use interlingua_core::exchange::{Cors, Mounted};
use interlingua_core::{Endpoint, Mount, ProtocolAdapter};
use serde::Deserialize;

/// Serves the human-in-the-loop agent service.
#[derive(Clone, Copy, Debug)]
pub struct Hitl;

/// What an operator may choose for a route of this service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Which agent it is, where the route has several.
    pub agent: Option<String>,
    /// What `result.messages` holds.
    pub result: Shown,
    /// What becomes of reasoning.
    pub reasoning: Reasoning,
    /// What becomes of a query while an answer is waited for.
    pub invoke_while_interrupted: WhileInterrupted,
    /// Whether a client that hangs up stops its run.
    pub cancel_on_disconnect: bool,
    /// After how long an interrupt can only be cancelled. Seconds, or `"15m"`.
    pub interrupt_ttl: Option<Ttl>,
    /// After how long without a word a session is begun anew. Never, if not set.
    pub session_idle: Option<Ttl>,
    /// Whether web pages of any origin may ask: the route's `cors = ["*"]`.
    pub cors: bool,
}

/// `result`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    /// Everything that was said in the session.
    #[default]
    Conversation,
    /// What was said since the call.
    Turn,
}

/// `reasoning`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    /// In `additional_kwargs.reasoning_content` of the `ai` message after it.
    #[default]
    Kwargs,
    /// Left out.
    Drop,
}

/// `invoke_while_interrupted`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhileInterrupted {
    /// The question is asked again.
    #[default]
    Repeat,
    /// 409.
    Conflict,
}

/// What all exchanges of one mount share.
#[derive(Debug)]
struct Route {
    agent: Arc<AgentCard>,
    options: Options,
}

impl Route {
    /// One question fits an answer, and tools are asked for like the rest.
    fn terms(&self) -> AnswerPolicy {
        AnswerPolicy {
            asking: AskPolicy::OneByOneWithTools,
            ttl: self.options.interrupt_ttl.map(|ttl| ttl.0),
            orphans: OrphanPolicy::Refuse,
            taken_one_by_one: false,
        }
    }
}

impl ProtocolAdapter for Hitl {
    const NAME: &'static str = "hitl";
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        let named = options.agent.as_deref();
        let agent = match (named, mount.agents.as_slice()) {
            (None, [only]) => only,
            (None, _) => {
                return Err("the service is that of one agent: put {agent} into the path, or name one in the route's \
                            agents or in options.agent"
                    .to_owned());
            }
            (Some(name), agents) => agents
                .iter()
                .find(|agent| agent.name == name)
                .ok_or_else(|| format!("the route has no agent '{name}'"))?,
        };
        let any_origin = options.cors;
        let route = Arc::new(Route { agent: Arc::clone(agent), options });
        Ok(Mounted {
            endpoints: endpoints(&route),
            fallback: Box::new(|| Box::new(fault::Fallback)),
            curl: vec![
                r#"curl {url}/agent/invoke -H 'content-type: application/json' -d '{"user_id":"ada","query":"hi"}'"#
                    .to_owned(),
                "curl {url}/agent/status/ada".to_owned(),
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
        let time = |text: &str| serde_json::json!({ "type": ["string", "integer"], "description": text });
        serde_json::json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "agent": { "type": "string", "description": "which agent it is, where the route has several" },
                "result": word(&["conversation", "turn"], "what result.messages holds"),
                "reasoning": word(&["kwargs", "drop"], "what becomes of reasoning"),
                "invoke_while_interrupted": word(&["repeat", "conflict"], "what becomes of a query meanwhile"),
                "cancel_on_disconnect": switch("a client that hangs up stops its run"),
                "interrupt_ttl": time("after how long an interrupt can only be cancelled"),
                "session_idle": time("after how long without a word a session is begun anew"),
                "cors": switch("any web page may ask: the route's cors = [\"*\"]"),
            }
        })
    }
}

fn endpoints(route: &Arc<Route>) -> Vec<Endpoint> {
    use overview::Overview;
    let route = || Arc::clone(route);
    let (invoke, resume, status, of_session) = (route(), route(), route(), route());
    let (sessions, active, delete, one, system) = (route(), route(), route(), route(), route());
    vec![
        Endpoint::post("/agent/invoke", move || invoke::Invoke::new(&invoke)),
        Endpoint::post("/agent/resume", move || resume::Resume::new(&resume)),
        Endpoint::get("/agent/status/{user_id}", move || status::Status::new(&status)),
        Endpoint::get("/agent/status/{user_id}/{session_id}", move || status::Status::new(&of_session)),
        Endpoint::get("/agent/sessionids/{user_id}", move || Overview::sessions(&sessions)),
        Endpoint::get("/agent/active/sessionid/{user_id}", move || Overview::active(&active)),
        Endpoint::delete("/agent/session/{user_id}", move || delete::Delete::new(&delete)),
        Endpoint::delete("/agent/session/{user_id}/{session_id}", move || delete::Delete::new(&one)),
        Endpoint::get("/system/info", move || Overview::system(&system)),
    ]
}
