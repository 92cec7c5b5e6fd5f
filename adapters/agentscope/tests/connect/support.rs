//! Shared parts of this connector's tests: turns, events, and their outcome as lines.

use std::fmt::Write as _;

use interlingua_agentscope::{AgentscopeUpstream, UpstreamOptions};
use interlingua_core::answer::CheckedDecision;
use interlingua_core::connector::{AgentTurn, Connector, HttpRequest, Refusal, TurnRequest, UpstreamAdapter};
use interlingua_core::model::{AgentRequest, Body, Message};
use interlingua_core::pending::Pending;
use interlingua_core::run::Record;
use interlingua_core::tree::Node;
use interlingua_core::{Fault, Json};
use interlingua_core_testkit::{self as testkit, Answer, DrivenTurn};
use serde_json::{Value, json};

pub(crate) const URL: &str = "http://service";

/// A connector with these options besides the agent and the user.
pub(crate) fn connector(options: &Value) -> Box<dyn Connector> {
    let mut all = json!({ "agent_id": "agent", "user": "ada" });
    let fields = all.as_object_mut().expect("an object");
    fields.extend(options.as_object().expect("an object").clone());
    let options: UpstreamOptions = serde_json::from_value(all).expect("options");
    AgentscopeUpstream::connect(URL, options).expect("a connector")
}

/// A canonical request.
pub(crate) fn request(body: &Value) -> AgentRequest {
    let text = body.to_string();
    let node = Node::parse_object(text.as_bytes()).expect("JSON");
    let mut request = AgentRequest::parse(&node).expect("a request");
    request.id.get_or_insert("response_7".to_owned());
    request
}

pub(crate) fn says(text: &str) -> AgentRequest {
    request(&json!({ "input": [{ "role": "user", "content": text }] }))
}

/// A session with an agent: turn after turn, with what the connector keeps.
pub(crate) struct Session {
    pub(crate) connector: Box<dyn Connector>,
    pub(crate) state: Json,
    pub(crate) are_events_read: bool,
}

impl Session {
    pub(crate) fn new(options: &Value) -> Self {
        Self { connector: connector(options), state: Json::null(), are_events_read: false }
    }

    /// A session that the service has.
    pub(crate) fn known() -> Self {
        let state = Json::from_serialize(&json!({ "session": "s1", "reply": "r0" }));
        Self { state, ..Self::new(&json!({})) }
    }

    pub(crate) fn turn(&self, request: &AgentRequest, answered: &[Pending]) -> Box<dyn AgentTurn> {
        self.try_turn(request, answered).expect("a turn")
    }

    pub(crate) fn try_turn(&self, request: &AgentRequest, answered: &[Pending]) -> Result<Box<dyn AgentTurn>, Fault> {
        let turn = TurnRequest::new(request, &self.state, answered).with_protocol_events(self.are_events_read);
        self.connector.turn(&turn)
    }

    /// Drives a turn over answers.
    pub(crate) fn drive(
        &mut self,
        request: &AgentRequest,
        answered: &[Pending],
        answers: impl IntoIterator<Item = Answer>,
    ) -> Outcome {
        let mut turn = self.turn(request, answered);
        let driven = driven(turn.as_mut(), answers);
        if let Some(state) = turn.session_state() {
            self.state = state;
        }
        Outcome { driven, turn }
    }
}

/// A request that decides about the only item that waits.
pub(crate) fn answering(waiting: &Outcome, decided: &CheckedDecision) -> (AgentRequest, Vec<Pending>) {
    let items = waiting.driven.record.run().pending();
    let [item] = items.as_slice() else { panic!("one item: {items:?}") };
    (answers_of(vec![decided.message(item, true)]), items)
}

/// A request of these messages, of the run that follows.
pub(crate) fn answers_of(input: Vec<Message>) -> AgentRequest {
    AgentRequest { input: input.into(), id: Some("response_8".to_owned()), ..AgentRequest::default() }
}

/// The outcome of a turn.
pub(crate) struct Outcome {
    pub(crate) driven: DrivenTurn,
    pub(crate) turn: Box<dyn AgentTurn>,
}

impl Outcome {
    pub(crate) fn requests(&self) -> Vec<String> {
        self.driven.requests.iter().map(request_line).collect()
    }

    pub(crate) fn summary(&self) -> String {
        summary(&self.driven.record, self.turn.as_ref())
    }

    /// The end of the turn: kind, code and message.
    pub(crate) fn end(&self) -> String {
        end(&self.driven.record)
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.driven.record.run().messages.iter().map(interlingua_core::run::Message::text).collect()
    }
}

