//! Requests: sessions, messages, answers, waiting for a busy session, stopping.

use std::time::Duration;

use interlingua_core::answer::CheckedDecision;
use interlingua_core::capability::{Cancel, HistoryNeed, ToolOutputs};
use interlingua_core::connector::{Next, TurnRequest};
use interlingua_core::fault::FaultKind;
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::pending::Decision;
use interlingua_core::{Blame, Json};
use interlingua_core_testkit::Answer;
use serde_json::{Value, json};

use crate::support::{
    Session, answering, answers_of, connector, created, frames, open, read, refusal, reply, request, says, started,
    status,
};

fn sent(outcome: &crate::support::Outcome, place: usize) -> Value {
    serde_json::from_slice(&outcome.driven.requests[place].body).expect("JSON")
}

fn paths(outcome: &crate::support::Outcome) -> Vec<String> {
    outcome.requests().iter().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

const HELLO: &str = r#"TEXT_BLOCK_DELTA {"block_id":"b1","delta":"Hello"}"#;

#[test]
fn the_connector_declares_its_capabilities() {
    let capabilities = connector(&json!({})).capabilities();
    assert_eq!(capabilities.history, HistoryNeed::KeptByAgent);
    assert_eq!(capabilities.cancel, Cancel::Request);
    assert_eq!(capabilities.tool_outputs, ToolOutputs::Together);
    assert_eq!(capabilities.decisions, [Decision::Accept, Decision::Edit, Decision::Reject]);
    assert!(capabilities.resume && capabilities.usage && capabilities.reasoning && !capabilities.client_tools);
}

#[test]
fn the_first_turn_makes_a_session_with_the_fields_of_the_operator() {
    let model = json!({ "type": "openai_credential", "credential_id": "k", "model": "m", "parameters": {} });
    let options = json!({ "session": { "chat_model_config": model, "name": "support" } });
    let outcome = read(&options, &reply(&[HELLO]));
    assert_eq!(paths(&outcome), ["POST /sessions/", "POST /chat/", "GET /sessions/s1/stream?agent_id=agent"]);
    assert_eq!(sent(&outcome, 0), json!({ "chat_model_config": model, "name": "support", "agent_id": "agent" }));
    let message = json!({ "id": "response_7-0-0", "name": "user", "role": "user", "content": [{ "type": "text", "text": "hi" }] });
    assert_eq!(sent(&outcome, 1), json!({ "agent_id": "agent", "session_id": "s1", "input": [message] }));
    for request in &outcome.driven.requests {
        assert!(request.headers.iter().any(|(name, value)| name == "x-user-id" && value == "ada"));
        assert!(!request.is_trusted);
    }
    assert_eq!(outcome.turn.session_state().expect("a state").text(), r#"{"session":"s1","reply":"r1"}"#);
}

#[test]
fn a_session_is_named_by_the_gateway_so_that_no_model_has_to() {
    let name_of = |options: &Value| {
        let mut said = says("hi");
        said.session_id = Some("conversation-1".to_owned());
        let outcome = Session::new(options).drive(&said, &[], [created(), started(), open(&reply(&[]))]);
        sent(&outcome, 0)["name"].clone()
    };
    assert_eq!(name_of(&json!({})), "conversation-1");
    assert_eq!(name_of(&json!({ "session": { "name": "support" } })), "support");
}

#[test]
fn the_user_is_that_of_the_request_where_the_options_name_none() {
    let user_of = |user: Option<&str>| {
        let mut session = Session::new(&json!({ "user": null }));
        let mut said = says("hi");
        said.user_id = user.map(str::to_owned);
        let outcome = session.drive(&said, &[], [created(), started(), open(&reply(&[]))]);
        let headers = &outcome.driven.requests[0].headers;
        headers.iter().find(|(name, _)| name == "x-user-id").map(|(_, value)| value.clone())
    };
    assert_eq!(user_of(Some("ann")).as_deref(), Some("ann"));
    assert_eq!((user_of(None), user_of(Some("a\r\nb: c"))), (None, None));
}

#[test]
fn ids_of_the_service_stay_segments_of_a_path() {
    let state = Json::from_serialize(&json!({ "session": "a/../b?c" }));
    let session = Session { state, ..Session::new(&json!({ "agent_id": "a&b=c" })) };
    let Ok(Next::Send(request)) = session.turn(&says("hi"), &[]).next(0) else { panic!("a request") };
    assert_eq!(request.url, "http://service/sessions/a%2F..%2Fb%3Fc/status?agent_id=a%26b%3Dc");
}

#[test]
fn media_become_blocks() {
    let body = json!({ "input": [{ "role": "user", "content": [
        { "type": "text", "text": "look" },
        { "type": "image", "image_url": "data:image/gif;base64,aGk=" },
        { "type": "image", "image_url": "https://x/a.jpg" },
        { "type": "audio", "data": "aGk=", "format": "mp3" },
        { "type": "video", "video_url": "https://x/a" },
        { "type": "file", "file_data": "aGk=", "filename": "a.pdf" },
        { "type": "file", "file_url": "https://x/b.csv" },
        { "type": "data", "data": { "x": 1 } },
        { "type": "file", "file_id": "f1" },
    ] }] });
    let mut session = Session::new(&json!({}));
    let outcome = session.drive(&request(&body), &[], [created(), started(), open(&reply(&[]))]);
    let base64 = |media_type: &str| json!({ "type": "base64", "data": "aGk=", "media_type": media_type });
    let url = |url: &str, media_type: &str| json!({ "type": "url", "url": url, "media_type": media_type });
    assert_eq!(
        sent(&outcome, 1)["input"][0]["content"],
        json!([
            { "type": "text", "text": "look" },
            { "type": "data", "source": base64("image/gif") },
            { "type": "data", "source": url("https://x/a.jpg", "image/jpeg") },
            { "type": "data", "source": base64("audio/mpeg") },
            { "type": "data", "source": url("https://x/a", "video/mp4") },
            { "type": "data", "source": base64("application/pdf"), "name": "a.pdf" },
            { "type": "data", "source": url("https://x/b.csv", "text/csv") },
            { "type": "text", "text": "{\"x\":1}" },
        ])
    );
    let losses: Vec<String> = outcome.turn.losses().iter().map(ToString::to_string).collect();
    assert_eq!(losses, ["data_in (it is sent as text)", "file_in (the service has no files by id)"]);
}

#[test]
fn content_that_the_protocol_lacks_is_counted_as_lost() {
    let body = json!({
        "input": [{ "role": "system", "content": "be brief" }, { "role": "user", "content": "hi" }],
        "temperature": 0.1, "tools": [{ "type": "function", "function": { "name": "f" } }],
        "tool_choice": "auto", "response_format": { "type": "json_object" }
    });
    let mut session = Session::new(&json!({}));
    let outcome = session.drive(&request(&body), &[], [created(), started(), open(&reply(&[]))]);
    let mut kinds: Vec<&str> = outcome.turn.losses().iter().map(|loss| loss.kind.as_str()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["instructions", "output_format", "sampling", "tool_choice", "tool_declaration"]);
    assert_eq!(sent(&outcome, 1)["input"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_history_goes_to_a_session_of_its_own() {
    let body = json!({ "input": [
        { "role": "user", "content": "one" },
        { "role": "assistant", "type": "reasoning", "content": [{ "type": "text", "text": "hm" }] },
        { "role": "assistant", "type": "plugin_call", "content": [{ "type": "data", "data": { "call_id": "c", "name": "f" } }] },
        { "role": "assistant", "content": "two" },
        { "role": "user", "content": "three" },
    ] });
    let request = request(&body);
    let session = Session::known();
    let turn = TurnRequest::new(&request, &session.state, &[]).with_history(0..4);
    let mut turn = session.connector.turn(&turn).expect("a turn");
    let driven = crate::support::driven(turn.as_mut(), [created(), started(), open(&reply(&[HELLO]))]);
    assert!(driven.requests[0].url.ends_with("/sessions/"));
    let sent: Value = serde_json::from_slice(&driven.requests[1].body).expect("JSON");
    let roles: Vec<&str> =
        sent["input"].as_array().expect("a list").iter().filter_map(|one| one["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert!(turn.losses().iter().all(|loss| loss.kind.as_str() == "history"), "{:?}", turn.losses());
}

#[test]
fn an_answer_goes_to_the_session_that_asked_without_the_history() {
    let mut session = Session::new(&json!({}));
    let asked = session.drive(&says("hi"), &[], [created(), started(), open(&asking())]);
    let (mut request, items) = answering(&asked, &CheckedDecision::new(Decision::Accept));
    let mut input = vec![interlingua_core::model::Message::user("hi")];
    input.extend(request.input.iter().cloned());
    request.input = input.into();

    let stream = frames(&[
        r#"USER_CONFIRM_RESULT {"id":"response_8-0-user_confirm_result"}"#,
        "REPLY_START {}",
        HELLO,
        r#"REPLY_END {"finished_reason":"completed"}"#,
    ]);
    let turn = TurnRequest::new(&request, &session.state, &items).with_history(0..1);
    let mut turn = session.connector.turn(&turn).expect("a turn");
    let driven = crate::support::driven(turn.as_mut(), [status("awaiting_permission"), started(), open(&stream)]);
    let lines: Vec<String> = driven.requests.iter().map(crate::support::request_line).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("GET /sessions/s1/status"), "{lines:?}");
    let sent: Value = serde_json::from_slice(&driven.requests[1].body).expect("JSON");
    assert_eq!((&sent["session_id"], &sent["input"]["type"]), (&json!("s1"), &json!("USER_CONFIRM_RESULT")));
    assert_eq!(crate::support::end(&driven.record), "completed");
    assert_eq!(turn.losses(), []);

    // Without the session that asked, nothing waits for the answer.
    let (state, request) = (Json::null(), request);
    let turn = TurnRequest::new(&request, &state, &items).with_history(0..1);
    let fault = session.connector.turn(&turn).err().expect("a fault");
    assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::Conflict, "the agent has forgotten what it asked"));
}

#[test]
fn a_lost_session_is_created_again_with_the_history() {
    let mut session = Session::known();
    let turn = session.turn(&says("hi"), &[]);
    let gone = refusal(turn.as_ref(), 404, r#"{"detail":"Session 's1' not found."}"#);
    let outcome = session.drive(&says("hi"), &[], [gone]);
    assert!(outcome.turn.needs_history());
    assert_eq!(outcome.end(), "failed UPSTREAM_MISCONFIGURED: the agent's service does not know the session");

    // What waited there cannot be answered any more.
    let mut session = Session::new(&json!({}));
    let asked = session.drive(&says("hi"), &[], [created(), started(), open(&asking())]);
    let (request, items) = answering(&asked, &CheckedDecision::new(Decision::Accept));
    let turn = session.turn(&request, &items);
    let gone = refusal(turn.as_ref(), 404, "{}");
    let outcome = session.drive(&request, &items, [gone]);
    assert!(!outcome.turn.needs_history());
    assert_eq!(outcome.end(), "failed CONFLICT: the agent has forgotten what it asked");
}

#[test]
fn new_words_reach_an_agent_whose_session_lost_an_expired_approval() {
    let mut session = Session::new(&json!({}));
    let asked = session.drive(&says("hi"), &[], [created(), started(), open(&asking())]);
    let (canceled, items) = answering(&asked, &CheckedDecision::new(Decision::Cancel));
    let with_words = |request: &AgentRequest| {
        let mut input: Vec<Message> = request.input.iter().cloned().collect();
        input.push(Message::user("go on"));
        answers_of(input)
    };
    let words = with_words(&canceled);

    // The service does not know the session that asked.
    let turn = session.turn(&words, &items);
    let gone = refusal(turn.as_ref(), 404, "{}");
    let outcome = session.drive(&words, &items, [gone]);
    assert!(outcome.turn.needs_history());

    // Nothing waits in it any more.
    let waiting = session.state.clone();
    let fresh =
        frames(&[r#"REPLY_START {"reply_id":"r2"}"#, r#"REPLY_END {"reply_id":"r2","finished_reason":"completed"}"#]);
    let outcome = session.drive(&words, &items, [status("idle"), started(), open(&fresh)]);
    assert_eq!((sent(&outcome, 1)["input"].as_array().map(Vec::len), outcome.end()), (Some(1), "completed".into()));
    session.state = waiting;

    // The gateway does not know it, or sends the history to a new one in any case.
    for state in [Json::null(), session.state.clone()] {
        let mut input = vec![Message::user("hi")];
        input.extend(words.input.iter().cloned());
        let request = answers_of(input);
        let turn = TurnRequest::new(&request, &state, &items).with_history(0..1);
        let mut turn = session.connector.turn(&turn).expect("a turn");
        assert!(!turn.needs_history());
        let driven = crate::support::driven(turn.as_mut(), [created(), started(), open(&reply(&[HELLO]))]);
        let sent: Value = serde_json::from_slice(&driven.requests[1].body).expect("JSON");
        assert_eq!(sent["input"].as_array().map(Vec::len), Some(2), "{sent}");
        assert_eq!((crate::support::end(&driven.record).as_str(), turn.losses()), ("completed", [].as_slice()));
    }
    session.state = Json::null();
    assert!(session.turn(&words, &items).needs_history());

    // Only words replace an answer, and no answer of a person is dropped.
    let (accepted, _) = answering(&asked, &CheckedDecision::new(Decision::Accept));
    for request in [canceled, with_words(&accepted)] {
        let fault = session.try_turn(&request, &items).err().expect("a fault");
        assert_eq!(
            (fault.kind, fault.message.as_str()),
            (FaultKind::Conflict, "the agent has forgotten what it asked")
        );
    }
}

/// A reply that asks for approval of one call.
fn asking() -> String {
    frames(&[
        "REPLY_START {}",
        r#"TOOL_CALL_START {"tool_call_id":"c1","tool_call_name":"delete"}"#,
        r#"TOOL_CALL_DELTA {"tool_call_id":"c1","delta":"{\"path\":\"a\"}"}"#,
        r#"REQUIRE_USER_CONFIRM {"tool_calls":[{"type":"tool_call","id":"c1","name":"delete","input":"{\"path\":\"a\"}","state":"asking","suggested_rules":[{"tool_name":"delete"}]}]}"#,
    ])
}

#[test]
fn each_decision_becomes_a_confirmation() {
    let with = |decision, arguments: Option<&str>, text: Option<&str>, payload: Option<&str>| CheckedDecision {
        arguments: arguments.map(str::to_owned),
        text: text.map(str::to_owned),
        payload: payload.and_then(Json::parse),
        ..CheckedDecision::new(decision)
    };
    let call = |input: &str| {
        json!({ "type": "tool_call", "id": "c1", "name": "delete", "input": input, "state": "asking",
            "suggested_rules": [{ "tool_name": "delete" }] })
    };
    let (same, other) = (r#"{"path":"a"}"#, r#"{"path":"b"}"#);
    for (decided, expected) in [
        (with(Decision::Accept, None, None, None), json!({ "confirmed": true, "tool_call": call(same) })),
        (with(Decision::Edit, Some(other), None, None), json!({ "confirmed": true, "tool_call": call(other) })),
        (with(Decision::Reject, None, Some("no"), None), json!({ "confirmed": false, "tool_call": call(same) })),
        (with(Decision::Cancel, None, None, None), json!({ "confirmed": false, "tool_call": call(same) })),
        (
            with(Decision::Accept, None, None, Some(r#"{"approved":true,"rules":[{"tool_name":"delete"}]}"#)),
            json!({ "confirmed": true, "tool_call": call(same), "rules": [{ "tool_name": "delete" }] }),
        ),
        (
            with(Decision::Reject, None, None, Some(r#"{"approved":false,"rules":[{"tool_name":"delete"}]}"#)),
            json!({ "confirmed": false, "tool_call": call(same) }),
        ),
    ] {
        let mut session = Session::new(&json!({}));
        let asked = session.drive(&says("hi"), &[], [created(), started(), open(&asking())]);
        let (request, items) = answering(&asked, &decided);
        let stream = frames(&[
            r#"USER_CONFIRM_RESULT {"id":"response_8-0-user_confirm_result"}"#,
            "REPLY_START {}",
            r#"REPLY_END {"finished_reason":"completed"}"#,
        ]);
        let answers = [status("awaiting_permission"), started(), open(&stream)];
        let outcome = session.drive(&request, &items, answers);
        assert_eq!(outcome.end(), "completed");
        let input = &sent(&outcome, 1)["input"];
        assert_eq!((&input["type"], &input["reply_id"]), (&json!("USER_CONFIRM_RESULT"), &json!("r1")));
        assert_eq!(input["confirm_results"], json!([expected]));
        let has_reason = outcome.turn.losses().iter().any(|loss| loss.kind.as_str() == "approval_reason");
        assert_eq!(has_reason, decided.text.is_some());
    }
}

#[test]
fn decisions_outputs_and_words_of_one_request_are_sent_one_after_the_other() {
    let ask = frames(&[
        "REPLY_START {}",
        r#"TOOL_CALL_START {"tool_call_id":"c1","tool_call_name":"delete"}"#,
        r#"TOOL_CALL_START {"tool_call_id":"c2","tool_call_name":"locate"}"#,
        r#"REQUIRE_USER_CONFIRM {"tool_calls":[{"id":"c1","name":"delete","input":"{}"}]}"#,
    ]);
    let page = json!({ "is_running": false, "messages": [{ "id": "r1", "role": "assistant", "content": [
        { "type": "tool_call", "id": "c1", "name": "delete", "input": "{}", "state": "asking" },
        { "type": "tool_call", "id": "c2", "name": "locate", "input": "{}", "state": "submitted" },
    ] }] });
    let mut session = Session::new(&json!({}));
    let asked = session.drive(&says("hi"), &[], [created(), started(), open(&ask), Answer::body(&page.to_string())]);
    let items = asked.driven.record.run().pending();
    assert_eq!(items.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(), ["locate", "delete"]);

    let mut input: Vec<_> = items
        .iter()
        .map(|item| match item.name.as_str() {
            "locate" => CheckedDecision { text: Some("here".to_owned()), ..CheckedDecision::new(Decision::Respond) }
                .message(item, false),
            _ => CheckedDecision::new(Decision::Accept).message(item, true),
        })
        .collect();
    input.push(interlingua_core::model::Message::user("and be quick"));
    let first = frames(&[
        r#"USER_CONFIRM_RESULT {"id":"response_8-0-user_confirm_result"}"#,
        "REPLY_START {}",
        r#"TOOL_RESULT_TEXT_DELTA {"tool_call_id":"c1","delta":"deleted"}"#,
        r#"TOOL_RESULT_END {"tool_call_id":"c1","state":"success"}"#,
        r#"EXTERNAL_EXECUTION_RESULT {"id":"response_8-0-external_execution_result"}"#,
        r#"TOOL_RESULT_TEXT_DELTA {"tool_call_id":"c2","delta":"here"}"#,
        r#"TOOL_RESULT_END {"tool_call_id":"c2","state":"success"}"#,
        r#"TEXT_BLOCK_DELTA {"block_id":"b1","delta":"Done."}"#,
        r#"REPLY_END {"finished_reason":"completed"}"#,
    ]);
    let second = frames(&[
        r#"REPLY_END {"id":"x","finished_reason":"completed"}"#,
        r#"REPLY_START {"reply_id":"r2"}"#,
        r#"TEXT_BLOCK_DELTA {"reply_id":"r2","block_id":"b2","delta":"At once."}"#,
        r#"REPLY_END {"reply_id":"r2","finished_reason":"completed"}"#,
    ]);
    let request = crate::support::answers_of(input);
    let answers = [status("awaiting_permission"), started(), started(), open(&first), started(), open(&second)];
    let outcome = session.drive(&request, &items, answers);
    let kinds: Vec<Value> = (1..3).map(|place| sent(&outcome, place)["input"]["type"].clone()).collect();
    assert_eq!(kinds, ["USER_CONFIRM_RESULT", "EXTERNAL_EXECUTION_RESULT"]);
    assert_eq!(sent(&outcome, 4)["input"][0]["content"][0]["text"], "and be quick");
    assert_eq!(
        (outcome.texts(), outcome.end()),
        (vec![String::new(), "Done.".into(), "At once.".into()], "completed".into())
    );
}

#[test]
fn an_answer_that_decides_nothing_is_refused() {
    let mut session = Session::new(&json!({}));
    let asked = session.drive(&says("hi"), &[], [created(), started(), open(&asking())]);
    let (_, items) = answering(&asked, &CheckedDecision::new(Decision::Accept));
    let data = json!({ "approval_request_id": items[0].id, "approve": "perhaps" });
    let body = json!({ "input": [{ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] }] });
    let fault = session.try_turn(&request(&body), &items).err().expect("a fault");
    assert_eq!((fault.kind, fault.code()), (FaultKind::Invalid, interlingua_core::answer::UNDECIDED));

    // What somebody else answered waits for nothing.
    let (request, items) = answering(&asked, &CheckedDecision::new(Decision::Accept));
    let outcome = session.drive(&request, &items, [status("idle")]);
    assert_eq!(outcome.end(), "failed NOT_WAITING: the agent does not wait for an answer any more");
}

#[test]
fn a_busy_session_is_waited_for() {
    let mut session = Session::known();
    let turn = session.turn(&says("hi"), &[]);
    let busy = || refusal(turn.as_ref(), 409, r#"{"detail":"busy"}"#);
    let answers = [status("running"), status("running"), status("idle"), busy(), started(), open(&reply(&[HELLO]))];
    let outcome = session.drive(&says("hi"), &[], answers);
    assert_eq!((outcome.texts(), outcome.end()), (vec!["Hello".to_owned()], "completed".to_owned()));
    assert!(outcome.driven.waited >= Duration::from_millis(300), "{:?}", outcome.driven.waited);

    // The wait is limited, and the error does not blame the service.
    let mut session = Session::known();
    let outcome = session.drive(&says("hi"), &[], (0..40).map(|_| status("running")));
    assert_eq!(outcome.end(), "failed SESSION_BUSY: the agent is still at work in this session");
    assert!(outcome.driven.waited >= Duration::from_secs(10) && outcome.driven.waited < Duration::from_secs(13));
    assert_eq!(FaultKind::Busy.blame(), Blame::Client);

    let state = session.state.clone();
    let mut session = Session { state, ..Session::new(&json!({ "busy_timeout": "0s" })) };
    let outcome = session.drive(&says("hi"), &[], [status("running")]);
    assert!(outcome.end().starts_with("failed SESSION_BUSY"));
}

#[test]
fn a_turn_that_is_canceled_stops_its_reply() {
    let session = Session::new(&json!({}));
    let mut turn = session.turn(&says("hi"), &[]);
    assert!(turn.cancel().is_none());
    let mut sink = interlingua_core_testkit::Recorder::new(Vec::new());
    for answer in [r#"{"session_id":"s1"}"#, r#"{"status":"started"}"#] {
        assert!(matches!(turn.next(0), Ok(Next::Send(_))));
        turn.on_body(answer.as_bytes(), &mut sink).expect("it is understood");
    }
    let stop = turn.cancel().expect("a request");
    assert_eq!((stop.method, stop.url.as_str()), ("POST", "http://service/sessions/s1/interrupt?agent_id=agent"));
    assert_eq!(turn.cancel_refused(202, b""), None);
    assert!(turn.cancel_refused(404, b"").is_some_and(|why| why.contains("session")));
    assert_eq!(turn.cancel_refused(500, b"").as_deref(), Some("its service answered 500"));

    // A reply that has ended cannot be stopped.
    let outcome = read(&json!({}), &reply(&[HELLO]));
    assert!(outcome.turn.cancel().is_none());
}
