//! Writes in PostgreSQL over connections that are cut in the middle, and changes of other replicas whose notifications
//! are lost. Not here: processes that die (`shared`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use interlingua::store::{Claim, DocumentWrite, Expect, PostgresOptions, Signal, Store};
use interlingua_core::event::End;
use interlingua_testing_postgres::{Database, Direction, Proxy};

use crate::live::{ActiveRun, RunSpec, id};

fn open(url: &str) -> Arc<dyn Store> {
    let options = PostgresOptions { lease: Duration::from_secs(60), ..crate::postgres_options(url) };
    Arc::new(interlingua::store::Postgres::open(&options).unwrap())
}

/// The parts of a round in the database: after none of its calls, after each one that [`WriteRound::parts`] counts, and
/// after all. They are in one flush, unless the writer begins one before the last call.
const STEPS: [&str; 5] = ["0|0|0|0", "0|1|0|0", "0|1|0|1", "2|1|0|1", "2|1|1|1"];

/// All that is written in one round.
struct WriteRound {
    number: u64,
    run: Arc<ActiveRun>,
}

impl WriteRound {
    /// A round after a run was opened that it deletes.
    async fn begin(store: &Arc<dyn Store>, number: u64) -> Self {
        let old = ActiveRun::numbered(u128::from(2 * number));
        store.open(&old.journal(), Claim::New).await.unwrap();
        old.end(End::Completed);
        store.settle(&old.journal()).await.unwrap();
        let spec = RunSpec { id: id(u128::from(2 * number + 1)), ..RunSpec::default() };
        Self { number, run: ActiveRun::new(&spec) }
    }

    /// Writes, all at once, and waits until everything is confirmed: once, however often it is sent.
    async fn write(&self, store: &Arc<dyn Store>, held: &Arc<ActiveRun>) {
        let number = self.number;
        let document = |name: &str| DocumentWrite {
            collection: "c",
            key: format!("{number}/{name}"),
            value: Some(Bytes::from(vec![b'x'; 200])),
            expect: Expect::Absent,
        };
        let journal = self.run.journal();
        held.append(&**store, "word ");
        let opened = store.open(&journal, Claim::New);
        let settled = store.settle(&held.journal());
        let removed = store.remove(id(u128::from(2 * number)));
        let written = store.write(vec![document("a"), document("b")], 0);
        let queued = store.turns().queue_turn(&format!("s{number}"), None, 0);
        let signaled = store.signal(held.stored().record.run().id, Signal::Cancel);

        opened.await.unwrap();
        settled.await.unwrap();
        assert!(removed.await.unwrap(), "it was there");
        written.await.unwrap().expect("they were absent, however often they are sent");
        queued.await.unwrap().expect("the line was empty, however often it is asked for");
        signaled.await.unwrap();
        held.until_durable(held.stored().record.len()).await;
    }

    /// The number of parts in the database, as seen at one moment.
    fn parts(&self, database: &Database<'_>) -> String {
        let (number, new, old) = (self.number, id(u128::from(2 * self.number + 1)), id(u128::from(2 * self.number)));
        let counts = format!(
            "SELECT (SELECT count(*) FROM interlingua.documents WHERE key LIKE '{number}/%'),
                    (SELECT count(*) FROM interlingua.runs WHERE id = '{new}'),
                    (SELECT count(*) FROM interlingua.tickets WHERE session = 's{number}'),
                    1 - (SELECT count(*) FROM interlingua.runs WHERE id = '{old}')"
        );
        database.sql(&counts).unwrap()
    }
}

