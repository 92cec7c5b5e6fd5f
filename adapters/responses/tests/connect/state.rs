//! The connector's stored state of a session, and when it needs the history.

use interlingua_core::capability::HistoryNeed;
use interlingua_core::connector::Next;
use interlingua_core_testkit::Answer;
use serde_json::{Value, json};

use crate::support::{body_of, connector, driven, refused, turn_of, turn_with_history, whole_stream};

const OUTPUT: &str = r#"{"input":[{"type":"function_call_output","content":[{"type":"data","data":{"call_id":"call_1","output":"21"}}]}]}"#;
const WORD: &str = r#"{"input":[{"role":"user","content":"hi"}]}"#;
const WAITS: &str = r#"{"response":"resp_1","open_calls":["call_1"]}"#;

fn state_after(options: &str, body: &str, state: &str, events: &[&str]) -> Option<Value> {
    let mut turn = turn_of(options, body, state);
    driven(&mut *turn, [Answer::stream(&whole_stream(events))]);
    turn.session_state().map(|state| serde_json::from_str(state.text()).expect("JSON"))
}

#[test]
fn a_request_continues_the_last_response() {
    let call = r#"output_item.done {"output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}}"#;
    assert_eq!(state_after("{}", WORD, "null", &[]), Some(json!({ "response": "resp_1" })));
    assert_eq!(
        state_after("{}", WORD, "null", &[call]),
        Some(json!({ "response": "resp_1", "open_calls": ["call_1"] }))
    );
    assert_eq!(state_after("{}", OUTPUT, WAITS, &[]), Some(json!({ "response": "resp_1" })));
    assert_eq!(state_after(r#"{"chain":"full"}"#, WORD, "null", &[call]), None);

    let mut turn = turn_of("{}", OUTPUT, WAITS);
    assert!(!turn.needs_history());
    let body = body_of(&mut *turn);
    assert_eq!(body["previous_response_id"], "resp_1");
    assert_eq!(body["input"], json!([{ "type": "function_call_output", "call_id": "call_1", "output": "21" }]));
}

#[test]
fn an_answer_that_did_not_end_well_is_not_gone_on_from() {
    for answer in [
        Answer::Cut(vec![b"data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_2\"}}\n\n".to_vec()]),
        Answer::stream(
            "data: {\"type\":\"response.failed\",\"response\":{\"id\":\"resp_2\",\"status\":\"failed\"}}\n\n",
        ),
        Answer::stream(
            "data: {\"type\":\"response.failed\",\"response\":{\"id\":\"resp_2\",\"status\":\"cancelled\"}}\n\n",
        ),
    ] {
        let mut turn = turn_of("{}", WORD, r#"{"response":"resp_1"}"#);
        driven(&mut *turn, [answer]);
        assert_eq!(turn.session_state(), None);
    }
}

#[test]
fn a_call_without_an_output_needs_the_history() {
    let turn = turn_of("{}", WORD, WAITS);
    assert!(turn.needs_history());

    let with_history = r#"{"input":[{"role":"user","content":"before"},
        {"type":"function_call","content":[{"type":"data","data":{"call_id":"call_1","name":"f","arguments":"{}"}}]},
        {"role":"user","content":"hi"}]}"#;
    let mut turn = turn_with_history("{}", with_history, WAITS, 2);
    assert!(!turn.needs_history());
    let body = body_of(&mut *turn);
    assert_eq!(body["previous_response_id"], Value::Null);
    assert_eq!(body["input"].as_array().map(Vec::len), Some(2), "{body}");
    assert_eq!(turn.losses()[0].to_string(), "client_call (a call without an output is left out of the history)");
}

#[test]
fn a_question_without_a_decision_needs_the_history() {
    let asks = r#"output_item.done {"output_index":0,"item":{"id":"mcpr_1","type":"mcp_approval_request","name":"f","arguments":"{}"}}"#;
    let state = state_after("{}", WORD, "null", &[asks]).expect("a state").to_string();
    assert!(turn_of("{}", WORD, &state).needs_history());

    let decides = r#"{"input":[{"type":"mcp_approval_response","content":[{"type":"data","data":{"approval_request_id":"mcpr_1","approve":true}}]}]}"#;
    let mut turn = turn_of("{}", decides, &state);
    assert!(!turn.needs_history());
    assert_eq!(body_of(&mut *turn)["previous_response_id"], "resp_1");
}

#[test]
fn a_server_that_has_forgotten_is_sent_the_history() {
    let body = br#"{"error":{"code":"previous_response_not_found","message":"Previous response with id 'resp_1' not found."}}"#;
    for (options, state) in
        [("{}", r#"{"response":"resp_1"}"#), (r#"{"chain":"conversation"}"#, r#"{"conversation":"conv_1"}"#)]
    {
        let mut turn = turn_of(options, WORD, state);
        assert!(!turn.needs_history() && turn.next(0).is_ok());
        let fault = turn.on_failure(refused(&*turn, 400, body)).expect_err("the turn fails");
        assert!(turn.needs_history());
        assert_ne!(fault.code(), "previous_response_not_found");
    }

    // A refusal for another reason, and a refusal of a request that continues no response.
    let mut turn = turn_of("{}", WORD, r#"{"response":"resp_1"}"#);
    assert!(turn.next(0).is_ok());
    let bad = br#"{"error":{"code":"invalid_value","message":"Invalid value: 'x'."}}"#;
    assert!(turn.on_failure(refused(&*turn, 400, bad)).is_err() && !turn.needs_history());
    let mut turn = turn_of("{}", WORD, "null");
    assert!(turn.next(0).is_ok());
    assert!(turn.on_failure(refused(&*turn, 400, body)).is_err() && !turn.needs_history());
}

#[test]
fn the_first_turn_makes_a_conversation() {
    let options = r#"{"chain":"conversation"}"#;
    let mut turn = turn_of(options, WORD, "null");
    let answers = [Answer::body(r#"{"id":"conv_1","object":"conversation"}"#), Answer::stream(&whole_stream(&[]))];
    let driven = driven(&mut *turn, answers);
    let urls: Vec<&str> = driven.requests.iter().map(|request| request.url.as_str()).collect();
    assert_eq!(urls, ["http://agent/v1/conversations", "http://agent/v1/responses"]);
    let body: Value = serde_json::from_slice(&driven.requests[1].body).expect("JSON");
    assert_eq!((&body["conversation"], &body["previous_response_id"]), (&json!("conv_1"), &Value::Null));
    let state = turn.session_state().expect("a state");
    assert_eq!(state.text(), r#"{"conversation":"conv_1"}"#);

    let mut next = turn_of(options, WORD, state.text());
    let Ok(Next::Send(request)) = next.next(0) else { panic!("a request") };
    assert_eq!(request.url, "http://agent/v1/responses");
    assert_eq!(serde_json::from_slice::<Value>(&request.body).expect("JSON")["conversation"], "conv_1");

    // With the history, another conversation is made.
    let mut again = turn_with_history(options, WORD, state.text(), 1);
    let Ok(Next::Send(request)) = again.next(0) else { panic!("a request") };
    assert_eq!(request.url, "http://agent/v1/conversations");

    // A conversation without an id is ignored.
    let mut turn = turn_of(options, WORD, "null");
    let record = crate::support::driven(&mut *turn, [Answer::body(r#"{"object":"conversation"}"#)]).record;
    assert_eq!(record.run().turns[0].error.as_ref().expect("an error").code, "UPSTREAM_PROTOCOL_ERROR");
}

#[test]
fn tools_stay_declared_for_a_session() {
    let declares = r#"{"input":[],"tools":[{"type":"function","function":{"name":"f"}}]}"#;
    let state = state_after("{}", declares, "null", &[]).expect("a state");
    let tools = body_of(&mut *turn_of("{}", WORD, &state.to_string()))["tools"].clone();
    assert_eq!(tools, json!([{ "type": "function", "name": "f" }]));

    let options = r#"{"sticky_tools":false}"#;
    assert_eq!(body_of(&mut *turn_of(options, WORD, &state.to_string()))["tools"], Value::Null);
    assert_eq!(state_after(options, declares, "null", &[]), Some(json!({ "response": "resp_1" })));
    // An empty list means no tools at all.
    let none = r#"{"input":[],"tools":[]}"#;
    assert_eq!(body_of(&mut *turn_of("{}", none, &state.to_string()))["tools"], Value::Null);
}

#[test]
fn a_state_of_another_version_is_ignored() {
    for state in ["7", "[]", r#"{"response":7}"#, r#"{"tools":{}}"#] {
        assert_eq!(body_of(&mut *turn_of("{}", WORD, state))["previous_response_id"], Value::Null, "{state}");
    }
    let known = r#"{"response":"resp_1","later":true}"#;
    assert_eq!(body_of(&mut *turn_of("{}", WORD, known))["previous_response_id"], "resp_1");
}

#[test]
fn who_keeps_the_history_follows_from_the_chain() {
    let history = |options: &str| connector(options).capabilities().history;
    assert_eq!(history("{}"), HistoryNeed::KeptByAgent);
    assert_eq!(history(r#"{"chain":"conversation"}"#), HistoryNeed::KeptByAgent);
    assert_eq!(history(r#"{"chain":"full"}"#), HistoryNeed::SentEachTime);
}
