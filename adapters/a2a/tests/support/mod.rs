//! A route without a gateway: finds endpoints like the server, drives exchanges, and replaces the engine.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its own part of it")]

use std::sync::Arc;

use interlingua_a2a::{A2a, Options};
use interlingua_core::call::{AgentCard, Reply, RunInfo};
use interlingua_core::event::Millis;
use interlingua_core::exchange::{Exchange, Mount, Mounted, Next, ProtocolAdapter};
use interlingua_core::{AuthScheme, Call, Fault, Json, Out, Record, RunCall, RunId};
use interlingua_core_testkit::{self as testkit, NOW};
use serde_json::Value;

/// The new id in every request; equal to the id of testkit runs.
pub const NEW_ID: RunId = testkit::RUN;

pub fn card(name: &str) -> Arc<AgentCard> {
    Arc::new(AgentCard {
        name: name.to_owned(),
        description: "Weather for cities".to_owned(),
        version: "1.2.0".to_owned(),
        server_label: name.to_owned(),
        since: NOW,
        decisions: interlingua_core::answer::NATIVE_DECISIONS,
        input_media: interlingua_core::capability::Media::ALL,
    })
}

pub struct Host(pub Mounted);

pub fn host() -> Host {
    with(serde_json::json!({}))
}

pub fn with(options: Value) -> Host {
    Host(mounted(options, false).expect("mounts"))
}

/// A host whose callers can authenticate.
pub fn authenticating(options: Value) -> Host {
    Host(mounted(options, true).expect("mounts"))
}

pub fn mounted(options: Value, authenticates: bool) -> Result<Mounted, String> {
    mounted_at(Some("https://gw.example/weather"), options, authenticates)
}

/// `public_url`: the configured URL, if any.
pub fn mounted_at(public_url: Option<&str>, options: Value, authenticates: bool) -> Result<Mounted, String> {
    let schemes = if authenticates { vec![AuthScheme::ApiKey] } else { Vec::new() };
    mounted_with(public_url, options, schemes)
}

/// `schemes`: how callers authenticate.
pub fn mounted_with(public_url: Option<&str>, options: Value, schemes: Vec<AuthScheme>) -> Result<Mounted, String> {
    let options: Options = serde_json::from_value(options).expect("options");
    let public_url = public_url.map(str::to_owned);
    A2a::mount(&Mount { path: "/demo".into(), agents: vec![card("demo")], public_url, schemes }, options)
}

/// A request to send.
#[derive(Clone)]
pub struct ClientRequest<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub headers: Vec<(&'a str, &'a str)>,
    pub body: String,
    pub authenticated: bool,
}

impl<'a> ClientRequest<'a> {
    pub fn new(method: &'a str, path: &'a str) -> Self {
        Self { method, path, query: "", headers: Vec::new(), body: String::new(), authenticated: false }
    }

    /// A JSON-RPC request of 1.0.
    pub fn rpc(method: &str, params: &Value) -> Self {
        Self::rpc_v03(method, params).header("a2a-version", "1.0")
    }

    /// A JSON-RPC request of 0.3.
    pub fn rpc_v03(method: &str, params: &Value) -> Self {
        let body = serde_json::json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        Self::new("POST", "").body(&body)
    }

    /// A REST request of 1.0.
    pub fn rest(method: &'a str, path: &'a str) -> Self {
        Self::new(method, path).header("a2a-version", "1.0")
    }

    #[must_use]
    pub fn header(mut self, name: &'a str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self
    }

    #[must_use]
    pub fn body(mut self, body: &Value) -> Self {
        self.body = body.to_string();
        self.header("content-type", "application/json")
    }

    #[must_use]
    pub fn text(mut self, body: &str) -> Self {
        self.body = body.to_owned();
        self
    }

    #[must_use]
    pub fn query(mut self, query: &'a str) -> Self {
        self.query = query;
        self
    }
}

/// An exchange that has decoded its request.
pub struct DecodedExchange {
    pub exchange: Box<dyn Exchange>,
    pub call: Result<Call, Fault>,
}

/// A response as the server would send it.
pub type Answer = testkit::HttpResponse;

