//! Stores that are damaged, and stores of a later version: the gateway refuses the file and names it, or serves
//! everything that is whole.
//!
//! Not here: files that are no stores, and disks that are full (`tests/store`).

use std::fs::OpenOptions;
use std::process::Output;

use serde_json::json;

use crate::check::{assert_waits, is_free};
use crate::contents::{EndedRun, Waiting};
use crate::demo::{total, turn};
use crate::files::{Cell, Files, Kind};
use crate::support::gateway::{DEMO, Gateway, ROUTE, user_turn_in};
use crate::support::pairs::{Decision, Protocol};
use crate::support::process;
use crate::{OpenedCopy, all_stores};

/// Starts the gateway's program on a store that it refuses.
fn refused(files: &Files) -> Output {
    let listen = "[server]\nlisten = \"127.0.0.1:0\"\n";
    std::fs::write(files.path().join("gateway.toml"), format!("{listen}{}{DEMO}{ROUTE}", files.store_table())).unwrap();
    let output = process::run(files.path(), &["--log", "error"]);
    assert!(!output.status.success(), "{}: it was served", files.name());
    output
}

/// The one error on standard error, which is its last line.
fn error_line(output: &Output) -> &str {
    let text = std::str::from_utf8(&output.stderr).unwrap().trim_end();
    assert_eq!(text.lines().filter(|line| line.starts_with("error")).count(), 1, "{text}");
    text.lines().last().unwrap()
}

#[test]
fn a_file_that_is_cut_off_is_refused_by_name_and_stays_as_it_is() {
    let whole = all_stores().find(|files| files.kind == Kind::Sqlite).unwrap().bytes().len();
    let page = 4096;
    let lengths = [2, 15, 50, 99, 100, 511, page - 1, page, page + 1, whole / 2, whole / page / 2 * page, whole - page];
    for length in lengths.into_iter().chain([whole - page / 2, whole - 1]) {
        let files = all_stores().find(|files| files.kind == Kind::Sqlite).unwrap();
        let file = OpenOptions::new().write(true).open(files.path().join("store.db")).unwrap();
        file.set_len(length as u64).unwrap();
        let before = files.bytes();
        let output = refused(&files);
        let line = error_line(&output);
        assert!(line.contains("cannot open the database") && line.contains("store.db"), "{length} bytes: {line}");
        assert_eq!(files.bytes(), before, "{length} bytes");
    }
}

#[test]
fn a_store_of_a_later_version_is_refused_with_the_way_back_and_stays_as_it_is() {
    let with_log = all_stores().filter(|files| files.kind == Kind::Sqlite).map(|files| (files, true));
    for (files, has_log) in all_stores().map(|files| (files, false)).chain(with_log) {
        match files.kind {
            Kind::Sqlite if has_log => files.execute_into_log("PRAGMA user_version = 99"),
            // The mode is part of the file, and a start changes it.
            Kind::Sqlite => files.execute("PRAGMA journal_mode = delete; PRAGMA user_version = 99"),
            Kind::Postgres => files.execute("INSERT INTO store.migrations (version, reader) VALUES (99, 99)"),
        }
        let before = files.bytes();
        let output = refused(&files);
        let line = error_line(&output);
        let known = if files.kind == Kind::Sqlite { "7" } else { "4" };
        let name = if files.kind == Kind::Sqlite { "store.db'" } else { "'schema interlingua'" };
        let versions = format!("has schema version 99, this gateway supports versions up to {known}");
        for part in [name, &versions, "docs/operations/upgrade.md#rollback"] {
            assert!(line.contains(part), "{part:?} is not in {line}");
        }
        assert!(files.bytes() == before, "{}, log: {has_log}: something was written", files.name());
    }
}

/// Cuts values in half.
fn cut(files: &Files, table: &str, column: &str, filter: &str) {
    let half = |cell: Cell| Cell { value: cell.value[..cell.value.len() / 2].to_vec(), ..cell };
    let cells: Vec<Cell> = files.cells(table, column, filter).into_iter().map(half).collect();
    assert!(!cells.is_empty(), "{table} {filter}");
    files.set_cells(table, column, &cells);
}

