//! A route without a gateway: finds endpoints, drives exchanges, and replaces the engine by prepared records.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses a part of it")]

pub mod strict;

use std::sync::Arc;

use interlingua_core::call::{AgentCard, Reply, RunInfo, RunState, RunView};
use interlingua_core::exchange::{Exchange, Flow, Mount, Mounted, ProtocolAdapter};
use interlingua_core::json::Json;
use interlingua_core::model::AgentRequest;
use interlingua_core::pending::Pending;
use interlingua_core::{Call, Delivery, Fault, Next, Out, Record, RunCall, RunId, Step};
use interlingua_core_testkit as testkit;
use interlingua_responses::{Options, Responses};
use serde_json::Value;

pub use interlingua_core_testkit::NOW;

pub fn run_id(number: u128) -> RunId {
    RunId(uuid::Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0000 + number))
}

/// The response id of [`run_id`].
pub fn response_id(number: u128) -> String {
    run_id(number).to_prefixed("resp_")
}

pub fn card(name: &str) -> Arc<AgentCard> {
    Arc::new(AgentCard {
        name: name.to_owned(),
        server_label: format!("{name}-tools"),
        since: NOW,
        ..AgentCard::default()
    })
}

pub struct Route(pub Mounted);

pub fn options(text: &str) -> Options {
    serde_json::from_str(text).expect("options")
}

pub fn route(option_text: &str) -> Route {
    mounted(&["demo"], option_text)
}

pub fn mounted(agents: &[&str], option_text: &str) -> Route {
    let agents = agents.iter().map(|name| card(name)).collect();
    let mount = Mount { path: "/v1".to_owned(), agents, public_url: None, schemes: Vec::new() };
    Route(Responses::mount(&mount, options(option_text)).expect("it can be mounted"))
}

/// A sent request: its exchange, and the result of decoding.
pub struct SentRequest {
    pub exchange: Box<dyn Exchange>,
    pub outcome: Result<Call, Fault>,
}

impl std::fmt::Debug for SentRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.outcome.fmt(f)
    }
}

pub type HttpReply = testkit::HttpResponse;

impl Route {
    pub fn send(&self, method: &str, target: &str, body: &str) -> SentRequest {
        self.send_with(method, target, body, &[])
    }

    pub fn send_with(&self, method: &str, target: &str, body: &str, headers: &[(&str, &str)]) -> SentRequest {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let as_http = if method == "WEBSOCKET" { "GET" } else { method };
        let (mut exchange, params) = match testkit::endpoint(&self.0, as_http, path) {
            Some((endpoint, params)) => ((endpoint.open)(), params),
            None => ((self.0.fallback)(), Vec::new()),
        };

        let request = testkit::ClientRequest {
            query,
            headers,
            params: &params,
            body: body.as_bytes(),
            base_url: "http://localhost/v1",
            new_id: run_id(0x100),
            ..testkit::ClientRequest::new(method, path)
        };
        let outcome = request.decode(&mut *exchange);
        SentRequest { exchange, outcome }
    }
}

impl SentRequest {
    /// The run call for the engine.
    pub fn run_call(&self) -> &RunCall {
        match &self.outcome {
            Ok(Call::Run(call)) => call,
            other => panic!("not a run call: {other:?}"),
        }
    }

    pub fn fault(&self) -> &Fault {
        self.outcome.as_ref().expect_err("a fault")
    }

    /// The error for a request that was refused while decoding.
    pub fn error_reply(mut self) -> HttpReply {
        let fault = self.outcome.expect_err("a fault");
        let mut out = Out::new();
        self.exchange.fail(&fault, &mut out);
        HttpReply::from_out(out)
    }

    /// The error after the engine returned a fault.
    pub fn fail_with(mut self, fault: &Fault) -> HttpReply {
        let mut out = Out::new();
        self.exchange.fail(fault, &mut out);
        HttpReply::from_out(out)
    }

