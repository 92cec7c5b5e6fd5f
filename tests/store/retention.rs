//! What is forgotten when, by the rules for all runs and by those of a route: each promise a function that asks one store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use interlingua::store::{Expect, Query, Retention, Store, Swept, owned_key};
use interlingua_core::RunId;
use interlingua_core::call::{Filter, RunState};
use interlingua_core::event::End;
use interlingua_core::exchange::RunRetention;

use crate::contract::opened;
use crate::live::{ActiveRun, Made, id};

type Asked = Arc<dyn Store>;

const COMPLETED: RunState = RunState::Ended(End::Completed);
/// A time that is never over.
const EVER: u64 = u64::MAX;

/// All runs by age and number; those of a route by how long they are kept, how long they may wait, and how many.
fn policy(age: u64, runs: u64, routes: &[(&str, u64, u64, u64)]) -> Retention {
    let keep = |&(route, ended, waiting, most): &(&str, u64, u64, u64)| {
        let keep = RunRetention {
            ended_ttl: Duration::from_millis(ended),
            waiting_ttl: Duration::from_millis(waiting),
            max_runs: most,
        };
        (route.to_owned(), keep)
    };
    Retention {
        age: Duration::from_millis(age),
        runs,
        documents: u64::MAX,
        bytes: u64::MAX,
        collections: Vec::new(),
        parts: Vec::new(),
        routes: routes.iter().map(keep).collect(),
        attached: vec!["push".into()],
    }
}

fn of_route(number: u128, route: &str) -> Made<'_> {
    Made { id: id(number), keeper: Some((route, false)), ..Made::default() }
}

async fn found(store: &Asked) -> Vec<RunId> {
    let filter = Filter { limit: 10_000, ..Filter::default() };
    let page = store.find(Query { filter, ..Query::default() }).await.unwrap();
    assert_eq!(page.total, page.runs.len());
    page.runs.into_iter().map(|head| head.id).collect()
}

pub(crate) async fn retention_forgets_what_ended_first(store: &Asked) {
    let completed = RunState::Ended(End::Completed);
    for number in 0..10_u64 {
        opened(store, &Made { id: id(number.into()), ..Made::default() }, completed, 10_000 + number).await;
    }
    opened(store, &Made { id: id(100), ..Made::default() }, RunState::Running, 5000).await;
    opened(store, &Made { id: id(101), ..Made::default() }, RunState::Waiting, 6000).await;
    opened(store, &Made { id: id(102), ..Made::default() }, RunState::Waiting, 10_005).await;
    for (collection, key, at) in [("sessions", "old", 5000), ("sessions", "new", 10_005), ("push", "old", 5000)] {
        store.put(collection, key, Bytes::new(), Expect::Anything, at).await.unwrap().unwrap();
    }
    let policy = |age, runs| Retention { collections: vec!["sessions".into()], ..policy(age, runs, &[]) };

    let swept = store.retain(policy(u64::MAX, 1000), 11_000).await.unwrap();
    assert_eq!(swept, interlingua::store::Swept::default());
    // Older than 10 003.
    let swept = store.retain(policy(997, 1000), 11_000).await.unwrap();
    assert_eq!(swept.runs, [id(0), id(1), id(2)]);
    assert_eq!((swept.documents, swept.more), (1, false));
    assert_eq!(swept.stale, [id(101)], "who waits is not forgotten, and what runs is left alone");
    // Ten are left; eight may stay.
    let swept = store.retain(policy(100_000, 8), 11_000).await.unwrap();
    assert_eq!(swept.runs, [id(3), id(4)]);
    let found = store.find(Query::default()).await.unwrap();
    assert_eq!(found.total, 8);
    let swept = store.retain(policy(100_000, 0), 11_000).await.unwrap();
    assert_eq!(swept.runs.len(), 5);
    assert!(store.load(id(9)).await.unwrap().is_none());
    for number in 100..103 {
        assert!(store.load(id(number)).await.unwrap().is_some());
    }
    assert!(store.get("sessions", "new").await.unwrap().is_some());
    assert!(store.get("push", "old").await.unwrap().is_some());
}

