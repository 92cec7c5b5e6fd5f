//! The gateway in front of itself: what its own server side writes for each script is read back to the same.

use std::fmt::Write as _;

use interlingua_core::answer::{ALL_DECISIONS, CheckedDecision, decide, offer};
use interlingua_core::connector::{HttpRequest, Next};
use interlingua_core::model::{Body, Message, MessageType};
use interlingua_core::pending::Decision;
use interlingua_core::{End, Extra, Json, Record, RunCall};
use interlingua_core_testkit::{self as testkit, Answer, DrivenTurn, Recorder, Script};
use serde_json::{Value, json};

use super::agent::{ALL, Dialect, Session, URL, fixed, request};
use crate::support::{self, ClientRequest, DecodedExchange, about, host};

/// The record of a script's answer to a call, as the engine leaves it: a run that waits has not ended.
fn record_of(call: &RunCall, script: &Script) -> Record {
    let mut recorder = Recorder::new(call.request.input.clone());
    for frame in &script.frames {
        recorder.emit(&script.event(frame));
    }
    let run = recorder.record().run();
    let waits = !run.pending().is_empty() || run.turns[0].end == Some(End::Incomplete);
    if waits { recorder.record().clone() } else { recorder.finish() }
}

/// Hands a request of the connector to the server side.
fn receive(sent: &HttpRequest) -> DecodedExchange {
    let host = host();
    let path = sent.url.strip_prefix(URL).expect("a URL of the agent");
    let mut received = ClientRequest::new(sent.method, path).text(std::str::from_utf8(&sent.body).expect("UTF-8"));
    for (name, value) in &sent.headers {
        received = received.header(name, value);
    }
    host.send(&received)
}

/// The first request of a turn.
fn first_request(dialect: Dialect, streaming: bool) -> (Session, HttpRequest) {
    let mut options = fixed(dialect);
    options["streaming"] = json!(streaming);
    let session = Session::new(&options);
    let mut turn = session.turn(&request(vec![Message::user("hi")]), &[]);
    match turn.next(0).expect("a request") {
        Next::Send(sent) => (session, sent),
        other => panic!("no request: {other:?}"),
    }
}

/// The script's record, and what is read of what the server streams of it.
fn streamed(script: &Script, dialect: Dialect) -> (Record, DrivenTurn) {
    let (record, driven, _) = streamed_in_session(script, dialect);
    (record, driven)
}

fn streamed_in_session(script: &Script, dialect: Dialect) -> (Record, DrivenTurn, Session) {
    let (mut session, sent) = first_request(dialect, true);
    let decoded = receive(&sent);
    let record = record_of(decoded.run(), script);
    let mut about = about(&record);
    about.labels = decoded.run().labels.clone();
    let answer = decoded.streamed(&record, about);
    let driven = session.send_text("hi", [Answer::stream(&answer.body)]);
    (record, driven, session)
}

/// The same, of a task that is polled once it waits or has ended.
fn polled(script: &Script, dialect: Dialect) -> DrivenTurn {
    let (mut session, sent) = first_request(dialect, false);
    let decoded = receive(&sent);
    let record = record_of(decoded.run(), script);
    let mut about = about(&record);
    about.labels = decoded.run().labels.clone();

    let task = json!({ "id": support::NEW_ID.to_string(), "contextId": "session-1", "status": { "state": "TASK_STATE_SUBMITTED" } });
    let begun = dialect.body(1, &json!({ "task": task }));
    let get = if dialect.binding == "JSONRPC" {
        let method = if dialect.version == "1.0" { "GetTask" } else { "tasks/get" };
        let body =
            json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": { "id": support::NEW_ID.to_string() } });
        ClientRequest::new("POST", "").body(&body)
    } else {
        let prefix = if dialect.version == "1.0" { "" } else { "/v1" };
        ClientRequest::new("GET", Box::leak(format!("{prefix}/tasks/{}", support::NEW_ID).into_boxed_str()))
    };
    let get = if dialect.version == "1.0" { get.header("a2a-version", "1.0") } else { get };
    let shown = testkit::TestRun::with_info(&record, about);
    let answer = host().send(&get).final_answer(interlingua_core::Reply::Run(shown.view()));
    session.send_text("hi", [begun, Answer::body(&answer.body)])
}

