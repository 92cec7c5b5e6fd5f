//! The ends of a sign-in: whatever ends it, its streams end with it. Not here: certificates (`admin_access.rs`), and
//! ages of bearers (unit tests of the sessions).

use std::time::Duration;

use serde_json::{Value, json};

use crate::admin_console::{KEY, Stand};
use crate::support::agent::{text_reply, text_reply_then_hang};
use crate::support::gateway::{JSON, user_turn};
use crate::support::http::{Exchange, request, with_timeout};
use crate::support::process::run;
use crate::support::upstream::Upstream;

/// A viewer's streams: one of all changes, one of a running run.
struct Streams(Vec<Exchange>);

impl Streams {
    async fn open(stand: &Stand, bearer: &str, run: &str) -> Self {
        let mut streams = Vec::new();
        for query in ["runs=1".to_owned(), format!("run={run}&protocols=agent-api"), format!("runs=1&run={run}")] {
            let sent = request("GET", &format!("/api/feed?{query}"), &[("authorization", bearer)], b"");
            let mut stream = Exchange::send(stand.process.admin(), &sent).await;
            assert!(stream.event().await.is_some(), "{query}");
            streams.push(stream);
        }
        Self(streams)
    }

    /// Waits until all of them have ended.
    async fn ended(self, why: &str) {
        for mut stream in self.0 {
            with_timeout(why, async { while stream.event().await.is_some() {} }).await;
        }
    }
}

/// A run that continues while its client reads it.
async fn live_run(stand: &Stand) -> (String, Exchange) {
    let body = user_turn("go on").to_string();
    let mut client = stand.process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await;
    let frames = client.read_until("hi").await;
    (frames[0]["id"].as_str().expect("an id").trim_start_matches("response_").to_owned(), client)
}

/// Replaces a text of the configuration, and reloads it.
async fn reload(stand: &Stand, from: &str, to: &str) {
    let file = stand.folder.path().join("gateway.toml");
    let config = std::fs::read_to_string(&file).expect("the file");
    assert!(config.contains(from), "{config}");
    std::fs::write(&file, config.replace(from, to)).expect("a file");
    let answer = stand.ask("POST", "/api/reload", &format!("Bearer {KEY}"), &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn streams_end_when_their_reader_signs_out() {
    let upstream = Upstream::always(text_reply_then_hang(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let bearer = stand.bearer(KEY).await;
    let (run, _client) = live_run(&stand).await;
    let streams = Streams::open(&stand, &bearer, &run).await;
    assert_eq!(stand.ask("DELETE", "/api/session", &bearer, &Value::Null).await.status, 204);
    streams.ended("streams after a sign-out").await;
}

#[tokio::test]
async fn streams_end_when_the_key_of_their_reader_is_revoked() {
    let upstream = Upstream::always(text_reply_then_hang(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let key = stand.key_of("vera").await;
    let bearer = stand.bearer(&key).await;
    let (run_id, _client) = live_run(&stand).await;
    let streams = Streams::open(&stand, &bearer, &run_id).await;
    let id = key.split('_').nth(1).expect("an id");
    assert!(run(stand.folder.path(), &["key", "revoke", id]).status.success());
    streams.ended("streams after the key was revoked").await;
    assert_eq!(stand.ask("GET", "/api/runs", &bearer, &Value::Null).await.status, 401);
}

#[tokio::test]
async fn streams_end_when_a_reload_changes_the_rights_of_their_reader() {
    let upstream = Upstream::always(text_reply_then_hang(&["hi"]));
    let stand = Stand::new(&upstream, "texts = \"all\"");
    let key = stand.key_of("vera").await;
    let bearer = stand.bearer(&key).await;
    let (run, _client) = live_run(&stand).await;

    let streams = Streams::open(&stand, &bearer, &run).await;
    reload(&stand, "texts = \"all\"", "texts = \"act\"").await;
    streams.ended("streams with texts after texts were hidden").await;

    let streams = Streams::open(&stand, &bearer, &run).await;
    reload(&stand, "[callers.vera]\nconsole = \"view\"", "[callers.vera]").await;
    streams.ended("streams after the role was taken away").await;
    assert_eq!(stand.ask("GET", "/api/runs", &bearer, &Value::Null).await.status, 401);

    // A key that is used itself, without a sign-in.
    let own = format!("Bearer {KEY}");
    let streams = Streams::open(&stand, &own, &run).await;
    let file = stand.folder.path().join("admin.key");
    std::fs::write(&file, "another-admin-key-of-at-least-32-characters").expect("a file");
    reload(&stand, "key = { env = \"ADMIN_KEY\" }", "key = { file = \"admin.key\" }").await;
    streams.ended("streams after the admin key was replaced").await;
}

#[tokio::test]
async fn queued_events_are_not_sent_after_a_sign_out() {
    let word = "private ".repeat(1 << 16);
    let upstream = Upstream::always(text_reply(&[word.as_str(); 16]));
    let stand = Stand::new(&upstream, "");
    let (reader, other) = (stand.bearer(KEY).await, stand.bearer(KEY).await);
    let id = stand.run("say much").await;
    let whole = stand.ask("GET", &format!("/api/runs/{id}/export"), &other, &Value::Null).await.body.len();

    // Streams and files have ended.
    for path in [format!("/api/feed?run={id}&protocols=agent-api"), format!("/api/runs/{id}/export")] {
        let bearer = if path.contains("feed") { &reader } else { &other };
        let sent = request("GET", &path, &[("authorization", bearer)], b"");
        let mut slow = Exchange::send_with_small_buffer(stand.process.admin(), &sent).await;
        assert!(slow.read_some(1024).await);
        assert_eq!(stand.ask("DELETE", "/api/session", bearer, &Value::Null).await.status, 204);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let read = slow.bytes().await.len();
        assert!(read < whole / 2, "{path}: {read} bytes of {whole}");
    }
}
