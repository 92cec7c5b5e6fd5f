//! Clients that are slow on purpose: every request of a connection has clocks for its head, its body and its answer,
//! and no client keeps more connections than its share.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, says};
use crate::support::http::{Exchange, request};
use crate::support::until;

/// A gateway with clocks of its own.
async fn impatient(timeouts: &str, limits: &str) -> Gateway {
    Gateway::with(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\nheartbeat = \"50ms\"\ntimeouts = {{ {timeouts} }}\n\
         limits = {{ {limits} }}\n{DEMO}{ROUTE}"
    ))
    .await
}

/// Sends a byte now and then, until the gateway closes the connection; answers what it said, and after how long.
async fn drip(mut sent: Exchange, bytes: &[u8]) -> (String, Duration) {
    let begun = Instant::now();
    for byte in bytes.iter().cycle() {
        if sent.more(&[*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        if begun.elapsed() > Duration::from_secs(10) {
            break;
        }
    }
    let lasted = begun.elapsed();
    (String::from_utf8(sent.bytes().await).expect("text"), lasted)
}

/// Reads to the end of the connection; answers what was said, and after how long it ended.
async fn wait(sent: Exchange) -> (String, Duration) {
    let begun = Instant::now();
    let said = sent.bytes().await;
    (String::from_utf8(said).expect("text"), begun.elapsed())
}

fn around(lasted: Duration, expected: u64) {
    let (least, most) = (expected * 8 / 10, expected + 2000);
    let lasted = lasted.as_millis();
    assert!((u128::from(least)..u128::from(most)).contains(&lasted), "{lasted} ms instead of {expected}");
}

const HALF_A_HEAD: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: gateway\r\nx-";

#[tokio::test]
async fn a_first_head_has_its_time_however_it_drips() {
    let gateway = impatient("head = \"400ms\"", "").await;
    let (said, lasted) = wait(Exchange::send(gateway.address, HALF_A_HEAD).await).await;
    assert!(said.starts_with("HTTP/1.1 408 "), "{said:?}");
    around(lasted, 400);
    let (_, lasted) = drip(Exchange::send(gateway.address, HALF_A_HEAD).await, b"x").await;
    around(lasted, 400);
}

#[tokio::test]
async fn a_later_head_has_the_same_time_as_the_first() {
    let gateway = impatient("head = \"400ms\"", "").await;
    for dripping in [false, true] {
        let mut sent = gateway.open("GET", "/healthz", &[], b"").await;
        for _ in 0..3 {
            assert_eq!(sent.answer_here().await.status, 200);
            // Longer than a head may take: a pause between two requests is none of its time.
            tokio::time::sleep(Duration::from_millis(600)).await;
            sent.again(&request("GET", "/healthz", &[], b"")).await;
        }
        assert_eq!(sent.answer_here().await.status, 200);
        sent.again(HALF_A_HEAD).await;
        let (said, lasted) = if dripping { drip(sent, b"x").await } else { wait(sent).await };
        assert!(dripping || said.starts_with("HTTP/1.1 408 "), "{said:?}");
        around(lasted, 400);
    }
}

#[tokio::test]
async fn a_head_that_begins_in_the_packet_of_the_request_before_it_has_its_time_too() {
    let gateway = impatient("head = \"400ms\"", "").await;
    let mut both = request("GET", "/healthz", &[], b"");
    both.extend_from_slice(HALF_A_HEAD);
    let mut sent = Exchange::send(gateway.address, &both).await;
    assert_eq!(sent.answer_here().await.status, 200);
    let (said, lasted) = wait(sent).await;
    assert!(said.starts_with("HTTP/1.1 408 "), "{said:?}");
    around(lasted, 400);
}

#[tokio::test]
async fn requests_that_come_all_at_once_are_answered_one_by_one() {
    let gateway = impatient("head = \"400ms\"", "").await;
    let body = says("sleep 300").to_string();
    let one = request("POST", "/agents/demo/process", JSON, body.as_bytes());
    let mut sent = Exchange::send(gateway.address, &[one.clone(), one.clone(), one].concat()).await;
    // Each waits for the one before it longer than its head may take: that is not the client's time.
    for _ in 0..3 {
        let frames = sent.frames().await;
        assert_eq!(frames.last().expect("an end")["status"], "completed");
        sent.again(b"").await;
    }
}

#[tokio::test]
async fn a_pause_between_two_requests_is_bounded() {
    let gateway = impatient("head = \"10s\", idle = \"500ms\"", "").await;
    let (said, lasted) = wait(Exchange::send(gateway.address, b"").await).await;
    assert_eq!(said, "");
    around(lasted, 500);
    let mut sent = gateway.open("POST", "/agents/demo/process", JSON, says("echo hi").to_string().as_bytes()).await;
    sent.frames().await;
    let (said, lasted) = wait(sent).await;
    assert_eq!(said, "");
    around(lasted, 500);
}

const HEAD_OF_A_BODY: &str =
    "POST /agents/demo/process HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n";

#[tokio::test]
async fn a_body_has_its_time_chunked_or_not_however_it_drips() {
    let gateway = impatient("head = \"2s\", body = \"500ms\"", "").await;
    for (framing, piece) in [("content-length: 5000", " "), ("transfer-encoding: chunked", "1\r\n \r\n")] {
        let head = format!("{HEAD_OF_A_BODY}{framing}\r\n\r\n");
        let (said, lasted) = wait(Exchange::send(gateway.address, head.as_bytes()).await).await;
        assert!(said.contains("did not come in time") && said.contains("MALFORMED_REQUEST"), "{said:?}");
        // The client is given a moment to read why, and to send what nobody reads.
        around(lasted, 500 + 2000);

        let (_, lasted) = drip(Exchange::send(gateway.address, head.as_bytes()).await, piece.as_bytes()).await;
        around(lasted, 500 + 2000);
    }
}

#[tokio::test]
async fn what_follows_an_early_refusal_is_not_waited_for() {
    let gateway = impatient("head = \"500ms\", body = \"500ms\"", "").await;
    for framing in ["content-length: 5000", "transfer-encoding: chunked"] {
        let head = format!("POST /nowhere HTTP/1.1\r\nhost: gateway\r\n{framing}\r\n\r\n");
        let piece: &[u8] = if framing.contains("chunked") { b"1\r\n \r\n" } else { b" " };
        let (_, lasted) = drip(Exchange::send(gateway.address, head.as_bytes()).await, piece).await;
        assert!(lasted < Duration::from_secs(4), "{framing}: {lasted:?}");
    }
}

/// Has the demo agent write a long answer, and hands out where it can be fetched.
async fn long(gateway: &Gateway) -> String {
    let mut body = says("long 200000 0");
    body["stream"] = json!(false);
    let answer = gateway.post("/agents/demo/process", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    format!("/agents/demo/runs/{}", answer.json()["id"].as_str().expect("an id"))
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_gone_after_its_time() {
    let gateway = impatient("write = \"600ms\"", "").await;
    let run = long(&gateway).await;
    for path in [run.clone(), format!("{run}/events")] {
        let asked = request("GET", &path, &[], b"");
        let mut stalled = Exchange::send_and_read_slowly(gateway.address, &asked).await;
        assert_eq!(stalled.status().await, 200);
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let taken = stalled.bytes().await;
        assert!(taken.len() < 1 << 20, "{path}: {} bytes", taken.len());

        // One that reads slowly, and reads, gets all of it, in more time than it may take for nothing.
        let mut slow = Exchange::send_and_read_slowly(gateway.address, &asked).await;
        let whole = gateway.get(&path).await;
        let begun = Instant::now();
        let mut sipped = 0;
        while sipped < whole.body.len() && begun.elapsed() < Duration::from_millis(1500) {
            assert!(slow.sip(16 << 10).await, "{path}: closed after {sipped} of {} bytes", whole.body.len());
            sipped += 4 << 10;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn a_stream_that_has_nothing_to_send_is_not_stalled() {
    let gateway = impatient("head = \"200ms\", body = \"200ms\", write = \"200ms\", idle = \"200ms\"", "").await;
    let mut stream = gateway.ask("demo", &says("sleep 1500")).await;
    let frames = stream.frames().await;
    assert_eq!(frames.last().expect("an end")["status"], "completed");
}

#[tokio::test]
async fn a_websocket_is_not_cut_by_the_clocks_of_requests() {
    let gateway = Gateway::with(&format!(
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
    // A masked ping is answered by a pong: it is still there.
    socket.more(&[0x89, 0x80, 0, 0, 0, 0]).await.expect("the socket is open");
    assert!(socket.sip(2).await);
}

#[tokio::test]
async fn connections_have_a_bound_of_an_address_and_in_total() {
    for limits in ["connections_per_address = 3", "connections = 3"] {
        let gateway = impatient("", limits).await;
        let mut kept = Vec::new();
        for _ in 0..3 {
            let mut sent = gateway.open("GET", "/healthz", &[], b"").await;
            assert_eq!(sent.answer_here().await.status, 200);
            kept.push(sent);
        }
        let mut refused = Exchange::send(gateway.address, b"").await;
        assert_eq!(refused.status().await, 503);
        assert!(refused.header("retry-after").await.is_some());

        // Those that are there are served, and their place is free when they leave.
        let mut served = kept.pop().expect("three are kept");
        served.again(&request("GET", "/healthz", &[], b"")).await;
        assert_eq!(served.answer_here().await.status, 200);
        drop(served);
        let last = request("GET", "/healthz", &[("connection", "close")], b"");
        until("a place that is free", async || {
            // One that is refused may be reset before it has read why.
            let said = Exchange::send(gateway.address, &last).await.bytes().await;
            said.starts_with(b"HTTP/1.1 200 ").then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn answers_that_are_not_taken_have_a_common_bound() {
    let gateway = Gateway::with(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\nmax_body = \"64KiB\"\nlimits = {{ bodies = \"1MiB\" }}\n\
         {DEMO}{ROUTE}"
    ))
    .await;
    let run = long(&gateway).await;
    let whole = gateway.get(&run).await;
    assert!(whole.body.len() > 540 << 10, "{} bytes", whole.body.len());
    let asked = request("GET", &run, &[], b"");
    let mut stalled = Exchange::send_and_read_slowly(gateway.address, &asked).await;
    assert_eq!(stalled.status().await, 200);

    let refused = gateway.get(&run).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.text());
    assert_eq!(refused.json()["code"], "GATEWAY_OVERLOADED");
    assert_eq!(gateway.get("/healthz").await.status, 200, "what is small is told all the same");

    stalled.reset();
    until("room for the next", async || (gateway.get(&run).await.status == 200).then_some(())).await;
}
