//! A scripted agent: its card, its items in the words of each dialect, and a turn driven against it.

use std::fmt::Write as _;

use interlingua_a2a::A2aUpstream;
use interlingua_core::answer::CheckedDecision;
use interlingua_core::connector::{AgentTurn, Connector, HttpRequest, TurnRequest, UpstreamAdapter};
use interlingua_core::model::{AgentRequest, Input, Message};
use interlingua_core::pending::{Decision, Pending};
use interlingua_core::{Fault, FaultKind, Json};
use interlingua_core_testkit::{self as testkit, Answer, DrivenTurn};
use serde_json::{Value, json};

pub(crate) const URL: &str = "https://agent.example/weather";

/// A way in which an agent speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub(crate) version: &'static str,
    pub(crate) binding: &'static str,
}

pub(crate) const V1: Dialect = Dialect { version: "1.0", binding: "JSONRPC" };
pub(crate) const V1_REST: Dialect = Dialect { version: "1.0", binding: "HTTP+JSON" };
pub(crate) const V03: Dialect = Dialect { version: "0.3", binding: "JSONRPC" };
pub(crate) const V03_REST: Dialect = Dialect { version: "0.3", binding: "HTTP+JSON" };
pub(crate) const ALL: [Dialect; 4] = [V1, V1_REST, V03, V03_REST];

impl Dialect {
    pub(crate) fn card(self, streaming: bool) -> Answer {
        let card = if self.version == "1.0" {
            json!({
                "name": "weather",
                "supportedInterfaces": [{ "url": URL, "protocolBinding": self.binding, "protocolVersion": "1.0" }],
                "capabilities": { "streaming": streaming }
            })
        } else {
            json!({
                "name": "weather", "url": URL, "protocolVersion": "0.3.0", "preferredTransport": self.binding,
                "capabilities": { "streaming": streaming }
            })
        };
        body(&card)
    }

    /// An item of 1.0 in the words of this dialect. Its messages have parts of text and data only.
    pub(crate) fn item(self, item: &Value) -> Value {
        if self.version == "1.0" {
            return item.clone();
        }
        let mut item = item.clone();
        older(&mut item, self.binding == "JSONRPC");
        if self.binding != "JSONRPC" {
            return item;
        }
        let (name, inner) = item.as_object().and_then(|item| item.iter().next()).expect("one member");
        let kind = match name.as_str() {
            "statusUpdate" => "status-update",
            "artifactUpdate" => "artifact-update",
            name => name,
        };
        let mut bare = inner.clone();
        bare["kind"] = json!(kind);
        if kind == "status-update" {
            bare["final"] = json!(!matches!(bare["status"]["state"].as_str(), Some("working" | "submitted")));
        }
        bare
    }

    /// The answer to the call of this number.
    pub(crate) fn result(self, call: u64, item: &Value) -> Value {
        let item = self.item(item);
        if self.binding == "JSONRPC" { json!({ "jsonrpc": "2.0", "id": call, "result": item }) } else { item }
    }

    pub(crate) fn frames(self, call: u64, items: &[Value]) -> String {
        items.iter().map(|item| format!("data: {}\n\n", self.result(call, item))).collect()
    }

    pub(crate) fn stream(self, call: u64, items: &[Value]) -> Answer {
        Answer::stream(&self.frames(call, items))
    }

    /// A stream that breaks off.
    pub(crate) fn cut(self, call: u64, items: &[Value]) -> Answer {
        Answer::Cut(vec![self.frames(call, items).into_bytes()])
    }

    /// The answer to a sent message.
    pub(crate) fn body(self, call: u64, item: &Value) -> Answer {
        body(&self.result(call, item))
    }

    /// A task as it is got: bare.
    pub(crate) fn task(self, call: u64, task: &Value) -> Answer {
        if self.version == "0.3" {
            let mut item = self.item(&json!({ "task": task }));
            let task = if self.binding == "JSONRPC" { item } else { item["task"].take() };
            return body(&if self.binding == "JSONRPC" {
                json!({ "jsonrpc": "2.0", "id": call, "result": task })
            } else {
                task
            });
        }
        body(&if self.binding == "JSONRPC" {
            json!({ "jsonrpc": "2.0", "id": call, "result": task })
        } else {
            task.clone()
        })
    }

