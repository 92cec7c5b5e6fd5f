//! Clients that are slow on purpose: every request on a connection has timeouts for its head, its body and its
//! response, and the connections of one client are limited.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, user_turn};
use crate::support::http::{Exchange, request};
use crate::support::poll_until;

async fn gateway_with(timeouts: &str, limits: &str) -> Gateway {
    Gateway::with_config(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\nheartbeat = \"50ms\"\ntimeouts = {{ {timeouts} }}\n\
         limits = {{ {limits} }}\n{DEMO}{ROUTE}"
    ))
    .await
}

/// Sends a byte every 20 ms until the gateway closes the connection. Returns the response and the elapsed time.
async fn drip(mut sent: Exchange, bytes: &[u8]) -> (String, Duration) {
    let started = Instant::now();
    for byte in bytes.iter().cycle() {
        if sent.send_more(&[*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        if started.elapsed() > Duration::from_secs(10) {
            break;
        }
    }
    let elapsed = started.elapsed();
    (String::from_utf8(sent.bytes().await).expect("text"), elapsed)
}

/// Reads until the connection ends. Returns the response and the elapsed time.
async fn wait(sent: Exchange) -> (String, Duration) {
    let started = Instant::now();
    let output = sent.bytes().await;
    (String::from_utf8(output).expect("text"), started.elapsed())
}

fn assert_about(elapsed: Duration, expected: u64) {
    let (min, max) = (expected * 8 / 10, expected + 2000);
    let elapsed = elapsed.as_millis();
    assert!((u128::from(min)..u128::from(max)).contains(&elapsed), "{elapsed} ms instead of {expected}");
}

const HALF_A_HEAD: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: gateway\r\nx-";

#[tokio::test]
async fn the_first_request_head_must_arrive_within_its_timeout() {
    let gateway = gateway_with("head = \"400ms\"", "").await;
    let (output, elapsed) = wait(Exchange::send(gateway.address, HALF_A_HEAD).await).await;
    assert!(output.starts_with("HTTP/1.1 408 "), "{output:?}");
    assert_about(elapsed, 400);
    let (_, elapsed) = drip(Exchange::send(gateway.address, HALF_A_HEAD).await, b"x").await;
    assert_about(elapsed, 400);
}

#[tokio::test]
async fn a_later_request_head_has_the_same_timeout() {
    let gateway = gateway_with("head = \"400ms\"", "").await;
    for dripping in [false, true] {
        let mut sent = gateway.open("GET", "/healthz", &[], b"").await;
        for _ in 0..3 {
            assert_eq!(sent.read_response().await.status, 200);
            // Longer than the head timeout: the pause between two requests does not count.
            tokio::time::sleep(Duration::from_millis(600)).await;
            sent.send_next(&request("GET", "/healthz", &[], b"")).await;
        }
        assert_eq!(sent.read_response().await.status, 200);
        sent.send_next(HALF_A_HEAD).await;
        let (output, elapsed) = if dripping { drip(sent, b"x").await } else { wait(sent).await };
        assert!(dripping || output.starts_with("HTTP/1.1 408 "), "{output:?}");
        assert_about(elapsed, 400);
    }
}

#[tokio::test]
async fn a_head_that_starts_in_the_previous_packet_has_the_same_timeout() {
    let gateway = gateway_with("head = \"400ms\"", "").await;
    let mut both = request("GET", "/healthz", &[], b"");
    both.extend_from_slice(HALF_A_HEAD);
    let mut sent = Exchange::send(gateway.address, &both).await;
    assert_eq!(sent.read_response().await.status, 200);

    let (output, elapsed) = wait(sent).await;
    assert!(output.starts_with("HTTP/1.1 408 "), "{output:?}");
    assert_about(elapsed, 400);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let gateway = gateway_with("head = \"400ms\"", "").await;
    let body = user_turn("sleep 300").to_string();
    let one = request("POST", "/agents/demo/process", JSON, body.as_bytes());
    let mut sent = Exchange::send(gateway.address, &[one.clone(), one.clone(), one].concat()).await;

    // Each waits for the one before it for longer than the head timeout, which does not count.
    for _ in 0..3 {
        let frames = sent.frames().await;
        assert_eq!(frames.last().expect("an end")["status"], "completed");
        sent.send_next(b"").await;
    }
}

#[tokio::test]
async fn idle_connections_are_closed_after_the_idle_timeout() {
    let gateway = gateway_with("head = \"10s\", idle = \"500ms\"", "").await;
    let (output, elapsed) = wait(Exchange::send(gateway.address, b"").await).await;
    assert_eq!(output, "");
    assert_about(elapsed, 500);

    let mut sent =
        gateway.open("POST", "/agents/demo/process", JSON, user_turn("echo hi").to_string().as_bytes()).await;
    sent.frames().await;
    let (output, elapsed) = wait(sent).await;
    assert_eq!(output, "");
    assert_about(elapsed, 500);
}

const HEAD_OF_A_BODY: &str =
    "POST /agents/demo/process HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n";

#[tokio::test]
async fn a_request_body_must_arrive_within_its_timeout() {
    let gateway = gateway_with("head = \"2s\", body = \"500ms\"", "").await;
    for (framing, piece) in [("content-length: 5000", " "), ("transfer-encoding: chunked", "1\r\n \r\n")] {
        let head = format!("{HEAD_OF_A_BODY}{framing}\r\n\r\n");
        let (output, elapsed) = wait(Exchange::send(gateway.address, head.as_bytes()).await).await;
        assert!(output.contains("did not arrive in time") && output.contains("MALFORMED_REQUEST"), "{output:?}");

        // The client has a moment to read the error.
        assert_about(elapsed, 500 + 500);
        let (_, elapsed) = drip(Exchange::send(gateway.address, head.as_bytes()).await, piece.as_bytes()).await;
        assert_about(elapsed, 500 + 500);
    }
}

#[tokio::test]
async fn a_body_after_an_early_refusal_is_not_waited_for() {
    let gateway = gateway_with("head = \"500ms\", body = \"500ms\"", "").await;
    for framing in ["content-length: 5000", "transfer-encoding: chunked"] {
        let head = format!("POST /nowhere HTTP/1.1\r\nhost: gateway\r\n{framing}\r\n\r\n");
        let piece: &[u8] = if framing.contains("chunked") { b"1\r\n \r\n" } else { b" " };
        let (_, elapsed) = drip(Exchange::send(gateway.address, head.as_bytes()).await, piece).await;
        assert!(elapsed < Duration::from_secs(4), "{framing}: {elapsed:?}");
    }
}

/// Runs a turn with a long reply and returns the path of the run.
async fn long_run(gateway: &Gateway) -> String {
    let mut body = user_turn("long 200000 0");
    body["stream"] = json!(false);
    let response = gateway.post("/agents/demo/process", &body).await;
    assert_eq!(response.status, 200, "{}", response.text());
    format!("/agents/demo/runs/{}", response.json()["id"].as_str().expect("an id"))
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected_after_the_write_timeout() {
    let gateway = gateway_with("write = \"600ms\"", "").await;
    let run = long_run(&gateway).await;
    for path in [run.clone(), format!("{run}/events")] {
        let requests = request("GET", &path, &[], b"");
        let mut stalled = Exchange::send_with_small_buffer(gateway.address, &requests).await;
        assert_eq!(stalled.status().await, 200);
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let taken = stalled.bytes().await;
        assert!(taken.len() < 1 << 20, "{path}: {} bytes", taken.len());

        // A slow reader that keeps reading is not disconnected, even beyond the write timeout.
        let full = gateway.get(&path).await;
        let mut slow = Exchange::send_with_small_buffer(gateway.address, &requests).await;
        let started = Instant::now();
        let mut expected_bytes = 0;
        while expected_bytes < full.body.len() && started.elapsed() < Duration::from_millis(1500) {
            assert!(
                slow.read_some(16 << 10).await,
                "{path}: closed after {expected_bytes} of {} bytes",
                full.body.len()
            );
            expected_bytes += 4 << 10;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn a_silent_stream_does_not_count_as_stalled() {
    let gateway = gateway_with("head = \"200ms\", body = \"200ms\", write = \"200ms\", idle = \"200ms\"", "").await;
    let mut stream = gateway.start_turn("demo", &user_turn("sleep 1500")).await;
    let frames = stream.frames().await;
    assert_eq!(frames.last().expect("an end")["status"], "completed");
}

#[tokio::test]
async fn request_timeouts_do_not_apply_to_a_websocket() {
    let gateway = Gateway::with_config(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n\
         timeouts = {{ head = \"200ms\", body = \"200ms\", write = \"200ms\", idle = \"200ms\" }}\n{DEMO}\
         [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n"
    ))
    .await;
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let mut socket = gateway.open("GET", "/v1/responses", &upgrade, b"").await;
    assert_eq!(socket.status().await, 101);
    tokio::time::sleep(Duration::from_millis(900)).await;

    // A masked ping is answered with a pong: the socket is still open.
    socket.send_more(&[0x89, 0x80, 0, 0, 0, 0]).await.expect("the socket is open");
    assert!(socket.read_some(2).await);
}

#[tokio::test]
async fn connections_are_limited_per_address_and_in_total() {
    for limits in ["connections_per_address = 3", "connections = 3"] {
        let gateway = gateway_with("", limits).await;
        let mut stored = Vec::new();
        for _ in 0..3 {
            let mut sent = gateway.open("GET", "/healthz", &[], b"").await;
            assert_eq!(sent.read_response().await.status, 200);
            stored.push(sent);
        }
        let mut refused = Exchange::send(gateway.address, b"").await;
        assert_eq!(refused.status().await, 503);
        assert!(refused.header("retry-after").await.is_some());

        // Open connections are still served, and closing one frees its slot.
        let mut served = stored.pop().expect("three are kept");
        served.send_next(&request("GET", "/healthz", &[], b"")).await;
        assert_eq!(served.read_response().await.status, 200);
        drop(served);
        let last = request("GET", "/healthz", &[("connection", "close")], b"");
        poll_until("a free slot", async || {
            // A refused connection may be reset before its response is read.
            let output = Exchange::send(gateway.address, &last).await.bytes().await;
            output.starts_with(b"HTTP/1.1 200 ").then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn unread_responses_share_one_memory_limit() {
    let gateway = Gateway::with_config(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\nmax_body = \"64KiB\"\nlimits = {{ bodies = \"1MiB\" }}\n\
         {DEMO}{ROUTE}"
    ))
    .await;
    let run = long_run(&gateway).await;
    let full = gateway.get(&run).await;
    assert!(full.body.len() > 540 << 10, "{} bytes", full.body.len());

    let requests = request("GET", &run, &[], b"");
    let mut stalled = Exchange::send_with_small_buffer(gateway.address, &requests).await;
    assert_eq!(stalled.status().await, 200);

    let refused = gateway.get(&run).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.text());
    assert_eq!(refused.json()["code"], "GATEWAY_OVERLOADED");
    assert_eq!(gateway.get("/healthz").await.status, 200, "small responses are still sent");

    stalled.reset();
    poll_until("memory for the next response", async || (gateway.get(&run).await.status == 200).then_some(())).await;
}