/// JSON without what spellings differ in.
fn plain(text: &str) -> String {
    serde_json::from_str::<Value>(text).map_or_else(|_| format!("{text:?}"), |value| value.to_string())
}

fn field(data: &Json, name: &str) -> String {
    let fields: Extra = data.decode().unwrap_or_default();
    let text = fields.get(name).map(|value| value.decode::<String>().unwrap_or_else(|| value.text().to_owned()));
    text.unwrap_or_default()
}

/// The part of a message that A2A carries, in one line.
fn summary(message: &Message) -> Option<String> {
    let mut line = format!("{} ", message.kind);
    match &message.kind {
        // Lists of tools are not sent by default, and keep-alives are not summarised.
        MessageType::McpListTools | MessageType::Heartbeat => return None,
        // An error that the run survives is a status like any other.
        MessageType::Error => {
            return Some(format!("reasoning text {:?}", message.message.as_deref().unwrap_or_default()));
        }
        kind if kind.is_call() => {
            // Each pending item is an entry of its own.
            let calls = message.calls();
            let calls = calls.map(|call| format!("{line}{} {} {}", call.call_id, call.name, plain(&call.arguments)));
            return Some(calls.collect::<Vec<_>>().join("\n"));
        }
        kind if kind.is_output() => {
            for output in message.outputs() {
                let _ = write!(line, "{} {:?}", output.call_id, output.output);
            }
            return Some(line);
        }
        MessageType::McpApprovalRequest => {
            let data = message.content[0].as_data().expect("data");
            let _ = write!(line, "{} {} {}", field(data, "id"), field(data, "name"), plain(&field(data, "arguments")));
            return Some(line);
        }
        _ => {}
    }
    let mut contents: Vec<String> = Vec::new();
    let mut before = "";
    for content in &message.content {
        let text = std::mem::replace(&mut before, content.as_text().unwrap_or_default());
        match content.as_text() {
            // A text without a letter is not sent.
            Some("") => continue,
            // Nothing stands between two texts.
            Some(more) if !text.is_empty() => {
                contents.pop();
                contents.push(format!("text {:?}", format!("{text}{more}")));
                continue;
            }
            _ => {}
        }
        contents.push(match &content.body {
            Body::Text(text) => format!("text {text:?}"),
            Body::Refusal(text) => format!("refusal {text:?}"),
            Body::Data(data) => format!("data {}", plain(data.text())),
            Body::Image(url) => format!("image {}", url.as_deref().unwrap_or_default()),
            Body::Video(url) => format!("video {}", url.as_deref().unwrap_or_default()),
            Body::Audio { data, .. } => {
                let data = data.as_deref().unwrap_or_default();
                format!("audio {}", data.rsplit_once("base64,").map_or(data, |(_, bytes)| bytes))
            }
            // Of a file that is known by its id alone, the id is data.
            Body::File(file) if file.id.is_some() && file.url.is_none() && file.data.is_none() => {
                let mut fields = json!({ "file_id": file.id });
                if let Some(name) = &file.name {
                    fields["filename"] = json!(name);
                }
                format!("data {fields}")
            }
            Body::File(file) => {
                let data =
                    file.data.as_deref().map(|data| data.rsplit_once("base64,").map_or(data, |(_, bytes)| bytes));
                let place = file.url.as_deref().or(data).unwrap_or_default();
                format!("file {place} {}", file.name.as_deref().unwrap_or_default())
            }
            Body::Other(_) => format!("data {}", plain(Json::from_serialize(content).text())),
        });
    }
    // Nothing is sent of a message that has nothing.
    (!contents.is_empty()).then(|| line + &contents.join("; "))
}

