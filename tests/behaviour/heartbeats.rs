//! Heartbeats of an agent: each is forwarded at once to every follower, as an SSE comment.

use serde_json::json;

use crate::support::agent::{closing_frames, opening_frames, text_delta};
use crate::support::gateway::{Gateway, ROUTE, agent, user_turn};
use crate::support::http::{Exchange, data};
use crate::support::upstream::{Reply, Upstream};

const A2A: &str = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";

/// An agent that starts its reply, sends a heartbeat at one gate and ends behind another.
fn heartbeat_agent() -> Upstream {
    let heartbeat =
        json!({ "object": "message", "status": "completed", "id": "hb", "type": "heartbeat", "content": [] });
    let started = opening_frames().into_iter().chain([text_delta("thinking")]);
    let answer = started.fold(Reply::events(), |reply, frame| reply.frame(&frame));
    let answer = answer.wait("beat").frame(&heartbeat.to_string()).wait("on");
    Upstream::always(closing_frames("thinking").iter().fold(answer, |reply, frame| reply.frame(frame)).done())
}

/// A gateway that sends no heartbeat of its own during a test.
async fn started(upstream: &Upstream, native: &str) -> Gateway {
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nheartbeat = \"1h\"\n[store]\nkind = \"memory\"\n";
    let agent = agent("friday", &upstream.url("/process"), "", "");
    Gateway::with_config(&format!("{server}{agent}{ROUTE}{native}{A2A}")).await
}

async fn asked(gateway: &Gateway) -> [Exchange; 2] {
    let message = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } });
    let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
    let a2a = gateway.open("POST", "/a2a/friday/message:stream", &headers, message.to_string().as_bytes()).await;
    [gateway.start_turn("friday", &user_turn("hi")).await, a2a]
}

#[tokio::test]
async fn a_heartbeat_of_the_agent_is_a_comment_line_in_every_open_stream() {
    let upstream = heartbeat_agent();
    let gateway = started(&upstream, "").await;
    let mut streams = asked(&gateway).await;
    for stream in &mut streams {
        stream.read_until("thinking").await;
    }

    upstream.open("beat");
    for stream in &mut streams {
        let heartbeat = stream.event().await.expect("a heartbeat");
        assert!(heartbeat.starts_with(':') && data(&heartbeat).is_none(), "{heartbeat}");
    }

    upstream.open("on");
    for stream in &mut streams {
        assert!(!stream.frames().await.is_empty());
    }
}

#[tokio::test]
async fn a_route_without_heartbeats_forwards_none_of_the_agents() {
    let upstream = heartbeat_agent();
    let gateway = started(&upstream, "options = { heartbeat = false }\n").await;
    let [mut stream, _] = asked(&gateway).await;
    stream.read_until("thinking").await;
    upstream.open("beat");
    upstream.open("on");
    while let Some(event) = stream.event().await {
        assert!(data(&event).is_some(), "{event}");
    }
}

#[tokio::test]
async fn an_exchange_is_called_at_the_times_that_it_names_also_while_the_agent_is_silent() {
    let upstream = heartbeat_agent();
    let gateway = started(&upstream, "[[routes]]\nprotocol = \"resender\"\npath = \"/resent/{agent}\"\n").await;
    let message = json!({ "role": "user", "content": [{ "type": "text", "text": "hi" }] });
    let body = json!({ "input": [message], "stream": true, "times": [50, 60, 60] });
    let mut stream = gateway.start_post("/resent/friday", &body).await;
    let frames = stream.frames().await;
    let of_time: Vec<_> = frames.into_iter().filter(|frame| frame["is_due"].is_boolean()).collect();
    let expected = [2, 1, 0].map(|left| json!({ "is_due": true, "left": left }));
    assert_eq!(of_time, expected);
}
