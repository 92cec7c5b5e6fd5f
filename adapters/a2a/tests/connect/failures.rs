//! Errors of agents: which lead to another request, and which end the turn.

use interlingua_core_testkit::Answer;
use serde_json::{Value, json};

use super::agent::{
    Session, V1, V1_REST, V03, V03_REST, end, fixed, refusal, request, status, status_with, submitted, task, text,
    texts,
};

/// The methods that were called, with the version they are of.
fn methods(driven: &interlingua_core_testkit::DrivenTurn) -> Vec<String> {
    let method = |request: &interlingua_core::connector::HttpRequest| {
        serde_json::from_slice::<Value>(&request.body).ok().and_then(|body| Some(body["method"].as_str()?.to_owned()))
    };
    driven.requests.iter().filter_map(method).collect()
}

#[test]
fn an_agent_of_the_other_version_is_found_out_once() {
    for (code, card, found) in [(-32009, V1, V03), (-32601, V1, V03), (-32601, V03, V1), (-32009, V03, V1)] {
        let mut session = Session::new(&json!({}));
        let done = [submitted(), status("COMPLETED")];
        let driven =
            session.send_text("Paris?", [card.card(true), card.error(1, code, "not this"), found.stream(2, &done)]);
        let [first, second] = if card == V1 {
            ["SendStreamingMessage", "message/stream"]
        } else {
            ["message/stream", "SendStreamingMessage"]
        };
        assert_eq!((methods(&driven), end(&driven).as_str()), (vec![first.to_owned(), second.to_owned()], "completed"));

        // It is remembered: the next turn begins with it.
        let driven = session.send_text("Rome?", [card.card(true), found.stream(1, &done)]);
        assert_eq!(methods(&driven), [second]);
    }
    // An operator who names a version knows better.
    let mut options = fixed(V1);
    options["streaming"] = json!(true);
    let driven = Session::new(&options).send_text("Paris?", [V1.error(1, -32009, "0.3 only")]);
    assert_eq!(end(&driven), "failed VERSION_NOT_SUPPORTED: the agent refused the request: 0.3 only");
}

#[test]
fn an_agent_that_does_not_stream_after_all_is_polled() {
    let done = json!({ "task": task("COMPLETED", &json!([{ "artifactId": "a-1", "parts": [{ "text": "18 C." }] }])) });
    let driven = Session::new(&json!({}))
        .send_text("Paris?", [V1.card(true), V1.error(1, -32004, "no streams"), V1.body(2, &done)]);
    assert_eq!(methods(&driven), ["SendStreamingMessage", "SendMessage"]);
    assert_eq!(texts(&driven), [("message".to_owned(), "18 C.".to_owned())]);

    // Over REST the path is missing in both versions.
    let session = Session::new(&json!({}));
    let turn = session.turn(&request(Vec::new()), &[]);
    let missing = || refusal(turn.as_ref(), 404, "<html>");
    let driven = Session::new(&json!({}))
        .send_text("Paris?", [V1_REST.card(true), missing(), missing(), V1_REST.body(3, &done)]);
    let paths: Vec<&str> =
        driven.requests[1..].iter().map(|request| request.url.rsplit("weather").next().expect("a path")).collect();
    assert_eq!(paths, ["/message:stream", "/v1/message:stream", "/message:send"]);
    assert_eq!(end(&driven), "completed");
}

#[test]
fn a_wrong_url_receives_one_request() {
    let session = Session::new(&json!({}));
    let turn = session.turn(&request(Vec::new()), &[]);
    let driven =
        Session::new(&json!({})).send_text("Paris?", [V1.card(true), refusal(turn.as_ref(), 404, "Not Found")]);
    assert_eq!(end(&driven), "failed UPSTREAM_MISCONFIGURED: the agent has nothing at the URL that the gateway asks");
}

