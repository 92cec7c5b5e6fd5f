//! `kill -9` under load: the real process on a SQLite file, dozens of streams and tasks in flight, killed at any
//! moment, several times over, and asked afterwards about everything it had ever told anybody.
//!
//! What holds: a run whose end a client saw is there, byte for byte; one that was accepted in the background is never
//! lost; what the crash cut is closed as failed with a code of its own, behind all that was told of it; sessions go on
//! where they were; what was waited for is still waited for. Not here: what the store promises by itself (`tests/store`).

#[path = "crash/resume.rs"]
mod resume;
#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use support::agent::{beginning, ending, word};
use support::gateway::{JSON, ROUTE, agent, last_said, says, says_in};
use support::http::{self, data};
use support::process::Process;
use support::story::Story;
use support::upstream::{Answer, Upstream};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// For answers that end with their connection.
const CLOSE: &[(&str, &str)] = &[("connection", "close")];
/// Streams in flight at once; beside them run the tasks and the sessions.
const STREAMS: usize = 24;
/// When each process is killed, counted from its first finished stream.
const KILLED_AFTER: [u64; 4] = [40, 150, 350, 90];

/// What the clients of all processes were told.
#[derive(Default)]
struct Told {
    /// Runs whose end a client saw: its frames.
    ended: BTreeMap<String, (String, Vec<String>)>,
    /// Runs that were cut off: the frames until then.
    cut: BTreeMap<String, (String, Vec<String>)>,
    /// Runs whose answer a client had whole.
    whole: BTreeMap<String, String>,
    /// Tasks that were accepted.
    tasks: Vec<String>,
    /// Tasks that were seen to be finished.
    finished: BTreeMap<String, String>,
    /// Turns of the one long conversation that were seen to complete, in order.
    said: Vec<String>,
}

/// Asks, and notes what is told until the answer or the process ends. True if it was the answer.
async fn stream(process: &Process, told: &Mutex<Told>, agent: &str, body: &Value) -> bool {
    let request = http::request("POST", &format!("/agents/{agent}/process"), JSON, body.to_string().as_bytes());
    let Ok(mut socket) = TcpStream::connect(process.address).await else { return false };
    if tokio::io::AsyncWriteExt::write_all(&mut socket, &request).await.is_err() {
        return false;
    }
    let mut bytes = Vec::new();
    // The connection stays when the answer is over: its last chunk says so.
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
    // What ends with a terminal response is told to its end, whether or not the chunk behind it arrived.
    let last = value(frames.last().expect("it has a first one"));
    let ended =
        last["object"] == "response" && !["created", "in_progress"].contains(&last["status"].as_str().unwrap_or(""));
    let mut told = told.lock().expect("no client panics");
    if ended {
        told.ended.insert(id, (agent.to_owned(), frames));
    } else {
        assert!(!over, "an answer is over without its end");
        told.cut.insert(id, (agent.to_owned(), frames));
    }
    ended
}

/// The whole frames in the bytes of a chunked answer, broken off wherever it may be.
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
    let whole = body.windows(2).rposition(|window| window == b"\n\n").map_or(0, |end| end + 2);
    let text = std::str::from_utf8(&body[..whole]).expect("the gateway writes UTF-8");
    text.split("\n\n").filter_map(data).map(str::to_owned).collect()
}

fn value(frame: &str) -> Value {
    serde_json::from_str(frame).expect("a frame is JSON")
}

