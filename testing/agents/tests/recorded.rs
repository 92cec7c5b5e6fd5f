//! Scripted agents write what recorded servers write: the same events in the same order, with every field that the
//! server has, of the same type.
//!
//! Ids, texts and numbers differ, and how many pieces a text comes in. A field that a scripted agent has besides is one
//! that other servers of the protocol have.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core_testkit::recorded_exchanges;
use interlingua_core_testkit::scenario::{self, Mark};
use interlingua_testing_agents::{Stage, find, serve};
use serde_json::{Value, json};

/// Fields whose text is a word of the protocol.
const WORDS: [&str; 6] = ["type", "object", "status", "role", "reason", "code"];

/// The event of a frame, and the types of its fields by their paths.
type Shape = (String, BTreeMap<String, String>);

fn fields(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    let name = path.rsplit('.').next().unwrap_or_default();
    let kind = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "boolean".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(word) if WORDS.contains(&name) => format!("{word:?}"),
        Value::String(_) => "string".to_owned(),
        Value::Array(entries) => {
            entries.iter().for_each(|entry| fields(&format!("{path}[]"), entry, into));
            "array".to_owned()
        }
        Value::Object(entries) => {
            entries.iter().for_each(|(name, entry)| fields(&format!("{path}.{name}"), entry, into));
            "object".to_owned()
        }
    };
    into.insert(path.to_owned(), kind);
}

/// The shapes of the frames of a stream. Pieces of one text count once.
fn shapes(stream: &str) -> Vec<Shape> {
    let mut shapes: Vec<Shape> = Vec::new();
    for frame in stream.split("\n\n") {
        let line = |start: &str| frame.lines().find_map(|line| line.strip_prefix(start));
        let Some(data) = line("data: ") else { continue };
        let mut found = BTreeMap::new();
        fields("", &serde_json::from_str(data).unwrap_or_else(|_| panic!("{data}")), &mut found);
        let shape = (line("event: ").unwrap_or_default().to_owned(), found);
        if shapes.last() != Some(&shape) || !shape.0.ends_with(".delta") {
            shapes.push(shape);
        }
    }
    shapes
}

/// Shapes that a recorded server has and a scripted one lacks.
fn missing(recorded: &[Shape], written: &[Shape], allowed: &[&str]) -> Vec<String> {
    let names = |shapes: &[Shape]| shapes.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if names(recorded) != names(written) {
        return vec![format!("events {:?} are {:?}", names(recorded), names(written))];
    }
    let mut wrong = Vec::new();
    for ((event, recorded), (_, written)) in recorded.iter().zip(written) {
        for (path, kind) in recorded {
            let own = written.get(path).map_or("missing", String::as_str);
            let is_same = own == kind || kind == "null" || own == "null";
            // `null` has no fields.
            let is_below_null = written.iter().any(|(above, kind)| kind == "null" && path.starts_with(above.as_str()));
            if !is_same && !is_below_null && !allowed.contains(&path.as_str()) {
                wrong.push(format!("{event}: {path} is {own}, not {kind}"));
            }
        }
    }
    wrong
}

/// An agent's answer to a request with this body: the body of its answer.
fn answer(protocol: &str, scenario: &str, path: &str, request: impl Fn(&str) -> Value) -> String {
    let stage = Arc::new(Stage::default());
    let play = stage.open(scenario::find(scenario), None);
    let server = serve(find(protocol), stage);
    let body = request(&Mark { play, turn: 0 }.words("hello")).to_string();

    let mut socket = TcpStream::connect(server.address()).expect("the agent serves");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    write!(
        socket,
        "POST {path} HTTP/1.1\r\nhost: agent\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("it is sent");

    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while !bytes.ends_with(b"\r\n0\r\n\r\n") {
        let count = socket.read(&mut piece).expect("an answer");
        assert!(count > 0, "the answer broke off");
        bytes.extend_from_slice(&piece[..count]);
    }
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (_, chunks) = text.split_once("\r\n\r\n").expect("a head");
    // Each frame is a chunk: its size, and what it holds.
    chunks.split("\r\n").skip(1).step_by(2).collect()
}

#[test]
fn responses_are_those_of_smg() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/responses/smg-1.13.0");
    let recorded: BTreeMap<String, _> = recorded_exchanges(&folder).into_iter().collect();
    let mut wrong = Vec::new();
    for (name, scenario) in [
        ("hello", "text"),
        ("reasoning", "reasoning"),
        ("tool", "client-tool-after-text"),
        ("parallel", "parallel-client-tools"),
        ("refusal", "refusal"),
        ("incomplete", "incomplete"),
        ("fail", "failure-after-words"),
        ("empty", "empty"),
    ] {
        let asked: Value = serde_json::from_str(&recorded[name].request).expect("JSON");
        let written = answer("responses", scenario, "/v1/responses", |words| {
            json!({ "model": "m", "stream": true, "tools": asked["tools"], "input": [
                { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": words }] }] })
        });
        let body = String::from_utf8(recorded[name].body.clone()).expect("UTF-8");
        let allowed = [
            // The scripted model of that recording repeats the name of a call, and marks continued reasoning.
            ".name",
            ".item.status",
            ".item.summary[].status",
            ".response.output[].status",
        ];
        let found = missing(&shapes(&body), &shapes(&written), &allowed);
        wrong.extend(found.into_iter().map(|found| format!("{name}: {found}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let body = answer("responses", "refused-400", "/v1/responses", |words| {
        json!({ "model": "m", "previous_response_id": "resp_nope", "input": [
            { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": words }] }] })
    });
    let recorded: Value = serde_json::from_slice(&recorded["unknown-previous"].body).expect("JSON");
    assert_eq!(serde_json::from_str::<Value>(&body).expect("JSON"), recorded);
}
