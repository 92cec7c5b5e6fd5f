//! Runs in PostgreSQL that a replica holds and does not have: because it did not learn that it was given them, or
//! because the database refuses what it writes. And deletions by two replicas at once. Not here: runs of replicas that
//! die (`shared`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use interlingua::store::{Expect, OwnerBoundsOf, PostgresOptions, Retention, Store, StoreError, owned_key};
use interlingua_core::RunId;
use interlingua_core::call::RunState;
use interlingua_core::event::End;
use interlingua_testing_postgres::Proxy;

use crate::contract::open_run;
use crate::live::{ActiveRun, RunSpec, id};

/// Short: it is also how often a replica looks what it holds.
const LEASE: Duration = Duration::from_secs(1);

async fn open(url: String) -> Arc<dyn Store> {
    let options = PostgresOptions { lease: LEASE, ..crate::postgres_options(&url) };
    let opened = tokio::task::spawn_blocking(move || interlingua::store::Postgres::open(&options));
    Arc::new(opened.await.unwrap().unwrap())
}

/// Asks for runs to take over until there are some.
async fn hand_out(store: &Arc<dyn Store>) -> Vec<RunId> {
    let started = Instant::now();
    loop {
        let taken = store.recover().await.unwrap();
        if !taken.is_empty() {
            return taken;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "no run is handed out");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn end(store: &Arc<dyn Store>, run: RunId) {
    let taken = ActiveRun::restore(Arc::unwrap_or_clone(store.load(run).await.unwrap().unwrap()));
    store.open(&taken.journal(), taken.claim()).await.unwrap();
    taken.end(End::Failed);
    store.settle(&taken.journal()).await.unwrap();
}

#[tokio::test]
async fn runs_are_handed_out_again_if_the_answer_was_lost_with_the_connection() {
    let database = interlingua_testing_postgres::database();
    let proxy = Proxy::start(database.server().address()).unwrap();
    let leaves = open(database.url()).await;
    let run = open_run(&leaves, &RunSpec::default(), RunState::Running, 5).await;
    let stays = open(database.url_at(proxy.address)).await;
    // Only taking over is slow.
    database
        .sql(
            "CREATE FUNCTION public.slowly() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_sleep(1); RETURN NEW; END $$;
             CREATE TRIGGER slowly BEFORE UPDATE ON interlingua.runs FOR EACH ROW
                WHEN (OLD.holder IS NOT NULL AND NEW.holder IS NOT NULL AND OLD.holder <> NEW.holder)
                EXECUTE FUNCTION public.slowly()",
        )
        .unwrap();
    leaves.close().await.unwrap();

    let recovering = stays.recover();
    let is_taken = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    while database.sql(is_taken).unwrap() == "0" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.cut();
    let answered = recovering.await;
    assert!(answered.as_ref().map_or(true, Vec::is_empty), "{answered:?}");
    let held = "SELECT count(*) FROM interlingua.runs r JOIN interlingua.replicas p ON p.id = r.holder
                WHERE p.state = 'active'";
    while database.sql(held).unwrap() == "0" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    assert_eq!(hand_out(&stays).await, [id(1)]);
    assert_eq!(stays.load(id(1)).await.unwrap().unwrap().record, run.stored().record);
    end(&stays, id(1)).await;
    assert_eq!(database.sql("SELECT count(*) FROM interlingua.runs WHERE holder IS NOT NULL").unwrap(), "0");
}

#[tokio::test]
async fn a_replica_hands_over_only_orphaned_runs() {
    let database = interlingua_testing_postgres::database();
    let store = open(database.url()).await;
    let running = open_run(&store, &RunSpec { id: id(1), ..RunSpec::default() }, RunState::Running, 5).await;
    let handed = open_run(&store, &RunSpec { id: id(2), ..RunSpec::default() }, RunState::Ended(End::Failed), 5).await;
    open_run(&store, &RunSpec { id: id(3), ..RunSpec::default() }, RunState::Waiting, 5).await;
    open_run(&store, &RunSpec { id: id(4), ..RunSpec::default() }, RunState::Ended(End::Failed), 5).await;
    // As a database shows it that was restored to an earlier state.
    database
        .sql(
            "UPDATE interlingua.runs SET holder = (SELECT id FROM interlingua.replicas) WHERE holder IS NULL;
             UPDATE interlingua.runs SET state = 'running', ended = false WHERE id = '00000000-0000-0000-0000-000000000002'",
        )
        .unwrap();

    assert_eq!(hand_out(&store).await, [handed.stored().record.run().id]);
    assert_eq!(
        database.sql("SELECT holder IS NULL FROM interlingua.runs WHERE state = 'waiting'").unwrap(),
        "t",
        "it waits still, and anyone may continue it"
    );
    // Who opens it takes its time: it is not handed out twice.
    tokio::time::sleep(LEASE * 3).await;
    assert_eq!(store.recover().await.unwrap(), []);
    running.append(&*store, "as before");
    store.settle(&running.journal()).await.unwrap();
    assert!(!running.is_lost());
}

#[tokio::test]
async fn a_waiting_run_that_was_forgotten_and_then_claimed_keeps_its_holder() {
    let database = interlingua_testing_postgres::database();
    let store = open(database.url()).await;
    open_run(&store, &RunSpec::default(), RunState::Waiting, 5).await;
    database.sql("UPDATE interlingua.runs SET holder = (SELECT id FROM interlingua.replicas)").unwrap();
    // It is compared once in a lease, and not asked for yet.
    tokio::time::sleep(LEASE * 3).await;

    let claimed = ActiveRun::restore(Arc::unwrap_or_clone(store.load(id(1)).await.unwrap().unwrap()));
    store.open(&claimed.journal(), claimed.claim()).await.unwrap();
    assert_eq!(store.recover().await.unwrap(), []);
    assert_eq!(database.sql("SELECT count(*) FROM interlingua.runs WHERE holder IS NOT NULL").unwrap(), "1");
}

#[tokio::test]
async fn a_run_that_is_given_up_keeps_all_that_was_published() {
    let database = interlingua_testing_postgres::database();
    let store = open(database.url()).await;
    let run = open_run(&store, &RunSpec::default(), RunState::Running, 5).await;
    database.sql("ALTER TABLE interlingua.runs ADD CHECK (state <> 'waiting')").unwrap();
    for word in 0..20 {
        run.append(&*store, &format!("{word} "));
        run.until_durable(run.stored().record.len()).await;
    }
    let published = run.durable();
    run.finish_turn();
    let refused = store.settle(&run.journal()).await;
    assert!(matches!(refused, Err(StoreError::Internal(_))), "{refused:?}");
    assert!(run.is_lost() && run.durable() == published);

    assert_eq!(hand_out(&store).await, [id(1)]);
    let stored = store.load(id(1)).await.unwrap().unwrap();
    assert_eq!(stored.record.len(), published, "what clients have seen is there, and nothing else");
    end(&store, id(1)).await;
}

#[tokio::test]
async fn concurrent_deletion_deletes_each_run_once() {
    const RUNS: u64 = 120;
    const KEPT: u64 = 30;
    let database = interlingua_testing_postgres::database();
    let (one, other) = (open(database.url()).await, open(database.url()).await);
    for number in 0..RUNS {
        let at = 1000 + number;
        let spec =
            RunSpec { id: id(number.into()), owner: if number % 3 == 0 { "a" } else { "b" }, at, ..RunSpec::default() };
        let ended = if number == 0 { RunState::Running } else { RunState::Ended(End::Completed) };
        open_run(&one, &spec, ended, at).await;
        let key = owned_key("agent", &owned_key("o", &format!("{number:03}")));
        one.put("sessions", &key, Bytes::new(), Expect::Absent, at).await.unwrap().unwrap();
    }
    let rules = Retention {
        age: Duration::MAX,
        runs: KEPT,
        documents: KEPT,
        bytes: u64::MAX,
        collections: vec!["sessions".into()],
        parts: Vec::new(),
        routes: Vec::new(),
        attached: vec!["push".into()],
        bounds: OwnerBoundsOf::default(),
    };

    let delete = async |store: &Arc<dyn Store>| {
        let (mut runs, mut documents, mut more) = (Vec::new(), 0, true);
        while more {
            let report = store.retain(rules.clone(), 10_000).await.unwrap();
            runs.extend(report.runs);
            documents += report.documents;
            more = report.more;
        }
        (runs, documents)
    };
    let ((mut runs, documents), (theirs, their_documents)) = tokio::join!(delete(&one), delete(&other));
    runs.extend(theirs);
    runs.sort_unstable();
    let count = runs.len();
    runs.dedup();
    assert_eq!(runs.len(), count, "each run is reported by the one that has deleted it");
    let left = |table: &str| database.sql(&format!("SELECT count(*) FROM interlingua.{table}")).unwrap();
    assert_eq!((left("runs"), count as u64), (KEPT.to_string(), RUNS - KEPT));
    assert_eq!((left("documents"), (documents + their_documents) as u64), (KEPT.to_string(), RUNS - KEPT));
    assert!(one.load(id(0)).await.unwrap().is_some(), "what runs is kept, however old it is");
    let orphans = "lines l WHERE NOT EXISTS (SELECT FROM interlingua.runs r WHERE r.id = l.run)";
    assert_eq!(left(orphans), "0");
}
