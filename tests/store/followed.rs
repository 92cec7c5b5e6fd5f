//! Writes of the store in PostgreSQL for replicas that follow runs: one row for all of them, and notifications. Not
//! here: the followers' view, which is the same in every shared store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use interlingua::store::{Postgres, Store};
use interlingua_core::call::RunState;
use interlingua_core::event::End;
use interlingua_core::journal;
use interlingua_testing_postgres::Database;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, NoTls};

use crate::contract::open_run;
use crate::live::{ActiveRun, RunSpec, id};

const RUNS: u128 = 3;
/// More than a second apart from the first to the last one: lines move to the runs' rows meanwhile.
const WORDS: usize = 120;

fn store_in(database: &Database<'_>) -> Arc<dyn Store> {
    Arc::new(Postgres::open(&crate::postgres_options(&database.url())).unwrap())
}

fn number(database: &Database<'_>, sql: &str) -> u64 {
    database.sql(sql).unwrap().trim().parse().unwrap()
}

/// Follows a run from an event on, until it is over. Returns the lines.
fn follow(store: &Arc<dyn Store>, run: u128, from: u64) -> tokio::task::JoinHandle<Vec<u8>> {
    let mut updates = store.follow(id(run), from).expect("other processes write runs");
    tokio::spawn(async move {
        let (mut lines, mut is_first) = (Vec::new(), true);
        while let Some(update) = updates.next().await {
            let update = update.unwrap();
            assert!(!is_first || update.info.is_some(), "the first update has the metadata");
            is_first = false;
            lines.extend_from_slice(&update.lines);
        }
        lines
    })
}

fn lines_from(run: &ActiveRun, from: u64) -> Vec<u8> {
    let mut lines = Vec::new();
    journal::write(&run.stored().record, from, &mut lines);
    lines
}

#[tokio::test]
async fn lines_of_all_runs_that_are_followed_are_one_row_of_each_flush() {
    let database = interlingua_testing_postgres::database();
    let (holds, follows) = (store_in(&database), store_in(&database));
    let (mut runs, mut followers) = (Vec::new(), Vec::new());
    for run in 1..=RUNS {
        let spec = RunSpec { id: id(run), ..RunSpec::default() };
        runs.push(open_run(&holds, &spec, RunState::Running, 5).await);
        followers.push((run, 0, follow(&follows, run, 0)));
    }

    let mut rows_for_followers = 0;
    for word in 0..WORDS {
        for run in &runs {
            run.append(&*holds, &format!("{word} "));
        }
        // Also from events on that are in the log alone, at this moment.
        if word % 30 == 7 {
            let run = &runs[0];
            run.until_durable(run.stored().record.len()).await;
            let from = run.stored().record.len() - 2;
            followers.push((1, from, follow(&follows, 1, from)));
        }
        if word % 10 == 0 {
            let sql = "SELECT count(*) FROM interlingua.log WHERE followed <> ''";
            rows_for_followers = number(&database, sql).max(rows_for_followers);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for run in &runs {
        run.end(End::Completed);
        holds.settle(&run.journal()).await.unwrap();
    }

    for (run, from, follower) in followers {
        let lines = tokio::time::timeout(Duration::from_secs(20), follower).await.expect("the run is over").unwrap();
        let run = &runs[usize::try_from(run - 1).unwrap()];
        // Between values there may be further newlines.
        let mut whole = lines_from(run, 0);
        whole.truncate(whole.len() - lines_from(run, from).len());
        whole.extend(lines);
        assert_eq!(
            journal::read(&whole).unwrap(),
            run.stored().record,
            "run {}, from {from}",
            run.stored().record.run().id
        );
    }
    assert!(rows_for_followers > 1, "the log has what is followed");
    let rows = number(&database, "SELECT max(n) FROM (SELECT count(*) n FROM interlingua.lines GROUP BY run) r");
    assert!(rows < WORDS as u64 / 2, "{rows} rows of a run: not one for each flush");
}

/// The notifications between replicas.
async fn notices(database: &Database<'_>) -> UnboundedReceiver<String> {
    let (client, mut connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    let (sender, notices) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notice) = message {
                let _ = sender.send(notice.payload().to_owned());
            }
        }
    });
    client.batch_execute("LISTEN \"interlingua interlingua\"").await.unwrap();
    // The connection ends with its client.
    std::mem::forget(client);
    notices
}

#[tokio::test]
async fn others_are_notified_of_the_end_of_a_run_that_they_follow() {
    let database = interlingua_testing_postgres::database();
    let (holds, follows) = (store_in(&database), store_in(&database));
    let run = open_run(&holds, &RunSpec::default(), RunState::Running, 5).await;
    let follower = follow(&follows, 1, 0);
    let mut notices = notices(&database).await;

    // Until the holder knows of the follower.
    let started = Instant::now();
    loop {
        run.append(&*holds, "word ");
        let notice = tokio::time::timeout(Duration::from_millis(200), notices.recv()).await;
        if notice.is_ok_and(|notice| notice.unwrap().contains('l')) {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "nothing is notified");
    }
    // All lines have moved to the run's rows: there is nothing to notify of any more.
    run.until_durable(run.stored().record.len()).await;
    while tokio::time::timeout(Duration::from_secs(3), notices.recv()).await.is_ok() {}

    run.end(End::Completed);
    holds.settle(&run.journal()).await.unwrap();
    let notice = tokio::time::timeout(Duration::from_secs(10), notices.recv()).await.expect("it is notified").unwrap();
    assert!(notice.contains('r'), "{notice}");
    let lines = tokio::time::timeout(Duration::from_secs(20), follower).await.expect("the run is over").unwrap();
    assert_eq!(journal::read(&lines).unwrap(), run.stored().record);
}

#[tokio::test]
async fn a_database_of_the_version_before_is_used_together_with_gateways_of_that_version() {
    let database = interlingua_testing_postgres::database();
    let first = include_str!("../../crates/store-postgres/src/schema.sql").replace("il.", "interlingua.");
    database.sql(&format!("CREATE SCHEMA interlingua; {first}")).unwrap();
    let (holds, follows) = (store_in(&database), store_in(&database));
    assert_eq!(number(&database, "SELECT max(version) FROM interlingua.migrations"), 4);
    assert_eq!(number(&database, "SELECT max(reader) FROM interlingua.migrations"), 1);

    // A gateway of version 1 writes rows as here: lines of a run that is followed to the run's rows, and notifies of
    // those.
    let run = open_run(&holds, &RunSpec::default(), RunState::Running, 5).await;
    let mut updates = follows.follow(id(1), 0).expect("other processes write runs");
    let events = run.stored().record.len();
    let grown = ActiveRun::restore(run.stored());
    grown.append(&*follows, "of version 1");
    let added = String::from_utf8(lines_from(&grown, events)).unwrap().replace('\'', "''");
    database
        .sql(&format!(
            "INSERT INTO interlingua.lines VALUES ('{}', {events}, {}, convert_to('{added}', 'UTF8'));
             INSERT INTO interlingua.log (replica, flush, bytes) VALUES (gen_random_uuid(), 1, '\\x00');
             SELECT pg_notify('interlingua interlingua', 'r')",
            id(1).0,
            grown.stored().record.len() - events,
        ))
        .unwrap();
    let mut lines = Vec::new();
    while lines.is_empty() || journal::read(&lines).unwrap().len() < grown.stored().record.len() {
        let update = tokio::time::timeout(Duration::from_secs(20), updates.next()).await.expect("it is followed");
        lines.extend_from_slice(&update.unwrap().unwrap().lines);
    }
    assert_eq!(journal::read(&lines).unwrap(), grown.stored().record);
}
