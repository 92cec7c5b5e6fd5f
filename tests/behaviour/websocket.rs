//! The WebSocket form of an endpoint, frame by frame: what is waited for, what is refused, and how a connection ends.
//!
//! Not here: what Responses say over it (`responses_socket`).

use serde_json::json;

use crate::support::agent::{saying, saying_until};
use crate::support::gateway::{Gateway, agent};
use crate::support::socket::{Said, Socket, frame};
use crate::support::upstream::Upstream;

async fn before(upstream: &Upstream, server: &str) -> Gateway {
    let agents = agent("friday", &upstream.url("/process"), "", "retries = 0");
    let route = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nagents = [\"friday\"]\noptions = { max_body = \"64KiB\" }\n";
    let server = format!("[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n{server}\n");
    Gateway::with(&format!("{server}[store]\nkind = \"memory\"\n{agents}\n{route}")).await
}

#[tokio::test]
async fn a_mistake_on_the_wire_is_answered_by_the_code_that_says_which() {
    let upstream = Upstream::always(saying(&["hello"]));
    let gateway = before(&upstream, "").await;
    let mut unmasked = frame(0x81, b"{}");
    unmasked[1] &= 0x7f;
    let too_large = frame(0x81, &vec![b' '; 70_000]);
    for (bytes, code) in [
        (unmasked, 1002),
        (frame(0xc1, b"{}"), 1002),
        (frame(0x80, b"{}"), 1002),
        (frame(0x8b, b""), 1002),
        (frame(0x81, b"\xff\xfe"), 1007),
        (frame(0x82, b"{}"), 1003),
        // By its head alone: nobody waits for the rest.
        (too_large[..14].to_vec(), 1009),
        ([frame(0x01, &vec![b' '; 40_000]), frame(0x80, &vec![b' '; 40_000])].concat(), 1009),
    ] {
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        socket.raw(&bytes).await;
        let closed = socket.next().await;
        assert!(matches!(&closed, Said::Close(Some(said), _) if *said == code), "{code}: {closed:?}");
        assert_eq!(socket.next().await, Said::End);
    }
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn a_client_that_closes_is_answered_and_one_that_asks_whether_we_are_there_too() {
    let upstream = Upstream::always(saying(&["hello"]));
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    socket.raw(&frame(0x89, b"there?")).await;
    assert_eq!(socket.next().await, Said::Pong(b"there?".to_vec()));
    socket.raw(&frame(0x88, &[0x03, 0xe8])).await;
    assert_eq!(socket.next().await, Said::Close(Some(1000), String::new()));
    assert_eq!(socket.next().await, Said::End);
}

#[tokio::test]
async fn a_request_in_pieces_is_one_request() {
    let upstream = Upstream::always(saying(&["hello"]));
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    let request = json!({ "type": "response.create", "model": "friday", "input": "hi" }).to_string();
    socket.raw(&frame(0x01, &request.as_bytes()[..10])).await;
    socket.raw(&frame(0x89, b"")).await;
    assert_eq!(socket.next().await, Said::Pong(Vec::new()));
    socket.raw(&frame(0x00, &request.as_bytes()[10..20])).await;
    socket.raw(&frame(0x80, &request.as_bytes()[20..])).await;
    let last = socket.answer().await.pop().expect("events");
    assert_eq!(last["type"], "response.completed");
}

#[tokio::test]
async fn one_request_waits_and_a_further_one_is_told_so() {
    let upstream = Upstream::answering([saying_until(&["first"], "on"), saying(&["second"])]);
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    for name in ["a", "b", "c", "d"] {
        socket.create(&json!({ "input": name, "stream_id": name })).await;
    }
    let mut refused = Vec::new();
    while refused.len() < 2 {
        let event = socket.event().await;
        if event["type"] == "error" {
            assert_eq!((&event["status"], &event["error"]["code"]), (&json!(429), &json!("rate_limit_exceeded")));
            refused.push(event["stream_id"].clone());
        } else {
            assert_eq!(event["stream_id"], "a", "{event}");
        }
    }
    assert_eq!(refused, ["c", "d"]);
    upstream.open("on");
    for name in ["a", "b"] {
        let last = socket.answer().await.pop().expect("events");
        assert_eq!((&last["type"], &last["stream_id"]), (&json!("response.completed"), &json!(name)));
    }
    assert_eq!(upstream.asked().len(), 2);
}

#[tokio::test]
async fn a_request_of_too_many_values_or_levels_is_refused_as_over_http() {
    let upstream = Upstream::always(saying(&["hello"]));
    let gateway = before(&upstream, "limits = { json_depth = 8, json_values = 1000 }").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    for (input, status) in [(json!(vec![1; 2000]), 413), (json!([[[[[[[[[1]]]]]]]]]), 400)] {
        let refused = socket.ask(&json!({ "input": input })).await;
        assert_eq!((&refused["type"], &refused["status"]), (&json!("error"), &json!(status)), "{refused}");
    }
    assert_eq!(socket.ask(&json!({ "input": "hi" })).await["type"], "response.completed");
}

#[tokio::test]
async fn a_gateway_that_stops_says_so_and_waits_for_no_idle_socket() {
    let upstream = Upstream::always(saying(&["hello"]));
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    assert_eq!(socket.ask(&json!({ "input": "hi" })).await["type"], "response.completed");
    let begun = std::time::Instant::now();
    gateway.stop().await;
    assert!(begun.elapsed() < std::time::Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(socket.next().await, Said::Close(Some(1001), "the gateway is shutting down".to_owned()));
}
