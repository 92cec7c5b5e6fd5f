//! The console's API and the rights to it. Not here: the page in a browser (the suite `console`).

use std::path::Path;

use serde_json::{Value, json};

use crate::support::agent::{approval_request, text_reply};
use crate::support::gateway::{JSON, ROUTE, agent, user_turn};
use crate::support::http::Response;
use crate::support::process::{Process, binary};
use crate::support::upstream::{Reply, Upstream};

pub(crate) const KEY: &str = "an-admin-key-of-at-least-32-characters";
const SOME_RUN: &str = "00000000-0000-7000-8000-000000000000";

/// A gateway with a console, callers of both roles, and an agent.
pub(crate) struct Stand {
    pub(crate) process: Process,
    pub(crate) folder: tempfile::TempDir,
}

impl Stand {
    pub(crate) fn new(upstream: &Upstream, admin: &str) -> Self {
        Self::with_route(upstream, admin, ROUTE)
    }

    /// With another route than that of the Agent API.
    pub(crate) fn with_route(upstream: &Upstream, admin: &str, route: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n\
             [auth]\nkeys = \"keys.toml\"\n[callers.vera]\nconsole = \"view\"\n[callers.ada]\nconsole = \"act\"\n\
             [admin]\nlisten = \"127.0.0.1:0\"\nkey = {{ env = \"ADMIN_KEY\" }}\n{admin}\n{}{}",
            agent("friday", &upstream.url("/process"), "", ""),
            route.trim_end().to_owned() + "\nauth = \"none\"\n",
        );
        std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
        let mut command = binary(folder.path());
        command.args(["--log", "error"]).env("ADMIN_KEY", KEY).stderr(std::process::Stdio::null());
        Self { process: Process::spawn(command), folder }
    }

    /// A key of a caller, which the gateway accepts within a second.
    pub(crate) async fn key_of(&self, caller: &str) -> String {
        let key = new_key(self.folder.path(), caller);
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        key
    }

    /// Lets another caller view, by a reload.
    pub(crate) async fn allow(&self, caller: &str) {
        let file = self.folder.path().join("gateway.toml");
        let config = std::fs::read_to_string(&file).expect("the file");
        let table = format!("[callers.{caller}]\nconsole = \"view\"\n[callers.vera]");
        std::fs::write(&file, config.replace("[callers.vera]", &table)).expect("a file");
        let reloaded = self.ask("POST", "/api/reload", &format!("Bearer {KEY}"), &json!({})).await;
        assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    }

    pub(crate) async fn sign_in(&self, key: &str) -> Response {
        let body = json!({ "key": key }).to_string();
        self.process.operate("POST", "/api/session", JSON, body.as_bytes()).await
    }

    pub(crate) async fn bearer(&self, key: &str) -> String {
        let answer = self.sign_in(key).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        format!("Bearer {}", answer.json()["bearer"].as_str().expect("a bearer"))
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, bearer: &str, body: &Value) -> Response {
        let headers = [("authorization", bearer), ("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.process.operate(method, path, &headers, body.as_bytes()).await
    }

    /// Runs the agent once, and returns the id of the run.
    pub(crate) async fn run(&self, text: &str) -> String {
        let body = user_turn(text).to_string();
        let mut stream = self.process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await;
        let frames = stream.frames().await;
        frames[0]["id"].as_str().expect("an id").trim_start_matches("response_").to_owned()
    }
}

fn new_key(folder: &Path, caller: &str) -> String {
    let made = binary(folder).args(["key", "new", caller]).output().expect("it starts");
    String::from_utf8(made.stdout).expect("text").trim().to_owned()
}

#[tokio::test]
async fn a_role_has_only_its_rights() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let (vera, ada) = (stand.key_of("vera").await, stand.key_of("ada").await);
    let (view, act) = (stand.bearer(&vera).await, stand.bearer(&ada).await);
    let operator = format!("Bearer {KEY}");
    let run = format!("/api/runs/{SOME_RUN}");
    let decide = json!({ "items": [{ "id": "x", "decision": "accept" }] });

    for path in
        ["/api/session", "/api/runs", "/api/pending", "/api/audit", "/api/gateway", "/api/agents", "/api/routes"]
    {
        for (bearer, status) in [("Bearer wrong", 401), (&*view, 200), (&*act, 200), (&*operator, 200)] {
            let answer = stand.ask("GET", path, bearer, &Value::Null).await;
            assert_eq!(answer.status, status, "{path} {bearer}: {}", answer.text());
        }
        assert_eq!(stand.process.operate("GET", path, &[], b"").await.status, 401, "{path}");
    }
    for (method, path, body) in [
        ("POST", format!("{run}/decide"), decide.clone()),
        ("POST", format!("{run}/cancel"), json!({})),
        ("DELETE", run.clone(), Value::Null),
        ("POST", "/api/reload".to_owned(), json!({})),
        ("POST", "/api/config/check".to_owned(), json!({ "text": "" })),
    ] {
        assert_eq!(stand.ask(method, &path, &view, &body).await.status, 403, "{method} {path}");
        let status = stand.ask(method, &path, &act, &body).await.status;
        assert!(status == 404 || status == 200, "{method} {path}: {status}");
    }
    let checked = stand.ask("POST", "/api/config/check", &act, &json!({ "text": "[sever]" })).await.json();
    assert_eq!(checked["errors"][0]["line"], 1, "{checked}");

    assert_eq!(stand.ask("DELETE", "/api/session", &view, &Value::Null).await.status, 204);
    assert_eq!(stand.ask("GET", "/api/runs", &view, &Value::Null).await.status, 401, "signed out");
}

