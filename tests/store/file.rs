//! Guarantees of a store in a file beyond the contract: it survives its process, has one owner, reports what is wrong
//! with a file, and keeps running when the disk is full.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use interlingua::store::{
    Coordination, DocumentStore, Expect, Health, OwnerBoundsOf, Query, Retention, RunStore, Sqlite, SqliteOptions,
    Store, StoreError,
};
use interlingua_core::event::End;
use interlingua_core::exchange::RunRetention;

use crate::live::{ActiveRun, RunSpec, id};

fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, &SqliteOptions::default()).unwrap()
}

#[tokio::test]
async fn stored_data_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    run.append(&store, "hello");
    run.end(End::Completed);
    store.settle(&run.journal()).await.unwrap();
    let version = store.put("c", "k", Bytes::from_static(b"v"), Expect::Absent, 7).await.unwrap().unwrap();
    store.delete("c", "k", Expect::Any).await.unwrap().unwrap();
    store.close().await.unwrap();
    assert!(!directory.path().join("store.db-wal").exists(), "a closed store leaves a single file");

    let store = open(&path);
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
    assert_eq!(store.recover().await.unwrap(), []);
    let later = store.put("c", "k", Bytes::new(), Expect::Absent, 7).await.unwrap().unwrap();
    assert!(later > version, "a version is not reused, even after its document was deleted");
}

#[tokio::test]
async fn a_file_of_the_first_schema_is_migrated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    run.end(End::Completed);
    store.settle(&run.journal()).await.unwrap();
    store.close().await.unwrap();

    // The schema before routes had rules of their own.
    let file = rusqlite::Connection::open(&path).unwrap();
    let downgrade = "DROP TRIGGER run_comes; DROP TRIGGER run_changes; DROP TRIGGER run_goes; DROP TRIGGER lines_come;
                DROP TRIGGER lines_go; DROP TRIGGER document_comes; DROP TRIGGER document_changes;
                DROP TRIGGER document_goes; DROP TABLE shares; DROP INDEX runs_by_owner_of_route;
                DROP INDEX documents_by_owner; ALTER TABLE documents DROP COLUMN owner;
                DROP INDEX runs_shown; DROP INDEX runs_by_route; ALTER TABLE runs DROP COLUMN route; ALTER TABLE runs DROP COLUMN remembered;
                ALTER TABLE runs DROP COLUMN head; DROP INDEX runs_with_tags; ALTER TABLE runs DROP COLUMN tags;
                ALTER TABLE runs DROP COLUMN preview;
                PRAGMA user_version = 1;";
    file.execute_batch(downgrade).unwrap();
    drop(file);

    // Of two processes that start at once, one migrates the file, and the other one ends.
    let start = || {
        std::thread::spawn({
            let path = path.clone();
            move || Sqlite::open(&path, &SqliteOptions::default())
        })
    };
    let opened = [start(), start()].map(|opened| opened.join().unwrap());
    let (mut opened, refused): (Vec<_>, Vec<_>) = opened.into_iter().partition(Result::is_ok);
    assert!(matches!(refused[..], [Err(StoreError::InUse { .. })]), "one of them has the file");
    let store = opened.pop().unwrap().unwrap();
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
    let limited = ActiveRun::new(&RunSpec { id: id(2), retention: Some(("/a", false)), ..RunSpec::default() });
    store.open(&limited.journal(), limited.claim()).await.unwrap();
    limited.end(End::Completed);
    store.settle(&limited.journal()).await.unwrap();
    assert_eq!(*store.load(id(2)).await.unwrap().unwrap(), limited.stored());
    let second = Duration::from_secs(1);
    let policy = Retention {
        age: Duration::MAX,
        runs: u64::MAX,
        documents: u64::MAX,
        bytes: u64::MAX,
        collections: Vec::new(),
        parts: Vec::new(),
        routes: vec![("/a".into(), RunRetention { ended_ttl: second, waiting_ttl: second, max_runs: 9 })],
        attached: Vec::new(),
        bounds: OwnerBoundsOf::default(),
    };

    let report = store.retain(policy.clone(), 1_000_000).await.unwrap();
    assert_eq!(report.runs, [id(2)], "older runs are under the general rules");
    store.close().await.unwrap();
    assert_eq!(open(&path).retain(policy, 1_000_000).await.unwrap().runs, []);
}

