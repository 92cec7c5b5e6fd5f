//! A store that cannot write: it says so, keeps what it holds, is read meanwhile, and recovers by itself.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use interlingua::store::{Expect, Health, Sqlite, SqliteOptions, Store};
use interlingua_core::event::End;

use crate::live::{ActiveRun, id};

fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, &SqliteOptions::default()).unwrap()
}

fn fails(store: &Sqlite) -> bool {
    matches!(store.health(), Health::Failing { .. })
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs that were under way when writing began to fail, and one that was begun then: none is shown further than it is
/// safe, all are found, and all of them are safe once it is possible.
async fn holds_on(path: &Path, store: Sqlite, fail: impl FnOnce(), mend: impl FnOnce()) {
    let running = ActiveRun::numbered(1);
    let ending = ActiveRun::numbered(2);
    for run in [&running, &ending] {
        store.open(&run.journal()).await.unwrap();
        run.begin();
    }
    store.flush().await.unwrap();
    assert!(!fails(&store));

    fail();
    let safe = running.safe();
    running.say(&store, "unheard ");
    ending.end(End::Completed);
    let begun = Instant::now();
    store.settle(&ending.journal()).await.unwrap_err();
    let new = ActiveRun::numbered(3);
    new.begin();
    store.open(&new.journal()).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5), "whoever waits is told soon: {:?}", begun.elapsed());
    assert!(fails(&store));
    assert_eq!((running.safe(), new.safe()), (safe, 0), "nothing is published that is not safe");
    let asked = Instant::now();
    for number in 0..200 {
        let run = ActiveRun::numbered(100 + number);
        store.open(&run.journal()).await.unwrap_err();
        store.remove(id(100 + number)).await.ok();
    }
    assert!(asked.elapsed() < Duration::from_secs(10), "200 refusals took {:?}", asked.elapsed());
    for run in [&ending, &new] {
        let stored = run.stored();
        let loaded = store.load(stored.record.run().id).await.unwrap().unwrap();
        assert_eq!(*loaded, stored, "it is read where it stands");
    }

    mend();
    until("the store recovers", || !fails(&store)).await;
    for run in [&running, &ending, &new] {
        run.until_safe(run.stored().record.len()).await;
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
async fn a_file_that_another_process_has_locked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    let other = rusqlite::Connection::open(&path).unwrap();
    let (lock, unlock) = (
        || other.execute_batch("BEGIN IMMEDIATE").unwrap(),
        || {
            other.execute_batch("ROLLBACK").unwrap();
        },
    );
    holds_on(&path, store, lock, unlock).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_folder_that_is_gone_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let (here, away) = (folder.path().join("here"), folder.path().join("away"));
    let path = here.join("store.db");
    let store = open(&path);
    let (gone, back) = (|| std::fs::rename(&here, &away).unwrap(), || std::fs::rename(&away, &here).unwrap());
    holds_on(&path, store, gone, back).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_removed_under_an_idle_store_is_noticed() {
    for replaced in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = open(&path);
        std::fs::remove_file(&path).unwrap();
        if replaced {
            std::fs::write(&path, "").unwrap();
        }
        until("it is noticed", || fails(&store)).await;
        let Health::Failing { error, .. } = store.health() else { panic!("it recovered by itself") };
        assert!(error.to_string().contains("store.db"), "{error}");
        assert_eq!(path.exists(), replaced, "no empty file is put there");
    }
}

#[tokio::test]
async fn a_write_that_is_stuck_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    let other = rusqlite::Connection::open(&path).unwrap();
    // Short waits, one after the other, are slow and no failure.
    let run = ActiveRun::numbered(1);
    store.open(&run.journal()).await.unwrap();
    run.begin();
    for word in 0..5 {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        run.say(&store, &format!("{word} "));
        tokio::time::sleep(Duration::from_millis(300)).await;
        other.execute_batch("ROLLBACK").unwrap();
        run.until_safe(run.stored().record.len()).await;
        assert!(!fails(&store));
    }
}
