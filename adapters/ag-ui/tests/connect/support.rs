//! Shared parts of this connector's tests: turns, events, and their outcome as lines.

use std::fmt::Write as _;

use interlingua_ag_ui::{AgUiUpstream, UpstreamOptions};
use interlingua_core::Json;
use interlingua_core::connector::{AgentTurn, Connector, Next, TurnRequest, UpstreamAdapter};
use interlingua_core::loss::Loss;
use interlingua_core::model::{AgentRequest, Body};
use interlingua_core::pending::Pending;
use interlingua_core::run::Record;
use interlingua_core::tree::Node;
use interlingua_core_testkit::{self as testkit, Answer, DrivenTurn};
use serde_json::{Value, json};

pub(crate) fn connector(options: &str) -> Box<dyn Connector> {
    let options: UpstreamOptions = serde_json::from_str(options).expect("options");
    AgUiUpstream::connect("http://agent/", options).expect("a URL")
}

/// A canonical request.
pub(crate) fn request(body: &str) -> AgentRequest {
    let mut request = AgentRequest::parse(&Node::parse_object(body.as_bytes()).expect("JSON")).expect("a request");
    request.id.get_or_insert("run-7".to_owned());
    request.session_id.get_or_insert("thread-1".to_owned());
    request
}

/// The input of a turn.
pub(crate) struct Case<'a> {
    pub(crate) options: &'a str,
    pub(crate) request: &'a str,
    /// The number of leading messages that are history.
    pub(crate) history: usize,
    pub(crate) answered: &'a [Pending],
    pub(crate) protocol_events: bool,
}

impl Default for Case<'_> {
    fn default() -> Self {
        Self {
            options: "{}",
            request: r#"{"input":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"locate"}}]}"#,
            history: 0,
            answered: &[],
            protocol_events: true,
        }
    }
}

impl Case<'_> {
    pub(crate) fn turn(&self) -> Box<dyn AgentTurn> {
        let request = request(self.request);
        let ids: Vec<String> = (0..request.input.len()).map(|place| format!("id-{place}")).collect();
        let state = Json::null();
        let turn = TurnRequest::new(&request, &state, self.answered)
            .with_history(0..self.history)
            .with_message_ids(&ids)
            .with_protocol_events(self.protocol_events)
            .with_agent("travel");
        connector(self.options).turn(&turn).expect("it can be expressed")
    }

    /// The request of the turn.
    pub(crate) fn sent(&self) -> Value {
        body_of(&mut *self.turn())
    }

    /// The outcome of an answer.
    pub(crate) fn read(&self, answer: Answer) -> String {
        let mut turn = self.turn();
        let driven = driven(&mut *turn, [answer]);
        summary(&driven.record, &*turn)
    }
}

/// The body of the first request of a turn.
pub(crate) fn body_of(turn: &mut dyn AgentTurn) -> Value {
    let Ok(Next::Send(request)) = turn.next(0) else { panic!("a request") };
    serde_json::from_slice(&request.body).expect("JSON")
}

/// Events as a stream. An event is written short: `TYPE {fields}`; other lines of a stream as they are.
pub(crate) fn stream(events: &[&str]) -> String {
    let mut text = String::new();
    for event in events {
        let is_line = ["data:", "event:", ":", "id:", "{", "["].iter().any(|start| event.starts_with(start));
        if is_line {
            let data = if event.starts_with(['{', '[']) { "data: " } else { "" };
            let _ = write!(text, "{data}{event}\n\n");
            continue;
        }
        let (kind, fields) = event.split_once(' ').unwrap_or((event, "{}"));
        let fields = fields.strip_prefix('{').expect("fields");
        let comma = if fields == "}" { "" } else { "," };
        let _ = write!(text, "data: {{\"type\":\"{kind}\"{comma}{fields}\n\n");
    }
    text
}

/// A stream that begins and ends as every one does.
pub(crate) fn whole_stream(events: &[&str]) -> String {
    let mut all = vec![r#"RUN_STARTED {"threadId":"thread-1","runId":"run-7"}"#];
    all.extend(events);
    all.push(r#"RUN_FINISHED {"threadId":"thread-1","runId":"run-7"}"#);
    stream(&all)
}

/// A turn driven over answers.
pub(crate) fn driven(turn: &mut dyn AgentTurn, answers: impl IntoIterator<Item = Answer>) -> DrivenTurn {
    let driven = testkit::drive(turn, answers);
    testkit::grammar(&driven.record).expect("the record keeps the grammar");
    driven
}

/// A record in lines: each message with its contents, what it waits for, the end, and what was lost.
pub(crate) fn summary(record: &Record, turn: &dyn AgentTurn) -> String {
    let mut lines = String::new();
    for message in &record.run().messages {
        let shown = message.to_model();
        let role = shown.role.as_ref().map_or("", |role| role.as_str());
        let end = message.end.map_or("open", |end| end.as_str());
        let changed =
            if message.announced == message.kind { String::new() } else { format!(" (was {})", message.announced) };
        let _ = writeln!(lines, "{} {role} {}{changed} {end}", shown.id.as_deref().unwrap_or(""), shown.kind.as_str());
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

    for item in record.run().pending() {
        let decisions: Vec<&str> = item.decisions.iter().map(|decision| decision.as_str()).collect();
        let _ = writeln!(
            lines,
            "waits for {:?} {} {} {} [{}]",
            item.kind,
            item.id,
            item.name,
            item.arguments,
            decisions.join(" ")
        );
    }
    let last = record.run().turns.last().expect("a turn");
    let _ = write!(lines, "{}", last.end.map_or("open", |end| end.as_str()));
    if let Some(error) = &last.error {
        let _ = write!(lines, " {}: {}", error.code, error.message);
    }
    if let Some(usage) = &last.usage {
        let _ = write!(lines, " usage {}", usage.text());
    }
    let _ = writeln!(lines);
    for Loss { kind, change, how, count } in turn.losses() {
        let _ = writeln!(lines, "{change:?} {}: {how} ×{count}", kind.as_str());
    }
    lines
}

/// A decision in canonical form.
pub(crate) fn decision(id: &str, extension: Value) -> Value {
    let approve = extension["decision"] != "reject" && extension["decision"] != "cancel";
    let data = json!({ "approval_request_id": id, "id": id, "approve": approve, "interrupt": extension });
    json!({ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] })
}

/// The pending items at the end of a run.
pub(crate) fn pending(events: &[&str], options: &str) -> Vec<Pending> {
    let mut turn = Case { options, ..Case::default() }.turn();
    driven(&mut *turn, [Answer::stream(&stream(events))]).record.run().pending()
}
