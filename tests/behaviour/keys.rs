//! API keys: admission over every protocol and in every form of a request, and revoked keys.

use std::path::Path;
use std::time::{Duration, Instant};

use interlingua::keys::{NewKey, append, revoke};
use serde_json::json;

use crate::support::callers::comparable;
use crate::support::gateway::{DEMO, Gateway, ROUTE, user_turn_in};
use crate::support::http::Response;
use crate::support::pairs::{ROUTES, posts};
use crate::support::poll_until;
use crate::support::process::Process;

/// The time now, in milliseconds since 1970.
fn now() -> u64 {
    interlingua::clock::now()
}

/// Makes a key for a caller, in the file of this folder.
fn new_key(folder: &Path, caller: &str, expires: Option<u64>) -> NewKey {
    let key = NewKey::generate().expect("a key");
    append(&folder.join("keys.toml"), &key, caller, now(), expires).expect("the key is added");
    key
}

/// A gateway with keys, in this folder.
async fn gateway(folder: &Path, more: &str) -> Gateway {
    let store = if more.contains("[store]") { "" } else { "[store]\nkind = \"memory\"\n" };
    let source = format!("{store}[auth]\nkeys = \"keys.toml\"\n{more}\n{DEMO}{ROUTES}");
    Gateway::in_folder(&source, folder.to_owned()).await
}

async fn send(gateway: &Gateway, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let mut all = vec![("content-type", "application/json"), ("a2a-version", "1.0")];
    all.extend(headers);
    gateway.open(method, path, &all, body.as_bytes()).await.response().await
}

async fn post(gateway: &Gateway, path: &str, key: &str) -> Response {
    let bearer = format!("Bearer {key}");
    send(gateway, "POST", path, &[("authorization", &bearer)], "{}").await
}

#[tokio::test]
async fn a_key_lets_its_caller_in_over_every_protocol() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = new_key(folder.path(), "ann", None).text;
    let gateway = gateway(folder.path(), "").await;
    for path in posts() {
        let response = post(&gateway, path, &key).await;
        assert!(![401, 403, 404].contains(&response.status), "{path}: {} {}", response.status, response.text());
        let by_header = send(&gateway, "POST", path, &[("x-api-key", &key)], "{}").await;
        assert_eq!(by_header.status, response.status, "{path}");
    }
}

#[tokio::test]
async fn every_invalid_key_gets_the_same_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = new_key(folder.path(), "ann", None).text;
    let expired = new_key(folder.path(), "ann", Some(now() - 1)).text;
    let revoked = new_key(folder.path(), "ann", None);
    revoke(&folder.path().join("keys.toml"), &revoked.id, now()).expect("revoked");
    let bearer = |key: &str| format!("Bearer {key}");
    let other_secret = format!("{}{}", &good[..16], "0".repeat(64));
    let unknown = NewKey::generate().expect("a key").text;
    let attempts = [
        vec![("authorization", bearer(&unknown))],
        vec![("authorization", bearer(&other_secret))],
        vec![("authorization", bearer(&expired))],
        vec![("authorization", bearer(&revoked.text))],
        vec![("authorization", bearer(&good)), ("x-api-key", good.clone())],
        vec![("authorization", bearer(&good)), ("authorization", bearer(&good))],
        vec![("authorization", good.clone())],
        vec![("authorization", format!("Basic {good}"))],
    ];

    for path in posts() {
        // Failures are limited by address: each protocol has a gateway of its own.
        let gateway = gateway(folder.path(), "").await;
        let reference = send(&gateway, "POST", path, &[], "{}").await;
        assert_eq!(reference.status, 401, "{path}: {}", reference.text());
        for attempt in &attempts {
            let headers: Vec<(&str, &str)> = attempt.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let refused = send(&gateway, "POST", path, &headers, "{}").await;
            assert_eq!(comparable(&refused), comparable(&reference), "{path} {:?}", attempt.len());
        }
    }

    // A key in a query is not looked at: queries end up in logs.
    let gateway = gateway(folder.path(), "").await;
    let in_query = send(&gateway, "GET", &format!("/v1/models?api_key={good}&key={good}"), &[], "").await;
    assert_eq!(in_query.status, 401);
}

