//! Agents of the Agent API that send what they should not.

use interlingua_core::Json;
use interlingua_core::connector::{AgentTurn, TurnRequest, UpstreamAdapter};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core_testkit::{self as testkit, Answer, Hostile};
use interlingua_native::{NativeUpstream, UpstreamOptions};
use serde_json::json;

fn turn() -> Box<dyn AgentTurn> {
    let connector = NativeUpstream::connect("http://agent/process", UpstreamOptions::default()).expect("a URL");
    let request = AgentRequest { input: vec![Message::user("hi")].into(), ..AgentRequest::default() };
    connector.turn(&TurnRequest::new(&request, &Json::null(), &[])).expect("a turn")
}

/// Frames between the beginning and the end of an answer.
fn stream(frames: &[serde_json::Value]) -> Answer {
    let begin = json!({ "object": "response", "status": "created", "id": "r" });
    let end = json!({ "object": "response", "status": "completed", "id": "r" });
    let all = std::iter::once(&begin).chain(frames).chain([&end]);
    Answer::stream(&all.map(|frame| format!("data: {frame}\n\n")).collect::<String>())
}

#[test]
fn malformed_output_of_an_agent_does_not_panic() {
    let words = |text: &str| json!({ "object": "content", "status": "in_progress", "type": "text", "index": 0, "delta": true, "msg_id": "m", "text": text });
    let message = |status: &str| json!({ "object": "message", "status": status, "id": "m", "type": "message", "role": "assistant" });
    let call = |text: &str| {
        let call = json!({ "call_id": "c", "name": "f", "arguments": text });
        let content = json!([{ "object": "content", "status": "completed", "type": "data", "index": 0, "data": call }]);
        stream(&[
            json!({ "object": "message", "status": "completed", "id": "c", "type": "function_call", "role": "assistant", "content": content }),
        ])
    };
    Hostile {
        open: &turn,
        before: Vec::new(),
        whole: stream(&[message("in_progress"), words("Hel"), words("lo"), message("completed")]),
        unknown: Some(r#"{"object":"later","status":"new","x":1}"#),
        huge: &call,
    }
    .check();
}

#[test]
fn a_stream_under_the_content_type_of_a_body_is_read() {
    let Answer::Stream(pieces) = stream(&[
        json!({ "object": "message", "status": "completed", "id": "m", "type": "message", "role": "assistant", "content": [{ "type": "text", "text": "Hello" }] }),
    ]) else {
        panic!("a stream")
    };
    for begin in [&b""[..], b"\xef\xbb\xbf", b": beat\n\n"] {
        let body = [begin, &pieces.concat()].concat();
        let record = testkit::drive(turn().as_mut(), [Answer::Body(body)]).record;
        assert_eq!(
            (record.run().end, record.run().messages[0].text()),
            (Some(interlingua_core::End::Completed), "Hello".into())
        );
    }
}
