//! Retention, by the general rules and by the rules of a route: one test per rule.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use interlingua::store::{Expect, OwnerBounds, OwnerBoundsOf, Query, Retention, RetentionReport, Store, owned_key};
use interlingua_core::RunId;
use interlingua_core::call::{Filter, RunState};
use interlingua_core::event::End;
use interlingua_core::exchange::RunRetention;

use crate::contract::open_run;
use crate::live::{ActiveRun, RunSpec, id};

type SharedStore = Arc<dyn Store>;

const COMPLETED: RunState = RunState::Ended(End::Completed);
/// A time to live that never ends.
const FOREVER: u64 = u64::MAX;

/// General rules by age and number, and per route: time to live after the end, time to live while waiting, maximum.
fn policy(age: u64, runs: u64, routes: &[(&str, u64, u64, u64)]) -> Retention {
    let rules = |&(route, ended, waiting, max): &(&str, u64, u64, u64)| {
        let rules = RunRetention {
            ended_ttl: Duration::from_millis(ended),
            waiting_ttl: Duration::from_millis(waiting),
            max_runs: max,
        };
        (route.to_owned(), rules)
    };
    Retention {
        age: Duration::from_millis(age),
        runs,
        documents: u64::MAX,
        bytes: u64::MAX,
        collections: Vec::new(),
        parts: Vec::new(),
        routes: routes.iter().map(rules).collect(),
        attached: vec!["push".into()],
        bounds: OwnerBoundsOf::default(),
    }
}

fn of_route(number: u128, route: &str) -> RunSpec<'_> {
    RunSpec { id: id(number), retention: Some((route, false)), ..RunSpec::default() }
}

async fn found(store: &SharedStore) -> Vec<RunId> {
    let filter = Filter { limit: 10_000, ..Filter::default() };
    let page = store.find(Query { filter, ..Query::default() }).await.unwrap();
    assert_eq!(page.total, page.runs.len());
    page.runs.into_iter().map(|head| head.id).collect()
}

pub(crate) async fn retention_deletes_the_oldest_runs_first(store: &SharedStore) {
    let completed = RunState::Ended(End::Completed);
    for number in 0..10_u64 {
        open_run(store, &RunSpec { id: id(number.into()), ..RunSpec::default() }, completed, 10_000 + number).await;
    }
    open_run(store, &RunSpec { id: id(100), ..RunSpec::default() }, RunState::Running, 5000).await;
    open_run(store, &RunSpec { id: id(101), ..RunSpec::default() }, RunState::Waiting, 6000).await;
    open_run(store, &RunSpec { id: id(102), ..RunSpec::default() }, RunState::Waiting, 10_005).await;
    for (collection, key, at) in [("sessions", "old", 5000), ("sessions", "new", 10_005), ("push", "old", 5000)] {
        store.put(collection, key, Bytes::new(), Expect::Any, at).await.unwrap().unwrap();
    }
    let policy = |age, runs| Retention { collections: vec!["sessions".into()], ..policy(age, runs, &[]) };

    let report = store.retain(policy(u64::MAX, 1000), 11_000).await.unwrap();
    assert_eq!(report, interlingua::store::RetentionReport::default());

    // Deletes what is older than 10 003.
    let report = store.retain(policy(997, 1000), 11_000).await.unwrap();
    assert_eq!(report.runs, [id(0), id(1), id(2)]);
    assert_eq!((report.documents, report.more), (1, false));
    assert_eq!(report.stale, [id(101)], "waiting runs are reported as stale, running ones are left alone");

    // Ten runs are left; eight may stay.
    let report = store.retain(policy(100_000, 8), 11_000).await.unwrap();
    assert_eq!(report.runs, [id(3), id(4)]);
    let found = store.find(Query::default()).await.unwrap();
    assert_eq!(found.total, 8);
    let report = store.retain(policy(100_000, 0), 11_000).await.unwrap();
    assert_eq!(report.runs.len(), 5);
    assert!(store.load(id(9)).await.unwrap().is_none());
    for number in 100..103 {
        assert!(store.load(id(number)).await.unwrap().is_some());
    }
    assert!(store.get("sessions", "new").await.unwrap().is_some());
    assert!(store.get("push", "old").await.unwrap().is_some());
}