pub(crate) async fn a_route_keeps_its_runs_for_as_long_as_it_says(store: &Asked) {
    opened(store, &of_route(1, "/a"), COMPLETED, 10_000).await;
    opened(store, &of_route(2, "/a"), RunState::Ended(End::Failed), 10_500).await;
    opened(store, &of_route(3, "/b"), COMPLETED, 10_000).await;
    opened(store, &Made { id: id(4), ..Made::default() }, COMPLETED, 10_000).await;
    opened(store, &of_route(5, "/a"), RunState::Waiting, 10_000).await;
    opened(store, &of_route(6, "/a"), RunState::Waiting, 10_800).await;
    opened(store, &of_route(7, "/b"), RunState::Waiting, 10_000).await;
    opened(store, &of_route(8, "/a"), RunState::Running, 1).await;
    opened(store, &of_route(9, "/a"), RunState::Queued, 1).await;
    let routes = [("/a", 600, 300, EVER), ("/b", 5000, 5000, EVER)];

    let swept = store.retain(policy(EVER, EVER, &routes), 10_000).await.unwrap();
    assert_eq!(swept, Swept::default());
    let swept = store.retain(policy(EVER, EVER, &routes), 11_000).await.unwrap();
    assert_eq!((swept.runs, swept.stale, swept.more), (vec![id(1)], vec![id(5)], false));
    assert!(store.load(id(1)).await.unwrap().is_none());
    assert_eq!(found(store).await.len(), 8);
    // What holds for all runs holds for these too.
    let swept = store.retain(policy(500, EVER, &[("/b", EVER, EVER, EVER)]), 11_100).await.unwrap();
    let mut stale = swept.stale;
    stale.sort_unstable();
    assert_eq!((swept.runs, stale), (vec![id(3), id(4), id(2)], vec![id(5), id(7)]));
    // A waiting run that was ended has its time before it.
    let waited = ActiveRun::again(Arc::unwrap_or_clone(store.load(id(5)).await.unwrap().unwrap()));
    store.open(&waited.journal()).await.unwrap();
    waited.end(End::Canceled);
    waited.change(|_, about| about.changed_at = 11_000);
    store.settle(&waited.journal()).await.unwrap();
    assert_eq!(store.retain(policy(EVER, EVER, &routes), 11_600).await.unwrap().runs, []);
    assert_eq!(store.retain(policy(EVER, EVER, &routes), 11_601).await.unwrap().runs, [id(5)]);
}

pub(crate) async fn a_route_keeps_no_more_runs_than_it_says(store: &Asked) {
    for number in 0..6_u64 {
        opened(store, &of_route(number.into(), "/a"), COMPLETED, 10_000 + number).await;
        opened(store, &of_route(u128::from(number) + 10, "/b"), COMPLETED, 9000 + number).await;
    }
    opened(store, &of_route(6, "/a"), RunState::Waiting, 5000).await;
    opened(store, &of_route(7, "/a"), RunState::Running, 5000).await;
    let a_has = |most| policy(EVER, EVER, &[("/a", EVER, EVER, most), ("/b", EVER, EVER, 100)]);
    // Eight are there, and those that have not ended count too.
    assert_eq!(store.retain(a_has(8), 11_000).await.unwrap(), Swept::default());
    assert_eq!(store.retain(a_has(5), 11_000).await.unwrap().runs, [id(0), id(1), id(2)]);
    assert_eq!(store.retain(a_has(1), 11_000).await.unwrap().runs, [id(3), id(4), id(5)]);
    assert_eq!(store.retain(a_has(1), 11_000).await.unwrap(), Swept::default());
    assert_eq!(found(store).await.len(), 8, "another route's runs are not touched, nor what has not ended");
}

pub(crate) async fn what_others_are_built_upon_is_hidden_by_its_route(store: &Asked) {
    let remembered = Made { keeper: Some(("/a", true)), ..Made::default() };
    for number in 1..4 {
        opened(store, &Made { id: id(number), ..remembered.clone() }, COMPLETED, 10_000 + number as u64).await;
    }
    let routes = [("/a", 1000, 1000, 2)];
    let swept = store.retain(policy(EVER, EVER, &routes), 10_100).await.unwrap();
    assert_eq!((swept.runs, swept.hidden), (vec![], vec![id(1)]));
    let hidden = store.load(id(1)).await.unwrap().unwrap();
    assert!(!hidden.about.stored, "nobody may find it");
    assert_eq!(hidden.record.run().turns.len(), 0);
    assert_eq!(found(store).await, [id(3), id(2)]);
    assert_eq!(store.latest(Vec::new(), "olga".into(), "s".into()).await.unwrap(), Some(id(3)));
    // It is hidden once, and counts no more.
    assert_eq!(store.retain(policy(EVER, EVER, &routes), 10_100).await.unwrap(), Swept::default());
    let swept = store.retain(policy(EVER, EVER, &routes), 12_000).await.unwrap();
    assert_eq!((swept.runs, swept.hidden), (vec![], vec![id(2), id(3)]));
    // It is forgotten as all runs are.
    let swept = store.retain(policy(1998, EVER, &routes), 12_000).await.unwrap();
    assert_eq!((swept.runs, swept.hidden), (vec![id(1)], vec![]));
    assert!(store.load(id(1)).await.unwrap().is_none());
    assert_eq!(store.retain(policy(EVER, 1, &routes), 12_000).await.unwrap().runs, [id(2)]);
}

