//! A small client driver for each of the five served protocols: start, answer, read, follow and cancel a run. A driver
//! returns `None` for an operation that its protocol does not have.
//!
//! Not here: the expected results (`tests/behaviour/pairs.rs`).

#![allow(dead_code, unreachable_pub, reason = "each test binary uses only part of it")]

use serde_json::{Value, json};

use super::gateway::{Gateway, user_turn_in};
use super::http::{Exchange, Response};
use super::poll_until;

/// A route of every protocol for the agent `demo`.
pub const ROUTES: &str = "[[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{agent}\"\n\
                          [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n\
                          [[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n\
                          [[routes]]\nprotocol = \"ag-kit\"\npath = \"/kit/{agent}\"\n\
                          [[routes]]\nprotocol = \"hitl\"\npath = \"/hitl/{agent}\"\n";

/// An endpoint of each of these routes that takes a body.
pub const POSTS: [&str; 5] =
    ["/agents/demo/process", "/v1/responses", "/a2a/demo", "/kit/demo/send-message", "/hitl/demo/agent/invoke"];

/// A client protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    AgentApi,
    Responses,
    A2a,
    AgKit,
    Hitl,
}

pub const ALL_PROTOCOLS: [Protocol; 5] =
    [Protocol::AgentApi, Protocol::Responses, Protocol::A2a, Protocol::AgKit, Protocol::Hitl];

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

const V1: (&str, &str) = ("a2a-version", "1.0");
const JSON: (&str, &str) = ("content-type", "application/json");

async fn a2a(gateway: &Gateway, path: &str, body: &Value) -> Exchange {
    gateway.open("POST", &format!("/a2a/demo{path}"), &[V1, JSON], body.to_string().as_bytes()).await
}

/// Fetches a task over A2A.
pub async fn task(gateway: &Gateway, id: &str) -> Response {
    gateway.open("GET", &format!("/a2a/demo/tasks/{id}"), &[V1], b"").await.response().await
}

/// Subscribes to a task over A2A.
pub async fn subscribe(gateway: &Gateway, id: &str) -> Exchange {
    a2a(gateway, &format!("/tasks/{id}:subscribe"), &json!({})).await
}

