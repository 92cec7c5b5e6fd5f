//! The effect of each event: one row for each row of the table of events in the documentation.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::support::{Session, created, frames, open, read, reply, says, started};

/// The outcome of a reply with these events.
fn tale(options: &Value, events: &[&str]) -> String {
    read(options, &reply(events)).summary()
}

const TEXT: [&str; 3] = [
    r#"TEXT_BLOCK_START {"block_id":"b1"}"#,
    r#"TEXT_BLOCK_DELTA {"block_id":"b1","delta":"Hello"}"#,
    r#"TEXT_BLOCK_END {"block_id":"b1","text":null}"#,
];
const CALL: [&str; 3] = [
    r#"TOOL_CALL_START {"tool_call_id":"c1","tool_call_name":"weather"}"#,
    r#"TOOL_CALL_DELTA {"tool_call_id":"c1","delta":"{\"city\":\"Paris\"}"}"#,
    r#"TOOL_CALL_END {"tool_call_id":"c1"}"#,
];

#[test]
fn each_event_of_the_table() {
    let rows: &[(&str, &[&str])] = &[
        ("text", &TEXT),
        ("text that was cut short", &[TEXT[0], TEXT[1], r#"TEXT_BLOCK_END {"block_id":"b1","text":"Hell"}"#]),
        ("text without a beginning", &[TEXT[1]]),
        (
            "thinking",
            &[
                r#"THINKING_BLOCK_START {"block_id":"b1"}"#,
                r#"THINKING_BLOCK_DELTA {"block_id":"b1","delta":"Hm"}"#,
                r#"THINKING_BLOCK_END {"block_id":"b1"}"#,
            ],
        ),
        (
            "an image in pieces",
            &[
                r#"DATA_BLOCK_START {"block_id":"b1","media_type":"image/png","name":"a.png"}"#,
                r#"DATA_BLOCK_DELTA {"block_id":"b1","media_type":"image/png","data":"aA=="}"#,
                r#"DATA_BLOCK_DELTA {"block_id":"b1","media_type":"image/png","data":"aQ=="}"#,
                r#"DATA_BLOCK_DELTA {"block_id":"b1","media_type":"image/png","data":"%"}"#,
                r#"DATA_BLOCK_END {"block_id":"b1"}"#,
            ],
        ),
        (
            "audio, and a file by URL that does not end",
            &[
                r#"DATA_BLOCK_START {"block_id":"b1","media_type":"audio/wav"}"#,
                r#"DATA_BLOCK_START {"block_id":"b2","media_type":"application/pdf","name":"a.pdf"}"#,
                r#"DATA_BLOCK_DELTA {"block_id":"b1","data":"aGk="}"#,
                r#"DATA_BLOCK_DELTA {"block_id":"b2","url":"https://x/a.pdf"}"#,
                r#"DATA_BLOCK_END {"block_id":"b1"}"#,
            ],
        ),
        ("a call without a result", &CALL),
        (
            "a call with a result",
            &[
                CALL[0],
                CALL[1],
                CALL[2],
                r#"TOOL_RESULT_START {"tool_call_id":"c1","tool_call_name":"weather"}"#,
                r#"TOOL_RESULT_TEXT_DELTA {"tool_call_id":"c1","delta":"21"}"#,
                r#"TOOL_RESULT_DATA_DELTA {"tool_call_id":"c1","block_id":"b1","media_type":"image/png","data":"aGk="}"#,
                r#"TOOL_RESULT_TEXT_DELTA {"tool_call_id":"c1","delta":" degrees"}"#,
                r#"TOOL_RESULT_END {"tool_call_id":"c1","state":"success","metadata":{"took":3}}"#,
            ],
        ),
        (
            "a call that fails",
            &[
                CALL[0],
                r#"TOOL_RESULT_START {"tool_call_id":"c1","tool_call_name":"weather"}"#,
                r#"TOOL_RESULT_END {"tool_call_id":"c1","state":"error"}"#,
            ],
        ),
        (
            "a model that numbers its calls again",
            &[
                CALL[0],
                CALL[1],
                r#"TOOL_RESULT_END {"tool_call_id":"c1","state":"success"}"#,
                CALL[0],
                CALL[1],
                r#"TOOL_RESULT_END {"tool_call_id":"c1","state":"success"}"#,
            ],
        ),
        (
            "usage of two model calls",
            &[
                r#"MODEL_CALL_START {"model_name":"m"}"#,
                r#"MODEL_CALL_END {"input_tokens":7,"output_tokens":2,"cache_input_tokens":3}"#,
                r#"MODEL_CALL_END {"input_tokens":1,"output_tokens":1}"#,
            ],
        ),
        (
            "events of another reply",
            &[r#"TEXT_BLOCK_DELTA {"reply_id":"r9","block_id":"b9","delta":"not ours"}"#, TEXT[1]],
        ),
        (
            "hints and custom events",
            &[
                r#"HINT_BLOCK {"block_id":"b1","source":null,"hint":"It is late."}"#,
                r#"CUSTOM {"reply_id":null,"name":"state_updated","value":{"x":1}}"#,
                r#"CUSTOM {"reply_id":null,"name":"session_updated","value":{}}"#,
            ],
        ),
        ("an event that no one knows", &["SOMETHING {\"x\":1}"]),
    ];
    let mut tales = String::new();
    for (name, events) in rows {
        let _ = writeln!(tales, "## {name}\n{}", tale(&json!({}), events));
    }
    let hint = [r#"HINT_BLOCK {"block_id":"b1","source":null,"hint":"It is late."}"#];
    let _ = writeln!(tales, "## a hint that is kept\n{}", tale(&json!({ "events": "keep" }), &hint));
    insta::assert_snapshot!(tales);
}

#[test]
fn each_end_of_a_reply() {
    let error = |kind: &str, message: &str| {
        format!(r#"REPLY_END {{"finished_reason":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#)
    };
    for (end, expected) in [
        (r#"REPLY_END {"finished_reason":"completed"}"#.to_owned(), "completed"),
        ("REPLY_END {}".to_owned(), "completed"),
        (r#"REPLY_END {"finished_reason":"interrupted"}"#.to_owned(), "canceled"),
        (
            r#"REPLY_END {"finished_reason":"exceed_max_iters"}"#.to_owned(),
            "incomplete max_iterations: the agent has called tools as often as it may",
        ),
        (error("unknown", "It broke."), "failed AGENT_ERROR: It broke."),
        (error("connection", "Gone."), "failed connection: Gone."),
        (error("rate_limit", "Slowly."), "failed UPSTREAM_RATE_LIMITED: Slowly."),
        (r#"REPLY_END {"finished_reason":"error"}"#.to_owned(), "failed AGENT_ERROR: the agent failed"),
        (r#"REPLY_END {"finished_reason":"error","error":7}"#.to_owned(), "failed AGENT_ERROR: the agent failed"),
    ] {
        let stream = frames(&["REPLY_START {}", TEXT[1], &end]);
        assert_eq!(read(&json!({}), &stream).end(), expected, "{end}");
    }
}

#[test]
fn events_are_kept_if_a_client_reads_them() {
    let stream = reply(&[r#"CUSTOM {"name":"state_updated","value":{"x":1}}"#]);
    let mut session = Session::new(&json!({}));
    session.are_events_read = true;
    let outcome = session.drive(&says("hi"), &[], [created(), started(), open(&stream)]);
    let messages = &outcome.driven.record.run().messages;
    let kept = messages[0].to_model();
    let data = kept.content[0].as_data().expect("data").text().to_owned();
    assert!(data.starts_with(r#"{"protocol":"agentscope","event":{"#) && data.contains(r#""value":{"x":1}"#), "{data}");
    assert!(outcome.turn.losses().is_empty());

    let mut session = Session::new(&json!({ "events": "drop" }));
    session.are_events_read = true;
    let outcome = session.drive(&says("hi"), &[], [created(), started(), open(&stream)]);
    assert!(outcome.driven.record.run().messages.is_empty());
    assert_eq!(outcome.turn.losses().len(), 1);

    // The record bounds what it has of them.
    let large = format!(r#"CUSTOM {{"name":"x","value":{{"x":"{}"}}}}"#, "x".repeat(300 << 10));
    let outcome = read(&json!({ "events": "keep" }), &reply(&[&large]));
    assert_eq!(outcome.driven.losses[0].to_string(), "protocol_event (it is too large to be kept)");
}
