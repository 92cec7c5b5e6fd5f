//! What a finished run still waits for, through the running gateway: new input is held up, an answer goes once and
//! with its question, and one that did not arrive can be given again.

use serde_json::{Value, json};

use crate::support::agent::{approval, saying};
use crate::support::gateway::{DEMO, Gateway, ROUTE, agent, says, says_in};
use crate::support::upstream::{Answer, Upstream, nobody};

/// A decision, as native clients send it.
fn decides(session: &str, id: &str, approve: bool) -> Value {
    let data = json!({ "approval_request_id": id, "id": id, "approve": approve });
    json!({
        "session_id": session,
        "input": [{ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] }],
    })
}

/// An agent that asks for approval first, and does these things with everything after.
fn asking(then: impl Fn(usize) -> Answer + Send + 'static) -> Upstream {
    let mut times = 0;
    Upstream::deciding(move |_| {
        times += 1;
        if times == 1 { approval("appr-1") } else { then(times) }
    })
}

async fn before(upstream: &Upstream) -> Gateway {
    Gateway::start(&agent("friday", &upstream.url("/process"), "", "retries = 0")).await
}

#[tokio::test]
async fn new_input_waits_for_the_answer_and_the_answer_goes_once() {
    let upstream = asking(|_| saying(&["done"]));
    let gateway = before(&upstream).await;
    let asked = gateway.story("friday", &says_in("s", "remove it")).await.completed();
    assert_eq!(asked.messages.last().expect("a question")["type"], "mcp_approval_request");

    let held = gateway.post("/agents/friday/process", &says_in("s", "well?")).await;
    assert_eq!(held.status, 409);
    let held = held.json();
    assert_eq!((&held["code"], &held["response_id"]), (&json!("SESSION_WAITING"), &json!(asked.id)));
    assert_eq!((&held["pending"][0]["id"], &held["pending"][0]["name"]), (&json!("appr-1"), &json!("rm")));
    // Another session does not wait.
    gateway.story("friday", &says_in("other", "hello")).await.completed();

    assert_eq!(gateway.story("friday", &decides("s", "appr-1", true)).await.completed().text(), "done");
    let told = upstream.asked().pop().expect("the answer").json();
    let kinds: Vec<&str> =
        told["input"].as_array().expect("an input").iter().filter_map(|one| one["type"].as_str()).collect();
    assert_eq!(kinds, ["mcp_approval_request", "mcp_approval_response"], "the question stands in front of its answer");
    assert_eq!(told["input"][1]["content"][0]["data"]["approve"], true);

    let again = gateway.post("/agents/friday/process", &decides("s", "appr-1", false)).await;
    assert_eq!(again.status, 409, "{}", again.text());
    gateway.story("friday", &says_in("s", "thanks")).await.completed();
    assert_eq!(upstream.asked().len(), 4, "what was refused never reached the agent");
}

#[tokio::test]
async fn an_answer_to_what_nobody_asked_is_refused() {
    let upstream = asking(|_| saying(&["done"]));
    let gateway = before(&upstream).await;
    gateway.story("friday", &says_in("s", "remove it")).await.completed();
    let wrong = gateway.post("/agents/friday/process", &decides("s", "appr-9", true)).await;
    assert!(wrong.status == 404 || wrong.status == 409 || wrong.status == 422, "{} {}", wrong.status, wrong.text());
    assert_eq!(upstream.asked().len(), 1);
    gateway.story("friday", &decides("s", "appr-1", false)).await.completed();
}

#[tokio::test]
async fn an_answer_without_a_session_finds_the_one_it_belongs_to() {
    let upstream = asking(|_| saying(&["done"]));
    let gateway = before(&upstream).await;
    let asked = gateway.story("friday", &says("remove it")).await.completed();
    let mut answer = decides("", "appr-1", true);
    answer.as_object_mut().expect("an object").remove("session_id");
    let story = gateway.story("friday", &answer).await.completed();
    assert_eq!(story.session, asked.session);
}

#[tokio::test]
async fn an_answer_that_did_not_arrive_can_be_given_again() {
    let upstream = asking(|times| match times {
        2 => Answer::whole(500, &[], "down"),
        3 => Answer::nothing(),
        _ => saying(&["done"]),
    });
    let gateway = before(&upstream).await;
    gateway.story("friday", &says_in("s", "remove it")).await.completed();
    for _ in 0..2 {
        let lost = gateway.post("/agents/friday/process", &decides("s", "appr-1", true)).await;
        assert_eq!(lost.status, 502, "{}", lost.text());
        let held = gateway.post("/agents/friday/process", &says_in("s", "well?")).await;
        assert_eq!((held.status, &held.json()["pending"][0]["id"]), (409, &json!("appr-1")), "it is open again");
    }
    gateway.story("friday", &decides("s", "appr-1", true)).await.completed();
}

#[tokio::test]
async fn an_answer_to_an_agent_that_is_away_can_be_given_again_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = "[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";
    let upstream = asking(|_| saying(&["done"]));
    let config = |url: &str| format!("{store}{}{ROUTE}", agent("friday", url, "", "retries = 0"));
    let gateway = Gateway::within(&config(&upstream.url("/process")), folder.path().to_owned()).await;
    let asked = gateway.story("friday", &says_in("s", "remove it")).await.completed();
    gateway.stop().await;
    let away = format!("http://{}/process", nobody());
    let gateway = Gateway::within(&config(&away), folder.path().to_owned()).await;
    let held = gateway.post("/agents/friday/process", &says_in("s", "well?")).await;
    assert_eq!((held.status, &held.json()["response_id"]), (409, &json!(asked.id)));
    assert_eq!(gateway.post("/agents/friday/process", &decides("s", "appr-1", true)).await.status, 502);
    gateway.stop().await;
    let gateway = Gateway::within(&config(&upstream.url("/process")), folder.path().to_owned()).await;
    assert_eq!(gateway.story("friday", &decides("s", "appr-1", true)).await.completed().text(), "done");
    assert_eq!(gateway.post("/agents/friday/process", &decides("s", "appr-1", true)).await.status, 409);
}

#[tokio::test]
async fn the_demo_agent_does_what_was_decided() {
    let gateway = Gateway::start(DEMO).await;
    for (approve, text) in [(true, "The mail was sent to ada@example.com."), (false, "I did not send it")] {
        let asked = gateway.story("demo", &says("approval")).await.completed();
        let question = asked.messages.last().expect("a question");
        let id = question["content"][0]["data"]["id"].as_str().expect("an id");
        let story = gateway.story("demo", &decides(&asked.session, id, approve)).await.completed();
        assert!(story.text().contains(text), "{}", story.text());
    }
}

#[tokio::test]
async fn a_tool_of_the_client_holds_nobody_up() {
    let gateway = Gateway::start(DEMO).await;
    let asked = gateway.story("demo", &says_in("s", "client tool")).await.completed();
    let call = asked.messages.last().expect("a call");
    assert_eq!(call["type"], "function_call");
    let id = call["content"][0]["data"]["call_id"].clone();
    let output = json!({ "call_id": id, "output": "Paris" });
    let answer = json!({
        "session_id": "s",
        "input": [{ "type": "function_call_output", "role": "tool", "content": [{ "type": "data", "data": output }] }],
    });
    assert!(gateway.story("demo", &answer).await.completed().text().contains("Paris"));
    gateway.story("demo", &says_in("s", "client tool")).await.completed();
    gateway.story("demo", &says_in("s", "echo never mind")).await.completed();
}