/// All runs but one are shown, and on both kinds of lists. The damaged one may be.
async fn assert_others(ann: &Gateway, ended: &[EndedRun], damaged: Option<&str>, what: &str) {
    for other in ended.iter().filter(|other| Some(&*other.run) != damaged) {
        assert_eq!(ann.run("demo", &other.run).await["status"], other.status, "{what}");
    }
    let all = total(ann).await;
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = ann.get(&format!("/agents/demo/runs?limit=100{cursor}")).await;
        assert_eq!(page.status, 200, "{what}: {}", page.text());
        let page = page.json();
        listed.extend(page["data"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str().or(page["next"].as_str()) {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let is_left_out = damaged.is_some_and(|damaged| listed.iter().all(|run| run != damaged));
    assert_eq!(listed.len() as u64 + u64::from(is_left_out), all, "{what}");

    let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
    let tasks = ann.open("GET", "/a2a/demo/tasks?pageSize=100", &headers, b"").await.response().await;
    assert_eq!(tasks.status, 200, "{what}: {}", tasks.text());
}

#[tokio::test]
async fn a_run_that_is_cut_in_half_is_reported_and_hides_no_other() {
    for (table, column) in [("lines", "bytes"), ("runs", "about"), ("runs", "head")] {
        for files in all_stores() {
            let damaged = files.contents().ended[0].run.clone();
            let filter = files.of_run(table, &damaged);
            cut(&files, table, column, &filter);
            let opened = OpenedCopy::start(files, 0).await;
            let (ann, what) = (opened.stand.ann(), format!("{}: {table}.{column}", opened.what));
            // Nothing but lists reads the head.
            let status = if column == "head" { 200 } else { 500 };
            for path in [format!("/agents/demo/runs/{damaged}"), format!("/agents/demo/runs/{damaged}/events")] {
                let answer = ann.get(&path).await;
                assert!(answer.status == status || answer.status == 404, "{what}: {path}: {}", answer.text());
            }
            assert_others(&ann, &opened.contents.ended, Some(&damaged), &what).await;
            // The session continues if it needs nothing of the run.
            let session = &opened.contents.ended[0].session;
            let answer = ann.post("/agents/demo/process", &user_turn_in(session, "echo on")).await;
            assert!([200, 500].contains(&answer.status), "{what}: {}", answer.text());
            turn(&ann, "demo", "other", "echo on").await;
        }
    }
}

#[tokio::test]
async fn a_run_of_an_unknown_state_hides_no_other() {
    for files in all_stores() {
        let run = files.contents().ended[0].run.clone();
        files.execute(&format!("UPDATE store.runs SET state = 'later' WHERE {}", files.of_run("runs", &run)));
        let opened = OpenedCopy::start(files, 0).await;
        assert_others(&opened.stand.ann(), &opened.contents.ended, Some(&run), &opened.what).await;
    }
}

#[tokio::test]
async fn a_run_under_way_that_is_cut_in_half_does_not_keep_the_gateway_from_its_start() {
    for (table, column) in [("lines", "bytes"), ("runs", "about")] {
        for files in all_stores() {
            let damaged = files.contents().ended[0].run.clone();
            let (runs, filter) = (files.of_run("runs", &damaged), files.of_run(table, &damaged));
            cut(&files, table, column, &filter);
            // As a process leaves a run that is killed meanwhile.
            let mut sql = format!("UPDATE store.runs SET state = 'running', ended = FALSE WHERE {runs};");
            if files.kind == Kind::Postgres {
                sql += &format!(
                    "UPDATE store.runs SET holder = (SELECT min(id::text)::uuid FROM store.replicas) WHERE {runs}"
                );
            }
            files.execute(&sql);
            let opened = OpenedCopy::start(files, 0).await;
            let what = format!("{}: {table}.{column}", opened.what);
            let ann = opened.stand.ann();
            assert_eq!(ann.get(&format!("/agents/demo/runs/{damaged}")).await.status, 500, "{what}");
            assert_others(&ann, &opened.contents.ended, Some(&damaged), &what).await;
        }
    }
}

#[tokio::test]
async fn a_session_that_is_cut_in_half_is_reported_and_hides_no_other() {
    for files in all_stores() {
        let [damaged, others @ ..] = &files.contents().waiting[..] else { panic!("no waiting runs") };
        cut(&files, "documents", "value", &of_session("sessions", damaged));
        let opened = OpenedCopy::start(files, 0).await;
        let (ann, what) = (opened.stand.ann(), &opened.what);
        let answer = ann.post("/agents/demo/process", &user_turn_in(&damaged.session, "echo on")).await;
        assert_eq!(answer.status, 500, "{what}: {}", answer.text());
        assert!(answer.text().contains("the stored session cannot be read"), "{what}: {}", answer.text());
        assert_eq!(ann.get(&format!("/agents/demo/runs/{}", damaged.run)).await.status, 500, "{what}");
        assert_others(&ann, &opened.contents.ended, Some(&damaged.run), what).await;
        for other in others.iter().take(5) {
            assert_waits(&ann, other, what).await;
        }
        is_free(&ann, "other", what).await;
    }
}

/// The condition for documents of a waiting run's session.
fn of_session(collection: &str, waiting: &Waiting) -> String {
    format!("collection = '{collection}' AND key LIKE '%key::ann%{}'", waiting.session)
}

#[tokio::test]
async fn documents_beside_a_session_that_are_cut_in_half_keep_no_item_from_its_answer() {
    for collection in ["open", "asked"] {
        for files in all_stores() {
            let filter = format!("collection = '{collection}'");
            cut(&files, "documents", "value", &filter);
            let opened = OpenedCopy::start(files, 0).await;
            let (ann, what) = (opened.stand.ann(), format!("{}: {collection}", opened.what));
            for waiting in opened.contents.waiting.iter().filter(|waiting| waiting.command == "approval") {
                assert_waits(&ann, waiting, &what).await;
                let answer = Protocol::AgentApi.answer(&ann, &waiting.interrupt(0), Decision::Accept).await.unwrap();
                assert_eq!(answer.status, 200, "{what}: {}", answer.text());
                is_free(&ann, &waiting.session, &what).await;
            }
        }
    }
}

#[tokio::test]
async fn an_entry_that_is_cut_in_half_is_reported_by_its_conversation_alone() {
    for files in all_stores() {
        let conversation = files.contents().documents.conversation;
        let filter = format!("collection = 'entries' AND key LIKE '%{conversation}%0'");
        cut(&files, "documents", "value", &filter);
        let opened = OpenedCopy::start(files, 0).await;
        let (ann, what, documents) = (opened.stand.ann(), &opened.what, &opened.contents.documents);
        let items = ann.get(&format!("/v1/conversations/{conversation}/items")).await;
        assert_eq!(items.status, 500, "{what}: {}", items.text());
        let body = json!({ "model": "kept", "previous_response_id": documents.response, "input": "history" });
        assert_eq!(ann.post("/v1/responses", &body).await.status, 200, "{what}");
        assert_others(&ann, &opened.contents.ended, None, what).await;
    }
}

#[tokio::test]
async fn damaged_notes_of_deliveries_and_tokens_are_written_again() {
    for files in all_stores() {
        let push = &files.contents().push;
        let task = push.waiting.run.trim_start_matches("response_").to_owned();
        cut(&files, "documents", "value", "collection = 'spent'");
        // What earlier gateways note while they send, here as it is when its bytes are lost.
        for (collection, key) in
            [("pushed", "key::ann\u{1f}"), ("pushing", "00000000-0000-7000-8000-000000000000/key::ann\u{1f}")]
        {
            files.add_document(collection, &format!("{key}{task}/hook"), "x");
        }
        let opened = OpenedCopy::start(files, 0).await;
        let (ann, what) = (opened.stand.ann(), &opened.what);
        let answer = Protocol::AgentApi.answer(&ann, &push.waiting.interrupt(0), Decision::Accept).await.unwrap();
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        turn(&opened.stand.caller("eve"), "demo", "more", "echo more").await;
    }
}
