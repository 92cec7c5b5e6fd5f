//! Every script of the testkit, and what real servers sent, as a client of the service gets it.

mod support;

use interlingua_core::End;
use interlingua_core::pending::PendingKind;
use interlingua_core::testkit::{self, scripts};
use support::*;

fn answered(frames: Vec<String>) -> (Gateway, Answered) {
    let mut gateway = Gateway::new("{}");
    gateway.does(Says::Frames(frames));
    let answered = gateway.post("/agent/invoke", &invoke("ada", "hi"));
    (gateway, answered)
}

fn frames(script: &testkit::Script) -> Vec<String> {
    script.frames.iter().map(|frame| frame.clone().into_owned()).collect()
}

#[test]
fn every_script_has_its_answer() {
    for script in scripts().iter().filter(|script| !script.is_large()) {
        let (_, answered) = answered(frames(script));
        let shown = serde_json::to_string_pretty(&answered.body).expect("JSON");
        insta::assert_snapshot!(format!("script_{}", script.name), format!("{}\n{shown}", answered.status));
    }
}

#[test]
fn every_script_ends_as_it_should_and_status_says_the_same() {
    for script in scripts() {
        let (mut gateway, answered) = answered(frames(&script));
        let pending = script.record().run().pending();
        let expected = match script.end {
            End::Failed | End::Rejected | End::Canceled => "error",
            End::Completed | End::Incomplete if pending.is_empty() => "completed",
            End::Completed | End::Incomplete => "interrupted",
        };
        assert_eq!((answered.status, &answered.body["status"]), (200, &expected.into()), "{}", script.name);
        let status = gateway.get("/agent/status/ada");
        assert_eq!(status.body["status"], expected, "{}", script.name);
        assert_eq!(status.body["last_response"], answered.body, "{}", script.name);
        assert_eq!(status.body["last_query"], "hi", "{}", script.name);
        if let Some(first) = pending.first() {
            let kind = &answered.body["interrupt_data"]["interrupt_type"];
            assert_eq!(kind == "tool", first.kind == PendingKind::Tool, "{}", script.name);
        }
    }
}

#[test]
fn what_real_servers_sent_is_a_valid_conversation() {
    for (name, bytes) in testkit::transcripts() {
        let text = String::from_utf8_lossy(bytes);
        let frames = text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect();
        let (_, answered) = answered(frames);
        assert_eq!(answered.status, 200, "{name}");
        let Some(messages) = answered.body["result"]["messages"].as_array() else { continue };
        // Every tool message answers a call that an ai message before it made.
        let mut calls = Vec::new();
        for message in messages {
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                calls.push(call["id"].clone());
            }
            for call in message["invalid_tool_calls"].as_array().into_iter().flatten() {
                calls.push(call["id"].clone());
            }
            if message["type"] == "tool" {
                assert!(calls.contains(&message["tool_call_id"]), "{name}: {message}");
            }
        }
    }
}