pub(crate) async fn what_goes_with_a_run_goes_with_it(store: &Asked) {
    let remembered = Made { keeper: Some(("/a", true)), ..Made::default() };
    opened(store, &of_route(1, "/a"), COMPLETED, 10_000).await;
    opened(store, &Made { id: id(2), ..remembered }, COMPLETED, 10_000).await;
    opened(store, &Made { id: id(3), owner: "ol\u{1f}ga", ..Made::default() }, COMPLETED, 9000).await;
    opened(store, &of_route(4, "/a"), COMPLETED, 20_000).await;
    let key = |owner: &str, number, name: &str| owned_key(owner, &format!("{}{name}", id(number)));
    let gone = [key("olga", 1, "/x"), key("olga", 1, "/y"), key("olga", 2, "/x"), key("ol\u{1f}ga", 3, "/x")];
    let stays = [key("olga", 4, "/x"), key("otto", 1, "/x"), key("olga", 1, "0"), key("olga", 1, ""), "x".to_owned()];
    for key in gone.iter().chain(&stays) {
        store.put("push", key, Bytes::new(), Expect::Absent, 0).await.unwrap().unwrap();
        store.put("other", key, Bytes::new(), Expect::Absent, 0).await.unwrap().unwrap();
    }
    let swept = store.retain(policy(1900, EVER, &[("/a", 500, 500, EVER)]), 11_000).await.unwrap();
    assert_eq!((swept.runs, swept.hidden), (vec![id(1), id(3)], vec![id(2)]));
    for key in &gone {
        assert!(store.get("push", key).await.unwrap().is_none(), "{key:?}");
        assert!(store.get("other", key).await.unwrap().is_some(), "{key:?}");
    }
    for key in &stays {
        assert!(store.get("push", key).await.unwrap().is_some(), "{key:?}");
    }
}

