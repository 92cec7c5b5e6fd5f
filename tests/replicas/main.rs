//! Several gateways on one database: what one of them began is read, continued, answered and stopped on another, and a
//! killed one loses nothing that was acknowledged. A real PostgreSQL, real gateways, a scripted agent.
//!
//! Not here: the store alone (`tests/store`), and faults under load (`cargo xtask faults`).

// An error here fails the test.
#![expect(clippy::unwrap_used)]

mod at_once;
mod check;
mod compose;
mod continued;
mod mcp;
#[path = "../behaviour/mcp_support.rs"]
mod mcp_support;
mod migrate;
mod operators;
mod outages;
mod pooled;
mod stopping;
use interlingua_testing_support as support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::agent::{approval_request, remembering, text_reply, text_reply_until};
use support::cluster::Cluster;
use support::gateway::{Gateway, JSON, ROUTE, agent, approval_in, user_turn_in};
use support::http::data;
use support::transcript::Transcript;
use support::upstream::Upstream;

/// Time without a connection after which other gateways take over a gateway's runs.
const LEASE: Duration = Duration::from_secs(2);

/// Gateways on a new database, and the agent behind all of them. `own`: further lines of the agent's upstream.
/// `routes`: routes besides the one of the Agent API.
fn cluster(upstream: &Upstream, own: &str, routes: &str) -> Cluster {
    Cluster::on_database(LEASE, format!("{}{ROUTE}{routes}", agent("friday", &upstream.url("/process"), "", own)))
}

async fn events(gateway: &Gateway, path: &str) -> Vec<Value> {
    let mut stream = gateway.open("GET", path, &[], b"").await;
    assert_eq!(stream.status().await, 200, "{path}");
    let mut events = Vec::new();
    while let Some(event) = stream.event().await {
        events.extend(data(&event).map(|data| serde_json::from_str::<Value>(data).unwrap()));
    }
    events
}

