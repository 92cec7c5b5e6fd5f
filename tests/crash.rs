//! `kill -9` under load: the real process with a SQLite store and dozens of active streams and tasks is killed several
//! times at different moments. After each restart it is checked against everything that clients had received.
//!
//! Guarantees: a run whose end a client saw is stored byte for byte; an accepted background run is never lost; a run
//! cut by the crash is closed as failed with its own code, after all events that were sent; sessions continue; pending
//! items stay pending. Not here: the store alone (`tests/store`).

#[path = "crash/resend.rs"]
mod resend;
#[path = "crash/resume.rs"]
mod resume;
use interlingua_testing_support as support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use support::agent::{closing_frames, opening_frames, text_delta};
use support::gateway::{JSON, ROUTE, agent, last_input_text, user_turn, user_turn_in};
use support::http::{self, data};
use support::process::Process;
use support::transcript::Transcript;
use support::upstream::{Reply, Upstream};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// Makes the response end with its connection.
const CLOSE: &[(&str, &str)] = &[("connection", "close")];
/// Concurrent streams, in addition to tasks and sessions.
const STREAMS: usize = 24;
/// Milliseconds from the first finished stream of each process to its kill.
const KILLED_AFTER: [u64; 4] = [40, 150, 350, 90];

/// Everything that the clients of all processes received.
#[derive(Default)]
struct ClientRecords {
    /// Runs whose end a client saw: agent and frames.
    ended: BTreeMap<String, (String, Vec<String>)>,
    /// Runs that were cut off: agent and the frames until then.
    cut: BTreeMap<String, (String, Vec<String>)>,
    /// Runs whose complete response a client received without streaming.
    collected: BTreeMap<String, String>,
    /// Accepted tasks.
    tasks: Vec<String>,
    /// Tasks that a client saw finished, with their status.
    finished: BTreeMap<String, String>,
    /// Completed turns of the one long conversation, in order.
    completed_turns: Vec<String>,
}

/// Runs a turn and records its frames until the response or the process ends. True if the response ended.
async fn stream(process: &Process, received: &Mutex<ClientRecords>, agent: &str, body: &Value) -> bool {
    let request = http::request("POST", &format!("/agents/{agent}/process"), JSON, body.to_string().as_bytes());
    let Ok(mut socket) = TcpStream::connect(process.address).await else { return false };
    if tokio::io::AsyncWriteExt::write_all(&mut socket, &request).await.is_err() {
        return false;
    }
    let mut bytes = Vec::new();

    // The connection stays open; the last chunk marks the end of the response.
    let over = loop {
        match socket.read_buf(&mut bytes).await {
            Ok(count) if count > 0 => {
                if bytes.ends_with(b"\r\n0\r\n\r\n") {
                    break true;
                }
            }
            _ => break false,
        }
    };
    let frames = frames(&bytes);
    let Some(id) = frames.first().map(|frame| value(frame)["id"].as_str().expect("an id").to_owned()) else {
        return false;
    };

    // A terminal frame ends the run, whether or not the chunk after it arrived.
    let last = value(frames.last().expect("it has a first one"));
    let ended =
        last["object"] == "response" && !["created", "in_progress"].contains(&last["status"].as_str().unwrap_or(""));
    let mut received = received.lock().expect("no client panics");
    if ended {
        received.ended.insert(id, (agent.to_owned(), frames));
    } else {
        assert!(!over, "the response ended without a terminal frame");
        received.cut.insert(id, (agent.to_owned(), frames));
    }
    ended
}

/// The complete frames in a chunked response that may be truncated anywhere.
fn frames(bytes: &[u8]) -> Vec<String> {
    let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Vec::new() };
    assert!(bytes.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(bytes));
    let (mut rest, mut body) = (&bytes[head + 4..], Vec::new());
    while let Some(line) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&rest[..line]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let size = size.expect("the size of a chunk");
        let chunk = &rest[line + 2..];
        body.extend_from_slice(&chunk[..chunk.len().min(size)]);
        match chunk.get(size + 2..) {
            Some(next) => rest = next,
            None => break,
        }
    }

    let full = body.windows(2).rposition(|window| window == b"\n\n").map_or(0, |end| end + 2);
    let text = std::str::from_utf8(&body[..full]).expect("the gateway writes UTF-8");
    text.split("\n\n").filter_map(data).map(str::to_owned).collect()
}

