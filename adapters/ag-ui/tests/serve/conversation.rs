//! The snapshot of a conversation has what its client made of the stream: it takes the place of that.
//!
//! Not here: conversations of several runs, which the matrix of the gateway plays.

use interlingua_core::End;
use interlingua_core_testkit::scripts;
use serde_json::{Value, json};

use super::support::{events, hello, stream_of};

/// The messages that the reducer of the official client makes of a stream.
fn reduced(events: &[Value]) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    for event in events {
        match event["type"].as_str().expect("a type") {
            "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START" => {
                messages.push(json!({ "id": event["messageId"], "role": event["role"], "content": "" }));
            }
            "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => {
                let message = find(&mut messages, &event["messageId"]);
                let text = format!("{}{}", text(&message["content"]), text(&event["delta"]));
                message["content"] = json!(text);
            }
            "TOOL_CALL_START" => {
                let function = json!({ "name": event["toolCallName"], "arguments": "" });
                let call = json!({ "id": event["toolCallId"], "type": "function", "function": function });
                let parent = event.get("parentMessageId").unwrap_or(&event["toolCallId"]);
                if !messages.iter().any(|message| message["id"] == *parent) {
                    messages.push(json!({ "id": parent, "role": "assistant" }));
                }
                let message = find(&mut messages, parent);
                let mut calls = message["toolCalls"].as_array().cloned().unwrap_or_default();
                calls.push(call);
                message["toolCalls"] = json!(calls);
            }
            "TOOL_CALL_ARGS" => {
                let calls = messages.iter_mut().filter_map(|message| message.get_mut("toolCalls")?.as_array_mut());
                let call = calls.flatten().find(|call| call["id"] == event["toolCallId"]).expect("a call");
                let arguments = format!("{}{}", text(&call["function"]["arguments"]), text(&event["delta"]));
                call["function"]["arguments"] = json!(arguments);
            }
            "TOOL_CALL_RESULT" => messages.push(json!({
                "id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"], "content": event["content"],
            })),
            _ => {}
        }
    }
    messages
}

fn find<'m>(messages: &'m mut [Value], id: &Value) -> &'m mut Value {
    messages.iter_mut().find(|message| message["id"] == *id).expect("a message")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn a_snapshot_matches_the_state_of_the_client() {
    let mut wrong = Vec::new();
    for version in [None, Some("1.0")] {
        for options in
            ["", r#","reasoning":"drop""#, r#","reasoning":"thinking""#, r#","media":"drop","unwrap_tool_output":true"#]
        {
            let options = format!(r#"{{"history":"gateway"{options}}}"#);
            for script in scripts() {
                let record = script.record();
                // A stream cannot take back what the agent corrects. A snapshot can.
                if matches!(record.run().end, Some(End::Failed | End::Rejected)) || script.name == "corrected" {
                    continue;
                }
                let events = events(&stream_of(&record, &options, &hello(version)));
                let snapshot = events.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").expect("a snapshot");
                let mut shown = snapshot["messages"].as_array().expect("a list").clone();
                // Messages to the agent have no ids in the scripts.
                let is_input = |message: &Value| text(&message["id"]).starts_with("message_");
                shown.retain(|message| message["role"] != "user" && !is_input(message));
                for message in &mut shown {
                    message.as_object_mut().expect("an object").remove("encryptedValue");
                }
                let (shown, made) = (sorted(shown), sorted(reduced(&events)));
                if shown != made {
                    wrong.push(format!(
                        "{}, {options}, {version:?}: {} and not {}",
                        script.name,
                        json!(shown),
                        json!(made)
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Where a message ends says nothing about where it stands: they may overlap.
fn sorted(mut messages: Vec<Value>) -> Vec<Value> {
    messages.sort_by_key(|message| text(&message["id"]).to_owned());
    messages
}
