//! Store outages: clients see only committed events, no persistent run is started, every protocol reports the outage,
//! and the gateway recovers by itself. Not here: the store alone (`tests/store`).

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::agent::{text_reply, text_reply_until};
use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, agent, user_turn};
use crate::support::pairs::{ALL_PROTOCOLS, ROUTES, Turn};
use crate::support::transcript::Transcript;
use crate::support::upstream::Upstream;

const STORE: &str = "[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";

/// A write lock on the database, as a foreign process could hold it.
struct WriteLock(rusqlite::Connection);

impl WriteLock {
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
    let started = Instant::now();
    loop {
        let ready = gateway.get("/readyz").await;
        if ready.status == wanted {
            return ready.json();
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{} {}", ready.status, ready.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the gateway has noticed the outage.
async fn wait_for_outage(gateway: &Gateway) {
    let first = gateway.post("/agents/friday/process", &user_turn("too early")).await;
    assert_eq!(first.status, 503, "{}", first.text());
    assert_eq!(until_ready(gateway, 503).await["store"], "failing");
}

#[tokio::test]
async fn a_run_that_ends_during_a_store_outage_is_reported_once_it_is_written() {
    let upstream = Upstream::with_handler(|request| {
        if request.json().to_string().contains("well") {
            text_reply(&["fine"])
        } else {
            text_reply_until(&["hello "], "end")
        }
    });
    let gateway =
        Gateway::with_config(&format!("{STORE}{}{ROUTE}", agent("friday", &upstream.url("/p"), "", ""))).await;
    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    let mut frames = stream.read_until("hello ").await;
    let id = frames[0]["id"].as_str().expect("an id").to_owned();

    let locked = WriteLock::lock(&gateway.folder());
    wait_for_outage(&gateway).await;
    upstream.open("end");
    let early = tokio::time::timeout(Duration::from_secs(2), stream.frame()).await;
    assert!(early.is_err(), "an event was sent before it was committed: {early:?}");

    let run = gateway.run("friday", &id).await;
    assert_eq!(run["status"], "in_progress");
    let last = frames.last().expect("a frame was received");
    assert_eq!(run["sequence_number"], last["sequence_number"], "a read shows no more than the stream");

    locked.unlock();
    frames.extend(stream.frames().await);
    let transcript = Transcript::parse(&frames).expect_completed();
    until_ready(&gateway, 200).await;
    assert_eq!(gateway.run("friday", &id).await, transcript.last);
    gateway.run_turn("friday", &user_turn("well?")).await.expect_completed();
}

#[tokio::test]
async fn a_run_that_cannot_be_written_in_time_fails_and_stays_failed() {
    let upstream = Upstream::with_handler(|_| text_reply_until(&["hello "], "end"));
    let source = format!("{STORE}{}{ROUTE}", agent("friday", &upstream.url("/p"), "", ""));
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::in_folder(&source, folder.path().to_owned()).await;

    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    let mut frames = stream.read_until("hello ").await;
    let id = frames[0]["id"].as_str().expect("an id").to_owned();

    let locked = WriteLock::lock(folder.path());
    wait_for_outage(&gateway).await;
    upstream.open("end");
    let started = Instant::now();
    frames.extend(stream.frames().await);
    assert!(started.elapsed() < Duration::from_secs(15), "the stream ends in bounded time");
    let transcript = Transcript::parse(&frames).expect_failed("GATEWAY_ERROR");
    assert_eq!(gateway.run("friday", &id).await, transcript.last, "it is readable although it is not written");

    locked.unlock();
    until_ready(&gateway, 200).await;
    assert_eq!(gateway.run("friday", &id).await, transcript.last);
    gateway.stop().await;
    let gateway = Gateway::in_folder(&source, folder.path().to_owned()).await;
    assert_eq!(gateway.run("friday", &id).await, transcript.last, "the failure was written");
    let replayed = gateway.open("GET", &format!("/agents/friday/runs/{id}/events"), &[], b"").await.frames().await;
    assert_eq!(replayed, frames);
}

#[tokio::test]
async fn no_persistent_run_is_started_during_a_store_outage() {
    let gateway = Gateway::with_config(&format!("{STORE}{DEMO}{ROUTES}")).await;
    let folder = gateway.folder();
    let locked = WriteLock::lock(&folder);
    let user = |text: &str| json!([{ "role": "user", "content": text }]);
    let a2a = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage",
        "params": { "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } } });
    let input = json!({ "input": user("hi") });
    let background = json!({ "model": "demo", "input": "hi", "background": true });
    let others = [("/agents/demo/process/task", input), ("/v1/responses", background), ("/a2a/demo", a2a)];
    let others =
        others.map(|(path, body)| Turn::new(path, body).with_headers(&[JSON, &[("a2a-version", "1.0")]].concat()));
    let turns = ALL_PROTOCOLS.into_iter().flat_map(|protocol| {
        let session = |streamed: bool| format!("{}-{streamed}", protocol.name());
        [true, false].map(|streamed| protocol.turn(&session(streamed), "hi", streamed))
    });
    let requests: Vec<Turn> = turns.chain(others).collect();

    // The first request detects the outage; later ones are refused at once.
    for _ in 0..2 {
        for turn in &requests {
            let path = turn.path;
            let started = Instant::now();
            let response = turn.send(&gateway).await;
            let wanted = match path {
                // JSON-RPC always uses status 200.
                "/a2a/demo" => [200, 503],
                "/anthropic/v1/messages" => [503, 529],
                _ => [503, 503],
            };
            assert!(wanted.contains(&response.status), "{turn:?}: {} {}", response.status, response.text());
            assert!(response.text().contains("cannot read or write its records"), "{path}: {}", response.text());
            assert!(
                response.header("retry-after").is_some() || response.status == 200,
                "{path}: {:?}",
                response.headers
            );
            assert!(started.elapsed() < Duration::from_secs(5), "{path}: {:?}", started.elapsed());
        }
    }

    let ready = gateway.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["store"]), (503, &json!("failing")));
    assert!(ready.header("retry-after").is_some());
    assert_eq!(gateway.get("/healthz").await.status, 200, "it is healthy");

    // Requests that need no storage are served.
    let unstored = json!({ "model": "demo", "input": "hi", "store": false });
    let response = gateway.post("/v1/responses", &unstored).await;
    assert_eq!((response.status, &response.json()["status"]), (200, &json!("completed")), "{}", response.text());

    locked.unlock();
    until_ready(&gateway, 200).await;
    for turn in &requests {
        let response = turn.send(&gateway).await;
        assert!([200, 202].contains(&response.status), "{turn:?}: {} {}", response.status, response.text());
    }
    let list = gateway.get("/agents/demo/runs").await.json();
    assert!(list["data"].as_array().expect("a list").iter().all(|run| run["status"] != "failed"), "{list}");
}