fn value(frame: &str) -> Value {
    serde_json::from_str(frame).expect("a frame is JSON")
}

/// Runs a turn without streaming and records the response. True if it arrived.
async fn collect_response(process: &Process, received: &Mutex<ClientRecords>, body: &Value) -> bool {
    let Some(answer) = answer(process, "/agents/friday/process", body).await else { return false };
    let id = value(&answer)["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    received.lock().expect("no client panics").collected.insert(id, answer);
    true
}

/// Posts and reads the response body. `None` if the process died.
async fn answer(process: &Process, path: &str, body: &Value) -> Option<String> {
    send_and_read_body(process, &http::request("POST", path, &[JSON, CLOSE].concat(), body.to_string().as_bytes()))
        .await
}

/// Sends a request and reads the response body. `None` if the process died.
async fn send_and_read_body(process: &Process, request: &[u8]) -> Option<String> {
    let mut socket = TcpStream::connect(process.address).await.ok()?;
    tokio::io::AsyncWriteExt::write_all(&mut socket, request).await.ok()?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.ok()?;
    let text = String::from_utf8(answer).expect("the gateway writes UTF-8");
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length: usize = head.to_ascii_lowercase().split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
    (body.len() == length).then(|| body.to_owned())
}

async fn get(process: &Process, path: &str) -> http::Response {
    process.open("GET", path, &[], b"").await.response().await
}

async fn post(process: &Process, path: &str, body: &Value) -> http::Response {
    process.open("POST", path, JSON, body.to_string().as_bytes()).await.response().await
}

/// The replayed frames of a run.
async fn replay(process: &Process, agent: &str, id: &str) -> Vec<String> {
    let mut events = process.open("GET", &format!("/agents/{agent}/runs/{id}/events"), &[], b"").await;
    assert_eq!(events.status().await, 200, "run {id}");
    let mut frames = Vec::new();
    while let Some(event) = events.event().await {
        frames.extend(data(&event).map(str::to_owned));
    }
    frames
}

/// Checks that everything that clients received is still true.
async fn check_observed(process: &Process, received: &mut ClientRecords) {
    for (id, (agent, frames)) in &received.ended {
        assert_eq!(&replay(process, agent, id).await, frames, "run {id} differs from its stream");
        let run = get(process, &format!("/agents/{agent}/runs/{id}")).await;
        assert_eq!(run.text(), frames.last().expect("it has an end"), "run {id}");
    }

    for (id, answer) in &received.collected {
        let run = get(process, &format!("/agents/friday/runs/{id}")).await;
        assert_eq!(run.text(), answer, "run {id}");
    }

    for (id, (agent, seen)) in std::mem::take(&mut received.cut) {
        let run = get(process, &format!("/agents/{agent}/runs/{id}")).await;
        assert_eq!(run.status, 200, "run {id} is lost although a client saw it");
        let replayed = replay(process, &agent, &id).await;
        let values: Vec<Value> = replayed.iter().map(|frame| value(frame)).collect();
        let transcript = Transcript::parse(&values);
        assert_eq!(run.json(), transcript.last, "run {id}");
        assert_eq!(replayed[..seen.len()], seen, "run {id} differs from its stream");
        if transcript.status != "completed" {
            assert_eq!(
                (transcript.status.as_str(), transcript.code()),
                ("failed", "GATEWAY_RESTARTED"),
                "{}",
                transcript.last
            );
        }

        // From now on it must not change.
        received.ended.insert(id, (agent, replayed));
    }
    for task in &received.tasks {
        let status = get(process, &format!("/agents/demo/process/task/{task}")).await.json();
        assert_eq!(status["status"], "finished", "task {task}: {status}");
        let result = &status["result"];
        let restarted = result["status"] == "failed" && result["error"]["code"] == "GATEWAY_RESTARTED";
        assert!(result["status"] == "completed" || restarted, "{status}");
    }
    for (task, status) in &received.finished {
        assert_eq!(get(process, &format!("/agents/demo/process/task/{task}")).await.text(), status, "task {task}");
    }

    for agent in ["demo", "friday"] {
        let mut next = String::new();
        loop {
            let page = get(process, &format!("/agents/{agent}/runs?limit=100{next}")).await.json();
            for run in page["data"].as_array().expect("a list") {
                assert!(
                    ["completed", "failed"].contains(&run["status"].as_str().expect("a status")),
                    "left open: {run}"
                );
            }
            let Some(cursor) = page["next"].as_str() else { break };
            next = format!("&cursor={cursor}");
        }
    }
}

/// The user messages in the last request of the long conversation.
fn history(upstream: &Upstream) -> Vec<String> {
    let requests = upstream.requests();
    let last =
        requests.iter().rev().map(support::upstream::ReceivedRequest::json).find(|body| body["session_id"] == "long");
    let input = last.expect("the conversation went on")["input"].as_array().cloned().expect("an input");
    let users = input.iter().filter(|message| message["role"] == "user");
    users.map(|message| message["content"][0]["text"].as_str().expect("a text").to_owned()).collect()
}

fn folder(upstream: &Upstream) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nkind = \"sqlite\"\npath = \"store.db\"\n\
         [agents.demo]\nupstream = {{ protocol = \"demo\", options = {{ pace_ms = 1 }} }}\n{}{ROUTE}",
        agent("friday", &upstream.url("/process"), "history = \"gateway\"", "")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    folder
}

