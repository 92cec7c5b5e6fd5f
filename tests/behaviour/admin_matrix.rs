//! Every path of the admin listener: the role, host, origin, method, body and parameters that it takes, and no others.

use std::path::Path;

use serde_json::{Value, json};

use crate::admin_console::{KEY, Stand};
use crate::support::agent::text_reply;
use crate::support::gateway::{JSON, ROUTE, agent};
use crate::support::http::{Exchange, request};
use crate::support::process::{Process, binary};
use crate::support::upstream::Upstream;

const RUN: &str = "/api/runs/00000000-0000-7000-8000-000000000000";

/// Method, path, whether the role `act` is needed, and a method that the path does not have.
fn paths() -> Vec<(&'static str, String, bool, &'static str)> {
    let read =
        ["gateway", "config", "routes", "agents", "runs", "callers", "log", "pending", "audit", "metrics", "feed"];
    let mut paths: Vec<_> = read.iter().map(|name| ("GET", format!("/api/{name}"), false, "PATCH")).collect();
    paths.extend([
        ("GET", "/metrics".to_owned(), false, "POST"),
        ("GET", "/api/session".to_owned(), false, "PUT"),
        ("GET", RUN.to_owned(), false, "POST"),
        ("GET", format!("{RUN}/export"), false, "POST"),
        ("DELETE", RUN.to_owned(), true, "PUT"),
        ("POST", format!("{RUN}/cancel"), true, "GET"),
        ("POST", format!("{RUN}/decide"), true, "GET"),
        ("POST", "/api/agents/unknown/drain".to_owned(), true, "GET"),
        ("POST", "/api/agents/unknown/resume".to_owned(), true, "DELETE"),
        ("POST", "/api/config/check".to_owned(), true, "GET"),
        ("POST", "/api/reload".to_owned(), true, "GET"),
        ("PUT", "/api/log".to_owned(), true, "POST"),
    ]);
    paths
}

#[tokio::test]
async fn every_path_takes_its_role_host_origin_method_and_body_only() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let (vera, ada) = (stand.key_of("vera").await, stand.key_of("ada").await);
    let (view, act) = (stand.bearer(&vera).await, stand.bearer(&ada).await);
    let operator = format!("Bearer {KEY}");
    for (method, path, needs_act, wrong_method) in paths() {
        let status = async |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
            let sent = request(method, path, headers, body.as_bytes());
            let mut exchange = Exchange::send(stand.process.admin(), &sent).await;
            exchange.status().await
        };
        let what = format!("{method} {path}");
        let viewer = ("authorization", view.as_str());
        for (bearer, may) in [(&view, !needs_act), (&act, true), (&operator, true)] {
            let got = status(method, &path, &[("authorization", bearer.as_str())], "").await;
            assert_eq!(got != 403, may, "{what} as {bearer}: {got}");
            assert!(![401, 405, 415, 421].contains(&got), "{what} as {bearer}: {got}");
        }
        let key = ("authorization", operator.as_str());
        assert_eq!(status(method, &path, &[], "").await, 401, "{what}: nothing shown");
        assert_eq!(status(method, &path, &[("authorization", "Basic eDp5")], "").await, 401, "{what}: no bearer");
        for foreign in [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
            assert_eq!(status(method, &path, &[key, foreign], "").await, 403, "{what}: {foreign:?}");
        }
        assert_eq!(status(wrong_method, &path, &[key], "").await, 405, "{wrong_method} {path}");
        let rebound = String::from_utf8(request(method, &path, &[key], b"")).expect("text");
        let rebound = rebound.replacen("host: localhost", "host: rebound.example", 1);
        assert_eq!(Exchange::send(stand.process.admin(), rebound.as_bytes()).await.status().await, 421, "{what}");
        if method != "GET" {
            let form = ("content-type", "application/x-www-form-urlencoded");
            let got = status(method, &path, &[key, form], "{}").await;
            assert_eq!(got, 415, "{what}: a form");
        }
        if path != "/metrics" {
            assert_eq!(status(method, &format!("{path}?color=red"), &[key], "").await, 400, "{what}: a parameter");
        }
        if needs_act {
            assert_eq!(status(method, &path, &[viewer, JSON[0]], "{}").await, 403, "{what}: a viewer");
        }
    }
    // Who was refused, and not only that someone was.
    let audit = stand.ask("GET", "/api/audit?limit=200", &operator, &Value::Null).await.json();
    let refused = |entry: &&Value| entry["what"] == "admin_call" && entry["who"] == "vera";
    assert!(audit["data"].as_array().expect("entries").iter().any(|entry| refused(&entry)), "{audit}");
}

