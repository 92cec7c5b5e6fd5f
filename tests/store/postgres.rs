//! Behaviour of the store in PostgreSQL beyond the contract: texts that the database cannot store, refused writes, and
//! leftovers of replicas. Not here: the contract, and several replicas.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use interlingua::store::{
    Claim, DocumentWrite, Expect, OwnerBoundsOf, Query, Retention, Store, StoreError, owned_key, part_key,
};
use interlingua_core::call::{Filter, RunState};
use interlingua_core::event::End;
use interlingua_testing_postgres::{Database, Options, Server};

use crate::contract::open_run;
use crate::live::{ActiveRun, RunSpec, id};

fn store_in(database: &Database<'_>) -> Arc<dyn Store> {
    Arc::new(interlingua::store::Postgres::open(&crate::postgres_options(&database.url())).unwrap())
}

/// One whose runs are taken over soon.
fn replica_in(database: &Database<'_>) -> Arc<dyn Store> {
    let lease = std::time::Duration::from_secs(1);
    let options = interlingua::store::PostgresOptions { lease, ..crate::postgres_options(&database.url()) };
    Arc::new(interlingua::store::Postgres::open(&options).unwrap())
}

/// Rules that delete nothing.
fn keep_all() -> Retention {
    Retention {
        age: std::time::Duration::MAX,
        runs: u64::MAX,
        documents: u64::MAX,
        bytes: u64::MAX,
        collections: vec!["sessions".into()],
        parts: Vec::new(),
        routes: Vec::new(),
        attached: vec!["push".into()],
        bounds: OwnerBoundsOf::default(),
    }
}

#[tokio::test]
async fn names_with_characters_that_the_database_refuses_are_kept() {
    let test = crate::postgres();
    let (store, owner, session) = (&test.store, "ol\0ga/\u{1}t", "s\0\u{1}\0");
    let spec = RunSpec { owner, session, agent: "a\0", protocol: "p\0", ..RunSpec::default() };
    open_run(store, &spec, RunState::Ended(End::Completed), 2000).await;
    open_run(store, &RunSpec { id: id(2), session: "s\0", ..spec.clone() }, RunState::Running, 2000).await;

    let filter = Filter { session: Some(session.into()), protocol: Some("p\0".into()), ..Filter::default() };
    let query = Query { agents: vec!["a\0".into()], owner: Some(owner.into()), filter, ..Query::default() };
    let found = store.find(query).await.unwrap();
    assert_eq!(
        found.runs.iter().map(|head| (head.id, &*head.agent, &*head.session)).collect::<Vec<_>>(),
        [(id(1), "a\0", session)]
    );
    assert_eq!(store.latest(vec!["a\0".into()], owner.into(), "s\0".into()).await.unwrap(), Some(id(2)));
    assert_eq!(store.owner_of(id(1)).await.unwrap().as_deref(), Some(owner));

    // In the order of the keys, each in its place.
    let keys = ["a", "a\0", "a\0\0", "a\0b", "a\u{1}", "a\u{2}", "b"].map(|key| owned_key(owner, key));
    for key in &keys {
        store.put("push", key, Bytes::from(key.clone()), Expect::Absent, 1).await.unwrap().unwrap();
    }
    let listed = |prefix: String, after: Option<String>| async move {
        let listed = store.list("push", &prefix, after.as_deref(), 9).await.unwrap();
        listed.into_iter().map(|entry| entry.key).collect::<Vec<_>>()
    };
    assert_eq!(listed(owned_key(owner, ""), None).await, keys);
    assert_eq!(listed(owned_key(owner, "a\0"), None).await, keys[1..4]);
    assert_eq!(listed(owned_key(owner, "a"), Some(keys[2].clone())).await, keys[3..6]);
    assert_eq!(store.count("push", "ol\0ga").await.unwrap(), 7);
    assert_eq!(store.get("push", &keys[1]).await.unwrap().unwrap().value, keys[1].as_bytes());
    assert!(store.delete("push", &keys[1], Expect::Any).await.unwrap().unwrap());

    // Lines for turns and leases.
    let first = store.turns().queue_turn(session, None, 9).await.unwrap().unwrap();
    let second = store.turns().queue_turn(session, None, 9).await.unwrap().unwrap();
    assert!(first.is_first && !second.is_first);
    store.turns().leave_turn(first).await.unwrap();
    store.turns().wait_for_turn(&second).await.unwrap();
    assert!(store.lease("l\0", "one\0", std::time::Duration::from_secs(60)).await.unwrap());
    assert!(!store.lease("l\0", "other\0", std::time::Duration::from_secs(60)).await.unwrap());

    // An owner's documents go with the run.
    let attached = owned_key(owner, &format!("{}/x", id(1)));
    store.put("push", &attached, Bytes::new(), Expect::Absent, 1).await.unwrap().unwrap();
    let report = store.retain(Retention { runs: 1, ..keep_all() }, 3000).await.unwrap();
    assert_eq!(report.runs, [id(1)]);
    assert!(store.get("push", &attached).await.unwrap().is_none());
}