#[tokio::test]
async fn only_keys_with_a_role_sign_in_and_guesses_are_slowed_down() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let other = stand.key_of("someone-else").await;
    let refused = stand.sign_in(&other).await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (401, Some("AUTH_FAILED")), "{}", refused.text());
    let body = json!({ "key": KEY }).to_string();
    for (name, value, status) in [("origin", "https://evil.example", 403), ("sec-fetch-site", "cross-site", 403)] {
        let headers = [JSON[0], (name, value)];
        let answer = stand.process.operate("POST", "/api/session", &headers, body.as_bytes()).await;
        assert_eq!(answer.status, status, "{name}");
    }
    let unread =
        stand.process.operate("POST", "/api/session", &[("content-type", "text/plain")], body.as_bytes()).await;
    assert_eq!(unread.status, 415);

    let mut statuses = Vec::new();
    for _ in 0..15 {
        statuses.push(stand.sign_in("il_wrong").await.status);
    }
    assert!(statuses.contains(&401) && statuses.last() == Some(&429), "{statuses:?}");
}

#[tokio::test]
async fn a_decision_is_accepted_once_and_the_agent_continues() {
    let upstream = Upstream::in_order([approval_request("ask-1"), text_reply(&["done"])]);
    let stand = Stand::new(&upstream, "");
    let bearer = stand.bearer(KEY).await;
    let id = stand.run("remove the file").await;
    let pending = stand.ask("GET", "/api/pending", &bearer, &Value::Null).await.json();
    let item = &pending["data"][0];
    assert_eq!((item["item"]["id"].as_str(), item["run"].as_str()), (Some("ask-1"), Some(&*id)), "{pending}");
    let listed = stand.ask("GET", "/api/runs?state=pending", &bearer, &Value::Null).await.json();
    assert_eq!((listed["total"].as_u64(), listed["data"][0]["id"].as_str()), (Some(1), Some(&*id)), "{listed}");

    let path = format!("/api/runs/{id}/decide");
    let decide = |decision: &str| json!({ "items": [{ "id": "ask-1", "decision": decision }] });
    let unclear = stand.ask("POST", &path, &bearer, &decide("perhaps")).await;
    assert_eq!((unclear.status, unclear.json()["field"].as_str()), (422, Some("items")), "{}", unclear.text());
    let edited = json!({ "items": [{ "id": "ask-1", "decision": "edit" }] });
    let edited = stand.ask("POST", &path, &bearer, &edited).await;
    assert_eq!((edited.status, edited.json()["field"].as_str()), (422, Some("arguments")), "{}", edited.text());
    let of_run = stand.ask("GET", &format!("/api/pending?run={id}"), &bearer, &Value::Null).await.json();
    assert_eq!((of_run["total"].as_u64(), of_run["data"][0]["protocol"].as_str()), (Some(1), Some("agent-api")));
    let decided = stand.ask("POST", &path, &bearer, &decide("accept")).await;
    assert_eq!(decided.status, 202, "{}", decided.text());
    let ada = stand.key_of("ada").await;
    let again = stand.ask("POST", &path, &stand.bearer(&ada).await, &decide("reject")).await;
    assert_eq!(again.status, 409, "{}", again.text());
    assert!(again.text().contains("accepted by operator"), "it says who was faster: {}", again.text());
    crate::support::poll_until("the second turn", async || (upstream.requests().len() == 2).then_some(())).await;
    assert!(
        upstream.requests()[1].json().to_string().contains("\"approve\":true"),
        "{}",
        upstream.requests()[1].json()
    );
    let pending = stand.ask("GET", "/api/pending", &bearer, &Value::Null).await.json();
    assert_eq!(pending["total"], 0, "{pending}");

    // A question shows its answer, in whichever run the answer is.
    let detail = stand.ask("GET", &format!("/api/runs/{id}"), &bearer, &Value::Null).await.json();
    let answer = &detail["answers"][0];
    assert_eq!(
        (&answer["id"], &answer["decision"], &answer["by"]),
        (&json!("ask-1"), &json!("accept"), &json!("operator"))
    );
    assert_ne!(answer["run"], *id, "{detail}");
}

