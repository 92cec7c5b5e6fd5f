//! A route without a gateway: sends requests, and replaces the engine by prepared records.

use std::sync::Arc;

use interlingua_anthropic_messages::{AnthropicMessages, Options};
use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::call::{AgentCard, Reply, RunInfo};
use interlingua_core::exchange::{Exchange, Flow, Mount, Mounted, ProtocolAdapter};
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{Content, ContentType, MessageType, Role};
use interlingua_core::run::{CallHead, MessageEnd, MessageStart, RunError};
use interlingua_core::testkit::{self, HttpResponse, TestRun};
use interlingua_core::{Call, End, Fault, Out, Record, RunCall};
use serde_json::Value;

pub(crate) struct Route(pub(crate) Mounted);

pub(crate) fn route(options: &str) -> Route {
    let card =
        AgentCard { name: "demo".to_owned(), since: testkit::NOW, decisions: ALL_DECISIONS, ..AgentCard::default() };
    let mount = Mount { agents: vec![Arc::new(card)], ..testkit::mount("/anthropic", &[]) };
    let options: Options = serde_json::from_str(options).expect("options");
    Route(AnthropicMessages::mount(&mount, options).expect("it can be mounted"))
}

/// A sent request: its exchange, and the result of decoding.
pub(crate) struct Sent {
    pub(crate) exchange: Box<dyn Exchange>,
    pub(crate) outcome: Result<Call, Fault>,
}

impl Route {
    pub(crate) fn send(&self, method: &str, path: &str, body: &str, headers: &[(&str, &str)]) -> Sent {
        let (mut exchange, params) = match testkit::endpoint(&self.0, method, path) {
            Some((endpoint, params)) => ((endpoint.open)(), params),
            None => ((self.0.fallback)(), Vec::new()),
        };
        let body = body.as_bytes();
        let request =
            testkit::ClientRequest { headers, params: &params, body, ..testkit::ClientRequest::new(method, path) };
        let outcome = request.decode(&mut *exchange);
        Sent { exchange, outcome }
    }

    pub(crate) fn create(&self, body: &str) -> Sent {
        self.send("POST", "/v1/messages", body, &[])
    }
}

impl Sent {
    pub(crate) fn run_call(&self) -> &RunCall {
        match &self.outcome {
            Ok(Call::Run(call)) => call,
            other => panic!("not a run call: {other:?}"),
        }
    }

    /// The run information that the engine would have.
    pub(crate) fn info(&self, record: &Record) -> RunInfo {
        let call = self.run_call();
        RunInfo {
            protocol: "anthropic-messages".to_owned(),
            delivery: call.delivery,
            labels: call.labels.clone(),
            ..testkit::run_info(record)
        }
    }

    /// The error for a request that was refused while decoding, or by the engine.
    pub(crate) fn fail(&mut self, fault: Option<&Fault>) -> HttpResponse {
        let own = self.outcome.as_ref().err().cloned();
        let fault = fault.or(own.as_ref()).expect("a fault");
        let mut out = Out::new();
        self.exchange.fail(fault, &mut out);
        HttpResponse::from_out(out)
    }

    /// The whole answer.
    pub(crate) fn whole(&mut self, record: &Record) -> HttpResponse {
        let mut out = Out::new();
        let info = self.info(record);
        let run = TestRun::with_info(record, info);
        self.exchange.reply(Reply::Run(run.view()), &mut out).expect("an answer");
        HttpResponse::from_out(out)
    }

    /// The answer of a session that waits for an answer to what this run asked.
    pub(crate) fn waiting(&mut self, record: &Record) -> HttpResponse {
        let mut out = Out::new();
        let info = self.info(record);
        let run = TestRun::with_info(record, info);
        self.exchange.reply(Reply::Waiting(run.view()), &mut out).expect("an answer");
        HttpResponse::from_out(out)
    }