#[tokio::test]
async fn a_store_that_was_not_closed_recovers_interrupted_runs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    let runs: Vec<_> = (0..5).map(ActiveRun::numbered).collect();
    for run in &runs {
        store.open(&run.journal(), run.claim()).await.unwrap();
    }
    let [queued, running, waiting, ended, grown] = &runs[..] else { unreachable!("there are five runs") };
    running.start();
    store.touch(&running.journal());
    waiting.start();
    waiting.finish_turn();
    store.settle(&waiting.journal()).await.unwrap();
    ended.start();
    ended.end(End::Completed);
    store.settle(&ended.journal()).await.unwrap();
    grown.start();
    for word in 0..100 {
        grown.append(&store, &format!("{word} "));
        if word == 50 {
            store.flush().await.unwrap();
        }
    }
    store.flush().await.unwrap();
    drop(store);

    let store = open(&path);
    let recovered = store.recover().await.unwrap();
    assert_eq!(recovered, [id(0), id(1), id(4)]);
    assert_eq!(store.recover().await.unwrap(), [], "each run is returned once");

    for run in [queued, running, waiting, ended, grown] {
        let stored = run.stored();
        let loaded = store.load(stored.record.run().id).await.unwrap().unwrap();
        assert_eq!(*loaded, stored, "all flushed events are stored");
    }

    // The engine ends them like this.
    for id in recovered {
        let run = ActiveRun::restore(Arc::unwrap_or_clone(store.load(id).await.unwrap().unwrap()));
        store.open(&run.journal(), run.claim()).await.unwrap();
        run.end(End::Failed);
        store.settle(&run.journal()).await.unwrap();
        assert_eq!(*store.load(id).await.unwrap().unwrap(), run.stored());
    }
    assert_eq!(store.recover().await.unwrap(), []);
    drop(store);
    assert_eq!(open(&path).recover().await.unwrap(), []);
}

#[tokio::test]
async fn a_long_run_is_written_in_segments() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    // More than the maximum size of the log, so that it is flushed in between.
    let word = "word ".repeat(20_000);
    for _ in 0..200 {
        run.append(&store, &word);
        store.flush().await.unwrap();
    }

    let loaded = store.load(id(1)).await.unwrap().unwrap();
    assert!(loaded.record.len() > 50, "flushed events can be read");
    drop(store);
    let store = open(&path);
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
    let restore = ActiveRun::restore(run.stored());
    store.open(&restore.journal(), restore.claim()).await.unwrap();
    restore.end(End::Completed);
    store.settle(&restore.journal()).await.unwrap();
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), restore.stored());
}

#[test]
fn a_file_has_one_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    let Err(error) = Sqlite::open(&path, &SqliteOptions::default()) else {
        panic!("two stores have the same file open")
    };
    assert!(matches!(error, StoreError::InUse { .. }));
    assert_eq!(error.to_string(), format!("another process uses the database '{}'", path.display()));
    drop(store);
    open(&path);
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let refused = |path: &Path| match Sqlite::open(path, &SqliteOptions::default()) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => {
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            error
        }
    };

    std::fs::write(at("noise.db"), "this is no database, and long enough to be parsed as one ".repeat(100)).unwrap();
    assert!(matches!(refused(&at("noise.db")), StoreError::File { .. }));

    std::fs::create_dir(at("directory.db")).unwrap();
    assert!(matches!(refused(&at("directory.db")), StoreError::File { .. }));

    let Err(error) = Sqlite::open(&at("noise.db/store.db"), &SqliteOptions::default()) else {
        panic!("a file is no directory")
    };
    assert!(error.to_string().starts_with("cannot create the directory '"), "{error}");

    let other = rusqlite::Connection::open(at("other.db")).unwrap();
    other.execute_batch("CREATE TABLE birds (name TEXT)").unwrap();
    assert!(refused(&at("other.db")).to_string().ends_with("it belongs to another program"));

    drop(open(&at("newer.db")));
    let newer = rusqlite::Connection::open(at("newer.db")).unwrap();
    newer.pragma_update(None, "user_version", 999).unwrap();
    drop(newer);
    let error = refused(&at("newer.db"));
    assert!(matches!(error, StoreError::NewerSchema { found: 999, .. }), "{error}");
}

