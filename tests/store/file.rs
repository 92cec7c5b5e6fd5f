//! What a store in a file promises besides the contract: it outlives its process, has one owner, says what is wrong
//! with a file, and lives on when the disk is full.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use interlingua::store::{Expect, Health, Query, Retention, Sqlite, SqliteOptions, Store, StoreError};
use interlingua_core::event::End;
use interlingua_core::exchange::RunRetention;

use crate::live::{ActiveRun, Made, id};

fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, &SqliteOptions::default()).unwrap()
}

#[tokio::test]
async fn what_was_stored_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    let run = ActiveRun::numbered(1);
    store.open(&run.journal()).await.unwrap();
    run.begin();
    run.say(&store, "hello");
    run.end(End::Completed);
    store.settle(&run.journal()).await.unwrap();
    let version = store.put("c", "k", Bytes::from_static(b"v"), Expect::Absent, 7).await.unwrap().unwrap();
    store.delete("c", "k", Expect::Anything).await.unwrap().unwrap();
    store.close().await.unwrap();
    assert!(!folder.path().join("store.db-wal").exists(), "a closed store leaves one file to copy");

    let store = open(&path);
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
    assert_eq!(store.recover().await.unwrap(), []);
    let later = store.put("c", "k", Bytes::new(), Expect::Absent, 7).await.unwrap().unwrap();
    assert!(later > version, "a version is not used again, not even after its document was deleted");
}

#[tokio::test]
async fn a_file_of_the_first_schema_is_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    let run = ActiveRun::numbered(1);
    store.open(&run.journal()).await.unwrap();
    run.begin();
    run.end(End::Completed);
    store.settle(&run.journal()).await.unwrap();
    store.close().await.unwrap();
    // As it was before routes had rules of their own.
    let file = rusqlite::Connection::open(&path).unwrap();
    let back = "DROP TRIGGER run_comes; DROP TRIGGER run_changes; DROP TRIGGER run_goes; DROP TRIGGER lines_come;
                DROP TRIGGER lines_go; DROP TRIGGER document_comes; DROP TRIGGER document_changes;
                DROP TRIGGER document_goes; DROP TABLE shares; DROP INDEX runs_by_owner_of_route;
                DROP INDEX documents_by_owner; ALTER TABLE documents DROP COLUMN owner;
                DROP INDEX runs_by_route; ALTER TABLE runs DROP COLUMN route; ALTER TABLE runs DROP COLUMN remembered;
                ALTER TABLE runs DROP COLUMN head;
                PRAGMA user_version = 1;";
    file.execute_batch(back).unwrap();
    drop(file);

    let store = open(&path);
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
    let kept = ActiveRun::new(&Made { id: id(2), keeper: Some(("/a", false)), ..Made::default() });
    store.open(&kept.journal()).await.unwrap();
    kept.end(End::Completed);
    store.settle(&kept.journal()).await.unwrap();
    assert_eq!(*store.load(id(2)).await.unwrap().unwrap(), kept.stored());
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
    };
    let swept = store.retain(policy.clone(), 1_000_000).await.unwrap();
    assert_eq!(swept.runs, [id(2)], "what was there before is kept as all runs are");
    store.close().await.unwrap();
    assert_eq!(open(&path).retain(policy, 1_000_000).await.unwrap().runs, []);
}

#[tokio::test]
async fn a_store_that_was_not_closed_hands_out_what_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    let runs: Vec<_> = (0..5).map(ActiveRun::numbered).collect();
    for run in &runs {
        store.open(&run.journal()).await.unwrap();
    }
    let [queued, running, waiting, ended, grown] = &runs[..] else { unreachable!("five were made") };
    running.begin();
    store.touch(&running.journal());
    waiting.begin();
    waiting.wait();
    store.settle(&waiting.journal()).await.unwrap();
    ended.begin();
    ended.end(End::Completed);
    store.settle(&ended.journal()).await.unwrap();
    grown.begin();
    for word in 0..100 {
        grown.say(&store, &format!("{word} "));
        if word == 50 {
            store.flush().await.unwrap();
        }
    }
    store.flush().await.unwrap();
    drop(store);

    let store = open(&path);
    assert_eq!(store.recover().await.unwrap(), [id(0), id(1), id(4)]);
    for run in [queued, running, waiting, ended, grown] {
        let stored = run.stored();
        let loaded = store.load(stored.record.run().id).await.unwrap().unwrap();
        assert_eq!(*loaded, stored, "all that was flushed is there");
    }
    // As the engine closes them.
    for id in store.recover().await.unwrap() {
        let run = ActiveRun::again(Arc::unwrap_or_clone(store.load(id).await.unwrap().unwrap()));
        store.open(&run.journal()).await.unwrap();
        run.end(End::Failed);
        store.settle(&run.journal()).await.unwrap();
        assert_eq!(*store.load(id).await.unwrap().unwrap(), run.stored());
    }
    assert_eq!(store.recover().await.unwrap(), []);
    drop(store);
    assert_eq!(open(&path).recover().await.unwrap(), []);
}

