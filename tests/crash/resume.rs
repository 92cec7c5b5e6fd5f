//! Clients that resume by sequence number after `kill -9`, at every pace of an agent: they receive each frame exactly
//! once, and an end. Not here: the store alone (`tests/store`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::support::gateway::JSON;
use super::support::http;
use super::support::process::Process;
use super::{frames, start, value};

const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
[store]
kind = "sqlite"
path = "store.db"
[agents.demo]
upstream = { protocol = "demo", options = { pace_ms = 1 } }
[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"
[[routes]]
protocol = "responses"
path = "/v1"
[[routes]]
protocol = "a2a"
path = "/a2a/{agent}"
"#;
const V1: (&str, &str) = ("a2a-version", "1.0");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Native,
    Responses,
    A2a,
}

/// The bytes that a client received before the process died.
struct CutStream {
    protocol: Protocol,
    /// Milliseconds between two words.
    pace: u64,
    frames: Vec<Value>,
}

fn request(protocol: Protocol, pace: u64) -> Vec<u8> {
    let text = format!("long 5000 {pace}");
    let (path, headers, body) = match protocol {
        Protocol::Native => {
            ("/agents/demo/process", JSON.to_vec(), json!({ "input": [{ "role": "user", "content": text }] }))
        }
        Protocol::Responses => {
            ("/v1/responses", JSON.to_vec(), json!({ "model": "demo", "input": text, "stream": true }))
        }
        Protocol::A2a => {
            let message = json!({ "messageId": format!("m{pace}"), "role": "ROLE_USER", "parts": [{ "text": text }] });
            let params = json!({ "message": message });
            let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params });
            ("/a2a/demo", [JSON, &[V1]].concat(), call)
        }
    };
    http::request("POST", path, &headers, body.to_string().as_bytes())
}

/// Reads a stream until its process dies.
async fn read(process: Arc<Process>, protocol: Protocol, pace: u64, received: Arc<AtomicUsize>) -> CutStream {
    let mut bytes = Vec::new();
    let Ok(mut socket) = TcpStream::connect(process.address).await else {
        return CutStream { protocol, pace, frames: Vec::new() };
    };

    // A client that was too late receives nothing.
    let _ = socket.write_all(&request(protocol, pace)).await;
    while socket.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
        if bytes.len() > 2000 {
            received.fetch_add(1, Ordering::Relaxed);
            break;
        }
    }
    while socket.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {}
    CutStream { protocol, pace, frames: frames(&bytes).iter().map(|frame| value(frame)).collect() }
}

async fn all(process: &Process, path: &str) -> Vec<Value> {
    let mut events = process.open("GET", path, &[], b"").await;
    assert_eq!(events.status().await, 200, "{path}");
    let mut frames = Vec::new();
    while let Some(event) = events.event().await {
        // The `[DONE]` marker of a Responses stream is not an event.
        frames.extend(http::data(&event).filter(|data| *data != "[DONE]").map(value));
    }
    frames
}

fn number(frame: &Value) -> u64 {
    frame["sequence_number"].as_u64().unwrap_or_else(|| panic!("no number: {frame}"))
}

/// Resumes a cut stream, reads it again from the start, and compares both.
async fn resume(process: &Process, cut: &CutStream) {
    let Some(last) = cut.frames.last() else { panic!("nothing was received at {} ms", cut.pace) };
    let (full, rest) = match cut.protocol {
        Protocol::Native => {
            let id = cut.frames[0]["id"].as_str().expect("an id");
            let path = format!("/agents/demo/runs/{id}/events");
            (all(process, &path).await, all(process, &format!("{path}?after={}", number(last))).await)
        }
        Protocol::Responses => {
            let id = cut.frames[0]["response"]["id"].as_str().expect("an id");
            let path = format!("/v1/responses/{id}?stream=true");
            (all(process, &path).await, all(process, &format!("{path}&starting_after={}", number(last))).await)
        }
        Protocol::A2a => return check_task(process, cut).await,
    };
    let received: Vec<&Value> = cut.frames.iter().chain(&rest).collect();

    for (index, frame) in received.iter().enumerate() {
        assert_eq!(number(frame), index as u64, "{:?} at {} ms", cut.protocol, cut.pace);
        assert_eq!(*frame, &full[index], "{:?} at {} ms", cut.protocol, cut.pace);
    }

    assert_eq!(received.len(), full.len(), "{:?} at {} ms", cut.protocol, cut.pace);
    let end = full.last().expect("an end");
    let failed = end["type"] == "response.failed" || (end["object"] == "response" && end["status"] == "failed");
    assert!(failed, "it was cut: {end}");
}

/// A2A has no sequence numbers: the task must contain everything that the client had received.
async fn check_task(process: &Process, cut: &CutStream) {
    let id = cut.frames[0]["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("no task: {}", cut.frames[0]));
    let call = |method: &str| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "id": id } }).to_string().into_bytes()
    };
    let headers = [JSON, &[V1]].concat();
    let task = process.open("POST", "/a2a/demo", &headers, &call("GetTask")).await.response().await.json();
    let task = &task["result"];
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{task}");

    let text = |parts: &Value| {
        let parts = parts.as_array().into_iter().flatten();
        parts.filter_map(|part| part["text"].as_str()).collect::<String>()
    };
    let received = cut.frames.iter().map(|frame| text(&frame["result"]["artifactUpdate"]["artifact"]["parts"]));
    let (received, stored) = (received.collect::<String>(), text(&task["artifacts"][0]["parts"]));
    assert!(stored.starts_with(&received), "at {} ms: {received:?} and {stored:?}", cut.pace);

    // Subscribing to the ended task fails at once.
    let subscribed = process.open("POST", "/a2a/demo", &headers, &call("SubscribeToTask")).await.response().await;
    assert!(subscribed.text().contains("error") || subscribed.text().contains("FAILED"), "{}", subscribed.text());
}

#[tokio::test]
async fn a_client_that_resumes_by_number_receives_each_frame_once_and_an_end() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), CONFIG).expect("a file");
    for after in [20, 300] {
        let received = Arc::new(AtomicUsize::new(0));
        let process = Arc::new(start(folder.path()));
        let mut clients = tokio::task::JoinSet::new();
        for pace in 1..=50 {
            for protocol in [Protocol::Native, Protocol::Responses, Protocol::A2a] {
                clients.spawn(read(Arc::clone(&process), protocol, pace, Arc::clone(&received)));
            }
        }
        http::with_timeout("most clients to receive something", async {
            while received.load(Ordering::Relaxed) < 120 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        process.kill_now();
        let cuts = http::with_timeout("all clients to notice", clients.join_all()).await;
        drop(process);
        let process = start(folder.path());
        let mut checked = 0;
        for cut in cuts.iter().filter(|cut| !cut.frames.is_empty()) {
            resume(&process, cut).await;
            checked += 1;
        }
        assert!(checked > 100, "most clients received something: {checked} of {}", cuts.len());
        process.kill();
    }
}
