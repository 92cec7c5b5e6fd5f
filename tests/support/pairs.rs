//! The five protocols that are served, each with a small driver: ask, answer, look at, follow and stop a run, as its own
//! clients do. What a protocol has no form for, its driver says by answering nothing.
//!
//! Not here: what has to come of it (`tests/behaviour/pairs.rs`).

#![allow(dead_code, unreachable_pub, reason = "every test uses another part of it")]

use serde_json::{Value, json};

use super::gateway::{Gateway, says_in};
use super::http::{Answer, Exchange};
use super::until;

/// Routes of every protocol for one agent, `demo`.
pub const ROUTES: &str = "[[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{agent}\"\n\
                          [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n\
                          [[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n\
                          [[routes]]\nprotocol = \"ag-kit\"\npath = \"/kit/{agent}\"\n\
                          [[routes]]\nprotocol = \"hitl\"\npath = \"/hitl/{agent}\"\n";

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    AgentApi,
    Responses,
    A2a,
    AgKit,
    Hitl,
}

pub const ALL: [Over; 5] = [Over::AgentApi, Over::Responses, Over::A2a, Over::AgKit, Over::Hitl];

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    Accept,
    Edit,
    Respond,
    Reject,
    /// The output of a client's tool.
    Output,
    /// An answer to a question with a schema, as the value it asks for.
    Value,
    /// The same as a person types it.
    Words,
    /// The login is done.
    Done,
}

pub const EVERY: [Says; 8] =
    [Says::Accept, Says::Edit, Says::Respond, Says::Reject, Says::Output, Says::Value, Says::Words, Says::Done];

impl Says {
    /// The word that makes the demo agent ask so.
    pub const fn asked_by(self) -> &'static str {
        match self {
            Self::Accept | Self::Edit | Self::Respond | Self::Reject => "approval",
            Self::Output => "client tool",
            Self::Value | Self::Words => "question",
            Self::Done => "login",
        }
    }

    /// What the demo agent says to it.
    pub const fn heard(self) -> &'static str {
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

/// Something that was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The session.
    pub session: String,
    /// The run that asked, as native clients have it.
    pub run: String,
    /// The item that is open.
    pub item: String,
}

impl Asked {
    /// The run's id without any prefix.
    pub fn id(&self) -> &str {
        self.run.trim_start_matches("response_")
    }
}

const V1: (&str, &str) = ("a2a-version", "1.0");
const JSON: (&str, &str) = ("content-type", "application/json");

async fn a2a(gateway: &Gateway, path: &str, body: &Value) -> Exchange {
    gateway.open("POST", &format!("/a2a/demo{path}"), &[V1, JSON], body.to_string().as_bytes()).await
}

/// A task, as it is found over A2A.
pub async fn task(gateway: &Gateway, id: &str) -> Answer {
    gateway.open("GET", &format!("/a2a/demo/tasks/{id}"), &[V1], b"").await.answer().await
}

/// Follows a task over A2A.
pub async fn subscribe(gateway: &Gateway, id: &str) -> Exchange {
    a2a(gateway, &format!("/tasks/{id}:subscribe"), &json!({})).await
}

