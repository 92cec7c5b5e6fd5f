//! Shared parts of this connector's tests: turns, events, and their outcome.

use interlingua_anthropic_messages::{AnthropicMessagesUpstream, UpstreamOptions};
use interlingua_core::connector::{AgentTurn, Connector, HttpRequest, Next, TurnRequest, UpstreamAdapter};
use interlingua_core::model::AgentRequest;
use interlingua_core::tree::Node;
use interlingua_core::{Json, Loss, Record};
use interlingua_core_testkit::{self as testkit, Answer};
use serde_json::Value;

pub(crate) fn connector(options: &str) -> Box<dyn Connector> {
    let options: UpstreamOptions = serde_json::from_str(options).expect("options");
    AnthropicMessagesUpstream::connect("http://agent/anthropic", options).expect("a URL")
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

/// A turn for a request, in a session with this state.
pub(crate) fn turn_of(options: &str, body: &str, state: &str) -> Box<dyn AgentTurn> {
    let request = request(body);
    let state = Json::parse(state).expect("JSON");
    let turn = TurnRequest::new(&request, &state, &[]).with_agent("claude");
    connector(options).turn(&turn).expect("it can be expressed")
}

pub(crate) fn http(turn: &mut dyn AgentTurn) -> HttpRequest {
    let Ok(Next::Send(request)) = turn.next(0) else { panic!("a request") };
    request
}

/// The first request of a turn.
pub(crate) fn sent(options: &str, body: &str, state: &str) -> Value {
    serde_json::from_slice(&http(&mut *turn_of(options, body, state)).body).expect("JSON")
}

/// The first request of a turn, and the losses of the client's request.
pub(crate) fn sent_with_losses(options: &str, body: &Value) -> (Value, Vec<Loss>) {
    let mut turn = turn_of(options, &body.to_string(), "null");
    let sent = serde_json::from_slice(&http(&mut *turn).body).expect("JSON");
    (sent, turn.losses().to_vec())
}

/// Lines as an event stream: each is a frame's data, unless it begins like another line of a stream. The name of a
/// frame is the type in its data.
pub(crate) fn stream(lines: &[&str]) -> String {
    let frame = |line: &&str| {
        if line.starts_with("data:") {
            return format!("{line}\n\n");
        }
        if ["event:", ":", "id:"].iter().any(|start| line.starts_with(start)) {
            return format!("{line}\n");
        }
        let kind = serde_json::from_str::<Value>(line).ok().and_then(|value| Some(value["type"].as_str()?.to_owned()));
        let named = kind.map(|kind| format!("event: {kind}\n")).unwrap_or_default();
        format!("{named}data: {line}\n\n")
    };
    lines.iter().map(frame).collect()
}

/// Events written short; all else as it is.
///
/// `start`: the head. `N text`, `N thinking`, `N tool ID NAME`, `N {…}`: a block begins. `N + …`, `N ~ …`, `N > …`, `N
/// $ …`: a piece of text, of a thought, of input, a signature. `N .`: it ends. `end REASON`, `stop`: the end. `-` for
/// N: no index.
pub(crate) fn event(short: &str) -> String {
    let text = |text: &str| Value::from(text).to_string();
    if short == "start" {
        return r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":null,"usage":{"input_tokens":7,"output_tokens":1}}}"#.to_owned();
    }
    if short == "stop" {
        return r#"{"type":"message_stop"}"#.to_owned();
    }
    if let Some(reason) = short.strip_prefix("end ") {
        let delta = format!(r#"{{"stop_reason":{},"stop_sequence":null}}"#, text(reason));
        return format!(r#"{{"type":"message_delta","delta":{delta},"usage":{{"output_tokens":5}}}}"#);
    }

    let (index, rest) = short.split_once(' ').unwrap_or((short, ""));
    let is_index = index == "-" || (!index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_index {
        return short.to_owned();
    }
    let index = if index == "-" { String::new() } else { format!(r#","index":{index}"#) };
    let start = |block: &str| format!(r#"{{"type":"content_block_start"{index},"content_block":{block}}}"#);
    let delta = |delta: &str| format!(r#"{{"type":"content_block_delta"{index},"delta":{delta}}}"#);
    let piece =
        |kind: &str, field: &str, piece: &str| delta(&format!(r#"{{"type":"{kind}","{field}":{}}}"#, text(piece)));
    match rest.split_once(' ').unwrap_or((rest, "")) {
        ("text", _) => start(r#"{"type":"text","text":""}"#),
        ("thinking", _) => start(r#"{"type":"thinking","thinking":"","signature":""}"#),
        ("tool", call) => {
            let (id, name) = call.split_once(' ').unwrap_or((call, ""));
            start(&format!(r#"{{"type":"tool_use","id":{},"name":{},"input":{{}}}}"#, text(id), text(name)))
        }
        ("+", said) => piece("text_delta", "text", said),
        ("~", thought) => piece("thinking_delta", "thinking", thought),
        (">", input) => piece("input_json_delta", "partial_json", input),
        ("$", signature) => piece("signature_delta", "signature", signature),
        (".", _) => format!(r#"{{"type":"content_block_stop"{index}}}"#),
        _ if rest.starts_with('{') => start(rest),
        _ => panic!("{short}"),
    }
}

/// Short events as a stream.
pub(crate) fn events(short: &[&str]) -> String {
    let events: Vec<String> = short.iter().map(|short| event(short)).collect();
    stream(&events.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The outcome of an answer, and the losses.
pub(crate) fn driven(options: &str, answer: Answer) -> (Record, Vec<Loss>) {
    let mut turn = turn(options);
    let driven = testkit::drive(&mut *turn, [answer]);
    testkit::grammar(&driven.record).expect("the record keeps the grammar");
    (driven.record, turn.losses().to_vec())
}

/// The record of short events.
pub(crate) fn record(short: &[&str]) -> Record {
    driven("{}", Answer::stream(&events(short))).0
}

/// A record as lines, without what every one begins and ends with, with metadata and losses.
pub(crate) fn lines((record, losses): &(Record, Vec<Loss>)) -> String {
    let rendered = testkit::render(record);
    let lines: Vec<&str> = rendered.lines().collect();
    let mut lines = lines[2..lines.len() - 1].join("\n");
    for (place, message) in record.run().messages.iter().enumerate() {
        if let Some(metadata) = &message.metadata {
            lines.push_str(&format!("\nmetadata {place} {}", metadata.text()));
        }
    }
    for loss in losses {
        lines.push_str(&format!("\n{:?} {loss}", loss.change));
    }
    lines
}
