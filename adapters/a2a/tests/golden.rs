//! The output of every script in every dialect, and the property that a replay gives the same bytes.

mod support;

use std::collections::HashMap;
use std::fmt::Write as _;

use interlingua_core::agent_event::{AgentEvent, CallPart, ContentEvent, ContentUpdate, ContentValue, MessageEvent};
use interlingua_core::call::{RunInfo, RunState};
use interlingua_core::exchange::Exchange;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::{End, Json, Record, RunCall};
use interlingua_core_testkit::{self as testkit, laws};
use serde_json::{Value, json};
use support::{Answer, ClientRequest, DecodedExchange, about, host, lines, user, user_v03, with};

/// A streaming request in each dialect, by name.
fn dialects() -> [(&'static str, ClientRequest<'static>); 4] {
    [
        ("1.0 JSONRPC", ClientRequest::rpc("SendStreamingMessage", &user("hi"))),
        ("1.0 HTTP+JSON", ClientRequest::rest("POST", "/message:stream").body(&user("hi"))),
        ("0.3 JSONRPC", ClientRequest::rpc_v03("message/stream", &user_v03("hi"))),
        ("0.3 HTTP+JSON", ClientRequest::new("POST", "/v1/message:stream").body(&user("hi"))),
    ]
}

/// The record of a script as the engine leaves it: with pending items the run is waiting.
fn waiting(record: &Record) -> (Record, RunInfo) {
    let run = record.run();
    let waits = !run.pending().is_empty() || run.end == Some(End::Incomplete);
    let mut about = about(record);
    if !waits {
        return (record.clone(), about);
    }

    let mut open = Record::new(interlingua_core::Run::new(run.id, &*run.agent, &*run.session_id, run.created_at));

    replay_into(record, &mut open);
    about.state = RunState::Waiting;
    about.changed_at = open.now();
    (open, about)
}

/// Copies everything except the end of the run.
fn replay_into(from: &Record, to: &mut Record) {
    use interlingua_core::event::Event;
    use interlingua_core::run::{MessageEnd, MessageStart};
    let run = from.run();
    for step in from.steps(0) {
        to.set_time(step.at);
        match step.event {
            Event::RunStarted | Event::RunFinished { .. } => {}
            Event::TurnStarted { turn } => to.start_turn(run.turns[turn as usize].input.clone()),
            Event::AnswerStarted { .. } => to.start_answer(),
            Event::MessageStarted { message } => {
                let message = &run.messages[message as usize];
                to.start_message(MessageStart {
                    metadata: message.announced_metadata.clone(),
                    ..MessageStart::new(message.id.clone(), message.announced.clone(), message.role.clone())
                });
            }
            Event::ContentStarted { message, content } => {
                let slot = &run.messages[message as usize].slots[content as usize];
                to.start_content(message, slot.kind.clone(), slot.call.clone());
            }
            Event::ContentDelta { message, content, .. } => to.push(message, content, step.delta()),
            Event::ContentReplaced { message, content, .. } => to.replace(message, content, step.delta()),
            Event::ContentFinished { message, content } => {
                let slot = &run.messages[message as usize].slots[content as usize];
                to.finish_content(message, content, slot.value.clone(), slot.extra.clone());
            }
            Event::MessageFinished { message } => {
                let source = &run.messages[message as usize];
                to.finish_message(
                    message,
                    MessageEnd {
                        code: source.code.clone(),
                        message: source.message.clone(),
                        usage: source.usage.clone(),
                        metadata: source.metadata.clone(),
                        ..MessageEnd::new(source.end.expect("it has ended"))
                    },
                );
            }
            Event::TurnFinished { turn, end } => {
                let turn = &run.turns[turn as usize];
                to.update_turn(turn.upstream_id.as_deref(), turn.usage.clone(), turn.extra.clone());
                if turn.withdrawn {
                    to.withdraw_turn(turn.error.clone());
                } else {
                    to.finish_turn(end, turn.error.clone());
                }
            }
        }
    }
}

fn streamed(decoded: DecodedExchange, record: &Record) -> Answer {
    let (record, about) = waiting(record);
    decoded.streamed(&record, about)
}