pub(crate) async fn a_route_keeps_its_runs_for_its_own_time_to_live(store: &SharedStore) {
    open_run(store, &of_route(1, "/a"), COMPLETED, 10_000).await;
    open_run(store, &of_route(2, "/a"), RunState::Ended(End::Failed), 10_500).await;
    open_run(store, &of_route(3, "/b"), COMPLETED, 10_000).await;
    open_run(store, &RunSpec { id: id(4), ..RunSpec::default() }, COMPLETED, 10_000).await;
    open_run(store, &of_route(5, "/a"), RunState::Waiting, 10_000).await;
    open_run(store, &of_route(6, "/a"), RunState::Waiting, 10_800).await;
    open_run(store, &of_route(7, "/b"), RunState::Waiting, 10_000).await;
    open_run(store, &of_route(8, "/a"), RunState::Running, 1).await;
    open_run(store, &of_route(9, "/a"), RunState::Queued, 1).await;
    let routes = [("/a", 600, 300, FOREVER), ("/b", 5000, 5000, FOREVER)];

    let report = store.retain(policy(FOREVER, FOREVER, &routes), 10_000).await.unwrap();
    assert_eq!(report, RetentionReport::default());
    let report = store.retain(policy(FOREVER, FOREVER, &routes), 11_000).await.unwrap();
    assert_eq!((report.runs, report.stale, report.more), (vec![id(1)], vec![id(5)], false));
    assert!(store.load(id(1)).await.unwrap().is_none());
    assert_eq!(found(store).await.len(), 8);

    // The general rules apply to the runs of routes too.
    let report = store.retain(policy(500, FOREVER, &[("/b", FOREVER, FOREVER, FOREVER)]), 11_100).await.unwrap();
    let mut stale = report.stale;
    stale.sort_unstable();
    assert_eq!((report.runs, stale), (vec![id(3), id(4), id(2)], vec![id(5), id(7)]));

    // When a waiting run is ended, its time to live starts again.
    let ended = ActiveRun::restore(Arc::unwrap_or_clone(store.load(id(5)).await.unwrap().unwrap()));
    store.open(&ended.journal(), ended.claim()).await.unwrap();
    ended.end(End::Canceled);
    ended.change(|_, info| info.changed_at = 11_000);
    store.settle(&ended.journal()).await.unwrap();
    assert_eq!(store.retain(policy(FOREVER, FOREVER, &routes), 11_600).await.unwrap().runs, []);
    assert_eq!(store.retain(policy(FOREVER, FOREVER, &routes), 11_601).await.unwrap().runs, [id(5)]);
}

pub(crate) async fn a_route_keeps_at_most_its_maximum_of_runs(store: &SharedStore) {
    for number in 0..6_u64 {
        open_run(store, &of_route(number.into(), "/a"), COMPLETED, 10_000 + number).await;
        open_run(store, &of_route(u128::from(number) + 10, "/b"), COMPLETED, 9000 + number).await;
    }
    open_run(store, &of_route(6, "/a"), RunState::Waiting, 5000).await;
    open_run(store, &of_route(7, "/a"), RunState::Running, 5000).await;
    let limit_of_a = |max| policy(FOREVER, FOREVER, &[("/a", FOREVER, FOREVER, max), ("/b", FOREVER, FOREVER, 100)]);

    // There are eight runs; those that have not ended count too.
    assert_eq!(store.retain(limit_of_a(8), 11_000).await.unwrap(), RetentionReport::default());
    assert_eq!(store.retain(limit_of_a(5), 11_000).await.unwrap().runs, [id(0), id(1), id(2)]);
    assert_eq!(store.retain(limit_of_a(1), 11_000).await.unwrap().runs, [id(3), id(4), id(5)]);
    assert_eq!(store.retain(limit_of_a(1), 11_000).await.unwrap(), RetentionReport::default());
    assert_eq!(found(store).await.len(), 8, "runs of other routes and runs that have not ended are kept");
}