#[tokio::test]
async fn names_and_keys_that_are_too_long_are_refused_at_once() {
    let test = crate::postgres();
    let (store, long) = (&test.store, "ab".repeat(1300));
    let is_too_long = |error: StoreError| matches!(error, StoreError::TooLong { max: 2400, .. });

    let put = store.put("sessions", &long, Bytes::new(), Expect::Any, 1).await;
    assert!(is_too_long(put.unwrap_err()));
    let open =
        store.open(&ActiveRun::new(&RunSpec { session: &long, ..RunSpec::default() }).journal(), Claim::New).await;
    assert!(is_too_long(open.unwrap_err()));
    let retention = Some((&*long, false));
    let open = store.open(&ActiveRun::new(&RunSpec { retention, ..RunSpec::default() }).journal(), Claim::New).await;
    assert!(is_too_long(open.unwrap_err()));
    assert!(is_too_long(store.turns().queue_turn(&long, None, 1).await.unwrap_err()));
    assert!(is_too_long(store.lease(&long, "one", std::time::Duration::MAX).await.unwrap_err()));

    // The longest that is kept. Random characters: the database cannot make them shorter.
    let mut seed = 7_u32;
    let mut random = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'0' + u8::try_from(seed >> 26).unwrap())
    };
    let longest: String = (0..2400 - "sessions".len()).map(|_| random()).collect();
    store.put("sessions", &longest, Bytes::new(), Expect::Any, 1).await.unwrap().unwrap();
    store.turns().queue_turn(&longest, None, 1).await.unwrap();
    let (owner, session) = (&longest[..1200], &longest[1200..]);
    open_run(store, &RunSpec { owner, session, ..RunSpec::default() }, RunState::Running, 1).await;

    // A search text may have any length.
    assert_eq!(store.get("sessions", &long).await.unwrap(), None);
    assert_eq!(store.latest(Vec::new(), long.clone(), long).await.unwrap(), None);
}