#[tokio::test]
async fn a_file_that_a_crash_left_within_a_page_is_restored_from_its_rollback_journal() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store.db"));
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.end(End::Completed);
    store.settle(&run.journal()).await.unwrap();
    store.close().await.unwrap();
    drop(store);

    // More than the cache holds, so that the file has a part of it.
    let file = rusqlite::Connection::open(at("store.db")).unwrap();
    let fill = "PRAGMA journal_mode = delete; PRAGMA cache_size = 1; BEGIN; CREATE TABLE large (bytes BLOB);
                INSERT INTO large VALUES (zeroblob(1000000))";
    file.execute_batch(fill).unwrap();
    for suffix in ["", "-journal"] {
        std::fs::copy(at(&format!("store.db{suffix}")), at(&format!("copy.db{suffix}"))).unwrap();
    }
    drop(file);
    let copy = std::fs::OpenOptions::new().write(true).open(at("copy.db")).unwrap();
    copy.set_len(copy.metadata().unwrap().len() - 100).unwrap();

    assert_eq!(*open(&at("copy.db")).load(id(1)).await.unwrap().unwrap(), run.stored());
    let file = rusqlite::Connection::open(at("copy.db")).unwrap();
    assert!(!file.table_exists(None, "large").unwrap(), "the write is rolled back");
}

#[tokio::test]
async fn a_full_disk_is_reported_and_survived() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    // One megabyte.
    let store = Sqlite::open(&path, &SqliteOptions::default().max_pages(256)).unwrap();
    let small = ActiveRun::numbered(1);
    store.open(&small.journal(), small.claim()).await.unwrap();
    let filling = ActiveRun::numbered(2);
    store.open(&filling.journal(), filling.claim()).await.unwrap();
    filling.start();
    filling.append(&store, &"x".repeat(600_000));
    filling.end(End::Completed);
    store.settle(&filling.journal()).await.unwrap();

    let large = ActiveRun::numbered(3);
    store.open(&large.journal(), large.claim()).await.unwrap();
    large.start();
    large.append(&store, &"y".repeat(600_000));
    large.end(End::Completed);
    let error = store.settle(&large.journal()).await.unwrap_err();
    assert!(error.to_string().contains("store.db") && error.to_string().contains("full"), "{error}");
    assert!(store.flush().await.is_err(), "not everything is durable");

    // Earlier data is still complete.
    assert_eq!(*store.load(id(2)).await.unwrap().unwrap(), filling.stored());
    assert_eq!(*store.load(id(3)).await.unwrap().unwrap(), large.stored(), "unwritten runs can be read too");
    assert!(matches!(store.health(), Health::Failing { .. }));
    assert_eq!(store.find(Query::default()).await.unwrap().total, 3);

    // A write that still fits succeeds.
    store.put("c", "k", Bytes::from_static(b"small"), Expect::Absent, 0).await.unwrap().unwrap();
    assert!(store.remove(id(2)).await.unwrap());

    // Now the run fits, and the store retries by itself.
    let started = Instant::now();
    while let Err(error) = store.flush().await {
        assert!(started.elapsed() < Duration::from_secs(20), "{error}");
    }
    assert_eq!(*store.load(id(3)).await.unwrap().unwrap(), large.stored());
    store.close().await.unwrap();
    assert_eq!(*open(&path).load(id(3)).await.unwrap().unwrap(), large.stored());
}

#[tokio::test]
async fn a_run_that_could_not_be_opened_is_written_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path, &SqliteOptions::default().max_pages(256)).unwrap();
    let large = Bytes::from(vec![b'x'; 800_000]);
    store.put("c", "k", large, Expect::Absent, 0).await.unwrap().unwrap();

    let run = ActiveRun::numbered(1);
    run.start();
    run.append(&store, &"y".repeat(300_000));
    assert!(store.open(&run.journal(), run.claim()).await.is_err());

    let removed = ActiveRun::numbered(2);
    removed.start();
    removed.append(&store, &"y".repeat(300_000));
    assert!(store.open(&removed.journal(), removed.claim()).await.is_err());
    assert!(!store.remove(id(2)).await.unwrap());

    run.end(End::Completed);
    assert!(store.settle(&run.journal()).await.is_err(), "the run is not treated as one that was never opened");
    assert_eq!(store.delete("c", "k", Expect::Any).await.unwrap(), Ok(true));
    store.settle(&run.journal()).await.unwrap();
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
    store.close().await.unwrap();
    let store = open(&path);
    assert_eq!(store.find(Query::default()).await.unwrap().total, 1);
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_the_files() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/store.db");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let files = ["store.db", "store.db-wal", "store.db-shm", "store.db.lock"].map(|name| path.with_file_name(name));
    let store = open(&path);
    assert_eq!((mode(path.parent().unwrap()), mode(&directory.path().join("a"))), (0o700, 0o700));
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    drop(store);

    // The permissions that an earlier version used.
    for file in files.iter().filter(|file| file.exists()) {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let _store = open(&path);
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
}