pub(crate) async fn a_run_that_others_continue_is_hidden_by_its_route(store: &SharedStore) {
    let remembered = RunSpec { retention: Some(("/a", true)), ..RunSpec::default() };
    for number in 1..4 {
        open_run(store, &RunSpec { id: id(number), ..remembered.clone() }, COMPLETED, 10_000 + number as u64).await;
    }
    let routes = [("/a", 1000, 1000, 2)];
    let report = store.retain(policy(FOREVER, FOREVER, &routes), 10_100).await.unwrap();
    assert_eq!((report.runs, report.hidden), (vec![], vec![id(1)]));
    let hidden = store.load(id(1)).await.unwrap().unwrap();
    assert!(!hidden.info.stored, "queries must not return it");
    assert_eq!(hidden.record.run().turns.len(), 0);
    assert_eq!(found(store).await, [id(3), id(2)]);
    assert_eq!(store.latest(Vec::new(), "olga".into(), "s".into()).await.unwrap(), Some(id(3)));

    // A run is hidden once, and does not count any more.
    assert_eq!(store.retain(policy(FOREVER, FOREVER, &routes), 10_100).await.unwrap(), RetentionReport::default());
    let report = store.retain(policy(FOREVER, FOREVER, &routes), 12_000).await.unwrap();
    assert_eq!((report.runs, report.hidden), (vec![], vec![id(2), id(3)]));

    // A hidden run is deleted by the general rules.
    let report = store.retain(policy(1998, FOREVER, &routes), 12_000).await.unwrap();
    assert_eq!((report.runs, report.hidden), (vec![id(1)], vec![]));
    assert!(store.load(id(1)).await.unwrap().is_none());
    assert_eq!(store.retain(policy(FOREVER, 1, &routes), 12_000).await.unwrap().runs, [id(2)]);
}

pub(crate) async fn attached_documents_are_deleted_with_their_run(store: &SharedStore) {
    let remembered = RunSpec { retention: Some(("/a", true)), ..RunSpec::default() };
    open_run(store, &of_route(1, "/a"), COMPLETED, 10_000).await;
    open_run(store, &RunSpec { id: id(2), ..remembered }, COMPLETED, 10_000).await;
    open_run(store, &RunSpec { id: id(3), owner: "ol\u{1f}ga", ..RunSpec::default() }, COMPLETED, 9000).await;
    open_run(store, &of_route(4, "/a"), COMPLETED, 20_000).await;
    let key = |owner: &str, number, name: &str| owned_key(owner, &format!("{}{name}", id(number)));
    let deleted = [key("olga", 1, "/x"), key("olga", 1, "/y"), key("olga", 2, "/x"), key("ol\u{1f}ga", 3, "/x")];
    let kept = [key("olga", 4, "/x"), key("otto", 1, "/x"), key("olga", 1, "0"), key("olga", 1, ""), "x".to_owned()];
    for key in deleted.iter().chain(&kept) {
        store.put("push", key, Bytes::new(), Expect::Absent, 0).await.unwrap().unwrap();
        store.put("other", key, Bytes::new(), Expect::Absent, 0).await.unwrap().unwrap();
    }
    let report = store.retain(policy(1900, FOREVER, &[("/a", 500, 500, FOREVER)]), 11_000).await.unwrap();
    assert_eq!((report.runs, report.hidden), (vec![id(1), id(3)], vec![id(2)]));

    for key in &deleted {
        assert!(store.get("push", key).await.unwrap().is_none(), "{key:?}");
        assert!(store.get("other", key).await.unwrap().is_some(), "{key:?}");
    }
    for key in &kept {
        assert!(store.get("push", key).await.unwrap().is_some(), "{key:?}");
    }
}

