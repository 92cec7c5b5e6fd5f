//! Calls and tasks of MCP that `kill -9` cuts: a resumed stream has what its client did not see and ends with an error, a
//! task has failed, and the session continues. Not here: a restart that is not in the middle of a call
//! (`tests/behaviour/mcp_restarts.rs`).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::cluster::stream::{self, Answer, request};
use super::support::http::TEST_TIMEOUT;
use super::{restart, start};

const CONFIG: &str = r#"
[agents.demo]
upstream = { protocol = "demo", options = { pace_ms = 1 } }
[[routes]]
protocol = "mcp"
path = "/mcp"
[routes.options]
progress_interval = "5ms"
tasks = "always"
"#;
/// Calls, and tasks.
const CALLS: u64 = 12;
const MODERN: &str = "2026-07-28";
const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");

/// A request of a client with a session.
fn legacy(session: &str, message: &Value) -> Vec<u8> {
    let headers = [ACCEPT, ("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")];
    request("POST", "/mcp", &headers, &message.to_string())
}

/// A request of the newest revision. `name`: the tool or the task.
fn modern(method: &str, name: &str, mut params: Value) -> Vec<u8> {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
    });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let headers = [ACCEPT, ("mcp-protocol-version", MODERN), ("mcp-method", method), ("mcp-name", name)];
    request("POST", "/mcp", &headers, &message.to_string())
}

fn send(address: SocketAddr, request: &[u8]) -> Answer {
    stream::send(address, request).expect("the gateway answers")
}

/// Begins a session. The helper for answers does not keep headers, so the head is read by hand.
fn begin_session(address: SocketAddr) -> String {
    use std::io::{Read as _, Write as _};
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let mut connection = std::net::TcpStream::connect(address).expect("the gateway listens");
    connection.write_all(&request("POST", "/mcp", &[ACCEPT], &message.to_string())).expect("it is sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("an answer");
    let session = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    session.unwrap_or_else(|| panic!("no session: {answer}")).to_owned()
}

fn call(id: u64, message: &str) -> Value {
    let params = json!({ "name": "demo", "arguments": { "message": message }, "_meta": { "progressToken": id } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

/// A part of a stream, up to the last whole event.
struct SeenStream {
    /// The ids of its events.
    ids: Vec<String>,
    messages: Vec<Value>,
}

impl SeenStream {
    fn read(text: &str) -> Self {
        let whole = text.rfind("\n\n").map_or("", |end| &text[..end]);
        let field = |name: &'static str| whole.lines().filter_map(move |line| line.strip_prefix(name));
        let messages = field("data: ").filter(|data| !data.is_empty());
        Self {
            ids: field("id: ").map(str::to_owned).collect(),
            messages: messages.map(|data| serde_json::from_str(data).expect("JSON")).collect(),
        }
    }

    fn deltas(&self) -> String {
        let metas = self.messages.iter().map(|message| &message["params"]["_meta"]["interlingua/delta"]);
        metas.filter_map(Value::as_str).collect()
    }
}

/// Takes up a stream at an event.
fn resume(address: SocketAddr, session: &str, event: &str) -> SeenStream {
    let headers = [("accept", "text/event-stream"), ("mcp-session-id", session), ("last-event-id", event)];
    let answer = send(address, &request("GET", "/mcp", &headers, ""));
    assert_eq!((answer.status, answer.is_complete), (200, true), "{}", answer.text);
    SeenStream::read(&answer.text)
}

fn task(address: SocketAddr, id: &str) -> Value {
    send(address, &modern("tasks/get", id, json!({ "taskId": id }))).json()["result"].take()
}

fn expect_restarted(error: &Value) {
    assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32603), &json!("GATEWAY_RESTARTED")), "{error}");
}

/// Begins a task.
fn begin_task(address: SocketAddr, message: &str) -> String {
    let params = json!({ "name": "demo", "arguments": { "message": message } });
    let created = send(address, &modern("tools/call", "demo", params)).json();
    created["result"]["taskId"].as_str().unwrap_or_else(|| panic!("no task: {created}")).to_owned()
}

#[test]
fn a_call_that_kill_9_cuts_fails_and_its_session_goes_on() {
    let mut gateway = start(CONFIG);
    let address = gateway.address;
    let session = begin_session(address);
    let whole = SeenStream::read(&send(address, &legacy(&session, &call(100, "echo one two three"))).text);
    let result = whole.messages.last().expect("a result");
    assert_eq!(result["result"]["content"][0]["text"], "one two three", "{result}");
    let ended = begin_task(address, "echo done");
    let started = Instant::now();
    while task(address, &ended)["status"] != "completed" {
        assert!(started.elapsed() < TEST_TIMEOUT, "the task does not end");
        thread::sleep(Duration::from_millis(5));
    }
    let ended_task = task(address, &ended);
    let tasks: Vec<String> = (1..=CALLS).map(|pace| begin_task(address, &format!("long 5000 {pace}"))).collect();

    let received = AtomicUsize::new(0);
    let cuts: Vec<(u64, SeenStream)> = thread::scope(|scope| {
        let clients: Vec<_> = (1..=CALLS)
            .map(|id| {
                let request = legacy(&session, &call(id, &format!("long 5000 {id}")));
                let received = &received;
                scope.spawn(move || {
                    let mut is_counted = false;
                    let answer = stream::read_observed(address, &request, TEST_TIMEOUT, |bytes| {
                        if bytes.len() > 2000 && !std::mem::replace(&mut is_counted, true) {
                            received.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                    (id, SeenStream::read(&answer.expect("an answer begins").text))
                })
            })
            .collect();
        let started = Instant::now();
        while received.load(Ordering::Relaxed) < clients.len() && started.elapsed() < TEST_TIMEOUT {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(20));
        gateway.kill();
        clients.into_iter().map(|client| client.join().expect("no client panics")).collect()
    });
    restart(&mut gateway);
    let address = gateway.address;

    for (id, cut) in &cuts {
        let [first, .., last] = cut.ids.as_slice() else { panic!("call {id} has received nothing") };
        let rest = resume(address, &session, last);
        let again = resume(address, &session, first);
        assert_eq!(cut.deltas() + &rest.deltas(), again.deltas(), "call {id}: every word once");
        for resumed in [&rest, &again] {
            let end = resumed.messages.last().expect("an end");
            assert_eq!(end["id"], json!(id), "{end}");
            expect_restarted(&end["error"]);
        }
    }
    for id in &tasks {
        let task = task(address, id);
        assert_eq!(task["status"], "failed", "{task}");
        expect_restarted(&task["error"]);
    }
    assert_eq!(task(address, &ended), ended_task, "a task that had ended");
    let again = resume(address, &session, &whole.ids[0]);
    assert_eq!(again.messages.last(), Some(result), "a call that had ended");
    let next = SeenStream::read(&send(address, &legacy(&session, &call(101, "echo still here"))).text);
    let result = next.messages.last().expect("a result");
    assert_eq!(result["result"]["content"][0]["text"], "still here", "{result}");
}
