//! Streams that are cut, that arrive too late, and that do not say whether a reply continues: no event is lost, none is
//! emitted twice.

use interlingua_core::answer::CheckedDecision;
use interlingua_core::pending::Decision;
use interlingua_core::{Fault, FaultKind};
use interlingua_core_testkit::Answer;
use serde_json::{Value, json};

use crate::support::{Outcome, Session, answering, body, created, frames, open, refusal, reply, says, started, status};

/// A reply with everything in it that can be cut.
const EVENTS: &[&str] = &[
    r#"HINT_BLOCK {"block_id":"h1","hint":"late"}"#,
    r#"MODEL_CALL_START {"model_name":"m"}"#,
    r#"THINKING_BLOCK_START {"block_id":"b1"}"#,
    r#"THINKING_BLOCK_DELTA {"block_id":"b1","delta":"I look "}"#,
    r#"THINKING_BLOCK_DELTA {"block_id":"b1","delta":"at it."}"#,
    r#"THINKING_BLOCK_END {"block_id":"b1"}"#,
    r#"TOOL_CALL_START {"tool_call_id":"c1","tool_call_name":"weather"}"#,
    r#"TOOL_CALL_DELTA {"tool_call_id":"c1","delta":"{\"city\":"}"#,
    r#"TOOL_CALL_DELTA {"tool_call_id":"c1","delta":"\"Paris\"}"}"#,
    r#"TOOL_CALL_END {"tool_call_id":"c1"}"#,
    r#"MODEL_CALL_END {"input_tokens":7,"output_tokens":2}"#,
    r#"TOOL_RESULT_START {"tool_call_id":"c1","tool_call_name":"weather"}"#,
    r#"TOOL_RESULT_TEXT_DELTA {"tool_call_id":"c1","delta":"21 "}"#,
    r#"TOOL_RESULT_TEXT_DELTA {"tool_call_id":"c1","delta":"degrees"}"#,
    r#"TOOL_RESULT_END {"tool_call_id":"c1","state":"success"}"#,
    r#"DATA_BLOCK_START {"block_id":"d1","media_type":"image/png"}"#,
    r#"DATA_BLOCK_DELTA {"block_id":"d1","data":"aA=="}"#,
    r#"DATA_BLOCK_DELTA {"block_id":"d1","data":"aQ=="}"#,
    r#"DATA_BLOCK_END {"block_id":"d1"}"#,
    r#"TEXT_BLOCK_START {"block_id":"b2"}"#,
    r#"TEXT_BLOCK_DELTA {"block_id":"b2","delta":"It is "}"#,
    r#"TEXT_BLOCK_DELTA {"block_id":"b2","delta":"warm. "}"#,
    r#"TEXT_BLOCK_DELTA {"block_id":"b2","delta":"👀"}"#,
    r#"TEXT_BLOCK_END {"block_id":"b2"}"#,
    r#"MODEL_CALL_END {"input_tokens":9,"output_tokens":3}"#,
];

/// The same reply as the session remembers it.
fn page() -> Value {
    let content = json!([
        { "type": "hint", "id": "h1", "hint": "late" },
        { "type": "thinking", "id": "b1", "thinking": "I look at it." },
        { "type": "tool_call", "id": "c1", "name": "weather", "input": "{\"city\":\"Paris\"}", "state": "finished" },
        { "type": "tool_result", "id": "c1", "name": "weather", "output": [{ "type": "text", "text": "21 degrees" }],
          "state": "success" },
        { "type": "data", "id": "d1", "source": { "type": "base64", "data": "aGk=", "media_type": "image/png" } },
        { "type": "text", "id": "b2", "text": "It is warm. 👀" },
    ]);
    let reply = json!({ "id": "r1", "role": "assistant", "content": content, "finished_at": "2026-11-23T00:00:00",
        "finished_reason": "completed", "error": null, "usage": { "input_tokens": 16, "output_tokens": 5 } });
    json!({ "messages": [{ "id": "response_7-0-0", "role": "user", "content": [] }, reply], "is_running": false })
}

fn at_work() -> Answer {
    body(&json!({ "messages": [], "is_running": true }))
}

fn drive(answers: Vec<Answer>) -> Outcome {
    Session::new(&json!({})).drive(&says("hi"), &[], answers)
}

/// The content of a run, independent of its transport.
fn content(outcome: &Outcome) -> Vec<String> {
    let run = outcome.driven.record.run();
    let mut lines: Vec<String> = run
        .messages
        .iter()
        .map(|message| {
            let shown = message.to_model();
            format!("{} {} {:?} {:?}", shown.id.unwrap_or_default(), shown.kind, message.end, shown.content)
        })
        .collect();
    lines.push(format!("{:?} {}", run.turns[0].usage.as_ref().map(|usage| usage.text().to_owned()), outcome.end()));
    lines
}

fn expected() -> Vec<String> {
    content(&drive(vec![created(), started(), open(&reply(EVENTS))]))
}

