//! Services that send what they should not: nothing panics, every run ends as the table in
//! `docs/protocols/agentscope.md` says, and nothing goes to another host.

use interlingua_core::connector::Next;
use interlingua_core_testkit::{Answer, Hostile};
use proptest::prelude::*;
use serde_json::json;

use crate::support::{Outcome, Session, body, created, frames, open, read, refusal, reply, says, started, status};

fn first(answers: Vec<Answer>) -> Outcome {
    Session::new(&json!({})).drive(&says("hi"), &[], answers)
}

const PAGE: &str = "<html><body>502 Bad Gateway</body></html>";
const HELLO: &str = r#"TEXT_BLOCK_DELTA {"block_id":"b1","delta":"Hello"}"#;

#[test]
fn each_kind_of_wrong_document_has_its_end() {
    let error = || Answer::body(r#"{"error":{"message":"no luck","code":"bad"}}"#);
    let garbage = "failed UPSTREAM_PROTOCOL_ERROR: the agent's answer could not be understood";
    for (name, answers, expected) in [
        ("no session", vec![Answer::body("{}")], garbage),
        ("a session of no id", vec![Answer::body(r#"{"session_id":7}"#)], garbage),
        ("an error for a session", vec![error()], "failed bad: no luck"),
        ("a page for a session", vec![Answer::body(PAGE)], garbage),
        ("an empty body", vec![Answer::body("")], garbage),
        ("an empty stream", vec![Answer::stream("")], garbage),
        ("a stream for a session", vec![Answer::stream(&reply(&[HELLO]))], garbage),
        ("a list", vec![Answer::body("[1]")], garbage),
        ("no start", vec![created(), Answer::body("{}")], garbage),
        ("an error for a start", vec![created(), error()], "failed bad: no luck"),
        ("a body for a stream", vec![created(), started(), error()], "failed bad: no luck"),
        ("a page for a stream", vec![created(), started(), Answer::body(PAGE)], garbage),
        ("a frame that is no JSON", vec![created(), started(), open("data: {\"type\":\n\n")], garbage),
        ("a frame that is no object", vec![created(), started(), open("data: [1]\n\n")], garbage),
        (
            "an error in the stream",
            vec![created(), started(), open("data: {\"error\":{\"message\":\"no luck\"}}\n\n")],
            "failed AGENT_ERROR: no luck",
        ),
    ] {
        let outcome = first(answers);
        let end = outcome.end();
        assert_eq!(end, expected, "{name}");
    }
    // Neither UTF-8 nor JSON.
    let bytes = b"data: {\xff}\n\n".to_vec();
    assert_eq!(first(vec![created(), started(), Answer::Cut(vec![bytes])]).end(), garbage);
    // Documents that are looked up.
    for document in ["", "[]", "7", "{\"status\":7}", PAGE] {
        let outcome = Session::known().drive(&says("hi"), &[], [Answer::body(document)]);
        assert_eq!(outcome.end(), garbage, "{document}");
    }
    assert_eq!(Session::known().drive(&says("hi"), &[], [error()]).end(), "failed bad: no luck");
}

#[test]
fn each_status_ends_a_turn_before_it_begins() {
    let turn = Session::new(&json!({})).turn(&says("hi"), &[]);
    for (code, expected) in [
        (307, "UPSTREAM_MISCONFIGURED"),
        (400, "UPSTREAM_REFUSED"),
        (401, "UPSTREAM_AUTH_FAILED"),
        (403, "UPSTREAM_AUTH_FAILED"),
        (404, "UPSTREAM_MISCONFIGURED"),
        (405, "UPSTREAM_MISCONFIGURED"),
        (408, "UPSTREAM_TIMEOUT"),
        (413, "UPSTREAM_INPUT_TOO_LARGE"),
        (422, "UPSTREAM_REFUSED"),
        (429, "UPSTREAM_RATE_LIMITED"),
        (500, "AGENT_ERROR"),
        (502, "AGENT_ERROR"),
        (503, "UPSTREAM_OVERLOADED"),
        (529, "UPSTREAM_OVERLOADED"),
    ] {
        let refused = || refusal(turn.as_ref(), code, r#"{"detail":"because"}"#);
        for answers in [vec![refused()], vec![created(), refused()]] {
            let outcome = first(answers);
            assert!(outcome.end().starts_with(&format!("failed {expected}")), "{code}: {}", outcome.end());
            assert!(outcome.driven.record.run().messages.is_empty());
        }
        let outcome = Session::known().drive(&says("hi"), &[], [status("idle"), refused()]);
        assert!(outcome.end().starts_with(&format!("failed {expected}")), "{code}: {}", outcome.end());
    }
}

#[test]
fn events_after_the_end_are_ignored() {
    let end = r#"REPLY_END {"finished_reason":"error","error":{"message":"late"}}"#;
    let stream = reply(&[HELLO]) + &frames(&[HELLO, end]);
    let outcome = read(&json!({}), &stream);
    assert_eq!((outcome.texts(), outcome.end()), (vec!["Hello".to_owned()], "completed".to_owned()));
}

/// The same, in whatever pieces it comes.
#[test]
fn events_after_the_end_in_the_same_chunk_are_ignored() {
    let broken = "data: {\"type\":\n\n";
    let end = frames(&[r#"REPLY_END {"id":"z","finished_reason":"completed"}"#]);
    let page = json!({ "messages": [{ "id": "response_7-0-0", "role": "user" },
        { "id": "r1", "role": "assistant", "finished_at": "now", "content": [{ "type": "text", "text": "Hello" }] }] });
    let outcome = first(vec![created(), started(), open(&(end + broken)), body(&page)]);
    assert_eq!((outcome.texts(), outcome.end()), (vec!["Hello".to_owned()], "completed".to_owned()));
    assert_eq!(read(&json!({}), &(reply(&[HELLO]) + broken)).end(), "completed");
}

#[test]
fn every_framing_of_events_is_read() {
    let plain = reply(&[HELLO]);
    let lines = plain.replace('\n', "\r\n");
    let tight = plain.replace("data: ", "data:");
    let commented = format!("\u{feff}: {}\n\nevent: message\n{plain}", "x".repeat(64 << 10));
    for stream in [plain.clone(), lines, tight, commented] {
        assert_eq!(read(&json!({}), &stream).texts(), ["Hello"]);
    }
    // Byte by byte.
    let pieces = plain.as_bytes().chunks(1).map(<[u8]>::to_vec).collect();
    assert_eq!(first(vec![created(), started(), Answer::Cut(pieces)]).texts(), ["Hello"]);
}

#[test]
fn fields_of_wrong_types_are_as_good_as_none() {
    let kinds = [
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
        "THINKING_BLOCK_DELTA",
        "DATA_BLOCK_START",
        "DATA_BLOCK_DELTA",
        "DATA_BLOCK_END",
        "HINT_BLOCK",
        "CUSTOM",
        "TOOL_CALL_START",
        "TOOL_CALL_DELTA",
        "TOOL_RESULT_TEXT_DELTA",
        "TOOL_RESULT_DATA_DELTA",
        "TOOL_RESULT_END",
        "MODEL_CALL_END",
        "UNKNOWN",
    ];
    let names = [
        "id",
        "block_id",
        "tool_call_id",
        "tool_call_name",
        "delta",
        "text",
        "media_type",
        "data",
        "url",
        "name",
        "state",
        "metadata",
        "tool_calls",
        "input_tokens",
        "output_tokens",
    ];
    for value in ["null", "7", "-1.5e300", "true", "[]", "{}", "[{}]", "\"\"", "\"x\"", "\"\\ud800\""] {
        let fields: Vec<String> = names.iter().map(|name| format!("\"{name}\":{value}")).collect();
        let mut stream = frames(&["REPLY_START {}"]);
        for kind in kinds {
            stream += &format!("data: {{\"type\":\"{kind}\",\"reply_id\":\"r1\",{}}}\n\n", fields.join(","));
        }
        stream += &frames(&[r#"REPLY_END {"finished_reason":"completed"}"#]);
        let outcome = read(&json!({}), &stream);
        let end = outcome.end();
        assert!(end == "completed" || (value.contains("ud800") && end.contains("PROTOCOL")), "{value}: {end}");
    }
}

#[test]
fn malformed_questions_keep_their_valid_parts() {
    for (calls, items) in [
        ("null", 0),
        ("7", 0),
        ("[7,null,\"x\"]", 0),
        ("[{}]", 1),
        (r#"[{"id":"c1","name":"f","input":7}]"#, 1),
        (r#"[{"id":"c1"},{"id":"c1"}]"#, 1),
        (r#"[{"id":"c1"},{"id":"c2"}]"#, 2),
    ] {
        let event = format!(r#"REQUIRE_USER_CONFIRM {{"tool_calls":{calls}}}"#);
        let outcome = read(&json!({}), &frames(&["REPLY_START {}", &event]));
        assert_eq!(
            (outcome.driven.record.run().pending().len(), outcome.end().as_str()),
            (items, "completed"),
            "{calls}"
        );
    }
}

#[test]
fn pages_that_make_no_sense_end_the_run() {
    let late = || open(&frames(&[r#"REPLY_END {"id":"z","finished_reason":"completed"}"#]));
    let content = |content: serde_json::Value| {
        json!({ "messages": [{ "id": "response_7-0-0", "role": "user" }, { "id": "r1", "role": "assistant",
            "finished_at": "now", "content": content }] })
    };
    for page in ["7", "[]", "{\"messages\":7}", PAGE, "{\"messages\":[7]}"] {
        let outcome = first(vec![created(), started(), late(), Answer::body(page)]);
        assert!(outcome.end().starts_with("failed UPSTREAM_PROTOCOL_ERROR"), "{page}: {}", outcome.end());
    }
    let strange = content(json!([7, null, {}, { "type": "text" }, { "type": "tool_result", "output": 7 },
        { "type": "tool_call" }, { "type": "data", "source": 7 }, { "type": "new" }, { "type": "text", "text": "hi" }]));
    let outcome = first(vec![created(), started(), late(), body(&strange)]);
    assert_eq!(outcome.end(), "completed");
    assert!(outcome.texts().concat().contains("hi"));
}

#[test]
fn large_and_repeated_things_are_bounded() {
    let arguments = format!("{{\\\"a\\\":\\\"{}\\\"}}", "x".repeat(1 << 20));
    let start = r#"TOOL_CALL_START {"tool_call_id":"c1","tool_call_name":"f"}"#;
    let delta = format!(r#"TOOL_CALL_DELTA {{"tool_call_id":"c1","delta":"{arguments}"}}"#);
    let outcome = read(&json!({}), &reply(&[start, &delta]));
    let call = outcome.driven.record.run().messages[0].to_model().calls().next().expect("a call");
    assert_eq!(call.arguments.len(), (1 << 20) + 8);

    // Buffered text counts towards the limit.
    let piece = format!(r#"TOOL_RESULT_TEXT_DELTA {{"tool_call_id":"c1","delta":"{}"}}"#, "x".repeat(4 << 20));
    let outcome =
        read(&json!({}), &reply(&[start, &piece, &piece, &piece, &piece, &piece, &piece, &piece, &piece, &piece]));
    assert!(outcome.end().starts_with("failed UPSTREAM_TOO_LARGE"), "{}", outcome.end());

    let many: Vec<String> = (0..10_000)
        .map(|number| format!(r#"TOOL_CALL_START {{"tool_call_id":"c{}","tool_call_name":"f"}}"#, number % 100))
        .collect();
    let outcome = read(&json!({}), &reply(&many.iter().map(String::as_str).collect::<Vec<_>>()));
    let ids: std::collections::HashSet<_> =
        outcome.driven.record.run().messages.iter().map(|message| message.id.clone()).collect();
    assert_eq!(ids.len(), outcome.driven.record.run().messages.len());

    let id = "i".repeat(100_000);
    let outcome = first(vec![body(&json!({ "session_id": id }))]);
    assert!(outcome.end().starts_with("failed UPSTREAM_PROTOCOL_ERROR"));
}

/// One of each.
const EVENTS: [&str; 9] = [
    HELLO,
    r#"THINKING_BLOCK_DELTA {"block_id":"b2","delta":"Hm"}"#,
    r#"TOOL_CALL_START {"tool_call_id":"c1","tool_call_name":"f"}"#,
    r#"TOOL_CALL_DELTA {"tool_call_id":"c1","delta":"{}"}"#,
    r#"TOOL_RESULT_TEXT_DELTA {"tool_call_id":"c1","delta":"21"}"#,
    r#"TOOL_RESULT_END {"tool_call_id":"c1","state":"success"}"#,
    r#"DATA_BLOCK_START {"block_id":"b3","media_type":"image/png"}"#,
    r#"DATA_BLOCK_DELTA {"block_id":"b3","data":"aGk="}"#,
    r#"MODEL_CALL_END {"input_tokens":7,"output_tokens":2}"#,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes, in whatever pieces: a run that keeps the grammar, and requests to the service alone.
    #[test]
    fn any_bytes_end_a_run(
        places in proptest::collection::vec((0_usize..4000, any::<u8>()), 0..12),
        size in 1_usize..200,
    ) {
        let mut data = reply(&EVENTS).into_bytes();
        for (place, byte) in places {
            let place = place % data.len();
            data[place] = byte;
        }
        let pieces: Vec<Vec<u8>> = data.chunks(size).map(<[u8]>::to_vec).collect();
        let mut answers = vec![created(), started(), Answer::Cut(pieces)];
        answers.extend((0..30).map(|_| Answer::body(r#"{"messages":[],"is_running":false}"#)));
        let outcome = first(answers);
        for request in &outcome.driven.requests {
            prop_assert!(request.url.starts_with("http://service/"), "{}", request.url);
        }
    }

    /// Any bytes for a document.
    #[test]
    fn any_document_ends_or_continues_a_turn(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let session = Session::known();
        let mut turn = session.turn(&says("hi"), &[]);
        prop_assert!(matches!(turn.next(0), Ok(Next::Send(_))));
        let _ = turn.on_lookup(Ok(&data));
    }
}

#[test]
fn malformed_output_of_an_agent_does_not_panic() {
    let session = Session::new(&json!({}));
    let start = r#"TOOL_CALL_START {"tool_call_id":"c1","tool_call_name":"f"}"#;
    let arguments = |text: &str| format!(r#"TOOL_CALL_DELTA {{"tool_call_id":"c1","delta":{}}}"#, json!(text));
    Hostile {
        open: &|| session.turn(&says("hi"), &[]),
        before: vec![created(), started()],
        whole: Answer::stream(&reply(&EVENTS)),
        unknown: Some(r#"{"id":"later","type":"LATER","reply_id":"r1","x":1}"#),
        huge: &|text| Answer::stream(&reply(&[start, &arguments(text)])),
    }
    .check();
}
