//! The prism: what a client of a protocol got of a run is what the console shows of it in that protocol, byte for byte.
//! Not here: the page (the suite `console`).

use serde_json::{Value, json};

use crate::admin_feed::read;
use crate::admin_playground::{KEY, Stand};
use crate::support::http::{Exchange, request};
use crate::support::pairs::MOUNTS;
use crate::support::poll_until;

/// The commands for the demo agent.
const SCRIPTS: &[&str] = &[
    "hello",
    "echo it's \"me\" \u{1f642}",
    "long 5 1",
    "reasoning",
    "overlap",
    "summary",
    "signed",
    "redacted",
    "interleaved",
    "tool",
    "parallel",
    "mcp",
    "component",
    "client tool",
    "approval",
    "approvals",
    "question",
    "login",
    "image",
    "audio",
    "video",
    "file",
    "data",
    "state",
    "progress",
    "refusal",
    "warning",
    "unicode",
    "usage",
    "heartbeat",
    "empty",
    "error",
    "fail",
    "incomplete",
    "reject",
    "cancel",
    "break",
];

/// The frames of a run in one protocol, as the console exports them.
async fn frames(stand: &Stand, bearer: &str, run: &str, protocol: &str) -> String {
    let export = stand.ask("GET", &format!("/api/runs/{run}/export"), bearer, &Value::Null).await.json();
    let events = export["events"].as_array().expect("events").iter();
    events.map(|event| event["frames"][protocol].as_str().unwrap_or_default()).collect()
}

/// The run that began after a sample was made, once nothing more happens in it by itself.
async fn settled(stand: &Stand, bearer: &str, protocol: &str, after: &str) -> String {
    poll_until("a run", async || {
        let list = stand.ask("GET", "/api/runs?limit=1", bearer, &Value::Null).await.json();
        let run = &list["data"][0];
        let id = run["id"].as_str().filter(|id| *id > after && run["protocol"] == protocol)?;
        let is_over = !matches!(run["state"].as_str(), Some("queued" | "running"));
        is_over.then(|| id.to_owned())
    })
    .await
}

/// So much of an answer that does not end.
async fn begin_of(stream: &mut Exchange, length: usize) -> String {
    let mut text = String::new();
    while text.len() < length {
        let event = stream.event().await.expect("an event");
        text.push_str(&event);
        text.push_str("\n\n");
    }
    text
}

#[tokio::test]
async fn the_prism_shows_the_frames_of_each_client() {
    let stand = Stand::new("", "auth = \"none\"");
    let bearer = stand.bearer(KEY).await;
    let mut differ = Vec::new();
    for (protocol, _) in MOUNTS {
        for script in SCRIPTS {
            let sample = stand.sample(&bearer, protocol, script, &[]).await;
            let mut stream = stand.open(&bearer, &sample).await;
            let run = settled(&stand, &bearer, protocol, sample["id"].as_str().expect("an id")).await;
            let shown = frames(&stand, &bearer, &run, protocol).await;
            // A2A keeps a stream open while a task waits for a login.
            let got = match (*protocol, *script) {
                ("a2a", "login") => begin_of(&mut stream, shown.len()).await,
                _ => stream.response().await.text().to_owned(),
            };
            if shown != got {
                differ.push(format!("{protocol} {script}\n--- got\n{got}\n--- shown\n{shown}\n"));
            }
        }
    }
    assert!(differ.is_empty(), "{} differ: {}", differ.len(), differ.join("\n"));
}

#[tokio::test]
async fn the_request_of_a_client_is_repeated_unchanged() {
    let stand = Stand::new("", "auth = \"none\"");
    let bearer = stand.bearer(KEY).await;
    let mut sample = stand.sample(&bearer, "a2a", "look at this", &[]).await;
    let message = &mut sample["body"]["params"]["message"];
    message["messageId"] = "a name of the client's own".into();
    message["metadata"] = json!({ "trace": [1, 2] });
    let parts = message["parts"].as_array_mut().expect("parts");
    parts.push(json!({ "url": "https://example.com/cat.png", "mediaType": "image/png", "filename": "cat.png" }));
    parts.push(json!({ "data": { "seen": true } }));
    let got = stand.open(&bearer, &sample).await.response().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let run = settled(&stand, &bearer, "a2a", sample["id"].as_str().expect("an id")).await;
    assert_eq!(frames(&stand, &bearer, &run, "a2a").await, got.text());
}

/// The events of a run up to its end, as a live stream shows them: later additions are appended.
async fn followed(stream: &mut Exchange) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    let is_last = |events: &[Value]| events.last().is_some_and(|event| event["kind"] == "run_finished");
    // After the last event come frames that belong to it, and then only what concerns other runs.
    while let Some(event) = stream.event().await {
        let (name, _, data) = read(&event);
        match (name.as_str(), events.last_mut()) {
            ("event", _) => events.push(data),
            ("more", Some(last)) => {
                for (protocol, text) in data["frames"].as_object().expect("frames") {
                    let before = last["frames"][protocol].as_str().unwrap_or_default();
                    last["frames"][protocol] = format!("{before}{}", text.as_str().expect("text")).into();
                }
                if is_last(&events) {
                    break;
                }
            }
            _ => {}
        }
    }
    events
}

#[tokio::test]
async fn a_run_of_several_turns_is_shown_later_as_it_was_shown_while_it_went_on() {
    let stand = Stand::new("", "auth = \"none\"");
    let bearer = stand.bearer(KEY).await;
    let sample = stand.sample(&bearer, "a2a", "approval", &[]).await;
    stand.open(&bearer, &sample).await.response().await;
    let run = settled(&stand, &bearer, "a2a", sample["id"].as_str().expect("an id")).await;

    let protocols: Vec<&str> = MOUNTS.iter().map(|(protocol, _)| *protocol).collect();
    let query = format!("/api/feed?run={run}&protocols={}", protocols.join(","));
    let mut stream =
        Exchange::send(stand.process.admin(), &request("GET", &query, &[("authorization", &bearer)], b"")).await;
    // What protocols write while the run waits.
    let mut waiting = String::new();
    while !waiting.starts_with("event: more") {
        waiting = stream.event().await.expect("an event");
    }
    let waiting = read(&waiting).2;
    assert!(waiting["frames"]["hitl"].as_str().expect("an answer").contains("interrupted"), "{waiting}");
    let open = stand.ask("GET", &format!("/api/pending?run={run}"), &bearer, &Value::Null).await.json();
    let decision = json!({ "items": [{ "id": open["data"][0]["item"]["id"], "decision": "accept" }] });
    assert_eq!(stand.ask("POST", &format!("/api/runs/{run}/decide"), &bearer, &decision).await.status, 202);

    let rest = followed(&mut stream).await;
    let export = stand.ask("GET", &format!("/api/runs/{run}/export"), &bearer, &Value::Null).await.json();
    let events = export["events"].as_array().expect("events");
    let turn = events.iter().rposition(|event| event["kind"] == "turn_started").expect("a second turn");
    assert!(turn > 1, "{turn}");
    for (protocol, frames) in waiting["frames"].as_object().expect("frames") {
        let then = events[turn - 1]["frames"][protocol].as_str().expect("frames");
        assert!(then.ends_with(frames.as_str().expect("text")), "{protocol}: {then} {frames}");
    }
    assert_eq!(rest.len(), events.len() - turn);
    for (live, later) in rest.iter().zip(&events[turn..]) {
        assert_eq!(live, later);
    }
    let last = events.last().expect("events");
    assert!(last["frames"]["hitl"].as_str().expect("an answer").contains("completed"), "{last}");
}
