//! The records of typical answers (docs/protocols/agent-api.md#lifecycle, docs/protocols/agent-api.md#errors,
//! docs/protocols/agent-api.md#examples), as readable snapshots.
//!
//! Not here: recorded answers (`normalize_transcripts`), and repairs that they do not show (`normalize_repairs`).

use interlingua_core_testkit::{record as recorded, render};

fn frames(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("data: {line}\n\n").into_bytes()).collect()
}

fn normalized(lines: &[&str]) -> String {
    render(&recorded([frames(lines).as_slice()]))
}

#[test]
fn reasoning_and_answer_that_overlap_are_kept_apart() {
    insta::assert_snapshot!(normalized(&[
        r#"{"sequence_number":0,"object":"response","status":"created","id":"response_1","output":null}"#,
        r#"{"object":"response","status":"in_progress","id":"response_1","output":null}"#,
        r#"{"object":"message","status":"in_progress","id":"msg_02","type":"reasoning","role":"assistant"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"msg_02","text":"Let me"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"msg_02","text":" think."}"#,
        r#"{"object":"message","status":"in_progress","id":"msg_03","type":"message","role":"assistant"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"msg_03","text":"42"}"#,
        r#"{"object":"content","status":"completed","type":"text","index":0,"msg_id":"msg_02","text":"Let me think."}"#,
        r#"{"object":"message","status":"completed","id":"msg_02","type":"reasoning","role":"assistant","content":[{"status":"completed","type":"text","index":0,"msg_id":"msg_02","text":"Let me think."}]}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":1,"delta":true,"msg_id":"msg_03","text":" is it."}"#,
        r#"{"object":"content","status":"completed","type":"text","index":1,"msg_id":"msg_03","text":" is it."}"#,
        r#"{"object":"message","status":"completed","id":"msg_03","type":"message","role":"assistant","content":[{"object":"content","type":"text","index":0,"msg_id":"msg_03","text":"42"},{"object":"content","status":"completed","type":"text","index":1,"msg_id":"msg_03","text":" is it."}]}"#,
        r#"{"object":"response","status":"completed","id":"response_1","output":[{"object":"message","status":"completed","id":"msg_02","type":"reasoning","role":"assistant","content":[{"type":"text","index":0,"text":"Let me think."}]},{"object":"message","status":"completed","id":"msg_03","type":"message","role":"assistant","content":[{"type":"text","index":0,"text":"42"},{"type":"text","index":1,"text":" is it."}]}],"usage":{"input_tokens":1}}"#,
    ]));
}

#[test]
fn snapshots_of_arguments_are_held_until_they_are_complete() {
    insta::assert_snapshot!(normalized(&[
        r#"{"object":"response","status":"created","id":"r"}"#,
        r#"{"object":"message","status":"in_progress","id":"m","type":"plugin_call","role":"assistant"}"#,
        r#"{"object":"content","status":"in_progress","type":"data","index":0,"delta":false,"msg_id":"m","data":{"call_id":"call_1","name":"get_weather","arguments":""}}"#,
        r#"{"object":"content","status":"in_progress","type":"data","index":0,"delta":false,"msg_id":"m","data":{"call_id":"call_1","name":"get_weather","arguments":"{}"}}"#,
        r#"{"object":"content","status":"in_progress","type":"data","index":0,"delta":false,"msg_id":"m","data":{"call_id":"call_1","name":"get_weather","arguments":"{\"city\": \"Par\"}"}}"#,
        r#"{"object":"content","status":"completed","type":"data","index":0,"delta":false,"msg_id":"m","data":{"call_id":"call_1","name":"get_weather","arguments":"{\"city\": \"Paris\"}"}}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"plugin_call","role":"assistant","content":[{"object":"content","type":"data","delta":false,"data":{"call_id":"call_1","name":"get_weather","arguments":"{\"city\": \"Paris\"}"}}]}"#,
        r#"{"object":"message","status":"in_progress","id":"o","type":"plugin_call_output","role":"tool"}"#,
        r#"{"object":"content","status":"in_progress","type":"data","index":0,"delta":false,"msg_id":"o","data":{"call_id":"call_1","name":"get_weather","output":""}}"#,
        r#"{"object":"content","status":"completed","type":"data","index":0,"delta":false,"msg_id":"o","data":{"call_id":"call_1","name":"get_weather","output":"[{\"type\": \"text\"}]"}}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[]}"#,
    ]));
}

#[test]
fn fragments_of_arguments_are_emitted_as_they_come() {
    insta::assert_snapshot!(normalized(&[
        r#"{"object":"message","status":"in_progress","id":"m","type":"function_call","role":"assistant"}"#,
        r#"{"object":"content","status":"in_progress","type":"data","index":0,"delta":true,"msg_id":"m","data":{"call_id":"call_1","name":"f","arguments":"{\"a\":"}}"#,
        r#"{"object":"content","status":"in_progress","type":"data","index":0,"delta":true,"msg_id":"m","data":{"arguments":"1}"}}"#,
        r#"{"object":"content","status":"completed","type":"data","index":0,"msg_id":"m","data":{"call_id":"call_1","name":"f","arguments":"{\"a\":1}"}}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"function_call","role":"assistant","content":null}"#,
        r#"{"object":"response","status":"completed","id":"r","output":null}"#,
    ]));
}

