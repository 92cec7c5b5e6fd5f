//! Answers to questions over MCP through the running gateway: each kind of item on each way, what decides nothing, and
//! who may decide.

use serde_json::{Value, json};

use super::mcp_calls::{
    Legacy, Messages, Modern, accept, approval, ask, asking, gateway, login, next, next_question, question, result,
    texts,
};
use crate::support::agent::text_reply;
use crate::support::gateway::{Gateway, approval_in};
use crate::support::poll_until;
use crate::support::upstream::Upstream;

const HELLO: &str = "hello";

fn hello() -> Value {
    json!({ "message": HELLO })
}

fn code(answer: &Messages) -> &str {
    let first = answer.texts()[0];
    assert_eq!(answer.result()["isError"], true, "{answer:?}");
    first.split(':').next().expect("a code")
}

#[tokio::test]
async fn every_kind_of_item_is_asked_and_answered_by_repeating_the_call() {
    let tool = json!({ "call_id": "call_1", "name": "read_file", "arguments": "{\"path\":\"a\"}" });
    for (item, key, content, received) in [
        (approval("appr"), "appr", json!({"decision": "accept"}), "appr accept"),
        (approval("appr"), "appr", json!({"decision": "reject", "text": "late"}), "appr reject \"late\""),
        (approval("appr"), "appr", json!({"decision": "respond", "text": "sent"}), "appr respond \"sent\""),
        (
            approval("appr"),
            "appr",
            json!({"decision": "edit", "arguments": "{\"to\":\"bob\"}"}),
            "appr edit \"{\\\"to\\\":\\\"bob\\\"}\"",
        ),
        (question("q"), "q", json!({"size": "m"}), "q respond {\"size\":\"m\"}"),
        (login("l"), "l", json!({"done": "yes"}), "l accept"),
        (tool, "call_1", json!({"output": "text"}), "call_1 output \"text\""),
    ] {
        let upstream = asking(vec![item]);
        let gateway = gateway(&upstream, "tasks = \"never\"").await;
        let client = Modern::new(&gateway);
        let asked = client.call("helper", hello()).await;
        assert_eq!((asked.status, &asked.result()["resultType"]), (200, &json!("input_required")));
        assert_eq!(asked.keys(), [key]);
        let form = &asked.result()["inputRequests"][key];
        assert_eq!((&form["method"], &form["params"]["mode"]), (&json!("elicitation/create"), &json!("form")));

        let done = client.answer(&asked, HELLO, json!({ key: accept(content) })).await;
        assert_eq!(done.result()["resultType"], "complete");
        assert_eq!(done.texts(), ["One moment.", &format!("done: {received}")], "the whole run");
        assert_eq!(upstream.requests().len(), 2);
    }
}

#[tokio::test]
async fn nothing_is_approved_without_a_word() {
    let upstream = asking(vec![approval("appr")]);
    let gateway = gateway(&upstream, "").await;
    let client = Modern::new(&gateway);
    let mut asked = client.call("helper", hello()).await;
    for response in [json!({"action": "accept"}), accept(json!({"decision": "edit"}))] {
        let again = client.answer(&asked, HELLO, json!({ "appr": response })).await;
        assert_eq!(again.keys(), ["appr"], "{again:?}");
        let message = again.result()["inputRequests"]["appr"]["params"]["message"].as_str().expect("a text");
        let is_first = message.starts_with("Send this mail?");
        assert!(!is_first && message.contains("\nSend this mail?\nsend_mail: "), "the reason comes first: {message}");
        assert_ne!(again.result()["requestState"], asked.result()["requestState"]);
        asked = again;
    }
    let last = client.answer(&asked, HELLO, json!({"appr": accept(json!({}))})).await;
    assert_eq!(last.result()["resultType"], "complete", "it is asked three times in all");
    assert_eq!(last.result()["_meta"]["interlingua/status"], "input_required");
    assert_eq!(upstream.requests().len(), 1, "the agent was not called");
}

#[tokio::test]
async fn several_items_are_collected_until_the_last_one() {
    let upstream = asking(vec![approval("one"), question("two"), login("three")]);
    let gateway = gateway(&upstream, "").await;
    let client = Modern::new(&gateway);
    let asked = client.call("helper", hello()).await;
    assert_eq!(asked.keys(), ["one", "three", "two"]);
    let one = json!({"one": accept(json!({"decision": "accept"})), "other": accept(json!({}))});
    let left = client.answer(&asked, HELLO, one).await;
    assert_eq!(left.keys(), ["three", "two"], "{left:?}");
    assert_eq!(upstream.requests().len(), 1);
    let rest = json!({"one": {"action": "decline"}, "two": accept(json!({"size": "s"})), "three": accept(json!({"done": "no"}))});
    let done = client.answer(&left, HELLO, rest).await;
    assert_eq!(done.texts()[1], "done: one accept, two respond {\"size\":\"s\"}, three reject", "decided once");
}