#[tokio::test]
async fn many_wrong_keys_slow_down_their_address_but_not_valid_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = new_key(folder.path(), "ann", None).text;
    let gateway = gateway(folder.path(), "").await;
    let mut statuses = Vec::new();
    for _ in 0..150 {
        let wrong = NewKey::generate().expect("a key").text;
        let refused = post(&gateway, "/agents/demo/process", &wrong).await;
        if refused.status == 429 {
            assert!(refused.header("retry-after").is_some(), "{:?}", refused.headers);
        }
        statuses.push(refused.status);
    }

    assert!(statuses[..40].iter().all(|status| *status == 401), "{statuses:?}");
    assert!(statuses.contains(&429), "{statuses:?}");
    let headers = [("authorization", format!("Bearer {good}"))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(send(&gateway, "GET", "/v1/models", &headers, "").await.status, 200);
}

#[tokio::test]
async fn callers_have_only_the_listed_rights() {
    let folder = tempfile::tempdir().expect("a folder");
    let [ann, bob, eve] = ["ann", "bob", "eve"].map(|caller| new_key(folder.path(), caller, None).text);
    let gateway = gateway(
        folder.path(),
        "[callers.ann]\nprotocols = [\"responses\"]\n[callers.bob]\nagents = []\n[callers.default]\nagents = [\"demo\"]\n",
    )
    .await;
    let status = async |path: &str, key: &str| post(&gateway, path, key).await.status;
    assert_eq!(status("/agents/demo/process", &ann).await, 403);
    assert_eq!(status("/a2a/demo", &ann).await, 403);
    assert!(![401, 403].contains(&status("/v1/responses", &ann).await));
    assert_eq!(status("/agents/demo/process", &bob).await, 403);
    assert!(![401, 403].contains(&status("/agents/demo/process", &eve).await));
}

#[tokio::test]
async fn no_endpoint_answers_for_an_agent_that_its_caller_may_not_use() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = new_key(folder.path(), "ann", None).text;
    let tables = "[callers.ann]\nagents = [\"other\"]\n[agents.other]\nupstream = { protocol = \"demo\" }\n";
    let gateway = gateway(folder.path(), tables).await;
    for (path, field) in [
        ("/anthropic/v1/messages/count_tokens", "messages"),
        ("/anthropic/v1/messages", "messages"),
        ("/v1/chat/completions", "messages"),
        ("/v1/responses/input_tokens", "input"),
        ("/v1/responses/compact", "input"),
        ("/v1/responses", "input"),
    ] {
        let status = async |agent: &str| {
            let message = json!([{ "role": "user", "content": "hello" }]);
            let mut body = json!({ "model": agent, field: message });
            if field == "messages" {
                body["max_tokens"] = 9.into();
            }
            let body = body.to_string();
            let headers = [("x-api-key", key.as_str())];
            send(&gateway, "POST", path, &headers, &body).await.status
        };
        assert_eq!((status("demo").await, status("other").await), (403, 200), "{path}");
    }
}

