//! A client of MCP in both styles, and an agent that asks, for the tests of questions and tasks.

use serde_json::{Map, Value, json};

use crate::support::agent::{response, text_reply};
use crate::support::gateway::{Gateway, agent};
use crate::support::http::{Exchange, data};
use crate::support::upstream::{Reply, Upstream};

/// The revision without sessions.
pub(crate) const MODERN: &str = "2026-07-28";

/// A gateway with the agent `helper`, which accepts edits, at `/mcp`, `/agents/helper` and `/a2a/helper`.
pub(crate) async fn gateway(upstream: &Upstream, options: &str) -> Gateway {
    Gateway::start(&config(upstream, options)).await
}

/// The agents and routes of [`gateway`], without the route of the Agent API.
pub(crate) fn config(upstream: &Upstream, options: &str) -> String {
    let agent = agent("helper", &upstream.url("/process"), "", "retries = 0\napproval_extension = true");
    let a2a = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";
    format!("{agent}{a2a}[[routes]]\nprotocol = \"mcp\"\npath = \"/mcp\"\n[routes.options]\n{options}\n")
}

/// An agent that says something and asks for these items in its first turn of a session, and afterwards says what it
/// received: `done: ID DECISION …` for each answer.
pub(crate) fn asking(items: Vec<Value>) -> Upstream {
    Upstream::with_handler(move |request| {
        let received = answers(&request.json());
        if received.is_empty() { ask(&items) } else { text_reply(&[&format!("done: {}", received.join(", "))]) }
    })
}

/// A reply that says something and asks for these items.
pub(crate) fn ask(items: &[Value]) -> Reply {
    let message = |id: &str, kind: &str, content: Value| json!({"object": "message", "status": "completed", "id": id, "type": kind, "role": "assistant", "content": [content]});
    let content = |id: &str, kind: &str, field: &str, value: &Value| json!({"object": "content", "status": "completed", "type": kind, "index": 0, "delta": false, "msg_id": id, field: value});
    let mut frames = vec![response("created"), response("in_progress")];
    let said = content("msg_say", "text", "text", &json!("One moment."));
    frames.extend([said.to_string(), message("msg_say", "message", said).to_string()]);
    for (index, item) in items.iter().enumerate() {
        let id = format!("msg_ask_{index}");
        let kind = if item.get("call_id").is_some() { "function_call" } else { "mcp_approval_request" };
        let asked = content(&id, "data", "data", item);
        frames.extend([asked.to_string(), message(&id, kind, asked).to_string()]);
    }
    frames.push(response("completed"));
    Reply::frames(frames)
}

/// An approval of a call that may be edited.
pub(crate) fn approval(id: &str) -> Value {
    json!({"id": id, "name": "send_mail", "arguments": "{\"to\":\"ada\"}", "interrupt": {
        "kind": "approval", "message": "Send this mail?", "decisions": ["accept", "edit", "respond", "reject"]}})
}

/// A question with a schema.
pub(crate) fn question(id: &str) -> Value {
    let schema =
        json!({"type": "object", "properties": {"size": {"type": "string", "enum": ["s", "m"]}}, "required": ["size"]});
    json!({"id": id, "name": "ask", "arguments": "{}",
        "interrupt": {"kind": "input", "message": "Which size?", "response_schema": schema}})
}

/// A login at a page.
pub(crate) fn login(id: &str) -> Value {
    json!({"id": id, "name": "login", "arguments": "{}",
        "interrupt": {"kind": "auth", "message": "Log in.", "payload": {"url": "https://id.example.com/go"}}})
}

/// The answers in a request to the agent.
fn answers(body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for message in body["input"].as_array().into_iter().flatten() {
        let data = &message["content"][0]["data"];
        match message["type"].as_str() {
            Some("mcp_approval_response") => {
                let interrupt = &data["interrupt"];
                let decision =
                    interrupt["decision"].as_str().map_or_else(|| data["approve"].to_string(), str::to_owned);
                let more = ["arguments", "text", "payload"].iter().find_map(|name| interrupt.get(*name));
                let more = more.filter(|more| !more.is_null()).map(|more| format!(" {more}")).unwrap_or_default();
                found.push(format!("{} {decision}{more}", data["id"].as_str().unwrap_or("?")));
            }
            Some("function_call_output") => {
                found.push(format!("{} output {}", data["call_id"].as_str().unwrap_or("?"), data["output"]));
            }
            _ => {}
        }
    }
    found
}

/// A client of the revision without sessions.
pub(crate) struct Modern<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) capabilities: Value,
}

/// The last message of an answer.
#[derive(Debug)]
pub(crate) struct Messages {
    pub(crate) status: u16,
    pub(crate) last: Value,
}

impl Messages {
    pub(crate) fn result(&self) -> &Value {
        assert!(self.last.get("result").is_some(), "{self:?}");
        &self.last["result"]
    }

    pub(crate) fn error_code(&self) -> &Value {
        &self.last["error"]["code"]
    }

    /// The texts of the result, without the line that names the session.
    pub(crate) fn texts(&self) -> Vec<&str> {
        texts(self.result())
    }

    /// The keys of the questions.
    pub(crate) fn keys(&self) -> Vec<&str> {
        keys(self.result())
    }

    pub(crate) fn run(&self) -> String {
        self.result()["_meta"]["interlingua/run"].as_str().expect("a run").to_owned()
    }

