//! Repetitions in snapshots under any ids, and call ids that an agent reuses.

use interlingua_adapter_kit::call_ids::CallIds;
use interlingua_core::Json;
use interlingua_core::connector::TurnRequest;
use interlingua_core::loss::{Change, ContentKind};
use interlingua_core::run::Record;
use interlingua_core_testkit::Answer;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Case, connector, driven, request, stream, whole_stream};

/// A line for each message of a record: texts, reasoning, calls with their arguments, and outputs.
fn said(record: &Record) -> Vec<String> {
    let messages = record.run().messages.iter().map(|message| message.to_model());
    let lines = messages.map(|message| {
        let data = message.content.iter().filter_map(|content| content.as_data()).map(Json::text).collect::<String>();
        format!("{} {}{data}", message.kind, message.text())
    });
    lines.collect()
}

fn read(events: &[&str]) -> Vec<String> {
    said(&driven(&mut *Case::default().turn(), [Answer::stream(&whole_stream(events))]).record)
}

fn streamed(id: &str, text: &str) -> [String; 3] {
    let (id, text) = (json!(id), json!(text));
    [
        format!(r#"TEXT_MESSAGE_START {{"messageId":{id},"role":"assistant"}}"#),
        format!(r#"TEXT_MESSAGE_CONTENT {{"messageId":{id},"delta":{text}}}"#),
        format!(r#"TEXT_MESSAGE_END {{"messageId":{id}}}"#),
    ]
}

fn snapshot(messages: &Value) -> String {
    format!(r#"MESSAGES_SNAPSHOT {{"messages":{messages}}}"#)
}

#[test]
fn a_streamed_text_is_not_repeated_under_another_id() {
    let text = streamed("lc_run--1", "It is 18 C.");
    for messages in [
        json!([{ "id": "u", "role": "user", "content": "hi" }, { "id": "new", "role": "assistant", "content": "It is 18 C." }]),
        json!([{ "id": "new", "role": "assistant", "content": [{ "type": "text", "text": "It is " }, { "type": "text", "text": "18 C." }] }]),
        json!([{ "id": "a", "role": "assistant", "content": "It is " }, { "id": "b", "role": "assistant", "content": "18 C." }]),
        json!([{ "id": "lc_run--1", "role": "assistant", "content": "" }, { "id": "new", "role": "assistant", "content": "It is 18 C." }]),
    ] {
        let snapshot = snapshot(&messages);
        let mut events: Vec<&str> = text.iter().map(String::as_str).collect();
        events.extend([snapshot.as_str(), snapshot.as_str()]);
        assert_eq!(read(&events), ["message It is 18 C."], "{messages}");
    }
}

#[test]
fn a_text_whose_id_the_snapshot_gives_to_its_call_is_not_repeated() {
    let text = streamed("m1", "Let me look.");
    let call = [
        r#"TOOL_CALL_START {"toolCallId":"c1","toolCallName":"look","parentMessageId":"m1"}"#,
        r#"TOOL_CALL_ARGS {"toolCallId":"c1","delta":"{\"q\":1}"}"#,
        r#"TOOL_CALL_END {"toolCallId":"c1"}"#,
        r#"TOOL_CALL_RESULT {"messageId":"t1","toolCallId":"c1","content":"found"}"#,
    ];
    let once = [
        "message Let me look.",
        r#"plugin_call {"call_id":"c1","name":"look","arguments":"{\"q\":1}"}"#,
        r#"plugin_call_output {"call_id":"c1","name":"look","output":"found"}"#,
    ];
    for id in ["c1", "other"] {
        let snapshot = snapshot(&json!([
            { "id": "x", "role": "assistant", "content": "Let me look." },
            { "id": "m1", "role": "assistant", "content": "",
              "toolCalls": [{ "id": id, "type": "function", "function": { "name": "look", "arguments": "{\"q\": 1}" } }] },
            { "id": "y", "role": "tool", "toolCallId": id, "content": "found" }
        ]));
        let events: Vec<&str> = text.iter().map(String::as_str).chain(call).chain([snapshot.as_str()]).collect();
        assert_eq!(read(&events), once, "{id}");
    }
}

#[test]
fn text_that_only_a_snapshot_has_is_emitted_once() {
    let new = snapshot(&json!([
        { "id": "r", "role": "reasoning", "content": "Hm." },
        { "id": "a", "role": "assistant", "content": "Done." },
        { "id": "b", "role": "assistant", "content": "Done." }
    ]));
    let both = ["reasoning Hm.", "message Done.", "message Done."];
    assert_eq!(read(&[&new, &new]), both);

    // The stream says it later, under the same id or another one.
    for id in ["a", "z"] {
        let text = streamed(id, "Done.");
        let events: Vec<&str> = [new.as_str()].into_iter().chain(text.iter().map(String::as_str)).collect();
        assert_eq!(read(&events), both, "{id}");
    }
    // A text that begins in the same way is another one.
    let text = streamed("z", "Done. Anything else?");
    let events: Vec<&str> = [new.as_str()].into_iter().chain(text.iter().map(String::as_str)).collect();
    assert_eq!(read(&events), ["reasoning Hm.", "message Done.", "message Done.", "message Done. Anything else?"]);
}

#[test]
fn a_snapshot_that_is_ahead_of_the_stream_completes_a_text_that_breaks_off() {
    let whole = snapshot(&json!([{ "id": "x", "role": "assistant", "content": "It is 18 C." }]));
    let start = r#"TEXT_MESSAGE_CONTENT {"messageId":"m","delta":"It is "}"#;
    let rest = r#"TEXT_MESSAGE_CONTENT {"messageId":"m","delta":"18 C."}"#;
    for events in [&[start, &whole, rest][..], &[start, &whole], &[start, rest, &whole], &[start, &whole, &whole, rest]]
    {
        assert_eq!(read(events), ["message It is 18 C."], "{events:?}");
    }
}

#[test]
fn reasoning_of_a_snapshot_is_left_out_if_reasoning_is() {
    let new = snapshot(&json!([{ "id": "r", "role": "reasoning", "content": "Hm." }]));
    let case = Case { options: r#"{"reasoning":"drop"}"#, ..Case::default() };
    assert_eq!(said(&driven(&mut *case.turn(), [Answer::stream(&whole_stream(&[&new]))]).record), [""; 0]);
}

/// One part of an answer.
#[derive(Clone, Debug)]
enum Part {
    Text(Vec<String>),
    Reasoning(Vec<String>),
    Call,
}

/// Ids of streamed messages in a snapshot.
#[derive(Clone, Copy, Debug)]
enum Naming {
    Same,
    New,
    /// Each message has the id of the next one.
    Shifted,
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let pieces = || prop::collection::vec("[a-c ]{1,3}|ä👀", 1..4);
    let part = prop_oneof![pieces().prop_map(Part::Text), pieces().prop_map(Part::Reasoning), Just(Part::Call)];
    prop::collection::vec(part, 1..6).prop_map(|mut parts| {
        // Texts differ, as those of an answer do: an agent that says the same again says it twice.
        for (number, part) in parts.iter_mut().enumerate() {
            if let Part::Text(pieces) | Part::Reasoning(pieces) = part {
                pieces.push(format!("#{number}"));
            }
        }
        parts
    })
}

/// The conversation of the first events of a stream, as a snapshot has it.
fn messages_of(events: &[(usize, String)], parts: &[Part], naming: Naming, is_ahead: bool, salt: usize) -> Value {
    let mut messages = vec![json!({ "id": "u", "role": "user", "content": "hi" })];
    let last = events.last().map(|(place, _)| *place);
    for (place, part) in parts.iter().enumerate() {
        if Some(place) > last || last.is_none() {
            break;
        }
        let id = match naming {
            Naming::Same => format!("m{place}"),
            Naming::New => format!("n{salt}-{place}"),
            Naming::Shifted => format!("m{}", place + 1),
        };
        let own: Vec<Value> = events
            .iter()
            .filter(|(of, _)| *of == place)
            .map(|(_, event)| serde_json::from_str(event.split_once(' ').expect("fields").1).expect("JSON"))
            .collect();
        match part {
            Part::Text(pieces) | Part::Reasoning(pieces) => {
                let so_far: String = own.iter().filter_map(|event| event["delta"].as_str()).collect();
                let content = if is_ahead { pieces.concat() } else { so_far };
                let role = if matches!(part, Part::Text(_)) { "assistant" } else { "reasoning" };
                messages.push(json!({ "id": id, "role": role, "content": content }));
            }
            // Snapshots list complete calls only.
            Part::Call if own.len() >= 3 => {
                let function = json!({ "name": "f", "arguments": format!("{{\"n\": {place}}}") });
                let call = json!({ "id": format!("c{place}"), "type": "function", "function": function });
                messages.push(json!({ "id": id, "role": "assistant", "content": "", "toolCalls": [call] }));
            }
            Part::Call => {}
        }
    }
    json!(messages)
}

fn events_of(parts: &[Part]) -> Vec<(usize, String)> {
    let mut events = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let mut push = |kind: &str, fields: Value| events.push((place, format!("{kind} {fields}")));
        let id = format!("m{place}");
        match part {
            Part::Text(pieces) => {
                push("TEXT_MESSAGE_START", json!({ "messageId": id, "role": "assistant" }));
                pieces
                    .iter()
                    .for_each(|piece| push("TEXT_MESSAGE_CONTENT", json!({ "messageId": id, "delta": piece })));
                push("TEXT_MESSAGE_END", json!({ "messageId": id }));
            }
            Part::Reasoning(pieces) => {
                push("REASONING_MESSAGE_START", json!({ "messageId": id, "role": "reasoning" }));
                pieces
                    .iter()
                    .for_each(|piece| push("REASONING_MESSAGE_CONTENT", json!({ "messageId": id, "delta": piece })));
                push("REASONING_MESSAGE_END", json!({ "messageId": id }));
            }
            Part::Call => {
                let call = format!("c{place}");
                push("TOOL_CALL_START", json!({ "toolCallId": call, "toolCallName": "f", "parentMessageId": id }));
                push("TOOL_CALL_ARGS", json!({ "toolCallId": call, "delta": format!("{{\"n\":{place}}}") }));
                push("TOOL_CALL_END", json!({ "toolCallId": call }));
                push(
                    "TOOL_CALL_RESULT",
                    json!({ "toolCallId": call, "messageId": format!("t{place}"), "content": "r" }),
                );
            }
        }
    }
    events
}

proptest! {
    #[test]
    fn snapshots_anywhere_with_any_ids_repeat_nothing(
        parts in parts(),
        snapshots in prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![Just(Naming::Same), Just(Naming::New), Just(Naming::Shifted)], any::<bool>()),
            0..4,
        ),
    ) {
        let plain = events_of(&parts);
        let without: Vec<&str> = plain.iter().map(|(_, event)| event.as_str()).collect();
        let expected = read(&without);

        let mut places: Vec<(usize, Naming, bool)> =
            snapshots.iter().map(|(place, naming, ahead)| (place.index(plain.len() + 1), *naming, *ahead)).collect();
        places.sort_by_key(|(place, ..)| *place);
        let mut with: Vec<String> = Vec::new();
        for (place, (_, event)) in plain.iter().enumerate() {
            for (salt, (_, naming, ahead)) in places.iter().enumerate().filter(|(_, (at, ..))| *at == place) {
                with.push(snapshot(&messages_of(&plain[..place], &parts, *naming, *ahead, salt)));
            }
            with.push(event.clone());
        }
        for (salt, (_, naming, ahead)) in places.iter().enumerate().filter(|(_, (at, ..))| *at == plain.len()) {
            with.push(snapshot(&messages_of(&plain, &parts, *naming, *ahead, salt)));
        }
        let with: Vec<&str> = with.iter().map(String::as_str).collect();
        prop_assert_eq!(read(&with), expected, "{:?}", with);
    }
}

#[test]
fn an_output_whose_id_no_call_has_is_that_of_the_only_open_call() {
    let call = [
        r#"TOOL_CALL_START {"toolCallId":"c1","toolCallName":"look"}"#,
        r#"TOOL_CALL_ARGS {"toolCallId":"c1","delta":"{}"}"#,
        r#"TOOL_CALL_END {"toolCallId":"c1"}"#,
    ];
    let losses = |events: &[&str]| {
        let mut turn = Case::default().turn();
        let lines = said(&driven(&mut *turn, [Answer::stream(&whole_stream(events))]).record);
        let found: Vec<(ContentKind, Change)> = turn.losses().iter().map(|loss| (loss.kind, loss.change)).collect();
        (lines, found)
    };

    for id in [r#""toolCallId":"other","#, ""] {
        let result = format!(r#"TOOL_CALL_RESULT {{{id}"content":"one"}}"#);
        let (lines, found) = losses(&[&call[..], &[result.as_str()]].concat());
        assert_eq!(lines[0], r#"plugin_call {"call_id":"c1","name":"look","arguments":"{}"}"#);
        assert_eq!(lines[1..], [r#"plugin_call_output {"call_id":"c1","name":"look","output":"one"}"#]);
        assert_eq!(found, [(ContentKind::AgentOutput, Change::Changed)]);
    }

    // Of two open calls, none can be told from the other by this output; a name may tell.
    let second = r#"TOOL_CALL_START {"toolCallId":"c2","toolCallName":"find"}"#;
    let (lines, found) =
        losses(&[&call[..], &[second, r#"TOOL_CALL_RESULT {"toolCallId":"other","content":"one"}"#]].concat());
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(found, [(ContentKind::AgentOutput, Change::Lost)]);
    let named = r#"TOOL_CALL_RESULT {"toolCallId":"other","toolCallName":"find","content":"one"}"#;
    let (lines, _) = losses(&[&call[..], &[second, named]].concat());
    assert_eq!(lines[2], r#"plugin_call_output {"call_id":"c2","name":"find","output":"one"}"#);

    // No call is open.
    let (lines, found) = losses(&[r#"TOOL_CALL_RESULT {"toolCallId":"other","content":"one"}"#]);
    assert_eq!((lines, found), (Vec::new(), vec![(ContentKind::AgentOutput, Change::Lost)]));
}

/// Plays a turn of a session. Returns the request body, the lines of the record, and the state for the next turn.
fn turn_of_session(
    body: &Value,
    answered: &[interlingua_core::pending::Pending],
    state: &Json,
    events: &[&str],
) -> (Value, Vec<String>, Json) {
    let request = request(&body.to_string());
    let turn = TurnRequest::new(&request, state, answered).with_agent("travel");
    let mut turn = connector("{}").turn(&turn).expect("it can be expressed");
    let driven = driven(&mut *turn, [Answer::stream(&stream(events))]);
    let sent = serde_json::from_slice(&driven.requests[0].body).expect("JSON");
    (sent, said(&driven.record), turn.session_state().unwrap_or_else(|| state.clone()))
}

fn call(id: &str, name: &str, arguments: &str) -> [String; 3] {
    [
        format!("TOOL_CALL_START {}", json!({ "toolCallId": id, "toolCallName": name })),
        format!("TOOL_CALL_ARGS {}", json!({ "toolCallId": id, "delta": arguments })),
        format!("TOOL_CALL_END {}", json!({ "toolCallId": id })),
    ]
}

#[test]
fn an_id_of_a_call_that_is_used_again_is_another_call() {
    let tools = json!([{ "type": "function", "function": { "name": "locate" } }]);
    let words = json!({ "input": [{ "role": "user", "content": "hi" }], "tools": tools });
    let locate = call("call_0", "locate", "{}");
    let mut events: Vec<&str> = locate.iter().map(String::as_str).collect();
    events.push("RUN_FINISHED");

    let (_, first, state) = turn_of_session(&words, &[], &Json::null(), &events);
    assert_eq!(first, [r#"function_call {"call_id":"call_0","name":"locate","arguments":"{}"}"#]);
    // In the next turn, and in the turn that brings the output of the first call.
    let (_, second, state) = turn_of_session(&words, &[], &state, &events);
    assert_eq!(second, [r#"function_call {"call_id":"call_0_1","name":"locate","arguments":"{}"}"#]);
    let output = json!({ "type": "function_call_output", "role": "tool",
        "content": [{ "type": "data", "data": { "call_id": "call_0_1", "output": "Paris" } }] });
    let item = interlingua_core::pending::Pending {
        id: "call_0_1".to_owned(),
        kind: interlingua_core::pending::PendingKind::Tool,
        name: "locate".to_owned(),
        arguments: "{}".to_owned(),
        ..interlingua_core::pending::Pending::parse(&Json::from_serialize(&json!({ "id": "x" }))).expect("an item")
    };
    let answer = json!({ "input": [output], "tools": tools });
    let (sent, third, state) = turn_of_session(&answer, std::slice::from_ref(&item), &state, &events);
    assert_eq!(sent["messages"][0]["toolCallId"], "call_0", "the agent's id goes back to it: {sent}");
    assert_eq!(third, [r#"function_call {"call_id":"call_0_2","name":"locate","arguments":"{}"}"#]);
    assert_eq!(CallIds::parse(&state).own("call_0_2"), "call_0");
}

#[test]
fn an_id_that_is_used_twice_in_one_answer_is_two_calls() {
    let result = r#"TOOL_CALL_RESULT {"toolCallId":"call_0","content":"done"}"#;
    let (first, second) = (call("call_0", "look", "{}"), call("call_0", "look", "{}"));
    let mut events: Vec<&str> = first.iter().map(String::as_str).collect();
    events.push(result);
    events.extend(second.iter().map(String::as_str));
    events.push(result);
    let ids = ["call_0", "call_0", "call_0_1", "call_0_1"];
    let lines = read(&events);
    assert!(
        lines.len() == 4 && lines.iter().zip(ids).all(|(line, id)| line.contains(&format!("\"{id}\""))),
        "{lines:?}"
    );

    // Open, but of another tool, or with other arguments.
    for (name, arguments) in [("find", "{}"), ("look", r#"{"q":2}"#)] {
        let (first, second) = (call("call_0", "look", r#"{"q":1}"#), call("call_0", name, arguments));
        let events: Vec<&str> = first.iter().chain(&second).map(String::as_str).collect();
        assert_eq!(read(&events).len(), 2, "{name} {arguments}");
    }
}

#[test]
fn the_call_of_a_question_has_the_id_that_clients_were_shown() {
    let mut state = CallIds::default();
    state.assign("c1");
    let words = json!({ "input": [{ "role": "user", "content": "hi" }] });
    let delete = call("c1", "delete", "{}");
    let mut events: Vec<&str> = delete.iter().map(String::as_str).collect();
    events.push(
        r#"RUN_FINISHED {"outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"tool_call","toolCallId":"c1"}]}}"#,
    );
    let (_, lines, _) = turn_of_session(&words, &[], &state.to_json(), &events);
    assert!(lines[0].contains(r#""call_id":"c1_1""#) && lines[1].contains(r#""call_id":"c1_1""#), "{lines:?}");
}
