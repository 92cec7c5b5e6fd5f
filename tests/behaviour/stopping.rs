//! Stopping the process: what runs may finish, what comes is turned away, and what does not finish is ended in order.

use std::time::Duration;

use crate::support::agent::{beginning, saying_and_hanging, saying_until, word};
use crate::support::gateway::{JSON, ROUTE, agent, says};
use crate::support::http::{Exchange, request};
use crate::support::process::Process;
use crate::support::story::Story;
use crate::support::until;
use crate::support::upstream::{Answer, Upstream};

const ROUTES: &str = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n\
    [[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";

/// A process in front of this agent, its runs in a file.
fn process(upstream: &Upstream, drain: &str) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"{drain}\"\n[store]\nkind = \"sqlite\"\npath = \"store.db\"\n{}{ROUTE}{ROUTES}",
        agent("friday", &upstream.url("/process"), "", "")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start(folder.path());
    (folder, process)
}

async fn ask(process: &Process) -> Exchange {
    process.open("POST", "/agents/friday/process", JSON, says("hi").to_string().as_bytes()).await
}

/// Waits until it takes no new runs.
async fn draining(process: &Process) {
    until("the gateway to say that it stops", async || {
        let ready = process.open("GET", "/readyz", &[], b"").await.answer().await;
        (ready.status == 503).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_process_that_is_told_to_stop_lets_streams_finish_and_takes_no_new_ones() {
    let upstream = Upstream::always(saying_until(&["so far"], "on"));
    let (_folder, process) = process(&upstream, "30s");
    let mut stream = ask(&process).await;
    let mut seen = stream.until("so far").await;
    process.terminate();
    draining(&process).await;
    let late = ask(&process).await.answer().await;
    assert_eq!((late.status, late.json()["code"].as_str()), (503, Some("GATEWAY_SHUTTING_DOWN")));
    assert_eq!(process.open("GET", "/healthz", &[], b"").await.answer().await.status, 200, "it lives while it stops");
    upstream.open("on");
    seen.extend(stream.frames().await);
    assert_eq!(Story::read(&seen).completed().text(), "so far");
    drop(stream);
    assert_eq!(process.ended().await.code(), Some(0));
}

#[tokio::test]
async fn clients_that_wait_for_nothing_do_not_hold_up_the_end() {
    let upstream = Upstream::always(saying_and_hanging(&[]));
    let (_folder, process) = process(&upstream, "30s");
    let mut idle = Vec::new();
    for _ in 0..5 {
        let mut connection = process.open("GET", "/healthz", &[], b"").await;
        assert_eq!(connection.answer_here().await.status, 200);
        idle.push(connection);
    }
    process.terminate();
    let began = std::time::Instant::now();
    assert_eq!(process.ended().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_process_that_stops_makes_nothing_new_and_shows_what_is_there() {
    let upstream = Upstream::always(saying_until(&["so far"], "on"));
    let (_folder, process) = process(&upstream, "30s");
    let post = async |path: &str, body: &serde_json::Value| {
        let headers = [JSON, &[("a2a-version", "1.0")]].concat();
        process.open("POST", path, &headers, body.to_string().as_bytes()).await.answer().await
    };
    let conversation = post("/v1/conversations", &serde_json::json!({})).await;
    assert_eq!(conversation.status, 200, "{}", conversation.text());
    let conversation = format!("/v1/conversations/{}", conversation.json()["id"].as_str().expect("an id"));
    let mut stream = ask(&process).await;
    let seen = stream.until("so far").await;
    let run = format!("/agents/friday/runs/{}", seen[0]["id"].as_str().expect("an id"));
    process.terminate();
    draining(&process).await;
    let item = serde_json::json!({ "items": [{ "type": "message", "role": "user", "content": "hi" }] });
    let task = says("hi");
    let response = serde_json::json!({ "model": "friday", "input": "hi" });
    let message = serde_json::json!({ "message": {
        "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } });
    for (path, body) in [
        ("/v1/conversations", &serde_json::json!({})),
        (&format!("{conversation}/items"), &item),
        ("/v1/responses", &response),
        ("/agents/friday/process/task", &task),
        ("/a2a/friday/message:send", &message),
    ] {
        let refused = post(path, body).await;
        assert_eq!(refused.status, 503, "{path}: {}", refused.text());
        assert!(refused.header("retry-after").is_some(), "{path}: it says when to come back");
    }
    for path in [conversation.as_str(), run.as_str()] {
        let found = process.open("GET", path, &[], b"").await.answer().await;
        assert_eq!(found.status, 200, "{path}: {}", found.text());
    }
    upstream.open("on");
    stream.frames().await;
    drop(stream);
    assert_eq!(process.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_stream_that_does_not_finish_in_time_is_ended_in_order() {
    let upstream = Upstream::always(saying_and_hanging(&["so far"]));
    let (folder, process) = process(&upstream, "100ms");
    let mut stream = ask(&process).await;
    let mut seen = stream.until("so far").await;
    process.terminate();
    seen.extend(stream.frames().await);
    let story = Story::read(&seen).failed("GATEWAY_SHUTTING_DOWN");
    assert_eq!(story.text(), "so far");
    upstream.wait_left(1).await;
    drop(stream);
    assert_eq!(process.ended().await.code(), Some(0));
    // It is kept as it was told.
    let again = Process::start(folder.path());
    let kept = again.open("GET", &format!("/agents/friday/runs/{}", story.id), &[], b"").await.answer().await;
    assert_eq!(kept.json(), story.last);
}

#[tokio::test]
async fn a_process_without_work_stops_at_once() {
    let upstream = Upstream::always(saying_and_hanging(&[]));
    let (_folder, process) = process(&upstream, "30s");
    process.terminate();
    let began = std::time::Instant::now();
    assert_eq!(process.ended().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_reader_that_reads_nothing_does_not_hold_up_the_end() {
    let begun = beginning().iter().fold(Answer::events(), |answer, frame| answer.frame(frame));
    let frame = format!("data: {}\n\n", word(&"x".repeat(1000)));
    let upstream = Upstream::always(begun.flood(format!("{:x}\r\n{frame}\r\n", frame.len())));
    let (_folder, process) = process(&upstream, "100ms");
    let asked = request("POST", "/agents/friday/process", JSON, says("hi").to_string().as_bytes());
    let mut slow = Exchange::send_and_read_slowly(process.address, &asked).await;
    assert_eq!(slow.status().await, 200);
    upstream.wait_written(1 << 20).await;
    let began = std::time::Instant::now();
    process.terminate();
    assert_eq!(process.ended().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_millis(5100), "{:?}", began.elapsed());
}

#[tokio::test]
async fn told_twice_it_ends_at_once() {
    let upstream = Upstream::always(saying_and_hanging(&["so far"]));
    let (_folder, process) = process(&upstream, "30s");
    let mut stream = ask(&process).await;
    stream.until("so far").await;
    process.terminate();
    draining(&process).await;
    process.terminate();
    assert_eq!(process.ended().await.code(), Some(1));
}
