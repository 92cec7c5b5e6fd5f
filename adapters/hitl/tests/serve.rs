//! The service as its clients know it: the life of a session, every error case, and the forms of the answers.

mod support;

use interlingua_core::call::AgentCard;
use interlingua_core::{FaultKind, Mount, ProtocolAdapter};
use interlingua_hitl::{Hitl, Options};
use support::*;

const ADA: &str = "hitl_ada_0";

/// A session of ada's that waits for a decision.
fn interrupted() -> Gateway {
    let mut gateway = Gateway::new("{}");
    gateway.says(vec![said("m1", "message", "Let me book."), asks("a1")]);
    let answered = gateway.post("/agent/invoke", &invoke("ada", "book a hotel"));
    assert_eq!(answered.body["status"], "interrupted", "{answered:?}");
    gateway.heard.clear();
    gateway
}

fn pretty(answered: &Answered) -> String {
    format!("{}\n{}", answered.status, serde_json::to_string_pretty(&answered.body).expect("JSON"))
}

#[test]
fn an_answer_is_the_whole_conversation() {
    let mut gateway = Gateway::new("{}");
    gateway.says(vec![said("m1", "message", "Hello.")]);
    insta::assert_snapshot!("first_answer", gateway.post("/agent/invoke", &invoke("ada", "hi")).text);
    gateway.says(vec![
        said("r", "reasoning", "They want weather."),
        whole("c1", "plugin_call", r#"{"call_id":"k1","name":"weather","arguments":"{\"city\":\"Paris\"}"}"#),
        whole("c2", "plugin_call", r#"{"call_id":"k2","name":"clock","arguments":"not json"}"#),
        whole("o1", "plugin_call_output", r#"{"call_id":"k1","name":"weather","output":"18 C"}"#),
        whole("o2", "plugin_call_output", r#"{"call_id":"k2","output":""}"#),
        said("m2", "message", "18 C."),
    ]);
    insta::assert_snapshot!(
        "second_answer",
        pretty(&gateway.post("/agent/invoke", &invoke("ada", "and the weather?")))
    );
}

#[test]
fn by_option_an_answer_is_the_turn_and_reasoning_is_left_out() {
    let mut gateway = Gateway::new(r#"{"result":"turn","reasoning":"drop"}"#);
    for _ in 0..2 {
        gateway.says(vec![said("r", "reasoning", "Hm."), said("m", "message", "Hello.")]);
        let answered = gateway.post("/agent/invoke", &invoke("ada", "hi"));
        assert_eq!(answered.body["result"]["messages"].as_array().expect("messages").len(), 2, "{answered:?}");
        assert!(!answered.text.contains("Hm."));
    }
}

#[test]
fn instructions_are_told_when_they_are_new() {
    let mut gateway = Gateway::new("{}");
    for (instructions, told) in [("be brief", true), ("be brief", false), ("be kind", true)] {
        gateway.heard.clear();
        gateway.says(vec![said("m", "message", "Well.")]);
        let body = format!(r#"{{"user_id":"ada","query":"hi","system_message":"{instructions}"}}"#);
        assert_eq!(gateway.post("/agent/invoke", &body).body["status"], "completed");
        assert_eq!(gateway.heard.len(), if told { 2 } else { 1 }, "{:?}", gateway.heard);
        assert_eq!(gateway.heard[0].contains("system"), told);
    }
}

#[test]
fn a_question_is_shown_until_it_is_answered() {
    let mut gateway = interrupted();
    let again = gateway.post("/agent/invoke", &invoke("ada", "hello?"));
    insta::assert_snapshot!("interrupted", pretty(&again));
    assert!(gateway.heard.is_empty(), "nothing reaches the agent");
    let status = gateway.get("/agent/status/ada");
    insta::assert_snapshot!("status_interrupted", pretty(&status));
    assert_eq!(status.body["last_response"]["interrupt_data"], again.body["interrupt_data"]);
}

#[test]
fn each_decision_reaches_the_agent_as_what_it_is() {
    let mut table = String::new();
    for (word, args) in [
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
        gateway.says(vec![said("m2", "message", "Done.")]);
        let answered = gateway.post("/agent/resume", &resume("ada", ADA, word, args));
        assert_eq!((answered.status, &answered.body["status"]), (200, &"completed".into()), "{answered:?}");
        table.push_str(&format!("{word} {args}\n    {}\n", gateway.heard.join("\n    ")));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn an_answer_that_decides_nothing_runs_nothing() {
    let mut table = String::new();
    for (word, args) in [
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
        let answered = gateway.post("/agent/resume", &resume("ada", ADA, word, args));
        table.push_str(&format!("{word:?} {args}: {} {}\n", answered.status, answered.text));
        assert!(gateway.heard.is_empty(), "{word} {args}");
        assert_eq!(gateway.get("/agent/status/ada").body["status"], "interrupted");
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_resume_that_finds_nothing_to_answer_is_refused() {
    let mut gateway = interrupted();
    let unknown = gateway.post("/agent/resume", &resume("bob", "s", "accept", "null"));
    assert_eq!((unknown.status, unknown.text.as_str()), (404, r#"{"detail":"a session of user 'bob' not found"}"#));
    let other = gateway.post("/agent/resume", &resume("ada", "s", "accept", "null"));
    assert_eq!((other.status, other.text.as_str()), (400, r#"{"detail":"'s' is no session of user 'ada'"}"#));
    gateway.says(vec![said("m2", "message", "Done.")]);
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status, 200);
    let twice = gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null"));
    assert_eq!((twice.status, twice.text.as_str()), (400, r#"{"detail":"the session is not interrupted"}"#));
    gateway.sessions.get_mut(ADA).expect("a session").is_working = true;
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status, 400);
    gateway.sessions.clear();
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status, 404);
}

#[test]
fn two_questions_are_asked_one_after_the_other_and_answered_together() {
    let mut gateway = Gateway::new("{}");
    gateway.says(vec![
        asks("a1"),
        whole("c", "function_call", r#"{"call_id":"k1","name":"set_bg","arguments":"{\"color\":\"blue\"}"}"#),
        whole(
            "q",
            "mcp_approval_request",
            r#"{"id":"q1","name":"room_size","arguments":"","interrupt":{"kind":"input","message":"How large?","payload":{"sizes":["s","m"]},"response_schema":{"enum":["s","m"]}}}"#,
        ),
    ]);
    let first = gateway.post("/agent/invoke", &invoke("ada", "book"));
    assert_eq!(first.body["interrupt_data"]["action_request"]["action"], "book_hotel");
    gateway.heard.clear();
    let second = gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null"));
    insta::assert_snapshot!("asked_for_a_tool", pretty(&second));
    // The session waits for a person also while the tool is open.
    assert_eq!(
        gateway.post("/agent/invoke", &invoke("ada", "go on")).body["interrupt_data"],
        second.body["interrupt_data"]
    );
    assert_eq!(
        gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status,
        400,
        "a tool returns a text"
    );
    let third = gateway.post("/agent/resume", &resume("ada", ADA, "response", r#"{"args":"it is blue"}"#));
    insta::assert_snapshot!("asked_a_question", pretty(&third));
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "response", r#"{"args":"xl"}"#)).status, 400);
    assert!(gateway.heard.is_empty());
    gateway.says(vec![said("m", "message", "Booked.")]);
    assert_eq!(
        gateway.post("/agent/resume", &resume("ada", ADA, "response", r#"{"args":"m"}"#)).body["status"],
        "completed"
    );
    insta::assert_snapshot!("all_answers", gateway.heard.join("\n"));
}

#[test]
fn a_source_s_own_form_is_shown_with_all_it_has() {
    let mut gateway = Gateway::new("{}");
    gateway.says(vec![whole(
        "q",
        "mcp_approval_request",
        r#"{"id":"q1","name":"book_hotel","arguments":"{}","interrupt":{"kind":"approval","payload":{"action_request":{"action":"book_hotel","args":{}},"config":{"allow_accept":true},"description":"Book?","interrupt_type":"hotel","hint":[1.0]}}}"#,
    )]);
    insta::assert_snapshot!(pretty(&gateway.post("/agent/invoke", &invoke("ada", "book"))));
}

#[test]
fn what_the_agent_does_wrong_is_an_answer() {
    let mut gateway = Gateway::new("{}");
    gateway.does(Says::Fails("the model is gone"));
    let failed = gateway.post("/agent/invoke", &invoke("ada", "hi"));
    let expected = format!(
        r#"{{"session_id":"{ADA}","status":"error","timestamp":1795168800.0,"message":"the model is gone","result":null,"interrupt_data":null}}"#
    );
    assert_eq!((failed.status, failed.text), (200, expected));
    let status = gateway.get("/agent/status/ada");
    assert_eq!((&status.body["status"], &status.body["message"]), (&"error".into(), &"the model is gone".into()));
    gateway.does(Says::Refuses(FaultKind::UpstreamUnreachable));
    let refused = gateway.post("/agent/invoke", &invoke("ada", "hi"));
    assert_eq!((refused.status, &refused.body["status"]), (200, &"error".into()));
    assert_eq!(refused.body["message"], "the agent is not available");
    // What is wrong with the gateway is not.
    gateway.does(Says::Refuses(FaultKind::Overloaded));
    assert_eq!(gateway.post("/agent/invoke", &invoke("ada", "hi")).status, 503);
}

#[test]
fn an_answer_the_agent_did_not_take_can_be_given_again() {
    let mut gateway = interrupted();
    gateway.does(Says::Refuses(FaultKind::UpstreamUnreachable));
    let answer = resume("ada", ADA, "accept", "null");
    assert_eq!(gateway.post("/agent/resume", &answer).body["status"], "error");
    assert_eq!(gateway.get("/agent/status/ada").body["status"], "interrupted");
    gateway.says(vec![said("m2", "message", "Done.")]);
    assert_eq!(gateway.post("/agent/resume", &answer).body["status"], "completed");
}

#[test]
fn a_busy_session_refuses_a_second_query_and_says_that_it_runs() {
    let mut gateway = interrupted();
    gateway.sessions.get_mut(ADA).expect("a session").is_working = true;
    let second = gateway.post("/agent/invoke", &invoke("ada", "hi"));
    assert_eq!((second.status, second.text), (409, format!(r#"{{"detail":"session '{ADA}' is busy"}}"#)));
    let status = gateway.get("/agent/status/ada");
    assert_eq!((&status.body["status"], &status.body["last_response"]), (&"running".into(), &serde_json::Value::Null));
}

#[test]
fn by_option_a_query_meanwhile_is_a_conflict() {
    let mut gateway = Gateway::new(r#"{"invoke_while_interrupted":"conflict"}"#);
    gateway.says(vec![asks("a1"), asks("a2")]);
    gateway.post("/agent/invoke", &invoke("ada", "book"));
    assert_eq!(gateway.post("/agent/invoke", &invoke("ada", "hi")).status, 409);
    // The next question is none.
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status, 200);
}

#[test]
fn an_expired_question_can_only_be_cancelled() {
    let mut gateway = Gateway::new(r#"{"interrupt_ttl":"1m"}"#);
    gateway.says(vec![asks("a1")]);
    gateway.post("/agent/invoke", &invoke("ada", "book"));
    gateway.now += 60_000;
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status, 400);
    gateway.says(vec![said("m", "message", "Nobody decided.")]);
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "cancel", "null")).body["status"], "completed");
    assert!(gateway.heard.last().expect("an answer").contains(r#""approve":false,"reason":"cancelled""#));
}

#[test]
fn bad_bodies_are_refused_field_by_field() {
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
        let answered = gateway.post(path, body);
        let shown = if body.len() > 200 { "a long user_id" } else { body };
        table.push_str(&format!("{path} {shown}\n    {} {}\n", answered.status, answered.text));
    }
    insta::assert_snapshot!(table);
    assert!(gateway.calls.is_empty(), "nothing is asked");
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
        gateway.says(vec![said("m", "message", "Hello.")]);
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
fn a_deleted_session_is_gone_and_the_next_one_is_new() {
    let mut gateway = interrupted();
    let deleted = gateway.delete("/agent/session/ada");
    assert_eq!(deleted.text, r#"{"status":"success","message":"the session of user 'ada' is deleted"}"#);
    assert!(gateway.sessions.is_empty());
    assert_eq!(gateway.delete("/agent/session/ada").status, 404);
    assert_eq!(gateway.post("/agent/resume", &resume("ada", ADA, "accept", "null")).status, 404);
    gateway.says(vec![said("m", "message", "Hello.")]);
    let anew = gateway.post("/agent/invoke", &invoke("ada", "hi"));
    assert_eq!(anew.body["session_id"], "hitl_ada_1");
    assert_eq!(anew.body["result"]["messages"].as_array().expect("messages").len(), 2);
}

#[test]
fn sessions_the_engine_forgot_do_not_count() {
    let mut gateway = interrupted();
    gateway.sessions.clear();
    assert_eq!(gateway.get("/agent/status/ada").body["status"], "not_found");
    assert_eq!(gateway.get("/system/info").body["sessions_count"], 0);
    assert_eq!(gateway.delete("/agent/session/ada").status, 404);
}

#[test]
fn by_option_a_session_is_begun_anew_after_a_while() {
    let mut gateway = Gateway::new(r#"{"session_idle":"1h"}"#);
    for (later, session) in [(0, ADA), (3_600_000, ADA), (3_600_001, "hitl_ada_1")] {
        gateway.now += later;
        gateway.says(vec![said("m", "message", "Hello.")]);
        assert_eq!(gateway.post("/agent/invoke", &invoke("ada", "hi")).body["session_id"], session);
    }
}

#[test]
fn the_service_is_that_of_one_agent() {
    let agent = |name: &str| std::sync::Arc::new(AgentCard { name: name.into(), ..AgentCard::default() });
    let mount =
        Mount { path: String::new(), agents: vec![agent("a"), agent("b")], public_url: None, authenticates: false };
    assert!(Hitl::mount(&mount, Options::default()).is_err());
    let named = |name: &str| Options { agent: Some(name.into()), ..Options::default() };
    assert!(Hitl::mount(&mount, named("b")).is_ok() && Hitl::mount(&mount, named("c")).is_err());
}

#[test]
fn options_are_checked() {
    for wrong in [r#"{"result":"all"}"#, r#"{"colour":"red"}"#, r#"{"interrupt_ttl":"soon"}"#] {
        assert!(serde_json::from_str::<Options>(wrong).is_err(), "{wrong}");
    }
    let schema = Hitl::options_schema();
    let known = schema["properties"].as_object().expect("properties");
    let error = serde_json::from_str::<Options>(r#"{"?":1}"#).expect_err("unknown").to_string();
    for name in known.keys() {
        assert!(error.contains(&format!("`{name}`")), "{name}");
    }
    assert_eq!(error.matches('`').count() / 2 - 1, known.len(), "{error}");
}
