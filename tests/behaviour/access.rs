//! Keys and limits as callers see them, on every protocol: refusals, rates, and open connections whose key is revoked.
//!
//! Not here: verification of keys (`crates/callers/src`), and ownership (`owners.rs`).

use std::path::Path;
use std::time::Duration;

use interlingua::keys::{NewKey, append, revoke};
use serde_json::json;

use crate::support::gateway::{DEMO, Gateway, user_turn};
use crate::support::http::{Exchange, Response};
use crate::support::pairs::{posts, routes_with};
use crate::support::socket::{Socket, SocketFrame};

const BODY: &str = "content-type: application/json\r\ncontent-length: 10\r\n";

async fn gateway(folder: &Path, auth: &str, own: &str) -> Gateway {
    let source = format!("[store]\nkind = \"memory\"\n{auth}\n{DEMO}{}", routes_with(own));
    Gateway::in_folder(&source, folder.to_owned()).await
}

/// The time now, in milliseconds since 1970.
fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_millis()).expect("a time")
}

fn new_key(folder: &Path) -> NewKey {
    let key = NewKey::generate().expect("a key");
    append(&folder.join("keys.toml"), &key, "ann", now(), None).expect("the key is added");
    key
}

async fn raw(gateway: &Gateway, bytes: &str) -> Response {
    Exchange::send(gateway.address, bytes.as_bytes()).await.response().await
}

#[tokio::test]
async fn a_protocol_can_write_the_challenge_for_requests_without_credentials() {
    let folder = tempfile::tempdir().expect("a folder");
    new_key(folder.path());
    let route = "[[routes]]\nprotocol = \"resender\"\npath = \"/resent/{agent}\"\n";
    let source = format!("[store]\nkind = \"memory\"\n[auth]\nkeys = \"keys.toml\"\n{DEMO}{route}");
    let gateway = Gateway::in_folder(&source, folder.path().to_owned()).await;
    let refused = raw(&gateway, &format!("POST /resent/demo HTTP/1.1\r\nhost: gateway\r\n{BODY}\r\n")).await;
    assert_eq!(refused.status, 401, "{}", refused.text());
    let challenge = "Bearer resource_metadata=\"http://gateway/resent/demo/.well-known/metadata\"";
    assert_eq!(refused.header("www-authenticate"), Some(challenge));

    // The document that it names needs no key, below the mount and in front of it.
    for path in ["/resent/demo/.well-known/metadata", "/.well-known/metadata/resent/demo"] {
        let document = raw(&gateway, &format!("GET {path} HTTP/1.1\r\nhost: gateway\r\n\r\n")).await;
        assert_eq!(
            (document.status, document.json()),
            (200, json!({ "resource": "http://gateway/resent/demo" })),
            "{path}"
        );
    }
    let other = raw(&gateway, "GET /.well-known/metadata/resent/other HTTP/1.1\r\nhost: gateway\r\n\r\n").await;
    assert_eq!(other.status, 404);
}

#[tokio::test]
async fn a_request_without_a_key_gets_no_continue() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = new_key(folder.path()).text;
    for path in posts() {
        // Failures are limited by address: each protocol has a gateway of its own.
        let gateway = gateway(folder.path(), "[auth]\nkeys = \"keys.toml\"", "").await;
        for expect in ["", "expect: 100-continue\r\n"] {
            for shown in ["", "x-api-key: il_wrong\r\n", "authorization: Basic eDp5\r\n"] {
                let head =
                    format!("POST {path} HTTP/1.1\r\nhost: gateway\r\na2a-version: 1.0\r\n{BODY}{expect}{shown}\r\n");
                let refused = raw(&gateway, &head).await;
                assert_eq!(refused.status, 401, "{path} {expect}{shown}: {}", refused.text());
                let challenge = refused.header("www-authenticate");
                assert!(challenge.is_some_and(|found| found.starts_with("Bearer")), "{path}: {challenge:?}");
            }

            // A key in the query is not read; two keys are one too many.
            let query = format!("POST {path}?key={key}&api_key={key} HTTP/1.1\r\nhost: gateway\r\n{BODY}{expect}\r\n");
            assert_eq!(raw(&gateway, &query).await.status, 401, "{path}");
            let twice = format!("x-api-key: {key}\r\nauthorization: Bearer {key}\r\n");
            let twice = format!("POST {path} HTTP/1.1\r\nhost: gateway\r\n{BODY}{expect}{twice}\r\n");
            assert_eq!(raw(&gateway, &twice).await.status, 401, "{path}");
        }

        // Without credentials the type of the body is not judged, and a foreign page gets nothing else than before.
        let typeless = format!("POST {path} HTTP/1.1\r\nhost: gateway\r\ncontent-length: 10\r\n\r\n");
        assert_eq!(raw(&gateway, &typeless).await.status, 401, "{path}");
        let foreign = format!("POST {path} HTTP/1.1\r\nhost: gateway\r\norigin: https://evil.example\r\n{BODY}\r\n");
        assert_eq!(raw(&gateway, &foreign).await.status, 403, "{path}");
        let models = gateway.open("GET", "/v1/models", &[("x-api-key", &key)], b"").await.response().await;
        assert_eq!(models.status, 200, "{path}: {}", models.text());
    }
}

