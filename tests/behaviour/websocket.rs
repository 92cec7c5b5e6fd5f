//! The WebSocket transport of an endpoint, frame by frame: queueing, refusals, and how a connection closes.
//!
//! Not here: Responses over a WebSocket (`responses_socket`).

use serde_json::json;

use crate::support::agent::{text_reply, text_reply_until};
use crate::support::gateway::{Gateway, agent};
use crate::support::http::Exchange;
use crate::support::socket::{Socket, SocketFrame, frame};
use crate::support::upstream::Upstream;

async fn before(upstream: &Upstream, server: &str) -> Gateway {
    let agents = agent("friday", &upstream.url("/process"), "", "retries = 0");
    let route = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nagents = [\"friday\"]\noptions = { max_body = \"64KiB\" }\n";
    let server = format!("[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n{server}\n");
    Gateway::with_config(&format!("{server}[store]\nkind = \"memory\"\n{agents}\n{route}")).await
}

#[tokio::test]
async fn a_protocol_error_closes_the_socket_with_its_close_code() {
    let upstream = Upstream::always(text_reply(&["hello"]));
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
        // Refused by the frame header, before the payload arrives.
        (too_large[..14].to_vec(), 1009),
        ([frame(0x01, &vec![b' '; 40_000]), frame(0x80, &vec![b' '; 40_000])].concat(), 1009),
    ] {
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        socket.raw(&bytes).await;
        let closed = socket.next().await;
        assert!(matches!(&closed, SocketFrame::Close(Some(received), _) if *received == code), "{code}: {closed:?}");
        assert_eq!(socket.next().await, SocketFrame::End);
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn a_handshake_of_another_version_is_refused_with_the_right_one() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let gateway = before(&upstream, "").await;
    let refused = async |version: &str, headers: &str| {
        let head = format!(
            "GET /v1/responses HTTP/{version}\r\nhost: {}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n",
            gateway.address
        );
        Exchange::send(gateway.address, head.as_bytes()).await.response().await
    };
    for headers in ["", "sec-websocket-version: 8\r\n", "sec-websocket-version: 13\r\nsec-websocket-version: 8\r\n"] {
        let response = refused("1.1", headers).await;
        assert_eq!((response.status, response.header("sec-websocket-version")), (426, Some("13")), "{headers}");
        assert!(response.json()["error"]["message"].as_str().is_some_and(|text| text.contains("13")), "{headers}");
    }
    assert_eq!(refused("1.0", "sec-websocket-version: 13\r\n").await.status, 400);
}

#[tokio::test]
async fn close_and_ping_frames_are_answered() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    socket.raw(&frame(0x89, b"there?")).await;
    assert_eq!(socket.next().await, SocketFrame::Pong(b"there?".to_vec()));

    socket.raw(&frame(0x88, &[0x03, 0xe8])).await;
    assert_eq!(socket.next().await, SocketFrame::Close(Some(1000), String::new()));
    assert_eq!(socket.next().await, SocketFrame::End);
}

#[tokio::test]
async fn a_fragmented_message_is_one_request() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    let request = json!({ "type": "response.create", "model": "friday", "input": "hi" }).to_string();
    socket.raw(&frame(0x01, &request.as_bytes()[..10])).await;
    socket.raw(&frame(0x89, b"")).await;
    assert_eq!(socket.next().await, SocketFrame::Pong(Vec::new()));

    socket.raw(&frame(0x00, &request.as_bytes()[10..20])).await;
    socket.raw(&frame(0x80, &request.as_bytes()[20..])).await;
    let last = socket.response().await.pop().expect("events");
    assert_eq!(last["type"], "response.completed");
}

#[tokio::test]
async fn one_request_is_queued_and_further_ones_are_refused() {
    let upstream = Upstream::in_order([text_reply_until(&["first"], "on"), text_reply(&["second"])]);
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
        let last = socket.response().await.pop().expect("events");
        assert_eq!((&last["type"], &last["stream_id"]), (&json!("response.completed"), &json!(name)));
    }
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_request_of_too_many_values_or_levels_is_refused_as_over_http() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let gateway = before(&upstream, "limits = { json_depth = 8, json_values = 1000 }").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    for (input, status) in [(json!(vec![1; 2000]), 413), (json!([[[[[[[[[1]]]]]]]]]), 400)] {
        let refused = socket.ask(&json!({ "input": input })).await;
        assert_eq!((&refused["type"], &refused["status"]), (&json!("error"), &json!(status)), "{refused}");
    }
    assert_eq!(socket.ask(&json!({ "input": "hi" })).await["type"], "response.completed");
}

#[tokio::test]
async fn a_stopping_gateway_closes_idle_sockets() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    assert_eq!(socket.ask(&json!({ "input": "hi" })).await["type"], "response.completed");
    let started = std::time::Instant::now();
    gateway.stop().await;
    assert!(started.elapsed() < std::time::Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(socket.next().await, SocketFrame::Close(Some(1001), "the gateway is shutting down".to_owned()));
}
