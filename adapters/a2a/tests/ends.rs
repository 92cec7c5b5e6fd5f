//! Unsuccessful ends: each has an error code and a message.

mod support;

use interlingua_core::agent_api::Frame;
use interlingua_core::model::Message;
use interlingua_core::{Record, Reply};
use interlingua_core_testkit::{self as testkit, Recorder, TestRun};
use serde_json::{Value, json};
use support::{ClientRequest, about, user, with};

const TASK: &str = "/tasks/01930000-0000-7000-8000-000000000001";

/// The final status and its metadata from the stream; asserts that a poll returns the same status.
fn closing(options: &Value, record: &Record) -> (Value, Value) {
    let host = with(options.clone());
    let request = ClientRequest::rest("POST", "/message:stream").body(&user("hi"));
    let frames = host.send(&request).streamed(record, about(record)).frames();

    let update = frames.last().expect("an end")["statusUpdate"].clone();

    let shown = TestRun::with_info(record, about(record));
    let task = host.send(&ClientRequest::rest("GET", TASK)).final_answer(Reply::Run(shown.view())).json();
    assert_eq!(task["status"]["message"], update["status"]["message"]);
    assert_eq!(task["status"]["state"], update["status"]["state"]);
    (update["status"].clone(), update["metadata"].clone())
}

fn text(status: &Value) -> String {
    let parts = status["message"]["parts"].as_array().cloned().unwrap_or_default();
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}

fn record(frames: &[&str]) -> Record {
    let mut listener = Recorder::new(vec![Message::user("hi")]);
    for frame in frames {
        listener.emit(&Frame::parse(frame.as_bytes()).expect("a frame").event());
    }
    listener.finish()
}

#[test]
fn a_cut_off_answer_reported_as_failed_has_an_error() {
    let cut_off = record(&[r#"{"object":"response","id":"r","status":"incomplete"}"#]);
    let (status, metadata) = closing(&json!({ "incomplete": "failed" }), &cut_off);
    assert_eq!(status["state"], "TASK_STATE_FAILED");
    assert_eq!(text(&status), "the agent's answer was cut off");
    let error = json!({ "code": "INCOMPLETE", "message": "the agent's answer was cut off" });
    assert_eq!(status["message"]["metadata"]["agent_api"]["error"], error);
    assert_eq!(metadata["agent_api"]["error"], error);
    assert_eq!(metadata["agent_api"]["incomplete"], true);
    // An explanation from the agent wins.
    let (status, _) = closing(&json!({ "incomplete": "failed" }), &testkit::script("incomplete").record());
    assert_eq!(text(&status), "the limit is reached");

    // Reported as completed, it has no error.
    let (status, metadata) = closing(&json!({ "incomplete": "completed" }), &cut_off);
    assert_eq!((&status["state"], &metadata["agent_api"]["error"]), (&json!("TASK_STATE_COMPLETED"), &Value::Null));
}

#[test]
fn a_rejection_has_the_reason_from_the_agent() {
    let input = r#"{"object":"message","id":"m","type":"message","role":"assistant","status":"completed","content":"Not before nine."}"#;
    let bare = r#"{"object":"response","id":"r","status":"rejected"}"#;
    let own =
        r#"{"object":"response","id":"r","status":"rejected","error":{"code":"CLOSED","message":"come back later"}}"#;
    let never = json!({ "status_text": "never" });
    for (options, frames, expected) in [
        (&json!({}), vec![input, bare], "Not before nine."),
        (&json!({}), vec![bare], "the agent rejected the request"),
        (&json!({}), vec![input, own], "come back later"),
        (&never, vec![input, bare], "the agent rejected the request"),
    ] {
        let (status, metadata) = closing(options, &record(&frames));
        assert_eq!(status["state"], "TASK_STATE_REJECTED");
        assert_eq!(text(&status), expected, "{options}");
        assert!(metadata["agent_api"]["error"]["code"].is_string(), "{metadata}");
    }
}
