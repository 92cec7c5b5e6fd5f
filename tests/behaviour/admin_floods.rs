//! Floods of requests from readers and strangers: the limits of the admin listener, and the entries in the audit log.
//! Not here: slow and silent clients (`admin_access.rs`).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::admin_console::{KEY, Stand};
use crate::admin_feed::read;
use crate::support::agent::text_reply;
use crate::support::gateway::JSON;
use crate::support::http::{Exchange, request};
use crate::support::poll_until;
use crate::support::upstream::Upstream;

async fn follow(stand: &Stand, bearer: &str, query: &str) -> Exchange {
    let sent = request("GET", &format!("/api/feed?{query}"), &[("authorization", bearer)], b"");
    Exchange::send(stand.process.admin(), &sent).await
}

/// All frames of a finished run in one protocol, as a stream has them.
async fn streamed(stand: &Stand, bearer: &str, run: &str, protocols: &str, protocol: &str) -> String {
    let mut stream = follow(stand, bearer, &format!("run={run}&protocols={protocols}")).await;
    let (mut frames, mut is_over, mut after) = (String::new(), false, 0);
    while let Some(event) = stream.event().await {
        let (name, _, data) = read(&event);
        if name != "event" && name != "more" {
            // Frames that belong to the last event may follow one change of something else.
            after += u32::from(is_over);
            if after > 1 {
                break;
            }
            continue;
        }
        // A parsed object shows a repeated key once, so the text of the event is searched.
        assert!(event.matches(&format!("\"{protocol}\":\"")).count() <= 1, "one pane for each protocol: {event}");
        frames.push_str(data["frames"][protocol].as_str().unwrap_or_default());
        is_over = is_over || data["kind"] == "run_finished";
    }
    frames
}

#[tokio::test]
async fn a_protocol_that_is_named_many_times_is_encoded_once() {
    let upstream = Upstream::always(text_reply(&["one ", "two ", "three"]));
    let stand = Stand::new(&upstream, "");
    let bearer = stand.bearer(KEY).await;
    let id = stand.run("count").await;
    let once = streamed(&stand, &bearer, &id, "agent-api", "agent-api").await;
    assert!(once.contains("three"), "{once}");
    let many = format!("agent-api{}{}", ",agent-api".repeat(1000), ",unknown".repeat(1000));
    assert_eq!(streamed(&stand, &bearer, &id, &many, "agent-api").await, once);
}

#[tokio::test]
async fn a_long_run_is_shown_whole_to_several_readers_and_the_listener_answers_meanwhile() {
    // Long enough that its events are encoded by themselves.
    let words: Vec<String> = (0..40).map(|number| format!("{number} \"ü\" {}\n", "x".repeat(100_000))).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let upstream = Upstream::always(text_reply(&words));
    let route = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nagents = [\"friday\"]\n";
    let stand = Stand::with_route(&upstream, "", route);
    let bearer = stand.bearer(KEY).await;
    let body = json!({ "model": "friday", "input": "say much", "stream": true }).to_string();
    let got = stand.process.open("POST", "/v1/responses", JSON, body.as_bytes()).await.response().await;
    assert_eq!(got.status, 200);
    let runs = stand.ask("GET", "/api/runs", &bearer, &Value::Null).await.json();
    let id = runs["data"][0]["id"].as_str().expect("a run").to_owned();

    let export = async {
        let file = stand.ask("GET", &format!("/api/runs/{id}/export"), &bearer, &Value::Null).await.json();
        let events = file["events"].as_array().expect("events").clone();
        events.iter().map(|event| event["frames"]["responses"].as_str().unwrap_or_default()).collect::<String>()
    };
    let probes = async {
        for _ in 0..20 {
            let began = Instant::now();
            assert_eq!(stand.process.operate("GET", "/readyz", &[], b"").await.status, 200);
            assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        }
    };
    let (one, other, exported, ()) = tokio::join!(
        streamed(&stand, &bearer, &id, "agent-api,responses", "responses"),
        streamed(&stand, &bearer, &id, "responses", "responses"),
        export,
        probes,
    );
    assert!(exported.contains("39 \\\"ü\\\""), "the whole answer");
    assert!(one == exported && other == exported, "{} {} {}", one.len(), other.len(), exported.len());
}

#[tokio::test]
async fn one_person_does_not_take_all_streams() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let (vera, ada) = (stand.key_of("vera").await, stand.key_of("ada").await);
    let (view, act) = (stand.bearer(&vera).await, stand.bearer(&ada).await);
    // Another sign-in of the same person is no other person.
    let again = stand.bearer(&vera).await;
    let mut streams = Vec::new();
    for number in 0..16 {
        let mut stream = follow(&stand, if number % 2 == 0 { &view } else { &again }, "").await;
        assert_eq!(stream.status().await, 200);
        streams.push(stream);
    }
    for bearer in [&view, &again] {
        let refused = follow(&stand, bearer, "").await.response().await;
        assert_eq!(refused.status, 503, "{}", refused.text());
    }
    assert_eq!(follow(&stand, &act, "").await.status().await, 200);
    assert_eq!(stand.process.operate("GET", "/readyz", &[], b"").await.status, 200);
    streams.pop();
    poll_until("room", async || (follow(&stand, &view, "").await.status().await == 200).then_some(())).await;
}

