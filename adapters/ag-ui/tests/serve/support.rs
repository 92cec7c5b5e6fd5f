//! Drives exchanges as the server does, with records made by hand or from scripts. No assertions of its own about
//! single cases.

use std::sync::Arc;

use interlingua_ag_ui::{AgUi, Options};
use interlingua_core::agent_event::AgentEvent;
use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::call::{AgentCard, RunInfo};
use interlingua_core::exchange::{Endpoint, Mounted};
use interlingua_core::model::Message;
use interlingua_core::run::Record;
use interlingua_core::{Call, Exchange, Fault, Json, Mount, Out, ProtocolAdapter, RunCall};
use interlingua_core_testkit::{self as testkit, ClientRequest, HttpResponse, Recorder, TestRun, laws};
use serde_json::{Value, json};

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

/// A route with one agent, `demo`.
pub(crate) fn mounted(options: &str) -> Mounted {
    let options: Options = serde_json::from_str(options).expect("options");
    let card = AgentCard { name: "demo".to_owned(), decisions: ALL_DECISIONS, ..AgentCard::default() };
    let mount = Mount { agents: vec![Arc::new(card)], ..testkit::mount("/ag-ui", &["demo"]) };
    AgUi::mount(&mount, options).expect("mounts")
}

pub(crate) fn open(options: &str, method: &str) -> Box<dyn Exchange> {
    let mounted = mounted(options);
    let endpoint: &Endpoint = testkit::endpoint(&mounted, method, "").expect("an endpoint").0;
    (endpoint.open)()
}

/// The input of a run with one message.
pub(crate) fn hello(version: Option<&str>) -> Value {
    let mut input = json!({
        "threadId": "t1", "runId": "r1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{ "id": "u1", "role": "user", "content": "hi" }],
    });
    if let Some(version) = version {
        input["protocolVersion"] = json!(version);
    }
    input
}

pub(crate) fn decode(exchange: &mut dyn Exchange, input: &Value) -> Result<Call, Fault> {
    decode_with(exchange, input, &[JSON])
}

pub(crate) fn decode_with(exchange: &mut dyn Exchange, input: &Value, headers: &[(&str, &str)]) -> Result<Call, Fault> {
    let body = input.to_string();
    ClientRequest { headers, ..ClientRequest::post("", body.as_bytes()) }.decode(exchange)
}

/// An exchange whose request was decoded, with the call that starts its run, for a thread that is new.
pub(crate) fn started(options: &str, input: &Value) -> (Box<dyn Exchange>, Box<RunCall>) {
    let mut exchange = open(options, "POST");
    decode(exchange.as_mut(), input).expect("a request");
    let missing = Fault::not_found("the session");
    let Some(mut call) = exchange.on_not_found(&missing) else { panic!("a thread that is new") };
    if matches!(call, Call::Session(_)) {
        call = exchange.on_not_found(&missing).expect("a conversation that is new");
    }
    let Call::Run(run) = call else { panic!("not a run: {call:?}") };
    (exchange, run)
}

/// The facts of a run that a request started.
pub(crate) fn info(record: &Record, labels: Json) -> RunInfo {
    RunInfo { protocol: AgUi::NAME.to_owned(), labels, ..testkit::run_info(record) }
}

/// The stream of a run that this request started.
pub(crate) fn stream_of(record: &Record, options: &str, input: &Value) -> String {
    let (mut exchange, run) = started(options, input);
    laws::encode(exchange.as_mut(), TestRun::with_info(record, info(record, run.labels)).view())
}

/// The stream of a run for a client of 1.0.
pub(crate) fn stream(record: &Record) -> String {
    stream_of(record, "{}", &hello(Some("1.0")))
}

/// The events of a stream.
pub(crate) fn events(output: &str) -> Vec<Value> {
    let frames = laws::frames(output);
    frames.iter().map(|frame| serde_json::from_str(&frame.data).expect("JSON")).collect()
}

/// The types of the events.
pub(crate) fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().expect("a type")).collect()
}

pub(crate) fn record(events: &[AgentEvent<'_>]) -> Record {
    let mut recorder = Recorder::new(vec![Message::user("hi")]);
    for event in events {
        recorder.emit(event);
    }
    recorder.finish()
}

/// The exchange's answer to a fault.
pub(crate) fn failure(exchange: &mut dyn Exchange, fault: &Fault) -> HttpResponse {
    let mut out = Out::new();
    exchange.fail(fault, &mut out);
    HttpResponse::from_out(out)
}
