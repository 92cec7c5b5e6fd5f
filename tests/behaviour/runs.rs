//! Runs as things one can come back to: resumed at any place, fetched, listed, stopped, forgotten.

use serde_json::{Value, json};

use crate::support::agent::{saying_and_hanging, saying_until};
use crate::support::gateway::{DEMO, Gateway, ROUTE, agent, says, says_in};
use crate::support::http::{Exchange, data};
use crate::support::story::Story;
use crate::support::until;
use crate::support::upstream::Upstream;

/// All events of a stream, as their lines.
async fn events(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Vec<String> {
    let mut stream = gateway.open("GET", path, headers, b"").await;
    assert_eq!(stream.status().await, 200, "{path}");
    let mut events = Vec::new();
    while let Some(event) = stream.event().await {
        events.push(event);
    }
    events
}

async fn resume_everywhere(store: &str) {
    let upstream = Upstream::always(saying_until(&["one ", "two ", "three"], "on"));
    let config = format!("{store}{}{ROUTE}", agent("friday", &upstream.url("/process"), "", ""));
    let gateway = Gateway::with(&config).await;
    let mut stream = gateway.ask("friday", &says("hi")).await;
    let mut frames = stream.until("three").await;
    let id = frames[0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/agents/friday/runs/{id}/events");
    // While the run is under way, from every place.
    let mut early = Vec::new();
    for after in 0..frames.len() {
        let mut resumed = gateway.open("GET", &format!("{path}?after={after}"), &[], b"").await;
        let mut seen = Vec::new();
        for _ in after + 1..frames.len() {
            seen.push(resumed.event().await.expect("what was told already"));
        }
        early.push((resumed, seen));
    }
    upstream.open("on");
    frames.extend(stream.frames().await);
    let story = Story::read(&frames).completed();
    let whole = events(&gateway, &path, &[]).await;
    let as_told: Vec<Value> = whole.iter().filter_map(|event| serde_json::from_str(data(event)?).ok()).collect();
    assert_eq!(as_told, frames, "a replay is the stream as it was");
    for (number, event) in whole.iter().enumerate() {
        assert!(event.starts_with(&format!("id: {number}\ndata: ")), "{event}");
    }
    for (after, (mut resumed, mut seen)) in early.into_iter().enumerate() {
        while let Some(event) = resumed.event().await {
            seen.push(event);
        }
        assert_eq!(seen, whole[after + 1..], "resumed after {after}, while it was told");
    }
    for after in 0..whole.len() {
        let number = after.to_string();
        assert_eq!(events(&gateway, &format!("{path}?after={after}"), &[]).await, whole[after + 1..]);
        // What a browser sends when it comes back; it is newer than the query it began with.
        let header = [("last-event-id", number.as_str())];
        assert_eq!(events(&gateway, &format!("{path}?after=0"), &header).await, whole[after + 1..]);
    }
    let beyond = events(&gateway, &format!("{path}?after=999"), &[]).await;
    assert_eq!(beyond, whole[whole.len() - 1..], "whoever has counted further than the run came gets its end");
    // Both spellings of the id are the same run.
    let bare = id.trim_start_matches("response_");
    assert_eq!(gateway.run("friday", bare).await, story.last);
    assert_eq!(gateway.run("friday", &bare.replace('-', "")).await, story.last);
}

#[tokio::test]
async fn a_run_in_memory_is_resumed_at_any_place_byte_for_byte() {
    resume_everywhere("[store]\nkind = \"memory\"\n").await;
}

#[tokio::test]
async fn a_run_in_a_file_is_resumed_at_any_place_byte_for_byte() {
    resume_everywhere("[store]\nkind = \"sqlite\"\npath = \"store.db\"\n").await;
}

#[tokio::test]
async fn everything_the_demo_agent_shows_is_replayed_byte_for_byte_by_another_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("[store]\nkind = \"sqlite\"\npath = \"store.db\"\n{DEMO}{ROUTE}");
    let gateway = Gateway::within(&config, folder.path().to_owned()).await;
    let mut told = Vec::new();
    for word in [
        "hello",
        "overlap",
        "parallel",
        "mcp",
        "image",
        "warning",
        "unicode",
        "usage",
        "fail",
        "incomplete",
        "approval",
    ] {
        let story = gateway.story("demo", &says(word)).await;
        let path = format!("/agents/demo/runs/{}/events", story.id);
        told.push((path.clone(), events(&gateway, &path, &[]).await, story));
    }
    gateway.stop().await;
    let gateway = Gateway::within(&config, folder.path().to_owned()).await;
    for (path, before, story) in told {
        assert_eq!(events(&gateway, &path, &[]).await, before);
        assert_eq!(gateway.run("demo", &story.id).await, story.last);
    }
}

#[tokio::test]
async fn a_session_is_stopped_by_its_id() {
    let upstream = Upstream::always(saying_and_hanging(&["so far"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.ask("friday", &says_in("s-1", "hi")).await;
    let mut seen = stream.until("so far").await;
    let stopped = gateway.post("/agents/friday/stop", &json!({ "user_id": "whoever", "session_id": "s-1" })).await;
    assert_eq!((stopped.status, &stopped.json()["status"]), (200, &json!("success")));
    seen.extend(stream.frames().await);
    let story = Story::read(&seen);
    assert_eq!((story.status.as_str(), story.text().as_str()), ("canceled", "so far"));
    upstream.wait_left(1).await;
    // A session with nothing to stop, or none at all, is a success too.
    for session in ["s-1", "nobody"] {
        let again = gateway.post("/agents/friday/stop", &json!({ "session_id": session })).await;
        assert_eq!((again.status, &again.json()["status"]), (200, &json!("success")));
    }
    // The session is free at once.
    let mut next = gateway.ask("friday", &says_in("s-1", "hi again")).await;
    next.until("so far").await;
}

#[tokio::test]
async fn a_run_that_is_canceled_has_ended_when_its_canceller_is_told() {
    let upstream = Upstream::always(saying_and_hanging(&["so far"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.ask("friday", &says("hi")).await;
    let id = stream.until("so far").await[0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/agents/friday/runs/{id}/cancel");
    let canceled = gateway.open("POST", &path, &[], b"").await.answer().await;
    assert_eq!((canceled.status, canceled.json()["status"].as_str()), (200, Some("canceled")), "{}", canceled.text());
    assert_eq!(gateway.run("friday", &id).await, canceled.json());
    let again = gateway.open("POST", &path, &[], b"").await.answer().await;
    assert_eq!(again.json(), canceled.json(), "to cancel what has ended changes nothing");
}

#[tokio::test]
async fn a_run_that_is_forgotten_is_gone() {
    let gateway = Gateway::start(DEMO).await;
    let story = gateway.story("demo", &says_in("s", "echo secret")).await.completed();
    let path = format!("/agents/demo/runs/{}", story.id);
    let gone = gateway.open("DELETE", &path, &[], b"").await.answer().await;
    assert_eq!((gone.status, gone.json()), (200, json!({ "id": story.id, "object": "response", "deleted": true })));
    for path in [path.clone(), format!("{path}/events")] {
        assert_eq!(gateway.get(&path).await.status, 404, "{path}");
    }
    assert_eq!(gateway.open("DELETE", &path, &[], b"").await.answer().await.status, 404);
    assert_eq!(gateway.get("/agents/demo/runs").await.json()["total"], 0);
}

#[tokio::test]
async fn a_run_that_is_forgotten_while_it_is_told_ends_first() {
    let upstream = Upstream::always(saying_and_hanging(&["so far"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.ask("friday", &says("hi")).await;
    let mut seen = stream.until("so far").await;
    let path = format!("/agents/friday/runs/{}", seen[0]["id"].as_str().expect("an id"));
    let gone = gateway.open("DELETE", &path, &[], b"").await.answer().await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    seen.extend(stream.frames().await);
    assert_eq!(Story::read(&seen).status, "canceled");
    assert_eq!(gateway.get(&path).await.status, 404);
}

#[tokio::test]
async fn runs_are_listed_page_by_page_newest_first() {
    let gateway = Gateway::start(DEMO).await;
    let mut ids = Vec::new();
    for number in 0..7 {
        let session = if number % 2 == 0 { "even" } else { "odd" };
        ids.push(gateway.story("demo", &says_in(session, "echo x")).await.completed().id);
    }
    ids.reverse();
    let mut listed = Vec::new();
    let mut path = "/agents/demo/runs?limit=3".to_owned();
    for total in 7.. {
        let page = gateway.get(&path).await.json();
        assert_eq!((&page["object"], &page["total"]), (&json!("list"), &json!(total)));
        for run in page["data"].as_array().expect("a list") {
            assert_eq!((&run["status"], &run["output"]), (&json!("completed"), &Value::Null));
            listed.push(run["id"].as_str().expect("an id").to_owned());
        }
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/agents/demo/runs?limit=3&cursor={next}");
        // A run that comes in between does not move the place.
        gateway.story("demo", &says_in("later", "echo y")).await.completed();
    }
    assert_eq!(listed, ids);
    let even = gateway.get("/agents/demo/runs?session_id=even").await.json();
    assert_eq!(even["total"], 4);
}

#[tokio::test]
async fn somebody_who_looks_does_not_keep_a_run_from_being_let_go_of() {
    let gateway = Gateway::start(DEMO).await;
    let story = gateway.story("demo", &says("approval")).await.completed();
    // A finished run that asked something is over all the same, natively: its events end.
    let outcome = gateway.outcome("demo", &story.id).await;
    assert_eq!(outcome, story.last);
}

#[tokio::test]
async fn old_runs_are_forgotten_as_the_operator_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = |retention: &str| format!("[store]\nkind = \"sqlite\"\npath = \"store.db\"\n{retention}{DEMO}{ROUTE}");
    let gateway = Gateway::within(&config(""), folder.path().to_owned()).await;
    let mut ids = Vec::new();
    for number in 0..8 {
        ids.push(gateway.story("demo", &says(&format!("echo {number}"))).await.completed().id);
    }
    gateway.stop().await;
    let gateway = Gateway::within(&config("retention = { runs = 3 }\n"), folder.path().to_owned()).await;
    until("old runs to be forgotten", async || {
        (gateway.get("/agents/demo/runs").await.json()["total"] == 3).then_some(())
    })
    .await;
    for (place, id) in ids.iter().enumerate() {
        let status = gateway.get(&format!("/agents/demo/runs/{id}")).await.status;
        assert_eq!(status, if place < 5 { 404 } else { 200 }, "run {place}");
    }
}

#[tokio::test]
async fn heads_are_answered_without_bodies() {
    let gateway = Gateway::start(DEMO).await;
    let story = gateway.story("demo", &says("echo hi")).await;
    for path in [format!("/agents/demo/runs/{}", story.id), "/agents/demo/health".to_owned(), "/healthz".to_owned()] {
        let whole = gateway.get(&path).await;
        let head = format!("HEAD {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let said = Exchange::send(gateway.address, head.as_bytes()).await.bytes().await;
        let said = String::from_utf8(said).expect("text");
        assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("\r\n\r\n"), "{path}: {said}");
        let length = format!("content-length: {}\r\n", whole.body.len());
        assert!(said.to_ascii_lowercase().contains(&length), "{path}: {said}");
    }
}

#[tokio::test]
async fn a_store_that_is_busy_holds_up_what_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = Upstream::always(saying_until(&["one ", "two"], "on"));
    let friday = agent("friday", &upstream.url("/process"), "", "");
    let config = format!("[store]\nkind = \"sqlite\"\npath = \"store.db\"\n{friday}{ROUTE}");
    let gateway = Gateway::within(&config, folder.path().to_owned()).await;
    let mut stream = gateway.ask("friday", &says("hi")).await;
    let mut seen = stream.until("two").await;
    let busy = rusqlite::Connection::open(folder.path().join("store.db")).expect("the store's file");
    busy.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    upstream.open("on");
    let early = tokio::time::timeout(std::time::Duration::from_millis(300), stream.frame()).await;
    assert!(early.is_err(), "something is told that is not safe: {early:?}");
    busy.execute_batch("COMMIT").expect("nothing was written");
    seen.extend(stream.frames().await);
    let story = Story::read(&seen).completed();
    assert_eq!(gateway.run("friday", &story.id).await, story.last);
}
