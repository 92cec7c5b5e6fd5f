//! Clients never see events that a crash could lose: when a store reports events as durable, and that they are.

use std::sync::Arc;
use std::time::Duration;

use interlingua::store::{Memory, RunStore, Sqlite, SqliteOptions, Store};
use interlingua_core::event::End;

use crate::live::{ActiveRun, id};

pub(crate) async fn events_become_durable_quickly(store: &Arc<dyn Store>) {
    let run = ActiveRun::numbered(1);
    assert_eq!(run.durable(), 0, "nothing is durable before the run is opened");
    store.open(&run.journal(), run.claim()).await.unwrap();
    assert!(run.durable() >= 1, "earlier events are durable once the run is opened");

    run.start();
    for pause in [0, 1, 2, 5, 30] {
        for word in 0..20 {
            run.append(&**store, &format!("{word} "));
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        run.until_durable(run.stored().record.len()).await;
    }
}

pub(crate) async fn confirmed_events_are_published(store: &Arc<dyn Store>) {
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();

    run.start();
    run.finish_turn();
    store.settle(&run.journal()).await.unwrap();
    assert!(run.durable() >= run.stored().record.len());
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    run.end(End::Completed);
    store.settle(&run.journal()).await.unwrap();
    assert!(run.durable() >= run.stored().record.len());
}

pub(crate) async fn a_removed_run_does_not_block_its_followers(store: &Arc<dyn Store>) {
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    assert!(store.remove(id(1)).await.unwrap());

    // A follower of the run is not left waiting.
    run.append(&**store, "word ");
    run.until_durable(run.stored().record.len()).await;
    run.end(End::Canceled);
    store.settle(&run.journal()).await.unwrap();
    assert!(run.durable() >= run.stored().record.len());
    assert!(store.load(id(1)).await.unwrap().is_none());
}

pub(crate) async fn evicted_events_stay_in_the_store(store: &Arc<dyn Store>) {
    for (number, withdraws) in [(1, false), (2, true)] {
        let (run, whole) = (ActiveRun::numbered(number), ActiveRun::numbered(number));
        let both = |change: &dyn Fn(&Arc<ActiveRun>)| [&run, &whole].into_iter().for_each(change);
        store.open(&run.journal(), run.claim()).await.unwrap();
        both(&|run| run.start());

        for part in 0..3 {
            for word in 0..10 {
                run.append(&**store, &format!("{part}-{word} "));
                whole.append(&Memory::new(), &format!("{part}-{word} "));
            }
            store.settle(&run.journal()).await.unwrap();
            let archived = run.evict();
            assert!(run.stored().record.is_whole() == (archived == 0), "what is archived was evicted");
        }

        assert_eq!(store.load(id(number)).await.unwrap().unwrap().record, whole.stored().record);
        if withdraws {
            let kept = whole.stored().record.len();
            both(&|run| run.append(&Memory::new(), "withdrawn"));
            both(&|run| run.withdraw(kept, End::Failed));
        } else {
            both(&|run| run.end(End::Completed));
        }
        store.settle(&run.journal()).await.unwrap();

        let loaded = store.load(id(number)).await.unwrap().unwrap();
        assert_eq!(loaded.record, whole.stored().record);
        run.change(|record, _| assert!(record.restore(&loaded.record)));
        assert_eq!(run.stored().record, whole.stored().record);
    }
}

pub(crate) async fn withdrawn_events_are_not_stored(store: &Arc<dyn Store>) {
    for (number, settled) in [(1, false), (2, true)] {
        let run = ActiveRun::numbered(number);
        store.open(&run.journal(), run.claim()).await.unwrap();
        run.start();
        for word in 0..10 {
            run.append(&**store, &format!("{word} "));
        }
        if settled {
            store.settle(&run.journal()).await.unwrap();
        } else {
            store.flush().await.unwrap();
        }

        // The run has as many events as before, and none of them is the same.
        let length = run.stored().record.len();
        run.withdraw(length - 4, End::Failed);
        store.touch(&run.journal());
        store.settle(&run.journal()).await.unwrap();
        assert_eq!(*store.load(id(number)).await.unwrap().unwrap(), run.stored());
    }
}

#[tokio::test]
async fn withdrawn_events_do_not_return_after_a_crash() {
    for back in 1..8 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let store = Sqlite::open(&path, &SqliteOptions::default()).unwrap();
        let run = ActiveRun::numbered(1);
        store.open(&run.journal(), run.claim()).await.unwrap();
        run.start();

        // Each flush makes one row in the log.
        for word in 0..8 {
            run.append(&store, &format!("{word} "));
            store.flush().await.unwrap();
        }
        let length = run.stored().record.len();
        run.withdraw(length - back, End::Failed);
        store.settle(&run.journal()).await.unwrap();

        drop(store);
        let store = Sqlite::open(&path, &SqliteOptions::default()).unwrap();
        assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored(), "{back} events were withdrawn");
    }
}

#[tokio::test]
async fn published_events_survive_a_crash_at_every_speed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path, &SqliteOptions::default()).unwrap();
    let mut runs = Vec::new();
    for pause in 0..=50 {
        let run = ActiveRun::numbered(pause + 1);
        store.open(&run.journal(), run.claim()).await.unwrap();
        run.start();
        runs.push((pause, run));
    }

    for time in 0..200_u128 {
        for (pause, run) in &runs {
            if *pause == 0 || time % *pause == 0 {
                run.append(&store, &format!("{time} "));
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    // After a crash a run has at least the published events, and only events that it had before.
    let published: Vec<_> = runs.iter().map(|(_, run)| run.durable()).collect();

    drop(store);
    let store = Sqlite::open(&path, &SqliteOptions::default()).unwrap();
    for ((pause, run), published) in runs.iter().zip(published) {
        assert!(published > 4, "one word each {pause} ms");
        let (stored, run) = (store.load(id(pause + 1)).await.unwrap().unwrap(), run.stored());
        assert!(stored.record.len() >= published, "one word each {pause} ms: {} of {published}", stored.record.len());
        for event in 0..stored.record.len() {
            assert_eq!(stored.record.step(event).unwrap().event, run.record.step(event).unwrap().event);
        }
    }
}
