//! Connections that break while the service works on.

use interlingua_core::{End, Fault, FaultKind};
use interlingua_core_testkit::Answer;
use serde_json::{Value, json};

use crate::support::{body, completed, cut, driven, refusal, response, turn, turn_of};

fn status(status: &str, query: Option<&str>, last: &Value) -> Answer {
    body(&json!({
        "user_id": "s 1", "session_id": "hitl_1", "status": status, "message": null,
        "last_query": query, "last_updated": 9.0, "last_response": last
    }))
}

fn answer(timestamp: f64) -> Value {
    completed(timestamp, &json!([{"type": "human", "content": "hi"}, {"type": "ai", "content": "Hello."}]))
}

#[test]
fn the_answer_is_fetched_when_it_is_there() {
    let running = || status("running", Some("hi"), &Value::Null);
    let answers = [cut(), running(), running(), status("completed", Some("hi"), &answer(6.0))];
    let driven = driven(&mut *turn("{}"), answers);
    assert_eq!(
        (driven.record.run().end, driven.record.run().messages[0].text()),
        (Some(End::Completed), "Hello.".into())
    );
    let asked: Vec<(&str, &str)> =
        driven.requests.iter().map(|request| (request.method, request.url.as_str())).collect();
    let poll = ("GET", "http://agent.example/service/agent/status/s%201");
    assert_eq!(asked, [("POST", "http://agent.example/service/agent/invoke"), poll, poll, poll]);
    // One second, one and a half, two and a quarter.
    assert_eq!(driven.waited.as_millis(), 4750);
}

#[test]
fn an_answer_from_before_is_not_taken_for_this_one() {
    let state = r#"{"session_id":"hitl_1","timestamp":5.0}"#;
    let query = r#"{"input":[{"role":"user","content":"hi"}]}"#;
    for (found, end) in [
        (status("completed", Some("hi"), &answer(6.0)), End::Completed),
        (status("interrupted", Some("hi"), &response("interrupted", 6.0, json!({}))), End::Completed),
        (status("completed", Some("hi"), &answer(5.0)), End::Failed),
        (status("completed", Some("before"), &answer(6.0)), End::Failed),
        (status("idle", None, &Value::Null), End::Failed),
        (status("not_found", None, &Value::Null), End::Failed),
    ] {
        let driven = driven(&mut *turn_of("{}", query, state), [cut(), found.clone()]);
        assert_eq!(driven.record.run().end, Some(end), "{found:?}");
        // Never asked to run twice.
        assert_eq!(driven.requests.iter().filter(|request| request.method == "POST").count(), 1);
    }
}

#[test]
fn a_proxy_that_gave_up_is_a_broken_connection() {
    for (code, polls) in [(504, 1), (502, 1), (500, 0), (503, 0), (401, 0)] {
        let mut turn = turn("{}");
        let fault = refusal(&*turn, code, "");
        let driven = driven(&mut *turn, [Answer::Fault(fault), status("completed", Some("hi"), &answer(6.0))]);
        assert_eq!(driven.requests.len(), 1 + polls, "{code}");
    }
    // The gateway's own limits are final.
    let own = Fault::new(FaultKind::UpstreamTimeout, "the agent kept silent");
    assert_eq!(driven(&mut *turn("{}"), [Answer::Fault(own)]).requests.len(), 1);
}

#[test]
fn a_service_that_stays_away_is_given_up() {
    let driven = driven(&mut *turn("{}"), (0..7).map(|_| cut()));
    assert_eq!(driven.requests.len(), 6);
    assert_eq!(driven.record.run().turns[0].error.as_ref().expect("an error").code, "UPSTREAM_TRUNCATED");
}