fn lines(record: &Record) -> Vec<String> {
    let messages = record.run().messages.iter();
    let lines = messages.filter_map(|message| summary(&message.to_model()));
    let mut lines: Vec<String> = lines.flat_map(|line| line.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    // Reasoning and calls are sent when they are complete: the order of what overlaps is the server's.
    lines.sort();
    lines
}

fn ended(record: &Record) -> String {
    let turn = &record.run().turns[0];
    // Why an answer was cut off is not sent.
    let error = turn.error.as_ref().filter(|_| turn.end != Some(End::Incomplete));
    let error = error.map(|error| format!(" {}: {}", error.code, error.message)).unwrap_or_default();
    let usage = turn.usage.as_ref().map(|usage| format!(" {}", plain(usage.text()))).unwrap_or_default();
    format!("{}{error}{usage}", turn.end.map_or("open", End::as_str))
}

/// The difference, for people.
fn compare<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T, name: &str, differences: &mut String) {
    if found != expected {
        let _ = writeln!(differences, "{name}\n  found    {found:?}\n  expected {expected:?}");
    }
}

#[test]
fn a_streamed_task_round_trips() {
    let mut differences = String::new();
    for script in testkit::scripts() {
        for dialect in ALL {
            let (record, driven) = streamed(&script, dialect);
            let name = format!("{} {dialect:?}", script.name);
            compare(&lines(&driven.record), &lines(&record), &name, &mut differences);
            compare(&ended(&driven.record), &ended(&record), &name, &mut differences);
            assert_eq!(testkit::grammar(&driven.record), Ok(()), "{name}");
        }
    }
    assert_eq!(differences, "", "{differences}");
}

#[test]
fn a_polled_task_round_trips() {
    let mut differences = String::new();
    for script in testkit::scripts() {
        for dialect in ALL {
            let (streamed, polled) = (streamed(&script, dialect).1, polled(&script, dialect));
            let name = format!("{} {dialect:?}", script.name);
            compare(&lines(&polled.record), &lines(&streamed.record), &name, &mut differences);
            // Only an event reports that an answer was cut off, not the task.
            if script.end != End::Incomplete {
                compare(&ended(&polled.record), &ended(&streamed.record), &name, &mut differences);
            }
        }
    }
    assert_eq!(differences, "", "{differences}");
}

#[test]
fn every_decision_arrives_as_the_same() {
    let edit = CheckedDecision { arguments: Some(r#"{"to":"d@e.f"}"#.into()), ..CheckedDecision::new(Decision::Edit) };
    let payload = Json::parse(r#"{"city":"Paris"}"#);
    for (script, decided) in [
        ("approval", CheckedDecision::new(Decision::Accept)),
        ("approval", CheckedDecision::new(Decision::Reject)),
        ("approval", super::agent::decided(Decision::Reject, Some("not today"))),
        ("approval", super::agent::decided(Decision::Respond, Some("yes"))),
        ("approval_extended", edit),
        ("input_question", CheckedDecision { payload, ..CheckedDecision::new(Decision::Respond) }),
        ("auth", CheckedDecision::new(Decision::Accept)),
        ("auth", CheckedDecision::new(Decision::Reject)),
    ] {
        for dialect in ALL {
            let (record, first, session) = streamed_in_session(&testkit::script(script), dialect);
            let items = first.record.run().pending();
            let input = vec![decided.message(&items[0], true)];
            let mut turn = session.turn(&request(input), &items);
            let Ok(Next::Send(sent)) = turn.next(0) else { panic!("a request") };

            let mut about = about(&record);
            about.labels = receive(&first.requests[0]).run().labels.clone();
            let shown = testkit::TestRun::with_info(&record, about);
            let received = receive(&sent).next_call(interlingua_core::Reply::Run(shown.view()));
            let [answer] = received.run().answers.as_slice() else { panic!("one answer: {script} {decided:?}") };

            let asked = &record.run().pending()[0];
            assert_eq!(answer.id, asked.id);
            let found = decide(asked, &answer.given, &offer(asked, ALL_DECISIONS)).expect("a decision");
            assert_eq!(
                (found.decision, &found.arguments, &found.text),
                (decided.decision, &decided.arguments, &decided.text)
            );
            if script == "input_question" {
                assert_eq!(found.payload, decided.payload);
            }
        }
    }
}
