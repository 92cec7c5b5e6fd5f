//! A small client driver for each of the served protocols: start, answer, read, follow and cancel a run. A driver returns
//! `None` for an operation that its protocol does not have. Each protocol has a file.
//!
//! Not here: the expected results (`tests/behaviour/pairs.rs`).

mod a2a;
mod ag_kit;
mod ag_ui;
mod agent_api;
mod anthropic_messages;
mod chat_completions;
mod hitl;
mod responses;
mod turn;

use serde_json::{Value, json};

use super::gateway::Gateway;
use super::http::{Exchange, Response};
use super::poll_until;

pub use super::paths::{MOUNTS, ROUTES, routes_with};
pub use a2a::{message, subscribe, task};
pub use turn::Turn;

/// A client protocol. What the tests do over every protocol, they do over [`ALL_PROTOCOLS`]; a test compares that list with
/// what the gateway serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    AgentApi,
    Responses,
    ChatCompletions,
    AnthropicMessages,
    A2a,
    AgKit,
    AgUi,
    Hitl,
}

pub const ALL_PROTOCOLS: [Protocol; 8] = [
    Protocol::AgentApi,
    Protocol::Responses,
    Protocol::ChatCompletions,
    Protocol::AnthropicMessages,
    Protocol::A2a,
    Protocol::AgKit,
    Protocol::AgUi,
    Protocol::Hitl,
];

/// An answer to a pending item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Accept,
    Edit,
    Respond,
    Reject,
    /// The output of a client tool.
    Output,
    /// An answer to a question with a response schema, as JSON.
    Value,
    /// The same as plain text.
    Words,
    /// Confirms a login.
    Done,
}

pub const ALL_DECISIONS: [Decision; 8] = [
    Decision::Accept,
    Decision::Edit,
    Decision::Respond,
    Decision::Reject,
    Decision::Output,
    Decision::Value,
    Decision::Words,
    Decision::Done,
];

impl Decision {
    /// The demo command that raises the matching interrupt.
    pub const fn demo_command(self) -> &'static str {
        match self {
            Self::Accept | Self::Edit | Self::Respond | Self::Reject => "approval",
            Self::Output => "client tool",
            Self::Value | Self::Words => "question",
            Self::Done => "login",
        }
    }

    /// Text in the reply of the demo agent to this answer.
    pub const fn expected_text(self) -> &'static str {
        match self {
            Self::Accept => "The mail was sent to ada@example.com.",
            Self::Edit => "The mail was sent to grace@example.com.",
            Self::Respond => "took this for the result: later",
            Self::Reject => "I did not send it, because you rejected it",
            Self::Output => "says: Paris",
            Self::Value | Self::Words => "You answered: {\"colour\":\"blue\"}",
            Self::Done => "Thank you, you are logged in.",
        }
    }
}

/// A run that waits for input.
#[derive(Clone, Debug)]
pub struct Interrupt {
    pub session: String,
    /// The run id as in the Agent API, with its prefix.
    pub run: String,
    /// The id of the pending item.
    pub item: String,
}

impl Interrupt {
    /// The run id without a prefix.
    pub fn id(&self) -> &str {
        self.run.trim_start_matches("response_")
    }
}