#[tokio::test]
async fn the_rate_of_a_route_counts_each_request_once_and_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = gateway(folder.path(), "", "limits = { rate = \"6/m\", burst = 2 }").await;
    let first = gateway.get("/v1/models").await;
    assert_eq!((first.status, first.header("ratelimit-policy")), (200, Some("\"requests\";q=2;w=20")));
    assert!(first.header("ratelimit").is_some_and(|limit| limit.starts_with("\"requests\";r=1;t=")));
    assert_eq!(first.header("x-ratelimit-limit-requests"), Some("2"));

    // A request whose client waits for 100 is judged before, and not once more when its body comes.
    let head = "POST /v1/responses HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n\
                content-length: 2\r\nexpect: 100-continue\r\n\r\n";
    let mut waiting = Exchange::send(gateway.address, head.as_bytes()).await;
    assert_eq!(waiting.status().await, 100);
    waiting.send_next(b"{}").await;
    assert_eq!(waiting.response().await.header("x-ratelimit-remaining-requests"), Some("0"));

    let refused = gateway.get("/v1/models").await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    let pause = refused.header("retry-after").and_then(|pause| pause.parse::<u64>().ok());
    assert!(pause.is_some_and(|pause| (1..=10).contains(&pause)), "{pause:?}");
    assert!(refused.header("ratelimit").is_some_and(|limit| limit.starts_with("\"requests\";r=0;t=")));
    assert_eq!(refused.json()["error"]["code"], json!("rate_limit_exceeded"));
    // Other routes have their own.
    let other = gateway.post("/agents/demo/process", &user_turn("echo hi")).await;
    assert_eq!((other.status, other.header("x-ratelimit-limit-requests")), (200, None));
}

#[tokio::test]
async fn a_revoked_key_gets_nothing_more_through_an_open_websocket() {
    for revokes_streams in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let key = new_key(folder.path());
        let auth = format!("[auth]\nkeys = \"keys.toml\"\nrevoke_streams = {revokes_streams}");
        let gateway = gateway(folder.path(), &auth, "").await;
        let header = format!("authorization: Bearer {}\r\n", key.text);
        let (status, mut socket) = Socket::try_open(gateway.address, "/v1/responses", &header).await;
        assert_eq!(status, 101);
        let answer = socket.ask(&json!({ "model": "demo", "input": "echo hi" })).await;
        assert_eq!(answer["type"], "response.completed", "{answer}");

        let id = key.id.clone();
        revoke(&folder.path().join("keys.toml"), &id, now()).expect("it is there");
        if !revokes_streams {
            // The file is read each second.
            tokio::time::sleep(Duration::from_millis(2500)).await;
            socket.create(&json!({ "model": "demo", "input": "echo hi" })).await;
            let refused = socket.event().await;
            assert_eq!(refused["type"], "error", "{refused}");
        }
        assert_eq!(socket.next().await, SocketFrame::Close(Some(1008), "credentials are no longer valid".to_owned()));
    }
}