#[tokio::test]
async fn a_run_that_talks_for_long_is_put_away_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    let run = ActiveRun::numbered(1);
    store.open(&run.journal()).await.unwrap();
    run.begin();
    // More than the log is allowed to hold, so that it is put away in between.
    let word = "word ".repeat(20_000);
    for _ in 0..200 {
        run.say(&store, &word);
        store.flush().await.unwrap();
    }
    let loaded = store.load(id(1)).await.unwrap().unwrap();
    assert!(loaded.record.len() > 50, "what was put away is seen");
    drop(store);
    let store = open(&path);
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
    let again = ActiveRun::again(run.stored());
    store.open(&again.journal()).await.unwrap();
    again.end(End::Completed);
    store.settle(&again.journal()).await.unwrap();
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), again.stored());
}

#[test]
fn a_file_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    let Err(error) = Sqlite::open(&path, &SqliteOptions::default()) else { panic!("two stores have one file") };
    assert!(matches!(error, StoreError::InUse { .. }));
    assert_eq!(error.to_string(), format!("another process uses the database '{}'", path.display()));
    drop(store);
    open(&path);
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let refused = |path: &Path| match Sqlite::open(path, &SqliteOptions::default()) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => {
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            error
        }
    };

    std::fs::write(at("noise.db"), "this is no database, and long enough to be read as one ".repeat(100)).unwrap();
    assert!(matches!(refused(&at("noise.db")), StoreError::File { .. }));

    std::fs::create_dir(at("folder.db")).unwrap();
    assert!(matches!(refused(&at("folder.db")), StoreError::File { .. }));

    let Err(error) = Sqlite::open(&at("noise.db/store.db"), &SqliteOptions::default()) else { panic!("no folder") };
    assert!(error.to_string().starts_with("cannot create the folder '"), "{error}");

    let other = rusqlite::Connection::open(at("other.db")).unwrap();
    other.execute_batch("CREATE TABLE birds (name TEXT)").unwrap();
    assert!(refused(&at("other.db")).to_string().ends_with("it belongs to another program"));

    drop(open(&at("newer.db")));
    let newer = rusqlite::Connection::open(at("newer.db")).unwrap();
    newer.pragma_update(None, "user_version", 999).unwrap();
    drop(newer);
    let error = refused(&at("newer.db"));
    assert!(matches!(error, StoreError::Newer { found: 999, .. }), "{error}");
}

#[tokio::test]
async fn a_full_disk_is_told_and_survived() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    // One megabyte.
    let store = Sqlite::open(&path, &SqliteOptions::default().max_pages(256)).unwrap();
    let small = ActiveRun::numbered(1);
    store.open(&small.journal()).await.unwrap();
    let filling = ActiveRun::numbered(2);
    store.open(&filling.journal()).await.unwrap();
    filling.begin();
    filling.say(&store, &"x".repeat(600_000));
    filling.end(End::Completed);
    store.settle(&filling.journal()).await.unwrap();

    let large = ActiveRun::numbered(3);
    store.open(&large.journal()).await.unwrap();
    large.begin();
    large.say(&store, &"y".repeat(600_000));
    large.end(End::Completed);
    let error = store.settle(&large.journal()).await.unwrap_err();
    assert!(error.to_string().contains("store.db") && error.to_string().contains("full"), "{error}");
    assert!(store.flush().await.is_err(), "not everything is safe");

    // What was there is there, whole.
    assert_eq!(*store.load(id(2)).await.unwrap().unwrap(), filling.stored());
    assert_eq!(*store.load(id(3)).await.unwrap().unwrap(), large.stored(), "what could not be written is read too");
    assert!(matches!(store.health(), Health::Failing { .. }));
    assert_eq!(store.find(Query::default()).await.unwrap().total, 3);

    // A task for which there is room is done all the same.
    store.put("c", "k", Bytes::from_static(b"small"), Expect::Absent, 0).await.unwrap().unwrap();
    assert!(store.remove(id(2)).await.unwrap());
    // Now there is room for the run, and nobody asks for it again: what failed is tried again.
    let begun = Instant::now();
    while let Err(error) = store.flush().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
    }
    assert_eq!(*store.load(id(3)).await.unwrap().unwrap(), large.stored());
    store.close().await.unwrap();
    assert_eq!(*open(&path).load(id(3)).await.unwrap().unwrap(), large.stored());
}