/// Asks for the whole answer, and notes it. True if it came.
async fn whole(process: &Process, told: &Mutex<Told>, body: &Value) -> bool {
    let Some(answer) = answer(process, "/agents/friday/process", body).await else { return false };
    let id = value(&answer)["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    told.lock().expect("no client panics").whole.insert(id, answer);
    true
}

/// Posts, and reads the answer, if the process lives so long.
async fn answer(process: &Process, path: &str, body: &Value) -> Option<String> {
    asked(process, &http::request("POST", path, &[JSON, CLOSE].concat(), body.to_string().as_bytes())).await
}

/// Sends a request, and reads the body of its answer, if the process lives so long.
async fn asked(process: &Process, request: &[u8]) -> Option<String> {
    let mut socket = TcpStream::connect(process.address).await.ok()?;
    tokio::io::AsyncWriteExt::write_all(&mut socket, request).await.ok()?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.ok()?;
    let text = String::from_utf8(answer).expect("the gateway writes UTF-8");
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length: usize = head.to_ascii_lowercase().split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
    (body.len() == length).then(|| body.to_owned())
}

async fn get(process: &Process, path: &str) -> http::Answer {
    process.open("GET", path, &[], b"").await.answer().await
}

async fn post(process: &Process, path: &str, body: &Value) -> http::Answer {
    process.open("POST", path, JSON, body.to_string().as_bytes()).await.answer().await
}

/// The frames of a run, told again.
async fn replay(process: &Process, agent: &str, id: &str) -> Vec<String> {
    let mut events = process.open("GET", &format!("/agents/{agent}/runs/{id}/events"), &[], b"").await;
    assert_eq!(events.status().await, 200, "run {id}");
    let mut frames = Vec::new();
    while let Some(event) = events.event().await {
        frames.extend(data(&event).map(str::to_owned));
    }
    frames
}

/// Everything that was told is still so.
async fn check(process: &Process, told: &mut Told) {
    for (id, (agent, frames)) in &told.ended {
        assert_eq!(&replay(process, agent, id).await, frames, "run {id} was told otherwise");
        let run = get(process, &format!("/agents/{agent}/runs/{id}")).await;
        assert_eq!(run.text(), frames.last().expect("it has an end"), "run {id}");
    }
    for (id, answer) in &told.whole {
        let run = get(process, &format!("/agents/friday/runs/{id}")).await;
        assert_eq!(run.text(), answer, "run {id}");
    }
    for (id, (agent, seen)) in std::mem::take(&mut told.cut) {
        let run = get(process, &format!("/agents/{agent}/runs/{id}")).await;
        assert_eq!(run.status, 200, "run {id} is lost, of which something was told");
        let replayed = replay(process, &agent, &id).await;
        let values: Vec<Value> = replayed.iter().map(|frame| value(frame)).collect();
        let story = Story::read(&values);
        assert_eq!(run.json(), story.last, "run {id}");
        assert_eq!(replayed[..seen.len()], seen, "run {id} was told otherwise");
        if story.status != "completed" {
            assert_eq!((story.status.as_str(), story.code()), ("failed", "GATEWAY_RESTARTED"), "{}", story.last);
        }
        // From now on it is what it is.
        told.ended.insert(id, (agent, replayed));
    }
    for task in &told.tasks {
        let status = get(process, &format!("/agents/demo/process/task/{task}")).await.json();
        assert_eq!(status["status"], "finished", "task {task}: {status}");
        let result = &status["result"];
        let restarted = result["status"] == "failed" && result["error"]["code"] == "GATEWAY_RESTARTED";
        assert!(result["status"] == "completed" || restarted, "{status}");
    }
    for (task, status) in &told.finished {
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

/// What the agent that remembers nothing was told before the last message.
fn history(upstream: &Upstream) -> Vec<String> {
    let asked = upstream.asked();
    let last = asked.iter().rev().map(support::upstream::Asked::json).find(|body| body["session_id"] == "long");
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
    assert!(process.took < Duration::from_secs(3), "it took {:?} to start", process.took);
    process
}

/// Everything that clients may be doing, until the process is gone.
async fn load(process: Arc<Process>, told: Arc<Mutex<Told>>, round: usize, finished: Arc<tokio::sync::Notify>) {
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..STREAMS {
        let (process, told, finished) = (Arc::clone(&process), Arc::clone(&told), Arc::clone(&finished));
        clients.spawn(async move {
            for turn in 0.. {
                let (agent, words) = if client % 2 == 0 { ("demo", "long 30 2") } else { ("friday", "slowly") };
                let mut body = says_in(&format!("{round}-{client}"), &format!("{words} {turn}"));
                let lived = if client % 4 == 1 {
                    body["stream"] = json!(false);
                    whole(&process, &told, &body).await
                } else {
                    let lived = stream(&process, &told, agent, &body).await;
                    finished.notify_one();
                    lived
                };
                if !lived {
                    return;
                }
            }
        });
    }
    // One conversation whose turns build on one another.
    let (one, said) = (Arc::clone(&process), Arc::clone(&told));
    clients.spawn(async move {
        for turn in 0.. {
            let text = format!("turn {round}.{turn}");
            if !stream(&one, &said, "friday", &says_in("long", &text)).await {
                return;
            }
            said.lock().expect("no client panics").said.push(text);
        }
    });
    // Tasks nobody waits for, and tasks somebody asks after until they are done.
    for watched in [false, true, true, true] {
        let (process, told) = (Arc::clone(&process), Arc::clone(&told));
        clients.spawn(async move {
            while told.lock().expect("no client panics").tasks.len() < 16 * (round + 1) {
                let words = if watched { "long 5 1" } else { "long 40 4" };
                let Some(accepted) = answer(&process, "/agents/demo/process/task", &says(words)).await else { return };
                let id = value(&accepted)["task_id"].as_str().unwrap_or_else(|| panic!("{accepted}")).to_owned();
                told.lock().expect("no client panics").tasks.push(id.clone());
                if !watched {
                    continue;
                }
                loop {
                    let path = format!("/agents/demo/process/task/{id}");
                    let Some(status) = asked(&process, &http::request("GET", &path, CLOSE, b"")).await else { return };
                    if value(&status)["status"] == "finished" {
                        told.lock().expect("no client panics").finished.insert(id, status);
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
async fn whatever_was_told_survives_kill_9() {
    let upstream = Upstream::deciding(|asked| {
        let said = last_said(&asked.json());
        let words: Vec<String> = (0..20).map(|number| format!("{said}:{number} ")).collect();
        let begun = beginning().iter().fold(Answer::events(), |answer, frame| answer.frame(frame));
        let slowly = |answer: Answer, text: &String| answer.frame(&word(text)).pause(Duration::from_millis(2));
        let told = words.iter().fold(begun, slowly);
        ending(&words.concat()).iter().fold(told, |answer, frame| answer.frame(frame)).done()
    });
    let folder = folder(&upstream);
    let told = Arc::new(Mutex::new(Told::default()));
    let mut pending: Option<(String, String)> = None;
    for (round, after) in KILLED_AFTER.into_iter().enumerate() {
        let process = Arc::new(start(folder.path()));
        let waits = format!("waits {round}");
        let body = says_in(&waits, "approval").to_string();
        let mut asked = process.open("POST", "/agents/demo/process", JSON, body.as_bytes()).await;
        let story = Story::read(&asked.frames().await).completed();
        let finished = Arc::new(tokio::sync::Notify::new());
        let loading = tokio::spawn(load(Arc::clone(&process), Arc::clone(&told), round, Arc::clone(&finished)));
        http::bounded("the first stream to finish", finished.notified()).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        process.kill_now();
        http::bounded("all clients to notice", loading).await.expect("no client panics");
        drop(process);

        let process = start(folder.path());
        assert_eq!(get(&process, "/readyz").await.status, 200);
        let mut known = std::mem::take(&mut *told.lock().expect("nobody else is left"));
        assert!(!known.ended.is_empty() && !known.cut.is_empty(), "the process was killed while it worked");
        check(&process, &mut known).await;

        // The conversation goes on: all that was seen of it is told to the agent that remembers nothing.
        let text = format!("after {round}");
        let answer = post(&process, "/agents/friday/process", &says_in("long", &text)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let history = history(&upstream);
        let mut heard = history.iter();
        let window = known.said.len().saturating_sub(40);
        for said in known.said[window..].iter().chain([&text]) {
            assert!(heard.any(|one| one == said), "{said} is missing, or out of order: {history:?}");
        }
        known.said.push(text);

        // What was waited for is still waited for, and is answered once.
        for (session, run) in [Some((waits.clone(), story.id.clone())), pending.take()].into_iter().flatten() {
            let held = post(&process, "/agents/demo/process", &says_in(&session, "well?")).await;
            assert_eq!((held.status, &held.json()["response_id"]), (409, &json!(run)), "{}", held.text());
            if session != waits {
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
        pending = Some((waits, story.id));
        process.kill();
        *told.lock().expect("nobody else is left") = known;
    }
}