    /// An error, as a body.
    pub(crate) fn error(self, call: u64, code: i32, message: &str) -> Answer {
        if self.binding == "JSONRPC" {
            return body(&json!({ "jsonrpc": "2.0", "id": call, "error": { "code": code, "message": message } }));
        }
        panic!("over REST errors are refusals")
    }
}

/// The older words for states, roles and parts.
fn older(value: &mut Value, is_rpc: bool) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| older(value, is_rpc)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| older(value, is_rpc));
            if let Some(Value::String(word)) = fields.get("state").filter(|_| is_rpc) {
                let word = word.trim_start_matches("TASK_STATE_").to_ascii_lowercase().replace('_', "-");
                fields.insert("state".into(), word.into());
            }
            if let Some(Value::String(word)) = fields.get("role").filter(|_| is_rpc) {
                let word = word.trim_start_matches("ROLE_").to_ascii_lowercase();
                fields.insert("role".into(), word.into());
            }
            if fields.contains_key("messageId") && !is_rpc {
                let parts = fields.remove("parts").expect("parts");
                fields.insert("content".into(), parts);
            }
            for (name, wrapped) in [("parts", true), ("content", false)] {
                if let Some(Value::Array(parts)) = fields.get_mut(name) {
                    parts.iter_mut().for_each(|part| older_part(part, is_rpc));
                }
                let _ = wrapped;
            }
        }
        _ => {}
    }
}

fn older_part(part: &mut Value, is_rpc: bool) {
    if is_rpc {
        part["kind"] = json!(if part.get("text").is_some() { "text" } else { "data" });
    } else if let Some(data) = part.get("data").cloned() {
        part["data"] = json!({ "data": data });
    }
}

pub(crate) fn body(value: &Value) -> Answer {
    Answer::body(&value.to_string())
}

/// An answer with a status that is no success, as the gateway hands it on.
pub(crate) fn refusal(turn: &dyn AgentTurn, status: u16, body: &str) -> Answer {
    let refusal = interlingua_core::connector::Refusal { status, body: body.as_bytes(), retry_after: None };
    Answer::Fault(turn.map_refusal(&refusal))
}

pub(crate) fn status(state: &str) -> Value {
    json!({ "statusUpdate": { "taskId": "T", "contextId": "C", "status": { "state": format!("TASK_STATE_{state}") } } })
}

/// A status that status_with something.
pub(crate) fn status_with(state: &str, id: &str, parts: &Value) -> Value {
    let mut item = status(state);
    item["statusUpdate"]["status"]["message"] = message(id, parts);
    item
}

pub(crate) fn message(id: &str, parts: &Value) -> Value {
    json!({ "messageId": id, "taskId": "T", "contextId": "C", "role": "ROLE_AGENT", "parts": parts })
}

pub(crate) fn submitted() -> Value {
    json!({ "task": task("SUBMITTED", &json!([])) })
}

pub(crate) fn task(state: &str, artifacts: &Value) -> Value {
    let state = format!("TASK_STATE_{state}");
    let history = json!([{ "messageId": "run-1-0", "role": "ROLE_USER", "parts": [{ "text": "Paris?" }] }]);
    json!({ "id": "T", "contextId": "C", "status": { "state": state }, "artifacts": artifacts, "history": history })
}

pub(crate) fn artifact(id: &str, parts: &Value, append: bool, last_chunk: bool) -> Value {
    let artifact = json!({ "artifactId": id, "parts": parts });
    let mut update = json!({ "taskId": "T", "contextId": "C", "artifact": artifact });
    if append {
        update["append"] = json!(true);
    }
    if last_chunk {
        update["lastChunk"] = json!(true);
    }
    json!({ "artifactUpdate": update })
}

/// A piece of text for an artifact.
pub(crate) fn text(id: &str, text: &str, append: bool) -> Value {
    artifact(id, &json!([{ "text": text }]), append, false)
}

pub(crate) fn connector(options: &Value) -> Box<dyn Connector> {
    let options = serde_json::from_value(options.clone()).expect("options");
    A2aUpstream::connect(URL, options).expect("a connector")
}