fn id_of(frames: &[Value]) -> String {
    frames[0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_run_is_followed_and_resumed_on_every_gateway() {
    let upstream = Upstream::always(text_reply_until(&["one ", "two ", "three"], "on"));
    let stand = cluster(&upstream, "", "");
    let (here, there) = (stand.gateway().await, stand.gateway().await);

    let mut stream = here.start_turn("friday", &user_turn_in("s", "hi")).await;
    let mut frames = stream.read_until("three").await;
    let path = format!("/agents/friday/runs/{}/events", id_of(&frames));
    let mut resumed = Vec::new();
    for after in 0..frames.len() {
        let mut stream = there.open("GET", &format!("{path}?after={after}"), &[], b"").await;
        let mut seen = Vec::new();
        for _ in after + 1..frames.len() {
            seen.push(stream.frame().await.expect("a frame that was sent before"));
        }
        resumed.push((stream, seen));
    }

    upstream.open("on");
    frames.extend(stream.frames().await);
    Transcript::parse(&frames).expect_completed();
    for (after, (mut stream, mut seen)) in resumed.into_iter().enumerate() {
        seen.extend(stream.frames().await);
        assert_eq!(seen, frames[after + 1..], "resumed after {after} while it was streamed");
    }
    for gateway in [&here, &there] {
        assert_eq!(events(gateway, &path).await, frames, "and afterwards");
    }
}

#[tokio::test]
async fn turns_of_a_session_are_taken_in_one_order() {
    let upstream = remembering();
    let stand = cluster(&upstream, "", "");
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let mut said: Vec<String> = Vec::new();
    for number in 0..6 {
        let gateway = if number % 2 == 0 { &here } else { &there };
        let text = format!("turn {number}");
        let answer = gateway.run_turn("friday", &user_turn_in("s", &text)).await.expect_completed();
        assert_eq!(answer.text(), format!("before: [{}]", said.join(", ")), "the agent knows the session");
        said.push(text);
    }
}

#[tokio::test]
async fn a_turn_waits_for_the_one_that_another_gateway_takes() {
    let upstream = Upstream::in_order([text_reply_until(&["first"], "on"), text_reply(&["second"])]);
    let stand = cluster(&upstream, "", "");
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let mut first = here.start_turn("friday", &user_turn_in("s", "one")).await;
    let mut frames = first.read_until("first").await;
    let mut second = there.start_turn("friday", &user_turn_in("s", "two")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(upstream.requests().len(), 1, "the second turn waits");

    upstream.open("on");
    frames.extend(first.frames().await);
    Transcript::parse(&frames).expect_completed();
    let frames = second.frames().await;
    assert_eq!(Transcript::parse(&frames).expect_completed().text(), "second");
}

#[tokio::test]
async fn a_question_is_answered_on_another_gateway() {
    let upstream = Upstream::in_order([approval_request("ask-1"), text_reply(&["done"])]);
    let stand = cluster(&upstream, "", "");
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    here.run_turn("friday", &user_turn_in("s", "remove x")).await.expect_completed();
    let answer = approval_in("s", "ask-1");
    assert_eq!(there.run_turn("friday", &answer).await.expect_completed().text(), "done");
    let received = upstream.requests()[1].json();
    assert_eq!(received["input"][1]["content"][0]["data"]["approve"], true, "{received}");
    let again = here.post("/agents/friday/process", &answer).await;
    assert_eq!(again.status, 409, "decided once: {}", again.text());
}

#[tokio::test]
async fn a_run_is_stopped_from_another_gateway() {
    let upstream = Upstream::always(text_reply_until(&["one ", "two"], "never"));
    let stand = cluster(&upstream, "", "");
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let mut stream = here.start_turn("friday", &user_turn_in("s", "hi")).await;
    let mut frames = stream.read_until("two").await;
    let path = format!("/agents/friday/runs/{}/cancel", id_of(&frames));
    let stopped = there.post(&path, &json!({})).await;
    assert_eq!((stopped.status, &stopped.json()["status"]), (200, &json!("canceled")), "{}", stopped.text());
    frames.extend(stream.frames().await);
    assert_eq!(frames.last().unwrap()["status"], "canceled");
}

#[tokio::test]
async fn a_killed_gateway_loses_nothing_that_was_seen() {
    let upstream = Upstream::in_order([text_reply_until(&["one ", "two"], "never"), text_reply(&["again"])]);
    let stand = cluster(&upstream, "", "");
    let other = stand.gateway().await;
    let mut killed = stand.process();
    // A replica takes over from others once it has been there for a lease itself.
    let body = user_turn_in("s", "hi").to_string();
    let mut stream = killed.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await;
    let frames = stream.read_until("two").await;
    let path = format!("/agents/friday/runs/{}/events", id_of(&frames));
    let mut followed = other.open("GET", &format!("{path}?after=0"), &[], b"").await;

    let died = Instant::now();
    killed.kill();
    let mut seen = followed.frames().await;
    let took = died.elapsed();
    assert!(took < LEASE + Duration::from_secs(10), "the end came after {took:?}");
    let end = seen.pop().unwrap();
    assert_eq!((&end["status"], &end["error"]["code"]), (&json!("failed"), &json!("GATEWAY_RESTARTED")), "{end}");
    for frame in &frames[1..] {
        assert!(seen.contains(frame), "what was shown stays: {frame}");
    }

    let answer = other.run_turn("friday", &user_turn_in("s", "still there?")).await.expect_completed();
    assert_eq!(answer.text(), "again", "the session goes on");
    assert_eq!(upstream.requests().len(), 2, "nothing is executed twice");
}

#[tokio::test]
async fn a_fenced_gateway_sends_no_more_events() {
    let upstream = Upstream::always(text_reply_until(&["one ", "two"], "never"));
    let stand = cluster(&upstream, "", "");
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let mut stream = here.start_turn("friday", &user_turn_in("s", "hi")).await;
    let frames = stream.read_until("two").await;
    // As if it had been paused for longer than the lease.
    let fence = "UPDATE interlingua.replicas SET state = 'fenced'
                 WHERE id = (SELECT holder FROM interlingua.runs WHERE NOT ended)";
    stand.database().sql(fence).unwrap();

    assert_eq!(stream.frames().await, Vec::<Value>::new(), "its stream is closed without an end");
    let path = format!("/agents/friday/runs/{}/events", id_of(&frames));
    for gateway in [&there, &here] {
        let stored = events(gateway, &path).await;
        assert_eq!(&stored[..frames.len()], frames, "what was shown stays");
        assert_eq!(stored.last().unwrap()["error"]["code"], "GATEWAY_RESTARTED");
    }
}
