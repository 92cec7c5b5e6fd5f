//! The access log: exactly one line for each request, with the id that its client got.

use serde_json::{Value, json};

use crate::support::agent::{text_reply, text_reply_then_hang};
use crate::support::gateway::{JSON, ROUTE, agent, user_turn};
use crate::support::poll_until;
use crate::support::process::Process;
use crate::support::upstream::{ReceivedRequest, Reply, Upstream};

fn reply(request: &ReceivedRequest) -> Reply {
    if String::from_utf8_lossy(&request.body).contains("hang") {
        text_reply_then_hang(&["so far"])
    } else {
        text_reply(&["hi"])
    }
}

fn process(upstream: &Upstream, observe: &str) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n[observe]\n{observe}\n{}{ROUTE}",
        agent("friday", &upstream.url("/process"), "", "")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start(folder.path());
    (folder, process)
}

/// Waits for this number of lines.
async fn lines(folder: &tempfile::TempDir, count: usize) -> Vec<Value> {
    let path = folder.path().join("access.jsonl");
    let lines = poll_until("the lines", async || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        (lines.len() >= count).then_some(lines)
    });
    let lines = lines.await;
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

#[tokio::test]
async fn each_request_has_one_line_with_the_id_that_its_client_got() {
    let upstream = Upstream::with_handler(reply);
    let (folder, process) = process(&upstream, "access_log = { format = \"json\", path = \"access.jsonl\" }");
    let body = user_turn("hello").to_string();
    let mut reported = Vec::new();
    for (method, path, body) in [
        ("POST", "/agents/friday/process", body.as_bytes()),
        ("POST", "/agents/friday/process?token=in-the-query", b"no json".as_slice()),
        ("GET", "/agents/friday/nothing", b"".as_slice()),
        ("GET", "/outside", b"".as_slice()),
        ("GET", "/healthz", b"".as_slice()),
    ] {
        let response = process.open(method, path, JSON, body).await.response().await;
        let id = response.header("x-request-id").unwrap_or_else(|| panic!("{path} has no id")).to_owned();
        reported.push((id, response.status, response.body.len()));
    }

    let lines = lines(&folder, 5).await;
    for (id, status, bytes) in &reported {
        let line = lines.iter().find(|line| line["request"] == **id).unwrap_or_else(|| panic!("{id} in {lines:#?}"));
        assert_eq!(line["status"], *status, "{line}");
        assert!(line["bytes_out"].as_u64() >= Some(*bytes as u64), "{line}");
        assert_eq!(line["client"], "127.0.0.1");
    }
    let of = |index: usize| lines.iter().find(|line| line["request"] == *reported[index].0).expect("a line");
    let run = of(0);
    assert_eq!((run["outcome"].as_str(), run["agent"].as_str()), (Some("completed"), Some("friday")), "{run}");
    assert_eq!((run["route"].as_str(), run["protocol"].as_str()), (Some("/agents/friday"), Some("agent-api")));
    assert!(run["run"].is_string() && run["session"].is_string() && run["events"].as_u64() > Some(2), "{run}");
    assert_eq!(run["bytes_in"], body.len(), "{run}");
    let refused = of(1);
    assert_eq!(
        (refused["outcome"].as_str(), refused["blame"].as_str()),
        (Some("refused"), Some("client")),
        "{refused}"
    );
    assert!(refused.get("run").is_none() && refused["code"].is_string(), "{refused}");
    assert!(!std::fs::read_to_string(folder.path().join("access.jsonl")).expect("the log").contains("in-the-query"));
}

#[tokio::test]
async fn a_client_that_leaves_is_noted_and_sessions_can_be_hidden() {
    let upstream = Upstream::with_handler(reply);
    let observe = "access_log = { path = \"access.jsonl\", session = \"hashed\" }";
    let (folder, process) = process(&upstream, observe);
    let body = user_turn("hang").to_string();
    let mut stream = process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await;
    stream.read_until("so far").await;
    drop(stream);

    let line = lines(&folder, 1).await.remove(0);
    assert_eq!((line["status"].as_u64(), line["outcome"].as_str()), (Some(200), Some("canceled")), "{line}");
    assert_eq!(line["session"].as_str().map(str::len), Some(16), "{line}");
    assert!(!line["session"].as_str().unwrap_or_default().contains('-'), "{line}");
}

#[tokio::test]
async fn lines_for_people_have_the_same_facts() {
    let upstream = Upstream::with_handler(reply);
    let (folder, process) = process(&upstream, "access_log = { format = \"pretty\", path = \"access.log\" }");
    let body = user_turn("hello").to_string();
    let response = process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.response().await;
    let id = response.header("x-request-id").expect("an id").to_owned();
    let text = poll_until("the line", async || {
        let text = std::fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
        text.ends_with('\n').then_some(text)
    })
    .await;
    assert!(text.contains(" 200 POST /agents/friday/process ") && text.contains(" completed agent=friday"), "{text}");
    assert!(text.contains(&format!("request={id}")) && text.lines().count() == 1, "{text}");
}

#[tokio::test]
async fn a_line_has_the_endpoint_the_waits_and_the_retries() {
    let unavailable = Reply::complete(503, &[("retry-after", "0")], "starting");
    let upstream = Upstream::in_order([unavailable.clone(), unavailable, text_reply(&["hi"])]);
    let (folder, process) = process(&upstream, "access_log = { path = \"access.jsonl\" }");
    let body = user_turn("hello").to_string();
    process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.response().await;
    let line = lines(&folder, 1).await.remove(0);
    assert_eq!(line["endpoint"], upstream.address().to_string(), "{line}");
    assert_eq!(
        (line["retries"].as_u64(), &line["retry_reasons"]),
        (Some(2), &json!(["status 503", "status 503"])),
        "{line}"
    );
    let [queued, first, whole] = ["queued_ms", "first_event_ms", "turn_ms"].map(|name| line[name].as_u64());
    assert!(queued.is_some() && first.is_some() && whole >= first, "{line}");
}