    /// Passes on a reply of the engine. `Err` if the exchange makes another call or fails.
    pub fn reply_with(mut self, reply: Reply<'_>) -> Result<HttpReply, SentRequest> {
        let mut out = Out::new();
        match self.exchange.reply(reply, &mut out) {
            Ok(Next::Done) => Ok(HttpReply::from_out(out)),
            Ok(Next::Call(call)) => Err(Self { exchange: self.exchange, outcome: Ok(call) }),
            Err(fault) => Err(Self { exchange: self.exchange, outcome: Err(fault) }),
        }
    }

    /// Streams a record from its first step.
    pub fn streamed(mut self, record: &Record) -> HttpReply {
        let about = match &self.outcome {
            Ok(Call::Run(call)) => about_of(call, record),
            _ => about(record, Json::null()),
        };
        self.stream_as(record, &about)
    }

    pub fn stream_as(&mut self, record: &Record, about: &RunInfo) -> HttpReply {
        let mut out = Out::new();
        self.exchange.head(&mut out.head);
        self.exchange.begin(RunView { record, info: about, pending: &[] }, &mut out);

        let mut finished = false;
        for step in record.steps(0) {
            assert!(!finished, "a step after the end");
            finished = self.exchange.encode(step, &mut out) == Flow::Close;
        }
        HttpReply::from_out(out)
    }

    pub fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.exchange.encode(step, out)
    }
}

/// The run information that the engine would have for a call.
pub fn about_of(call: &RunCall, record: &Record) -> RunInfo {
    RunInfo { stored: call.policy.stored, delivery: call.delivery, ..about(record, call.labels.clone()) }
}

pub fn about(record: &Record, labels: Json) -> RunInfo {
    RunInfo {
        protocol: "responses".to_owned(),
        owner: "anonymous".to_owned(),
        state: record.run().end.map_or(RunState::Running, RunState::Ended),
        changed_at: NOW,
        previous: None,
        delivery: Delivery::Stream,
        stored: true,
        request: AgentRequest::default(),
        labels,
        tags: interlingua_core::call::Tags::new(),
        retention: None,
    }
}

pub fn pending(record: &Record) -> Vec<Pending> {
    record.run().pending()
}

/// The body of a plain request.
pub const HELLO: &str = r#"{"model":"demo","input":"hi","stream":true}"#;

/// Streams a record as the reply to a request.
pub fn stream(option_text: &str, body: &str, record: &Record) -> HttpReply {
    route(option_text).send("POST", "/responses", body).streamed(record)
}

/// The events of a stream: name and data.
pub fn events(body: &str) -> Vec<(String, Value)> {
    body.split("\n\n")
        .filter(|frame| !frame.is_empty() && *frame != "data: [DONE]")
        .map(|frame| {
            let (name, data) = frame.split_once('\n').unwrap_or_else(|| panic!("a frame of two lines: {frame:?}"));
            let data = data.strip_prefix("data: ").expect("a data line");
            let data: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
            let name = name.strip_prefix("event: ").expect("an event line").to_owned();
            assert_eq!(data["type"], name.as_str());
            (name, data)
        })
        .collect()
}

/// A stream in readable form: one line per event, and of the response objects only the fields that change.
pub fn transcript(body: &str) -> String {
    let mut lines = String::new();
    for (name, mut data) in events(body) {
        let fields = data.as_object_mut().expect("an object");
        fields.remove("type");
        let number = fields.remove("sequence_number").expect("a number");
        if let Some(response) = fields.get_mut("response") {
            let shown = ["status", "error", "incomplete_details", "output", "usage", "completed_at"];
            response.as_object_mut().expect("an object").retain(|name, _| shown.contains(&name.as_str()));
        }

        let rest = serde_json::to_string(fields).expect("JSON");
        let rest = rest.replace(&run_id(1).to_prefixed(""), "RUN");
        lines.push_str(&format!("{number} {name} {rest}\n"));
    }
    if body.ends_with("data: [DONE]\n\n") {
        lines.push_str("[DONE]\n");
    }
    lines
}
