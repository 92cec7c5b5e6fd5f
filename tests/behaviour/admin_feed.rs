//! The console's stream of changes: its content for each role, and resuming. Not here: the page that follows it (the
//! suite `console`).

use serde_json::{Value, json};

use crate::admin_console::{KEY, Stand};
use crate::support::agent::text_reply;
use crate::support::gateway::JSON;
use crate::support::http::{Exchange, request};
use crate::support::poll_until;
use crate::support::upstream::Upstream;

/// Opens a stream of a page.
async fn follow(stand: &Stand, bearer: &str, query: &str, more: &[(&str, &str)]) -> Exchange {
    let headers = [&[("authorization", bearer)], more].concat();
    let sent = request("GET", &format!("/api/feed?{query}"), &headers, b"");
    Exchange::send(stand.process.admin(), &sent).await
}

/// The name, the id and the data of an event.
pub(crate) fn read(event: &str) -> (String, Option<u64>, Value) {
    let line = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
    let data = line("data: ").and_then(|data| serde_json::from_str(data).ok()).unwrap_or(Value::Null);
    (line("event: ").unwrap_or_default().to_owned(), line("id: ").and_then(|id| id.parse().ok()), data)
}

/// The events of the run that a stream follows, up to its last one.
async fn events_of(stream: &mut Exchange) -> Vec<(u64, Value)> {
    let mut found = Vec::new();
    while let Some(event) = stream.event().await {
        let (name, id, data) = read(&event);
        if name == "event" {
            let is_last = data["kind"] == "run_finished";
            found.push((id.expect("an id"), data));
            if is_last {
                break;
            }
        }
    }
    found
}

#[tokio::test]
async fn a_run_is_followed_from_the_event_that_a_page_had_last() {
    let upstream = Upstream::always(text_reply(&["one ", "two ", "three"]));
    let stand = Stand::new(&upstream, "");
    let bearer = stand.bearer(KEY).await;
    let id = stand.run("count").await;
    let query = format!("run={id}&protocols=agent-api");
    let all = events_of(&mut follow(&stand, &bearer, &query, &[]).await).await;
    let numbers: Vec<u64> = all.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (0..all.len() as u64).collect::<Vec<_>>());
    let text: String = all.iter().map(|(_, data)| data["frames"]["agent-api"].as_str().unwrap_or("")).collect();
    assert!(text.contains("three"), "{text}");

    // By the query, and as a browser does it, which counts more.
    let rest = events_of(&mut follow(&stand, &bearer, &format!("{query}&after=3"), &[]).await).await;
    assert_eq!(rest, all[4..]);
    let last = [("last-event-id", "5")];
    let rest = events_of(&mut follow(&stand, &bearer, &format!("{query}&after=3"), &last).await).await;
    assert_eq!(rest, all[6..]);
}

#[tokio::test]
async fn the_page_reads_runs_of_an_agent_that_no_route_serves_over_the_agent_api() {
    let upstream = Upstream::always(text_reply(&["one ", "two"]));
    let route = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nagents = [\"friday\"]\n";
    let stand = Stand::with_route(&upstream, "", route);
    let bearer = stand.bearer(KEY).await;
    let body = json!({ "model": "friday", "input": "count" }).to_string();
    let answer = stand.process.open("POST", "/v1/responses", JSON, body.as_bytes()).await.response().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let runs = stand.ask("GET", "/api/runs", &bearer, &Value::Null).await.json();
    let id = runs["data"][0]["id"].as_str().expect("a run");

    let query = format!("run={id}&protocols=agent-api,responses");
    let events = events_of(&mut follow(&stand, &bearer, &query, &[]).await).await;
    for protocol in ["agent-api", "responses"] {
        let frames: String = events.iter().map(|(_, data)| data["frames"][protocol].as_str().unwrap_or("")).collect();
        assert!(frames.contains("one two"), "{protocol}: {frames}");
    }
}

#[tokio::test]
async fn hidden_texts_are_in_no_event() {
    let upstream = Upstream::always(text_reply(&["a private answer"]));
    let stand = Stand::new(&upstream, "texts = \"act\"");
    let vera = stand.key_of("vera").await;
    let bearer = stand.bearer(&vera).await;
    let mut stream = follow(&stand, &bearer, "runs=1", &[]).await;
    let id = stand.run("a private question").await;
    let summary = async {
        loop {
            let event = stream.event().await.expect("an event");
            assert!(!event.contains("private"), "{event}");
            if read(&event).2["changed"][0]["id"] == id {
                break;
            }
        }
    };
    summary.await;
    let events = events_of(&mut follow(&stand, &bearer, &format!("run={id}&protocols=agent-api"), &[]).await).await;
    assert!(events.len() > 5);
    assert!(!json!(events.iter().map(|(_, data)| data).collect::<Vec<_>>()).to_string().contains("private"));
}

#[tokio::test]
async fn a_stream_needs_a_role_and_known_parameters_and_ends_with_the_sign_in() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let bearer = stand.bearer(KEY).await;
    assert_eq!(follow(&stand, "Bearer wrong", "runs=1", &[]).await.status().await, 401);
    for (query, field) in [("color=red", "color"), ("run=x", "run"), ("after=x", "after")] {
        let refused = follow(&stand, &bearer, query, &[]).await.response().await;
        assert_eq!((refused.status, refused.json()["field"].as_str()), (400, Some(field)), "{query}");
    }
    let unknown = "00000000-0000-7000-8000-000000000000";
    assert_eq!(follow(&stand, &bearer, &format!("run={unknown}"), &[]).await.status().await, 404);

    let mut stream = follow(&stand, &bearer, "runs=1", &[]).await;
    assert!(stream.event().await.is_some());
    assert_eq!(stand.ask("DELETE", "/api/session", &bearer, &Value::Null).await.status, 204);
    while stream.event().await.is_some() {}
}

#[tokio::test]
async fn streams_are_bounded_and_leave_room_for_probes() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "");
    // One person has a share of them.
    let mut streams = Vec::new();
    for person in 0..4 {
        let name = format!("person-{person}");
        stand.allow(&name).await;
        let bearer = stand.bearer(&stand.key_of(&name).await).await;
        for _ in 0..16 {
            let mut stream = follow(&stand, &bearer, "", &[]).await;
            assert_eq!(stream.status().await, 200);
            streams.push(stream);
        }
    }
    let bearer = stand.bearer(KEY).await;
    let refused = follow(&stand, &bearer, "", &[]).await.response().await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(stand.process.operate("GET", "/readyz", &[], b"").await.status, 200);
    streams.pop();
    poll_until("room", async || {
        let mut stream = follow(&stand, &bearer, "", &[]).await;
        (stream.status().await == 200).then_some(())
    })
    .await;
}