/// A turn driven over answers.
pub(crate) fn driven(turn: &mut dyn AgentTurn, answers: impl IntoIterator<Item = Answer>) -> DrivenTurn {
    let driven = testkit::drive(turn, answers);
    testkit::grammar(&driven.record).expect("the record keeps the grammar");
    driven
}

pub(crate) fn request_line(request: &HttpRequest) -> String {
    let path = request.url.strip_prefix(URL).unwrap_or(&request.url);
    let body = String::from_utf8_lossy(&request.body);
    format!("{} {path} {body}", request.method).trim_end().to_owned()
}

pub(crate) fn body(value: &Value) -> Answer {
    Answer::body(&value.to_string())
}

pub(crate) fn created() -> Answer {
    body(&json!({ "session_id": "s1" }))
}

pub(crate) fn started() -> Answer {
    body(&json!({ "status": "started", "session_id": "s1" }))
}

pub(crate) fn status(word: &str) -> Answer {
    body(&json!({ "session_id": "s1", "status": word }))
}

/// An answer with a status that is no success, as the gateway hands it on.
pub(crate) fn refusal(turn: &dyn AgentTurn, status: u16, body: &str) -> Answer {
    Answer::Fault(turn.map_refusal(&Refusal { status, body: body.as_bytes(), retry_after: None }))
}

/// Events of a stream, each written short: `TYPE {fields}`. Ids are numbered, and all are of reply `r1` unless they say
/// another.
pub(crate) fn frames(events: &[&str]) -> String {
    let mut text = String::new();
    for (number, event) in events.iter().enumerate() {
        let (kind, fields) = event.split_once(' ').unwrap_or((event, "{}"));
        let mut all = json!({ "id": format!("e{number}"), "metadata": {}, "type": kind, "reply_id": "r1" });
        let given: Value = serde_json::from_str(fields).expect("fields");
        let fields = all.as_object_mut().expect("an object");
        fields.extend(given.as_object().expect("an object").clone());
        let _ = write!(text, "data: {all}\n\n");
    }
    text
}

pub(crate) fn reply(events: &[&str]) -> String {
    let mut all = vec!["REPLY_START {}"];
    all.extend(events);
    all.push(r#"REPLY_END {"finished_reason":"completed","error":null}"#);
    frames(&all)
}

/// The first turn of a session, whose stream holds this. The stream does not end.
pub(crate) fn read(options: &Value, stream: &str) -> Outcome {
    Session::new(options).drive(&says("hi"), &[], [created(), started(), open(stream)])
}

/// A stream that stays open: the next answer continues it.
pub(crate) fn open(stream: &str) -> Answer {
    Answer::Cut(vec![stream.as_bytes().to_vec()])
}

pub(crate) fn end(record: &Record) -> String {
    let turn = &record.run().turns[0];
    let end = turn.end.map_or("open", interlingua_core::End::as_str);
    let error = turn.error.as_ref().map(|error| format!(" {}: {}", error.code, error.message));
    format!("{end}{}", error.unwrap_or_default())
}

/// A record in lines: each message with its contents, the end, and what the turn says of itself.
pub(crate) fn summary(record: &Record, turn: &dyn AgentTurn) -> String {
    let mut lines = String::new();
    for message in &record.run().messages {
        let shown = message.to_model();
        let role = shown.role.as_ref().map_or("", |role| role.as_str());
        let end = message.end.map_or("open", interlingua_core::End::as_str);
        let _ = writeln!(lines, "{} {role} {} {end}", shown.id.as_deref().unwrap_or(""), shown.kind.as_str());
        for content in &shown.content {
            let _ = match &content.body {
                Body::Text(text) => writeln!(lines, "  text {text:?}"),
                Body::Data(data) => writeln!(lines, "  data {}", data.text()),
                other => writeln!(lines, "  {other:?}"),
            };
        }
        if let Some(metadata) = &shown.metadata {
            let _ = writeln!(lines, "  metadata {}", metadata.text());
        }
    }

    let _ = writeln!(lines, "{}", end(record));
    let last = record.run().turns.last().expect("a turn");
    if let Some(usage) = &last.usage {
        let _ = writeln!(lines, "usage {}", usage.text());
    }
    if let Some(state) = turn.session_state() {
        let _ = writeln!(lines, "state {}", state.text());
    }
    for loss in turn.losses() {
        let change = serde_json::to_value(loss.change).expect("a word");
        let _ = writeln!(lines, "{} {loss}", change.as_str().expect("a word"));
    }
    lines
}
