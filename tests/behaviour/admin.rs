//! The admin listener: its answers, and its refusals.

use serde_json::{Value, json};

use crate::support::agent::{text_reply, text_reply_then_hang};
use crate::support::gateway::{JSON, ROUTE, agent, user_turn};
use crate::support::http::{Exchange, request};
use crate::support::poll_until;
use crate::support::process::{Process, binary};
use crate::support::upstream::Upstream;

const KEY: &str = "an-admin-key-of-at-least-32-characters";

const GET_PATHS: [&str; 8] =
    ["/metrics", "/api/gateway", "/api/config", "/api/routes", "/api/agents", "/api/runs", "/api/callers", "/api/log"];

/// A process with an admin listener. `admin` is the rest of its table.
fn process(upstream: &Upstream, admin: &str) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n\
         [observe]\naudit = \"audit.jsonl\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{admin}\n{}{ROUTE}",
        agent("friday", &upstream.url("/process?token=query-token-of-friday"), "", "")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let mut command = binary(folder.path());
    command.args(["--log", "warn"]).env("ADMIN_KEY", KEY).stderr(std::process::Stdio::null());
    (folder, Process::spawn(command))
}

fn audit(folder: &tempfile::TempDir) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).expect("the audit log");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test]
async fn operators_see_active_runs_and_can_stop_them() {
    let upstream = Upstream::always(text_reply_then_hang(&["hi"]));
    let (folder, process) = process(&upstream, "console = false\ntexts = \"none\"");
    let body = user_turn("a private question");
    let mut stream = process.open("POST", "/agents/friday/process", JSON, body.to_string().as_bytes()).await;
    stream.read_until("hi").await;

    let runs = process.operate("GET", "/api/runs?agent=friday&limit=10", &[], b"").await;
    assert!(!runs.text().contains("private question"), "{}", runs.text());
    let runs = runs.json();
    let run = &runs["data"][0];
    assert_eq!((run["agent"].as_str(), run["state"].as_str()), (Some("friday"), Some("running")), "{run}");
    assert_eq!((run["text"].clone(), run["protocol"].as_str()), (Value::Null, Some("agent-api")), "{run}");
    assert_eq!(process.operate("GET", "/api/runs?agent=other", &[], b"").await.json()["data"], json!([]));

    let id = run["id"].as_str().expect("an id").to_owned();
    let canceled = process.operate("POST", &format!("/api/runs/{id}/cancel"), &[], b"").await;
    assert_eq!(canceled.status, 202, "{}", canceled.text());
    let last = stream.frames().await.pop().expect("an end");
    assert_eq!(last["status"], "canceled", "{last}");
    poll_until("the entry", async || audit(&folder).into_iter().find(|entry| entry["what"] == "run_canceled")).await;
    let missing = process.operate("POST", "/api/runs/00000000-0000-7000-8000-000000000000/cancel", &[], b"").await;
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn everything_is_shown_without_secrets() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let (_folder, process) = process(&upstream, "key = { env = \"ADMIN_KEY\" }");
    let key = format!("Bearer {KEY}");
    let headers = [("authorization", key.as_str())];
    for path in GET_PATHS {
        let response = process.operate("GET", path, &headers, b"").await;
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        assert_eq!(response.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert!(!response.text().contains(KEY), "{path}: {}", response.text());
        assert!(!response.text().contains("query-token-of-friday"), "{path}: {}", response.text());
    }

    let config = process.operate("GET", "/api/config", &headers, b"").await.json();
    assert_eq!(config["in_force"]["agents"][0]["name"], "friday");
    assert_eq!(config["in_force"]["admin"]["key"], true);
    let routes = process.operate("GET", "/api/routes", &headers, b"").await.json();
    assert_eq!(routes["data"][0]["path"], "/agents/friday", "{routes}");
    let ready = process.operate("GET", "/readyz", &[], b"").await;
    assert_eq!((ready.status, ready.json()["reasons"].clone()), (200, json!([])), "probes need no key");
}

#[tokio::test]
async fn a_client_without_the_key_or_a_foreign_page_is_refused_everywhere() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let (folder, process) = process(&upstream, "key = { env = \"ADMIN_KEY\" }");
    let key = format!("Bearer {KEY}");
    let key = ("authorization", key.as_str());
    let paths = GET_PATHS.iter().map(|path| ("GET", *path)).chain([
        ("POST", "/api/reload"),
        ("PUT", "/api/log"),
        ("POST", "/api/runs/00000000-0000-7000-8000-000000000000/cancel"),
    ]);
    for (method, path) in paths {
        let status = async |headers: &[(&str, &str)]| process.operate(method, path, headers, b"").await.status;
        assert_eq!(status(&[key, ("origin", "https://evil.example")]).await, 403, "{path}");
        assert_eq!(status(&[key, ("origin", "null")]).await, 403, "{path}");
        assert_eq!(status(&[key, ("sec-fetch-site", "cross-site")]).await, 403, "{path}");
        assert_eq!(status(&[]).await, 401, "{path}");
        assert_eq!(status(&[key, key]).await, 401, "{path}: two credentials");
        let with_query = format!("{path}?key={KEY}");
        assert_eq!(process.operate(method, &with_query, &[], b"").await.status, 401, "{path}: a key in the query");
        assert_eq!(process.operate("DELETE", path, &[key], b"").await.status, 405, "{path}");

        let rebound = String::from_utf8(request(method, path, &[key], b"")).expect("text");
        let rebound = rebound.replacen("host: localhost", "host: rebound.example", 1);
        let response = Exchange::send(process.admin(), rebound.as_bytes()).await.response().await;
        assert_eq!(response.status, 421, "{path}");
    }
    let unauthorized = process.operate("GET", "/metrics", &[], b"").await;
    assert_eq!(unauthorized.header("www-authenticate"), Some("Bearer"));
    assert_eq!(process.operate("GET", "/metrics", &[("origin", "http://localhost"), key], b"").await.status, 200);

    // The endpoints of clients know no path of operators.
    assert_eq!(process.open("GET", "/metrics", &[], b"").await.response().await.status, 404);
    let mut statuses = Vec::new();
    for _ in 0..12 {
        let wrong = ("authorization", "Bearer wrong-key-wrong-key-wrong-key-wrong");
        statuses.push(process.operate("GET", "/metrics", &[wrong], b"").await.status);
    }
    assert_eq!((statuses[0], statuses[11]), (401, 429), "{statuses:?}");
    poll_until("the entries", async || {
        let refused = |entry: &&Value| entry["what"] == "credential_refused";
        audit(&folder).iter().find(refused).cloned()
    })
    .await;
}

#[tokio::test]
async fn the_log_level_changes_while_the_gateway_runs() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let (folder, process) = process(&upstream, "console = false");
    assert_eq!(process.operate("GET", "/api/log", &[], b"").await.json(), json!({ "filter": "warn" }));
    let set = async |filter: &str| {
        process.operate("PUT", "/api/log", JSON, json!({ "filter": filter }).to_string().as_bytes()).await
    };
    assert_eq!(set("interlingua=nonsense").await.status, 400);
    assert_eq!(set("info,interlingua::engine=debug").await.status, 200);
    let now = process.operate("GET", "/api/log", &[], b"").await.json();
    assert_eq!(now["filter"], "info,interlingua::engine=debug");
    let entry = poll_until("the entry", async || audit(&folder).into_iter().find(|entry| entry["what"] == "log_level"));
    assert_eq!(entry.await["detail"], "info,interlingua::engine=debug");

    let text = [("content-type", "text/plain")];
    assert_eq!(process.operate("PUT", "/api/log", &text, b"{\"filter\":\"info\"}").await.status, 415);
    let large = vec![b' '; 65 << 10];
    assert_eq!(process.operate("PUT", "/api/log", JSON, &large).await.status, 413);
}
