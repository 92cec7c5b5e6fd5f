//! A store that cannot write for a while: nothing is told that is not safe, nothing new is begun that would have to be
//! kept, everything says so, and all is well again by itself. Not here: what the store does by itself (`tests/store`).

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::agent::{saying, saying_until};
use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, agent, says};
use crate::support::story::Story;
use crate::support::upstream::Upstream;

const STORE: &str = "[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";
const ROUTES: &str = r#"
[[routes]]
protocol = "responses"
path = "/v1"
[[routes]]
protocol = "a2a"
path = "/a2a/{agent}"
[[routes]]
protocol = "ag-kit"
path = "/ag-kit/{agent}"
[[routes]]
protocol = "hitl"
path = "/hitl/{agent}"
"#;

/// As another process would, against all rules.
struct Locked(rusqlite::Connection);

impl Locked {
    fn lock(folder: &Path) -> Self {
        let file = rusqlite::Connection::open(folder.join("store.db")).expect("the file is there");
        file.busy_timeout(Duration::from_secs(5)).expect("a time");
        file.execute_batch("BEGIN IMMEDIATE").expect("a lock");
        Self(file)
    }

    fn unlock(self) {
        self.0.execute_batch("ROLLBACK").expect("it has the lock");
    }
}

async fn until_ready(gateway: &Gateway, wanted: u16) -> Value {
    let begun = Instant::now();
    loop {
        let ready = gateway.get("/readyz").await;
        if ready.status == wanted {
            return ready.json();
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{} {}", ready.status, ready.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Asked until the store has been noticed to fail, and once more.
async fn noticed(gateway: &Gateway) {
    let first = gateway.post("/agents/friday/process", &says("too early")).await;
    assert_eq!(first.status, 503, "{}", first.text());
    assert_eq!(until_ready(gateway, 503).await["store"], "failing");
}

#[tokio::test]
async fn what_ends_while_the_store_fails_is_told_when_it_is_safe() {
    let upstream = Upstream::deciding(|asked| {
        if asked.json().to_string().contains("well") { saying(&["fine"]) } else { saying_until(&["hello "], "end") }
    });
    let gateway = Gateway::with(&format!("{STORE}{}{ROUTE}", agent("friday", &upstream.url("/p"), "", ""))).await;
    let mut stream = gateway.ask("friday", &says("hi")).await;
    let mut frames = stream.until("hello ").await;
    let id = frames[0]["id"].as_str().expect("an id").to_owned();

    let locked = Locked::lock(&gateway.folder());
    noticed(&gateway).await;
    upstream.open("end");
    let early = tokio::time::timeout(Duration::from_secs(2), stream.frame()).await;
    assert!(early.is_err(), "it is told before it is safe: {early:?}");
    let run = gateway.run("friday", &id).await;
    assert_eq!(run["status"], "in_progress");
    let last = frames.last().expect("something was told");
    assert_eq!(run["sequence_number"], last["sequence_number"], "nobody sees further than its followers");

    locked.unlock();
    frames.extend(stream.frames().await);
    let story = Story::read(&frames).completed();
    until_ready(&gateway, 200).await;
    assert_eq!(gateway.run("friday", &id).await, story.last);
    gateway.story("friday", &says("well?")).await.completed();
}

#[tokio::test]
async fn what_cannot_be_written_in_time_is_failed_and_stays_so() {
    let upstream = Upstream::deciding(|_| saying_until(&["hello "], "end"));
    let source = format!("{STORE}{}{ROUTE}", agent("friday", &upstream.url("/p"), "", ""));
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::within(&source, folder.path().to_owned()).await;
    let mut stream = gateway.ask("friday", &says("hi")).await;
    let mut frames = stream.until("hello ").await;
    let id = frames[0]["id"].as_str().expect("an id").to_owned();

    let locked = Locked::lock(folder.path());
    noticed(&gateway).await;
    upstream.open("end");
    let begun = Instant::now();
    frames.extend(stream.frames().await);
    assert!(begun.elapsed() < Duration::from_secs(15), "it is told in bounded time");
    let story = Story::read(&frames).failed("GATEWAY_ERROR");
    assert_eq!(gateway.run("friday", &id).await, story.last, "it is found although it is not written");

    locked.unlock();
    until_ready(&gateway, 200).await;
    assert_eq!(gateway.run("friday", &id).await, story.last);
    gateway.stop().await;
    let gateway = Gateway::within(&source, folder.path().to_owned()).await;
    assert_eq!(gateway.run("friday", &id).await, story.last, "that is what was written");
    let replayed = gateway.open("GET", &format!("/agents/friday/runs/{id}/events"), &[], b"").await.frames().await;
    assert_eq!(replayed, frames);
}

#[tokio::test]
async fn nothing_that_has_to_be_kept_is_begun_while_the_store_fails() {
    let gateway = Gateway::with(&format!("{STORE}{DEMO}{ROUTE}{ROUTES}")).await;
    let folder = gateway.folder();
    let locked = Locked::lock(&folder);
    let user = |text: &str| json!([{ "role": "user", "content": text }]);
    let a2a = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage",
        "params": { "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } } });
    let asked = [
        ("/agents/demo/process", json!({ "input": user("hi") })),
        ("/agents/demo/process", json!({ "input": user("hi"), "stream": false })),
        ("/agents/demo/process/task", json!({ "input": user("hi") })),
        ("/v1/responses", json!({ "model": "demo", "input": "hi" })),
        ("/v1/responses", json!({ "model": "demo", "input": "hi", "stream": true })),
        ("/v1/responses", json!({ "model": "demo", "input": "hi", "background": true })),
        ("/a2a/demo/message:send", a2a["params"].clone()),
        ("/a2a/demo", a2a),
        ("/ag-kit/demo/send-message", json!({ "conversationId": "c", "messages": user("hi") })),
        ("/hitl/demo/agent/invoke", json!({ "user_id": "ada", "query": "hi" })),
    ];
    // The first one finds it out, the others are told before anything is tried.
    for _ in 0..2 {
        for (path, body) in &asked {
            let headers = [JSON, &[("a2a-version", "1.0")]].concat();
            let begun = Instant::now();
            let answer = gateway.open("POST", path, &headers, body.to_string().as_bytes()).await.answer().await;
            // JSON-RPC has one status for everything.
            let wanted = if *path == "/a2a/demo" { [200, 503] } else { [503, 503] };
            assert!(wanted.contains(&answer.status), "{path} {body}: {} {}", answer.status, answer.text());
            assert!(answer.text().contains("cannot read or write its records"), "{path}: {}", answer.text());
            assert!(answer.header("retry-after").is_some() || answer.status == 200, "{path}: {:?}", answer.headers);
            assert!(begun.elapsed() < Duration::from_secs(5), "{path}: {:?}", begun.elapsed());
        }
    }
    let ready = gateway.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["store"]), (503, &json!("failing")));
    assert!(ready.header("retry-after").is_some());
    assert_eq!(gateway.get("/healthz").await.status, 200, "it lives");

    // What need not be kept is served.
    let unkept = json!({ "model": "demo", "input": "hi", "store": false });
    let answer = gateway.post("/v1/responses", &unkept).await;
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("completed")), "{}", answer.text());

    locked.unlock();
    until_ready(&gateway, 200).await;
    for (path, body) in &asked {
        let headers = [JSON, &[("a2a-version", "1.0")]].concat();
        let answer = gateway.open("POST", path, &headers, body.to_string().as_bytes()).await.answer().await;
        assert!([200, 202].contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
    }
    let list = gateway.get("/agents/demo/runs").await.json();
    assert!(list["data"].as_array().expect("a list").iter().all(|run| run["status"] != "failed"), "{list}");
}