/// The options that name a dialect, so that no card is read.
pub(crate) fn fixed(dialect: Dialect) -> Value {
    json!({ "version": dialect.version, "binding": dialect.binding })
}

pub(crate) fn request(input: impl Into<Input>) -> AgentRequest {
    AgentRequest {
        input: input.into(),
        id: Some("run-1".into()),
        session_id: Some("session-1".into()),
        user_id: Some("ann".into()),
        ..AgentRequest::default()
    }
}

/// A session with an agent: turn after turn, with what the connector keeps.
pub(crate) struct Session {
    pub(crate) connector: Box<dyn Connector>,
    pub(crate) state: Json,
}

impl Session {
    pub(crate) fn new(options: &Value) -> Self {
        Self { connector: connector(options), state: Json::null() }
    }

    pub(crate) fn turn(&self, request: &AgentRequest, answered: &[Pending]) -> Box<dyn AgentTurn> {
        let turn = TurnRequest::new(request, &self.state, answered);
        self.connector.turn(&turn).expect("a turn")
    }

    /// Drives a turn that approval_request this.
    pub(crate) fn send(
        &mut self,
        request: &AgentRequest,
        answered: &[Pending],
        answers: impl IntoIterator<Item = Answer>,
    ) -> DrivenTurn {
        let mut turn = self.turn(request, answered);
        let driven = testkit::drive(turn.as_mut(), answers);
        if let Some(state) = turn.session_state() {
            self.state = state;
        }
        driven
    }

    /// Says something.
    pub(crate) fn send_text(&mut self, text: &str, answers: impl IntoIterator<Item = Answer>) -> DrivenTurn {
        self.send(&request(vec![Message::user(text)]), &[], answers)
    }

    /// Decides about the only item that waits.
    pub(crate) fn decide(
        &mut self,
        waiting: &DrivenTurn,
        decided: &CheckedDecision,
        answers: impl IntoIterator<Item = Answer>,
    ) -> DrivenTurn {
        let items = waiting.record.run().pending();
        let [item] = items.as_slice() else { panic!("one item: {items:?}") };
        let input = vec![decided.message(item, true)];
        let answered = items.clone();
        self.send(&request(input), &answered, answers)
    }
}

pub(crate) fn decided(decision: Decision, text: Option<&str>) -> CheckedDecision {
    CheckedDecision { text: text.map(str::to_owned), ..CheckedDecision::new(decision) }
}

pub(crate) fn broken() -> Answer {
    Answer::Fault(Fault::new(FaultKind::UpstreamUnreachable, "the agent could not be reached"))
}

/// A request in lines that people can read.
pub(crate) fn request_text(request: &HttpRequest) -> String {
    let headers: Vec<String> = request.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let body = String::from_utf8_lossy(&request.body);
    format!("{} {}  [{}]\n{body}", request.method, request.url, headers.join("; "))
}

/// The requests, and the outcome of the answers.
pub(crate) fn transcript(driven: &DrivenTurn) -> String {
    let mut text = String::new();
    for request in &driven.requests {
        let _ = writeln!(text, "{}\n", request_text(request).trim_end());
    }
    let _ = write!(text, "{}", testkit::render(&driven.record));
    if let Some(awaits) = driven.awaits {
        let _ = writeln!(text, "awaits {awaits:?}");
    }
    if !driven.waited.is_zero() {
        let _ = writeln!(text, "waited {:?}", driven.waited);
    }
    text
}

/// The texts of the answer's messages, with their types.
pub(crate) fn texts(driven: &DrivenTurn) -> Vec<(String, String)> {
    let messages = driven.record.run().messages.iter();
    messages.map(|message| (message.kind.as_str().to_owned(), message.text())).collect()
}

/// The end of the turn: kind, code and message.
pub(crate) fn end(driven: &DrivenTurn) -> String {
    let turn = &driven.record.run().turns[0];
    let end = turn.end.map_or("open", interlingua_core::End::as_str);
    let error = turn.error.as_ref().map(|error| format!(" {}: {}", error.code, error.message));
    format!("{end}{}", error.unwrap_or_default())
}