    /// The streamed answer.
    pub(crate) fn stream(&mut self, record: &Record) -> HttpResponse {
        let mut out = Out::new();
        let info = self.info(record);
        self.exchange.head(&mut out.head);
        self.exchange.begin(TestRun::with_info(record, info).view(), &mut out);
        let mut ended = false;
        for step in record.steps(0) {
            assert!(!ended, "a step after the end");
            ended = self.exchange.encode(step, &mut out) == Flow::Close;
        }
        HttpResponse::from_out(out)
    }
}

/// The body of a plain request.
pub(crate) const HELLO: &str =
    r#"{"model":"demo","max_tokens":100,"messages":[{"role":"user","content":"hi"}],"stream":true}"#;

/// Builds a record by hand.
pub(crate) struct RunBuilder(pub(crate) Record);

impl RunBuilder {
    pub(crate) fn begin() -> Self {
        Self(testkit::started())
    }

    pub(crate) fn message(&mut self, kind: MessageType) -> u32 {
        let role = if kind.is_output() { Role::Tool } else { Role::Assistant };
        self.0.start_message(MessageStart::new("", kind, role))
    }

    pub(crate) fn text(&mut self, message: u32, kind: ContentType, deltas: &[&str]) {
        let content = self.0.start_content(message, kind, None);
        for delta in deltas {
            self.0.push(message, content, delta);
        }
        self.0.finish_content(message, content, None, Extra::new());
    }

    pub(crate) fn value(&mut self, message: u32, value: Content) {
        let content = self.0.start_content(message, value.body.kind(), None);
        self.0.finish_content(message, content, Some(value), Extra::new());
    }

    pub(crate) fn data(&mut self, kind: MessageType, json: &str) {
        let message = self.message(kind);
        self.value(message, Content::data(&Json::parse(json).expect("JSON")));
        self.end(message);
    }

    pub(crate) fn call(&mut self, kind: MessageType, call_id: &str, name: &str, deltas: &[&str]) -> u32 {
        let message = self.message(kind);
        let head = CallHead { call_id: call_id.to_owned(), name: name.to_owned(), server_label: None };
        let content = self.0.start_content(message, ContentType::Data, Some(head));
        for delta in deltas {
            self.0.push(message, content, delta);
        }
        self.0.finish_content(message, content, None, Extra::new());
        self.end(message);
        message
    }

    pub(crate) fn output(&mut self, kind: MessageType, call_id: &str, output: &str) {
        self.data(kind, &serde_json::json!({ "call_id": call_id, "output": output }).to_string());
    }

    pub(crate) fn end(&mut self, message: u32) {
        self.0.finish_message(message, MessageEnd::new(End::Completed));
    }

    /// Adds a complete message with one text.
    pub(crate) fn say(&mut self, kind: MessageType, deltas: &[&str]) {
        let message = self.message(kind);
        self.text(message, ContentType::Text, deltas);
        self.end(message);
    }

    pub(crate) fn finish(mut self, end: End) -> Record {
        self.0.update_turn(None, Json::parse(r#"{"input_tokens":11,"output_tokens":7}"#), Extra::new());
        let error = matches!(end, End::Failed | End::Rejected)
            .then(|| RunError { code: "MODEL_TIMEOUT".to_owned(), message: "the model took too long".to_owned() });
        self.0.close(end, error);
        self.0
    }
}

/// A stream in readable form: what each event has besides its type.
pub(crate) fn transcript(body: &str) -> String {
    let mut lines = String::new();
    for frame in testkit::laws::frames(body) {
        let mut event: Value = serde_json::from_str(&frame.data).expect("JSON");
        let fields = event.as_object_mut().expect("an object");
        fields.remove("type");
        let index = fields.remove("index").map(|index| format!(" {index}")).unwrap_or_default();
        let rest = match (fields.remove("content_block"), fields.remove("delta"), fields.is_empty()) {
            (Some(value), _, _) | (None, Some(value), true) => value.to_string(),
            (None, Some(delta), false) => format!("{delta} {event}"),
            (None, None, true) => String::new(),
            (None, None, false) => event.to_string(),
        };
        let line = format!("{}{index} {rest}", frame.event.expect("an event line"));
        lines.push_str(line.trim_end());
        lines.push('\n');
    }
    lines
}