/// The JSON frames of an event stream.
pub fn frames(text: &str) -> Vec<Value> {
    let data = text.split("\n").filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

/// The run ids of a session.
pub async fn runs(gateway: &Gateway, session: &str) -> Vec<String> {
    let listed = gateway.get(&format!("/agents/demo/runs?session_id={session}")).await.json();
    let runs = listed["data"].as_array().expect("a list");
    runs.iter().map(|run| run["id"].as_str().expect("an id").to_owned()).collect()
}

/// The latest run of a session, read over the Agent API.
pub async fn latest(gateway: &Gateway, session: &str) -> Value {
    poll_until("a run in the session", async || {
        let runs = gateway.get(&format!("/agents/demo/runs?session_id={session}")).await.json();
        runs["data"].as_array()?.first().cloned()
    })
    .await
}

/// The pending items of a session's latest run.
pub async fn interrupt_of(gateway: &Gateway, session: &str) -> Interrupt {
    let run = latest(gateway, session).await["id"].as_str().expect("an id").to_owned();
    let full = gateway.run("demo", &run).await;
    let data =
        &full["output"].as_array().and_then(|output| output.last()).expect("it is interrupted")["content"][0]["data"];
    let item = data["id"].as_str().or(data["call_id"].as_str()).expect("an item").to_owned();
    Interrupt { session: session.to_owned(), run, item }
}

/// All texts in an answer, whatever their fields are called, with the pieces of a stream put together.
pub fn texts_of(answer: &str) -> String {
    fn collect(value: &Value, found: &mut String) {
        match value {
            Value::String(text) => found.push_str(text),
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            Value::Object(fields) => fields
                .iter()
                .filter(|(name, _)| name.as_str() != "type" && !name.ends_with("id") && !name.ends_with("Id"))
                .for_each(|(_, value)| collect(value, found)),
            _ => {}
        }
    }

    let mut found = String::new();
    match serde_json::from_str::<Value>(answer) {
        Ok(whole) => collect(&whole, &mut found),
        Err(_) => frames(answer).iter().for_each(|frame| collect(frame, &mut found)),
    }
    found
}

/// The response, which has to be a success.
fn ok(answer: Response) -> Response {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

impl Protocol {
    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AgentApi => "agent-api",
            Self::Responses => "responses",
            Self::ChatCompletions => "chat-completions",
            Self::AnthropicMessages => "anthropic-messages",
            Self::A2a => "a2a",
            Self::AgKit => "ag-kit",
            Self::AgUi => "ag-ui",
            Self::Hitl => "hitl",
        }
    }

    /// An endpoint that takes a body, with agent `demo`.
    pub const fn post(self) -> &'static str {
        match self {
            Self::AgentApi => "/agents/demo/process",
            Self::Responses => "/v1/responses",
            Self::ChatCompletions => chat_completions::PATH,
            Self::AnthropicMessages => anthropic_messages::PATH,
            Self::A2a => "/a2a/demo",
            Self::AgKit => "/ag-kit/demo/send-message",
            Self::AgUi => "/ag-ui/demo",
            Self::Hitl => "/hitl/demo/agent/invoke",
        }
    }

    /// Says something, with a picture by its URL where the protocol can send one, and waits for the whole answer.
    pub async fn say(self, gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
        match self {
            Self::AgentApi => agent_api::say(gateway, session, words, picture).await,
            Self::Responses => responses::say(gateway, words, picture).await,
            Self::ChatCompletions => chat_completions::say(gateway, session, words, picture).await,
            Self::AnthropicMessages => anthropic_messages::say(gateway, session, words, picture).await,
            Self::A2a => a2a::say(gateway, session, words, picture).await,
            Self::AgKit => ag_kit::say(gateway, session, words, picture).await,
            Self::AgUi => ag_ui::say(gateway, session, words, picture).await,
            Self::Hitl => hitl::say(gateway, session, words).await,
        }
    }

    /// Sends a demo command that interrupts, and waits until the run is interrupted.
    pub async fn ask(self, gateway: &Gateway, session: &str, word: &str) -> Interrupt {
        let answer = ok(self.say(gateway, session, word, None).await);
        let session = match self {
            Self::Responses => responses::session(gateway, &answer).await,
            _ => session.to_owned(),
        };

        interrupt_of(gateway, &session).await
    }

    /// Answers a pending item. `None` if the protocol cannot express the decision.
    pub async fn answer(self, gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
        match self {
            Self::AgentApi => Some(agent_api::answer(gateway, interrupt, decision).await),
            Self::Responses => responses::answer(gateway, interrupt, decision).await,
            Self::ChatCompletions => Some(chat_completions::answer(gateway, interrupt, decision).await),
            Self::AnthropicMessages => Some(anthropic_messages::answer(gateway, interrupt, decision).await),
            Self::A2a => Some(a2a::answer(gateway, interrupt, decision).await),
            Self::AgKit => Some(ag_kit::answer(gateway, interrupt, decision).await),
            Self::AgUi => Some(ag_ui::answer(gateway, interrupt, decision).await),
            Self::Hitl => Some(hitl::answer(gateway, interrupt, decision).await),
        }
    }

    /// Starts a long run. Where the protocol has no background runs, the open connection is returned.
    pub async fn start_long(self, gateway: &Gateway, session: &str) -> (Interrupt, Option<Exchange>) {
        let mut session = session.to_owned();
        let open = match self {
            Self::AgentApi => {
                ok(agent_api::start_long(gateway, &session).await);
                None
            }
            Self::Responses => {
                let answer = ok(responses::start_long(gateway).await);
                session = responses::session(gateway, &answer).await;
                None
            }
            Self::A2a => {
                ok(a2a::start_long(gateway, &session).await);
                None
            }
            Self::ChatCompletions => Some(chat_completions::start_long(gateway, &session).await),
            Self::AnthropicMessages => Some(anthropic_messages::start_long(gateway, &session).await),
            Self::AgKit => Some(ag_kit::start_long(gateway, &session).await),
            Self::AgUi => Some(ag_ui::start_long(gateway, &session).await),
            Self::Hitl => Some(hitl::start_long(gateway, &session).await),
        };
        let run = latest(gateway, &session).await["id"].as_str().expect("an id").to_owned();
        (Interrupt { session, run, item: String::new() }, open)
    }

    /// The state of a run in the terms of the protocol. `None` if the protocol cannot read runs.
    pub async fn status(self, gateway: &Gateway, interrupt: &Interrupt) -> Option<String> {
        let answer = match self {
            Self::AgentApi => gateway.get(&format!("/agents/demo/runs/{}", interrupt.id())).await,
            Self::Responses => gateway.get(&format!("/v1/responses/{}", interrupt.run)).await,
            Self::A2a => task(gateway, &interrupt.run).await,
            Self::ChatCompletions | Self::AnthropicMessages | Self::AgKit | Self::AgUi => return None,
            Self::Hitl => gateway.get(&format!("/hitl/demo/agent/status/pat/{}", interrupt.session)).await,
        };

        let answer = ok(answer).json();
        let state = if self == Self::A2a { &answer["status"]["state"] } else { &answer["status"] };
        Some(state.as_str().expect("a state").trim_start_matches("TASK_STATE_").to_lowercase())
    }

    /// Follows a run. `None` if the protocol cannot.
    pub async fn follow(self, gateway: &Gateway, interrupt: &Interrupt) -> Option<Exchange> {
        let id = interrupt.id().replace('-', "");
        Some(match self {
            Self::AgentApi => gateway.open("GET", &format!("/agents/demo/runs/{id}/events"), &[], b"").await,
            Self::Responses => gateway.open("GET", &format!("/v1/responses/{id}?stream=true"), &[], b"").await,
            Self::A2a => subscribe(gateway, &id).await,
            Self::AgUi => {
                let path = format!("/ag-ui/demo?threadId={}&runId={id}", interrupt.session);
                gateway.open("GET", &path, &[], b"").await
            }
            Self::ChatCompletions | Self::AnthropicMessages | Self::AgKit | Self::Hitl => return None,
        })
    }

    /// Cancels a run, also one that waits for input. `None` if the protocol cannot.
    pub async fn cancel(self, gateway: &Gateway, interrupt: &Interrupt) -> Option<Response> {
        Some(match self {
            Self::AgentApi => gateway.post(&format!("/agents/demo/runs/{}/cancel", interrupt.id()), &json!({})).await,
            Self::Responses => gateway.post(&format!("/v1/responses/{}/cancel", interrupt.run), &json!({})).await,
            Self::A2a => a2a::cancel(gateway, &interrupt.run).await,
            Self::ChatCompletions | Self::AnthropicMessages | Self::AgKit | Self::AgUi => return None,
            Self::Hitl => hitl::cancel(gateway, &interrupt.session).await,
        })
    }
}

