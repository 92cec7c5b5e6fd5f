//! Stored documents that lack fields, as those of earlier versions do, and that have fields of later versions: their
//! runs are shown, followed and listed, their items are answered, and their conversations continue.
//!
//! Not here: reading each form of a document (`crates/engine/src/stored_forms.rs`).

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use serde_json::{Map, Value, json};

use crate::check::{assert_waits, both_at_once, is_free};
use crate::contents::Waiting;
use crate::demo::turn;
use crate::files::{Cell, Files, Kind};
use crate::support::gateway::Gateway;
use crate::support::pairs::{Decision, Protocol, runs, texts_of};
use crate::{OpenedCopy, all_stores};

/// The fields of sessions without which one is no session, or another one: without `latest` it has no run, without
/// `next` no entry, without `waiting` it asks nothing.
const OF_SESSIONS: [&str; 7] = ["agent", "created_at", "id", "latest", "next", "updated_at", "waiting"];
/// The required fields of an item.
const OF_ITEMS: [&str; 5] = ["arguments", "decisions", "id", "kind", "name"];
/// The fields of a run's metadata that every version has written.
const OF_RUNS: [&str; 7] = ["changed_at", "delivery", "owner", "protocol", "request", "state", "stored"];

/// Changes the JSON in a column of all rows.
fn change_all(files: &Files, table: &str, column: &str, filter: &str, change: impl Fn(&mut Map<String, Value>)) {
    let changed = |mut cell: Cell| {
        let mut value: Value = serde_json::from_slice(&cell.value).unwrap();
        if let Value::Object(fields) = &mut value {
            change(fields);
        }
        cell.value = value.to_string().into_bytes();
        cell
    };
    let cells: Vec<Cell> = files.cells(table, column, filter).into_iter().map(changed).collect();
    files.set_cells(table, column, &cells);
}

fn change_sessions(files: &Files, change: impl Fn(&mut Map<String, Value>)) {
    change_all(files, "documents", "value", "collection = 'sessions'", change);
}

/// Calls `change` with every open item in a session's document.
fn each_open(session: &mut Map<String, Value>, change: &dyn Fn(&mut Map<String, Value>)) {
    let open = session.get_mut("waiting").and_then(|waiting| waiting["open"].as_array_mut());
    for open in open.into_iter().flatten() {
        change(open.as_object_mut().unwrap());
    }
}

/// The decisions that the items of a command take.
fn accepting(command: &str) -> Decision {
    match command {
        "question" => Decision::Value,
        "login" => Decision::Done,
        "client tool" => Decision::Output,
        _ => Decision::Accept,
    }
}

/// Shows, follows, lists and answers everything that waits, and continues its session.
///
/// `step`: only every so-many-th waiting run is. With 3, all commands and all protocols still are.
async fn assert_used(files: Files, step: usize, what: &str) -> Files {
    let opened = OpenedCopy::start(files, 0).await;
    let what = format!("{}: {what}", opened.what);
    let ann = opened.stand.ann();
    for waiting in opened.contents.waiting.iter().step_by(step) {
        assert_waits(&ann, waiting, &what).await;
        assert!(runs(&ann, &waiting.session).await.contains(&waiting.run), "{what}: {} is not listed", waiting.run);
        answer(&ann, waiting, &what).await;
        is_free(&ann, &waiting.session, &what).await;
    }
    for ended in &opened.contents.ended {
        assert_eq!(ann.run("demo", &ended.run).await["status"], ended.status, "{what}");
    }
    let answer = turn(&ann, "kept", &opened.contents.documents.kept_session, "history").await;
    assert!(answer.to_string().contains("This is message 3 of yours"), "{what}: {answer}");
    opened.stand.end().await
}

/// The name of the case, if a part of the store cannot be used. So one test reports all cases.
async fn fails(files: Files, what: &str) -> Option<String> {
    let used = AssertUnwindSafe(assert_used(files, 3, what)).catch_unwind().await;
    used.is_err().then(|| what.to_owned())
}

/// Accepts all items of a run over the Agent API.
async fn answer(ann: &Gateway, waiting: &Waiting, what: &str) {
    let decision = accepting(&waiting.command);
    let answer = match waiting.items.len() {
        1 => Protocol::AgentApi.answer(ann, &waiting.interrupt(0), decision).await.unwrap(),
        _ => both_at_once(ann, waiting, Protocol::AgentApi, [decision; 2]).await,
    };
    assert_eq!(answer.status, 200, "{what}: {} {}: {}", waiting.protocol, waiting.command, answer.text());
    let text = texts_of(answer.text()).replace("\\\"", "\"");
    let expected = decision.expected_text();
    assert!(text.contains(expected), "{what}: {} {}: {text}", waiting.protocol, waiting.command);
}

