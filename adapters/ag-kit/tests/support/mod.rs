//! Drives exchanges as the server does, with records normalized from Agent API frames. Has no assertions of its own
//! about single cases.

#![allow(dead_code)]

use std::collections::HashMap;
use std::sync::Arc;

use interlingua_ag_kit::{AgKit, Options};
use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::call::{AgentCard, Delivery, RunInfo, RunState, RunView};
use interlingua_core::exchange::{Flow, Method};
use interlingua_core::model::{AgentRequest, MessageType};
use interlingua_core::pending::{Decision, PendingKind};
use interlingua_core::run::{Message, Record};
use interlingua_core::{Call, End, Exchange, Fault, Json, Mount, Out, ProtocolAdapter};
use interlingua_core_testkit::{self as testkit, NOW};

pub(crate) fn card(name: &str, decisions: &'static [Decision]) -> Arc<AgentCard> {
    Arc::new(AgentCard { name: name.into(), decisions, ..AgentCard::default() })
}

pub(crate) fn options(json: &str) -> Options {
    serde_json::from_str(json).expect("options")
}

pub(crate) fn mount(agents: Vec<Arc<AgentCard>>) -> Mount {
    Mount { path: "/ag-kit".into(), agents, public_url: None, schemes: Vec::new() }
}

/// Opens an endpoint of a route with one agent, `demo`.
pub(crate) fn open(path: &str, options: &str) -> Box<dyn Exchange> {
    open_for(vec![card("demo", ALL_DECISIONS)], path, options)
}

pub(crate) fn open_for(agents: Vec<Arc<AgentCard>>, path: &str, json: &str) -> Box<dyn Exchange> {
    let mounted = AgKit::mount(&mount(agents), options(json)).expect("mounts");
    let endpoint = mounted.endpoints.iter().find(|endpoint| endpoint.path == path).expect("an endpoint");
    assert_eq!(endpoint.method == Method::Get, path == "/healthz");
    (endpoint.open)()
}

/// Sends a request body.
pub(crate) fn decode(exchange: &mut dyn Exchange, body: &str) -> Result<Call, Fault> {
    decode_with(exchange, body.as_bytes(), "application/json", &[])
}

pub(crate) fn decode_with(
    exchange: &mut dyn Exchange,
    body: &[u8],
    media: &str,
    params: &[(String, String)],
) -> Result<Call, Fault> {
    let request = testkit::ClientRequest {
        headers: &[("content-type", media), ("x-user", "ada")],
        params,
        body,
        base_url: "http://127.0.0.1:8080/ag-kit",
        ..testkit::ClientRequest::new("POST", "/ag-kit/send-message")
    };
    request.decode(exchange)
}

/// The metadata of a run.
pub(crate) fn about(labels: Json) -> RunInfo {
    RunInfo {
        protocol: AgKit::NAME.into(),
        owner: "anonymous".into(),
        state: RunState::Ended(End::Completed),
        changed_at: NOW,
        previous: None,
        delivery: Delivery::Stream,
        stored: true,
        request: AgentRequest::default(),
        labels,
        tags: interlingua_core::call::Tags::new(),
        retention: None,
    }
}

/// Replays a complete record.
pub(crate) fn replay(record: &Record, options: &str, labels: Json) -> String {
    let mut exchange = open("/send-message", options);
    let about = about(labels);
    let mut out = Out::new();
    exchange.begin(RunView { record, info: &about, pending: &[] }, &mut out);

    let mut closed = false;
    for step in record.steps(0) {
        assert!(!closed, "nothing is sent after the end");
        closed = exchange.encode(step, &mut out) == Flow::Close;
    }

    assert!(closed, "the stream ends");
    String::from_utf8(out.body.to_vec()).expect("UTF-8")
}

/// Encodes a run from Agent API frames.
pub(crate) fn stream(frames: &[&str], options: &str) -> String {
    replay(&normalized(frames), options, Json::null())
}

pub(crate) fn normalized(frames: &[&str]) -> Record {
    let stream: Vec<u8> = frames.iter().flat_map(|frame| format!("data: {frame}\n\n").into_bytes()).collect();
    interlingua_core_testkit::record([stream.as_slice()])
}

// Shorthands for Agent API frames.

pub(crate) fn created() -> String {
    r#"{"object":"response","status":"created","id":"response_1"}"#.into()
}

pub(crate) fn completed() -> String {
    r#"{"object":"response","status":"completed","id":"response_1"}"#.into()
}