/// A message over A2A, with or without a task.
pub async fn message(gateway: &Gateway, session: &str, task: Option<&str>, part: Value) -> Answer {
    let mut message = json!({ "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [part] });
    if let Some(task) = task {
        message["taskId"] = task.into();
    }
    a2a(gateway, "/message:send", &json!({ "message": message })).await.answer().await
}

/// The frames of an event stream that are JSON.
pub fn frames(text: &str) -> Vec<Value> {
    let data = text.split("\n").filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

/// The ids of a session's runs.
pub async fn runs(gateway: &Gateway, session: &str) -> Vec<String> {
    let listed = gateway.get(&format!("/agents/demo/runs?session_id={session}")).await.json();
    let runs = listed["data"].as_array().expect("a list");
    runs.iter().map(|run| run["id"].as_str().expect("an id").to_owned()).collect()
}

/// The latest run of a session, as native clients see it.
pub async fn latest(gateway: &Gateway, session: &str) -> Value {
    until("a run in the session", async || {
        let runs = gateway.get(&format!("/agents/demo/runs?session_id={session}")).await.json();
        runs["data"].as_array()?.first().cloned()
    })
    .await
}

fn good(over: Over, answer: &Answer) {
    assert_eq!(answer.status, 200, "{over:?}: {}", answer.text());
}

impl Over {
    /// Says a word to the demo agent, and waits for its answer.
    pub async fn ask(self, gateway: &Gateway, session: &str, word: &str) -> Asked {
        let mut session = session.to_owned();
        match self {
            Self::AgentApi => {
                let mut body = says_in(&session, word);
                body["stream"] = false.into();
                good(self, &gateway.post("/agents/demo/process", &body).await);
            }
            Self::Responses => {
                let made = gateway.post("/v1/responses", &json!({ "model": "demo", "input": word })).await;
                good(self, &made);
                let id = made.json()["id"].as_str().expect("an id").to_owned();
                session = gateway.run("demo", &id).await["session_id"].as_str().expect("a session").to_owned();
            }
            Self::A2a => good(self, &message(gateway, &session, None, json!({ "text": word })).await),
            Self::AgKit => {
                let body = json!({ "conversationId": session, "messages": [{ "role": "user", "content": word }] });
                good(self, &gateway.post("/kit/demo/send-message", &body).await);
            }
            Self::Hitl => {
                let body = json!({ "user_id": "pat", "session_id": session, "query": word });
                good(self, &gateway.post("/hitl/demo/agent/invoke", &body).await);
            }
        }
        let run = latest(gateway, &session).await["id"].as_str().expect("an id").to_owned();
        let whole = gateway.run("demo", &run).await;
        let data = &whole["output"].as_array().and_then(|output| output.last()).expect("it asks")["content"][0]["data"];
        let item = data["id"].as_str().or(data["call_id"].as_str()).expect("an item").to_owned();
        Asked { session, run, item }
    }

    /// Answers what was asked, over whatever protocol. None: there is no form for that.
    pub async fn answer(self, gateway: &Gateway, asked: &Asked, says: Says) -> Option<Answer> {
        let item = &asked.item;
        Some(match self {
            Self::AgentApi => {
                let body = json!({ "session_id": asked.session, "stream": false, "input": [native(item, says)] });
                gateway.post("/agents/demo/process", &body).await
            }
            Self::Responses => {
                let previous = format!("resp_{}", asked.id().replace('-', ""));
                let input = match says {
                    Says::Edit => return None,
                    Says::Accept => {
                        json!({ "type": "mcp_approval_response", "approval_request_id": item, "approve": true })
                    }
                    Says::Reject => {
                        json!({ "type": "mcp_approval_response", "approval_request_id": item, "approve": false })
                    }
                    // A rejection's reason is all there is.
                    Says::Respond => return None,
                    Says::Output => output(item, "Paris"),
                    Says::Value => output(item, r#"{"colour":"blue"}"#),
                    Says::Words => output(item, "blue"),
                    Says::Done => output(item, "done"),
                };
                let body = json!({ "model": "demo", "previous_response_id": previous, "input": [input] });
                gateway.post("/v1/responses", &body).await
            }
            Self::A2a => {
                let part = match says {
                    Says::Output => json!({ "function_call_output": { "call_id": item, "output": "Paris" } }),
                    Says::Words => json!({ "interrupt_id": item, "decision": "respond", "text": "blue" }),
                    Says::Value => json!({ "interrupt_id": item, "colour": "blue" }),
                    _ => {
                        let mut part = decision(says);
                        part["interrupt_id"] = item.as_str().into();
                        part
                    }
                };
                message(gateway, &asked.session, None, json!({ "data": part })).await
            }
            Self::AgKit => {
                let mut body = json!({ "conversationId": asked.session });
                match says {
                    Says::Output => {
                        body["messages"] = json!([{ "role": "tool", "toolCallId": item, "content": "Paris" }]);
                    }
                    Says::Words => body["resume"] = json!({ "interruptId": item, "payload": "blue" }),
                    _ => body["resume"] = json!({ "interruptId": item, "payload": decision(says) }),
                }
                gateway.post("/kit/demo/send-message", &body).await
            }
            Self::Hitl => {
                let (word, args) = match says {
                    Says::Accept | Says::Done => ("accept", Value::Null),
                    Says::Edit => ("edit", json!({ "args": { "to": "grace@example.com" } })),
                    Says::Respond => ("response", json!({ "args": "later" })),
                    Says::Reject => ("reject", Value::Null),
                    Says::Output => ("response", json!({ "args": "Paris" })),
                    Says::Value => ("response", json!({ "args": { "colour": "blue" } })),
                    Says::Words => ("response", json!({ "args": "blue" })),
                };
                let body = json!({
                    "user_id": "pat", "session_id": asked.session, "response_type": word, "args": args,
                });
                gateway.post("/hitl/demo/agent/resume", &body).await
            }
        })
    }

    /// Makes the agent work for long, in a way that does not end with this client's patience.
    pub async fn begin(self, gateway: &Gateway, session: &str) -> (Asked, Option<Exchange>) {
        const LONG: &str = "long 5000 20";
        let mut session = session.to_owned();
        let mut open = None;
        match self {
            Self::AgentApi => {
                good(self, &gateway.post("/agents/demo/process/task", &says_in(&session, LONG)).await);
            }
            Self::Responses => {
                let body = json!({ "model": "demo", "input": LONG, "background": true });
                let made = gateway.post("/v1/responses", &body).await;
                good(self, &made);
                let id = made.json()["id"].as_str().expect("an id").to_owned();
                session = gateway.run("demo", &id).await["session_id"].as_str().expect("a session").to_owned();
            }
            Self::A2a => {
                let message = json!({
                    "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [{ "text": LONG }],
                });
                let body = json!({ "message": message, "configuration": { "returnImmediately": true } });
                good(self, &a2a(gateway, "/message:send", &body).await.answer().await);
            }
            Self::AgKit => {
                let body = json!({ "conversationId": session, "messages": [{ "role": "user", "content": LONG }] });
                open = Some(gateway.posting("/kit/demo/send-message", &body).await);
            }
            Self::Hitl => {
                let body = json!({ "user_id": "pat", "session_id": session, "query": LONG });
                open = Some(gateway.posting("/hitl/demo/agent/invoke", &body).await);
            }
        }
        let run = latest(gateway, &session).await["id"].as_str().expect("an id").to_owned();
        (Asked { session, run, item: String::new() }, open)
    }

    /// Looks at a run: its state in the protocol's own word. None: the protocol has no way to look at runs.
    pub async fn look(self, gateway: &Gateway, asked: &Asked) -> Option<String> {
        let answer = match self {
            Self::AgentApi => gateway.get(&format!("/agents/demo/runs/{}", asked.id())).await,
            Self::Responses => gateway.get(&format!("/v1/responses/{}", asked.run)).await,
            Self::A2a => task(gateway, &asked.run).await,
            Self::AgKit => return None,
            Self::Hitl => gateway.get(&format!("/hitl/demo/agent/status/pat/{}", asked.session)).await,
        };
        good(self, &answer);
        let answer = answer.json();
        let state = if self == Self::A2a { &answer["status"]["state"] } else { &answer["status"] };
        Some(state.as_str().expect("a state").trim_start_matches("TASK_STATE_").to_lowercase())
    }

    /// Follows a run. None: the protocol has no way to.
    pub async fn follow(self, gateway: &Gateway, asked: &Asked) -> Option<Exchange> {
        let id = asked.id().replace('-', "");
        Some(match self {
            Self::AgentApi => gateway.open("GET", &format!("/agents/demo/runs/{id}/events"), &[], b"").await,
            Self::Responses => gateway.open("GET", &format!("/v1/responses/{id}?stream=true"), &[], b"").await,
            Self::A2a => subscribe(gateway, &id).await,
            Self::AgKit | Self::Hitl => return None,
        })
    }

    /// Stops a run, or lets go of one that asks. None: the protocol has no way to.
    pub async fn cancel(self, gateway: &Gateway, asked: &Asked) -> Option<Answer> {
        Some(match self {
            Self::AgentApi => gateway.post(&format!("/agents/demo/runs/{}/cancel", asked.id()), &json!({})).await,
            Self::Responses => gateway.post(&format!("/v1/responses/{}/cancel", asked.run), &json!({})).await,
            Self::A2a => a2a(gateway, &format!("/tasks/{}:cancel", asked.run), &json!({})).await.answer().await,
            Self::AgKit => return None,
            Self::Hitl => {
                let path = format!("/hitl/demo/agent/session/pat/{}", asked.session);
                gateway.open("DELETE", &path, &[], b"").await.answer().await
            }
        })
    }
}

/// A decision in the shapes that most protocols take.
fn decision(says: Says) -> Value {
    match says {
        Says::Accept | Says::Done => json!({ "decision": "accept" }),
        Says::Edit => json!({ "decision": "edit", "args": { "to": "grace@example.com" } }),
        Says::Respond => json!({ "decision": "respond", "text": "later" }),
        Says::Reject => json!({ "decision": "reject" }),
        Says::Output | Says::Words => panic!("no decision"),
        Says::Value => json!({ "colour": "blue" }),
    }
}

/// An item of the Responses API.
fn output(item: &str, output: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": item, "output": output })
}

/// A message of the native protocol.
pub fn native(item: &str, says: Says) -> Value {
    let (kind, role, data) = match says {
        Says::Output => ("function_call_output", "tool", json!({ "call_id": item, "output": "Paris" })),
        _ => {
            let interrupt = match says {
                Says::Accept | Says::Done => json!({ "decision": "accept" }),
                Says::Edit => json!({ "decision": "edit", "arguments": "{\"to\":\"grace@example.com\"}" }),
                Says::Respond => json!({ "decision": "respond", "text": "later" }),
                Says::Reject => json!({ "decision": "reject" }),
                Says::Value => json!({ "decision": "respond", "payload": { "colour": "blue" } }),
                Says::Words => json!({ "decision": "respond", "text": "blue" }),
                Says::Output => Value::Null,
            };
            let approve = !matches!(says, Says::Reject | Says::Respond);
            let data = json!({ "approval_request_id": item, "id": item, "approve": approve, "interrupt": interrupt });
            ("mcp_approval_response", "user", data)
        }
    };
    json!({ "type": kind, "role": role, "content": [{ "type": "data", "data": data }] })
}