/// Sends a message over A2A, with or without a task id.
pub async fn message(gateway: &Gateway, session: &str, task: Option<&str>, part: Value) -> Response {
    let mut message = json!({ "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [part] });
    if let Some(task) = task {
        message["taskId"] = task.into();
    }
    a2a(gateway, "/message:send", &json!({ "message": message })).await.response().await
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

fn assert_ok(protocol: Protocol, answer: &Response) {
    assert_eq!(answer.status, 200, "{protocol:?}: {}", answer.text());
}

impl Protocol {
    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AgentApi => "agent-api",
            Self::Responses => "responses",
            Self::A2a => "a2a",
            Self::AgKit => "ag-kit",
            Self::Hitl => "hitl",
        }
    }

    /// Says something, with a picture by its URL where the protocol can send one, and waits for the whole answer.
    pub async fn say(self, gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
        match self {
            Self::AgentApi => {
                let mut content = vec![json!({ "type": "text", "text": words })];
                content.extend(picture.map(|url| json!({ "type": "image", "image_url": url })));
                let input = json!([{ "role": "user", "type": "message", "content": content }]);
                let body = json!({ "session_id": session, "stream": false, "input": input });
                gateway.post("/agents/demo/process", &body).await
            }
            Self::Responses => {
                let mut content = vec![json!({ "type": "input_text", "text": words })];
                content.extend(picture.map(|url| json!({ "type": "input_image", "image_url": url })));
                let input = json!([{ "role": "user", "content": content }]);
                gateway.post("/v1/responses", &json!({ "model": "demo", "input": input })).await
            }
            Self::A2a => {
                let mut parts = vec![json!({ "text": words })];
                parts.extend(picture.map(|url| json!({ "url": url, "mediaType": "image/png" })));
                let message = json!({ "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": parts });
                // Statuses such as those of reasoning are part of the stream only.
                let path = if words == "reasoning" { "/message:stream" } else { "/message:send" };
                a2a(gateway, path, &json!({ "message": message })).await.response().await
            }
            Self::AgKit => {
                let mut content = vec![json!({ "type": "text", "text": words })];
                content.extend(picture.map(|url| json!({ "type": "image_url", "image_url": { "url": url } })));
                let messages = json!([{ "role": "user", "content": content }]);
                let body = json!({ "conversationId": session, "messages": messages });
                gateway.post("/kit/demo/send-message", &body).await
            }
            Self::Hitl => {
                let body = json!({ "user_id": "pat", "session_id": session, "query": words });
                gateway.post("/hitl/demo/agent/invoke", &body).await
            }
        }
    }

    /// Sends a demo command that interrupts, and waits until the run is interrupted.
    pub async fn ask(self, gateway: &Gateway, session: &str, word: &str) -> Interrupt {
        let mut session = session.to_owned();
        match self {
            Self::AgentApi => {
                let mut body = user_turn_in(&session, word);
                body["stream"] = false.into();
                assert_ok(self, &gateway.post("/agents/demo/process", &body).await);
            }
            Self::Responses => {
                let made = gateway.post("/v1/responses", &json!({ "model": "demo", "input": word })).await;
                assert_ok(self, &made);
                let id = made.json()["id"].as_str().expect("an id").to_owned();
                session = gateway.run("demo", &id).await["session_id"].as_str().expect("a session").to_owned();
            }
            Self::A2a => assert_ok(self, &message(gateway, &session, None, json!({ "text": word })).await),
            Self::AgKit => {
                let body = json!({ "conversationId": session, "messages": [{ "role": "user", "content": word }] });
                assert_ok(self, &gateway.post("/kit/demo/send-message", &body).await);
            }
            Self::Hitl => {
                let body = json!({ "user_id": "pat", "session_id": session, "query": word });
                assert_ok(self, &gateway.post("/hitl/demo/agent/invoke", &body).await);
            }
        }

        let run = latest(gateway, &session).await["id"].as_str().expect("an id").to_owned();
        let full = gateway.run("demo", &run).await;
        let data = &full["output"].as_array().and_then(|output| output.last()).expect("it is interrupted")["content"]
            [0]["data"];
        let item = data["id"].as_str().or(data["call_id"].as_str()).expect("an item").to_owned();
        Interrupt { session, run, item }
    }

    /// Answers a pending item. `None` if the protocol cannot express the decision.
    pub async fn answer(self, gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
        let item = &interrupt.item;
        Some(match self {
            Self::AgentApi => {
                let body =
                    json!({ "session_id": interrupt.session, "stream": false, "input": [native(item, decision)] });
                gateway.post("/agents/demo/process", &body).await
            }
            Self::Responses => {
                let previous = format!("resp_{}", interrupt.id().replace('-', ""));
                let input = match decision {
                    Decision::Edit => return None,
                    Decision::Accept => {
                        json!({ "type": "mcp_approval_response", "approval_request_id": item, "approve": true })
                    }
                    Decision::Reject => {
                        json!({ "type": "mcp_approval_response", "approval_request_id": item, "approve": false })
                    }
                    // Responses has a reason for a rejection only, no text as the result.
                    Decision::Respond => return None,
                    Decision::Output => output(item, "Paris"),
                    Decision::Value => output(item, r#"{"colour":"blue"}"#),
                    Decision::Words => output(item, "blue"),
                    Decision::Done => output(item, "done"),
                };
                let body = json!({ "model": "demo", "previous_response_id": previous, "input": [input] });
                gateway.post("/v1/responses", &body).await
            }
            Self::A2a => {
                let part = match decision {
                    Decision::Output => json!({ "function_call_output": { "call_id": item, "output": "Paris" } }),
                    Decision::Words => json!({ "interrupt_id": item, "decision": "respond", "text": "blue" }),
                    Decision::Value => json!({ "interrupt_id": item, "colour": "blue" }),
                    _ => {
                        let mut part = decision_fields(decision);
                        part["interrupt_id"] = item.as_str().into();
                        part
                    }
                };
                message(gateway, &interrupt.session, None, json!({ "data": part })).await
            }
            Self::AgKit => {
                let mut body = json!({ "conversationId": interrupt.session });
                match decision {
                    Decision::Output => {
                        body["messages"] = json!([{ "role": "tool", "toolCallId": item, "content": "Paris" }]);
                    }
                    Decision::Words => body["resume"] = json!({ "interruptId": item, "payload": "blue" }),
                    _ => body["resume"] = json!({ "interruptId": item, "payload": decision_fields(decision) }),
                }
                gateway.post("/kit/demo/send-message", &body).await
            }
            Self::Hitl => {
                let (response_type, args) = match decision {
                    Decision::Accept | Decision::Done => ("accept", Value::Null),
                    Decision::Edit => ("edit", json!({ "args": { "to": "grace@example.com" } })),
                    Decision::Respond => ("response", json!({ "args": "later" })),
                    Decision::Reject => ("reject", Value::Null),
                    Decision::Output => ("response", json!({ "args": "Paris" })),
                    Decision::Value => ("response", json!({ "args": { "colour": "blue" } })),
                    Decision::Words => ("response", json!({ "args": "blue" })),
                };
                let body = json!({
                    "user_id": "pat", "session_id": interrupt.session, "response_type": response_type, "args": args,
                });
                gateway.post("/hitl/demo/agent/resume", &body).await
            }
        })
    }

    /// Starts a long run. Where the protocol has no background runs, the open connection is returned.
    pub async fn start_long(self, gateway: &Gateway, session: &str) -> (Interrupt, Option<Exchange>) {
        const LONG: &str = "long 5000 20";
        let mut session = session.to_owned();
        let mut open = None;
        match self {
            Self::AgentApi => {
                assert_ok(self, &gateway.post("/agents/demo/process/task", &user_turn_in(&session, LONG)).await);
            }
            Self::Responses => {
                let body = json!({ "model": "demo", "input": LONG, "background": true });
                let made = gateway.post("/v1/responses", &body).await;
                assert_ok(self, &made);
                let id = made.json()["id"].as_str().expect("an id").to_owned();
                session = gateway.run("demo", &id).await["session_id"].as_str().expect("a session").to_owned();
            }
            Self::A2a => {
                let message = json!({
                    "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [{ "text": LONG }],
                });
                let body = json!({ "message": message, "configuration": { "returnImmediately": true } });
                assert_ok(self, &a2a(gateway, "/message:send", &body).await.response().await);
            }
            Self::AgKit => {
                let body = json!({ "conversationId": session, "messages": [{ "role": "user", "content": LONG }] });
                open = Some(gateway.start_post("/kit/demo/send-message", &body).await);
            }
            Self::Hitl => {
                let body = json!({ "user_id": "pat", "session_id": session, "query": LONG });
                open = Some(gateway.start_post("/hitl/demo/agent/invoke", &body).await);
            }
        }
        let run = latest(gateway, &session).await["id"].as_str().expect("an id").to_owned();
        (Interrupt { session, run, item: String::new() }, open)
    }

    /// The state of a run in the terms of the protocol. `None` if the protocol cannot read runs.
    pub async fn status(self, gateway: &Gateway, interrupt: &Interrupt) -> Option<String> {
        let answer = match self {
            Self::AgentApi => gateway.get(&format!("/agents/demo/runs/{}", interrupt.id())).await,
            Self::Responses => gateway.get(&format!("/v1/responses/{}", interrupt.run)).await,
            Self::A2a => task(gateway, &interrupt.run).await,
            Self::AgKit => return None,
            Self::Hitl => gateway.get(&format!("/hitl/demo/agent/status/pat/{}", interrupt.session)).await,
        };
        assert_ok(self, &answer);

        let answer = answer.json();
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
            Self::AgKit | Self::Hitl => return None,
        })
    }

    /// Cancels a run, also one that waits for input. `None` if the protocol cannot.
    pub async fn cancel(self, gateway: &Gateway, interrupt: &Interrupt) -> Option<Response> {
        Some(match self {
            Self::AgentApi => gateway.post(&format!("/agents/demo/runs/{}/cancel", interrupt.id()), &json!({})).await,
            Self::Responses => gateway.post(&format!("/v1/responses/{}/cancel", interrupt.run), &json!({})).await,
            Self::A2a => a2a(gateway, &format!("/tasks/{}:cancel", interrupt.run), &json!({})).await.response().await,
            Self::AgKit => return None,
            Self::Hitl => {
                let path = format!("/hitl/demo/agent/session/pat/{}", interrupt.session);
                gateway.open("DELETE", &path, &[], b"").await.response().await
            }
        })
    }
}

/// A decision in the JSON shape that most protocols use.
fn decision_fields(decision: Decision) -> Value {
    match decision {
        Decision::Accept | Decision::Done => json!({ "decision": "accept" }),
        Decision::Edit => json!({ "decision": "edit", "args": { "to": "grace@example.com" } }),
        Decision::Respond => json!({ "decision": "respond", "text": "later" }),
        Decision::Reject => json!({ "decision": "reject" }),
        Decision::Output | Decision::Words => panic!("no decision"),
        Decision::Value => json!({ "colour": "blue" }),
    }
}

/// A function call output of the Responses API.
fn output(item: &str, output: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": item, "output": output })
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
