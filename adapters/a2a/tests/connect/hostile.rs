//! Agents that send what no agent should: nothing panics, nothing grows without end, every turn ends.

use interlingua_core::model::Message;
use interlingua_core_testkit::{Answer, Hostile};
use serde_json::{Value, json};

use super::agent::{ALL, Session, artifact, end, fixed, message, request, status, status_with, submitted, task, text};

/// Items with one of everything.
fn items() -> Vec<Value> {
    let parts = json!([
        { "text": "hm", "metadata": { "thought": true } },
        { "data": { "id": "c", "name": "f", "args": {} }, "metadata": { "type": "function_call", "agent_api": { "type": "mcp_call", "server_label": "s" } } },
        { "data": { "id": "c", "name": "f", "response": { "output": "x" } }, "metadata": { "type": "function_response" } },
        { "raw": "AQID", "filename": "a.png", "mediaType": "image/png" }
    ]);
    let approval_request = json!([{ "text": "Sure?" }, { "data": { "interrupt": { "id": "i", "kind": "approval", "name": "f", "arguments": "{}" } } }]);
    vec![
        json!({ "task": task("WORKING", &json!([{ "artifactId": "a", "parts": [{ "text": "x" }] }])) }),
        status_with("WORKING", "m", &parts),
        artifact("a", &parts, true, true),
        status_with("INPUT_REQUIRED", "q", &approval_request),
        json!({ "message": message("m", &parts) }),
    ]
}

/// Every value in `value`, one at a time, as something else.
fn mutations(value: &Value) -> Vec<Value> {
    let strange = [
        json!(null),
        json!(-1),
        json!(true),
        json!(""),
        json!("\u{0}/../é\u{202e}"),
        json!([]),
        json!({}),
        json!([[{}]]),
    ];
    let mut all: Vec<Value> = strange.to_vec();
    match value {
        Value::Object(fields) => {
            for name in fields.keys() {
                let mut without = value.clone();
                without.as_object_mut().expect("an object").remove(name);
                all.push(without);
                for inner in mutations(&fields[name]) {
                    let mut changed = value.clone();
                    changed[name] = inner;
                    all.push(changed);
                }
            }
        }
        Value::Array(values) => {
            for (place, inner) in values.iter().enumerate() {
                for inner in mutations(inner) {
                    let mut changed = value.clone();
                    changed[place] = inner;
                    all.push(changed);
                }
            }
        }
        _ => {}
    }
    all
}

#[test]
fn every_field_may_be_anything() {
    for dialect in ALL {
        for item in items() {
            for changed in mutations(&dialect.result(1, &item)) {
                let frames = format!(
                    "{}data: {changed}\n\n{}",
                    dialect.frames(1, &[submitted()]),
                    dialect.frames(1, &[status("COMPLETED")])
                );
                let over = dialect.task(2, &task("COMPLETED", &json!([])));
                let answers = std::iter::once(Answer::stream(&frames)).chain((2..8).map(|call| match &over {
                    Answer::Body(_) => dialect.task(call, &task("COMPLETED", &json!([]))),
                    other => other.clone(),
                }));
                let driven = Session::new(&fixed(dialect)).send_text("hi", answers);
                assert!(driven.record.run().turns[0].end.is_some(), "{changed}");
            }
        }
    }
}

#[test]
fn cards_may_be_anything() {
    for dialect in ALL {
        let Answer::Body(card) = dialect.card(true) else { panic!("a body") };
        let card: Value = serde_json::from_slice(&card).expect("JSON");
        for changed in mutations(&card) {
            let mut session = Session::new(&json!({}));
            let cards = std::iter::repeat_n(super::agent::body(&changed), 4);
            // What comes after a card that can be read is not this one's dialect in each case: any answer will do.
            let answers = cards.chain(std::iter::repeat_n(Answer::body("{}"), 4));
            let driven = session.send_text("hi", answers);
            assert!(
                driven.requests.iter().all(|request| request.url.starts_with("https://agent.example/")),
                "{changed}"
            );
        }
    }
}

#[test]
fn stored_state_may_be_anything() {
    let stored = json!({
        "context_id": "C", "task_id": "T", "last_task_id": "T", "version": "0.3", "questions": 1, "status_message": 5,
        "artifacts": [["a", [{ "text": true, "mark": 1, "len": 5, "digest": 3 }]]]
    });
    let dialect = ALL[1];
    for changed in mutations(&stored) {
        let mut session = Session::new(&fixed(dialect));
        session.state = interlingua_core::Json::from_serialize(&changed);
        let first = json!({ "task": task("WORKING", &json!([{ "artifactId": "a", "parts": [{ "text": "é" }, { "text": "éé" }] }])) });
        let driven = session.send_text("hi", [dialect.stream(1, &[first, status("COMPLETED")])]);
        assert_eq!(end(&driven), "completed", "{changed}");
    }
}

#[test]
fn an_endless_task_is_bounded_by_the_record_and_ids_are_not_stored_at_any_length() {
    let long = "x".repeat(100_000);
    let mut first = submitted();
    first["task"]["contextId"] = json!(long);
    let mut session = Session::new(&fixed(ALL[0]));
    session.send_text("hi", [ALL[0].stream(1, &[first, text("a", "hi", false), status("INPUT_REQUIRED")])]);
    assert!(session.state.text().len() < 400, "{}", session.state.text());

    let many: Vec<Value> = (0..500).map(|number| text(&format!("a-{number}"), "x", false)).collect();
    let mut items = vec![submitted()];
    items.extend(many);
    items.push(status("INPUT_REQUIRED"));
    session.send_text("hi", [ALL[0].stream(1, &items)]);
    assert!(session.state.text().len() < 16 * 1024, "{}", session.state.text().len());
}

#[test]
fn malformed_output_of_an_agent_does_not_panic() {
    for dialect in ALL {
        let session = Session::new(&fixed(dialect));
        let unknown = match dialect.binding {
            "JSONRPC" => r#"{"jsonrpc":"2.0","id":1,"result":{"weatherUpdate":{"sky":"blue"}}}"#,
            _ => r#"{"weatherUpdate":{"sky":"blue"}}"#,
        };
        let call = |text: &str| {
            let call = json!([{ "data": { "function_call": { "call_id": "c", "name": "f", "arguments": text } } }]);
            dialect.stream(1, &[submitted(), status_with("INPUT_REQUIRED", "q", &call)])
        };
        Hostile {
            open: &|| session.turn(&request(vec![Message::user("hi")]), &[]),
            before: Vec::new(),
            whole: dialect
                .stream(1, &[submitted(), text("a", "Hel", false), text("a", "lo", true), status("COMPLETED")]),
            unknown: Some(unknown),
            huge: &call,
        }
        .check();
    }
}
