//! Clients of MCP for the tests: one with a session, and one of the newest revision.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};

use crate::support::gateway::Gateway;
use crate::support::http::{Exchange, Response};

/// A route that offers every agent as a tool.
pub(crate) const MCP: &str = "[[routes]]\nprotocol = \"mcp\"\npath = \"/mcp\"\n";

pub(crate) const MODERN: &str = "2026-07-28";
const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");

/// A client of one route.
pub(crate) struct Client<'g> {
    pub(crate) gateway: &'g Gateway,
    /// The header `Mcp-Session-Id`. Empty: the client is of the newest revision.
    pub(crate) session: String,
    pub(crate) revision: String,
    /// The capabilities that a client of the newest revision declares.
    pub(crate) capabilities: Value,
    pub(crate) next_id: AtomicI64,
}

impl<'g> Client<'g> {
    /// A client of the newest revision.
    pub(crate) fn modern(gateway: &'g Gateway, capabilities: Value) -> Self {
        Self { gateway, session: String::new(), revision: MODERN.to_owned(), capabilities, next_id: AtomicI64::new(1) }
    }

    /// A client with a session.
    pub(crate) async fn legacy(gateway: &'g Gateway, revision: &str, capabilities: Value) -> Self {
        let params = json!({
            "protocolVersion": revision,
            "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1" },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let response = open(gateway, &[], &body).await.response().await;
        assert_eq!(response.status, 200, "{}", response.text());
        let agreed = response.json()["result"]["protocolVersion"].as_str().expect("a revision").to_owned();
        let session = response.header("mcp-session-id").expect("a session").to_owned();
        let client = Self { gateway, session, revision: agreed, capabilities: json!({}), next_id: AtomicI64::new(1) };
        let ready = client.notify("notifications/initialized", json!({})).await;
        assert_eq!((ready.status, ready.body.len()), (202, 0));
        client
    }

    fn is_modern(&self) -> bool {
        self.session.is_empty()
    }

    /// The headers of a message.
    pub(crate) fn headers<'a>(&'a self, method: &'a str, name: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut headers = vec![("mcp-protocol-version", self.revision.as_str())];
        if self.is_modern() {
            headers.push(("mcp-method", method));
            if !name.is_empty() {
                headers.push(("mcp-name", name));
            }
        } else {
            headers.push(("mcp-session-id", self.session.as_str()));
        }
        headers
    }

    /// The next id of a request.
    pub(crate) fn id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// A request with this id.
    pub(crate) fn message(&self, id: i64, method: &str, params: Value) -> Value {
        let mut params = params;
        if self.is_modern() {
            if params.get("_meta").is_none() {
                params["_meta"] = json!({});
            }
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = self.revision.clone().into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        }
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    /// Sends a request with this id.
    pub(crate) async fn send(&self, id: i64, method: &str, params: Value) -> Exchange {
        let name = ["name", "uri", "taskId"].into_iter().find_map(|field| params[field].as_str().map(str::to_owned));
        let body = self.message(id, method, params);
        open(self.gateway, &self.headers(method, name.as_deref().unwrap_or_default()), &body).await
    }

    /// Sends a request, and reads the response: the object, or the last message of the stream.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Value {
        let (mut messages, _) = self.exchange(method, params).await;
        messages.pop().expect("a response")
    }

    /// The same with all messages, and the status.
    pub(crate) async fn exchange(&self, method: &str, params: Value) -> (Vec<Value>, u16) {
        let id = self.id();
        let mut exchange = self.send(id, method, params).await;
        let status = exchange.status().await;
        let type_ = exchange.header("content-type").await.unwrap_or_default();
        let messages = if type_.starts_with("text/event-stream") {
            exchange.frames().await
        } else {
            vec![exchange.response().await.json()]
        };
        assert_eq!(messages.last().map(|last| &last["id"]), Some(&json!(id)), "{messages:?}");
        (messages, status)
    }

    /// The result of a request.
    pub(crate) async fn result(&self, method: &str, params: Value) -> Value {
        let mut response = self.request(method, params).await;
        assert!(response.get("error").is_none(), "{response}");
        response["result"].take()
    }

    /// Calls a tool, and returns its result.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, method: &str, params: Value) -> Response {
        let body = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        open(self.gateway, &self.headers(method, ""), &body).await.response().await
    }

    /// Answers a question of the gateway.
    pub(crate) async fn respond(&self, question: &Value, result: Value) -> Response {
        let body = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
        open(self.gateway, &self.headers("", ""), &body).await.response().await
    }

    /// Opens the stream of the session, or takes up a stream at an event.
    pub(crate) async fn listen(&self, last_event: Option<&str>) -> Exchange {
        let mut headers = self.headers("", "");
        headers.push(("accept", "text/event-stream"));
        headers.extend(last_event.map(|id| ("last-event-id", id)));
        self.gateway.open("GET", "/mcp", &headers, b"").await
    }
}

/// Posts a message.
pub(crate) async fn open(gateway: &Gateway, headers: &[(&str, &str)], body: &Value) -> Exchange {
    let own = [("content-type", "application/json"), ACCEPT];
    let headers: Vec<(&str, &str)> = own.iter().chain(headers).copied().collect();
    gateway.open("POST", "/mcp", &headers, body.to_string().as_bytes()).await
}

/// The texts of a result's blocks.
pub(crate) fn texts(result: &Value) -> Vec<&str> {
    let blocks = result["content"].as_array().expect("blocks");
    blocks.iter().filter_map(|block| block["text"].as_str()).collect()
}

/// The session that a result names.
pub(crate) fn session_of(result: &Value) -> String {
    result["_meta"]["interlingua/session"].as_str().expect("a session").to_owned()
}

/// The run that a result names.
pub(crate) fn run_of(result: &Value) -> String {
    result["_meta"]["interlingua/run"].as_str().expect("a run").to_owned()
}

/// The deltas of all progress notifications, joined.
pub(crate) fn deltas(messages: &[Value]) -> String {
    let metas = messages.iter().map(|message| &message["params"]["_meta"]["interlingua/delta"]);
    metas.filter_map(Value::as_str).collect()
}
