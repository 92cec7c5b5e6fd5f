//! A hostile AG-UI client, and a hostile agent of that protocol behind the gateway: bytes as the input of a run, and as
//! an event that is passed on. The input is refused with an error of the protocol, or it is a valid call; a stream
//! consists of JSON objects with a type, or of whole protobuf messages.
#![no_main]

use std::sync::LazyLock;

use interlingua_ag_ui::{AgUi, Options};
use interlingua_core::agent_event::{AgentEvent, ContentValue};
use interlingua_core::exchange::{Mounted, ProtocolAdapter};
use interlingua_core::model::{Message, MessageType, Role};
use interlingua_core_testkit::{self as testkit, ClientRequest, Recorder, TestRun};
use interlingua_core::{Fault, Json, Out};
use interlingua_fuzz::edited;
use libfuzzer_sys::fuzz_target;

const SEEDS: &[&[u8]] = &[
    br#"{"threadId":"t","runId":"r","protocolVersion":"1.0","state":{},"messages":[{"id":"u","role":"user","content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"data","value":"AQ==","mimeType":"image/png"}}]},{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"id":"o","role":"tool","toolCallId":"c","content":"x"}],"tools":[{"name":"f","description":"","parameters":{}}],"context":[{"description":"d","value":"v"}],"forwardedProps":{"command":{"resume":true}},"resume":[{"interruptId":"i","status":"resolved","payload":{"approved":true}}]}"#,
    br#"{"protocol":"ag-ui","event":{"type":"STATE_DELTA","delta":[{"op":"move","from":"/a","path":"/b"},{"op":"add","path":"","value":null}]}}"#,
    br#"{"protocol":"ag-ui","event":{"type":"STEP_STARTED","stepName":"a","subagentRunId":"s","metadata":null,"timestamp":1.5}}"#,
    br#"{"protocol":"ag-ui","event":{"type":"ACTIVITY_SNAPSHOT","messageId":"m","activityType":"P","content":{"a":[1,{}]},"replace":true}}"#,
    br#"{"protocol":"ag-ui","event":{"type":"CUSTOM","name":"n","value":[1e9,"\ud83e\udd80",{"a":{"b":null}}]}}"#,
    br#"{"protocol":"ag-ui","event":{"type":"CUSTOM","name":"n","value":"\ud83e","type":"STEP_STARTED","stepName":"\udd80"}}"#,
];

static MOUNTED: LazyLock<Mounted> =
    LazyLock::new(|| AgUi::mount(&testkit::mount("/ag-ui", &["demo"]), Options::default()).expect("it mounts"));

/// The fields that every event has, once.
#[derive(serde::Deserialize)]
struct Head {
    #[serde(rename = "type")]
    kind: String,
}

/// The streams of a run in which an agent sends this as one of its events.
fn pass_on(data: Json) {
    let mut recorder = Recorder::new(vec![Message::user("hi")]);
    let data = ContentValue::OwnedData(data);
    recorder.emit(&AgentEvent::whole("e", MessageType::ProtocolEvent, Role::Assistant, data));
    let record = recorder.finish();
    let run = TestRun::new(&record);

    for accept in ["text/event-stream", "application/vnd.ag-ui.event+proto"] {
        let (endpoint, _) = testkit::endpoint(&MOUNTED, "POST", "").expect("an endpoint");
        let mut exchange = (endpoint.open)();
        let request = ClientRequest {
            headers: &[("accept", accept)],
            ..ClientRequest::post("", br#"{"threadId":"t","runId":"r","protocolVersion":"1.0","messages":[]}"#)
        };
        request.decode(exchange.as_mut()).expect("a request");
        let mut out = Out::new();
        exchange.begin(run.view(), &mut out);
        for step in record.steps(0) {
            exchange.encode(step, &mut out);
        }
        if accept == "text/event-stream" {
            let text = std::str::from_utf8(&out.body).expect("UTF-8");
            for line in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
                // An agent's texts may be halves of characters, which some readers take.
                let event: Head = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
                assert!(!event.kind.is_empty(), "{line}");
            }
        } else {
            let mut rest = &out.body[..];
            while let Some((length, body)) = rest.split_first_chunk::<4>() {
                let length = usize::try_from(u32::from_be_bytes(*length)).expect("a length");
                assert!(length > 0);
                rest = body.get(length..).expect("a whole message");
            }
            assert!(rest.is_empty());
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some(body) = edited(SEEDS, input) else { return };
    let (endpoint, _) = testkit::endpoint(&MOUNTED, "POST", "").expect("an endpoint");
    let mut exchange = (endpoint.open)();
    match ClientRequest::post("", &body).decode(exchange.as_mut()) {
        Ok(_) => drop(exchange.on_not_found(&Fault::not_found("the session"))),
        Err(fault) => {
            let mut out = Out::new();
            exchange.fail(&fault, &mut out);
            let answer: serde_json::Value = serde_json::from_slice(&out.body).expect("a refusal is JSON");
            assert!(answer["error"]["code"].is_string(), "{answer}");
        }
    }
    if let Some(data) = std::str::from_utf8(&body).ok().and_then(Json::parse) {
        pass_on(data);
    }
});
