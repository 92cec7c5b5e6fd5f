//! Pending approvals of a completed run, through the running gateway: new input is refused, an answer is sent once and
//! together with its request, and an answer that failed can be sent again.

use serde_json::{Value, json};

use crate::support::agent::{approval_request, text_reply};
use crate::support::gateway::{DEMO, Gateway, ROUTE, agent, user_turn, user_turn_in};
use crate::support::upstream::{Reply, Upstream, unused_address};

/// A decision as Agent API clients send it.
fn decision_body(session: &str, id: &str, approve: bool) -> Value {
    let data = json!({ "approval_request_id": id, "id": id, "approve": approve });
    json!({
        "session_id": session,
        "input": [{ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] }],
    })
}

/// An agent that requests approval first and handles later requests with `then`, which gets their number.
fn approval_then(then: impl Fn(usize) -> Reply + Send + 'static) -> Upstream {
    let mut times = 0;
    Upstream::with_handler(move |_| {
        times += 1;
        if times == 1 { approval_request("appr-1") } else { then(times) }
    })
}

async fn before(upstream: &Upstream) -> Gateway {
    Gateway::start(&agent("friday", &upstream.url("/process"), "", "retries = 0")).await
}

#[tokio::test]
async fn new_input_is_refused_until_the_answer_and_the_answer_is_sent_once() {
    let upstream = approval_then(|_| text_reply(&["done"]));
    let gateway = before(&upstream).await;
    let interrupted = gateway.run_turn("friday", &user_turn_in("s", "remove it")).await.expect_completed();
    assert_eq!(interrupted.messages.last().expect("a question")["type"], "mcp_approval_request");

    let held = gateway.post("/agents/friday/process", &user_turn_in("s", "well?")).await;
    assert_eq!(held.status, 409);
    let held = held.json();
    assert_eq!((&held["code"], &held["response_id"]), (&json!("SESSION_WAITING"), &json!(interrupted.id)));
    assert_eq!((&held["pending"][0]["id"], &held["pending"][0]["name"]), (&json!("appr-1"), &json!("rm")));

    // Other sessions are not blocked.
    gateway.run_turn("friday", &user_turn_in("other", "hello")).await.expect_completed();
    assert_eq!(gateway.run_turn("friday", &decision_body("s", "appr-1", true)).await.expect_completed().text(), "done");
    let received = upstream.requests().pop().expect("the answer").json();
    let kinds: Vec<&str> =
        received["input"].as_array().expect("an input").iter().filter_map(|one| one["type"].as_str()).collect();
    assert_eq!(kinds, ["mcp_approval_request", "mcp_approval_response"], "the request precedes its answer");
    assert_eq!(received["input"][1]["content"][0]["data"]["approve"], true);

    let again = gateway.post("/agents/friday/process", &decision_body("s", "appr-1", false)).await;
    assert_eq!(again.status, 409, "{}", again.text());
    gateway.run_turn("friday", &user_turn_in("s", "thanks")).await.expect_completed();
    assert_eq!(upstream.requests().len(), 4, "refused requests did not reach the agent");
}

#[tokio::test]
async fn an_answer_to_an_unknown_item_is_refused() {
    let upstream = approval_then(|_| text_reply(&["done"]));
    let gateway = before(&upstream).await;
    gateway.run_turn("friday", &user_turn_in("s", "remove it")).await.expect_completed();
    let wrong = gateway.post("/agents/friday/process", &decision_body("s", "appr-9", true)).await;
    assert!(wrong.status == 404 || wrong.status == 409 || wrong.status == 422, "{} {}", wrong.status, wrong.text());
    assert_eq!(upstream.requests().len(), 1);
    gateway.run_turn("friday", &decision_body("s", "appr-1", false)).await.expect_completed();
}

#[tokio::test]
async fn an_answer_without_a_session_id_is_matched_by_its_item() {
    let upstream = approval_then(|_| text_reply(&["done"]));
    let gateway = before(&upstream).await;
    let interrupted = gateway.run_turn("friday", &user_turn("remove it")).await.expect_completed();
    let mut answer = decision_body("", "appr-1", true);
    answer.as_object_mut().expect("an object").remove("session_id");
    let transcript = gateway.run_turn("friday", &answer).await.expect_completed();
    assert_eq!(transcript.session, interrupted.session);
}