/// The text that starts a long run.
const LONG: &str = "long 5000 20";

/// A decision in the JSON shape that most protocols use.
pub fn decision_fields(decision: Decision) -> Value {
    match decision {
        Decision::Accept | Decision::Done => json!({ "decision": "accept" }),
        Decision::Edit => json!({ "decision": "edit", "args": { "to": "grace@example.com" } }),
        Decision::Respond => json!({ "decision": "respond", "text": "later" }),
        Decision::Reject => json!({ "decision": "reject" }),
        Decision::Output | Decision::Words => panic!("no decision"),
        Decision::Value => json!({ "colour": "blue" }),
    }
}

/// The answer as the output of a call: the only form that clients without words for it have.
fn stateless_answer(decision: Decision) -> String {
    match decision {
        Decision::Output => "Paris".to_owned(),
        Decision::Words => "blue".to_owned(),
        _ => decision_fields(decision).to_string(),
    }
}

/// An endpoint of each protocol that takes a body.
pub fn posts() -> [&'static str; ALL_PROTOCOLS.len()] {
    ALL_PROTOCOLS.map(Protocol::post)
}

/// The answer as a message of the Agent API.
pub fn native(item: &str, decision: Decision) -> Value {
    let (kind, role, data) = match decision {
        Decision::Output => ("function_call_output", "tool", json!({ "call_id": item, "output": "Paris" })),
        _ => {
            let interrupt = match decision {
                Decision::Accept | Decision::Done => json!({ "decision": "accept" }),
                Decision::Edit => json!({ "decision": "edit", "arguments": "{\"to\":\"grace@example.com\"}" }),
                Decision::Respond => json!({ "decision": "respond", "text": "later" }),
                Decision::Reject => json!({ "decision": "reject" }),
                Decision::Value => json!({ "decision": "respond", "payload": { "colour": "blue" } }),
                Decision::Words => json!({ "decision": "respond", "text": "blue" }),
                Decision::Output => Value::Null,
            };
            let approve = !matches!(decision, Decision::Reject | Decision::Respond);
            let data = json!({ "approval_request_id": item, "id": item, "approve": approve, "interrupt": interrupt });
            ("mcp_approval_response", "user", data)
        }
    };
    json!({ "type": kind, "role": role, "content": [{ "type": "data", "data": data }] })
}