#[tokio::test]
async fn the_audit_log_has_pages_and_notes_whose_run_was_opened_once() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let bearer = stand.bearer(KEY).await;
    let id = stand.run("hello").await;
    for _ in 0..3 {
        assert_eq!(stand.ask("GET", &format!("/api/runs/{id}"), &bearer, &Value::Null).await.status, 200);
    }
    let all = stand.ask("GET", "/api/audit", &bearer, &Value::Null).await.json()["data"].clone();
    let all = all.as_array().expect("entries");
    let opened: Vec<&Value> = all.iter().filter(|entry| entry["what"] == "run_opened").collect();
    assert_eq!((opened.len(), opened[0]["target"].as_str()), (1, Some(&*id)), "{opened:?}");
    assert!(opened[0]["detail"].as_str().is_some_and(|detail| detail.starts_with("of ")), "{opened:?}");

    let (mut seen, mut next) = (Vec::new(), None::<String>);
    loop {
        let cursor = next.map(|next| format!("&cursor={next}")).unwrap_or_default();
        let page = stand.ask("GET", &format!("/api/audit?limit=1{cursor}"), &bearer, &Value::Null).await.json();
        seen.extend(page["data"].as_array().expect("entries").iter().cloned());
        match page["next"].as_str() {
            Some(cursor) => next = Some(cursor.to_owned()),
            None => break,
        }
    }
    assert_eq!(&seen, all);
    for query in ["limit=0", "limit=201", "cursor=x", "color=red"] {
        assert_eq!(
            stand.ask("GET", &format!("/api/audit?{query}"), &bearer, &Value::Null).await.status,
            400,
            "{query}"
        );
    }
}

#[tokio::test]
async fn on_loopback_without_a_configured_key_every_path_needs_the_key_of_the_start() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    for console in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let process = start(folder.path(), &upstream, &format!("console = {console}"));
        let key = format!("Bearer {}", process.admin_key().expect("a key"));
        let own = [("authorization", key.as_str()), JSON[0]];
        for (method, path, ..) in paths() {
            let status = async |headers: &[(&str, &str)]| {
                let sent = request(method, &path, headers, b"");
                Exchange::send(process.admin(), &sent).await.status().await
            };
            let what = format!("{method} {path}, console = {console}");
            assert_eq!(status(JSON).await, 401, "{what}: nothing shown");
            // A bearer that is over is wrong, and no guess that is counted.
            let over = format!("Bearer il_console_{}", "A".repeat(43));
            assert_eq!(status(&[("authorization", &over), JSON[0]]).await, 401, "{what}: a wrong bearer");
            assert_eq!(status(&[own[0], own[0], JSON[0]]).await, 401, "{what}: two credentials");
            let got = status(&own).await;
            assert!(![401, 403].contains(&got), "{what}: {got}");
        }
        assert_eq!(process.operate_as_is("GET", "/nothing", &[], b"").await.status, 401, "console = {console}");
        for path in ["/healthz", "/readyz"] {
            assert_eq!(process.operate_as_is("GET", path, &[], b"").await.status, 200, "{path}");
        }
        let page = process.operate_as_is("GET", "/", &[], b"").await.status;
        assert_eq!(page, if console { 200 } else { 401 }, "the page has no data");

        // A key that is shown may be a guess at that of the start.
        let guess = [("authorization", "Bearer il_guess"), JSON[0]];
        let mut statuses = Vec::new();
        for _ in 0..15 {
            statuses.push(process.operate("GET", "/api/gateway", &guess, b"").await.status);
        }
        assert!(statuses[0] == 401 && statuses.last() == Some(&429), "{statuses:?}");
    }
}

fn start(folder: &Path, upstream: &Upstream, admin: &str) -> Process {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n{admin}\n{}{ROUTE}",
        agent("friday", &upstream.url("/process"), "", "")
    );
    std::fs::write(folder.join("gateway.toml"), config).expect("a file");
    let mut command = binary(folder);
    command.args(["--log", "warn"]).env("ADMIN_KEY", KEY).stderr(std::process::Stdio::null());
    Process::spawn(command)
}

