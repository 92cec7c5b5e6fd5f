//! A run that is damaged in the store: others are shown and closed as before.
//!
//! Not here: lists, and every kind of damage to the stores of earlier versions (`tests/upgrades`).

use std::path::Path;

use serde_json::Value;

use crate::support::agent::{approval_request, text_reply};
use crate::support::gateway::{JSON, ROUTE, agent, approval_in, user_turn_in};
use crate::support::process::Process;
use crate::support::upstream::Upstream;

/// Starts a gateway with a console and a SQLite store, which logs.
fn start(folder: &Path, upstream: &Upstream) -> Process {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nkind = \"sqlite\"\npath = \"store.db\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n{}{ROUTE}",
        agent("friday", &upstream.url("/process"), "", "")
    );
    std::fs::write(folder.join("gateway.toml"), config).expect("a file");
    Process::start_logging(folder)
}

/// Takes a turn and returns the id of its run.
async fn turn(process: &Process, body: &Value) -> String {
    let mut stream = process.open("POST", "/agents/friday/process", JSON, body.to_string().as_bytes()).await;
    let frames = stream.frames().await;
    frames[0]["id"].as_str().expect("an id").trim_start_matches("response_").to_owned()
}

async fn stop(process: Process) {
    process.terminate();
    assert_eq!(process.wait().await.code(), Some(0));
}

/// Cuts the events of a run in half.
fn damage(folder: &Path, run: &str) {
    let file = rusqlite::Connection::open(folder.join("store.db")).expect("a file");
    let run = run.replace('-', "");
    let sql = format!(
        "UPDATE lines SET bytes = substr(bytes, 1, length(bytes) / 2)
         WHERE run = (SELECT number FROM runs WHERE id = x'{run}')"
    );
    assert!(file.execute(&sql, []).expect("it is written") > 0);
}

#[tokio::test]
async fn the_console_shows_a_run_whose_answer_is_in_a_damaged_one() {
    let upstream = Upstream::in_order([approval_request("ask-1"), text_reply(&["done"])]);
    let folder = tempfile::tempdir().expect("a folder");
    let process = start(folder.path(), &upstream);
    let asks = turn(&process, &user_turn_in("s", "delete it")).await;
    let answers = turn(&process, &approval_in("s", "ask-1")).await;
    assert_ne!(asks, answers);
    stop(process).await;
    damage(folder.path(), &answers);

    let process = start(folder.path(), &upstream);
    let damaged = process.operate("GET", &format!("/api/runs/{answers}"), &[], b"").await;
    assert_eq!(damaged.status, 500, "{}", damaged.text());
    let shown = process.operate("GET", &format!("/api/runs/{asks}"), &[], b"").await;
    assert_eq!(shown.status, 200, "{}", shown.text());
}

#[tokio::test]
async fn the_log_counts_no_damaged_run_among_those_that_are_closed() {
    let upstream = Upstream::always(text_reply(&["done"]));
    let folder = tempfile::tempdir().expect("a folder");
    let process = start(folder.path(), &upstream);
    let damaged = turn(&process, &user_turn_in("one", "hi")).await;
    turn(&process, &user_turn_in("other", "hi")).await;
    stop(process).await;
    let file = rusqlite::Connection::open(folder.path().join("store.db")).expect("a file");
    // As a process leaves runs that is killed meanwhile.
    assert_eq!(file.execute("UPDATE runs SET state = 'running', ended = FALSE", []).expect("it is written"), 2);
    drop(file);
    damage(folder.path(), &damaged);

    let _process = start(folder.path(), &upstream);
    let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let closed = lines.iter().find(|line| line.to_string().contains("closed as failed"));
    assert_eq!(closed.map(|line| &line["runs"]), Some(&Value::from(1)), "{log}");
    assert!(log.contains("a run that was under way stays as it is"), "{log}");
}