#[tokio::test]
async fn an_answer_that_failed_upstream_can_be_sent_again() {
    let upstream = approval_then(|times| match times {
        2 => Reply::complete(500, &[], "down"),
        3 => Reply::nothing(),
        _ => text_reply(&["done"]),
    });
    let gateway = before(&upstream).await;

    gateway.run_turn("friday", &user_turn_in("s", "remove it")).await.expect_completed();
    for _ in 0..2 {
        let lost = gateway.post("/agents/friday/process", &decision_body("s", "appr-1", true)).await;
        assert_eq!(lost.status, 502, "{}", lost.text());
        let held = gateway.post("/agents/friday/process", &user_turn_in("s", "well?")).await;
        assert_eq!(
            (held.status, &held.json()["pending"][0]["id"]),
            (409, &json!("appr-1")),
            "the item is pending again"
        );
    }
    gateway.run_turn("friday", &decision_body("s", "appr-1", true)).await.expect_completed();
}

#[tokio::test]
async fn an_answer_to_an_unreachable_agent_can_be_sent_again_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = "[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";
    let upstream = approval_then(|_| text_reply(&["done"]));
    let config = |url: &str| format!("{store}{}{ROUTE}", agent("friday", url, "", "retries = 0"));
    let gateway = Gateway::in_folder(&config(&upstream.url("/process")), folder.path().to_owned()).await;

    let interrupted = gateway.run_turn("friday", &user_turn_in("s", "remove it")).await.expect_completed();
    gateway.stop().await;
    let away = format!("http://{}/process", unused_address());
    let gateway = Gateway::in_folder(&config(&away), folder.path().to_owned()).await;

    let held = gateway.post("/agents/friday/process", &user_turn_in("s", "well?")).await;
    assert_eq!((held.status, &held.json()["response_id"]), (409, &json!(interrupted.id)));
    assert_eq!(gateway.post("/agents/friday/process", &decision_body("s", "appr-1", true)).await.status, 502);
    gateway.stop().await;
    let gateway = Gateway::in_folder(&config(&upstream.url("/process")), folder.path().to_owned()).await;
    assert_eq!(gateway.run_turn("friday", &decision_body("s", "appr-1", true)).await.expect_completed().text(), "done");
    assert_eq!(gateway.post("/agents/friday/process", &decision_body("s", "appr-1", true)).await.status, 409);
}

#[tokio::test]
async fn the_demo_agent_follows_the_decision() {
    let gateway = Gateway::start(DEMO).await;
    for (approve, text) in [(true, "The mail was sent to ada@example.com."), (false, "I did not send it")] {
        let interrupted = gateway.run_turn("demo", &user_turn("approval")).await.expect_completed();
        let question = interrupted.messages.last().expect("a question");
        let id = question["content"][0]["data"]["id"].as_str().expect("an id");
        let transcript =
            gateway.run_turn("demo", &decision_body(&interrupted.session, id, approve)).await.expect_completed();
        assert!(transcript.text().contains(text), "{}", transcript.text());
    }
}

#[tokio::test]
async fn a_pending_client_tool_does_not_block_the_session() {
    let gateway = Gateway::start(DEMO).await;
    let interrupted = gateway.run_turn("demo", &user_turn_in("s", "client tool")).await.expect_completed();
    let call = interrupted.messages.last().expect("a call");
    assert_eq!(call["type"], "function_call");

    let id = call["content"][0]["data"]["call_id"].clone();
    let output = json!({ "call_id": id, "output": "Paris" });
    let answer = json!({
        "session_id": "s",
        "input": [{ "type": "function_call_output", "role": "tool", "content": [{ "type": "data", "data": output }] }],
    });
    assert!(gateway.run_turn("demo", &answer).await.expect_completed().text().contains("Paris"));
    gateway.run_turn("demo", &user_turn_in("s", "client tool")).await.expect_completed();
    gateway.run_turn("demo", &user_turn_in("s", "echo never mind")).await.expect_completed();
}
