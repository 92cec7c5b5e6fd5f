//! The responses for every script of the testkit and for recorded server output.

mod support;

use interlingua_core::End;
use interlingua_core::pending::PendingKind;
use interlingua_core_testkit::{self as testkit, scripts};
use support::*;

fn invoke_with(frames: Vec<String>) -> (Gateway, Response) {
    let mut gateway = Gateway::new("{}");
    gateway.agent_does(AgentAction::Frames(frames));
    let response = gateway.post("/agent/invoke", &invoke("ada", "hi"));
    (gateway, response)
}

fn frames(script: &testkit::Script) -> Vec<String> {
    script.frames.iter().map(|frame| frame.clone().into_owned()).collect()
}

#[test]
fn every_script_has_its_response() {
    for script in scripts().iter().filter(|script| !script.is_large()) {
        let (_, response) = invoke_with(frames(script));
        let json = serde_json::to_string_pretty(&response.body).expect("JSON");
        insta::assert_snapshot!(format!("script_{}", script.name), format!("{}\n{json}", response.status));
    }
}

#[test]
fn every_script_has_the_expected_status() {
    for script in scripts() {
        let (mut gateway, response) = invoke_with(frames(&script));
        let pending = script.record().run().pending();
        let expected = match script.end {
            End::Failed | End::Rejected | End::Canceled => "error",
            End::Completed | End::Incomplete if pending.is_empty() => "completed",
            End::Completed | End::Incomplete => "interrupted",
        };
        assert_eq!((response.status, &response.body["status"]), (200, &expected.into()), "{}", script.name);
        let status = gateway.get("/agent/status/ada");
        assert_eq!(status.body["status"], expected, "{}", script.name);
        assert_eq!(status.body["last_response"], response.body, "{}", script.name);
        assert_eq!(status.body["last_query"], "hi", "{}", script.name);

        if let Some(first) = pending.first() {
            let kind = &response.body["interrupt_data"]["interrupt_type"];
            assert_eq!(kind == "tool", first.kind == PendingKind::Tool, "{}", script.name);
        }
    }
}

#[test]
fn recorded_server_output_is_a_valid_conversation() {
    for (name, bytes) in testkit::transcripts() {
        let text = String::from_utf8_lossy(bytes);
        let frames = text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect();
        let (_, response) = invoke_with(frames);
        assert_eq!(response.status, 200, "{name}");

        let Some(messages) = response.body["result"]["messages"].as_array() else { continue };
        // Every tool message belongs to a call in an earlier ai message.
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
