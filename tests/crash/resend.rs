//! Clients that send their whole conversation with each request, after `kill -9`: the conversation continues in its
//! session, open items can be answered, no turn is executed twice, and a client whose stream was cut gets a whole
//! answer.
//!
//! Not here: the session that such a client continues (`tests/behaviour/resent.rs`).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::support::agent::{approval_request, client_call, paced_reply, text_reply};
use super::support::cluster::GatewayProcess;
use super::support::endings::{Ending, TRUNCATED};
use super::support::gateway::agent;
use super::support::http::{Exchange, Response};
use super::support::pairs::{Protocol, ROUTES, Turn, ending, frames, resending, text_of};
use super::support::upstream::{ReceivedRequest, Reply, Upstream};
use super::{restart, start};

/// A conversation as a client has it.
struct Client {
    protocol: Protocol,
    messages: Vec<Value>,
    turns: usize,
    /// The answer in AG-UI's own field.
    resume: Value,
}

impl Client {
    fn new(protocol: Protocol) -> Self {
        Self { protocol, messages: Vec::new(), turns: 0, resume: Value::Null }
    }

    fn session(&self) -> String {
        format!("conversation-{}", self.protocol.name())
    }

    fn user(&mut self, text: &str) {
        let id = format!("user-{}", self.messages.len());
        let mut message = json!({ "role": "user", "content": text });
        if self.protocol == Protocol::AgUi {
            message["id"] = id.into();
        }
        self.messages.push(message);
    }

    fn output(&mut self, call: &str, output: &str) {
        self.messages.push(match self.protocol {
            Protocol::ChatCompletions => json!({ "role": "tool", "tool_call_id": call, "content": output }),
            Protocol::AnthropicMessages => {
                let result = json!({ "type": "tool_result", "tool_use_id": call, "content": output });
                json!({ "role": "user", "content": [result] })
            }
            _ => json!({ "id": format!("output-{call}"), "role": "tool", "toolCallId": call, "content": output }),
        });
    }

    /// The request with all that it has.
    fn request(&mut self, streamed: bool) -> Turn {
        self.turns += 1;
        let schema = json!({ "type": "object" });
        let mut further = json!({ "tools": [match self.protocol {
            Protocol::ChatCompletions => json!({ "type": "function", "function": { "name": "look", "parameters": schema } }),
            Protocol::AnthropicMessages => json!({ "name": "look", "input_schema": schema }),
            _ => json!({ "name": "look", "description": "looks", "parameters": schema }),
        }] });
        if !self.resume.is_null() {
            further["resume"] = self.resume.clone();
        }
        let run = format!("run-{}", self.turns);
        self.protocol.resend(&self.session(), &run, &json!(self.messages), &further, streamed)
    }

    async fn send(&mut self, gateway: &GatewayProcess) -> Response {
        let turn = self.request(false);
        Exchange::send(gateway.address, &turn.bytes()).await.response().await
    }

    /// Sends all, and takes the answer into the conversation. Returns its text.
    async fn ask(&mut self, gateway: &GatewayProcess) -> String {
        let answer = self.send(gateway).await;
        assert_eq!(answer.status, 200, "{:?}: {}", self.protocol, answer.text());
        self.resume = Value::Null;
        let before = self.messages.len();
        self.take(&answer);
        assert!(self.messages.len() > before || self.protocol == Protocol::AgUi, "{}", answer.text());
        answer.text().to_owned()
    }

    async fn say(&mut self, gateway: &GatewayProcess, text: &str) -> String {
        self.user(text);
        self.ask(gateway).await
    }

    fn take(&mut self, answer: &Response) {
        match self.protocol {
            Protocol::ChatCompletions => self.messages.push(answer.json()["choices"][0]["message"].clone()),
            Protocol::AnthropicMessages => {
                self.messages.push(json!({ "role": "assistant", "content": answer.json()["content"] }));
            }
            _ => self.take_events(&frames(answer.text())),
        }
    }

