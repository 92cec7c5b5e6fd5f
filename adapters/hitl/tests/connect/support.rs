//! Shared parts of this connector's tests: turns, answers, and their outcome as text.

use interlingua_core::answer::CheckedDecision;
use interlingua_core::connector::{AgentTurn, Connector, HttpRequest, Next, Refusal, TurnRequest, UpstreamAdapter};
use interlingua_core::model::{AgentRequest, Input, Message};
use interlingua_core::pending::Pending;
use interlingua_core::tree::Node;
use interlingua_core::{Fault, FaultKind, Json};
use interlingua_core_testkit::{self as testkit, Answer, DrivenTurn};
use interlingua_hitl::{HitlUpstream, UpstreamOptions};
use serde_json::{Value, json};

pub(crate) const URL: &str = "http://agent.example/service";

pub(crate) fn connector(options: &str) -> Box<dyn Connector> {
    let options: UpstreamOptions = serde_json::from_str(options).expect("options");
    HitlUpstream::connect(URL, options).expect("a URL")
}

/// A request of the gateway.
pub(crate) fn request(body: &str) -> AgentRequest {
    let mut request = AgentRequest::parse(&Node::parse_object(body.as_bytes()).expect("JSON")).expect("a request");
    request.id.get_or_insert("run-1".to_owned());
    request.session_id.get_or_insert("s 1".to_owned());
    request.user_id.get_or_insert("ada".to_owned());
    request
}

/// A turn for a word of the user.
pub(crate) fn turn(options: &str) -> Box<dyn AgentTurn> {
    turn_of(options, r#"{"input":[{"role":"user","content":"hi"}]}"#, "null")
}

pub(crate) fn turn_of(options: &str, body: &str, state: &str) -> Box<dyn AgentTurn> {
    let state = Json::parse(state).expect("JSON");
    connector(options).turn(&TurnRequest::new(&request(body), &state, &[])).expect("it can be expressed")
}

pub(crate) fn answering(options: &str, item: &Pending, decided: CheckedDecision, state: &Json) -> Box<dyn AgentTurn> {
    let messages: Vec<Message> = vec![decided.message(item, true)];
    let request = AgentRequest { input: Input::from(messages), ..request(r#"{"input":[]}"#) };
    let items = [item.clone()];
    connector(options).turn(&TurnRequest::new(&request, state, &items)).expect("an answer")
}

/// The first request of a turn.
pub(crate) fn sent(turn: &mut dyn AgentTurn) -> (HttpRequest, Value) {
    let Ok(Next::Send(request)) = turn.next(0) else { panic!("a request") };
    let body = serde_json::from_slice(&request.body).expect("JSON");
    (request, body)
}

pub(crate) fn driven(turn: &mut dyn AgentTurn, answers: impl IntoIterator<Item = Answer>) -> DrivenTurn {
    let driven = testkit::drive(turn, answers);
    testkit::grammar(&driven.record).expect("the record keeps the grammar");
    driven
}

/// An answer of the service with these fields.
pub(crate) fn response(status: &str, timestamp: f64, fields: Value) -> Value {
    let mut response = json!({
        "session_id": "hitl_1", "status": status, "timestamp": timestamp,
        "message": null, "result": null, "interrupt_data": null
    });
    for (name, value) in fields.as_object().expect("fields") {
        response[name] = value.clone();
    }
    response
}

pub(crate) fn completed(timestamp: f64, messages: &Value) -> Value {
    response("completed", timestamp, json!({ "result": { "messages": messages } }))
}

pub(crate) fn body(value: &Value) -> Answer {
    Answer::body(&value.to_string())
}

pub(crate) fn cut() -> Answer {
    Answer::Fault(Fault::new(FaultKind::UpstreamTruncated, "the connection to the agent broke"))
}

/// The error for a status that is no success.
pub(crate) fn refusal(turn: &dyn AgentTurn, status: u16, body: &str) -> Fault {
    turn.map_refusal(&Refusal { status, body: body.as_bytes(), retry_after: None })
}

pub(crate) fn tale(driven: &DrivenTurn) -> String {
    let pending = driven.record.run().pending();
    let pending: String = pending.iter().map(|item| format!("waits for {}\n", item.to_data().text())).collect();
    format!("{}\n{pending}", testkit::render(&driven.record).trim_end())
}
