//! Clients that resume by sequence number after `kill -9`, at every pace of an agent: they receive each frame exactly
//! once, and an end. Not here: the store alone (`tests/store`).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::cluster::stream::{self, Answer, request};
use super::support::cluster::{GatewayProcess, Oracle, Protocol, RunView, Task};
use super::support::http::TEST_TIMEOUT;
use super::{restart, start};

const CONFIG: &str = r#"
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

/// The part of a stream that a client received before the process died.
enum CutStream {
    Numbered(RunView),
    A2a(Vec<Value>),
}

/// Reads a stream until its process dies. `None`: the client was too late and received nothing. `protocol`: `None` for
/// A2A. `pace`: milliseconds between two words.
fn read(address: SocketAddr, protocol: Option<Protocol>, pace: u64, received: &AtomicUsize) -> Option<CutStream> {
    let mut is_counted = false;
    let count = |bytes: &[u8]| {
        if bytes.len() > 2000 && !std::mem::replace(&mut is_counted, true) {
            received.fetch_add(1, Ordering::Relaxed);
        }
    };
    let text = format!("long 5000 {pace}");
    let Some(protocol) = protocol else {
        let message = json!({ "messageId": format!("m{pace}"), "role": "ROLE_USER", "parts": [{ "text": text }] });
        let request = rpc("SendStreamingMessage", &json!({ "message": message }));
        let answer = stream::read_observed(address, &request, TEST_TIMEOUT, count).ok()?;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let frames: Vec<Value> = answer.data().map(|data| serde_json::from_str(data).expect("JSON")).collect();
        return (!frames.is_empty()).then_some(CutStream::A2a(frames));
    };
    let mut seen = RunView::new(protocol, Task::new("demo", text));
    let answer = stream::read_observed(address, &seen.start(), TEST_TIMEOUT, count).ok()?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    seen.take(answer.frames());
    seen.id.is_some().then_some(CutStream::Numbered(seen))
}

fn rpc(method: &str, params: &Value) -> Vec<u8> {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    request("POST", "/a2a/demo", &[("a2a-version", "1.0")], &call.to_string())
}

/// Resumes a cut stream, reads it again from the start, and compares both.
fn resume(gateway: &GatewayProcess, seen: &mut RunView, oracle: &Oracle) {
    seen.resume(gateway.address, TEST_TIMEOUT, |_| false);
    assert_eq!(seen.frames[0].number, 0, "{seen:?}");
    oracle.check_view(seen);
    oracle.compare(seen, gateway.address).expect("the gateway answers");
    let end = seen.frames.last().expect("an end").value();
    let failed = end["type"] == "response.failed" || (end["object"] == "response" && end["status"] == "failed");
    assert!(failed, "it was cut: {end}");
}

/// A2A has no sequence numbers: the task must contain everything that the client had received.
fn check_task(gateway: &GatewayProcess, frames: &[Value]) {
    let id = frames[0]["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("no task: {}", frames[0]));
    let call = |method: &str| -> Answer {
        stream::send(gateway.address, &rpc(method, &json!({ "id": id }))).expect("the gateway answers")
    };
    let task = call("GetTask").json();
    let task = &task["result"];
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{task}");

    let text = |parts: &Value| {
        let parts = parts.as_array().into_iter().flatten();
        parts.filter_map(|part| part["text"].as_str()).collect::<String>()
    };
    let received = frames.iter().map(|frame| text(&frame["result"]["artifactUpdate"]["artifact"]["parts"]));
    let (received, stored) = (received.collect::<String>(), text(&task["artifacts"][0]["parts"]));
    assert!(stored.starts_with(&received), "{received:?} and {stored:?}");

    // Subscribing to the ended task fails at once.
    let subscribed = call("SubscribeToTask").text;
    assert!(subscribed.contains("error") || subscribed.contains("FAILED"), "{subscribed}");
}

#[test]
fn a_client_that_resumes_by_number_receives_each_frame_once_and_an_end() {
    let mut gateway = start(CONFIG);
    for after in [20, 300] {
        let (address, received) = (gateway.address, AtomicUsize::new(0));
        let protocols = [Some(Protocol::AgentApi), Some(Protocol::Responses), None];
        let cuts: Vec<CutStream> = thread::scope(|scope| {
            let clients: Vec<_> = (1..=50)
                .flat_map(|pace| protocols.map(|protocol| (pace, protocol)))
                .map(|(pace, protocol)| {
                    let received = &received;
                    scope.spawn(move || read(address, protocol, pace, received))
                })
                .collect();
            let started = Instant::now();
            while received.load(Ordering::Relaxed) < 120 && started.elapsed() < TEST_TIMEOUT {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(after));
            gateway.kill();
            clients.into_iter().filter_map(|client| client.join().expect("no client panics")).collect()
        });
        restart(&mut gateway);

        let oracle = Oracle::default();
        assert!(received.into_inner() >= 120 && cuts.len() > 100, "most clients received something: {}", cuts.len());
        for cut in cuts {
            match cut {
                CutStream::Numbered(mut seen) => resume(&gateway, &mut seen, &oracle),
                CutStream::A2a(frames) => check_task(&gateway, &frames),
            }
        }
        oracle.expect_none("clients that resumed");
    }
}