fn start(folder: &Path) -> Process {
    let process = Process::start(folder);
    assert!(process.took < Duration::from_secs(3), "the start took {:?}", process.took);
    process
}

/// Runs all clients until the process is gone.
async fn load(
    process: Arc<Process>,
    received: Arc<Mutex<ClientRecords>>,
    round: usize,
    finished: Arc<tokio::sync::Notify>,
) {
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..STREAMS {
        let (process, received, finished) = (Arc::clone(&process), Arc::clone(&received), Arc::clone(&finished));
        clients.spawn(async move {
            for turn in 0.. {
                let (agent, words) = if client % 2 == 0 { ("demo", "long 30 2") } else { ("friday", "slowly") };
                let mut body = user_turn_in(&format!("{round}-{client}"), &format!("{words} {turn}"));
                let alive = if client % 4 == 1 {
                    body["stream"] = json!(false);
                    collect_response(&process, &received, &body).await
                } else {
                    let alive = stream(&process, &received, agent, &body).await;
                    finished.notify_one();
                    alive
                };
                if !alive {
                    return;
                }
            }
        });
    }

    // One conversation of many turns.
    let (conversation, completed) = (Arc::clone(&process), Arc::clone(&received));
    clients.spawn(async move {
        for turn in 0.. {
            let text = format!("turn {round}.{turn}");
            if !stream(&conversation, &completed, "friday", &user_turn_in("long", &text)).await {
                return;
            }
            completed.lock().expect("no client panics").completed_turns.push(text);
        }
    });

    // Tasks that are not polled, and tasks that are polled until they finish.
    for watched in [false, true, true, true] {
        let (process, received) = (Arc::clone(&process), Arc::clone(&received));
        clients.spawn(async move {
            while received.lock().expect("no client panics").tasks.len() < 16 * (round + 1) {
                let words = if watched { "long 5 1" } else { "long 40 4" };
                let Some(accepted) = answer(&process, "/agents/demo/process/task", &user_turn(words)).await else {
                    return;
                };
                let id = value(&accepted)["task_id"].as_str().unwrap_or_else(|| panic!("{accepted}")).to_owned();
                received.lock().expect("no client panics").tasks.push(id.clone());
                if !watched {
                    continue;
                }
                loop {
                    let path = format!("/agents/demo/process/task/{id}");
                    let Some(status) = send_and_read_body(&process, &http::request("GET", &path, CLOSE, b"")).await
                    else {
                        return;
                    };
                    if value(&status)["status"] == "finished" {
                        received.lock().expect("no client panics").finished.insert(id, status);
                        break;
                    }
                }
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("no client panics");
    }
}

#[tokio::test]
async fn everything_that_clients_received_survives_kill_9() {
    let upstream = Upstream::with_handler(|exchange| {
        let input = last_input_text(&exchange.json());
        let words: Vec<String> = (0..20).map(|number| format!("{input}:{number} ")).collect();
        let started = opening_frames().iter().fold(Reply::events(), |reply, frame| reply.frame(frame));
        let slowly = |answer: Reply, text: &String| answer.frame(&text_delta(text)).pause(Duration::from_millis(2));
        let received = words.iter().fold(started, slowly);
        closing_frames(&words.concat()).iter().fold(received, |reply, frame| reply.frame(frame)).done()
    });
    let folder = folder(&upstream);
    let received = Arc::new(Mutex::new(ClientRecords::default()));
    let mut pending: Option<(String, String)> = None;

    for (round, after) in KILLED_AFTER.into_iter().enumerate() {
        let process = Arc::new(start(folder.path()));
        let waiting_session = format!("waits {round}");
        let body = user_turn_in(&waiting_session, "approval").to_string();
        let mut exchange = process.open("POST", "/agents/demo/process", JSON, body.as_bytes()).await;
        let transcript = Transcript::parse(&exchange.frames().await).expect_completed();
        let finished = Arc::new(tokio::sync::Notify::new());
        let loading = tokio::spawn(load(Arc::clone(&process), Arc::clone(&received), round, Arc::clone(&finished)));
        http::with_timeout("the first stream to finish", finished.notified()).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        process.kill_now();
        http::with_timeout("all clients to notice", loading).await.expect("no client panics");
        drop(process);

        let process = start(folder.path());
        assert_eq!(get(&process, "/readyz").await.status, 200);
        let mut records = std::mem::take(&mut *received.lock().expect("all clients have ended"));
        assert!(!records.ended.is_empty() && !records.cut.is_empty(), "the process was killed while it worked");
        check_observed(&process, &mut records).await;

        // The conversation continues: the agent receives all completed turns as history.
        let text = format!("after {round}");
        let answer = post(&process, "/agents/friday/process", &user_turn_in("long", &text)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let history = history(&upstream);
        let mut seen = history.iter();
        let window = records.completed_turns.len().saturating_sub(40);
        for input in records.completed_turns[window..].iter().chain([&text]) {
            assert!(seen.any(|one| one == input), "{input} is missing, or out of order: {history:?}");
        }
        records.completed_turns.push(text);

        // Pending items are still pending and can be answered once.
        for (session, run) in
            [Some((waiting_session.clone(), transcript.id.clone())), pending.take()].into_iter().flatten()
        {
            let held = post(&process, "/agents/demo/process", &user_turn_in(&session, "well?")).await;
            assert_eq!((held.status, &held.json()["response_id"]), (409, &json!(run)), "{}", held.text());
            if session != waiting_session {
                let id = held.json()["pending"][0]["id"].clone();
                let data = json!({ "approval_request_id": id, "approve": true });
                let decided = json!({ "session_id": session, "input": [
                    { "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] },
                ] });
                let done = post(&process, "/agents/demo/process", &decided).await;
                assert!(done.text().contains("The mail was sent"), "{}", done.text());
                assert_eq!(post(&process, "/agents/demo/process", &decided).await.status, 409);
            }
        }
        pending = Some((waiting_session, transcript.id));
        process.kill();
        *received.lock().expect("all clients have ended") = records;
    }
}
