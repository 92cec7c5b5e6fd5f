//! Turns that one gateway has queued for a run that another one drives.
//!
//! Not here: turns of new runs in one session (`main`).

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::agent::{text_reply, text_reply_until};
use crate::support::cluster::Cluster;
use crate::support::gateway::{Gateway, JSON};
use crate::support::http::Exchange;
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};
use crate::{LEASE, cluster};

const A2A: &str = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";
const HEADERS: &[(&str, &str)] = &[("a2a-version", "1.0"), JSON[0]];

fn stand(upstream: &Upstream) -> Cluster {
    cluster(upstream, "retries = 0", A2A)
}

fn message(id: &str, task: Option<&Value>) -> Value {
    let mut message = json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": id }] });
    if let Some(task) = task {
        message["taskId"] = task.clone();
    }
    json!({ "message": message })
}

async fn post(gateway: &Gateway, method: &str, body: &Value) -> Exchange {
    gateway.open("POST", &format!("/a2a/friday/message:{method}"), HEADERS, body.to_string().as_bytes()).await
}

async fn task(gateway: &Gateway, id: &Value) -> Value {
    let path = format!("/a2a/friday/tasks/{}", id.as_str().unwrap());
    gateway.open("GET", &path, HEADERS, b"").await.response().await.json()
}

fn state(shown: &Value) -> &str {
    let state = ["task", "statusUpdate"].iter().find_map(|kind| shown[*kind]["status"]["state"].as_str());
    state.or_else(|| shown["status"]["state"].as_str()).unwrap_or_default().trim_start_matches("TASK_STATE_")
}

/// Begins a task on a gateway, and waits until it works.
async fn begin(gateway: &Gateway) -> (Exchange, Value) {
    let mut stream = post(gateway, "stream", &message("one", None)).await;
    let mut shown = stream.frame().await.unwrap();
    let id = shown["task"]["id"].clone();
    // The task is shown as submitted if the agent has not answered by then.
    while state(&shown) != "WORKING" {
        shown = stream.frame().await.unwrap();
    }
    (stream, id)
}

#[tokio::test]
async fn a_stream_continues_with_a_turn_of_another_gateway() {
    let upstream = Upstream::in_order([text_reply_until(&["first"], "on"), text_reply(&["second"])]);
    let stand = stand(&upstream);
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let (mut first, id) = begin(&here).await;
    let mut second = post(&there, "stream", &message("two", Some(&id))).await;
    assert_eq!(state(&second.frame().await.unwrap()), "WORKING", "before the first turn has ended");

    upstream.open("on");
    for stream in [&mut first, &mut second] {
        let frames = stream.frames().await;
        let states: Vec<&str> = frames.iter().map(state).filter(|state| !state.is_empty()).collect();
        assert!(states.ends_with(&["COMPLETED"]) && !states.contains(&"INPUT_REQUIRED"), "{frames:#?}");
        assert!(frames.iter().any(|frame| frame.to_string().contains("second")), "{frames:#?}");
    }
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_message_during_a_turn_of_another_gateway_gets_its_turn() {
    let upstream = Upstream::in_order([
        text_reply_until(&["first"], "on"),
        text_reply_until(&["second"], "go"),
        text_reply(&["third"]),
    ]);
    let stand = stand(&upstream);
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let (first, id) = begin(&here).await;
    let mut second = post(&there, "stream", &message("two", Some(&id))).await;
    assert_eq!(state(&second.frame().await.unwrap()), "WORKING");
    upstream.open("on");
    upstream.wait_for_requests(2).await;
    let mut third = post(&here, "stream", &message("three", Some(&id))).await;
    assert_eq!(state(&third.frame().await.unwrap()), "WORKING");

    upstream.open("go");
    for mut stream in [first, second, third] {
        let frames = stream.frames().await;
        assert_eq!(frames.last().map(state), Some("COMPLETED"), "{frames:#?}");
        assert!(frames.iter().any(|frame| frame.to_string().contains("third")), "{frames:#?}");
    }
    assert_eq!(upstream.requests().len(), 3, "each message reaches the agent");
}

#[tokio::test]
async fn a_turn_that_never_reaches_its_agent_leaves_the_run_as_the_other_gateway_ended_it() {
    let upstream = Upstream::in_order([text_reply_until(&["first"], "on"), Reply::complete(503, &[], "down")]);
    let stand = stand(&upstream);
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let (first, id) = begin(&here).await;
    let mut second = post(&there, "send", &message("two", Some(&id))).await;
    tokio::time::sleep(Duration::from_millis(300)).await;

    upstream.open("on");
    assert_eq!(second.status().await, 503);
    let mut first = first;
    assert_eq!(first.frames().await.last().map(state), Some("COMPLETED"));
    for gateway in [&here, &there] {
        assert_eq!(state(&task(gateway, &id).await), "COMPLETED");
    }
}

#[tokio::test]
async fn a_run_whose_next_turn_died_with_its_gateway_ends_without_it() {
    let upstream = Upstream::in_order([text_reply_until(&["first"], "on"), text_reply(&["never"])]);
    let stand = stand(&upstream);
    let here = stand.gateway().await;
    let mut killed = stand.process();
    let (mut first, id) = begin(&here).await;
    let body = message("two", Some(&id)).to_string();
    let mut second = killed.open("POST", "/a2a/friday/message:stream", HEADERS, body.as_bytes()).await;
    assert_eq!(state(&second.frame().await.unwrap()), "WORKING");
    tokio::time::sleep(Duration::from_millis(300)).await;

    killed.kill();
    upstream.open("on");
    let took = LEASE + Duration::from_secs(10);
    let frames = tokio::time::timeout(took, first.frames()).await.unwrap();
    assert_eq!(frames.last().map(state), Some("COMPLETED"), "{frames:#?}");
    assert_eq!(state(&task(&here, &id).await), "COMPLETED");
    assert_eq!(upstream.requests().len(), 1, "no other gateway takes the turn");
}

#[tokio::test]
async fn a_run_that_is_deleted_elsewhere_ends_for_all_who_follow_it() {
    let upstream = Upstream::always(text_reply_until(&["one"], "never"));
    let stand = stand(&upstream);
    let (here, there, third) = (stand.gateway().await, stand.gateway().await, stand.gateway().await);
    let body =
        json!({ "session_id": "s", "input": [{ "role": "user", "content": [{ "type": "text", "text": "hi" }] }] });
    let mut stream = here.start_turn("friday", &body).await;
    let frames = stream.read_until("one").await;
    let run = format!("/agents/friday/runs/{}", frames[0]["id"].as_str().unwrap());
    let mut followed = third.open("GET", &format!("{run}/events"), &[], b"").await;
    followed.read_until("one").await;

    assert!(there.open("DELETE", &run, &[], b"").await.response().await.status < 300);
    for stream in [&mut stream, &mut followed] {
        let end = stream.frames().await.pop().unwrap();
        assert_eq!(end["status"], "canceled", "{end}");
    }
    poll_until("the run to be gone", async || (third.get(&run).await.status == 404).then_some(())).await;
}
