//! Nobody is shown what a crash could take back: when a store says how much of a run is safe, and that it is.

use std::sync::Arc;
use std::time::Duration;

use interlingua::store::{Sqlite, SqliteOptions, Store};
use interlingua_core::event::End;

use crate::live::{ActiveRun, id};

pub(crate) async fn what_is_told_is_safe_in_a_moment(store: &Arc<dyn Store>) {
    let run = ActiveRun::numbered(1);
    assert_eq!(run.safe(), 0, "nobody knows it");
    store.open(&run.journal()).await.unwrap();
    assert!(run.safe() >= 1, "what was told before is safe once it is opened");
    run.begin();
    for pause in [0, 1, 2, 5, 30] {
        for word in 0..20 {
            run.say(&**store, &format!("{word} "));
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        run.until_safe(run.stored().record.len()).await;
    }
}

pub(crate) async fn what_was_confirmed_was_published(store: &Arc<dyn Store>) {
    let run = ActiveRun::numbered(1);
    store.open(&run.journal()).await.unwrap();
    run.begin();
    run.wait();
    store.settle(&run.journal()).await.unwrap();
    assert!(run.safe() >= run.stored().record.len());
    run.begin();
    run.end(End::Completed);
    store.settle(&run.journal()).await.unwrap();
    assert!(run.safe() >= run.stored().record.len());
}

pub(crate) async fn a_removed_run_has_nothing_to_lose(store: &Arc<dyn Store>) {
    let run = ActiveRun::numbered(1);
    store.open(&run.journal()).await.unwrap();
    run.begin();
    assert!(store.remove(id(1)).await.unwrap());
    // Whoever follows it is not left waiting.
    run.say(&**store, "word ");
    run.until_safe(run.stored().record.len()).await;
    run.end(End::Canceled);
    store.settle(&run.journal()).await.unwrap();
    assert!(run.safe() >= run.stored().record.len());
    assert!(store.load(id(1)).await.unwrap().is_none());
}

pub(crate) async fn what_was_taken_back_is_not_stored(store: &Arc<dyn Store>) {
    for (number, settled) in [(1, false), (2, true)] {
        let run = ActiveRun::numbered(number);
        store.open(&run.journal()).await.unwrap();
        run.begin();
        for word in 0..10 {
            run.say(&**store, &format!("{word} "));
        }
        if settled {
            store.settle(&run.journal()).await.unwrap();
        } else {
            store.flush().await.unwrap();
        }
        // As many events as before, and none of them the same.
        let length = run.stored().record.len();
        run.take_back(length - 4, End::Failed);
        store.touch(&run.journal());
        store.settle(&run.journal()).await.unwrap();
        assert_eq!(*store.load(id(number)).await.unwrap().unwrap(), run.stored());
    }
}

#[tokio::test]
async fn what_was_taken_back_stays_away_after_a_crash() {
    for back in 1..8 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = Sqlite::open(&path, &SqliteOptions::default()).unwrap();
        let run = ActiveRun::numbered(1);
        store.open(&run.journal()).await.unwrap();
        run.begin();
        // One row of the log each.
        for word in 0..8 {
            run.say(&store, &format!("{word} "));
            store.flush().await.unwrap();
        }
        let length = run.stored().record.len();
        run.take_back(length - back, End::Failed);
        store.settle(&run.journal()).await.unwrap();
        drop(store);
        let store = Sqlite::open(&path, &SqliteOptions::default()).unwrap();
        assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored(), "{back} events were taken back");
    }
}

#[tokio::test]
async fn what_was_published_is_there_after_a_crash_at_every_speed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Sqlite::open(&path, &SqliteOptions::default()).unwrap();
    let mut runs = Vec::new();
    for pause in 0..=50 {
        let run = ActiveRun::numbered(pause + 1);
        store.open(&run.journal()).await.unwrap();
        run.begin();
        runs.push((pause, run));
    }
    for time in 0..200_u128 {
        for (pause, run) in &runs {
            if *pause == 0 || time % *pause == 0 {
                run.say(&store, &format!("{time} "));
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // As far as it was told, and no further, when its process dies.
    let published: Vec<_> = runs.iter().map(|(_, run)| run.safe()).collect();
    drop(store);
    let store = Sqlite::open(&path, &SqliteOptions::default()).unwrap();
    for ((pause, run), published) in runs.iter().zip(published) {
        assert!(published > 4, "one word each {pause} ms");
        let (stored, told) = (store.load(id(pause + 1)).await.unwrap().unwrap(), run.stored());
        assert!(stored.record.len() >= published, "one word each {pause} ms: {} of {published}", stored.record.len());
        for event in 0..stored.record.len() {
            assert_eq!(stored.record.step(event).unwrap().event, told.record.step(event).unwrap().event);
        }
    }
}