#[tokio::test]
async fn a_refused_write_fails_alone() {
    let database = interlingua_testing_postgres::database();
    let store = store_in(&database);
    let running = open_run(&store, &RunSpec { id: id(100), ..RunSpec::default() }, RunState::Running, 5).await;
    database
        .sql(
            "ALTER TABLE interlingua.documents ADD CHECK (key NOT LIKE '%bad%');
             ALTER TABLE interlingua.runs ADD CHECK (session <> 'bad');
             ALTER TABLE interlingua.tickets ADD CHECK (session <> 'bad')",
        )
        .unwrap();

    // All at once, so that they are in one transaction.
    for round in 0..3_u64 {
        running.append(&*store, "more");
        let keys: Vec<String> =
            (0..40).map(|number| format!("{}{number}", if number % 20 == 7 { "bad" } else { "" })).collect();
        let keys: Vec<String> = keys.into_iter().map(|key| format!("{round}/{key}")).collect();
        let put = |key: &String| store.put("sessions", key, Bytes::new(), Expect::Absent, 1);
        let puts: Vec<_> = keys.iter().map(put).collect();
        let runs: HashMap<u64, _> = (0..6)
            .map(|number| {
                let session = if number == 3 { "bad" } else { "good" };
                let run = id((10 * round + number).into());
                (number, ActiveRun::new(&RunSpec { id: run, session, ..RunSpec::default() }))
            })
            .collect();
        let opens: Vec<_> = (0..6).map(|number| store.open(&runs[&number].journal(), Claim::New)).collect();
        let good_turn = store.turns().queue_turn(&format!("good{round}"), None, 1);
        let bad_turn = store.turns().queue_turn("bad", None, 1);

        for (key, put) in keys.iter().zip(join_all(puts).await) {
            assert_eq!(put.is_err(), key.contains("bad"), "{key}: {put:?}");
            assert!(put.is_ok() || matches!(put, Err(StoreError::Internal(_))), "{put:?}");
        }
        for (number, open) in join_all(opens).await.into_iter().enumerate() {
            assert_eq!(open.is_err(), number == 3, "{open:?}");
        }
        assert!(good_turn.await.unwrap().unwrap().is_first);
        assert!(bad_turn.await.is_err());
        assert!(runs[&3].is_lost() && !runs[&2].is_lost() && !running.is_lost());
    }

    // The run's earlier part continues.
    store.settle(&running.journal()).await.unwrap();
    assert!(!running.is_lost());
    running.until_durable(running.stored().record.len()).await;
    assert_eq!(store.load(id(100)).await.unwrap().unwrap().record, running.stored().record);
    assert_eq!(store.list("sessions", "", None, 1000).await.unwrap().len(), 3 * 38);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_run_whose_end_the_database_refuses_is_handed_out() {
    let database = interlingua_testing_postgres::database();
    let store = store_in(&database);
    let run = open_run(&store, &RunSpec::default(), RunState::Running, 5).await;
    run.append(&*store, "some");
    // Until its lines have moved from the log.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    database.sql("ALTER TABLE interlingua.runs ADD CHECK (state <> 'completed')").unwrap();
    run.end(End::Completed);
    assert!(matches!(store.settle(&run.journal()).await, Err(StoreError::Internal(_))));
    assert!(run.is_lost());

    assert_eq!(hand_out(&store).await, [id(1)]);
    let stored = store.load(id(1)).await.unwrap().unwrap();
    let taken = ActiveRun::restore((*stored).clone());
    store.open(&taken.journal(), Claim::Existing { events: stored.record.len() }).await.unwrap();
    taken.end(End::Failed);
    store.settle(&taken.journal()).await.unwrap();
}

#[tokio::test]
async fn the_size_of_a_run_includes_events_during_the_run() {
    let test = crate::postgres();
    let run = open_run(&test.store, &RunSpec::default(), RunState::Running, 5).await;
    for _ in 0..4 {
        run.append(&*test.store, &"0123456789".repeat(1000));
        // Until its lines have moved from the log.
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    }
    run.end(End::Completed);
    test.store.settle(&run.journal()).await.unwrap();
    let cost = test.store.load_cost(id(1)).await.unwrap().unwrap();
    assert!((40_000..60_000).contains(&cost.bytes), "{cost:?}");
}

#[tokio::test]
async fn leftovers_of_replicas_are_deleted() {
    let database = interlingua_testing_postgres::database();
    let store = store_in(&database);
    open_run(&store, &RunSpec::default(), RunState::Running, 5).await;
    let ticket = store.turns().queue_turn("full", None, 9).await.unwrap().unwrap();
    database
        .sql(
            "INSERT INTO interlingua.replicas (id, state, renewed_at, version, journal)
             SELECT gen_random_uuid(), state, clock_timestamp() - age * interval '1 hour', '', 1
             FROM (VALUES ('left', 0), ('left', 2), ('active', 2)) AS v(state, age);
             INSERT INTO interlingua.replicas (id, state, renewed_at, version, journal)
             VALUES ('00000000-0000-0000-0000-00000000000a', 'left', '2020-01-01', '', 1);
             UPDATE interlingua.runs SET holder = '00000000-0000-0000-0000-00000000000a';
             INSERT INTO interlingua.follows VALUES
             (gen_random_uuid(), gen_random_uuid(), '2020-01-01'), (gen_random_uuid(), gen_random_uuid(), '2999-01-01');
             INSERT INTO interlingua.leases VALUES ('old', 'one', '2020-01-01'), ('new', 'one', '2999-01-01');
             INSERT INTO interlingua.turn_lines VALUES ('empty', 7);
             INSERT INTO interlingua.signals (id, replica, run, kind)
             VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'cancel')",
        )
        .unwrap();
    store.retain(keep_all(), 1).await.unwrap();

    let count = |what: &str| database.sql(&format!("SELECT count(*) FROM interlingua.{what}")).unwrap();
    assert_eq!(count("replicas WHERE state = 'left' AND version = ''"), "2", "a recent one, and the holder of a run");
    assert_eq!(count("replicas WHERE state = 'active'"), "2");
    assert_eq!((count("follows"), count("leases"), count("signals")), ("1".into(), "1".into(), "0".into()));
    assert_eq!(database.sql("SELECT session FROM interlingua.turn_lines").unwrap(), "full");
    store.turns().leave_turn(ticket).await.unwrap();
    assert_eq!(count("turn_lines"), "0");
}