#[tokio::test]
async fn many_sign_ins_of_one_person_end_none_of_another() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let vera = stand.key_of("vera").await;
    let view = stand.bearer(&vera).await;
    let first = stand.bearer(KEY).await;
    for _ in 0..101 {
        stand.bearer(KEY).await;
    }
    assert_eq!(stand.ask("GET", "/api/session", &first, &Value::Null).await.status, 401);
    assert_eq!(stand.ask("GET", "/api/session", &view, &Value::Null).await.status, 200);
}

#[tokio::test]
async fn half_open_connections_do_not_keep_probes_out() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let mut open = Vec::new();
    for number in 0..300 {
        let sent: &[u8] = if number % 2 == 0 { b"GET /readyz HTTP/1.1\r\nhost: loc" } else { b"" };
        open.push(Exchange::send(stand.process.admin(), sent).await);
        if number % 50 == 49 {
            assert_eq!(stand.process.operate("GET", "/readyz", &[], b"").await.status, 200, "{number}");
        }
    }
}

#[tokio::test]
async fn callers_without_a_key_cannot_flood_the_audit_log() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "[observe]\naudit = \"audit.jsonl\"");
    let bearer = stand.bearer(KEY).await;
    let path = format!("/api/{}", "a".repeat(4000));
    for _ in 0..400 {
        let headers = [("origin", "https://evil.example")];
        assert_eq!(stand.process.operate("GET", &path, &headers, b"").await.status, 403);
        let rebound = String::from_utf8(request("GET", &path, &[], b"")).expect("text");
        let rebound = rebound.replacen("host: localhost", "host: rebound.example", 1);
        assert_eq!(Exchange::send(stand.process.admin(), rebound.as_bytes()).await.status().await, 421);
    }
    // The listener of clients, too, once keys are asked for: here the refusals of the admin listener stand for them.
    for _ in 0..300 {
        let wrong = stand.process.operate("GET", "/api/runs", &[], b"").await.status;
        assert_eq!(wrong, 401);
    }

    let (mut entries, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = stand.ask("GET", &format!("/api/audit?limit=200{cursor}"), &bearer, &Value::Null).await.json();
        entries.extend(page["data"].as_array().expect("entries").clone());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert!(entries.iter().any(|entry| entry["what"] == "sign_in" && entry["who"] == "operator"), "{entries:?}");
    let refused: Vec<&Value> =
        entries.iter().filter(|entry| entry["what"] == "admin_call" || entry["what"] == "credential_refused").collect();
    assert!((3..300).contains(&refused.len()), "{}", refused.len());
    for entry in &refused {
        assert!(entry.get("who").is_none(), "no one is known: {entry}");
        assert!(entry["target"].as_str().is_none_or(|target| target.len() < 300), "{entry}");
    }
    let file = std::fs::metadata(stand.folder.path().join("audit.jsonl")).expect("the audit log").len();
    assert!(file < 200_000, "{file} bytes");
}