#[tokio::test]
async fn a_run_that_could_not_be_opened_is_made_up_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Sqlite::open(&path, &SqliteOptions::default().max_pages(256)).unwrap();
    let large = Bytes::from(vec![b'x'; 800_000]);
    store.put("c", "k", large, Expect::Absent, 0).await.unwrap().unwrap();

    let run = ActiveRun::numbered(1);
    run.begin();
    run.say(&store, &"y".repeat(300_000));
    assert!(store.open(&run.journal()).await.is_err());
    let given_up = ActiveRun::numbered(2);
    given_up.begin();
    given_up.say(&store, &"y".repeat(300_000));
    assert!(store.open(&given_up.journal()).await.is_err());
    assert!(!store.remove(id(2)).await.unwrap());

    run.end(End::Completed);
    assert!(store.settle(&run.journal()).await.is_err(), "it is not taken for a run that nobody opened");
    assert_eq!(store.delete("c", "k", Expect::Anything).await.unwrap(), Ok(true));
    store.settle(&run.journal()).await.unwrap();
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
    store.close().await.unwrap();
    let store = open(&path);
    assert_eq!(store.find(Query::default()).await.unwrap().total, 1);
}

#[cfg(unix)]
#[test]
fn nobody_else_may_read_what_is_stored() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/store.db");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let files = ["store.db", "store.db-wal", "store.db-shm", "store.db.lock"].map(|name| path.with_file_name(name));
    let store = open(&path);
    assert_eq!((mode(path.parent().unwrap()), mode(&folder.path().join("a"))), (0o700, 0o700));
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    drop(store);
    // As an earlier version left it.
    for file in files.iter().filter(|file| file.exists()) {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let _store = open(&path);
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
}

/// Fills a store with runs of a hundred kilobytes.
async fn fill(store: &Sqlite, owner: &str, numbers: std::ops::Range<u128>) {
    for number in numbers {
        let run = ActiveRun::new(&Made { id: id(number), owner, ..Made::default() });
        store.open(&run.journal()).await.unwrap();
        run.begin();
        run.say(store, &"0123456789".repeat(10_000));
        run.end(End::Completed);
        run.change(|_, about| about.changed_at = 10_000 + u64::try_from(number).unwrap());
        store.settle(&run.journal()).await.unwrap();
    }
}

fn at_most(bytes: u64) -> Retention {
    Retention {
        age: Duration::MAX,
        runs: u64::MAX,
        documents: u64::MAX,
        bytes,
        collections: vec!["sessions".into()],
        parts: vec![("entries".into(), "sessions".into())],
        routes: Vec::new(),
        attached: Vec::new(),
    }
}

async fn swept(store: &Sqlite, bytes: u64) -> usize {
    let mut runs = 0;
    loop {
        let swept = store.retain(at_most(bytes), 20_000).await.unwrap();
        runs += swept.runs.len();
        if !swept.more {
            return runs;
        }
    }
}

#[tokio::test]
async fn a_file_shrinks_when_runs_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    fill(&store, "olga", 0..300).await;
    store.close().await.unwrap();
    let size = || std::fs::metadata(&path).unwrap().len();
    let before = size();
    assert!(before > 30_000_000, "{before}");
    // As an earlier version made it.
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch("PRAGMA journal_mode = delete; PRAGMA auto_vacuum = 0; VACUUM; PRAGMA journal_mode = wal")
        .unwrap();
    drop(file);

    let store = open(&path);
    assert!(swept(&store, 8 << 20).await > 200);
    assert_eq!(*store.load(id(299)).await.unwrap().unwrap().about.owner, *"olga", "the newest are there");
    store.close().await.unwrap();
    assert!(size() < 16 << 20, "{} of {before}", size());
}

#[tokio::test]
async fn a_bound_in_bytes_takes_from_whoever_has_most() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("store.db"));
    fill(&store, "victim", 0..10).await;
    fill(&store, "stranger/a", 100..150).await;
    fill(&store, "stranger/b", 200..250).await;
    assert!(swept(&store, 6 << 20).await > 50);
    for number in 0..10 {
        assert!(store.load(id(number)).await.unwrap().is_some(), "{number}");
    }
    assert!(store.load(id(149)).await.unwrap().is_some() && store.load(id(249)).await.unwrap().is_some());
    assert!(store.load(id(100)).await.unwrap().is_none() && store.load(id(200)).await.unwrap().is_none());
    // Documents count too, and go when there is nothing else.
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    for number in 0..10_u64 {
        let key = format!("friday\u{1f}writer\u{1f}{number}");
        store.put("sessions", &key, Bytes::new(), Expect::Absent, 10_000 + number).await.unwrap().unwrap();
        let part = interlingua::store::part_key(&key, 0);
        store.put("entries", &part, large.clone(), Expect::Absent, 10_000).await.unwrap().unwrap();
    }
    swept(&store, 6 << 20).await;
    let there = async |number: u64| {
        let key = format!("friday\u{1f}writer\u{1f}{number}");
        let whole = store.get("sessions", &key).await.unwrap().is_some();
        let part = store.get("entries", &interlingua::store::part_key(&key, 0)).await.unwrap().is_some();
        assert_eq!(whole, part, "a document and its parts go together");
        whole
    };
    assert!(!there(0).await && there(9).await);
    assert!(store.load(id(9)).await.unwrap().is_some(), "and nobody else loses more than the writer");
}