impl Host {
    pub fn send(&self, request: &ClientRequest<'_>) -> DecodedExchange {
        let found = testkit::endpoint(&self.0, request.method, request.path);
        let (open, params) = match found {
            Some((endpoint, params)) => (&endpoint.open, params),
            None => (&self.0.fallback, Vec::new()),
        };

        let mut exchange = open();
        let sent = testkit::ClientRequest {
            query: request.query,
            headers: &request.headers,
            params: &params,
            body: request.body.as_bytes(),
            base_url: "https://gw.example/weather",
            caller: request.authenticated.then_some("ann"),
            ..testkit::ClientRequest::new(request.method, request.path)
        };
        let call = sent.decode(&mut *exchange);
        DecodedExchange { exchange, call }
    }
}

impl DecodedExchange {
    /// Expects a rejected request and returns the error response.
    pub fn rejected(mut self) -> Answer {
        let fault = self.call.expect_err("a rejection");
        let mut out = Out::new();
        self.exchange.fail(&fault, &mut out);
        Answer::from_out(out)
    }

    /// The run call, which must be the current call.
    pub fn run(&self) -> &RunCall {
        match &self.call {
            Ok(Call::Run(call)) => call,
            other => panic!("not a run call: {other:?}"),
        }
    }

    /// Replies to the call. `Ok`: the response. `Err`: the exchange with its next call.
    pub fn reply(mut self, reply: Reply<'_>) -> Result<Answer, Self> {
        let mut out = Out::new();
        match self.exchange.reply(reply, &mut out) {
            Ok(Next::Done) => Ok(Answer::from_out(out)),
            Ok(Next::Call(call)) => Err(Self { exchange: self.exchange, call: Ok(call) }),
            Err(fault) => {
                let mut out = Out::new();
                self.exchange.fail(&fault, &mut out);
                Ok(Answer::from_out(out))
            }
        }
    }

    /// Replies to the last call and returns the response.
    pub fn final_answer(self, reply: Reply<'_>) -> Answer {
        self.reply(reply).unwrap_or_else(|decoded| panic!("makes another call: {:?}", decoded.call))
    }

    /// Replies to a call that another call follows.
    pub fn next_call(self, reply: Reply<'_>) -> Self {
        match self.reply(reply) {
            Ok(answer) => panic!("responds: {answer:?}"),
            Err(decoded) => decoded,
        }
    }

    /// The complete stream over a record.
    pub fn streamed(mut self, record: &Record, about: RunInfo) -> Answer {
        let mut head = interlingua_core::out::Head::default();
        self.exchange.head(&mut head);

        let shown = testkit::TestRun::with_info(record, about);
        let body = testkit::laws::encode(self.exchange.as_mut(), shown.view());
        Answer { status: 200, head, body }
    }
}

/// Run info of a record that was started over this protocol.
pub fn about(record: &Record) -> RunInfo {
    RunInfo { protocol: "a2a".into(), ..testkit::run_info(record) }
}

/// The same, with the labels of the call.
pub fn about_call(record: &Record, call: &RunCall) -> RunInfo {
    RunInfo { labels: call.labels.clone(), ..about(record) }
}

pub fn user(text: &str) -> Value {
    serde_json::json!({ "message": { "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

pub fn user_v03(text: &str) -> Value {
    serde_json::json!({
        "message": { "kind": "message", "messageId": "m-1", "role": "user", "parts": [{ "kind": "text", "text": text }] }
    })
}

/// A record whose first turn has the call's input and the script's output.
pub fn record_of(call: &RunCall, script: &str) -> Record {
    let script = testkit::script(script);
    let mut listener = testkit::Recorder::new(call.request.input.clone());
    for frame in &script.frames {
        listener.emit(&script.event(frame));
    }
    listener.finish()
}

/// The body with one line per frame and fixed ids replaced.
pub fn lines(answer: &Answer) -> String {
    answer.body.replace(&NEW_ID.to_string(), "TASK").replace("session-1", "CONTEXT").replace("\n\n", "\n")
}

pub fn at(record: &mut Record, after: Millis) {
    record.set_time(NOW + after);
}

pub fn json(text: &str) -> Json {
    Json::parse(text).expect("JSON")
}