#[tokio::test]
async fn open_metrics_need_no_key_and_take_no_wrong_one() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let folder = tempfile::tempdir().expect("a folder");
    let process = start(folder.path(), &upstream, "metrics = \"open\"\nkey = { env = \"ADMIN_KEY\" }");
    let key = format!("Bearer {KEY}");
    let status = async |path: &str, headers: &[(&str, &str)]| process.operate("GET", path, headers, b"").await.status;
    assert_eq!(status("/metrics", &[]).await, 200);
    assert_eq!(status("/metrics", &[("authorization", &key)]).await, 200);
    assert_eq!(status("/metrics", &[("authorization", "Bearer wrong")]).await, 401);
    assert_eq!(status("/api/metrics", &[]).await, 401, "the series of the console are another path");

    // A reload takes the permission away again.
    let file = folder.path().join("gateway.toml");
    let config = std::fs::read_to_string(&file).expect("the file").replace("metrics = \"open\"\n", "");
    std::fs::write(&file, config).expect("a file");
    let reloaded = process.operate("POST", "/api/reload", &[("authorization", &key), JSON[0]], b"").await;
    assert_eq!((reloaded.status, reloaded.json()["restart"].clone()), (200, json!([])), "{}", reloaded.text());
    assert_eq!(status("/metrics", &[]).await, 401);
}

#[tokio::test]
async fn a_reload_never_leaves_the_listener_without_a_key_and_a_configured_one_replaces_that_of_the_start() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let folder = tempfile::tempdir().expect("a folder");
    let process = start(folder.path(), &upstream, "");
    let (start_key, key) = (format!("Bearer {}", process.admin_key().expect("a key")), format!("Bearer {KEY}"));
    let file = folder.path().join("gateway.toml");
    let without = std::fs::read_to_string(&file).expect("the file");
    let with = without.replace("[admin]\n", "[admin]\nkey = { env = \"ADMIN_KEY\" }\n");
    let status = async |key: &str| process.operate("GET", "/api/gateway", &[("authorization", key)], b"").await.status;
    let reload = async |key: &str| {
        let answer = process.operate("POST", "/api/reload", &[("authorization", key), JSON[0]], b"").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["restart"].clone()
    };

    std::fs::write(&file, with).expect("a file");
    assert_eq!(reload(&start_key).await, json!([]));
    assert_eq!((status(&start_key).await, status(&key).await), (401, 200));
    std::fs::write(&file, without).expect("a file");
    assert_eq!(reload(&key).await, json!(["admin.key"]));
    assert_eq!((status(&start_key).await, status(&key).await), (401, 200));
}

#[cfg(unix)]
#[tokio::test]
async fn the_key_of_the_start_is_in_a_file_of_its_owner_and_in_no_output() {
    use std::os::unix::fs::PermissionsExt as _;

    let upstream = Upstream::always(text_reply(&["hi"]));
    let folder = tempfile::tempdir().expect("a folder");
    drop(start(folder.path(), &upstream, "console = false"));
    let log = std::fs::File::create(folder.path().join("log")).expect("a file");
    let mut command = binary(folder.path());
    command.args(["--log", "debug"]).stderr(log);
    let process = Process::spawn(command);
    let (file, key) = (process.admin_key_file().expect("a file").to_owned(), process.admin_key().expect("a key"));
    let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
    assert_eq!((file.parent(), mode & 0o777), (Some(folder.path()), 0o600));
    let curl = format!("curl -H \"authorization: Bearer $(cat {})\" http://{}/", file.display(), process.admin());
    assert!(process.startup_output.contains(&curl), "{}", process.startup_output);
    assert!(!process.startup_output.contains(&key), "{}", process.startup_output);
    let logged = std::fs::read_to_string(folder.path().join("log")).expect("the log");
    assert!(!logged.contains(&key), "{logged}");

    process.terminate();
    assert!(process.wait().await.success());
    assert!(!file.exists(), "it ends with the gateway");
}

#[tokio::test]
async fn answers_match_the_description_of_the_api() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let id = stand.run("hello").await;
    let operator = format!("Bearer {KEY}");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/openapi.json");
    let text = std::fs::read_to_string(file).expect("the description");
    let description: Value = serde_json::from_str(&text).expect("the description is JSON");

    let mut checked = 0;
    for (path, methods) in description["paths"].as_object().expect("paths") {
        let schema = &methods["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        if schema.is_null() {
            continue;
        }
        // References lead to the components of the whole description.
        let mut schema = schema.clone();
        schema["components"] = description["components"].clone();
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let answer = stand.ask("GET", &path.replace("{id}", &id), &operator, &Value::Null).await;
        assert_eq!(answer.status, 200, "{path}");
        let answer = answer.json();
        let errors: Vec<String> = validator.iter_errors(&answer).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{path}: {errors:?}\n{answer}");
        checked += 1;
    }
    assert!(checked > 8, "only {checked} answers were checked");
}