#[tokio::test]
async fn a_run_is_handed_out_whose_lines_are_all_in_rows_of_its_own() {
    let database = interlingua_testing_postgres::database();
    let (dies, survives) = (replica_in(&database), replica_in(&database));
    let run = open_run(&dies, &RunSpec::default(), RunState::Running, 5).await;
    run.append(&*dies, "some");
    // Its lines have moved from the log, and nothing else has changed.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    let counted =
        database.sql("SELECT upto < (SELECT sum(events) FROM interlingua.lines) FROM interlingua.runs").unwrap();
    assert_eq!(counted, "t", "the test is about such a run");
    drop(dies);

    let taken = hand_out(&survives).await;
    assert_eq!(taken, [id(1)]);
    let stored = survives.load(id(1)).await.unwrap().unwrap();
    assert_eq!(stored.record, run.stored().record);
    let events = stored.record.len();
    let taken = ActiveRun::restore((*stored).clone());
    survives.open(&taken.journal(), Claim::Existing { events }).await.unwrap();
    taken.end(End::Completed);
    survives.settle(&taken.journal()).await.unwrap();
    assert_eq!(survives.load(id(1)).await.unwrap().unwrap().record, taken.stored().record);
}

#[tokio::test]
async fn a_closed_store_hands_over_active_runs() {
    let database = interlingua_testing_postgres::database();
    let (leaves, stays) = (store_in(&database), store_in(&database));
    let run = open_run(&leaves, &RunSpec::default(), RunState::Running, 5).await;
    let ticket = leaves.turns().queue_turn("s", None, 9).await.unwrap().unwrap();
    assert!(ticket.is_first);
    let next = stays.turns().queue_turn("s", None, 9).await.unwrap().unwrap();
    run.append(&*leaves, "the last");
    leaves.close().await.unwrap();

    // At once, not after the lease of ten seconds.
    assert_eq!(stays.recover().await.unwrap(), [id(1)]);
    assert_eq!(stays.load(id(1)).await.unwrap().unwrap().record, run.stored().record);
    stays.turns().wait_for_turn(&next).await.unwrap();
}

/// The runs of a replica that was lost.
async fn hand_out(store: &Arc<dyn Store>) -> Vec<interlingua_core::RunId> {
    let started = std::time::Instant::now();
    loop {
        let taken = store.recover().await.unwrap();
        if !taken.is_empty() {
            return taken;
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "no run is handed out");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn documents_are_deleted_while_other_replicas_write_them_and_none_waits_in_a_circle() {
    let server = Server::start(&Options::fast()).unwrap();
    let database = server.database().unwrap();
    let (writes, deletes) = (store_in(&database), store_in(&database));
    let rules = Retention {
        runs: 3,
        documents: 3,
        collections: vec!["sessions".into()],
        parts: vec![("entries".into(), "sessions".into())],
        ..keep_all()
    };
    let deleting = tokio::spawn(async move {
        let mut report = (0, 0);
        for _ in 0..60 {
            let deleted = deletes.retain(rules.clone(), 10_000).await.unwrap();
            report = (report.0 + deleted.runs.len(), report.1 + deleted.documents);
        }
        report
    });

    for round in 0..60_u64 {
        // In both orders.
        let keys: Vec<String> = (0..8).map(|number| owned_key("a", &owned_key("o", &format!("{number}")))).collect();
        let document = |collection, key: String| DocumentWrite {
            collection,
            key,
            value: Some(Bytes::from_static(b"text")),
            expect: Expect::Any,
        };
        let wholes = keys.iter().map(|key| document("sessions", key.clone()));
        let parts = keys.iter().map(|key| document("entries", part_key(key, round % 3)));
        let all: Vec<DocumentWrite> =
            if round % 2 == 0 { wholes.chain(parts).collect() } else { parts.chain(wholes).rev().collect() };
        writes.write(all, 1000 + round).await.unwrap().unwrap();
        let spec = RunSpec { id: id(round.into()), ..RunSpec::default() };
        open_run(&writes, &spec, RunState::Ended(End::Completed), 1000 + round).await;
    }

    let (runs, documents) = deleting.await.unwrap();
    assert!(runs > 0 && documents > 0, "{runs} runs and {documents} documents were deleted");
    assert!(!server.log().contains("deadlock"), "{}", server.log());
    let wholes = writes.list("sessions", "", None, 100).await.unwrap();
    let parts = writes.list("entries", "", None, 100).await.unwrap();
    let whole_of = |part: &str| wholes.iter().any(|whole| part.starts_with(&whole.key));
    assert!(parts.iter().all(|part| whole_of(&part.key)), "parts go with their documents");
}
