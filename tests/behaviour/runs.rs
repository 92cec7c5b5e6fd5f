//! Stored runs: resuming at any event, reading, listing, cancelling, deleting.

use serde_json::{Value, json};

use crate::support::agent::{text_reply_then_hang, text_reply_until};
use crate::support::gateway::{DEMO, Gateway, ROUTE, agent, user_turn, user_turn_in};
use crate::support::http::{Exchange, data};
use crate::support::poll_until;
use crate::support::transcript::Transcript;
use crate::support::upstream::Upstream;

/// All events of a stream, as their lines. A client that has them all gets 204, so that an `EventSource` stops.
async fn events(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Vec<String> {
    let mut stream = gateway.open("GET", path, headers, b"").await;
    let status = stream.status().await;
    if status == 204 {
        assert!(stream.response().await.body.is_empty(), "{path}");
        return Vec::new();
    }
    assert_eq!(status, 200, "{path}");
    let mut events = Vec::new();
    while let Some(event) = stream.event().await {
        events.push(event);
    }
    events
}

async fn resume_everywhere(store: &str) {
    let upstream = Upstream::always(text_reply_until(&["one ", "two ", "three"], "on"));
    let config = format!("{store}{}{ROUTE}", agent("friday", &upstream.url("/process"), "", ""));
    let gateway = Gateway::with_config(&config).await;
    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    let mut frames = stream.read_until("three").await;
    let id = frames[0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/agents/friday/runs/{id}/events");

    // Resume after every event while the run is active.
    let mut early = Vec::new();
    for after in 0..frames.len() {
        let mut resumed = gateway.open("GET", &format!("{path}?after={after}"), &[], b"").await;
        let mut seen = Vec::new();
        for _ in after + 1..frames.len() {
            seen.push(resumed.event().await.expect("an event that was sent before"));
        }
        early.push((resumed, seen));
    }

    upstream.open("on");
    frames.extend(stream.frames().await);
    let transcript = Transcript::parse(&frames).expect_completed();
    let full = events(&gateway, &path, &[]).await;
    let replayed: Vec<Value> = full.iter().filter_map(|event| serde_json::from_str(data(event)?).ok()).collect();
    assert_eq!(replayed, frames, "a replay is the stream as it was");
    for (number, event) in full.iter().enumerate() {
        assert!(event.starts_with(&format!("id: {number}\ndata: ")), "{event}");
    }

    for (after, (mut resumed, mut seen)) in early.into_iter().enumerate() {
        while let Some(event) = resumed.event().await {
            seen.push(event);
        }
        assert_eq!(seen, full[after + 1..], "resumed after {after} while it was streamed");
    }

    for after in 0..full.len() {
        let number = after.to_string();
        assert_eq!(events(&gateway, &format!("{path}?after={after}"), &[]).await, full[after + 1..]);

        // The header of a reconnecting browser takes precedence over the query of its first request.
        let header = [("last-event-id", number.as_str())];
        assert_eq!(events(&gateway, &format!("{path}?after=0"), &header).await, full[after + 1..]);
    }
    let last = (full.len() - 1).to_string();
    for headers in [&[("last-event-id", last.as_str())][..], &[]] {
        let query = if headers.is_empty() { format!("?after={last}") } else { String::new() };
        let done = gateway.open("GET", &format!("{path}{query}"), headers, b"").await.response().await;
        assert_eq!((done.status, done.header("content-type")), (204, None), "the client has all of it");
    }
    let beyond = events(&gateway, &format!("{path}?after=999"), &[]).await;
    assert_eq!(beyond, full[full.len() - 1..], "a number beyond the end yields the terminal frame");

    // The id works with and without hyphens.
    let bare = id.trim_start_matches("response_");
    assert_eq!(gateway.run("friday", bare).await, transcript.last);
    assert_eq!(gateway.run("friday", &bare.replace('-', "")).await, transcript.last);
}

#[tokio::test]
async fn a_run_in_memory_is_resumed_at_any_event_byte_for_byte() {
    resume_everywhere("[store]\nkind = \"memory\"\n").await;
}

#[tokio::test]
async fn a_run_in_sqlite_is_resumed_at_any_event_byte_for_byte() {
    resume_everywhere("[store]\nkind = \"sqlite\"\npath = \"store.db\"\n").await;
}

#[tokio::test]
async fn every_demo_command_is_replayed_byte_for_byte_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("[store]\nkind = \"sqlite\"\npath = \"store.db\"\n{DEMO}{ROUTE}");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let mut received = Vec::new();
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
        let transcript = gateway.run_turn("demo", &user_turn(word)).await;
        let path = format!("/agents/demo/runs/{}/events", transcript.id);
        received.push((path.clone(), events(&gateway, &path, &[]).await, transcript));
    }

    gateway.stop().await;
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    for (path, before, transcript) in received {
        assert_eq!(events(&gateway, &path, &[]).await, before);
        assert_eq!(gateway.run("demo", &transcript.id).await, transcript.last);
    }
}