#[tokio::test]
async fn declining_rejects_and_closing_keeps_the_question() {
    let upstream = asking(vec![approval("appr")]);
    let gateway = gateway(&upstream, "").await;
    let client = Modern::new(&gateway);
    let asked = client.call("helper", hello()).await;
    let closed = client.answer(&asked, HELLO, json!({"appr": {"action": "cancel"}})).await;
    assert_eq!((&closed.result()["resultType"], &closed.result()["isError"]), (&json!("complete"), &json!(false)));
    assert_eq!(closed.result()["_meta"]["interlingua/status"], "input_required");

    // The session asks the same again, and the agent does not get the message.
    let message = json!({"message": "and now?", "session": closed.session()});
    let again = client.call("helper", message.clone()).await;
    assert_eq!(again.keys(), ["appr"]);
    assert_eq!(upstream.requests().len(), 1);
    let state = &again.result()["requestState"];
    let more = json!({"inputResponses": {"appr": {"action": "decline"}}, "requestState": state});
    let done = client.call_with("helper", message, more).await;
    assert_eq!(done.texts().last(), Some(&"done: appr reject"), "{done:?}");
}

#[tokio::test]
async fn a_repeated_answer_is_not_given_twice_and_a_state_expires() {
    let upstream = asking(vec![approval("appr")]);
    let gateway = gateway(&upstream, "").await;
    let client = Modern::new(&gateway);
    let asked = client.call("helper", hello()).await;
    for wrong in [json!([]), json!({"appr": "accept"})] {
        assert_eq!(client.answer(&asked, HELLO, wrong).await.error_code(), -32602);
    }
    let yes = json!({"appr": accept(json!({"decision": "accept"}))});
    let other = client.answer(&asked, "other", yes.clone()).await;
    assert_eq!(other.last["error"]["data"]["code"], "STATE_INVALID");
    assert_eq!(upstream.requests().len(), 1);
    let first = client.answer(&asked, HELLO, yes.clone()).await;
    for _ in 0..2 {
        let again = client.answer(&asked, HELLO, yes.clone()).await;
        assert_eq!(again.texts(), first.texts(), "the same result");
    }
    assert_eq!(upstream.requests().len(), 2, "the agent got one answer");

    let upstream = asking(vec![approval("appr")]);
    let gateway = super::mcp_calls::gateway(&upstream, "answer_ttl = \"1ms\"").await;
    let client = Modern::new(&gateway);
    let asked = client.call("helper", hello()).await;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let late = client.answer(&asked, HELLO, yes).await;
    assert_eq!((late.error_code(), &late.last["error"]["data"]["code"]), (&json!(-32602), &json!("STATE_EXPIRED")));
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_page_is_opened_before_its_login_is_confirmed() {
    let upstream = asking(vec![login("l")]);
    let gateway = gateway(&upstream, "").await;
    let client = Modern::with(&gateway, json!({ "elicitation": { "form": {}, "url": {} } }));
    let asked = client.call("helper", hello()).await;
    assert_eq!(asked.keys(), ["l", "l.open"]);
    assert_eq!(asked.result()["inputRequests"]["l.open"]["params"]["url"], "https://id.example.com/go");
    let opened = client.answer(&asked, HELLO, json!({"l.open": {"action": "accept"}})).await;
    assert_eq!(opened.result()["resultType"], "input_required", "an opened page decides nothing");
    let done = client.answer(&opened, HELLO, json!({"l": accept(json!({"done": "yes"}))})).await;
    assert_eq!(done.texts()[1], "done: l accept");

    let client = Modern::with(&gateway, json!({ "elicitation": { "url": {} } }));
    let asked = client.call("helper", hello()).await;
    assert_eq!(asked.keys(), ["l.open"]);
    let done = client.answer(&asked, HELLO, json!({"l.open": {"action": "accept"}})).await;
    assert_eq!(done.texts()[1], "done: l accept", "this client has no form");
}

#[tokio::test]
async fn a_model_rejects_but_approves_nothing() {
    let upstream = asking(vec![approval("appr")]);
    let gateway = gateway(&upstream, "").await;
    let client = Modern::with(&gateway, json!({}));
    let asked = client.call("helper", hello()).await;
    assert_eq!(asked.result()["_meta"]["interlingua/status"], "input_required");
    let text = asked.texts().join("\n");
    assert!(text.contains("One moment.") && text.contains("Send this mail?") && text.contains(&asked.run()), "{text}");

    let run = asked.run();
    let answer = async |arguments: Value| client.call("answer", arguments).await;
    for decision in [
        json!({"run": run, "decision": "accept"}),
        json!({"run": run, "decision": "edit", "arguments": {"to": "bob"}}),
        json!({"run": run, "text": "yes"}),
        json!({"run": run, "value": {"approved": true}}),
    ] {
        assert_eq!(code(&answer(decision.clone()).await), "PERMISSION_DENIED", "{decision}");
    }
    assert_eq!(code(&answer(json!({ "run": run })).await), "ANSWER_UNDECIDED");
    assert_eq!(code(&answer(json!({"run": run, "item": "x", "decision": "reject"})).await), "NOT_WAITING");
    assert_eq!(code(&answer(json!({"decision": "reject"})).await), "MISSING_PARAMETER");
    let unknown = answer(json!({"run": "00000000-0000-0000-0000-000000000001", "decision": "reject"})).await;
    assert_eq!(code(&unknown), "RESOURCE_NOT_FOUND");
    assert_eq!(upstream.requests().len(), 1);

    let done = answer(json!({"run": run, "decision": "reject", "text": "no"})).await;
    assert_eq!(done.texts().last(), Some(&"done: appr reject \"no\""), "{done:?}");
    assert_eq!(code(&answer(json!({"run": run, "decision": "reject"})).await), "NOT_WAITING");
}

#[tokio::test]
async fn a_model_answers_questions_one_by_one() {
    let upstream = asking(vec![question("q"), question("r")]);
    let gateway = gateway(&upstream, "").await;
    let client = Modern::with(&gateway, json!({}));
    let run = client.call("helper", hello()).await.run();
    let answer = async |arguments: Value| client.call("answer", arguments).await;
    assert_eq!(code(&answer(json!({"run": run, "text": "m"})).await), "ANSWER_UNDECIDED", "two items wait");
    let wrong = answer(json!({"run": run, "item": "q", "value": {"size": "xl"}})).await;
    assert_eq!(code(&wrong), "ANSWER_NOT_TAKEN");
    let left = answer(json!({"run": run, "item": "q", "value": {"size": "m"}})).await;
    assert_eq!(left.result()["_meta"]["interlingua/status"], "input_required", "{left:?}");
    let done = answer(json!({"run": run, "text": "s"})).await;
    assert_eq!(done.texts().last(), Some(&"done: q respond {\"size\":\"m\"}, r respond {\"size\":\"s\"}"));
}

#[tokio::test]
async fn a_stream_asks_one_item_after_the_other() {
    for revision in ["2025-11-25", "2025-06-18"] {
        let upstream = asking(vec![approval("one"), question("two")]);
        let gateway = gateway(&upstream, "").await;
        let client = Legacy::begin(&gateway, revision, json!({})).await;
        let mut stream = client.call(1, "helper", hello()).await;
        let (first, form) = next_question(&mut stream).await;
        assert_eq!(form.get("mode").is_some(), revision == "2025-11-25");
        assert!(form["message"].as_str().expect("a text").starts_with("Send this mail?"));

        assert_eq!(client.respond(&json!("x"), accept(json!({"decision": "accept"}))).await, 400);
        assert_eq!(client.respond(&first, json!({"action": "accept"})).await, 202, "it decides nothing");
        let (again, form) = next_question(&mut stream).await;
        assert_ne!(again, first);
        assert!(!form["message"].as_str().expect("a text").starts_with("Send this mail?"), "the reason comes first");
        assert_eq!(client.respond(&again, accept(json!({"decision": "accept"}))).await, 202);

        let (second, form) = next_question(&mut stream).await;
        assert_eq!(form["requestedSchema"]["required"], json!(["size"]));
        assert_eq!(client.respond(&again, json!({"action": "decline"})).await, 400, "it was answered");
        assert_eq!(client.respond(&second, accept(json!({"size": "m"}))).await, 202);
        let result = result(&mut stream).await;
        assert_eq!(texts(&result), ["One moment.", "done: one accept, two respond {\"size\":\"m\"}"]);
        assert_eq!(upstream.requests().len(), 2);
        assert_eq!(client.respond(&second, json!({"action": "decline"})).await, 400);
    }
}

#[tokio::test]
async fn a_question_on_a_stream_belongs_to_its_session() {
    let upstream = asking(vec![approval(&"long".repeat(60))]);
    let gateway = gateway(&upstream, "").await;
    let client = Legacy::begin(&gateway, "2025-11-25", json!({"form": {}})).await;
    let mut stream = client.call(1, "helper", hello()).await;
    let (id, _) = next_question(&mut stream).await;
    let other = Legacy::begin(&gateway, "2025-11-25", json!({"form": {}})).await;
    assert_eq!(other.respond(&id, accept(json!({"decision": "accept"}))).await, 400);
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "no"}});
    assert_eq!(client.post(&error).await.response().await.status, 202, "its id may be long");
    let result = result(&mut stream).await;
    assert_eq!(result["_meta"]["interlingua/status"], "input_required", "an error of the client closes the form");
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn an_answer_over_another_protocol_ends_the_question_and_is_part_of_the_result() {
    let upstream = asking(vec![approval("appr")]);
    let gateway = gateway(&upstream, "").await;

    let client = Legacy::begin(&gateway, "2025-11-25", json!({})).await;
    let mut stream = client.call(1, "helper", hello()).await;
    let (id, _) = next_question(&mut stream).await;
    let session = waiting_session(&gateway).await;
    let other = gateway.run_turn("helper", &approval_in(&session, "appr")).await.expect_completed();
    assert_eq!(other.text(), "done: appr accept");
    let mut is_withdrawn = false;
    let end = loop {
        let message = next(&mut stream).await.expect("a result");
        is_withdrawn |= message["method"] == "notifications/cancelled" && message["params"]["requestId"] == id;
        if message.get("result").is_some() {
            break message["result"].clone();
        }
    };
    assert!(is_withdrawn);
    assert_eq!(texts(&end), ["One moment.", "done: appr accept"]);
    assert_eq!(client.respond(&id, json!({"action": "decline"})).await, 400);

    let client = Modern::new(&gateway);
    let asked = client.call("helper", hello()).await;
    let session = waiting_session(&gateway).await;
    gateway.run_turn("helper", &approval_in(&session, "appr")).await.expect_completed();
    let done = client.answer(&asked, HELLO, json!({"appr": {"action": "decline"}})).await;
    assert_eq!(done.texts(), ["One moment.", "done: appr accept"], "the decision made elsewhere stands");
}