#[tokio::test]
async fn a_run_shows_the_progress_of_its_notifications() {
    let upstream = Upstream::always(text_reply(&["one", "two"]));
    let receiver = Upstream::always(Reply::complete(503, &[], ""));
    let route = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a\"\nagents = [\"friday\"]\n\
        options = { push_allow = [\"127.0.0.1\"], push_allow_http = true }\n";
    let stand = Stand::with_route(&upstream, "", route);
    let bearer = stand.bearer(KEY).await;
    let body = json!({
        "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] },
        "configuration": { "taskPushNotificationConfig": { "url": receiver.url("/hook") } },
    });
    let headers = [JSON[0], ("a2a-version", "1.0")];
    let sent = body.to_string();
    let made = stand.process.open("POST", "/a2a/message:send", &headers, sent.as_bytes()).await.response().await;
    assert_eq!(made.status, 200, "{}", made.text());
    let path = format!("/api/runs/{}", made.json()["task"]["id"].as_str().expect("a task"));
    // The receiver takes nothing, and is tried again for a while.
    let detail = stand.ask("GET", &path, &bearer, &Value::Null).await.json();
    let events = detail["run"]["events"].as_u64().expect("a number");
    let delivered = detail["deliveries"][0]["delivered"].as_u64().expect("a delivery");
    assert!(delivered < events && detail["deliveries"].as_array().is_some_and(|all| all.len() == 1), "{detail}");
}