/// Fills a store with runs of 100 kB each.
async fn fill(store: &Sqlite, owner: &str, numbers: std::ops::Range<u128>) {
    for number in numbers {
        let run = ActiveRun::new(&RunSpec { id: id(number), owner, ..RunSpec::default() });
        store.open(&run.journal(), run.claim()).await.unwrap();
        run.start();
        run.append(store, &"0123456789".repeat(10_000));
        run.end(End::Completed);
        run.change(|_, info| info.changed_at = 10_000 + u64::try_from(number).unwrap());
        store.settle(&run.journal()).await.unwrap();
    }
}

fn limited_to(bytes: u64) -> Retention {
    Retention {
        age: Duration::MAX,
        runs: u64::MAX,
        documents: u64::MAX,
        bytes,
        collections: vec!["sessions".into()],
        parts: vec![("entries".into(), "sessions".into())],
        routes: Vec::new(),
        attached: Vec::new(),
        bounds: OwnerBoundsOf::default(),
    }
}

async fn retain_all(store: &Sqlite, bytes: u64) -> usize {
    let mut runs = 0;
    loop {
        let report = store.retain(limited_to(bytes), 20_000).await.unwrap();
        runs += report.runs.len();
        if !report.more {
            return runs;
        }
    }
}

#[tokio::test]
async fn a_file_shrinks_when_runs_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path);
    fill(&store, "olga", 0..300).await;
    store.close().await.unwrap();
    let size = || std::fs::metadata(&path).unwrap().len();
    let before = size();
    assert!(before > 30_000_000, "{before}");

    // The settings that an earlier version used.
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch("PRAGMA journal_mode = delete; PRAGMA auto_vacuum = 0; VACUUM; PRAGMA journal_mode = wal")
        .unwrap();
    drop(file);

    let store = open(&path);
    assert!(retain_all(&store, 8 << 20).await > 200);
    assert_eq!(*store.load(id(299)).await.unwrap().unwrap().info.owner, *"olga", "the newest runs are kept");
    store.close().await.unwrap();
    assert!(size() < 16 << 20, "{} of {before}", size());
}

#[tokio::test]
async fn the_byte_limit_of_a_file_takes_from_the_largest_owner() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("store.db"));
    fill(&store, "victim", 0..10).await;
    fill(&store, "stranger/a", 100..150).await;
    fill(&store, "stranger/b", 200..250).await;
    assert!(retain_all(&store, 6 << 20).await > 50);
    for number in 0..10 {
        assert!(store.load(id(number)).await.unwrap().is_some(), "{number}");
    }
    assert!(store.load(id(149)).await.unwrap().is_some() && store.load(id(249)).await.unwrap().is_some());
    assert!(store.load(id(100)).await.unwrap().is_none() && store.load(id(200)).await.unwrap().is_none());

    // Documents count too, and are deleted when there is nothing else.
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    for number in 0..10_u64 {
        let key = format!("friday\u{1f}writer\u{1f}{number}");
        store.put("sessions", &key, Bytes::new(), Expect::Absent, 10_000 + number).await.unwrap().unwrap();
        let part = interlingua::store::part_key(&key, 0);
        store.put("entries", &part, large.clone(), Expect::Absent, 10_000).await.unwrap().unwrap();
    }
    retain_all(&store, 6 << 20).await;
    let exists = async |number: u64| {
        let key = format!("friday\u{1f}writer\u{1f}{number}");
        let document = store.get("sessions", &key).await.unwrap().is_some();
        let part = store.get("entries", &interlingua::store::part_key(&key, 0)).await.unwrap().is_some();
        assert_eq!(document, part, "a document and its parts are deleted together");
        document
    };
    assert!(!exists(0).await && exists(9).await);
    assert!(store.load(id(9)).await.unwrap().is_some(), "no other owner loses more than the writer");
}