#[test]
fn a_task_that_is_gone_is_left_and_the_message_begins_another() {
    for code in [-32001, -32004] {
        let mut session = Session::new(&fixed(V1));
        session.send_text("hi", [V1.stream(1, &[submitted(), status("INPUT_REQUIRED")])]);
        let mut other = task("COMPLETED", &json!([]));
        other["id"] = json!("U");
        let driven = session.send_text("go on", [V1.error(1, code, "gone"), V1.stream(2, &[json!({ "task": other })])]);
        let message = |place: usize| {
            let body: Value = serde_json::from_slice(&driven.requests[place].body).expect("JSON");
            body["params"]["message"].clone()
        };
        assert_eq!((&message(0)["taskId"], &message(1)["taskId"]), (&json!("T"), &Value::Null));
        assert_eq!((&message(1)["contextId"], &message(1)["referenceTaskIds"]), (&json!("C"), &json!(["T"])));
        assert_eq!(session.state.text(), r#"{"context_id":"C","last_task_id":"U"}"#);
    }
}

#[test]
fn a_task_that_ended_before_it_was_canceled_says_how() {
    use interlingua_core::answer::CheckedDecision;
    use interlingua_core::pending::Decision;
    let mut session = Session::new(&fixed(V03));
    let approval_request = status_with("INPUT_REQUIRED", "q-1", &json!([{ "text": "Sure?" }]));
    let first = session.send_text("hi", [V03.stream(1, &[submitted(), approval_request])]);
    let done = task("COMPLETED", &json!([{ "artifactId": "a-1", "parts": [{ "text": "done already" }] }]));
    let second = session.decide(
        &first,
        &CheckedDecision::new(Decision::Cancel),
        [V03.error(1, -32002, "Task cannot be canceled"), V03.task(2, &done)],
    );
    assert_eq!(methods(&second), ["tasks/cancel", "tasks/get"]);
    assert_eq!(texts(&second), [("message".to_owned(), "done already".to_owned())]);
}

#[test]
fn each_error_has_its_kind() {
    let mut table = String::new();
    for (code, message) in [
        (-32001, "Task not found"),
        (-32004, "not here"),
        (-32005, "Incompatible content types"),
        (-32006, "nonsense"),
        (-32007, "no card"),
        (-32008, "urn:x is required"),
        (-32009, "0.3 only"),
        (-32600, "Request payload validation error"),
        (-32601, "Method not found"),
        (-32602, "message.parts: must have at least one element"),
        (-32603, "KeyError: 'x' at /srv/agent/main.py"),
        (-32700, "Invalid JSON payload"),
        (-32012, "Too many requests"),
        (7, "something else"),
    ] {
        let mut options = fixed(V1);
        options["streaming"] = json!(false);
        let driven = Session::new(&options).send_text("Paris?", [V1.error(1, code, message)]);
        table.push_str(&format!("{code}: {}\n", end(&driven)));
    }
    let session = Session::new(&fixed(V03_REST));
    let turn = session.turn(&request(Vec::new()), &[]);
    for (status, body) in [
        (
            400,
            r#"{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"no parts","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INVALID_PARAMS"}]}}"#,
        ),
        (404, r#"{"type":"TaskNotFoundError","error":"TaskNotFoundError","code":-32001,"message":"Task not found"}"#),
        (401, r#"{"detail":"bad token abc"}"#),
        (429, "{}"),
        (500, "Internal Server Error"),
        (502, "<html>"),
        (503, r#"{"error":{"code":-32603,"message":"down"}}"#),
        (504, ""),
    ] {
        let mut options = fixed(V03_REST);
        options["streaming"] = json!(false);
        let driven = Session::new(&options).send_text("Paris?", [refusal(turn.as_ref(), status, body)]);
        table.push_str(&format!("{status} {body}: {}\n", end(&driven)));
    }
    insta::assert_snapshot!("errors", table);
}

/// A stream with an error of JSON-RPC behind these items.
fn broken_stream(items: &[Value], code: i32, message: &str) -> Answer {
    let error = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": message } });
    Answer::stream(&format!("{}data: {error}\n\n", V1.frames(1, items)))
}

#[test]
fn an_error_in_a_stream_is_reported_where_its_task_cannot_be_asked_for_the_rest() {
    let answered = text("a", "18 C", false);
    let gone = |call: u64| V1.error(call, -32001, "Task not found");
    for (code, message, expected) in [
        (-32603, "KeyError: the model exploded", "failed AGENT_ERROR: the model exploded"),
        (-32050, "out of luck", "failed -32050: out of luck"),
        (
            -32603,
            "prompt is too long: 9 > 8",
            "failed MODEL_CONTEXT_LENGTH_EXCEEDED: the conversation is too long for the agent: prompt is too long: 9 > 8",
        ),
    ] {
        let mut options = fixed(V1);
        options["streaming"] = json!(true);
        let items = [submitted(), status("WORKING"), answered.clone()];
        let driven =
            Session::new(&options).send_text("Paris?", [broken_stream(&items, code, message), gone(2), gone(3)]);
        assert_eq!(end(&driven), expected);
        assert_eq!(texts(&driven), [("message".to_owned(), "18 C".to_owned())], "the text before it stays");
    }

    // A task that continues has recovered from the error.
    let mut options = fixed(V1);
    options["streaming"] = json!(true);
    let items = [submitted(), status("WORKING")];
    let rest = V1.stream(2, &[json!({ "task": task("WORKING", &json!([])) }), answered, status("COMPLETED")]);
    let done = task("COMPLETED", &json!([{ "artifactId": "a", "parts": [{ "text": "18 C" }] }]));
    let answers = [broken_stream(&items, -32603, "a hiccup"), rest, V1.task(3, &done)];
    let driven = Session::new(&options).send_text("Paris?", answers);
    assert_eq!(end(&driven), "completed");
}

#[test]
fn an_agent_that_answers_nonsense_is_not_asked_again() {
    for nonsense in [
        "<html>",
        "[]",
        "\"x\"",
        "7",
        "null",
        "{}",
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":[]}"#,
    ] {
        let driven = Session::new(&fixed(V1)).send_text("Paris?", [Answer::body(nonsense)]);
        let expected = "failed UPSTREAM_PROTOCOL_ERROR: the agent's answer could not be understood";
        assert_eq!((end(&driven).as_str(), driven.requests.len()), (expected, 1), "{nonsense}");
    }
}
