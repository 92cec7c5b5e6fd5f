//! Shared parts of this connector's tests: turns, events, and their outcome as lines.

use std::fmt::Write as _;

use interlingua_core::connector::{AgentTurn, Connector, Next, TurnRequest, UpstreamAdapter};
use interlingua_core::loss::Loss;
use interlingua_core::model::{AgentRequest, Body};
use interlingua_core::run::Record;
use interlingua_core::tree::Node;
use interlingua_core::{Fault, Json};
use interlingua_core_testkit::{self as testkit, Answer, DrivenTurn};
use interlingua_responses::{ResponsesUpstream, UpstreamOptions};
use serde_json::Value;

pub(crate) fn connector(options: &str) -> Box<dyn Connector> {
    let options: UpstreamOptions = serde_json::from_str(options).expect("options");
    ResponsesUpstream::connect("http://agent/v1", options).expect("a URL")
}

/// A canonical request.
pub(crate) fn request(body: &str) -> AgentRequest {
    let mut request = AgentRequest::parse(&Node::parse_object(body.as_bytes()).expect("JSON")).expect("a request");
    request.id.get_or_insert("response_7".to_owned());
    request
}

/// A turn for a word of the user.
pub(crate) fn turn(options: &str) -> Box<dyn AgentTurn> {
    turn_of(options, r#"{"input":[{"role":"user","content":"hi"}]}"#, "null")
}

/// A turn for a request without history, in a session with this state.
pub(crate) fn turn_of(options: &str, body: &str, state: &str) -> Box<dyn AgentTurn> {
    turn_with_history(options, body, state, 0)
}

/// A turn for a request whose first messages are the history.
pub(crate) fn turn_with_history(options: &str, body: &str, state: &str, history: usize) -> Box<dyn AgentTurn> {
    let request = request(body);
    let state = Json::parse(state).expect("JSON");
    let turn = TurnRequest::new(&request, &state, &[]).with_history(0..history).with_agent("travel");
    connector(options).turn(&turn).expect("it can be expressed")
}

/// The body of the first request of a turn.
pub(crate) fn body_of(turn: &mut dyn AgentTurn) -> Value {
    let Ok(Next::Send(request)) = turn.next(0) else { panic!("a request") };
    serde_json::from_slice(&request.body).expect("JSON")
}

/// The request of a turn without history.
pub(crate) fn sent(options: &str, body: &str, state: &str) -> Value {
    body_of(&mut *turn_of(options, body, state))
}

/// Events as a stream. An event is written short: `type {fields}`, without `response.` in front of the type.
pub(crate) fn stream(events: &[&str]) -> String {
    let mut text = String::new();
    for (number, event) in events.iter().enumerate() {
        let is_line = ["data:", "event:", ":", "id:", "\n"].iter().any(|start| event.starts_with(start));
        if is_line {
            let _ = writeln!(text, "{event}");
            continue;
        }
        let (kind, fields) = event.split_once(' ').unwrap_or((event, "{}"));
        let kind = if matches!(kind, "error" | "keepalive") { kind.to_owned() } else { format!("response.{kind}") };
        let fields = fields.strip_prefix('{').expect("fields");
        let comma = if fields == "}" { "" } else { "," };
        let data = format!(r#"{{"type":"{kind}","sequence_number":{number}{comma}{fields}"#);
        let _ = write!(text, "event: {kind}\ndata: {data}\n\n");
    }
    text
}

/// A stream that begins and ends as every one does.
pub(crate) fn whole_stream(events: &[&str]) -> String {
    let mut all = vec![r#"created {"response":{"id":"resp_1","object":"response","status":"in_progress"}}"#];
    all.extend(events);
    all.push(r#"completed {"response":{"id":"resp_1","object":"response","status":"completed","output":[]}}"#);
    stream(&all)
}

/// A turn driven over answers.
pub(crate) fn driven(turn: &mut dyn AgentTurn, answers: impl IntoIterator<Item = Answer>) -> DrivenTurn {
    let driven = testkit::drive(turn, answers);
    testkit::grammar(&driven.record).expect("the record keeps the grammar");
    driven
}

/// The outcome of a stream of short events.
pub(crate) fn read(options: &str, events: &[&str]) -> String {
    let mut turn = turn(options);
    let driven = driven(&mut *turn, [Answer::stream(&whole_stream(events))]);
    summary(&driven.record, &*turn)
}

/// A record in lines: each message with its contents, the end, and what the turn says of itself.
pub(crate) fn summary(record: &Record, turn: &dyn AgentTurn) -> String {
    let mut lines = String::new();
    for message in &record.run().messages {
        let shown = message.to_model();
        let role = shown.role.as_ref().map_or("", |role| role.as_str());
        let end = message.end.map_or("open", |end| end.as_str());
        let _ = writeln!(lines, "{} {role} {} {end}", shown.id.as_deref().unwrap_or(""), shown.kind.as_str());
        for content in &shown.content {
            let _ = match &content.body {
                Body::Text(text) => writeln!(lines, "  text {text:?}"),
                Body::Refusal(text) => writeln!(lines, "  refusal {text:?}"),
                Body::Data(data) => writeln!(lines, "  data {}", data.text()),
                other => writeln!(lines, "  {other:?}"),
            };
        }
        if let Some(metadata) = &shown.metadata {
            let _ = writeln!(lines, "  metadata {}", metadata.text());
        }
    }

    let last = record.run().turns.last().expect("a turn");
    let _ = write!(lines, "{}", last.end.map_or("open", |end| end.as_str()));
    if let Some(error) = &last.error {
        let _ = write!(lines, " {} {:?}", error.code, error.message);
    }
    lines.push('\n');
    if let Some(usage) = &last.usage {
        let _ = writeln!(lines, "usage {}", usage.text());
    }
    if let Some(state) = turn.session_state() {
        let _ = writeln!(lines, "state {}", state.text());
    }
    for loss in turn.losses() {
        let _ = writeln!(lines, "{}", loss_line(loss));
    }
    lines
}

pub(crate) fn loss_line(loss: &Loss) -> String {
    let change = serde_json::to_value(loss.change).expect("a word");
    format!("{} {loss}", change.as_str().expect("a word"))
}

/// The fault that a turn makes of a refusal.
pub(crate) fn refused(turn: &dyn AgentTurn, status: u16, body: &[u8]) -> Fault {
    turn.map_refusal(&interlingua_core::connector::Refusal { status, body, retry_after: None })
}