    /// The messages that a front end makes of events.
    fn take_events(&mut self, events: &[Value]) {
        for event in events {
            let joined = |id: &str| -> String {
                let own = events.iter().filter(|other| other[id] == event[id]);
                own.filter_map(|other| other["delta"].as_str()).collect()
            };
            match event["type"].as_str().expect("a type") {
                "TEXT_MESSAGE_START" => self.messages.push(json!({
                    "id": event["messageId"], "role": "assistant", "content": joined("messageId"),
                })),
                "TOOL_CALL_START" => {
                    let function = json!({ "name": event["toolCallName"], "arguments": joined("toolCallId") });
                    let call = json!({ "id": event["toolCallId"], "type": "function", "function": function });
                    let id = format!("calls-{}", event["toolCallId"].as_str().expect("an id"));
                    self.messages.push(json!({ "id": id, "role": "assistant", "toolCalls": [call] }));
                }
                "RUN_FINISHED" => {
                    let asked = &event["outcome"]["interrupts"][0]["id"];
                    if let Some(id) = asked.as_str() {
                        let payload = json!({ "decision": "accept" });
                        self.resume = json!([{ "interruptId": id, "status": "resolved", "payload": payload }]);
                    }
                }
                _ => {}
            }
        }
    }

    /// Approves the last question, in words where the protocol has no other form.
    fn approve(&mut self) {
        if self.protocol == Protocol::AgUi {
            assert!(!self.resume.is_null(), "an interrupt was shown: {:?}", self.messages);
        } else {
            self.user("approve");
        }
    }

    /// Begins a stream, waits for a part of it, and restarts the gateway.
    async fn is_cut_off(&mut self, gateway: &mut GatewayProcess, part: &str) {
        let turn = self.request(true);
        let mut stream = Exchange::send(gateway.address, &turn.bytes()).await;
        stream.read_until(part).await;
        restart(gateway);
    }
}

/// The texts of an input, in order.
fn texts(input: &Value) -> Vec<String> {
    let messages = input.as_array().expect("an input");
    let text = |message: &Value| message["content"][0]["text"].as_str().map(str::to_owned);
    messages.iter().filter_map(text).collect()
}

/// An agent that is not stopped with the gateway. It calls `look`, asks before it sends, and else says what it got
/// last, slowly. `executed`: the approvals that it got.
fn scripted(executed: &Arc<Mutex<Vec<String>>>) -> Upstream {
    let executed = Arc::clone(executed);
    Upstream::with_handler(move |request| {
        let input = request.json()["input"].clone();
        let last = input.as_array().and_then(|input| input.last()).cloned().unwrap_or_default();
        let data = &last["content"][0]["data"];
        match last["type"].as_str() {
            Some("mcp_approval_response") => {
                executed.lock().expect("no test panics").push(data["approval_request_id"].to_string());
                return slowly("sent");
            }
            Some("function_call_output") => {
                return text_reply(&["it is ", data["output"].as_str().unwrap_or("nothing")]);
            }
            _ => {}
        }
        match texts(&json!([last])).pop().unwrap_or_default().as_str() {
            "look" => client_call("call_look", "look", "{\"at\":\"sea\"}"),
            "send" => approval_request("ask_send"),
            text => slowly(text),
        }
    })
}

/// Twenty pieces in 200 milliseconds.
fn slowly(text: &str) -> Reply {
    let words: Vec<String> = (1..=20).map(|number| format!("{text}:{number} ")).collect();
    paced_reply(&words, Duration::from_millis(10))
}

/// Starts a gateway. The agent remembers nothing, or everything.
fn gateway(upstream: &Upstream, history: &str) -> GatewayProcess {
    let settings = "retries = 0\napproval_extension = true";
    let agent = agent("demo", &upstream.url("/process"), &format!("history = \"{history}\""), settings);
    start(&format!("{agent}{ROUTES}"))
}

fn last(upstream: &Upstream) -> Value {
    upstream.requests().last().map(ReceivedRequest::json).expect("the agent was asked")
}

#[tokio::test]
async fn a_conversation_continues_in_its_session() {
    for history in ["gateway", "upstream"] {
        for protocol in resending() {
            let upstream = scripted(&Arc::default());
            let mut gateway = gateway(&upstream, history);
            let mut client = Client::new(protocol);
            client.say(&gateway, "one").await;
            client.say(&gateway, "two").await;
            let before = last(&upstream);

            restart(&mut gateway);
            client.say(&gateway, "three").await;
            restart(&mut gateway);
            client.say(&gateway, "four").await;
            let after = last(&upstream);
            let what = format!("{protocol:?} {history}: {after}");
            assert_eq!(before["session_id"], after["session_id"], "{what}");
            let mut said = texts(&after["input"]);
            said.retain(|text| !text.contains(':'));
            let expected: &[&str] = if history == "gateway" { &["one", "two", "three", "four"] } else { &["four"] };
            assert_eq!(said, expected, "{what}");
        }
    }
}