/// The names of fields that at least one of the objects has, without the required ones.
fn optional(names: impl Iterator<Item = String>, required: &[&str]) -> Vec<String> {
    let names: BTreeSet<String> = names.collect();
    names.into_iter().filter(|name| !required.contains(&name.as_str())).collect()
}

/// A copy of the SQLite store.
fn sqlite() -> Files {
    all_stores().find(|files| files.kind == Kind::Sqlite).unwrap()
}

#[tokio::test]
async fn sessions_without_one_of_their_optional_fields_are_used() {
    let cells = sqlite().cells("documents", "value", "collection = 'sessions'");
    let sessions: Vec<Value> = cells.iter().map(|cell| serde_json::from_slice(&cell.value).unwrap()).collect();
    let names = sessions.iter().flat_map(|session| session.as_object().unwrap().keys().cloned());
    let mut failed = Vec::new();
    for name in optional(names, &OF_SESSIONS) {
        let files = sqlite();
        change_sessions(&files, |session| drop(session.remove(&name)));
        failed.extend(fails(files, &format!("sessions without {name}")).await);
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test]
async fn open_items_without_one_of_their_optional_fields_are_used() {
    let cells = sqlite().cells("documents", "value", "collection = 'sessions'");
    let sessions: Vec<Value> = cells.iter().map(|cell| serde_json::from_slice(&cell.value).unwrap()).collect();
    let open: Vec<&Value> =
        sessions.iter().filter_map(|session| session["waiting"]["open"].as_array()).flatten().collect();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut failed = Vec::new();
    for name in optional(open.iter().flat_map(|open| names(open)), &["item", "run"]) {
        let files = sqlite();
        change_sessions(&files, |session| each_open(session, &|open| drop(open.remove(&name))));
        failed.extend(fails(files, &format!("open items without {name}")).await);
    }
    for name in optional(open.iter().flat_map(|open| names(&open["item"])), &OF_ITEMS) {
        let files = sqlite();
        let remove = |open: &mut Map<String, Value>| drop(open["item"].as_object_mut().unwrap().remove(&name));
        change_sessions(&files, |session| each_open(session, &remove));
        failed.extend(fails(files, &format!("items without {name}")).await);
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test]
async fn runs_without_the_optional_fields_of_their_metadata_are_used() {
    for files in all_stores() {
        change_all(&files, "runs", "about", "TRUE", |about| {
            about.retain(|name, _| OF_RUNS.contains(&name.as_str()));
            let request = about["request"].as_object_mut().unwrap();
            request
                .retain(|name, value| !value.is_null() && matches!(name.as_str(), "session_id" | "user_id" | "tools"));
        });
        assert_used(files, 1, "runs with the required fields alone").await;
    }
}

#[tokio::test]
async fn fields_of_a_later_version_are_ignored_and_stay_in_sessions() {
    for files in all_stores() {
        let later =
            |fields: &mut Map<String, Value>| drop(fields.insert("later".into(), json!({ "list": [1, "two"] })));
        change_sessions(&files, |session| {
            later(session);
            each_open(session, &|open| {
                later(open);
                later(open["item"].as_object_mut().unwrap());
            });
        });
        change_all(&files, "documents", "value", "collection = 'open'", |document| {
            later(document);
            for open in document["items"].as_array_mut().unwrap() {
                later(open.as_object_mut().unwrap());
                later(open["item"].as_object_mut().unwrap());
            }
        });
        change_all(&files, "documents", "value", "collection = 'a2a/push' OR collection LIKE 'hitl.%'", later);
        change_all(&files, "runs", "about", "TRUE", |about| {
            later(about);
            later(about["request"].as_object_mut().unwrap());
        });

        let files = assert_used(files, 1, "fields of a later version").await;
        // All of these sessions have been written again.
        for cell in files.cells("documents", "value", "collection = 'sessions'") {
            let session: Value = serde_json::from_slice(&cell.value).unwrap();
            assert_eq!(session["later"], json!({ "list": [1, "two"] }), "{}: {session}", files.name());
        }
    }
}