#[tokio::test]
async fn open_items_have_pages() {
    let upstream = Upstream::in_order((0..5).map(|number| approval_request(&format!("ask_{number}"))));
    let stand = Stand::new(&upstream, "");
    let bearer = stand.bearer(KEY).await;
    for number in 0..5 {
        stand.run(&format!("question {number}")).await;
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    for _ in 0..5 {
        let path = format!("/api/pending?limit=2{cursor}");
        let page = stand.ask("GET", &path, &bearer, &Value::Null).await.json();
        assert_eq!(page["total"], 5, "{page}");
        let items = page["data"].as_array().expect("items").iter();
        seen.extend(items.map(|one| one["item"]["id"].as_str().unwrap_or_default().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, (0..5).map(|number| format!("ask_{number}")).collect::<Vec<_>>());
    for (query, field) in [("cursor=1", "cursor"), ("limit=0", "limit"), ("run=x", "run"), ("color=red", "color")] {
        let refused = stand.ask("GET", &format!("/api/pending?{query}"), &bearer, &Value::Null).await;
        assert_eq!((refused.status, refused.json()["field"].as_str()), (400, Some(field)), "{query}");
    }
}

#[tokio::test]
async fn texts_are_for_those_who_may_read_them() {
    let upstream = Upstream::always(text_reply(&["a private answer"]));
    let stand = Stand::new(&upstream, "texts = \"act\"");
    let vera = stand.key_of("vera").await;
    let (view, act) = (stand.bearer(&vera).await, stand.bearer(KEY).await);
    let id = stand.run("a private question").await;
    for path in ["/api/runs".to_owned(), format!("/api/runs/{id}"), format!("/api/runs/{id}/export")] {
        assert!(stand.ask("GET", &path, &act, &Value::Null).await.text().contains("private question"), "{path}");
        let hidden = stand.ask("GET", &path, &view, &Value::Null).await;
        assert_eq!(hidden.status, 200, "{path}");
        assert!(!hidden.text().contains("private"), "{path}: {}", hidden.text());
    }
    // Only the structure and the length of each text are shown.
    for path in [format!("/api/runs/{id}/export"), format!("/api/runs/{id}/export?mask")] {
        let bearer = if path.ends_with("mask") { &act } else { &view };
        let file = stand.ask("GET", &path, bearer, &Value::Null).await.json();
        let input = &file["detail"]["turns"][0]["input"][0];
        assert_eq!((&input["role"], &input["content"][0]["text"]), (&json!("user"), &json!("*".repeat(18))), "{input}");
        let events = file["events"].as_array().expect("events").iter();
        let frames: String = events.map(|event| event["frames"]["agent-api"].as_str().unwrap_or_default()).collect();
        assert!(frames.contains(&format!("\"{}\"", "*".repeat(16))) && !frames.contains("private"), "{frames}");
    }
    assert_eq!(stand.ask("GET", "/api/runs?text=private", &view, &Value::Null).await.status, 400);
}

#[tokio::test]
async fn errors_questions_and_usage_of_agents_are_texts() {
    let failed = json!({
        "object": "response", "status": "failed", "id": "r", "error": { "code": "BROKEN", "message": "a private reason" },
        "usage": { "input_tokens": 3, "note": "a private note" },
    });
    let upstream = Upstream::in_order([approval_request("ask-1"), Reply::frames([failed.to_string()])]);
    let stand = Stand::new(&upstream, "texts = \"act\"");
    let vera = stand.key_of("vera").await;
    let (view, act) = (stand.bearer(&vera).await, stand.bearer(KEY).await);
    let asked = stand.run("remove the file").await;
    let body = user_turn("fail").to_string();
    let sent = stand.process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.response().await;
    assert!(sent.text().contains("a private reason"), "{}", sent.text());
    let runs = stand.ask("GET", "/api/runs?state=failed", &act, &Value::Null).await.json();
    let broken = runs["data"][0]["id"].as_str().expect("a run").to_owned();

    let paths = ["".to_owned(), "/export".to_owned()].map(|end| format!("/api/runs/{broken}{end}"));
    for path in &paths {
        let seen = stand.ask("GET", path, &act, &Value::Null).await;
        assert!(seen.text().contains("a private reason"), "{path}: {}", seen.text());
        let hidden = stand.ask("GET", path, &view, &Value::Null).await;
        assert!(hidden.status == 200 && !hidden.text().contains("private"), "{path}: {}", hidden.text());
    }
    let masked = stand.ask("GET", &format!("/api/runs/{broken}/export?mask=1"), &act, &Value::Null).await;
    assert!(!masked.text().contains("private") && masked.text().contains("BROKEN"), "{}", masked.text());

    let item = async |bearer: &str| {
        let pending = stand.ask("GET", &format!("/api/pending?run={asked}"), bearer, &Value::Null).await.json();
        pending["data"][0].clone()
    };
    let (seen, hidden) = (item(&act).await, item(&view).await);
    assert_ne!(seen["item"]["arguments"], Value::Null, "{seen}");
    for field in ["message", "arguments", "reason"] {
        assert_eq!(hidden["item"][field], Value::Null, "{field}: {hidden}");
    }
    assert_eq!(hidden["schema"], Value::Null, "{hidden}");
}

#[tokio::test]
async fn the_page_is_served_with_a_policy_and_only_when_it_has_changed() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let page = stand.process.operate("GET", "/", &[], b"").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").expect("a policy").to_owned();
    assert!(policy.contains("default-src 'none'") && policy.contains("require-trusted-types-for 'script'"), "{policy}");
    let etag = page.header("etag").expect("an etag").to_owned();
    let known = stand.process.operate("GET", "/", &[("if-none-match", &etag)], b"").await;
    assert_eq!((known.status, known.text().len()), (304, 0));
    let packed = stand.process.operate("GET", "/app.js", &[("accept-encoding", "gzip")], b"").await;
    assert_eq!((packed.status, packed.header("content-encoding")), (200, Some("gzip")));
    for path in ["/nothing.js", "/../Cargo.toml", "/vendor", "/console/app.js"] {
        assert_ne!(stand.process.operate("GET", path, &[], b"").await.status, 200, "{path}");
    }

    let without = Stand::new(&upstream, "console = false");
    for path in ["/", "/app.js", "/api/pending", "/api/session"] {
        let status =
            without.process.operate("GET", path, &[("authorization", &format!("Bearer {KEY}"))], b"").await.status;
        assert_eq!(status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_list_has_pages_and_names_unreadable_runs() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&upstream, "");
    let bearer = stand.bearer(KEY).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(stand.run(&format!("question {number}")).await);
    }
    let (mut seen, mut next) = (Vec::new(), String::new());
    for _ in 0..5 {
        let page = stand.ask("GET", &format!("/api/runs?limit=2&cursor={next}"), &bearer, &Value::Null).await.json();
        assert_eq!(page["total"], 5, "{page}");
        seen.extend(
            page["data"].as_array().expect("runs").iter().map(|run| run["id"].as_str().unwrap_or("").to_owned()),
        );
        match page["next"].as_str() {
            Some(cursor) => cursor.clone_into(&mut next),
            None => break,
        }
    }
    seen.reverse();
    assert_eq!(seen, ids);
    let found = stand.ask("GET", "/api/runs?text=QUESTION%203", &bearer, &Value::Null).await.json();
    assert_eq!((found["total"].as_u64(), found["data"][0]["id"].as_str()), (Some(1), Some(&*ids[3])), "{found}");
    for query in ["limit=0", "limit=201", "state=done", "cursor=x", "since=x", "color=red"] {
        let refused = stand.ask("GET", &format!("/api/runs?{query}"), &bearer, &Value::Null).await;
        assert_eq!(refused.status, 400, "{query}: {}", refused.text());
    }
}

#[tokio::test]
async fn a_failed_run_shows_the_answer_of_the_agent_to_those_who_may_read_texts() {
    let upstream = Upstream::always(Reply::complete(500, JSON, r#"{"error":{"message":"CUDA out of memory"}}"#));
    let stand = Stand::new(&upstream, "texts = \"act\"");
    let (view, act) = (stand.key_of("vera").await, stand.key_of("ada").await);
    let (view, act) = (stand.bearer(&view).await, stand.bearer(&act).await);
    let body = user_turn("work").to_string();
    let answer = stand.process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.response().await;
    assert!(!answer.text().contains("CUDA"), "clients do not see it: {}", answer.text());

    let runs = stand.ask("GET", "/api/runs?state=failed", &act, &Value::Null).await.json();
    let run = runs["data"][0]["id"].as_str().expect("a failed run").to_owned();
    let path = format!("/api/runs/{run}");
    let detail = stand.ask("GET", &path, &act, &Value::Null).await.json();
    let error = &detail["turns"][0]["error"];
    assert_eq!(error["status"], 500, "{detail}");
    let text = error["detail"].as_str().expect("a detail");
    assert!(text.contains("CUDA out of memory") && text.contains(&upstream.url("/process")), "{text}");
    let advice = detail["advice"].as_str().expect("advice");
    assert!(advice.contains("log") && !advice.contains("headers"), "{advice}");
    let export = stand.ask("GET", &format!("{path}/export"), &act, &Value::Null).await;
    assert!(export.text().contains("CUDA out of memory"), "{}", export.text());

    let hidden = stand.ask("GET", &path, &view, &Value::Null).await.json();
    assert_eq!(hidden["turns"][0]["error"]["status"], 500, "{hidden}");
    assert!(!hidden.to_string().contains("CUDA"), "{hidden}");

    let code = detail["run"]["code"].as_str().expect("a code");
    for text in [code.to_owned(), code.to_lowercase(), format!("chatcmpl-{}", run.replace('-', ""))] {
        let found = stand.ask("GET", &format!("/api/runs?text={text}"), &act, &Value::Null).await.json();
        assert_eq!(found["data"][0]["id"], *run, "{text}: {found}");
    }
    let other = stand.ask("GET", "/api/runs?text=UPSTREAM_TIMEOUT", &act, &Value::Null).await.json();
    assert_eq!(other["total"], 0, "{other}");
}