pub(crate) async fn what_counts_as_forgotten_is_on_no_page(store: &Asked) {
    opened(store, &of_route(1, "/a"), COMPLETED, 10_000).await;
    opened(store, &of_route(2, "/a"), COMPLETED, 10_001).await;
    opened(store, &of_route(3, "/a"), RunState::Waiting, 9000).await;
    opened(store, &of_route(4, "/b"), COMPLETED, 9000).await;
    opened(store, &Made { id: id(5), ..Made::default() }, COMPLETED, 9000).await;
    let policy = policy(EVER, EVER, &[("/a", 500, 500, EVER), ("/c", 1, 1, EVER)]);
    let page = async |now| {
        let page = store.find(Query { gone: policy.gone(now), ..Query::default() }).await.unwrap();
        assert_eq!(page.total, page.runs.len());
        let mut ids: Vec<RunId> = page.runs.into_iter().map(|head| head.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(page(10_500).await, [id(1), id(2), id(3), id(4), id(5)]);
    assert_eq!(page(10_501).await, [id(2), id(3), id(4), id(5)]);
    // As it is with a single one.
    for (number, gone) in [(1, true), (2, false), (3, false), (4, false), (5, false)] {
        let stored = store.load(id(number)).await.unwrap().unwrap();
        assert_eq!(policy.is_gone(&stored.about, 10_501), gone, "{number}");
        assert_eq!(policy.is_stale(&stored.about, 10_501), number == 3, "{number}");
    }
    assert_eq!(policy.shortest(), Duration::from_millis(1));
}

pub(crate) async fn a_run_that_goes_on_is_kept_anew(store: &Asked) {
    let run = opened(store, &of_route(1, "/a"), RunState::Waiting, 10_000).await;
    let policy = policy(EVER, EVER, &[("/a", 500, 500, 1)]);
    assert_eq!(store.retain(policy.clone(), 11_000).await.unwrap().stale, [id(1)]);
    run.begin();
    run.say(&**store, "more");
    store.settle(&run.journal()).await.unwrap();
    assert_eq!(store.retain(policy.clone(), 1_000_000).await.unwrap(), Swept::default());
    run.wait();
    run.change(|_, about| about.changed_at = 12_000);
    store.settle(&run.journal()).await.unwrap();
    assert_eq!(store.retain(policy.clone(), 12_500).await.unwrap(), Swept::default());
    assert_eq!(store.retain(policy.clone(), 12_501).await.unwrap().stale, [id(1)]);
    run.end(End::Completed);
    run.change(|_, about| about.changed_at = 13_000);
    store.settle(&run.journal()).await.unwrap();
    // What was told later is not lost on the way.
    run.change(|_, about| about.changed_at = 14_000);
    store.settle(&run.journal()).await.unwrap();
    assert_eq!(store.retain(policy.clone(), 14_500).await.unwrap(), Swept::default());
    assert_eq!(store.retain(policy, 14_501).await.unwrap().runs, [id(1)]);
    assert_eq!(found(store).await, []);
}

pub(crate) async fn many_runs_are_forgotten_in_small_batches(store: &Asked) {
    const MANY: u64 = 2500;
    let mut waits = Vec::new();
    for number in 0..MANY {
        let made = of_route(number.into(), "/a");
        let run = ActiveRun::new(&made);
        drop(store.open(&run.journal()));
        run.end(End::Completed);
        run.change(|_, about| about.changed_at = 10_000 + number);
        waits.push(store.settle(&run.journal()));
    }
    for wait in waits {
        wait.await.unwrap();
    }
    let policy = policy(EVER, EVER, &[("/a", 12_000 - 11_500, EVER, 1200)]);
    let (mut forgotten, mut rounds) = (Vec::new(), 0);
    loop {
        let swept = store.retain(policy.clone(), 12_000).await.unwrap();
        assert!(swept.runs.len() <= 1000, "a batch is small");
        forgotten.extend(swept.runs);
        rounds += 1;
        if !swept.more {
            break;
        }
    }
    assert!(rounds > 1);
    // Older than 11 500: 1500; and of 2500 only 1200 may stay, which is less than what is too old.
    assert_eq!(forgotten, (0..1500).map(id).collect::<Vec<_>>(), "whichever ended first goes first");
    assert_eq!(found(store).await.len(), 1000);
}

/// Whatever the rules, and whatever runs there are.
pub(crate) async fn nothing_that_has_not_ended_is_ever_forgotten(store: &Asked) {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let states = [RunState::Queued, RunState::Running, RunState::Waiting, COMPLETED, RunState::Ended(End::Canceled)];
    let keepers = [None, Some(("/a", false)), Some(("/a", true)), Some(("/b", false))];
    let mut active = Vec::new();
    for round in 0..40 {
        for number in 0..6 {
            let made = Made { id: id(round * 100 + number), keeper: keepers[random(4) as usize], ..Made::default() };
            let state = states[random(5) as usize];
            opened(store, &made, state, 10_000 + random(2000)).await;
            if !matches!(state, RunState::Ended(_)) {
                active.push((made.id, state));
            }
        }
        let mut keep = |route| (route, random(3000), random(3000), random(10));
        let routes = [keep("/a"), keep("/b")];
        let policy = policy(random(3000), random(30), &routes);
        let now = 10_000 + random(4000);
        let swept = store.retain(policy.clone(), now).await.unwrap();
        for (id, state) in &active {
            assert!(!swept.runs.contains(id) && !swept.hidden.contains(id));
            let stored = store.load(*id).await.unwrap().unwrap_or_else(|| panic!("{state:?} was forgotten"));
            assert!(stored.about.stored);
            assert_eq!(swept.stale.contains(id), policy.is_stale(&stored.about, now), "{state:?}");
        }
        let stale = swept.stale.iter().all(|stale| active.contains(&(*stale, RunState::Waiting)));
        assert!(stale, "only what waits is ended");
    }
    assert_eq!(found(store).await.iter().filter(|id| active.iter().any(|(of, _)| of == *id)).count(), active.len());
}

pub(crate) async fn whoever_has_most_loses_first(store: &Asked) {
    for number in 0..3 {
        opened(store, &Made { id: id(number), owner: "victim", ..Made::default() }, COMPLETED, 1000).await;
    }
    for number in 100..160 {
        opened(
            store,
            &Made { id: id(number), owner: "stranger/t", ..Made::default() },
            COMPLETED,
            number as u64 + 9000,
        )
        .await;
    }
    let swept = store.retain(policy(EVER, 20, &[]), 10_000).await.unwrap();
    assert_eq!(swept.runs, (100..143).map(id).collect::<Vec<_>>());
    // What has not ended counts, but is not taken; then it is somebody else's turn.
    for number in 200..230 {
        opened(store, &Made { id: id(number), owner: "busy", ..Made::default() }, RunState::Running, 1).await;
    }
    let swept = store.retain(policy(EVER, 49, &[]), 10_000).await.unwrap();
    assert_eq!(swept.runs.len(), 1);
    assert_eq!(found(store).await.len(), 49);
}

pub(crate) async fn a_route_counts_the_runs_of_each_owner(store: &Asked) {
    for number in 0..3 {
        let made = Made { owner: "anonymous/victim", ..of_route(number, "/a") };
        opened(store, &made, COMPLETED, 1000 + number as u64).await;
    }
    for number in 100..160 {
        let made = Made { owner: "anonymous/stranger", ..of_route(number, "/a") };
        opened(store, &made, COMPLETED, 9000 + number as u64).await;
    }
    let swept = store.retain(policy(EVER, EVER, &[("/a", EVER, EVER, 50)]), 10_000).await.unwrap();
    assert_eq!(swept.runs, (100..110).map(id).collect::<Vec<_>>());
    let swept = store.retain(policy(EVER, EVER, &[("/a", EVER, EVER, 2)]), 10_000).await.unwrap();
    assert_eq!((swept.runs.len(), swept.runs.contains(&id(0)), swept.runs.contains(&id(1))), (49, true, false));
}

pub(crate) async fn documents_are_bounded_by_number_and_go_with_their_parts(store: &Asked) {
    let key = |owner: &str, number| format!("friday\u{1f}{owner}\u{1f}s{number}");
    for (owner, count) in [("victim", 2), ("stranger", 20)] {
        for number in 0..count {
            let key = key(owner, number);
            store.put("sessions", &key, Bytes::new(), Expect::Absent, 1000 + number).await.unwrap().unwrap();
            for place in 0..3 {
                let part = interlingua::store::part_key(&key, place);
                store.put("entries", &part, Bytes::from_static(b"said"), Expect::Absent, 0).await.unwrap().unwrap();
            }
        }
    }
    // Another session whose key begins alike.
    let other = format!("{}\u{1f}user", key("stranger", 0));
    store.put("sessions", &other, Bytes::new(), Expect::Absent, 5000).await.unwrap().unwrap();
    store
        .put("entries", &interlingua::store::part_key(&other, 0), Bytes::new(), Expect::Absent, 0)
        .await
        .unwrap()
        .unwrap();

    let collections = vec!["sessions".into()];
    let parts = vec![("entries".into(), "sessions".into())];
    let swept =
        store.retain(Retention { collections, parts, documents: 10, ..policy(EVER, EVER, &[]) }, 10_000).await.unwrap();
    assert_eq!(swept.documents, 13);
    for (owner, number, stays) in
        [("victim", 0, true), ("victim", 1, true), ("stranger", 12, false), ("stranger", 13, true)]
    {
        let key = key(owner, number);
        assert_eq!(store.get("sessions", &key).await.unwrap().is_some(), stays, "{owner} {number}");
        let parts =
            store.list("entries", &interlingua::store::part_key(&key, 0)[..key.len() + 1], None, 9).await.unwrap();
        assert_eq!(parts.len(), if stays { 3 } else { 0 }, "{owner} {number}");
    }
    assert!(store.get("entries", &interlingua::store::part_key(&other, 0)).await.unwrap().is_some());
}

pub(crate) async fn what_has_too_many_bytes_is_taken_from_whoever_has_most(store: &Asked) {
    for (owner, numbers) in [("victim", 0..5), ("stranger", 100..140)] {
        for number in numbers {
            let run = ActiveRun::new(&Made { id: id(number), owner, ..Made::default() });
            store.open(&run.journal()).await.unwrap();
            run.begin();
            run.say(&**store, &"0123456789".repeat(10_000));
            run.end(End::Completed);
            run.change(|_, about| about.changed_at = 10_000 + number as u64);
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
        ..policy(EVER, EVER, &[])
    };
    while store.retain(policy.clone(), 20_000).await.unwrap().more {}

    let left = found(store).await;
    let strangers = (100..140).filter(|number| left.contains(&id(*number))).count();
    assert!((0..5).all(|number| left.contains(&id(number))), "the victim has least: {left:?}");
    assert!((5..20).contains(&strangers) && left.contains(&id(139)), "{strangers}");
    let sessions = store.list("sessions", "", None, 100).await.unwrap();
    let entries = store.list("entries", "", None, 100).await.unwrap();
    assert!((5..20).contains(&sessions.len()), "{}", sessions.len());
    assert_eq!(sessions.len(), entries.len(), "a document and its parts go together");
    assert!(sessions.last().unwrap().key.ends_with("19"), "the newest is there");
}
