//! Shared parts of this connector's tests: turns, chunks, and their outcome as text.
#![allow(dead_code, unreachable_pub, reason = "each test file uses what it needs")]

use interlingua_chat_completions::{ChatCompletionsUpstream, UpstreamOptions};
use interlingua_core::connector::{AgentTurn, Connector, Next, TurnRequest, UpstreamAdapter};
use interlingua_core::model::AgentRequest;
use interlingua_core::tree::Node;
use interlingua_core::{Json, Record};
use interlingua_core_testkit::{self as testkit, Answer, DrivenTurn};
use serde_json::Value;

/// A connector with these options.
pub fn connector(options: &str) -> Box<dyn Connector> {
    let options: UpstreamOptions = serde_json::from_str(options).expect("options");
    ChatCompletionsUpstream::connect("http://agent/v1", options).expect("a URL")
}

/// A canonical request.
pub fn request(body: &str) -> AgentRequest {
    let mut request = AgentRequest::parse(&Node::parse_object(body.as_bytes()).expect("JSON")).expect("a request");
    request.id.get_or_insert("response_7".to_owned());
    request
}

/// A turn for a word of the user.
pub fn turn(options: &str) -> Box<dyn AgentTurn> {
    turn_of(options, r#"{"input":[{"role":"user","content":"hi"}]}"#, "null")
}

/// A turn for a request, in a session with this state.
pub fn turn_of(options: &str, body: &str, state: &str) -> Box<dyn AgentTurn> {
    let request = request(body);
    let state = Json::parse(state).expect("JSON");
    let turn = TurnRequest::new(&request, &state, &[]).with_agent("friday");
    connector(options).turn(&turn).expect("it can be expressed")
}

/// The first request of a turn.
pub fn sent(options: &str, body: &str, state: &str) -> Value {
    let Ok(Next::Send(request)) = turn_of(options, body, state).next(0) else { panic!("a request") };
    serde_json::from_slice(&request.body).expect("JSON")
}

/// Lines as an event stream: each is a frame's data, unless it begins like another line of a stream.
pub fn stream(lines: &[&str]) -> String {
    let frame = |line: &&str| {
        let is_line = ["data:", "event:", ":", "id:", "error:"].iter().any(|start| line.starts_with(start));
        if is_line { format!("{line}\n") } else { format!("data: {line}\n\n") }
    };
    lines.iter().map(frame).collect()
}

/// A chunk with one choice. `fields`: of the delta. `reason`: empty for none.
pub fn chunk(fields: &str, reason: &str) -> String {
    let reason = if reason.is_empty() { "null".to_owned() } else { format!("\"{reason}\"") };
    format!(
        r#"{{"id":"c1","object":"chat.completion.chunk","choices":[{{"index":0,"delta":{{{fields}}},"finish_reason":{reason}}}]}}"#
    )
}

/// Chunks as [`chunk`] makes them, written short: `fields`, `fields => reason` or `=> reason`; all else as it is.
pub fn chunks(short: &[&str]) -> Vec<String> {
    let long = |line: &&str| match line.split_once("=> ") {
        Some((fields, reason)) => chunk(fields.trim_end(), reason),
        None if line.starts_with('"') => chunk(line, ""),
        None => (*line).to_owned(),
    };
    short.iter().map(long).collect()
}

/// A turn driven over one answer.
pub fn driven(options: &str, answer: Answer) -> DrivenTurn {
    let driven = testkit::drive(&mut *turn(options), [answer]);
    testkit::grammar(&driven.record).expect("the record keeps the grammar");
    driven
}

/// The record of a stream of short chunks.
pub fn record(options: &str, short: &[&str]) -> Record {
    let lines = chunks(short);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    driven(options, Answer::stream(&stream(&lines))).record
}

/// The tale of a stream of short chunks, without what every one begins and ends with, and the metadata in it.
pub fn tale(options: &str, short: &[&str]) -> String {
    let record = record(options, short);
    let messages = record.run().messages.iter().enumerate();
    let metadata =
        messages.filter_map(|(place, message)| Some(format!("\nmetadata {place} {:?}", message.metadata.as_ref()?)));
    trimmed(&record) + &metadata.collect::<String>()
}

/// The tale of a record, without what every one begins and ends with.
pub fn trimmed(record: &Record) -> String {
    let tale = testkit::render(record);
    let lines: Vec<&str> = tale.lines().collect();
    lines[2..lines.len() - 1].join("\n")
}
