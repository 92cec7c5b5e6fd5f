//! Answers that no service should send: nothing panics, the grammar holds, and the turn ends.

use interlingua_core::answer::CheckedDecision;
use interlingua_core::pending::{Decision, Pending};
use interlingua_core::{End, Fault, Json};
use interlingua_core_testkit::{self as testkit, Answer, Hostile};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{answering, body, completed, driven, refusal, response, turn};

fn code(answer: Answer) -> String {
    let driven = driven(&mut *turn("{}"), [answer]);
    assert_eq!(driven.record.run().end, Some(End::Failed));
    driven.record.run().turns[0].error.as_ref().expect("an error").code.clone()
}

#[test]
fn answers_of_something_else_fail_as_such() {
    for text in [
        "",
        "[]",
        "null",
        "<html>no</html>",
        "{}",
        r#"{"status":null}"#,
        r#"{"status":7}"#,
        r#"{"status":"pending","task_id":"t"}"#,
        r#"{"status":"completed","result":[]}"#,
        r#"{"status":"completed","timestamp":"now"}"#,
        "{\"status\":\"completed\"",
    ] {
        assert_eq!(code(Answer::body(text)), "UPSTREAM_PROTOCOL_ERROR", "{text}");
    }
    assert_eq!(code(Answer::body(r#"{"error":{"message":"away"}}"#)), "AGENT_ERROR");
    assert_eq!(code(Answer::Body(b"{\xff}".to_vec())), "UPSTREAM_PROTOCOL_ERROR");
    assert_eq!(code(Answer::stream("data: {\"status\":\"completed\"}\n\n")), "UPSTREAM_PROTOCOL_ERROR");
}

#[test]
fn each_status_has_its_blame() {
    let item: Pending = {
        let asked = response("interrupted", 5.0, json!({"interrupt_data": {"action_request": {"action": "a"}}}));
        let [item] = driven(&mut *turn("{}"), [body(&asked)]).record.run().pending().try_into().expect("one");
        item
    };
    for (status, body, invoke, resume) in [
        (404, r#"{"detail":"no"}"#, "UPSTREAM_MISCONFIGURED", "CONFLICT"),
        (409, r#"{"detail":"busy"}"#, "SESSION_BUSY", "SESSION_BUSY"),
        (400, r#"{"detail":"not interrupted"}"#, "UPSTREAM_REFUSED", "UPSTREAM_REFUSED"),
        (422, r#"{"detail":[{"msg":"field required"}]}"#, "UPSTREAM_REFUSED", "UPSTREAM_REFUSED"),
        (401, "", "UPSTREAM_AUTH_FAILED", "UPSTREAM_AUTH_FAILED"),
        (429, "", "UPSTREAM_RATE_LIMITED", "UPSTREAM_RATE_LIMITED"),
        (503, "", "UPSTREAM_OVERLOADED", "UPSTREAM_OVERLOADED"),
        (307, "", "UPSTREAM_MISCONFIGURED", "UPSTREAM_MISCONFIGURED"),
    ] {
        let code = |fault: Fault| fault.code().to_owned();
        assert_eq!(code(refusal(&*turn("{}"), status, body)), invoke, "{status}");
        let answer = answering("{}", &item, CheckedDecision::new(Decision::Accept), &Json::null());
        assert_eq!(code(refusal(&*answer, status, body)), resume, "{status}");
    }
    let fault = refusal(&*turn("{}"), 422, r#"{"detail":[{"msg":"field required"}]}"#);
    assert!(fault.message.contains("field required"), "{}", fault.message);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z\"{]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("(action|args|text|type)", inner), 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_value_in_a_field_is_read_or_refused(
        place in 0..8_usize,
        kind in prop_oneof![Just("ai"), Just("tool"), Just("human"), Just("x")],
        value in any_json(),
    ) {
        let mut message = json!({"type": kind, "content": "a", "tool_calls": [{"name": "f", "args": {}, "id": "c"}]});
        let mut answer = completed(5.0, &json!([]));
        match place {
            0 => message["content"] = value,
            1 => message["tool_calls"] = value,
            2 => message["tool_calls"][0]["args"] = value,
            3 => message["additional_kwargs"] = value,
            4 => message["tool_call_id"] = value,
            5 => answer["timestamp"] = value,
            6 => answer["interrupt_data"] = value,
            _ => answer["session_id"] = value,
        }
        if place == 6 {
            answer["status"] = "interrupted".into();
        }
        answer["result"]["messages"] = json!([message.clone(), message]);
        let mut turn = turn("{}");
        let driven = testkit::drive(&mut *turn, [body(&answer)]);
        prop_assert_eq!(testkit::grammar(&driven.record), Ok(()));
        let _ = turn.session_state();
    }
}

#[test]
fn malformed_output_of_an_agent_does_not_panic() {
    let words = json!([{ "type": "human", "content": "hi" }, { "type": "ai", "content": "Hello" }]);
    let asked = |text: &str| {
        let arguments: Value = serde_json::from_str(text).expect("JSON");
        body(&response(
            "interrupted",
            5.0,
            json!({ "interrupt_data": { "action_request": { "action": "a", "args": arguments } } }),
        ))
    };
    Hostile {
        open: &|| turn("{}"),
        before: Vec::new(),
        whole: body(&completed(5.0, &words)),
        unknown: None,
        huge: &asked,
    }
    .check();
}
