//! One of several gateways is stopped in an orderly way: what has ended there is written, and who follows a run of
//! another gateway on it is shown nothing that the run does not have.
//!
//! Not here: gateways behind a load balancer (`compose.rs`).

use std::time::Duration;

use interlingua_testing_postgres::Proxy;

use crate::support::agent::text_reply_until;
use crate::support::gateway::{JSON, user_turn_in};
use crate::support::poll_until;
use crate::support::transcript::Transcript;
use crate::support::upstream::Upstream;
use crate::{cluster, events, id_of};

#[tokio::test]
async fn a_stopping_gateway_writes_the_ends_of_runs() {
    let upstream = Upstream::always(text_reply_until(&["one ", "two"], "on"));
    let stand = cluster(&upstream, "", "");
    let other = stand.gateway().await;
    let proxy = Proxy::start(stand.database().server().address()).unwrap();
    let mut stopping = stand.process_through(&stand.database().url_at(proxy.address));
    let body = user_turn_in("s", "hi").to_string();
    let mut stream = stopping.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await;
    let mut frames = stream.read_until("two").await;

    // The answer has ended long before its end can be written.
    proxy.slow_down(Duration::from_millis(250));
    stopping.terminate();
    upstream.open("on");
    frames.extend(stream.frames().await);
    Transcript::parse(&frames).expect_completed();
    assert_eq!(stopping.wait_for_exit().code(), Some(0));
    let path = format!("/agents/friday/runs/{}/events", id_of(&frames));
    assert_eq!(events(&other, &path).await, frames, "the other one has the same");
}

#[tokio::test]
async fn who_follows_a_run_on_a_gateway_that_stops_is_shown_no_end_of_its_own() {
    let upstream = Upstream::always(text_reply_until(&["one ", "two"], "on"));
    let stand = cluster(&upstream, "", "");
    let here = stand.gateway().await;
    let mut stopping = stand.process();
    let mut stream = here.start_turn("friday", &user_turn_in("s", "hi")).await;
    let mut frames = stream.read_until("two").await;
    let path = format!("/agents/friday/runs/{}/events", id_of(&frames));
    let mut followed = stopping.open("GET", &path, &[], b"").await;
    let mut seen = followed.read_until("two").await;

    stopping.terminate();
    seen.extend(followed.frames().await);
    assert_eq!(seen, frames, "the stream breaks off");
    assert_eq!(stopping.wait_for_exit().code(), Some(0));

    upstream.open("on");
    frames.extend(stream.frames().await);
    Transcript::parse(&frames).expect_completed();
    let after = format!("{path}?after={}", seen.len() - 1);
    seen.extend(events(&here, &after).await);
    assert_eq!(seen, frames, "and goes on on the other one");
}

#[tokio::test]
async fn a_gateway_that_stops_is_not_waited_for() {
    let upstream = Upstream::always(text_reply_until(&["one"], "on"));
    let stand = cluster(&upstream, "", "");
    let here = stand.gateway().await;
    let mut stopping = stand.process();
    upstream.open("on");
    let body = user_turn_in("s", "hi").to_string();
    let stream = stopping.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.frames().await;
    Transcript::parse(&stream).expect_completed();
    stopping.terminate();
    assert_eq!(stopping.wait_for_exit().code(), Some(0));
    let state = "SELECT string_agg(state, ',' ORDER BY state) FROM interlingua.replicas";
    poll_until("the gateway to have left", async || {
        (stand.database().sql(state).unwrap() == "active,left").then_some(())
    })
    .await;
    here.run_turn("friday", &user_turn_in("s", "more")).await.expect_completed();
}
