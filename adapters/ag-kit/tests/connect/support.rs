//! Shared parts of this connector's tests: turns, and their outcome as text.

use interlingua_ag_kit::{AgKitUpstream, UpstreamOptions};
use interlingua_core::answer::CheckedDecision;
use interlingua_core::connector::{AgentTurn, Connector, Next, TurnRequest, UpstreamAdapter};
use interlingua_core::loss::Loss;
use interlingua_core::model::{AgentRequest, Input, Message};
use interlingua_core::pending::Pending;
use interlingua_core::tree::Node;
use interlingua_core::{Fault, Json, Record};
use interlingua_core_testkit::{self as testkit, Answer, DrivenTurn};
use serde_json::Value;

pub(crate) const URL: &str = "http://agent.example/send-message";

pub(crate) fn connector(options: &str) -> Box<dyn Connector> {
    let options: UpstreamOptions = serde_json::from_str(options).expect("options");
    AgKitUpstream::connect(URL, options).expect("a URL")
}

/// A request of the gateway.
pub(crate) fn request(body: &str) -> AgentRequest {
    let mut request = AgentRequest::parse(&Node::parse_object(body.as_bytes()).expect("JSON")).expect("a request");
    request.id.get_or_insert("run-1".to_owned());
    request.session_id.get_or_insert("s-1".to_owned());
    request
}

/// A turn for a word of the user, with the tool that the recordings declare.
pub(crate) fn turn(options: &str) -> Box<dyn AgentTurn> {
    turn_of(options, &with_tool("hi"), "null")
}

pub(crate) fn with_tool(word: &str) -> AgentRequest {
    request(&format!(
        r#"{{"input":[{{"role":"user","content":"{word}"}}],"tools":[{{"type":"function","function":{{"name":"locate","description":"Where the user is","parameters":{{"type":"object","properties":{{"precise":{{"type":"boolean"}}}}}}}}}}]}}"#
    ))
}

pub(crate) fn turn_of(options: &str, request: &AgentRequest, state: &str) -> Box<dyn AgentTurn> {
    let state = Json::parse(state).expect("JSON");
    connector(options).turn(&TurnRequest::new(request, &state, &[])).expect("it can be expressed")
}

/// A turn that answers these items.
pub(crate) fn answering(
    options: &str,
    decided: &[(&Pending, CheckedDecision)],
    state: &Json,
) -> Result<Box<dyn AgentTurn>, Fault> {
    let items: Vec<Pending> = decided.iter().map(|(item, _)| (*item).clone()).collect();
    let messages: Vec<Message> = decided.iter().map(|(item, decided)| decided.message(item, true)).collect();
    let request = AgentRequest { input: Input::from(messages), ..request(r#"{"input":[]}"#) };
    connector(options).turn(&TurnRequest::new(&request, state, &items))
}

/// The body of what a turn sends.
pub(crate) fn sent(turn: &mut dyn AgentTurn) -> Value {
    let Ok(Next::Send(request)) = turn.next(0) else { panic!("a request") };
    assert_eq!((request.method, request.url.as_str()), ("POST", URL));
    serde_json::from_slice(&request.body).expect("JSON")
}

/// Lines as an event stream: each is a frame's data, unless it begins like another line of a stream.
pub(crate) fn stream(lines: &[&str]) -> Answer {
    let frame = |line: &&str| {
        let is_line = ["data:", "event:", ":", "id:"].iter().any(|start| line.starts_with(start));
        if is_line { format!("{line}\n") } else { format!("data: {line}\n\n") }
    };
    Answer::stream(&lines.iter().map(frame).collect::<String>())
}

/// A turn driven over one answer, and what it lost.
pub(crate) fn driven(turn: &mut dyn AgentTurn, answer: Answer) -> (DrivenTurn, Vec<Loss>) {
    let driven = testkit::drive(turn, [answer]);
    testkit::grammar(&driven.record).expect("the record keeps the grammar");
    (driven, turn.losses().to_vec())
}

/// The record of a stream of these lines.
pub(crate) fn record(lines: &[&str]) -> Record {
    driven(&mut *turn("{}"), stream(lines)).0.record
}

/// The outcome of an answer and the losses, as text.
pub(crate) fn tale(record: &Record, losses: &[Loss]) -> String {
    let pending = record.run().pending();
    let pending: String = pending.iter().map(|item| format!("waits for {}\n", item.to_data().text())).collect();
    let losses: String = losses.iter().map(|loss| format!("{:?} {loss}\n", loss.change).to_lowercase()).collect();
    format!("{}\n{pending}{losses}", testkit::render(record).trim_end())
}
