//! A store that cannot write: it reports this, keeps its data, can be read meanwhile, and recovers by itself.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use interlingua::store::{DocumentStore, Expect, Health, RunStore, Sqlite, SqliteOptions, Store};
use interlingua_core::event::End;

use crate::live::{ActiveRun, id};

fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, &SqliteOptions::default()).unwrap()
}

fn is_failing(store: &Sqlite) -> bool {
    matches!(store.health(), Health::Failing { .. })
}

async fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(20), "timeout: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Checks runs that were active when writes began to fail, and one that was started then: no event is published before
/// it is durable, all runs can be loaded, and all of them become durable once writes succeed again.
async fn survives_outage(path: &Path, store: Sqlite, fail: impl FnOnce(), repair: impl FnOnce()) {
    let running = ActiveRun::numbered(1);
    let ending = ActiveRun::numbered(2);
    for run in [&running, &ending] {
        store.open(&run.journal(), run.claim()).await.unwrap();
        run.start();
    }
    store.flush().await.unwrap();
    assert!(!is_failing(&store));

    fail();
    let durable = running.durable();
    running.append(&store, "pending ");
    ending.end(End::Completed);

    let started = Instant::now();
    store.settle(&ending.journal()).await.unwrap_err();

    let new = ActiveRun::numbered(3);
    new.start();
    store.open(&new.journal(), new.claim()).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5), "waiting callers get the error soon: {:?}", started.elapsed());
    assert!(is_failing(&store));
    assert_eq!((running.durable(), new.durable()), (durable, 0), "nothing is published before it is durable");
    let started = Instant::now();
    for number in 0..200 {
        let run = ActiveRun::numbered(100 + number);
        store.open(&run.journal(), run.claim()).await.unwrap_err();
        store.remove(id(100 + number)).await.ok();
    }
    assert!(started.elapsed() < Duration::from_secs(10), "200 refusals took {:?}", started.elapsed());

    for run in [&ending, &new] {
        let stored = run.stored();
        let loaded = store.load(stored.record.run().id).await.unwrap().unwrap();
        assert_eq!(*loaded, stored, "unwritten runs are read from memory");
    }

    repair();
    wait_until("the store recovers", || !is_failing(&store)).await;
    for run in [&running, &ending, &new] {
        run.until_durable(run.stored().record.len()).await;
    }
    store.put("c", "k", Bytes::new(), Expect::Absent, 0).await.unwrap().unwrap();
    store.flush().await.unwrap();

    drop(store);
    let store = open(path);
    for run in [&running, &ending, &new] {
        let stored = run.stored();
        assert_eq!(*store.load(stored.record.run().id).await.unwrap().unwrap(), stored);
    }
}

#[tokio::test]
async fn a_locked_file_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    let other = rusqlite::Connection::open(&path).unwrap();
    let (lock, unlock) = (
        || other.execute_batch("BEGIN IMMEDIATE").unwrap(),
        || {
            other.execute_batch("ROLLBACK").unwrap();
        },
    );
    survives_outage(&path, store, lock, unlock).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_missing_directory_is_tolerated_until_it_returns() {
    let directory = tempfile::tempdir().unwrap();
    let (present, away) = (directory.path().join("present"), directory.path().join("away"));
    let path = present.join("store.db");
    let store = open(&path);
    let (remove, restore) =
        (|| std::fs::rename(&present, &away).unwrap(), || std::fs::rename(&away, &present).unwrap());
    survives_outage(&path, store, remove, restore).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_removed_under_an_idle_store_is_noticed() {
    for replaced in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let store = open(&path);
        std::fs::remove_file(&path).unwrap();
        if replaced {
            std::fs::write(&path, "").unwrap();
        }

        wait_until("the missing file is noticed", || is_failing(&store)).await;
        let Health::Failing { error, .. } = store.health() else { panic!("it recovered by itself") };
        assert!(error.to_string().contains("store.db"), "{error}");
        assert_eq!(path.exists(), replaced, "the store creates no empty file");
    }
}

#[tokio::test]
async fn short_waits_for_a_lock_are_no_failure() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    let other = rusqlite::Connection::open(&path).unwrap();

    // Several short waits in a row are slow but no failure.
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    for word in 0..5 {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        run.append(&store, &format!("{word} "));
        tokio::time::sleep(Duration::from_millis(300)).await;
        other.execute_batch("ROLLBACK").unwrap();
        run.until_durable(run.stored().record.len()).await;
        assert!(!is_failing(&store));
    }
}