#[tokio::test]
async fn a_flush_that_is_cut_anywhere_is_applied_as_a_whole_and_once() {
    let database = interlingua_testing_postgres::database();
    let proxy = Proxy::start(database.server().address()).unwrap();
    let (url, direct) = (database.url_at(proxy.address), database.url());
    let store = tokio::task::spawn_blocking(move || open(&url)).await.unwrap();
    let reader = tokio::task::spawn_blocking(move || open(&direct)).await.unwrap();
    let held = ActiveRun::new(&RunSpec { id: id(1_000_000), ..RunSpec::default() });
    store.open(&held.journal(), Claim::New).await.unwrap();
    held.start();

    // How much is sent without a cut.
    let first = WriteRound::begin(&store, 1).await;
    let before = [Direction::ToServer, Direction::ToClient].map(|direction| proxy.passed(direction));
    first.write(&store, &held).await;
    let sent = proxy.passed(Direction::ToServer) - before[0];
    let answered = proxy.passed(Direction::ToClient) - before[1];
    assert_eq!(first.parts(&database), STEPS[4]);

    let mut number = 1;
    for (direction, bytes, step) in [(Direction::ToServer, sent, 257), (Direction::ToClient, answered, 97)] {
        for cut in (1..bytes).step_by(step) {
            number += 1;
            let round = WriteRound::begin(&store, number).await;
            assert_eq!(round.parts(&database), STEPS[0]);
            proxy.cut_after(direction, usize::try_from(cut).unwrap());
            tokio::join!(round.write(&store, &held), async {
                // The parts meanwhile come from whole flushes, and their number never shrinks.
                let mut seen = 0;
                for _ in 0..2 {
                    let parts = round.parts(&database);
                    let step = STEPS.iter().position(|step| *step == parts);
                    assert!(step >= Some(seen), "{parts} after {cut} bytes {direction:?}");
                    seen = step.unwrap();
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
            assert_eq!(round.parts(&database), STEPS[4], "cut after {cut} bytes {direction:?}");
            let stored = reader.load(id(u128::from(2 * number + 1))).await.unwrap().unwrap();
            assert_eq!(*stored, round.run.stored());
        }
    }
    assert!(number > 12, "{number} cuts");
    assert_eq!(*reader.load(id(1_000_000)).await.unwrap().unwrap(), held.stored(), "no line is missing or there twice");
    assert!(!held.is_lost());
}

/// Waits for something, however long a busy machine takes.
async fn soon<T>(waits: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), waits).await.expect("it is noticed without a notification")
}

#[tokio::test]
async fn changes_without_a_notification_are_found() {
    let database = interlingua_testing_postgres::database();
    database
        .sql("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database()); END $$")
        .unwrap();
    let (url, other_url) = (database.url(), database.url());
    let one = tokio::task::spawn_blocking(move || open(&url)).await.unwrap();
    let other = tokio::task::spawn_blocking(move || open(&other_url)).await.unwrap();
    // From now on nothing is notified, and those who notify do not know.
    database.sql("CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT'").unwrap();

    let run = ActiveRun::numbered(1);
    one.open(&run.journal(), Claim::New).await.unwrap();
    run.start();
    run.append(&*one, "first ");
    let mut signals = one.signals();
    let mut updates = other.follow(id(1), 0).expect("other processes write runs");
    assert!(soon(updates.next()).await.unwrap().unwrap().info.is_some());

    other.signal(id(1), Signal::Cancel).await.unwrap();
    assert_eq!(soon(signals.recv()).await, Some((id(1), Signal::Cancel)));

    let first = one.turns().queue_turn("s", None, 9).await.unwrap().unwrap();
    let next = other.turns().queue_turn("s", None, 9).await.unwrap().unwrap();
    let comes = other.turns().wait_for_turn(&next);
    one.turns().leave_turn(first).await.unwrap();
    soon(comes).await.unwrap();

    run.append(&*one, "second ");
    run.end(End::Completed);
    one.settle(&run.journal()).await.unwrap();
    let started = Instant::now();
    let mut last = None;
    while let Some(update) = soon(updates.next()).await {
        last = update.unwrap().info.or(last);
        assert!(started.elapsed() < Duration::from_secs(20));
    }
    assert_eq!(*last.expect("the end"), run.stored().info);
}