#[test]
fn a_cut_at_any_place_loses_nothing_and_repeats_nothing() {
    let (whole, expected) = (reply(EVENTS), expected());
    assert_eq!(expected.len(), 6, "{expected:?}");
    let bytes = whole.as_bytes();
    for at in (0..bytes.len() - 60).step_by(3) {
        let cut = || Answer::Cut(vec![bytes[..at].to_vec()]);
        // The reply continues, and the stream begins again.
        let goes_on = drive(vec![created(), started(), cut(), at_work(), open(&whole)]);
        assert_eq!(content(&goes_on), expected, "cut at {at}");
        if at % 9 == 0 {
            // It has ended meanwhile.
            let over = drive(vec![created(), started(), cut(), body(&page())]);
            assert_eq!(content(&over), expected, "cut at {at}");
            // It ends between looking and listening: only its end is left.
            let end = r#"REPLY_END {"finished_reason":"completed"}"#;
            let late = drive(vec![created(), started(), cut(), at_work(), open(&frames(&[end])), body(&page())]);
            assert_eq!(content(&late), expected, "cut at {at}");
        }
    }
}

#[test]
fn a_stream_that_is_opened_late_is_no_loss() {
    let end =
        frames(&[r#"REPLY_END {"id":"z","finished_reason":"completed"}"#, "CUSTOM {\"name\":\"session_updated\"}"]);
    // The session is queried before the reply is stored.
    let outcome = drive(vec![created(), started(), open(&end), at_work(), at_work(), body(&page())]);
    assert_eq!(content(&outcome), expected());
    let outcome = drive(vec![created(), started(), open(&end), body(&page())]);
    assert_eq!(content(&outcome), expected());
}

/// A service keeps a thousand events: the beginning of what was read, and more, may be gone.
#[test]
fn a_gap_in_a_long_reply_is_filled_at_its_end() {
    let whole = reply(EVENTS);
    let cut = Answer::Cut(vec![whole.as_bytes()[..whole.len() / 2].to_vec()]);
    let tail = frames(&[
        r#"TEXT_BLOCK_DELTA {"id":"x","block_id":"b2","delta":"arm. "}"#,
        r#"REPLY_END {"id":"z","finished_reason":"completed"}"#,
    ]);
    let mut answers = vec![created(), started(), cut, at_work(), open(&tail)];
    answers.extend((0..6).map(|_| at_work()));
    answers.push(body(&page()));
    assert_eq!(content(&drive(answers)), expected());
}

#[test]
fn ends_of_others_are_not_taken_for_ours() {
    // The stream begins with the end of somebody else's reply; ours follows.
    let mut events = vec![r#"REPLY_END {"id":"x","reply_id":"r9","finished_reason":"completed"}"#, "REPLY_START {}"];
    events.extend(EVENTS);
    events.push(r#"REPLY_END {"finished_reason":"completed"}"#);
    let stream = frames(&events);
    let looks = || (0..4).map(|_| at_work());
    let mut answers = vec![created(), started(), open(&stream)];
    answers.extend(looks());
    answers.push(open(&stream));
    assert_eq!(content(&drive(answers)), expected());

    // Ours of the turn before is known, and not looked up.
    let mut events = vec![r#"REPLY_END {"id":"x","reply_id":"r0","finished_reason":"completed"}"#, "REPLY_START {}"];
    events.extend(EVENTS);
    events.push(r#"REPLY_END {"finished_reason":"completed"}"#);
    let outcome = Session::known().drive(&says("hi"), &[], [status("idle"), started(), open(&frames(&events))]);
    assert_eq!(content(&outcome), expected());
}

#[test]
fn a_service_that_has_lost_the_reply_ends_the_run() {
    let nothing = || body(&json!({ "messages": [], "is_running": false }));
    let mut answers = vec![created(), started(), open(&frames(&["REPLY_START {}", EVENTS[20]]))];
    answers.extend((0..20).map(|_| nothing()));
    let outcome = drive(answers);
    assert!(outcome.driven.waited < std::time::Duration::from_secs(5), "{:?}", outcome.driven.waited);
    assert_eq!(
        (outcome.end().as_str(), outcome.texts().concat().as_str()),
        ("failed UPSTREAM_TRUNCATED: the agent broke off its answer", "It is ")
    );
}

#[test]
fn requests_to_an_unreachable_service_are_limited() {
    let unreachable = || Answer::Fault(Fault::new(FaultKind::UpstreamUnreachable, "no one is there"));
    let start = || vec![created(), started(), open(&frames(&["REPLY_START {}", EVENTS[20]]))];
    let mut answers = start();
    answers.extend([unreachable(), unreachable(), at_work(), unreachable()]);
    answers.push(body(&page()));
    assert_eq!(drive(answers).end(), "completed");

    let mut answers = start();
    answers.extend((0..9).map(|_| unreachable()));
    let outcome = drive(answers);
    assert!(outcome.end().starts_with("failed UPSTREAM_TRUNCATED"), "{}", outcome.end());
    assert!(outcome.driven.requests.len() < 10);

    // A refusal is final.
    let turn = Session::new(&json!({})).turn(&says("hi"), &[]);
    let mut answers = start();
    answers.push(refusal(turn.as_ref(), 401, "{}"));
    assert!(drive(answers).end().starts_with("failed UPSTREAM_AUTH_FAILED"));
}

#[test]
fn queries_of_a_busy_session_are_no_failed_attempts() {
    let unreachable = || Answer::Fault(Fault::new(FaultKind::UpstreamUnreachable, "no one is there"));
    let nothing = || body(&json!({ "messages": [], "is_running": false }));
    let tail = frames(&[
        r#"TEXT_BLOCK_DELTA {"id":"x","block_id":"b2","delta":"arm. "}"#,
        r#"REPLY_END {"id":"z","finished_reason":"completed"}"#,
    ]);
    // The stream is cut and has a gap then, and the service is at work for a long time.
    let start = || {
        let whole = reply(EVENTS);
        let cut = Answer::Cut(vec![whole.as_bytes()[..whole.len() / 2].to_vec()]);
        let mut answers = vec![created(), started(), cut, at_work(), open(&tail)];
        answers.extend((0..6).map(|_| at_work()));
        answers.push(unreachable());
        answers.extend((0..6).map(|_| at_work()));
        answers
    };
    let mut answers = start();
    answers.extend([unreachable(), body(&page())]);
    assert_eq!(content(&drive(answers)), expected());

    // Five attempts in a row that fail are still the most.
    for (count, end) in [(5, "completed"), (6, "failed UPSTREAM_TRUNCATED")] {
        let mut answers = start();
        answers.extend((0..count).map(|_| unreachable()));
        answers.push(body(&page()));
        let outcome = drive(answers);
        assert!(outcome.end().starts_with(end), "{}", outcome.end());
    }

    // A busy session that becomes idle is queried again, too.
    let mut answers = start();
    answers.extend([nothing(), nothing(), body(&page())]);
    assert_eq!(content(&drive(answers)), expected());
}

#[test]
fn a_reply_that_waits_while_others_of_its_calls_run_is_read_when_it_stops() {
    let stream = frames(&[
        "REPLY_START {}",
        r#"TOOL_CALL_START {"tool_call_id":"c1","tool_call_name":"delete"}"#,
        r#"TOOL_CALL_DELTA {"tool_call_id":"c1","delta":"{}"}"#,
        r#"TOOL_CALL_START {"tool_call_id":"c2","tool_call_name":"weather"}"#,
        r#"TOOL_CALL_DELTA {"tool_call_id":"c2","delta":"{}"}"#,
        r#"MODEL_CALL_END {"input_tokens":7,"output_tokens":2}"#,
        r#"REQUIRE_USER_CONFIRM {"id":"ask","tool_calls":[{"id":"c1","name":"delete","input":"{}","state":"asking"}]}"#,
    ]);
    let stopped = json!({ "is_running": false, "messages": [{ "id": "r1", "role": "assistant",
        "usage": { "input_tokens": 7, "output_tokens": 2 }, "content": [
        { "type": "tool_call", "id": "c1", "name": "delete", "input": "{}", "state": "asking" },
        { "type": "tool_call", "id": "c2", "name": "weather", "input": "{}", "state": "finished" },
        { "type": "tool_result", "id": "c2", "name": "weather", "output": "21", "state": "success" },
    ] }] });
    let mut session = Session::new(&json!({}));
    let answers = [created(), started(), open(&stream), at_work(), body(&stopped)];
    let asked = session.drive(&says("hi"), &[], answers);
    let lines = content(&asked);
    assert!(lines.iter().any(|line| line.contains("plugin_call_output") && line.contains("21")), "{lines:?}");
    assert_eq!(asked.driven.record.run().pending().len(), 1);

    // The answer is late for the stream: the page holds the first turn's blocks as well.
    let mut whole = stopped;
    whole["messages"][0]["content"][0]["state"] = json!("finished");
    let more = [
        json!({ "type": "tool_result", "id": "c1", "name": "delete", "output": [], "state": "denied" }),
        json!({ "type": "text", "id": "b1", "text": "As you like." }),
    ];
    whole["messages"][0]["content"].as_array_mut().expect("a list").extend(more);
    whole["messages"][0]["finished_at"] = json!("now");
    whole["messages"][0]["usage"] = json!({ "input_tokens": 9, "output_tokens": 5 });
    let (request, items) = answering(&asked, &CheckedDecision::new(Decision::Reject));
    let late = frames(&[
        r#"REQUIRE_USER_CONFIRM {"id":"ask","tool_calls":[]}"#,
        r#"REPLY_END {"id":"z","finished_reason":"completed"}"#,
    ]);
    // Only the end is left, so the answer's own event is not seen either.
    let answers = [status("awaiting_permission"), started(), open(&late), body(&whole)];
    let outcome = session.drive(&request, &items, answers);
    assert_eq!(
        (outcome.texts(), outcome.end()),
        (vec![String::new(), "As you like.".to_owned()], "completed".to_owned())
    );
    let usage = outcome.driven.record.run().turns[0].usage.as_ref().map(|usage| usage.text().to_owned());
    assert_eq!(usage.as_deref(), Some(r#"{"input_tokens":2,"output_tokens":3,"total_tokens":5}"#));
}