#[test]
fn every_script_matches_its_golden_output_in_every_dialect() {
    let host = host();
    for script in testkit::scripts().into_iter().filter(|script| !script.is_large()) {
        let record = script.record();
        let mut golden = format!("{}\n", script.description);
        for (name, request) in dialects() {
            let answer = streamed(host.send(&request), &record);
            let _ = writeln!(golden, "\n--- {name}, stream\n{}", lines(&answer));
        }
        let (open, about) = waiting(&record);
        for (name, request) in [
            ("1.0", ClientRequest::rest("GET", "/tasks/01930000-0000-7000-8000-000000000001")),
            ("0.3", ClientRequest::rpc_v03("tasks/get", &json!({ "id": support::NEW_ID.to_string() }))),
        ] {
            let shown = testkit::TestRun::with_info(&open, about.clone());
            let answer = host.send(&request).final_answer(interlingua_core::Reply::Run(shown.view()));
            let _ = writeln!(golden, "--- {name}, the task\n{}\n", lines(&answer));
        }

        insta::with_settings!({ omit_expression => true, snapshot_suffix => script.name }, {
            insta::assert_snapshot!("script", golden);
        });
    }
}

#[test]
fn a_replay_gives_the_same_bytes_as_a_live_stream() {
    let options = [
        json!({}),
        json!({ "artifacts": "turn", "reasoning": "artifact", "tools": "all", "status_text": "always" }),
        json!({ "reasoning": "stream", "last_chunk": false, "incomplete": "completed", "tools": "drop" }),
        json!({ "reply": "auto" }),
        json!({ "reply": "message" }),
    ];
    for options in options {
        let host = with(options);
        for (_, request) in dialects() {
            let open = || -> Box<dyn Exchange> {
                let decoded = host.send(&request);
                assert!(decoded.call.is_ok(), "{:?}", decoded.call);
                decoded.exchange
            };
            for script in testkit::scripts().into_iter().filter(|script| !script.is_large()) {
                laws::replay_equals_live_as(open, &script, about);
            }
        }
    }
}

#[test]
fn every_stream_ends_exactly_once() {
    let host = host();
    for script in testkit::scripts() {
        for (name, request) in dialects() {
            let answer = streamed(host.send(&request), &script.record());
            let frames = answer.frames();

            let is_end = |frame: &serde_json::Value| {
                let text = frame.to_string();
                ["COMPLETED", "FAILED", "CANCEL", "REJECTED", "INPUT_REQUIRED", "\"final\":true"]
                    .iter()
                    .any(|word| text.contains(word) && (text.contains("tatusUpdate") || text.contains("status-update")))
            };

            let ends = frames.iter().filter(|frame| is_end(frame)).count();

            let stays = script.carries(testkit::Feature::Interrupt) && ends == 0;
            assert!(
                stays || ends == 1 && is_end(frames.last().expect("one")),
                "{name} {}: {}",
                script.name,
                answer.body
            );
        }
    }
}

#[test]
fn the_documented_stream_matches_the_output() {
    let host = host();
    let params = json!({ "message": { "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": "Paris?" }] }, "configuration": {} });
    let decoded = host.send(&ClientRequest::rpc("SendStreamingMessage", &params));
    let call: RunCall = decoded.run().clone();

    let record = support::record_of(&call, "plugin");
    let answer = decoded.streamed(&record, support::about_call(&record, &call));
    insta::assert_snapshot!(lines(&answer));
}

