//! The scripted service of AgentScope 2.0 writes what the recorded one writes: each event has every field of the
//! recorded event of its type, with a value of the same type, and the events of a reply come in the same order.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core_testkit::recorded_exchanges;
use interlingua_core_testkit::scenario::{self, Mark};
use interlingua_testing_agents::{Stage, find, serve};
use serde_json::{Value, json};

/// Events that the service sends about itself and its model.
const BESIDES: [&str; 4] = ["HINT_BLOCK", "CUSTOM", "MODEL_CALL_START", "MODEL_CALL_END"];

/// Sends a request, and reads its answer until it has one of these texts or ends.
fn ask(address: SocketAddr, method: &str, path: &str, body: &str, until: &[&str]) -> String {
    let mut socket = TcpStream::connect(address).expect("the agent serves");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let length = body.len();
    write!(socket, "{method} {path} HTTP/1.1\r\nhost: agent\r\ncontent-length: {length}\r\n\r\n{body}")
        .expect("it is sent");

    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if text.ends_with("\r\n0\r\n\r\n") || until.iter().any(|end| text.contains(end) && text.ends_with("\n\n\r\n")) {
            return text;
        }
        let count = socket.read(&mut piece).expect("an answer");
        assert!(count > 0, "the answer broke off: {text}");
        bytes.extend_from_slice(&piece[..count]);
    }
}

/// The events in a stream, without those that are no part of a reply. Pieces of one block count once.
fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut events: Vec<Value> = data.map(|data| serde_json::from_str(data).expect("JSON")).collect();
    events.retain(|event| !BESIDES.iter().any(|kind| event["type"] == *kind));
    events.dedup_by(|later, earlier| {
        let is_piece = later["type"].as_str().is_some_and(|kind| kind.ends_with("_DELTA"));
        is_piece && later["type"] == earlier["type"]
    });
    events
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// The events of the scripted service in the first turn of a scenario.
fn written(name: &str) -> Vec<Value> {
    let stage = Arc::new(Stage::default());
    let play = stage.open(scenario::find(name), None);
    let server = serve(find("agentscope"), stage);
    let created = ask(server.address(), "POST", "/sessions/", r#"{"agent_id":"scripted"}"#, &[]);
    assert!(created.contains(r#"{"session_id":"session-0"}"#), "{created}");

    let words = Mark { play, turn: 0 }.words("hello");
    let message = json!({ "id": "m1", "name": "user", "role": "user", "content": [{ "type": "text", "text": words }] });
    let body = json!({ "agent_id": "scripted", "session_id": "session-0", "input": [message] });
    let started = ask(server.address(), "POST", "/chat/", &body.to_string(), &[]);
    assert!(started.contains(r#""status":"started""#), "{started}");

    let path = "/sessions/session-0/stream?agent_id=scripted";
    let ends = ["REPLY_END", "REQUIRE_USER_CONFIRM", "REQUIRE_EXTERNAL_EXECUTION"];
    events(&ask(server.address(), "GET", path, "", &ends))
}

#[test]
fn events_are_those_of_agentscope() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/agentscope/agentscope-2.0.10");
    let recorded: BTreeMap<String, _> = recorded_exchanges(&folder).into_iter().collect();
    for (recording, scenario, is_same_script) in [
        ("hello-3-stream", "text", true),
        ("reasoning-3-stream", "reasoning", true),
        ("tool-3-stream", "agent-tool", false),
        ("client-tool-3-stream", "client-tool", true),
        ("approval-3-stream", "approval-accept", false),
        ("fail-3-stream", "failure-after-words", false),
        ("empty-3-stream", "empty", true),
    ] {
        let body = String::from_utf8(recorded[recording].body.clone()).expect("UTF-8");
        let (recorded, written) = (events(&body), written(scenario));
        if is_same_script {
            assert_eq!(kinds(&recorded), kinds(&written), "{recording}");
        }
        for event in &recorded {
            let Some(own) = written.iter().find(|own| own["type"] == event["type"]) else { continue };
            for (name, value) in event.as_object().expect("an object") {
                let (kind, own) = (type_of(value), own.get(name).map_or("missing", type_of));
                assert!(own == kind, "{recording}: {name} of {} is {own}, not {kind}", event["type"]);
            }
        }
        assert!(written.len() >= 2, "{recording}: {written:?}");
    }
}
