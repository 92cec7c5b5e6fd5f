//! The service from a client's point of view: the life of a session, all error cases, and the format of the responses.

mod support;

use interlingua_core::call::AgentCard;
use interlingua_core::{FaultKind, Json, Mount, ProtocolAdapter};
use interlingua_hitl::{Hitl, Options};
use support::*;

const ADA: &str = "hitl_ada_0";

/// A gateway where user ada has a session that waits for a decision.
fn interrupted() -> Gateway {
    let mut gateway = Gateway::new("{}");
    gateway.agent_sends(vec![text_message("m1", "message", "Let me book."), approval_request("a1")]);
    let response = gateway.post("/agent/invoke", &invoke("ada", "book a hotel"));
    assert_eq!(response.body["status"], "interrupted", "{response:?}");
    gateway.agent_input.clear();
    gateway
}

fn pretty(response: &Response) -> String {
    format!("{}\n{}", response.status, serde_json::to_string_pretty(&response.body).expect("JSON"))
}

#[test]
fn a_response_has_the_full_conversation() {
    let mut gateway = Gateway::new("{}");
    gateway.agent_sends(vec![text_message("m1", "message", "Hello.")]);
    insta::assert_snapshot!("first_answer", gateway.post("/agent/invoke", &invoke("ada", "hi")).text);
    gateway.agent_sends(vec![
        text_message("r", "reasoning", "They want weather."),
        data_message("c1", "plugin_call", r#"{"call_id":"k1","name":"weather","arguments":"{\"city\":\"Paris\"}"}"#),
        data_message("c2", "plugin_call", r#"{"call_id":"k2","name":"clock","arguments":"not json"}"#),
        data_message("o1", "plugin_call_output", r#"{"call_id":"k1","name":"weather","output":"18 C"}"#),
        data_message("o2", "plugin_call_output", r#"{"call_id":"k2","output":""}"#),
        text_message("m2", "message", "18 C."),
    ]);
    insta::assert_snapshot!(
        "second_answer",
        pretty(&gateway.post("/agent/invoke", &invoke("ada", "and the weather?")))
    );
}

#[test]
fn the_output_of_a_failed_tool_has_the_status_error() {
    let mut gateway = Gateway::new("{}");
    gateway.agent_sends(vec![
        data_message("c1", "plugin_call", r#"{"call_id":"k1","name":"weather","arguments":"{}"}"#),
        data_message("c2", "plugin_call", r#"{"call_id":"k2","name":"clock","arguments":"{}"}"#),
        data_message("o1", "plugin_call_output", r#"{"call_id":"k1","output":"no such city","is_error":true}"#),
        data_message("o2", "plugin_call_output", r#"{"call_id":"k2","output":"noon"}"#),
    ]);
    let response = gateway.post("/agent/invoke", &invoke("ada", "the weather and the time"));
    let messages = response.body["result"]["messages"].as_array().expect("messages").iter();
    let outputs = messages.filter(|message| message["type"] == "tool");
    let states: Vec<_> = outputs.map(|output| (output["content"].as_str(), output["status"].as_str())).collect();
    assert_eq!(states, [(Some("no such city"), Some("error")), (Some("noon"), Some("success"))]);
}

#[test]
fn options_limit_the_response_to_the_turn_and_omit_reasoning() {
    let mut gateway = Gateway::new(r#"{"result":"turn","reasoning":"drop"}"#);
    for _ in 0..2 {
        gateway.agent_sends(vec![text_message("r", "reasoning", "Hm."), text_message("m", "message", "Hello.")]);
        let response = gateway.post("/agent/invoke", &invoke("ada", "hi"));
        assert_eq!(response.body["result"]["messages"].as_array().expect("messages").len(), 2, "{response:?}");
        assert!(!response.text.contains("Hm."));
    }
}

#[test]
fn instructions_are_sent_only_when_they_change() {
    let mut gateway = Gateway::new("{}");
    for (instructions, is_sent) in [("be brief", true), ("be brief", false), ("be kind", true)] {
        gateway.agent_input.clear();
        gateway.agent_sends(vec![text_message("m", "message", "Well.")]);
        let body = format!(r#"{{"user_id":"ada","query":"hi","system_message":"{instructions}"}}"#);
        assert_eq!(gateway.post("/agent/invoke", &body).body["status"], "completed");
        assert_eq!(gateway.agent_input.len(), if is_sent { 2 } else { 1 }, "{:?}", gateway.agent_input);
        assert_eq!(gateway.agent_input[0].contains("system"), is_sent);
    }
}

#[test]
fn a_question_is_repeated_until_it_is_answered() {
    let mut gateway = interrupted();
    let repeated = gateway.post("/agent/invoke", &invoke("ada", "hello?"));
    insta::assert_snapshot!("interrupted", pretty(&repeated));
    assert!(gateway.agent_input.is_empty(), "the query does not reach the agent");
    let status = gateway.get("/agent/status/ada");
    insta::assert_snapshot!("status_interrupted", pretty(&status));
    assert_eq!(status.body["last_response"]["interrupt_data"], repeated.body["interrupt_data"]);
}

#[test]
fn each_decision_is_translated_for_the_agent() {
    let mut table = String::new();
    for (response_type, args) in [
        ("accept", "null"),
        ("approve", r#"{"message":"fine"}"#),
        ("edit", r#"{"args":{"nights":3}}"#),
        ("approve", r#"{"edited_args":{"nights":3}}"#),
        ("response", r#"{"args":"call me first"}"#),
        ("response", r#"{"message":"call me first"}"#),
        ("reject", "null"),
        ("reject", r#"{"message":"too dear"}"#),
        ("ignore", "null"),
    ] {
        let mut gateway = interrupted();
        gateway.agent_sends(vec![text_message("m2", "message", "Done.")]);
        let response = gateway.post("/agent/resume", &resume("ada", ADA, response_type, args));
        assert_eq!((response.status, &response.body["status"]), (200, &"completed".into()), "{response:?}");
        table.push_str(&format!("{response_type} {args}\n    {}\n", gateway.agent_input.join("\n    ")));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn an_answer_without_a_decision_starts_no_run() {
    let mut table = String::new();
    for (response_type, args) in [
        ("perhaps", "null"),
        ("", "null"),
        ("edit", "null"),
        ("edit", "{}"),
        ("edit", r#"{"args":"three"}"#),
        ("edit", r#"{"args":[3]}"#),
        ("edit", r#""three""#),
        ("response", "null"),
        ("response", r#"{"args":""}"#),
    ] {
        let mut gateway = interrupted();
        let response = gateway.post("/agent/resume", &resume("ada", ADA, response_type, args));
        table.push_str(&format!("{response_type:?} {args}: {} {}\n", response.status, response.text));
        assert!(gateway.agent_input.is_empty(), "{response_type} {args}");
        assert_eq!(gateway.get("/agent/status/ada").body["status"], "interrupted");
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_resume_without_an_open_question_is_refused() {
    let mut gateway = interrupted();
    let unknown = gateway.post("/agent/resume", &resume("bob", "s", "accept", "null"));
    assert_eq!((unknown.status, unknown.text.as_str()), (404, r#"{"detail":"a session of user 'bob' not found"}"#));

    let other = gateway.post("/agent/resume", &resume("ada", "s", "accept", "null"));
    assert_eq!((other.status, other.text.as_str()), (400, r#"{"detail":"'s' is not a session of user 'ada'"}"#));
    gateway.agent_sends(vec![text_message("m2", "message", "Done.")]);
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status, 200);

    let twice = gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null"));
    assert_eq!((twice.status, twice.text.as_str()), (400, r#"{"detail":"the session is not interrupted"}"#));
    gateway.sessions.get_mut(ADA).expect("a session").is_working = true;
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status, 400);
    gateway.sessions.clear();
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status, 404);
}

#[test]
fn two_questions_are_shown_in_turn_and_answered_together() {
    let mut gateway = Gateway::new("{}");
    gateway.agent_sends(vec![
        approval_request("a1"),
        data_message("c", "function_call", r#"{"call_id":"k1","name":"set_bg","arguments":"{\"color\":\"blue\"}"}"#),
        data_message(
            "q",
            "mcp_approval_request",
            r#"{"id":"q1","name":"room_size","arguments":"","interrupt":{"kind":"input","message":"How large?","payload":{"sizes":["s","m"]},"response_schema":{"enum":["s","m"]}}}"#,
        ),
    ]);

    let first = gateway.post("/agent/invoke", &invoke("ada", "book"));
    assert_eq!(first.body["interrupt_data"]["action_request"]["action"], "book_hotel");
    gateway.agent_input.clear();
    let second = gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null"));
    insta::assert_snapshot!("asked_for_a_tool", pretty(&second));

    // The session also waits for a person while a tool call is open.
    assert_eq!(
        gateway.post("/agent/invoke", &invoke("ada", "go on")).body["interrupt_data"],
        second.body["interrupt_data"]
    );
    assert_eq!(
        gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status,
        400,
        "a tool call needs a text as its output"
    );

    let third = gateway.post("/agent/resume", &resume("ada", ADA, "response", r#"{"args":"it is blue"}"#));
    insta::assert_snapshot!("asked_a_question", pretty(&third));
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "response", r#"{"args":"xl"}"#)).status, 400);
    assert!(gateway.agent_input.is_empty());
    gateway.agent_sends(vec![text_message("m", "message", "Booked.")]);
    assert_eq!(
        gateway.post("/agent/resume", &resume("ada", ADA, "response", r#"{"args":"m"}"#)).body["status"],
        "completed"
    );
    insta::assert_snapshot!("all_answers", gateway.agent_input.join("\n"));
}

#[test]
fn the_source_payload_is_shown_with_all_its_fields() {
    let mut gateway = Gateway::new("{}");
    gateway.agent_sends(vec![data_message(
        "q",
        "mcp_approval_request",
        r#"{"id":"q1","name":"book_hotel","arguments":"{}","interrupt":{"kind":"approval","payload":{"action_request":{"action":"book_hotel","args":{}},"config":{"allow_accept":true},"description":"Book?","interrupt_type":"hotel","hint":[1.0]}}}"#,
    )]);
    insta::assert_snapshot!(pretty(&gateway.post("/agent/invoke", &invoke("ada", "book"))));
}

#[test]
fn agent_errors_are_responses() {
    let mut gateway = Gateway::new("{}");
    gateway.agent_does(AgentAction::Fails("the model is gone"));
    let failed = gateway.post("/agent/invoke", &invoke("ada", "hi"));

    let expected = format!(
        r#"{{"session_id":"{ADA}","status":"error","timestamp":1795168800.0,"message":"the model is gone","result":null,"interrupt_data":null}}"#
    );
    assert_eq!((failed.status, failed.text), (200, expected));
    let status = gateway.get("/agent/status/ada");
    assert_eq!((&status.body["status"], &status.body["message"]), (&"error".into(), &"the model is gone".into()));
    gateway.agent_does(AgentAction::Refuses(FaultKind::UpstreamUnreachable));

    let refused = gateway.post("/agent/invoke", &invoke("ada", "hi"));
    assert_eq!((refused.status, &refused.body["status"]), (200, &"error".into()));
    assert_eq!(refused.body["message"], "the agent is not available");

    // Errors of the gateway are not.
    gateway.agent_does(AgentAction::Refuses(FaultKind::Overloaded));
    assert_eq!(gateway.post("/agent/invoke", &invoke("ada", "hi")).status, 503);
}

#[test]
fn an_answer_that_did_not_reach_the_agent_can_be_repeated() {
    let mut gateway = interrupted();
    gateway.agent_does(AgentAction::Refuses(FaultKind::UpstreamUnreachable));
    let answer = resume("ada", ADA, "accept", "null");
    assert_eq!(gateway.post("/agent/resume", &answer).body["status"], "error");
    assert_eq!(gateway.get("/agent/status/ada").body["status"], "interrupted");
    gateway.agent_sends(vec![text_message("m2", "message", "Done.")]);
    assert_eq!(gateway.post("/agent/resume", &answer).body["status"], "completed");
}

#[test]
fn a_busy_session_refuses_a_second_query_and_reports_running() {
    let mut gateway = interrupted();
    gateway.sessions.get_mut(ADA).expect("a session").is_working = true;
    let second = gateway.post("/agent/invoke", &invoke("ada", "hi"));
    assert_eq!((second.status, second.text), (409, format!(r#"{{"detail":"session '{ADA}' is busy"}}"#)));
    let status = gateway.get("/agent/status/ada");
    assert_eq!((&status.body["status"], &status.body["last_response"]), (&"running".into(), &serde_json::Value::Null));
}

#[test]
fn a_query_while_interrupted_is_a_conflict_by_option() {
    let mut gateway = Gateway::new(r#"{"invoke_while_interrupted":"conflict"}"#);
    gateway.agent_sends(vec![approval_request("a1"), approval_request("a2")]);
    gateway.post("/agent/invoke", &invoke("ada", "book"));
    assert_eq!(gateway.post("/agent/invoke", &invoke("ada", "hi")).status, 409);

    // A further question after an answer is no conflict.
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status, 200);
}

#[test]
fn an_expired_question_can_only_be_cancelled() {
    let mut gateway = Gateway::new(r#"{"interrupt_ttl":"1m"}"#);
    gateway.agent_sends(vec![approval_request("a1")]);
    gateway.post("/agent/invoke", &invoke("ada", "book"));
    gateway.now += 60_000;
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status, 400);
    gateway.agent_sends(vec![text_message("m", "message", "No one decided.")]);
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "cancel", "null")).body["status"], "completed");
    assert!(gateway.agent_input.last().expect("an answer").contains(r#""approve":false,"reason":"cancelled""#));
}

#[test]
fn bad_bodies_are_refused_with_an_error_for_each_field() {
    let mut gateway = Gateway::new("{}");
    let long = format!(r#"{{"user_id":"{}","query":"x"}}"#, "a".repeat(300));
    let mut table = String::new();
    for (path, body) in [
        ("/agent/invoke", ""),
        ("/agent/invoke", "not json"),
        ("/agent/invoke", "[]"),
        ("/agent/invoke", "{}"),
        ("/agent/invoke", r#"{"user_id":7,"query":null}"#),
        ("/agent/invoke", r#"{"user_id":"","query":"x","system_message":[],"session_id":{}}"#),
        ("/agent/invoke", long.as_str()),
        ("/agent/resume", r#"{"user_id":"ada"}"#),
        ("/agent/resume", r#"{"user_id":"ada","session_id":"","response_type":true}"#),
    ] {
        let response = gateway.post(path, body);
        let label = if body.len() > 200 { "a long user_id" } else { body };
        table.push_str(&format!("{path} {label}\n    {} {}\n", response.status, response.text));
    }
    insta::assert_snapshot!(table);
    assert!(gateway.calls.is_empty(), "invalid requests reach no one");

    let text = gateway.request("POST", "/agent/invoke", invoke("ada", "hi").as_bytes(), "text/plain");
    assert_eq!((text.status, &text.body["detail"][0]["type"]), (422, &"model_attributes_type".into()));
    let bytes = gateway.request("POST", "/agent/invoke", b"{\"user_id\":\"\xff\"}", "application/json");
    assert_eq!((bytes.status, &bytes.body["detail"][0]["type"]), (422, &"json_invalid".into()));
}

#[test]
fn an_unknown_user_has_no_session() {
    let mut gateway = Gateway::new("{}");
    insta::assert_snapshot!(pretty(&gateway.get("/agent/status/ada")));
    assert_eq!(gateway.get("/agent/status/ada/s1").body["status"], "not_found");
    assert_eq!(gateway.delete("/agent/session/ada").status, 404);
    assert_eq!(gateway.get("/agent/sessionids/ada").text, r#"{"session_ids":[]}"#);
    assert_eq!(gateway.get("/agent/active/sessionid/ada").text, r#"{"active_session_id":""}"#);
    assert_eq!(gateway.get("/system/info").text, r#"{"sessions_count":0,"active_users":[]}"#);
}

#[test]
fn a_user_may_have_several_sessions() {
    let mut gateway = Gateway::new("{}");
    for (user, session) in [("ada", None), ("ada", Some("trip")), ("bob", None)] {
        gateway.agent_sends(vec![text_message("m", "message", "Hello.")]);
        let session = session.map(|session| format!(r#","session_id":"{session}""#)).unwrap_or_default();
        let body = format!(r#"{{"user_id":"{user}","query":"hi"{session}}}"#);
        assert_eq!(gateway.post("/agent/invoke", &body).body["status"], "completed");
    }

    assert_eq!(gateway.get("/agent/sessionids/ada").text, format!(r#"{{"session_ids":["{ADA}","trip"]}}"#));
    assert_eq!(gateway.get("/agent/active/sessionid/ada").body["active_session_id"], "trip");
    assert_eq!(gateway.get("/agent/status/ada").body["session_id"], "trip");
    assert_eq!(gateway.get(&format!("/agent/status/ada/{ADA}")).body["status"], "completed");
    assert_eq!(gateway.get("/agent/status/bob/trip").body["status"], "not_found");
    assert_eq!(gateway.get("/system/info").text, r#"{"sessions_count":3,"active_users":["ada","bob"]}"#);

    assert_eq!(gateway.delete("/agent/session/ada/nope").status, 404);
    assert_eq!(gateway.delete("/agent/session/ada/trip").status, 200);
    assert_eq!(gateway.get("/agent/status/ada").body["session_id"], ADA);
    assert_eq!(gateway.delete("/agent/session/ada").status, 200);
    assert_eq!(gateway.get("/system/info").text, r#"{"sessions_count":1,"active_users":["bob"]}"#);
}

#[test]
fn a_deleted_session_does_not_exist_and_the_next_one_is_new() {
    let mut gateway = interrupted();
    let deleted = gateway.delete("/agent/session/ada");
    assert_eq!(deleted.text, r#"{"status":"success","message":"the session of user 'ada' is deleted"}"#);
    assert!(gateway.sessions.is_empty());
    assert_eq!(gateway.delete("/agent/session/ada").status, 404);
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status, 404);
    gateway.agent_sends(vec![text_message("m", "message", "Hello.")]);

    let next = gateway.post("/agent/invoke", &invoke("ada", "hi"));
    assert_eq!(next.body["session_id"], "hitl_ada_1");
    assert_eq!(next.body["result"]["messages"].as_array().expect("messages").len(), 2);
}

#[test]
fn sessions_that_the_engine_deleted_do_not_count() {
    let mut gateway = interrupted();
    gateway.sessions.clear();
    assert_eq!(gateway.get("/agent/status/ada").body["status"], "not_found");
    assert_eq!(gateway.get("/system/info").body["sessions_count"], 0);
    assert_eq!(gateway.delete("/agent/session/ada").status, 404);
}

#[test]
fn names_that_another_gateway_writes_at_the_same_time_are_kept() {
    let names = |next: u64, sessions: &[&str]| {
        Json::parse(&serde_json::json!({ "next": next, "sessions": sessions }).to_string()).expect("JSON")
    };
    let mut gateway = Gateway::new("{}");
    gateway.written_meanwhile = vec![names(0, &["trip"]), names(0, &["trip", "work"])];
    gateway.agent_sends(vec![text_message("m", "message", "Hello.")]);
    let body = r#"{"user_id":"ada","query":"hi","session_id":"home"}"#;
    assert_eq!(gateway.post("/agent/invoke", body).body["status"], "completed");
    let stored: Vec<Json> = gateway.documents.values().cloned().collect();
    assert_eq!(stored, [names(0, &["trip", "work", "home"])]);

    gateway.written_meanwhile = vec![names(0, &["home", "late"])];
    assert_eq!(gateway.delete("/agent/session/ada/home").status, 200);
    let stored: Vec<Json> = gateway.documents.values().cloned().collect();
    assert_eq!(stored, [names(1, &["late"])]);

    // One that never gets its turn is refused, and changes nothing.
    gateway.written_meanwhile = (0..200).map(|next| names(next, &["busy"])).collect();
    assert_eq!(gateway.post("/agent/invoke", body).status, 409);
    let stored: Vec<Json> = gateway.documents.values().cloned().collect();
    assert_eq!(stored, [names(191, &["busy"])]);
}

#[test]
fn an_idle_session_is_replaced_by_option() {
    let mut gateway = Gateway::new(r#"{"session_idle":"1h"}"#);
    for (later, session) in [(0, ADA), (3_600_000, ADA), (3_600_001, "hitl_ada_1")] {
        gateway.now += later;
        gateway.agent_sends(vec![text_message("m", "message", "Hello.")]);
        assert_eq!(gateway.post("/agent/invoke", &invoke("ada", "hi")).body["session_id"], session);
    }
}

#[test]
fn the_service_needs_exactly_one_agent() {
    let agent = |name: &str| std::sync::Arc::new(AgentCard { name: name.into(), ..AgentCard::default() });
    let mount =
        Mount { path: String::new(), agents: vec![agent("a"), agent("b")], public_url: None, schemes: Vec::new() };
    assert!(Hitl::mount(&mount, Options::default()).is_err());

    let named = |name: &str| Options { agent: Some(name.into()), ..Options::default() };
    assert!(Hitl::mount(&mount, named("b")).is_ok() && Hitl::mount(&mount, named("c")).is_err());
}

#[test]
fn options_are_validated() {
    for invalid in [r#"{"result":"all"}"#, r#"{"colour":"red"}"#, r#"{"interrupt_ttl":"soon"}"#] {
        assert!(serde_json::from_str::<Options>(invalid).is_err(), "{invalid}");
    }
    let schema = Hitl::options_schema();

    let properties = schema["properties"].as_object().expect("properties");
    let error = serde_json::from_str::<Options>(r#"{"?":1}"#).expect_err("unknown").to_string();
    for name in properties.keys() {
        assert!(error.contains(&format!("`{name}`")), "{name}");
    }
    assert_eq!(error.matches('`').count() / 2 - 1, properties.len(), "{error}");
}
