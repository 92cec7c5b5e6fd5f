//! The playground of the console: every route through the admin listener, for persons with the role to act, as an owner
//! of its own. Not here: the page in a browser (the suite `console`), and the form of snippets.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::gateway::{DEMO, JSON, user_turn};
use crate::support::http::{Exchange, Response, request};
use crate::support::pairs::{MOUNTS, routes_with};
use crate::support::poll_until;
use crate::support::process::{Process, binary};

pub(crate) const KEY: &str = "an-admin-key-of-at-least-32-characters";

/// A gateway with all protocols, at which two people may sign in.
pub(crate) struct Stand {
    pub(crate) process: Process,
    folder: tempfile::TempDir,
}

impl Stand {
    pub(crate) fn new(server: &str, route: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n{server}\n[store]\nkind = \"memory\"\n\
             [auth]\nkeys = \"keys.toml\"\n[callers.vera]\nconsole = \"view\"\n[callers.ada]\nconsole = \"act\"\n\
             agents = []\n[admin]\nlisten = \"127.0.0.1:0\"\nkey = {{ env = \"ADMIN_KEY\" }}\n{DEMO}{}",
            routes_with(route),
        );
        std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
        let mut command = binary(folder.path());
        command.args(["--log", "error"]).env("ADMIN_KEY", KEY).stderr(std::process::Stdio::null());
        Self { process: Process::spawn(command), folder }
    }

    pub(crate) async fn bearer(&self, key: &str) -> String {
        let body = json!({ "key": key }).to_string();
        let answer = self.process.operate("POST", "/api/session", JSON, body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        format!("Bearer {}", answer.json()["bearer"].as_str().expect("a bearer"))
    }

    /// The bearer of a caller, whose key the gateway accepts within a second. Wrong keys are counted, so retries are
    /// rare.
    async fn bearer_of(&self, caller: &str) -> String {
        let key = new_key(self.folder.path(), caller);
        let body = json!({ "key": key }).to_string();
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(1200)).await;
            let answer = self.process.operate("POST", "/api/session", JSON, body.as_bytes()).await;
            if answer.status == 200 {
                return format!("Bearer {}", answer.json()["bearer"].as_str().expect("a bearer"));
            }
        }
        panic!("the key of {caller} is not known")
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, bearer: &str, body: &Value) -> Response {
        let headers = [("authorization", bearer), ("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.process.operate(method, path, &headers, body.as_bytes()).await
    }

    pub(crate) async fn sample(&self, bearer: &str, protocol: &str, text: &str, runs: &[String]) -> Value {
        let (_, path) = MOUNTS.iter().find(|(name, _)| *name == protocol).expect("a protocol");
        let wanted = json!({
            "route": path.replace("{agent}", "demo"), "protocol": protocol, "agent": "demo", "text": text, "runs": runs,
        });
        let answer = self.ask("POST", "/api/sample", bearer, &wanted).await;
        assert_eq!(answer.status, 200, "{protocol}: {}", answer.text());
        answer.json()
    }

    pub(crate) async fn open(&self, bearer: &str, sample: &Value) -> Exchange {
        let mut headers = vec![("authorization", bearer)];
        let own = sample["headers"].as_object().expect("headers").iter();
        headers.extend(own.map(|(name, value)| (name.as_str(), value.as_str().expect("text"))));
        let path = format!("/api/playground{}", sample["path"].as_str().expect("a path"));
        let body = sample["body"].to_string();
        let bytes = request(sample["method"].as_str().expect("a method"), &path, &headers, body.as_bytes());
        Exchange::send(self.process.admin(), &bytes).await
    }

    /// Says something over a protocol. Returns the answer, and the run as the console lists it.
    async fn say(&self, bearer: &str, protocol: &str, text: &str, runs: &[String]) -> (Response, Value) {
        let sample = self.sample(bearer, protocol, text, runs).await;
        let answer = self.open(bearer, &sample).await.response().await;
        assert_eq!(answer.status, 200, "{protocol}: {}", answer.text());
        let list = self.ask("GET", "/api/runs?limit=1", bearer, &Value::Null).await.json();
        (answer, list["data"][0].clone())
    }
}

fn new_key(folder: &Path, caller: &str) -> String {
    let made = binary(folder).args(["key", "new", caller]).output().expect("it starts");
    String::from_utf8(made.stdout).expect("text").trim().to_owned()
}

fn id_of(run: &Value) -> String {
    run["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_conversation_continues_over_another_protocol() {
    let stand = Stand::new("", "auth = \"none\"");
    let bearer = stand.bearer(KEY).await;
    let mut runs: Vec<String> = Vec::new();
    let mut session = Value::Null;
    // Each protocol once more after all the others.
    for (protocol, _) in MOUNTS.iter().chain(MOUNTS) {
        let (answer, run) = stand.say(&bearer, protocol, "history", &runs).await;
        let owner = run["owner"].as_str().expect("an owner");
        assert_eq!((owner, run["protocol"].as_str()), ("console::operator", Some(*protocol)), "{run}");
        if let Some(named) = answer.header("x-interlingua-run") {
            assert_eq!(named, id_of(&run), "{protocol}");
        }
        let said = format!("message {} of yours", runs.len() + 1);
        let found = stand.ask("GET", &format!("/api/runs/{}/export", id_of(&run)), &bearer, &Value::Null).await;
        let is_known = found.text().contains(&said) || runs.is_empty();
        assert!(is_known, "{protocol} after {} runs: {}", runs.len(), answer.text());
        if session.is_null() {
            session = run["session"].clone();
        }
        assert_eq!(run["session"], session, "{protocol} after {} runs", runs.len());
        runs.push(id_of(&run));
    }
}

#[tokio::test]
async fn a_route_with_own_sessions_keeps_its_conversation() {
    let stand = Stand::new("", "auth = \"none\"\nshared_sessions = false");
    let bearer = stand.bearer(KEY).await;
    let mut runs: Vec<String> = Vec::new();
    for (protocol, goes_on, said) in [
        ("agent-api", false, ""),
        ("responses", false, ""),
        ("agent-api", true, "message 2 of yours"),
        ("responses", true, "message 2 of yours"),
    ] {
        let sample = stand.sample(&bearer, protocol, "history", &runs).await;
        assert_eq!(sample["goes_on"], goes_on, "{protocol}");
        let (_, run) = stand.say(&bearer, protocol, "history", &runs).await;
        let export = stand.ask("GET", &format!("/api/runs/{}/export", id_of(&run)), &bearer, &Value::Null).await;
        assert!(export.text().contains(said), "{protocol}: {}", export.text());
        runs.push(id_of(&run));
    }
}

#[tokio::test]
async fn only_operators_send_requests_and_clients_cannot_see_them() {
    let stand = Stand::new("", "");
    let (view, act) = (stand.bearer_of("vera").await, stand.bearer_of("ada").await);
    let sample = stand.sample(&act, "agent-api", "mine", &[]).await;
    let curl = sample["snippets"]["curl"].as_str().expect("a command");
    assert!(curl.contains("Bearer $INTERLINGUA_KEY"), "{curl}");
    for (bearer, status) in [("Bearer wrong", 401), (&*view, 403), (&*act, 200)] {
        let answer = stand.open(bearer, &sample).await.response().await;
        assert_eq!(answer.status, status, "{}", answer.text());
        let answer = stand.ask("POST", "/api/sample", bearer, &json!({})).await;
        assert_eq!(answer.status, if status == 200 { 400 } else { status }, "{}", answer.text());
    }
    let (_, run) = stand.say(&act, "agent-api", "mine", &[]).await;
    assert_eq!(run["owner"], "console::ada");

    // Reading over a route is of the same owner; a client with ada's own key is another one.
    let own = stand.ask("GET", "/api/playground/agents/demo/runs", &act, &Value::Null).await;
    assert!(own.text().contains(&id_of(&run)), "{}", own.text());
    let operator = stand.bearer(KEY).await;
    let others = stand.ask("GET", "/api/playground/agents/demo/runs", &operator, &Value::Null).await;
    assert!(!others.text().contains(&id_of(&run)), "{}", others.text());
    let wanted = json!({
        "route": "/agents/demo", "protocol": "agent-api", "agent": "demo", "text": "hi", "runs": [id_of(&run)],
    });
    assert_eq!(stand.ask("POST", "/api/sample", &operator, &wanted).await.status, 404, "of another person");
    assert_eq!(stand.ask("POST", "/api/sample", &act, &wanted).await.status, 200);

    let audit = stand.ask("GET", "/api/audit", &operator, &Value::Null).await.json();
    let is_noted = |entry: &Value| {
        entry["who"] == "ada"
            && entry["detail"] == "playground"
            && entry["target"] == "/api/playground/agents/demo/process"
    };
    assert!(audit["data"].as_array().expect("entries").iter().any(is_noted), "{audit}");
    assert!(!audit.to_string().contains("mine"), "no texts");
}

#[tokio::test]
async fn requests_are_judged_as_the_route_judges_those_of_clients() {
    let stand = Stand::new("max_body = \"2 KiB\"", "auth = \"none\"\ncors = [\"*\"]");
    let bearer = stand.bearer(KEY).await;
    let path = "/api/playground/agents/demo/process";
    let large = user_turn(&"x".repeat(3000));
    assert_eq!(stand.ask("POST", path, &bearer, &large).await.status, 413);
    let headers = [("authorization", &*bearer), ("content-type", "text/plain")];
    assert_eq!(stand.process.operate("POST", path, &headers, b"{}").await.status, 415);
    assert_eq!(stand.ask("POST", path, &bearer, &json!({ "input": 5 })).await.status, 422);

    // In the words of the route's protocol, as a client gets them.
    for (method, path) in [
        ("GET", "/v1/nothing"),
        ("POST", "/anthropic/v1/nothing"),
        ("DELETE", "/agents/demo/process"),
        ("GET", "/agents/unknown/health"),
        ("GET", "/nowhere"),
        ("GET", "/v1/responses/resp_00000000000070008000000000000000"),
    ] {
        let here = stand.ask(method, &format!("/api/playground{path}"), &bearer, &Value::Null).await;
        let mut there = stand.process.open(method, path, JSON, b"").await;
        let there = there.read_response().await;
        // Ids of requests are their own.
        let words = |answer: &Response| answer.text().split("req_").next().unwrap_or_default().to_owned();
        assert_eq!((here.status, words(&here)), (there.status, words(&there)), "{method} {path}");
    }
    for path in ["/api/playground/healthz", "/api/playground", "/api/playgrounds/v1/models"] {
        assert_eq!(stand.ask("GET", path, &bearer, &Value::Null).await.status, 404, "{path}");
    }

    // No other page reads it, and it opens no sockets.
    let open = stand.ask("GET", "/api/playground/agents/demo/health", &bearer, &Value::Null).await;
    assert_eq!((open.status, open.header("access-control-allow-origin")), (200, None));
    assert!(open.header("content-security-policy").is_some() && open.header("x-request-id").is_some());
    for (name, value) in [("origin", "https://evil.example"), ("host", "evil.example")] {
        let headers = [("authorization", &*bearer), (name, value)];
        let answer = stand.process.operate("GET", "/api/playground/agents/demo/health", &headers, b"").await;
        assert!(matches!(answer.status, 400 | 403 | 421), "{name}: {}", answer.status);
    }
    assert_eq!(stand.ask("OPTIONS", path, &bearer, &Value::Null).await.status, 405);
    let upgrade = [
        ("authorization", &*bearer),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let refused = stand.process.operate("GET", "/api/playground/v1/responses", &upgrade, b"").await;
    assert_eq!(refused.status, 400, "{}", refused.text());
}

#[tokio::test]
async fn a_person_who_leaves_stops_the_run_as_any_client_does() {
    let stand = Stand::new("", "auth = \"none\"");
    let bearer = stand.bearer(KEY).await;
    let sample = stand.sample(&bearer, "ag-kit", "long 100000 20", &[]).await;
    let mut stream = stand.open(&bearer, &sample).await;
    stream.frame().await.expect("it begins");
    // Others are served meanwhile.
    let (_, run) = stand.say(&bearer, "hitl", "hello", &[]).await;
    assert_eq!(run["state"], "completed", "{run}");
    stream.reset();
    poll_until("the run has ended", async || {
        let list = stand.ask("GET", "/api/runs?protocol=ag-kit", &bearer, &Value::Null).await.json();
        (list["data"][0]["state"] == "canceled").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_stream_ends_with_the_sign_in_of_its_reader() {
    let stand = Stand::new("", "auth = \"none\"");
    let bearer = stand.bearer(KEY).await;
    let sample = stand.sample(&bearer, "agent-api", "long 100000 20", &[]).await;
    let mut stream = stand.open(&bearer, &sample).await;
    stream.frame().await.expect("it begins");
    assert_eq!(stand.ask("DELETE", "/api/session", &bearer, &Value::Null).await.status, 204);
    while stream.frame().await.is_some() {}
}

#[tokio::test]
async fn a_run_has_the_command_that_repeats_it_for_each_protocol() {
    let stand = Stand::new("", "auth = \"none\"");
    let bearer = stand.bearer(KEY).await;
    let (_, run) = stand.say(&bearer, "a2a", "it's me", &[]).await;
    let detail = stand.ask("GET", &format!("/api/runs/{}", id_of(&run)), &bearer, &Value::Null).await.json();
    for (protocol, _) in MOUNTS {
        let curl = detail["curl"][protocol].as_str().unwrap_or_default();
        assert!(curl.starts_with("curl -N 'http://127.0.0.1:") && curl.contains(r"it'\''s me"), "{protocol}: {curl}");
    }
}

#[tokio::test]
async fn a_run_whose_text_no_shell_accepts_has_no_command() {
    let stand = Stand::new("", "auth = \"none\"");
    let bearer = stand.bearer(KEY).await;
    let (_, run) = stand.say(&bearer, "a2a", &"x".repeat(100_000), &[]).await;
    let detail = stand.ask("GET", &format!("/api/runs/{}", id_of(&run)), &bearer, &Value::Null).await.json();
    assert_eq!(detail["curl"], json!({}));
}
