//! Shutdown of the process: active runs may finish, new ones are refused, and those that outlast the drain are failed.

use std::time::{Duration, Instant};

use crate::support::agent::{opening_frames, text_delta, text_reply, text_reply_then_hang, text_reply_until};
use crate::support::gateway::{JSON, agent, user_turn};
use crate::support::http::{Exchange, request};
use crate::support::pairs::{ALL_PROTOCOLS, ROUTES};
use crate::support::poll_until;
use crate::support::process::Process;
use crate::support::socket::{Socket, SocketFrame};
use crate::support::transcript::Transcript;
use crate::support::upstream::{Reply, Upstream};

/// A process in front of this agent, with a SQLite store.
fn process(upstream: &Upstream, drain: &str) -> (tempfile::TempDir, Process) {
    process_with(upstream, &format!("drain = \"{drain}\""))
}

fn process_with(upstream: &Upstream, server: &str) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n{server}\n[store]\nkind = \"sqlite\"\npath = \"store.db\"\n{}{ROUTES}",
        agent("demo", &upstream.url("/process"), "", "")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start(folder.path());
    (folder, process)
}

async fn start_turn(process: &Process) -> Exchange {
    process.open("POST", "/agents/demo/process", JSON, user_turn("hi").to_string().as_bytes()).await
}