#[test]
fn a_call_before_its_message_gets_the_messages_type_and_an_orphan_is_dropped() {
    insta::assert_snapshot!(normalized(&[
        r#"{"object":"response","status":"created","id":"r"}"#,
        r#"{"object":"content","status":"completed","type":"data","index":0,"delta":false,"msg_id":"msg_02","data":{"call_id":"call_1","name":"get_weather","arguments":"{\"city\":\"Paris\"}"}}"#,
        r#"{"object":"message","status":"completed","id":"msg_02","type":"mcp_call","role":"assistant","content":[{"object":"content","type":"data","index":0,"msg_id":"msg_02","data":{"call_id":"call_1","name":"get_weather","arguments":"{\"city\":\"Paris\"}"}}]}"#,
        r#"{"object":"message","status":"in_progress","id":"msg_03","type":"message","role":"tool"}"#,
        r#"{"object":"content","status":"completed","type":"data","delta":false,"msg_id":"msg_04","data":{"call_id":"call_1","name":"get_weather","output":"18 C"}}"#,
        r#"{"object":"message","status":"completed","id":"msg_04","type":"mcp_call_output","role":"tool","content":[{"type":"data","data":{"call_id":"call_1","name":"get_weather","output":"18 C"}}]}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[]}"#,
    ]));
}

#[test]
fn deltas_before_any_message_open_one() {
    insta::assert_snapshot!(normalized(&[
        r#"{"object":"response","status":"created","id":"r"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"m","text":"Hello"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"m","text":", "}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"message","role":"assistant","content":[{"type":"text","index":0,"text":"Hello, world"}]}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[]}"#,
    ]));
}

#[test]
fn an_image_that_is_never_closed_and_not_in_the_output_is_kept() {
    insta::assert_snapshot!(normalized(&[
        r#"{"object":"message","status":"in_progress","id":"m","type":"message","role":"assistant"}"#,
        r#"{"object":"content","status":"in_progress","type":"image","index":0,"delta":true,"msg_id":"m","image_url":"https://example.com/cat.png"}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[]}"#,
    ]));
}

#[test]
fn messages_that_are_only_in_the_output_are_emitted_before_the_end() {
    insta::assert_snapshot!(normalized(&[
        r#"{"object":"response","status":"created","id":"r"}"#,
        r#"{"object":"message","status":"completed","id":"h","type":"heartbeat","content":[]}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[{"type":"heartbeat","id":"h","status":"completed"},{"type":"message","id":"a","role":"assistant","status":"completed","content":"plain"},{"type":"function_call","id":"c","status":"completed","content":[{"type":"data","data":{"call_id":"x","name":"f","arguments":{"a":1}}},{"type":"data","data":{"call_id":"y","name":"g","arguments":"{}"}}]}]}"#,
    ]));
}

#[test]
fn every_bad_end_keeps_what_was_emitted() {
    let start = [
        r#"{"object":"response","status":"in_progress","id":"r"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"m","text":"Partial"}"#,
    ];
    let ends = [
        r#"{"object":"response","status":"failed","id":"r","error":{"code":"MODEL_TIMEOUT","message":"too slow"}}"#,
        r#"{"object":"response","status":"rejected","id":"r","error":{"code":"NO","message":"not for you"}}"#,
        r#"{"object":"response","status":"incomplete","id":"r"}"#,
        r#"{"object":"response","status":"canceled","id":"r"}"#,
        r#"{"error": "Task u1:S is already in RUNNING state."}"#,
        r#"{"error":{"code":"X","message":"y"}}"#,
        r#"{"code":"Z","message":"w"}"#,
        r#"{"object":"response","status":"unknown","id":"r"}"#,
    ];
    let records: Vec<String> = ends
        .iter()
        .map(|end| {
            let record = normalized(&[start[0], start[1], end, start[1]]);
            record.lines().skip(5).collect::<Vec<_>>().join("\n")
        })
        .collect();
    insta::assert_snapshot!(records.join("\n\n"));
}

#[test]
fn a_second_response_inside_the_stream_does_not_end_it() {
    insta::assert_snapshot!(normalized(&[
        r#"{"object":"response","status":"created","id":"r"}"#,
        r#"{"object":"response","status":"completed","id":"other","output":[{"type":"message","id":"a","status":"completed","content":[{"type":"text","text":"one"}]}]}"#,
        r#"{"object":"content","status":"in_progress","type":"text","delta":true,"msg_id":"b","text":"two"}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[]}"#,
        r#"{"object":"content","status":"in_progress","type":"text","delta":true,"msg_id":"b","text":"after the end"}"#,
    ]));
}

#[test]
fn a_completed_text_that_contradicts_the_fragments_replaces_them() {
    insta::assert_snapshot!(normalized(&[
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"m","text":"Helo"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":false,"msg_id":"m","text":"Hel"}"#,
        r#"{"object":"content","status":"completed","type":"text","index":0,"msg_id":"m","text":"Hello"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"m","text":" late"}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"message","content":[{"type":"text","index":0,"text":"Hello late!"}]}"#,
        r#"{"object":"message","status":"in_progress","id":"m","type":"message"}"#,
        r#"{"object":"content","status":"completed","type":"text","index":0,"msg_id":"m","text":"again"}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[]}"#,
    ]));
}

#[test]
fn alternating_fragments_of_two_slots_are_all_emitted_once() {
    insta::assert_snapshot!(normalized(&[
        r#"{"object":"message","status":"in_progress","id":"m","type":"message","role":"assistant"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"m","text":"a"}"#,
        r#"{"object":"content","status":"in_progress","type":"refusal","index":1,"delta":true,"msg_id":"m","refusal":"b"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"m","text":"c"}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"message","content":[{"type":"text","index":0,"text":"acd"},{"type":"refusal","index":1,"refusal":"b"}]}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[]}"#,
    ]));
}