    pub(crate) fn session(&self) -> String {
        self.result()["_meta"]["interlingua/session"].as_str().expect("a session").to_owned()
    }
}

pub(crate) fn keys(holder: &Value) -> Vec<&str> {
    holder["inputRequests"].as_object().expect("questions").keys().map(String::as_str).collect()
}

pub(crate) fn texts(result: &Value) -> Vec<&str> {
    let blocks = result["content"].as_array().expect("content");
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    texts.filter(|text| !text.starts_with("[session ")).collect()
}

impl<'a> Modern<'a> {
    /// A client that shows forms and takes tasks.
    pub(crate) fn new(gateway: &'a Gateway) -> Self {
        let extensions = json!({ "io.modelcontextprotocol/tasks": {} });
        Self { gateway, capabilities: json!({ "elicitation": { "form": {} }, "extensions": extensions }) }
    }

    pub(crate) fn with(gateway: &'a Gateway, capabilities: Value) -> Self {
        Self { gateway, capabilities }
    }

    pub(crate) async fn open(&self, method: &str, params: Value) -> Exchange {
        let mut params = params;
        let meta = params.as_object_mut().expect("an object").entry("_meta").or_insert_with(|| json!({}));
        meta["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
        meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        let name = ["name", "uri", "taskId"].iter().find_map(|name| params[*name].as_str()).unwrap_or("").to_owned();
        let mut headers = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", MODERN),
            ("mcp-method", method),
        ];
        if !name.is_empty() {
            headers.push(("mcp-name", &name));
        }
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.gateway.open("POST", "/mcp", &headers, body.to_string().as_bytes()).await
    }

    pub(crate) async fn send(&self, method: &str, params: Value) -> Messages {
        read(self.open(method, params).await).await
    }

    /// Calls a tool, with further parameters.
    pub(crate) async fn call_with(&self, tool: &str, arguments: Value, more: Value) -> Messages {
        let mut params = json!({ "name": tool, "arguments": arguments });
        let fields: Map<String, Value> = more.as_object().cloned().unwrap_or_default();
        params.as_object_mut().expect("an object").extend(fields);
        self.send("tools/call", params).await
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Messages {
        self.call_with(tool, arguments, json!({})).await
    }

    /// Repeats a call with answers to its questions.
    pub(crate) async fn answer(&self, asked: &Messages, message: &str, responses: Value) -> Messages {
        let more = json!({ "inputResponses": responses, "requestState": asked.result()["requestState"] });
        self.call_with("helper", json!({ "message": message }), more).await
    }
}

async fn read(exchange: Exchange) -> Messages {
    let response = exchange.response().await;
    let mut messages: Vec<Value> =
        if response.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            let events = response.text().split("\n\n").filter_map(data).filter(|data| !data.is_empty());
            events.map(|data| serde_json::from_str(data).expect("JSON")).collect()
        } else {
            vec![response.json()]
        };
    let last = messages.pop().expect("a message");
    Messages { status: response.status, last }
}

/// A client with a session.
pub(crate) struct Legacy<'a> {
    gateway: &'a Gateway,
    session: String,
}

impl<'a> Legacy<'a> {
    pub(crate) async fn begin(gateway: &'a Gateway, revision: &str, elicitation: Value) -> Self {
        let params = json!({ "protocolVersion": revision, "capabilities": { "elicitation": elicitation },
            "clientInfo": { "name": "test", "version": "1" } });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let response = gateway.post("/mcp", &body).await;
        assert_eq!(response.json()["result"]["protocolVersion"], revision);
        let session = response.header("mcp-session-id").expect("a session").to_owned();
        Self { gateway, session }
    }

    pub(crate) async fn post(&self, message: &Value) -> Exchange {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", self.session.as_str()),
        ];
        self.gateway.open("POST", "/mcp", &headers, message.to_string().as_bytes()).await
    }

    pub(crate) async fn call(&self, id: u64, tool: &str, arguments: Value) -> Exchange {
        let params = json!({ "name": tool, "arguments": arguments });
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await
    }

    /// Answers a question. Returns the status.
    pub(crate) async fn respond(&self, id: &Value, result: Value) -> u16 {
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).await.response().await.status
    }
}

/// The next message of a stream. `None` at its end.
pub(crate) async fn next(stream: &mut Exchange) -> Option<Value> {
    loop {
        let event = stream.event().await?;
        if let Some(text) = data(&event).filter(|text| !text.is_empty()) {
            return Some(serde_json::from_str(text).expect("JSON"));
        }
    }
}

/// The next question of a stream: its id and its parameters.
pub(crate) async fn next_question(stream: &mut Exchange) -> (Value, Value) {
    loop {
        let message = next(stream).await.expect("a question");
        assert!(message.get("result").is_none() && message.get("error").is_none(), "{message}");
        if message["method"] == "elicitation/create" {
            return (message["id"].clone(), message["params"].clone());
        }
    }
}

/// The result at the end of a stream.
pub(crate) async fn result(stream: &mut Exchange) -> Value {
    loop {
        let message = next(stream).await.expect("a result");
        if message.get("id").is_some() && message.get("method").is_none() {
            assert_eq!(next(stream).await, None, "the response is the last message");
            return message["result"].clone();
        }
    }
}

/// The acceptance of a form.
pub(crate) fn accept(content: Value) -> Value {
    json!({ "action": "accept", "content": content })
}
