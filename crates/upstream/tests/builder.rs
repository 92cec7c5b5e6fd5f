//! Compares the builder with recordings of the runtime's own builder: the same calls produce the same bytes.

use interlingua_core::model::{ContentType, MessageType, Role, Status};
use interlingua_upstream::builder::{Frame, ResponseBuilder};
use serde_json::json;

/// A transcript with the ids and times in it.
struct RecordedTranscript {
    text: &'static str,
    response: String,
    message: String,
    created_at: u64,
    completed_at: u64,
}

fn recorded(text: &'static str) -> RecordedTranscript {
    let frames: Vec<serde_json::Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("a transcript is JSON"))
        .collect();

    let last = frames.last().expect("it has frames");
    let word = |value: &serde_json::Value| value.as_str().expect("an id").to_owned();
    RecordedTranscript {
        text,
        response: word(&frames[0]["id"]),
        message: word(&frames[2]["id"]),
        created_at: last["created_at"].as_u64().expect("seconds"),
        completed_at: last["completed_at"].as_u64().expect("seconds"),
    }
}

fn stream(frames: &[Frame]) -> String {
    frames.iter().map(Frame::sse).collect()
}

#[test]
fn set_text_and_deltas_match_the_runtime() {
    let recorded = recorded(include_str!("../../../tests/transcripts/agentscope/agentscope-builder-text.sse"));
    let mut response = ResponseBuilder::new(&recorded.response, recorded.created_at).session("s-1");
    let mut frames = vec![response.created(), response.in_progress()];
    let mut message = response.assistant().id(&recorded.message);
    frames.push(message.in_progress());
    let mut content = message.text();

    frames.push(content.set_text("Set: "));
    frames.push(content.add_text_delta("one"));
    frames.push(content.add_text_delta(" two"));
    frames.push(content.complete());
    frames.push(message.complete());

    frames.push(response.complete(recorded.completed_at));
    assert_eq!(stream(&frames), recorded.text);
}

#[test]
fn the_helper_for_a_text_answer_makes_all_frames_in_order() {
    let frames = ResponseBuilder::new("response_1", 7).streamed(["a", "b"], 8);
    let steps: Vec<String> = frames
        .iter()
        .map(|frame| {
            let frame: serde_json::Value = serde_json::from_str(frame.json()).expect("JSON");
            format!("{} {} {}", frame["sequence_number"], frame["object"], frame["status"]).replace('"', "")
        })
        .collect();
    assert_eq!(
        steps,
        [
            "0 response created",
            "1 response in_progress",
            "2 message in_progress",
            "3 content in_progress",
            "4 content in_progress",
            "5 content completed",
            "6 message completed",
            "7 response completed"
        ]
    );
}

#[test]
fn two_messages_may_be_open_at_once() {
    let mut response = ResponseBuilder::new("response_1", 7);
    let mut thought = response.message(MessageType::Reasoning, Role::Assistant);
    let mut frames = vec![thought.in_progress(), thought.text().add_text_delta("hm")];
    let mut answer = response.assistant();
    frames.extend([answer.in_progress(), answer.text().add_text_delta("42")]);
    let mut thought = response.resume(0).expect("a message");
    frames.extend([thought.resume(0).expect("a content").complete(), thought.complete()]);
    let mut answer = response.resume(1).expect("a message");
    frames.extend([answer.resume(0).expect("a content").complete(), answer.complete()]);

    frames.push(response.complete(8));
    let last: serde_json::Value = serde_json::from_str(frames.last().expect("frames").json()).expect("JSON");
    let texts: Vec<_> = last["output"].as_array().expect("a list").iter().map(|m| &m["content"][0]["text"]).collect();
    assert_eq!(texts, ["hm", "42"]);
    assert!(response.resume(2).is_none());
}

#[test]
fn media_refusals_and_failures_have_their_own_frames() {
    let mut response = ResponseBuilder::new("response_1", 7);
    let mut message = response.assistant().metadata(&json!({ "topic": "cats" }));
    message.set_usage(&json!({ "output_tokens": 3 }));
    let frames = [
        message.content(ContentType::Image).set_image("https://example.com/cat.png"),
        message.content(ContentType::Refusal).set_refusal("no"),
        message.content(ContentType::Audio).set_audio("UklGRg==", Some("wav")),
        message.content(ContentType::Video).set_video("https://example.com/cat.mp4"),
        message.text().add_text_delta(None),
        message.data().complete(),
        message.fail("TOOL_EXECUTION_FAILED", "the tool did not answer"),
        response.fail("AGENT_ERROR", "it went wrong"),
        response.end(&Status::Incomplete),
    ];

    let ends = [
        r#""index":0,"delta":false,"msg_id":"msg_1_0","image_url":"https://example.com/cat.png"}"#,
        r#""index":1,"delta":false,"msg_id":"msg_1_0","refusal":"no"}"#,
        r#""index":2,"delta":false,"msg_id":"msg_1_0","data":"UklGRg==","format":"wav"}"#,
        r#""index":3,"delta":false,"msg_id":"msg_1_0","video_url":"https://example.com/cat.mp4"}"#,
        r#""index":4,"delta":true,"msg_id":"msg_1_0","text":""}"#,
        r#""index":5,"delta":false,"msg_id":"msg_1_0","data":{}}"#,
        r#""code":"TOOL_EXECUTION_FAILED","message":"the tool did not answer","usage":{"output_tokens":3},"metadata":{"topic":"cats"}}"#,
        r#""usage":{"output_tokens":3},"session_id":null}"#,
        r#""usage":{"output_tokens":3},"session_id":null}"#,
    ];

    for (frame, end) in frames.iter().zip(ends) {
        assert!(frame.json().ends_with(end), "{frame}");
    }
    assert!(frames[7].json().contains(r#""status":"failed","error":{"code":"AGENT_ERROR","message":"it went wrong"}"#));
    assert!(frames[8].json().contains(r#""status":"incomplete""#));
}
