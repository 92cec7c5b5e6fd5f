//! Calls that ADK marks as long-running: a client sends their output.

use interlingua_core::model::{Content, Message, MessageType, Role};
use interlingua_core::pending::PendingKind;
use interlingua_core_testkit::DrivenTurn;
use serde_json::{Value, json};

use super::agent::{ALL, Session, V1, end, fixed, request, status, status_with, submitted};

fn call() -> Value {
    json!({
        "data": { "id": "call_1", "name": "ask_boss", "args": { "days": 3 } },
        "metadata": { "adk_type": "function_call", "adk_is_long_running": true }
    })
}

/// The tool's immediate result.
fn ticket() -> Value {
    json!({
        "data": { "id": "call_1", "name": "ask_boss", "response": { "ticket": 7 } },
        "metadata": { "adk_type": "function_response" }
    })
}

fn kinds(driven: &DrivenTurn) -> Vec<String> {
    driven.record.run().messages.iter().map(|message| message.kind.as_str().to_owned()).collect()
}

/// Both ways in which ADK reports it: while the task works and again when it waits, or at the end alone.
fn stories() -> [Vec<Value>; 2] {
    let asked = |id: &str, parts: Value| status_with("INPUT_REQUIRED", id, &parts);
    [
        vec![
            submitted(),
            status_with("WORKING", "m-1", &json!([call()])),
            status_with("WORKING", "m-2", &json!([ticket()])),
            asked("m-1", json!([call()])),
        ],
        vec![submitted(), status("WORKING"), asked("m-1", json!([call(), ticket()]))],
    ]
}

#[test]
fn a_long_running_call_is_a_tool_of_the_client() {
    for dialect in ALL {
        if dialect.binding != "JSONRPC" {
            // Parts of 0.3 over REST lose their metadata in some servers; those of 1.0 are the same in both bindings.
            continue;
        }
        for story in stories() {
            let mut session = Session::new(&fixed(dialect));
            let first = session.send_text("Off for three days", [dialect.stream(1, &story)]);
            assert_eq!(kinds(&first), ["message", "function_call"]);
            let said = first.record.run().messages[0].to_model();
            let data = said.content[0].as_data().expect("data");
            assert!(data.text().contains(r#""ticket":7"#), "{}", data.text());

            let items = first.record.run().pending();
            let [item] = items.as_slice() else { panic!("one item: {items:?}") };
            assert_eq!((item.id.as_str(), item.kind, item.name.as_str()), ("call_1", PendingKind::Tool, "ask_boss"));
            assert_eq!(serde_json::from_str::<Value>(&item.arguments).expect("JSON"), json!({ "days": 3 }));

            for (output, response) in [
                (r#"{"approved":true}"#, json!({ "approved": true })),
                ("granted", json!({ "output": "granted" })),
                ("[1]", json!({ "output": "[1]" })),
            ] {
                let state = session.state.clone();
                let output = json!({ "call_id": "call_1", "output": output });
                let output =
                    Message::new(MessageType::FunctionCallOutput, Some(Role::Tool), vec![Content::data(&output)]);
                let answers = [dialect.stream(1, &[status("COMPLETED")])];
                let second = session.send(&request(vec![output]), &items, answers);
                let body: Value = serde_json::from_slice(&second.requests[0].body).expect("JSON");
                let message = &body["params"]["message"];
                assert_eq!((end(&second).as_str(), message["taskId"].as_str()), ("completed", Some("T")));
                let part = &message["parts"][0];
                assert_eq!(part["data"], json!({ "id": "call_1", "name": "ask_boss", "response": response }));
                assert_eq!(part["metadata"]["adk_type"], "function_response");
                assert!(!session.state.text().contains("ask_boss"), "{}", session.state.text());
                session.state = state;
            }
        }
    }
}

#[test]
fn a_task_that_does_not_wait_for_the_call_made_it_itself() {
    let call = status_with("WORKING", "m-1", &json!([call()]));
    for state in ["COMPLETED", "FAILED", "CANCELED"] {
        let mut session = Session::new(&fixed(V1));
        let driven = session.send_text("hi", [V1.stream(1, &[submitted(), call.clone(), status(state)])]);
        assert_eq!((kinds(&driven), driven.record.run().pending()), (vec!["plugin_call".to_owned()], Vec::new()));
    }
}

#[test]
fn text_beside_a_call_is_kept() {
    let parts = json!([{ "text": "Your boss has to agree." }, call()]);
    let mut session = Session::new(&fixed(V1));
    let items = [submitted(), status_with("INPUT_REQUIRED", "m-1", &parts)];
    let driven = session.send_text("hi", [V1.stream(1, &items)]);
    assert_eq!(kinds(&driven), ["message", "function_call"]);
    assert_eq!(driven.record.run().messages[0].text(), "Your boss has to agree.");
}

#[test]
fn many_calls_are_bounded() {
    let calls: Vec<Value> = (0..500)
        .map(|number| {
            let mut call = call();
            call["data"]["id"] = json!(format!("call_{number}"));
            call
        })
        .collect();
    let mut session = Session::new(&fixed(V1));
    let items = [submitted(), status_with("INPUT_REQUIRED", "m-1", &json!(calls))];
    let driven = session.send_text("hi", [V1.stream(1, &items)]);
    assert_eq!(driven.record.run().pending().len(), 64);
    assert!(session.state.text().len() < 8 * 1024, "{}", session.state.text().len());
}