#[tokio::test]
async fn an_open_call_of_the_clients_tool_can_be_answered_once() {
    for history in ["gateway", "upstream"] {
        for protocol in resending() {
            let upstream = scripted(&Arc::default());
            let mut gateway = gateway(&upstream, history);
            let mut client = Client::new(protocol);
            client.say(&gateway, "hello").await;
            let called = client.say(&gateway, "look").await;
            assert!(called.contains("call_look"), "{protocol:?}: {called}");
            let session = last(&upstream)["session_id"].clone();

            restart(&mut gateway);
            client.output("call_look", "blue");
            let answer = client.send(&gateway).await;
            assert!(answer.status == 200 && answer.text().contains("blue"), "{protocol:?}: {}", answer.text());
            assert_eq!(last(&upstream)["session_id"], session, "{protocol:?} {history}");
            let outputs = |requests: Vec<ReceivedRequest>| {
                let requests = requests.iter().map(ReceivedRequest::json);
                let of_session = requests.filter(|body| body["session_id"] == session);
                let ends = of_session.filter(|body| {
                    let input = body["input"].as_array().expect("an input");
                    input.last().is_some_and(|last| last["type"] == "function_call_output")
                });
                ends.count()
            };
            assert_eq!(outputs(upstream.requests()), 1, "{protocol:?} {history}");

            // Repeated after another crash, it is no answer in that session.
            restart(&mut gateway);
            client.send(&gateway).await;
            assert_eq!(outputs(upstream.requests()), 1, "{protocol:?} {history}");
        }
    }
}

#[tokio::test]
async fn an_open_approval_can_be_given_and_is_executed_once() {
    for protocol in resending() {
        let executed = Arc::default();
        let upstream = scripted(&executed);
        let mut gateway = gateway(&upstream, "upstream");
        let mut client = Client::new(protocol);
        client.say(&gateway, "send").await;

        restart(&mut gateway);
        client.approve();
        let resume = client.resume.clone();
        let answer = client.send(&gateway).await;
        assert!(answer.status == 200 && answer.text().contains("sent:20"), "{protocol:?}: {}", answer.text());

        // The answer is repeated by a client that did not get it, before and after another crash.
        client.resume = resume;
        client.send(&gateway).await;
        restart(&mut gateway);
        client.send(&gateway).await;
        assert_eq!(executed.lock().expect("no test panics").len(), 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn an_approval_whose_execution_is_cut_off_is_not_executed_again() {
    for protocol in resending() {
        let executed = Arc::default();
        let upstream = scripted(&executed);
        let mut gateway = gateway(&upstream, "upstream");
        let mut client = Client::new(protocol);
        client.say(&gateway, "send").await;
        client.approve();
        let resume = client.resume.clone();
        client.is_cut_off(&mut gateway, "sent:3").await;
        assert_eq!(executed.lock().expect("no test panics").len(), 1, "{protocol:?}");

        client.resume = resume;
        let again = client.send(&gateway).await;
        assert_eq!(executed.lock().expect("no test panics").len(), 1, "{protocol:?}: {}", again.text());
        assert!(again.status == 200 || again.json()["error"].is_object(), "{protocol:?}: {}", again.text());
    }
}

#[tokio::test]
async fn a_client_that_was_cut_off_gets_a_complete_answer() {
    for history in ["gateway", "upstream"] {
        for protocol in resending() {
            let upstream = scripted(&Arc::default());
            let mut gateway = gateway(&upstream, history);
            let mut client = Client::new(protocol);
            client.say(&gateway, "one").await;
            client.user("two");
            client.is_cut_off(&mut gateway, "two:3").await;

            let turn = client.request(true);
            let answer = Exchange::send(gateway.address, &turn.bytes()).await.response().await;
            assert_eq!(ending(protocol, &answer, &TRUNCATED), Ending::Completed, "{protocol:?}: {}", answer.text());
            let text = text_of(protocol, &answer);
            assert!(text.starts_with("two:1 ") && text.trim_end().ends_with("two:20"), "{protocol:?}: {text}");

            // It continues with the received answer, once.
            let whole = json!({ "role": "assistant", "content": text });
            if protocol == Protocol::AgUi {
                client.take_events(&frames(answer.text()));
            } else {
                client.messages.push(whole);
            }
            restart(&mut gateway);
            let session = last(&upstream)["session_id"].clone();
            client.say(&gateway, "three").await;
            let after = last(&upstream);
            assert_eq!(after["session_id"], session, "{protocol:?} {history}: it goes on where it was answered");
            let mut said = texts(&after["input"]);
            said.retain(|text| !text.contains(':'));
            let expected: &[&str] = if history == "gateway" { &["one", "two", "three"] } else { &["three"] };
            assert_eq!(said, expected, "{protocol:?} {history}: {after}");
        }
    }
}
