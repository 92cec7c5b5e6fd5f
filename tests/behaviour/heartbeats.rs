//! An agent that only says that it lives: whoever follows hears so at once, in a line that says nothing.

use serde_json::json;

use crate::support::agent::{beginning, ending, word};
use crate::support::gateway::{Gateway, ROUTE, agent, says};
use crate::support::http::{Exchange, data};
use crate::support::upstream::{Answer, Upstream};

const A2A: &str = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";

/// An agent that has begun, and beats at one gate, and ends behind another.
fn beating() -> Upstream {
    let beat = json!({ "object": "message", "status": "completed", "id": "hb", "type": "heartbeat", "content": [] });
    let begun = beginning().into_iter().chain([word("thinking")]);
    let answer = begun.fold(Answer::events(), |answer, frame| answer.frame(&frame));
    let answer = answer.wait("beat").frame(&beat.to_string()).wait("on");
    Upstream::always(ending("thinking").iter().fold(answer, |answer, frame| answer.frame(frame)).done())
}

/// A gateway that gives no sign of life of its own in the time of a test.
async fn started(upstream: &Upstream, native: &str) -> Gateway {
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nheartbeat = \"1h\"\n[store]\nkind = \"memory\"\n";
    let agent = agent("friday", &upstream.url("/process"), "", "");
    Gateway::with(&format!("{server}{agent}{ROUTE}{native}{A2A}")).await
}

async fn asked(gateway: &Gateway) -> [Exchange; 2] {
    let message = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } });
    let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
    let a2a = gateway.open("POST", "/a2a/friday/message:stream", &headers, message.to_string().as_bytes()).await;
    [gateway.ask("friday", &says("hi")).await, a2a]
}

#[tokio::test]
async fn a_heartbeat_of_the_agent_is_a_comment_line_in_every_open_stream() {
    let upstream = beating();
    let gateway = started(&upstream, "").await;
    let mut streams = asked(&gateway).await;
    for stream in &mut streams {
        stream.until("thinking").await;
    }
    upstream.open("beat");
    for stream in &mut streams {
        let beat = stream.event().await.expect("a sign of life");
        assert!(beat.starts_with(':') && data(&beat).is_none(), "{beat}");
    }
    upstream.open("on");
    for stream in &mut streams {
        assert!(!stream.frames().await.is_empty());
    }
}

#[tokio::test]
async fn a_route_without_comments_has_none_of_the_agent_s_either() {
    let upstream = beating();
    let gateway = started(&upstream, "options = { heartbeat = false }\n").await;
    let [mut stream, _] = asked(&gateway).await;
    stream.until("thinking").await;
    upstream.open("beat");
    upstream.open("on");
    while let Some(event) = stream.event().await {
        assert!(data(&event).is_some(), "{event}");
    }
}