pub(crate) async fn expired_runs_are_on_no_page(store: &SharedStore) {
    open_run(store, &of_route(1, "/a"), COMPLETED, 10_000).await;
    open_run(store, &of_route(2, "/a"), COMPLETED, 10_001).await;
    open_run(store, &of_route(3, "/a"), RunState::Waiting, 9000).await;
    open_run(store, &of_route(4, "/b"), COMPLETED, 9000).await;
    open_run(store, &RunSpec { id: id(5), ..RunSpec::default() }, COMPLETED, 9000).await;
    let policy = policy(FOREVER, FOREVER, &[("/a", 500, 500, FOREVER), ("/c", 1, 1, FOREVER)]);
    let page = async |now| {
        let page = store.find(Query { expired_before: policy.expiry_cutoffs(now), ..Query::default() }).await.unwrap();
        assert_eq!(page.total, page.runs.len());
        let mut ids: Vec<RunId> = page.runs.into_iter().map(|head| head.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(page(10_500).await, [id(1), id(2), id(3), id(4), id(5)]);
    assert_eq!(page(10_501).await, [id(2), id(3), id(4), id(5)]);

    // The same holds for single runs.
    for (number, deleted) in [(1, true), (2, false), (3, false), (4, false), (5, false)] {
        let stored = store.load(id(number)).await.unwrap().unwrap();
        assert_eq!(policy.is_expired(&stored.info, 10_501), deleted, "{number}");
        assert_eq!(policy.is_stale(&stored.info, 10_501), number == 3, "{number}");
    }
    assert_eq!(policy.min_ttl(), Duration::from_millis(1));
}

pub(crate) async fn a_run_that_continues_restarts_its_time_to_live(store: &SharedStore) {
    let run = open_run(store, &of_route(1, "/a"), RunState::Waiting, 10_000).await;
    let policy = policy(FOREVER, FOREVER, &[("/a", 500, 500, 1)]);
    assert_eq!(store.retain(policy.clone(), 11_000).await.unwrap().stale, [id(1)]);
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    run.append(&**store, "more");
    store.settle(&run.journal()).await.unwrap();
    assert_eq!(store.retain(policy.clone(), 1_000_000).await.unwrap(), RetentionReport::default());
    run.finish_turn();
    run.change(|_, info| info.changed_at = 12_000);
    store.settle(&run.journal()).await.unwrap();
    assert_eq!(store.retain(policy.clone(), 12_500).await.unwrap(), RetentionReport::default());
    assert_eq!(store.retain(policy.clone(), 12_501).await.unwrap().stale, [id(1)]);
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.end(End::Completed);
    run.change(|_, info| info.changed_at = 13_000);
    store.settle(&run.journal()).await.unwrap();

    // A later change is not lost.
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.change(|_, info| info.changed_at = 14_000);
    store.settle(&run.journal()).await.unwrap();
    assert_eq!(store.retain(policy.clone(), 14_500).await.unwrap(), RetentionReport::default());
    assert_eq!(store.retain(policy, 14_501).await.unwrap().runs, [id(1)]);
    assert_eq!(found(store).await, []);
}

pub(crate) async fn many_runs_are_deleted_in_small_batches(store: &SharedStore) {
    const COUNT: u64 = 2500;
    let mut waits = Vec::new();
    for number in 0..COUNT {
        let spec = of_route(number.into(), "/a");
        let run = ActiveRun::new(&spec);
        drop(store.open(&run.journal(), run.claim()));
        run.end(End::Completed);
        run.change(|_, info| info.changed_at = 10_000 + number);
        waits.push(store.settle(&run.journal()));
    }
    for finish_turn in waits {
        finish_turn.await.unwrap();
    }

    let policy = policy(FOREVER, FOREVER, &[("/a", 12_000 - 11_500, FOREVER, 1200)]);
    let (mut deleted, mut rounds) = (Vec::new(), 0);
    loop {
        let report = store.retain(policy.clone(), 12_000).await.unwrap();
        assert!(report.runs.len() <= 1000, "a batch is small");
        deleted.extend(report.runs);
        rounds += 1;
        if !report.more {
            break;
        }
    }
    assert!(rounds > 1);

    // 1500 runs are older than 11 500. The maximum of 1200 would delete 1300, which is less.
    assert_eq!(deleted, (0..1500).map(id).collect::<Vec<_>>(), "the oldest runs are deleted first");
    assert_eq!(found(store).await.len(), 1000);
}

/// With random rules and random runs.
pub(crate) async fn runs_that_have_not_ended_are_never_deleted(store: &SharedStore) {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let states = [RunState::Queued, RunState::Running, RunState::Waiting, COMPLETED, RunState::Ended(End::Canceled)];
    let retentions = [None, Some(("/a", false)), Some(("/a", true)), Some(("/b", false))];
    let mut active = Vec::new();
    for round in 0..40 {
        for number in 0..6 {
            let spec = RunSpec {
                id: id(round * 100 + number),
                retention: retentions[random(4) as usize],
                ..RunSpec::default()
            };
            let state = states[random(5) as usize];
            open_run(store, &spec, state, 10_000 + random(2000)).await;
            if !matches!(state, RunState::Ended(_)) {
                active.push((spec.id, state));
            }
        }
        let mut rules = |route| (route, random(3000), random(3000), random(10));
        let routes = [rules("/a"), rules("/b")];
        let policy = policy(random(3000), random(30), &routes);
        let now = 10_000 + random(4000);
        let report = store.retain(policy.clone(), now).await.unwrap();
        for (id, state) in &active {
            assert!(!report.runs.contains(id) && !report.hidden.contains(id));
            let stored =
                store.load(*id).await.unwrap().unwrap_or_else(|| panic!("a run in state {state:?} was deleted"));
            assert!(stored.info.stored);
            assert_eq!(report.stale.contains(id), policy.is_stale(&stored.info, now), "{state:?}");
        }
        let stale = report.stale.iter().all(|stale| active.contains(&(*stale, RunState::Waiting)));
        assert!(stale, "only waiting runs are reported as stale");
    }
    assert_eq!(found(store).await.iter().filter(|id| active.iter().any(|(of, _)| of == *id)).count(), active.len());
}

pub(crate) async fn the_largest_owner_loses_first(store: &SharedStore) {
    for number in 0..3 {
        open_run(store, &RunSpec { id: id(number), owner: "victim", ..RunSpec::default() }, COMPLETED, 1000).await;
    }
    for number in 100..160 {
        open_run(
            store,
            &RunSpec { id: id(number), owner: "stranger/t", ..RunSpec::default() },
            COMPLETED,
            number as u64 + 9000,
        )
        .await;
    }
    let report = store.retain(policy(FOREVER, 20, &[]), 10_000).await.unwrap();
    assert_eq!(report.runs, (100..143).map(id).collect::<Vec<_>>());

    // Runs that have not ended count but are not deleted; then another owner loses a run.
    for number in 200..230 {
        open_run(store, &RunSpec { id: id(number), owner: "busy", ..RunSpec::default() }, RunState::Running, 1).await;
    }
    let report = store.retain(policy(FOREVER, 49, &[]), 10_000).await.unwrap();
    assert_eq!(report.runs.len(), 1);
    assert_eq!(found(store).await.len(), 49);
}

pub(crate) async fn a_route_counts_the_runs_of_each_owner(store: &SharedStore) {
    for number in 0..3 {
        let spec = RunSpec { owner: "anonymous/victim", ..of_route(number, "/a") };
        open_run(store, &spec, COMPLETED, 1000 + number as u64).await;
    }
    for number in 100..160 {
        let spec = RunSpec { owner: "anonymous/stranger", ..of_route(number, "/a") };
        open_run(store, &spec, COMPLETED, 9000 + number as u64).await;
    }
    let report = store.retain(policy(FOREVER, FOREVER, &[("/a", FOREVER, FOREVER, 50)]), 10_000).await.unwrap();
    assert_eq!(report.runs, (100..110).map(id).collect::<Vec<_>>());
    let report = store.retain(policy(FOREVER, FOREVER, &[("/a", FOREVER, FOREVER, 2)]), 10_000).await.unwrap();
    assert_eq!((report.runs.len(), report.runs.contains(&id(0)), report.runs.contains(&id(1))), (49, true, false));
}

pub(crate) async fn documents_are_limited_by_number_and_deleted_with_their_parts(store: &SharedStore) {
    let key = |owner: &str, number| format!("friday\u{1f}{owner}\u{1f}s{number}");
    for (owner, count) in [("victim", 2), ("stranger", 20)] {
        for number in 0..count {
            let key = key(owner, number);
            store.put("sessions", &key, Bytes::new(), Expect::Absent, 1000 + number).await.unwrap().unwrap();
            for index in 0..3 {
                let part = interlingua::store::part_key(&key, index);
                store.put("entries", &part, Bytes::from_static(b"text"), Expect::Absent, 0).await.unwrap().unwrap();
            }
        }
    }

    // Another session with a key that has the same prefix.
    let other = format!("{}\u{1f}user", key("stranger", 0));
    store.put("sessions", &other, Bytes::new(), Expect::Absent, 5000).await.unwrap().unwrap();
    store
        .put("entries", &interlingua::store::part_key(&other, 0), Bytes::new(), Expect::Absent, 0)
        .await
        .unwrap()
        .unwrap();

    let collections = vec!["sessions".into()];
    let parts = vec![("entries".into(), "sessions".into())];
    let report = store
        .retain(Retention { collections, parts, documents: 10, ..policy(FOREVER, FOREVER, &[]) }, 10_000)
        .await
        .unwrap();
    assert_eq!(report.documents, 13);
    for (owner, number, kept) in
        [("victim", 0, true), ("victim", 1, true), ("stranger", 12, false), ("stranger", 13, true)]
    {
        let key = key(owner, number);
        assert_eq!(store.get("sessions", &key).await.unwrap().is_some(), kept, "{owner} {number}");
        let parts =
            store.list("entries", &interlingua::store::part_key(&key, 0)[..key.len() + 1], None, 9).await.unwrap();
        assert_eq!(parts.len(), if kept { 3 } else { 0 }, "{owner} {number}");
    }
    assert!(store.get("entries", &interlingua::store::part_key(&other, 0)).await.unwrap().is_some());
}

pub(crate) async fn the_byte_limit_takes_from_the_largest_owner(store: &SharedStore) {
    for (owner, numbers) in [("victim", 0..5), ("stranger", 100..140)] {
        for number in numbers {
            let run = ActiveRun::new(&RunSpec { id: id(number), owner, ..RunSpec::default() });
            store.open(&run.journal(), run.claim()).await.unwrap();
            run.start();
            run.append(&**store, &"0123456789".repeat(10_000));
            run.end(End::Completed);
            run.change(|_, info| info.changed_at = 10_000 + number as u64);
            store.settle(&run.journal()).await.unwrap();
        }
    }
    for number in 0..20_u64 {
        let key = format!("friday\u{1f}writer\u{1f}{number:02}");
        store.put("sessions", &key, Bytes::new(), Expect::Absent, 10_000 + number).await.unwrap().unwrap();
        let part = interlingua::store::part_key(&key, 0);
        store.put("entries", &part, vec![b'x'; 100_000].into(), Expect::Absent, 10_000).await.unwrap().unwrap();
    }
    let policy = Retention {
        bytes: 3 << 20,
        collections: vec!["sessions".into()],
        parts: vec![("entries".into(), "sessions".into())],
        ..policy(FOREVER, FOREVER, &[])
    };

    while store.retain(policy.clone(), 20_000).await.unwrap().more {}

    let left = found(store).await;
    let strangers = (100..140).filter(|number| left.contains(&id(*number))).count();
    assert!((0..5).all(|number| left.contains(&id(number))), "the smallest owner keeps everything: {left:?}");
    assert!((5..20).contains(&strangers) && left.contains(&id(139)), "{strangers}");
    let sessions = store.list("sessions", "", None, 100).await.unwrap();
    let entries = store.list("entries", "", None, 100).await.unwrap();
    assert!((5..20).contains(&sessions.len()), "{}", sessions.len());
    assert_eq!(sessions.len(), entries.len(), "a document and its parts are deleted together");
    assert!(sessions.last().unwrap().key.ends_with("19"), "the newest document is kept");
}

/// Rules with these bounds for Ann, and none for anyone else.
fn bounds_of_ann(bounds: OwnerBounds, rules: Retention) -> Retention {
    let of = move |principal: &str| if principal == "key:ann" { bounds } else { OwnerBounds::NONE };
    Retention { bounds: OwnerBoundsOf::new(of), ..rules }
}

pub(crate) async fn who_is_over_their_own_bound_loses_their_own_oldest(store: &SharedStore) {
    // Bob's runs are older and more than Ann's.
    for number in 0..20_u64 {
        let spec = RunSpec { id: id(number.into()), owner: "key:bob", ..RunSpec::default() };
        open_run(store, &spec, COMPLETED, 1000 + number).await;
    }
    for (tenant, from, count) in [("key:ann/a", 100_u64, 8), ("key:ann/b", 200, 2)] {
        for number in from..from + count {
            let spec = RunSpec { id: id(number.into()), owner: tenant, ..RunSpec::default() };
            open_run(store, &spec, COMPLETED, 9000 + number).await;
        }
    }

    let bounds = OwnerBounds { runs: 6, ..OwnerBounds::NONE };
    let report = store.retain(bounds_of_ann(bounds, policy(FOREVER, FOREVER, &[])), 20_000).await.unwrap();
    assert_eq!(report.runs, [id(100), id(101), id(102), id(103)], "her larger tenant loses its oldest");
    let report = store.retain(bounds_of_ann(bounds, policy(FOREVER, FOREVER, &[])), 20_000).await.unwrap();
    assert_eq!(report, RetentionReport::default());

    // Runs that have not ended count, and are not deleted: another tenant of hers loses instead, and no one else.
    for number in 300..306 {
        let spec = RunSpec { id: id(number), owner: "key:ann/c", ..RunSpec::default() };
        open_run(store, &spec, RunState::Running, 1).await;
    }
    let report = store.retain(bounds_of_ann(bounds, policy(FOREVER, FOREVER, &[])), 20_000).await.unwrap();
    assert_eq!(report.runs.len(), 6, "{report:?}");
    assert_eq!((report.more, found(store).await.len()), (false, 26));
}

pub(crate) async fn the_own_bound_of_a_route_counts_that_route(store: &SharedStore) {
    for (route, from) in [("/a", 0), ("/b", 100)] {
        for number in from..from + 5_u64 {
            let spec = RunSpec { owner: "key:ann", ..of_route(number.into(), route) };
            open_run(store, &spec, COMPLETED, 9000 + number).await;
        }
    }
    let routes = [("/a", FOREVER, FOREVER, FOREVER), ("/b", FOREVER, FOREVER, FOREVER)];
    let bounds = OwnerBounds { route_runs: 3, ..OwnerBounds::NONE };
    let report = store.retain(bounds_of_ann(bounds, policy(FOREVER, FOREVER, &routes)), 20_000).await.unwrap();
    assert_eq!(report.runs, [id(0), id(1), id(100), id(101)]);
}

pub(crate) async fn the_own_bound_of_documents_takes_only_from_their_owner(store: &SharedStore) {
    for (owner, count) in [("key:ann", 12), ("key:bob", 30)] {
        for number in 0..count {
            let key = format!("friday\u{1f}{owner}\u{1f}{number:02}");
            store.put("sessions", &key, Bytes::new(), Expect::Absent, 1000 + number).await.unwrap().unwrap();
        }
    }
    let rules = Retention { collections: vec!["sessions".into()], ..policy(FOREVER, FOREVER, &[]) };
    let bounds = OwnerBounds { documents: 5, ..OwnerBounds::NONE };
    let report = store.retain(bounds_of_ann(bounds, rules), 10_000).await.unwrap();
    assert_eq!(report.documents, 7);
    let left = store.list("sessions", "friday\u{1f}key:ann\u{1f}", None, 100).await.unwrap();
    assert!(left.first().unwrap().key.ends_with("07") && left.len() == 5, "{left:?}");
}

pub(crate) async fn the_own_bound_of_bytes_takes_only_from_their_owner(store: &SharedStore) {
    for (owner, numbers) in [("key:bob", 0..40_u64), ("key:ann", 100..120), ("key:ann/t", 200..204)] {
        for number in numbers {
            let run = ActiveRun::new(&RunSpec { id: id(number.into()), owner, ..RunSpec::default() });
            store.open(&run.journal(), run.claim()).await.unwrap();
            run.start();
            run.append(&**store, &"0123456789".repeat(10_000));
            run.end(End::Completed);
            run.change(|_, info| info.changed_at = 10_000 + number);
            store.settle(&run.journal()).await.unwrap();
        }
    }
    let bounds = OwnerBounds { bytes: 1 << 20, ..OwnerBounds::NONE };
    let rules = bounds_of_ann(bounds, policy(FOREVER, FOREVER, &[]));
    while store.retain(rules.clone(), 20_000).await.unwrap().more {}

    let left = found(store).await;
    assert!((0..40).all(|number| left.contains(&id(number))), "Bob keeps everything: {left:?}");
    let anns: Vec<u64> = (100..120).filter(|number| left.contains(&id((*number).into()))).collect();
    assert!((2..10).contains(&anns.len()) && anns.contains(&119), "she keeps her newest: {anns:?}");
    assert!((200..204).all(|number| left.contains(&id(number))), "and her smaller tenant all: {left:?}");
}
