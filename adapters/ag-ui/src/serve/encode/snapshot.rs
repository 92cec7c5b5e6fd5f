//! The conversation of a thread as messages of this protocol: for front ends that show what the gateway keeps.
//!
//! Clients drop every message that a snapshot does not name, so it is always whole.

use std::collections::HashSet;

use interlingua_core::model::{Message, MessageType, Role};
use interlingua_core::run::Run;
use interlingua_core::{Extra, Json};
use serde_json::json;

use super::super::thread::Labels;
use crate::connect::user_parts;

/// What was said before a run, and in it.
pub(super) fn whole(before: &[Message], run: &Run, labels: &Labels) -> Vec<Json> {
    let input = run.turns.iter().flat_map(|turn| &turn.input).cloned();
    let output = run.messages.iter().map(|message| {
        let mut shown = message.to_model();
        shown.id = Some(labels.known.shown_id(&message.id, run).into_owned());
        shown
    });
    let all: Vec<Message> = before.iter().cloned().chain(input).chain(output).collect();
    messages(&all)
}

/// Messages of this protocol. Calls that follow one another are one message.
fn messages(all: &[Message]) -> Vec<Json> {
    let mut written: Vec<Json> = Vec::with_capacity(all.len());
    let mut ids: HashSet<String> = HashSet::new();
    let mut calls: Vec<Json> = Vec::new();
    let mut calls_id = String::new();
    for (place, message) in all.iter().enumerate() {
        let mut id = message.id.clone().unwrap_or_else(|| format!("message_{place}"));
        // What a client sent again stands here once.
        if !ids.insert(id.clone()) {
            if message.role != Some(Role::Assistant) {
                continue;
            }
            id = format!("{id}_{place}");
        }
        if message.kind.is_call() {
            if calls.is_empty() {
                calls_id.clone_from(&id);
            }
            calls.extend(message.calls().map(|call| {
                let function = json!({ "name": call.name, "arguments": call.arguments });
                Json::from_serialize(&json!({ "id": call.call_id, "type": "function", "function": function }))
            }));
            continue;
        }
        write_calls(&mut calls, &calls_id, &mut written);
        write_message(&id, message, &mut written);
    }
    write_calls(&mut calls, &calls_id, &mut written);
    written
}

fn write_calls(calls: &mut Vec<Json>, id: &str, written: &mut Vec<Json>) {
    if calls.is_empty() {
        return;
    }
    let mut message = begin(id, "assistant");
    message.push("toolCalls", Json::from_serialize(&std::mem::take(calls)));
    written.push(Json::from_serialize(&message));
}

fn begin(id: &str, role: &str) -> Extra {
    let mut message = Extra::new();
    message.push("id", Json::from_serialize(id));
    message.push("role", Json::from_serialize(role));
    message
}

fn write_message(id: &str, message: &Message, written: &mut Vec<Json>) {
    if message.kind.is_output() {
        for (place, output) in message.outputs().enumerate() {
            let id = if place == 0 { id.to_owned() } else { format!("{id}_{place}") };
            let mut result = begin(&id, "tool");
            result.push("toolCallId", Json::from_serialize(&output.call_id));
            result.push("content", Json::from_serialize(&output.output));
            written.push(Json::from_serialize(&result));
        }
        return;
    }

    let (role, content) = match (&message.kind, &message.role) {
        (MessageType::Reasoning, _) => ("reasoning", Json::from_serialize(&message.text())),
        (MessageType::Message, Some(Role::User) | None) => ("user", user_parts(&message.content)),
        (MessageType::Message, Some(Role::System)) => ("system", Json::from_serialize(&message.text())),
        (MessageType::Message, _) => ("assistant", Json::from_serialize(&message.text())),
        // Questions stand in outcomes, and events of this protocol are no messages.
        _ => return,
    };
    let mut said = begin(id, role);
    said.push("content", content);
    written.push(Json::from_serialize(&said));
}