/// The session of the latest run, once it waits.
async fn waiting_session(gateway: &Gateway) -> String {
    poll_until("the run to wait", async || {
        let runs = gateway.get("/agents/helper/runs").await.json();
        let latest = runs["data"].as_array()?.first()?.clone();
        // In this protocol, a question is the end of an answer.
        (latest["status"] == "completed").then(|| latest["session_id"].as_str().expect("a session").to_owned())
    })
    .await
}

#[tokio::test]
async fn a_run_of_another_protocol_is_answered_with_the_tool() {
    let upstream = asking(vec![question("q")]);
    let gateway = gateway(&upstream, "").await;
    let body = json!({"session_id": "s", "input": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]});
    let asked = gateway.run_turn("helper", &body).await.expect_completed();
    let client = Modern::new(&gateway);
    let done = client.call("answer", json!({"run": asked.id, "value": {"size": "s"}})).await;
    assert_eq!(done.texts().last(), Some(&"done: q respond {\"size\":\"s\"}"), "{done:?}");
}

#[tokio::test]
async fn one_open_question_without_a_schema_takes_the_next_message() {
    let open = json!({"id": "q", "name": "ask", "arguments": "{}", "interrupt": {"kind": "input", "message": "Why?"}});
    let mut times = 0;
    let upstream = Upstream::with_handler(move |_| {
        times += 1;
        if times == 1 { ask(std::slice::from_ref(&open)) } else { text_reply(&["thanks"]) }
    });
    let gateway = gateway(&upstream, "").await;
    let client = Modern::with(&gateway, json!({}));
    let asked = client.call("helper", hello()).await;
    let done = client.call("helper", json!({"message": "because", "session": asked.session()})).await;
    assert_eq!(done.texts().last(), Some(&"thanks"), "{done:?}");
    let received = upstream.requests()[1].json().to_string();
    assert!(received.contains("mcp_approval_response") && received.contains("because"), "{received}");
}