pub(crate) fn message(id: &str, kind: &str, status: &str) -> String {
    format!(r#"{{"object":"message","status":"{status}","id":"{id}","type":"{kind}"}}"#)
}

pub(crate) fn text(id: &str, text: &str) -> String {
    format!(
        r#"{{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"{id}","text":{text:?}}}"#
    )
}

pub(crate) fn data(id: &str, index: usize, data: &str) -> String {
    format!(
        r#"{{"object":"content","status":"completed","type":"data","index":{index},"delta":false,"msg_id":"{id}","data":{data}}}"#
    )
}

/// The frames of a complete message with one data content.
pub(crate) fn data_message(id: &str, kind: &str, body: &str) -> Vec<String> {
    vec![message(id, kind, "in_progress"), data(id, 0, body), message(id, kind, "completed")]
}

/// The frames of a complete message with one text.
pub(crate) fn text_message(id: &str, kind: &str, fragments: &[&str]) -> Vec<String> {
    let mut frames = vec![message(id, kind, "in_progress")];
    frames.extend(fragments.iter().map(|fragment| text(id, fragment)));
    frames.push(message(id, kind, "completed"));
    frames
}

/// The frames of a completed run with these messages.
pub(crate) fn run(messages: Vec<Vec<String>>) -> Vec<String> {
    let mut frames = vec![created()];
    frames.extend(messages.into_iter().flatten());
    frames.push(completed());
    frames
}

pub(crate) fn record(messages: Vec<Vec<String>>) -> Record {
    let frames = run(messages);
    normalized(&frames.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Checks the rules of docs/protocols/ag-kit.md#order-rules, one by one.
pub(crate) fn keeps_the_order_rules(output: &str, record: &Record) {
    assert!(output.ends_with("data: [DONE]\n\n") && output.matches("[DONE]").count() == 1, "{output}");
    let mut calls: HashMap<String, &str> = HashMap::new();
    let events = events(output);
    for (index, event) in events.iter().enumerate() {
        let id = || event["toolCallId"].as_str().expect("an id").to_owned();

        match event["type"].as_str().expect("a type") {
            "tool-call-start" => assert!(calls.insert(id(), "started").is_none(), "{output}"),
            "tool-call-args" => assert_eq!(calls[&id()], "started", "{output}"),
            "tool-call-end" => assert_eq!(calls.insert(id(), "ended"), Some("started"), "{output}"),
            "tool-result" => assert_eq!(calls.insert(id(), "answered"), Some("ended"), "{output}"),
            "interrupt" | "error" => assert_eq!(index + 1, events.len(), "{output}"),
            "text" => {}
            other => panic!("{other}"),
        }
    }

    let last = events.last().and_then(|event| event["type"].as_str());
    match record.run().end.expect("it has ended") {
        End::Failed | End::Rejected => assert_eq!(last, Some("error"), "{output}"),
        End::Completed | End::Incomplete => {
            let asks = record.run().pending().iter().any(|item| item.kind != PendingKind::Tool);
            assert_eq!(last == Some("interrupt"), asks, "{output}");
        }
        End::Canceled => {}
    }

    if last == Some("interrupt") {
        return;
    }
    // A call without a result must be one for the client.
    for (id, _) in calls.iter().filter(|(_, state)| **state == "ended") {
        let calls = |message: &&Message| {
            message.slots.iter().any(|slot| slot.call.as_ref().is_some_and(|head| head.call_id == *id))
        };
        let announced = record.run().messages.iter().find(calls).map(|message| &message.announced);
        let is_waited_for = record.run().pending().iter().any(|item| item.id == *id);
        assert!(is_waited_for || announced == Some(&MessageType::FunctionCall), "{output}");
    }
}

/// Checks that all text of the answer was sent, provided that nothing was replaced.
pub(crate) fn nothing_is_lost(output: &str, record: &Record) {
    let events = events(output);
    let texts = events.iter().filter_map(|event| event["content"].as_str()).filter(|text| *text != "\n\n");
    let messages = record.run().messages.iter().filter(|message| message.announced == MessageType::Message);
    assert_eq!(
        texts.map(str::len).sum::<usize>(),
        messages.map(|message| message.text().len()).sum::<usize>(),
        "{output}"
    );
}

/// The events of a stream without `[DONE]`.
pub(crate) fn events(output: &str) -> Vec<serde_json::Value> {
    let frames = output.split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
    frames.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).expect("JSON")).collect()
}