/// The ids of the agent's messages in statuses, each with its message.
fn status_messages(answer: &Answer) -> Vec<(String, Value)> {
    fn collect(value: &Value, found: &mut Vec<(String, Value)>) {
        if let Some(id) = value["messageId"].as_str()
            && value["role"].as_str().is_some_and(|role| matches!(role, "ROLE_AGENT" | "agent"))
        {
            found.push((id.to_owned(), value.clone()));
        }
        match value {
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            Value::Object(fields) => fields.values().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for line in answer.body.lines() {
        let data = line.strip_prefix("data: ").unwrap_or(line);
        if let Ok(item) = serde_json::from_str(data) {
            collect(&item, &mut found);
        }
    }
    found
}

/// A call that turns out to be the client's once it has ended, beside one that has its output.
fn late_client_call() -> Record {
    let mut recorder = testkit::Recorder::new(Vec::new());
    let call = |id: &str| CallPart {
        call_id: id.to_owned().into(),
        name: "locate".into(),
        arguments: "{}".into(),
        server_label: None,
    };
    let mut emit = |event: &AgentEvent<'_>| {
        recorder.emit(event);
    };
    for id in ["c1", "c2"] {
        emit(&AgentEvent::message(id, MessageType::PluginCall));
        emit(&AgentEvent::call(id, call(id)));
    }
    emit(&AgentEvent::Message(MessageEvent {
        id: Some("c1".into()),
        kind: Some(MessageType::FunctionCall),
        end: Some(End::Completed),
        ..MessageEvent::default()
    }));
    emit(&AgentEvent::message_finished("c2", End::Completed));
    let both = [("call", call("d1")), ("call", call("d2"))];
    for (index, (id, part)) in (0..).zip(both) {
        let content = ContentEvent::new(id, ContentUpdate::Final, ContentValue::Call(part)).at(index);
        if index == 0 {
            emit(&AgentEvent::message(id, MessageType::FunctionCall));
        }
        emit(&AgentEvent::Content(content));
    }
    emit(&AgentEvent::message_finished("call", End::Completed));
    let output = Json::from_serialize(&json!({ "call_id": "d1", "output": "Paris" }));
    emit(&AgentEvent::whole("out", MessageType::FunctionCallOutput, Role::Tool, ContentValue::OwnedData(output)));
    emit(&AgentEvent::completed());
    recorder.finish()
}

#[test]
fn an_id_is_that_of_one_message_of_a_task() {
    let options = [
        json!({}),
        json!({ "reasoning": "stream", "tools": "all", "status_text": "always" }),
        json!({ "artifacts": "turn", "reasoning": "artifact", "turn_end": "input-required" }),
    ];
    let scripts = testkit::scripts().into_iter().filter(|script| !script.is_large());
    let records = scripts.map(|script| (script.name.to_owned(), script.record()));
    let all: Vec<(String, Record)> = records.chain([("late client call".to_owned(), late_client_call())]).collect();
    for options in options {
        let host = with(options.clone());
        for (name, record) in &all {
            let mut known: HashMap<String, Value> = HashMap::new();
            let (open, about) = if name == "late client call" {
                let mut about = about(record);
                about.state = RunState::Waiting;
                (record.clone(), about)
            } else {
                waiting(record)
            };
            let streams =
                dialects().map(|(dialect, request)| (dialect, host.send(&request).streamed(&open, about.clone())));
            for (dialect, answer) in &streams[..1] {
                for (id, message) in status_messages(answer) {
                    let other = known.insert(id.clone(), message.clone());
                    assert!(other.is_none_or(|other| other == message), "{name}, {dialect}, {options}: {id} twice");
                }
            }
            // The task, and the stream in each dialect, have the same ids for the same messages.
            let ids =
                |answer: &Answer| -> Vec<String> { status_messages(answer).into_iter().map(|(id, _)| id).collect() };
            for (dialect, answer) in &streams {
                assert_eq!(ids(answer), ids(&streams[0].1), "{name}, {dialect}, {options}");
            }
            let shown = testkit::TestRun::with_info(&open, about.clone());
            let request = ClientRequest::rest("GET", "/tasks/01930000-0000-7000-8000-000000000001");
            let task = host.send(&request).final_answer(interlingua_core::Reply::Run(shown.view()));
            let mut once: HashMap<String, Value> = HashMap::new();
            for (id, message) in status_messages(&task) {
                let in_stream = known.get(&id).cloned();
                assert!(in_stream.is_none_or(|other| other == message), "{name}, {options}: {id} differs in the task");
                assert!(once.insert(id.clone(), message).is_none(), "{name}, {options}: {id} is in the task twice");
            }
        }
    }
}