#[tokio::test]
async fn a_key_is_known_and_refused_within_a_second_of_the_change_of_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = gateway(folder.path(), "").await;
    let models = async |key: &str| {
        let bearer = format!("Bearer {key}");
        send(&gateway, "GET", "/v1/models", &[("authorization", &bearer)], "").await.status
    };
    let until = async |key: &str, expected: u16| {
        let began = Instant::now();
        while models(key).await != expected {
            assert!(began.elapsed() < Duration::from_secs(5), "still not {expected}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        began.elapsed()
    };

    let key = new_key(folder.path(), "ann", None);
    assert!(until(&key.text, 200).await < Duration::from_secs(3));
    revoke(&folder.path().join("keys.toml"), &key.id, now()).expect("revoked");
    assert!(until(&key.text, 401).await < Duration::from_secs(3));

    // A file that cannot be used changes nothing.
    let kept = new_key(folder.path(), "ann", None);
    until(&kept.text, 200).await;
    std::fs::write(folder.path().join("keys.toml"), "[[keys]]\n").expect("written");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!((models(&kept.text).await, models(&key.text).await), (200, 401));
}

#[tokio::test]
async fn the_keys_of_a_removed_file_stay_valid_and_no_change_of_the_file_reloads_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = new_key(folder.path(), "ann", None);
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nkind = \"memory\"\n[auth]\nkeys = \"keys.toml\"\n{DEMO}{ROUTES}"
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start_logging(folder.path());
    let status = async |key: &NewKey| {
        let headers = [("x-api-key", key.text.as_str())];
        process.open("GET", "/v1/models", &headers, b"").await.response().await.status
    };
    let count = |text: &str| {
        let log = std::fs::read_to_string(folder.path().join("log")).expect("the log");
        log.lines().filter(|line| line.contains(text)).count()
    };
    let second = new_key(folder.path(), "bob", None);
    poll_until("the key to be accepted", async || (status(&second).await == 200).then_some(())).await;

    std::fs::remove_file(folder.path().join("keys.toml")).expect("removed");
    let kept = "the keys read before stay valid";
    poll_until("the log to say that the file is gone", async || (count(kept) == 1).then_some(())).await;
    assert_eq!([status(&first).await, status(&second).await], [200, 200]);

    process.hang_up();
    poll_until("the signal to arrive", async || (count("configuration reloaded") == 1).then_some(())).await;
    assert_eq!([status(&first).await, status(&second).await], [200, 200]);
    assert_eq!(count("\"trigger\":\"file\""), 0);
}

#[tokio::test]
async fn routes_without_authentication_stay_open_and_ignore_credentials() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = format!(
        "[store]\nkind = \"memory\"\n[auth]\nkeys = \"keys.toml\"\n{DEMO}{ROUTE}auth = \"none\"\n\
         [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nauth = [\"keys\"]\n"
    );
    let gateway = Gateway::in_folder(&source, folder.path().to_owned()).await;
    for headers in [&[][..], &[("authorization", "Bearer dummy")], &[("x-api-key", "a"), ("authorization", "b")]] {
        assert_eq!(send(&gateway, "GET", "/agents/demo/runs", headers, "").await.status, 200, "{headers:?}");
    }
    assert_eq!(send(&gateway, "GET", "/v1/models", &[], "").await.status, 401);
    assert_eq!(send(&gateway, "GET", "/healthz", &[], "").await.status, 200);
}

#[tokio::test]
async fn runs_of_a_caller_are_invisible_to_others_in_every_store() {
    for store in ["[store]\nkind = \"memory\"\n", "[store]\nkind = \"sqlite\"\npath = \"il.db\"\n"] {
        let folder = tempfile::tempdir().expect("a folder");
        let [ann, bob] = ["ann", "bob"].map(|caller| new_key(folder.path(), caller, None).text);
        let gateway = gateway(folder.path(), store).await;
        let runs = async |key: &str| {
            let bearer = format!("Bearer {key}");
            send(&gateway, "GET", "/agents/demo/runs", &[("authorization", &bearer)], "").await.json()
        };
        let bearer = format!("Bearer {ann}");
        let body = user_turn_in("s", "echo hello").to_string();
        let done = send(&gateway, "POST", "/agents/demo/process", &[("authorization", &bearer)], &body).await;
        assert_eq!(done.status, 200, "{}", done.text());

        let (hers, his) = (runs(&ann).await, runs(&bob).await);
        assert_eq!(his["data"], json!([]), "{his}");
        let id = hers["data"][0]["id"].as_str().unwrap_or_else(|| panic!("{hers}")).to_owned();
        let read = async |key: &str, id: &str| {
            let bearer = format!("Bearer {key}");
            send(&gateway, "GET", &format!("/agents/demo/runs/{id}"), &[("authorization", &bearer)], "").await
        };
        assert_eq!(read(&ann, &id).await.status, 200);
        assert_eq!(read(&bob, &id).await.status, 404);
    }
}