/// Waits until the process refuses new runs.
async fn wait_for_drain(process: &Process) {
    poll_until("the gateway to say that it stops", async || {
        let ready = process.open("GET", "/readyz", &[], b"").await.response().await;
        (ready.status == 503).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_stopping_process_lets_streams_finish_and_accepts_no_new_ones() {
    let upstream = Upstream::always(text_reply_until(&["so far"], "on"));
    let (_folder, process) = process(&upstream, "30s");
    let mut stream = start_turn(&process).await;
    let mut seen = stream.read_until("so far").await;
    process.terminate();
    wait_for_drain(&process).await;
    let late = start_turn(&process).await.response().await;
    assert_eq!((late.status, late.json()["code"].as_str()), (503, Some("GATEWAY_SHUTTING_DOWN")));
    let health = process.open("GET", "/healthz", &[], b"").await.response().await;
    assert_eq!(health.status, 200, "it is healthy while it drains");
    assert_eq!(health.header("connection"), Some("close"), "clients are asked to leave");

    upstream.open("on");
    seen.extend(stream.frames().await);
    assert_eq!(Transcript::parse(&seen).expect_completed().text(), "so far");
    drop(stream);
    assert_eq!(process.wait().await.code(), Some(0));
}

#[tokio::test]
async fn a_stopping_process_serves_until_load_balancers_have_noticed() {
    let upstream = Upstream::always(text_reply(&["as before"]));
    let (_folder, process) = process_with(&upstream, "shutdown_delay = \"1500ms\"");
    let began = Instant::now();
    process.terminate();
    wait_for_drain(&process).await;
    let mut turns = 0;
    while began.elapsed() < Duration::from_secs(1) {
        let frames = start_turn(&process).await.frames().await;
        assert_eq!(Transcript::parse(&frames).expect_completed().text(), "as before");
        turns += 1;
    }
    assert!(turns > 0, "it noticed too late");
    assert_eq!(process.wait().await.code(), Some(0));
    assert!(began.elapsed() >= Duration::from_millis(1500), "it stopped after {:?}", began.elapsed());
}

#[tokio::test]
async fn an_idle_websocket_is_closed_as_soon_as_the_process_drains() {
    let upstream = Upstream::always(text_reply_until(&["so far"], "on"));
    let (_folder, process) = process(&upstream, "30s");
    let mut stream = start_turn(&process).await;
    stream.read_until("so far").await;
    let mut socket = Socket::open(process.address, "/v1/responses").await;
    process.terminate();
    let SocketFrame::Close(code, _) = socket.next().await else { panic!("it is not closed") };
    assert_eq!(code, Some(1001), "the server goes away, although a stream is still open");

    upstream.open("on");
    stream.frames().await;
    drop((stream, socket));
    assert_eq!(process.wait().await.code(), Some(0));
}

#[tokio::test]
async fn idle_connections_do_not_delay_shutdown() {
    let upstream = Upstream::always(text_reply_then_hang(&[]));
    let (_folder, process) = process(&upstream, "30s");
    let mut idle = Vec::new();
    for _ in 0..5 {
        let mut connection = process.open("GET", "/healthz", &[], b"").await;
        assert_eq!(connection.read_response().await.status, 200);
        idle.push(connection);
    }

    process.terminate();
    let started = std::time::Instant::now();
    assert_eq!(process.wait().await.code(), Some(0));
    assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_stopping_process_creates_nothing_but_still_serves_reads() {
    let upstream = Upstream::always(text_reply_until(&["so far"], "on"));
    let (_folder, process) = process(&upstream, "30s");
    let post = async |path: &str, body: &serde_json::Value| {
        let headers = [JSON, &[("a2a-version", "1.0")]].concat();
        process.open("POST", path, &headers, body.to_string().as_bytes()).await.response().await
    };
    let conversation = post("/v1/conversations", &serde_json::json!({})).await;
    assert_eq!(conversation.status, 200, "{}", conversation.text());

    let conversation = format!("/v1/conversations/{}", conversation.json()["id"].as_str().expect("an id"));
    let mut stream = start_turn(&process).await;
    let seen = stream.read_until("so far").await;
    let run = format!("/agents/demo/runs/{}", seen[0]["id"].as_str().expect("an id"));
    process.terminate();
    wait_for_drain(&process).await;
    let item = serde_json::json!({ "items": [{ "type": "message", "role": "user", "content": "hi" }] });
    let task = user_turn("hi");
    for (path, body) in [
        ("/v1/conversations", &serde_json::json!({})),
        (&format!("{conversation}/items"), &item),
        ("/agents/demo/process/task", &task),
    ] {
        let refused = post(path, body).await;
        assert_eq!(refused.status, 503, "{path}: {}", refused.text());
        assert!(refused.header("retry-after").is_some(), "{path}: Retry-After is set");
    }
    for protocol in ALL_PROTOCOLS {
        let turn = protocol.turn("s", "hi", true);
        let refused = Exchange::send(process.address, &turn.bytes()).await.response().await;
        assert_eq!(refused.status, 503, "{protocol:?}: {}", refused.text());
        assert!(refused.header("retry-after").is_some(), "{protocol:?}: Retry-After is set");
    }

    for path in [conversation.as_str(), run.as_str()] {
        let found = process.open("GET", path, &[], b"").await.response().await;
        assert_eq!(found.status, 200, "{path}: {}", found.text());
    }

    upstream.open("on");
    stream.frames().await;
    drop(stream);
    assert_eq!(process.wait().await.code(), Some(0));
}

#[tokio::test]
async fn a_stream_that_outlasts_the_drain_is_failed_in_order() {
    let upstream = Upstream::always(text_reply_then_hang(&["so far"]));
    let (folder, process) = process(&upstream, "100ms");
    let mut stream = start_turn(&process).await;
    let mut seen = stream.read_until("so far").await;
    process.terminate();
    seen.extend(stream.frames().await);
    let transcript = Transcript::parse(&seen).expect_failed("GATEWAY_SHUTTING_DOWN");
    assert_eq!(transcript.text(), "so far");

    upstream.wait_for_disconnects(1).await;
    drop(stream);
    assert_eq!(process.wait().await.code(), Some(0));

    // The stored run equals the terminal frame.
    let again = Process::start(folder.path());
    let stored = again.open("GET", &format!("/agents/demo/runs/{}", transcript.id), &[], b"").await.response().await;
    assert_eq!(stored.json(), transcript.last);
}

#[tokio::test]
async fn an_idle_process_stops_immediately() {
    let upstream = Upstream::always(text_reply_then_hang(&[]));
    let (_folder, process) = process(&upstream, "30s");
    process.terminate();
    let started = std::time::Instant::now();
    assert_eq!(process.wait().await.code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_stalled_reader_does_not_delay_shutdown() {
    let started = opening_frames().iter().fold(Reply::events(), |reply, frame| reply.frame(frame));
    let frame = format!("data: {}\n\n", text_delta(&"x".repeat(1000)));
    let upstream = Upstream::always(started.flood(format!("{:x}\r\n{frame}\r\n", frame.len())));
    let (_folder, process) = process(&upstream, "100ms");

    let requests = request("POST", "/agents/demo/process", JSON, user_turn("hi").to_string().as_bytes());
    let mut slow = Exchange::send_with_small_buffer(process.address, &requests).await;
    assert_eq!(slow.status().await, 200);
    upstream.wait_for_written(1 << 20).await;
    let start = std::time::Instant::now();
    process.terminate();
    assert_eq!(process.wait().await.code(), Some(0));
    assert!(start.elapsed() < Duration::from_millis(5100), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_second_signal_exits_immediately() {
    let upstream = Upstream::always(text_reply_then_hang(&["so far"]));
    let (_folder, process) = process(&upstream, "30s");
    let mut stream = start_turn(&process).await;
    stream.read_until("so far").await;
    process.terminate();
    wait_for_drain(&process).await;
    process.terminate();
    assert_eq!(process.wait().await.code(), Some(1));
}