#[tokio::test]
async fn a_session_is_stopped_by_its_id() {
    let upstream = Upstream::always(text_reply_then_hang(&["so far"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.start_turn("friday", &user_turn_in("s-1", "hi")).await;
    let mut seen = stream.read_until("so far").await;
    let stopped = gateway.post("/agents/friday/stop", &json!({ "user_id": "another", "session_id": "s-1" })).await;
    assert_eq!((stopped.status, &stopped.json()["status"]), (200, &json!("success")));
    seen.extend(stream.frames().await);
    let transcript = Transcript::parse(&seen);
    assert_eq!((transcript.status.as_str(), transcript.text().as_str()), ("canceled", "so far"));
    upstream.wait_for_disconnects(1).await;

    // Stopping an idle or unknown session is a success too.
    for session in ["s-1", "unknown"] {
        let again = gateway.post("/agents/friday/stop", &json!({ "session_id": session })).await;
        assert_eq!((again.status, &again.json()["status"]), (200, &json!("success")));
    }

    // The session accepts a new turn at once.
    let mut next = gateway.start_turn("friday", &user_turn_in("s-1", "hi again")).await;
    next.read_until("so far").await;
}

#[tokio::test]
async fn a_cancelled_run_has_ended_when_the_cancel_request_returns() {
    let upstream = Upstream::always(text_reply_then_hang(&["so far"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    let id = stream.read_until("so far").await[0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/agents/friday/runs/{id}/cancel");
    let canceled = gateway.open("POST", &path, &[], b"").await.response().await;
    assert_eq!((canceled.status, canceled.json()["status"].as_str()), (200, Some("canceled")), "{}", canceled.text());
    assert_eq!(gateway.run("friday", &id).await, canceled.json());
    let again = gateway.open("POST", &path, &[], b"").await.response().await;
    assert_eq!(again.json(), canceled.json(), "cancelling an ended run changes nothing");
}

#[tokio::test]
async fn a_deleted_run_is_gone() {
    let gateway = Gateway::start(DEMO).await;
    let transcript = gateway.run_turn("demo", &user_turn_in("s", "echo secret")).await.expect_completed();
    let path = format!("/agents/demo/runs/{}", transcript.id);
    let gone = gateway.open("DELETE", &path, &[], b"").await.response().await;
    assert_eq!(
        (gone.status, gone.json()),
        (200, json!({ "id": transcript.id, "object": "response", "deleted": true }))
    );
    for path in [path.clone(), format!("{path}/events")] {
        assert_eq!(gateway.get(&path).await.status, 404, "{path}");
    }
    assert_eq!(gateway.open("DELETE", &path, &[], b"").await.response().await.status, 404);
    assert_eq!(gateway.get("/agents/demo/runs").await.json()["total"], 0);
}

#[tokio::test]
async fn a_run_that_is_deleted_while_it_streams_is_cancelled_first() {
    let upstream = Upstream::always(text_reply_then_hang(&["so far"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    let mut seen = stream.read_until("so far").await;
    let path = format!("/agents/friday/runs/{}", seen[0]["id"].as_str().expect("an id"));
    let gone = gateway.open("DELETE", &path, &[], b"").await.response().await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    seen.extend(stream.frames().await);
    assert_eq!(Transcript::parse(&seen).status, "canceled");
    assert_eq!(gateway.get(&path).await.status, 404);
}

#[tokio::test]
async fn runs_are_listed_page_by_page_newest_first() {
    let gateway = Gateway::start(DEMO).await;
    let mut ids = Vec::new();
    for number in 0..7 {
        let session = if number % 2 == 0 { "even" } else { "odd" };
        ids.push(gateway.run_turn("demo", &user_turn_in(session, "echo x")).await.expect_completed().id);
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

        // A new run does not shift the pages.
        gateway.run_turn("demo", &user_turn_in("later", "echo y")).await.expect_completed();
    }
    assert_eq!(listed, ids);
    let even = gateway.get("/agents/demo/runs?session_id=even").await.json();
    assert_eq!(even["total"], 4);
}

#[tokio::test]
async fn following_a_run_that_waits_for_input_ends() {
    let gateway = Gateway::start(DEMO).await;
    let transcript = gateway.run_turn("demo", &user_turn("approval")).await.expect_completed();
    // In the Agent API a run that waits for input has completed: its event stream ends.
    let outcome = gateway.final_frame("demo", &transcript.id).await;
    assert_eq!(outcome, transcript.last);
}

#[tokio::test]
async fn old_runs_are_deleted_by_the_configured_retention() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = |retention: &str| format!("[store]\nkind = \"sqlite\"\npath = \"store.db\"\n{retention}{DEMO}{ROUTE}");
    let gateway = Gateway::in_folder(&config(""), folder.path().to_owned()).await;
    let mut ids = Vec::new();
    for number in 0..8 {
        ids.push(gateway.run_turn("demo", &user_turn(&format!("echo {number}"))).await.expect_completed().id);
    }

    gateway.stop().await;
    let gateway = Gateway::in_folder(&config("retention = { runs = 3 }\n"), folder.path().to_owned()).await;
    poll_until("old runs to be forgotten", async || {
        (gateway.get("/agents/demo/runs").await.json()["total"] == 3).then_some(())
    })
    .await;
    for (index, id) in ids.iter().enumerate() {
        let status = gateway.get(&format!("/agents/demo/runs/{id}")).await.status;
        assert_eq!(status, if index < 5 { 404 } else { 200 }, "run {index}");
    }
}

#[tokio::test]
async fn head_requests_are_answered_without_bodies() {
    let gateway = Gateway::start(DEMO).await;
    let transcript = gateway.run_turn("demo", &user_turn("echo hi")).await;
    for path in
        [format!("/agents/demo/runs/{}", transcript.id), "/agents/demo/health".to_owned(), "/healthz".to_owned()]
    {
        let full = gateway.get(&path).await;
        let head = format!("HEAD {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let output = Exchange::send(gateway.address, head.as_bytes()).await.bytes().await;
        let output = String::from_utf8(output).expect("text");
        assert!(output.starts_with("HTTP/1.1 200") && output.ends_with("\r\n\r\n"), "{path}: {output}");
        let length = format!("content-length: {}\r\n", full.body.len());
        assert!(output.to_ascii_lowercase().contains(&length), "{path}: {output}");
    }
}

#[tokio::test]
async fn a_busy_store_delays_the_events_that_clients_see() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = Upstream::always(text_reply_until(&["one ", "two"], "on"));
    let friday = agent("friday", &upstream.url("/process"), "", "");
    let config = format!("[store]\nkind = \"sqlite\"\npath = \"store.db\"\n{friday}{ROUTE}");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;

    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    let mut seen = stream.read_until("two").await;
    let busy = rusqlite::Connection::open(folder.path().join("store.db")).expect("the store's file");
    busy.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    upstream.open("on");
    let early = tokio::time::timeout(std::time::Duration::from_millis(300), stream.frame()).await;
    assert!(early.is_err(), "an event was sent before it was committed: {early:?}");
    busy.execute_batch("COMMIT").expect("nothing was written");
    seen.extend(stream.frames().await);
    let transcript = Transcript::parse(&seen).expect_completed();
    assert_eq!(gateway.run("friday", &transcript.id).await, transcript.last);
}

#[tokio::test]
async fn many_new_runs_are_not_kept_until_the_next_minute() {
    let store = "[store]\nkind = \"memory\"\nretention = { runs = 10 }\n";
    let gateway = Gateway::with_config(&format!("{store}{DEMO}{ROUTE}")).await;
    let mut body = user_turn("echo hi");
    body["stream"] = json!(false);
    for _ in 0..150 {
        assert_eq!(gateway.post("/agents/demo/process", &body).await.status, 200);
    }
    // Those that came after the last round of this minute stay.
    poll_until("the oldest runs to be deleted", async || {
        let runs = gateway.get("/agents/demo/runs").await.json();
        (runs["total"].as_u64()? < 100).then_some(())
    })
    .await;
}
