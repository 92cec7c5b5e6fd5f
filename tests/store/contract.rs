//! The contract of [`Store`], one test per rule.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use interlingua::store::{Conflict, DocumentWrite, Expect, Query, Signal, Store, StoreError, StoredRun, Version};
use interlingua_core::RunId;
use interlingua_core::call::{Cursor, Filter, Order, RunState};
use interlingua_core::event::End;

use crate::live::{ActiveRun, RunSpec, id};

type SharedStore = Arc<dyn Store>;

pub(crate) async fn a_settled_run_is_loaded_as_it_was(store: &SharedStore) {
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
    run.start();
    store.touch(&run.journal());
    for word in ["Hel", "lo\n", "\u{0}é😀"] {
        run.append(&**store, word);
    }
    run.end(End::Completed);
    store.settle(&run.journal()).await.unwrap();
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
    assert!(store.load(id(2)).await.unwrap().is_none());
}

pub(crate) async fn a_run_that_was_not_opened_is_not_stored(store: &SharedStore) {
    let run = ActiveRun::numbered(1);
    run.start();
    run.append(&**store, "x");
    run.end(End::Completed);
    store.settle(&run.journal()).await.unwrap();
    store.flush().await.unwrap();
    assert!(store.load(id(1)).await.unwrap().is_none());
    assert_eq!(store.find(Query::default()).await.unwrap().total, 0);
}

pub(crate) async fn a_run_continues_after_it_was_settled(store: &SharedStore) {
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    for word in ["one", "two", "three"] {
        let stored = store.load(id(1)).await.unwrap().unwrap();
        let run = ActiveRun::restore(Arc::unwrap_or_clone(stored));
        store.open(&run.journal(), run.claim()).await.unwrap();
        run.start();
        run.append(&**store, word);
        run.finish_turn();
        store.settle(&run.journal()).await.unwrap();
        assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
    }

    let run = ActiveRun::restore(Arc::unwrap_or_clone(store.load(id(1)).await.unwrap().unwrap()));
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.end(End::Canceled);
    store.settle(&run.journal()).await.unwrap();
    let stored = store.load(id(1)).await.unwrap().unwrap();
    assert_eq!(*stored, run.stored());
    assert_eq!(stored.record.run().turns.len(), 3);
}

pub(crate) async fn a_touch_reactivates_a_settled_run(store: &SharedStore) {
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    run.finish_turn();
    store.settle(&run.journal()).await.unwrap();
    run.start();
    run.append(&**store, "more");
    store.flush().await.unwrap();
    run.finish_turn();
    store.settle(&run.journal()).await.unwrap();
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
}

pub(crate) async fn a_removed_run_stays_removed(store: &SharedStore) {
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    run.append(&**store, "x");
    assert!(store.remove(id(1)).await.unwrap());
    assert!(!store.remove(id(1)).await.unwrap());
    run.append(&**store, "y");
    run.end(End::Canceled);
    store.settle(&run.journal()).await.unwrap();
    store.flush().await.unwrap();
    assert!(store.load(id(1)).await.unwrap().is_none());

    let owner = Some("olga".to_owned());
    assert_eq!(store.find(Query { owner, ..Query::default() }).await.unwrap().total, 0);
    assert_eq!(store.latest(Vec::new(), "olga".into(), "s".into()).await.unwrap(), None);

    // The id can be used again.
    let other = ActiveRun::numbered(1);
    store.open(&other.journal(), other.claim()).await.unwrap();
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), other.stored());
}

pub(crate) async fn flushed_events_are_durable(store: &SharedStore) {
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    for _ in 0..100 {
        run.append(&**store, "word ");
    }
    store.flush().await.unwrap();

    // The loaded run has everything that was settled, and possibly more, but only complete events.
    let stored = store.load(id(1)).await.unwrap().unwrap();
    let events = |steps: &interlingua_core::Record| steps.steps(0).map(|step| step.event).collect::<Vec<_>>();
    let (loaded, full) = (events(&stored.record), events(&run.stored().record));
    assert_eq!(loaded[..], full[..loaded.len()]);
}

pub(crate) async fn a_dropped_future_cancels_nothing(store: &SharedStore) {
    let run = ActiveRun::numbered(1);
    drop(store.open(&run.journal(), run.claim()));
    run.start();
    run.end(End::Failed);
    drop(store.settle(&run.journal()));
    drop(store.put("c", "k", Bytes::from_static(b"v"), Expect::Absent, 0));
    store.flush().await.unwrap();
    assert_eq!(*store.load(id(1)).await.unwrap().unwrap(), run.stored());
    assert_eq!(store.get("c", "k").await.unwrap().unwrap().value, "v");
}

pub(crate) async fn concurrent_runs_do_not_mix(store: &SharedStore) {
    let threads: Vec<_> = (0..4_u128)
        .map(|thread| {
            let store = Arc::clone(store);
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let runs: Vec<_> = (0..40).map(|run| ActiveRun::numbered(thread * 1000 + run)).collect();
                for run in &runs {
                    drop(store.open(&run.journal(), run.claim()));
                    run.start();
                }
                for word in 0..60 {
                    for run in &runs {
                        run.append(&*store, &format!("{thread} {word};"));
                    }
                    if word % 20 == 0 {
                        runtime.block_on(store.flush()).unwrap();
                    }
                }
                for run in &runs {
                    run.end(End::Completed);
                    runtime.block_on(store.settle(&run.journal())).unwrap();
                }
                runs
            })
        })
        .collect();
    for thread in threads {
        for run in thread.join().unwrap() {
            let run = run.stored();
            assert_eq!(*store.load(run.record.run().id).await.unwrap().unwrap(), run);
        }
    }
}

pub(crate) async fn open_run(
    store: &SharedStore,
    spec: &RunSpec<'_>,
    state: RunState,
    changed_at: u64,
) -> Arc<ActiveRun> {
    let run = ActiveRun::new(spec);
    store.open(&run.journal(), run.claim()).await.unwrap();
    match state {
        RunState::Ended(end) => run.end(end),
        RunState::Queued => {}
        _ => run.start(),
    }
    if state == RunState::Waiting {
        run.finish_turn();
    }

    run.change(|_, info| info.changed_at = changed_at);
    store.settle(&run.journal()).await.unwrap();
    run
}

pub(crate) async fn runs_are_found_by_every_filter(store: &SharedStore) {
    let one = RunSpec { id: id(1), ..RunSpec::default() };
    open_run(store, &one, RunState::Ended(End::Completed), 2000).await;
    open_run(store, &RunSpec { id: id(2), agent: "demo", ..one.clone() }, RunState::Running, 3000).await;
    open_run(store, &RunSpec { id: id(3), owner: "otto", ..one.clone() }, RunState::Queued, 4000).await;
    open_run(store, &RunSpec { id: id(4), session: "t", ..one.clone() }, RunState::Waiting, 5000).await;
    open_run(store, &RunSpec { id: id(5), protocol: "a2a", ..one.clone() }, RunState::Ended(End::Failed), 5000).await;

    let find = async |agents: &[&str], owner: Option<&str>, filter: Filter| {
        let agents = agents.iter().map(|agent| (*agent).to_owned()).collect();
        let query = Query { agents, owner: owner.map(Into::into), filter, text: None, expired_before: Vec::new() };
        let found = store.find(query).await.unwrap();
        assert_eq!((found.total, found.next), (found.runs.len(), None));
        found.runs.into_iter().map(|head| head.id).collect::<Vec<RunId>>()
    };
    let all = Filter::default;
    assert_eq!(find(&[], None, all()).await, [id(5), id(4), id(3), id(2), id(1)]);
    assert_eq!(find(&[], Some("olga"), all()).await, [id(5), id(4), id(2), id(1)]);
    assert_eq!(find(&["demo", "unknown"], Some("olga"), all()).await, [id(2)]);
    assert_eq!(find(&["unknown"], None, all()).await, []);
    assert_eq!(find(&[], None, Filter { session: Some("t".into()), ..all() }).await, [id(4)]);
    assert_eq!(find(&[], None, Filter { protocol: Some("a2a".into()), ..all() }).await, [id(5)]);
    assert_eq!(find(&[], None, Filter { changed_since: Some(4000), ..all() }).await, [id(5), id(4), id(3)]);

    let states = vec![RunState::Running, RunState::Ended(End::Completed)];
    assert_eq!(find(&[], None, Filter { states, ..all() }).await, [id(2), id(1)]);

    let found = store.find(Query { filter: Filter { limit: 1, ..all() }, ..Query::default() }).await.unwrap();
    let head = &found.runs[0];
    assert_eq!((head.id, &*head.agent, &*head.session), (id(5), "friday", "s"));
    assert_eq!((head.state, head.changed_at), (RunState::Ended(End::Failed), 5000));
    assert_eq!((&*head.protocol, &*head.owner, head.events > 1), ("a2a", "olga", true));
    assert_eq!((found.total, found.next), (5, Some(Cursor { at: 5000, id: id(5) })));
}

pub(crate) async fn runs_are_found_by_how_they_began(store: &SharedStore) {
    let one = RunSpec { id: id(1), at: 1000, ..RunSpec::default() };
    let others = [
        RunSpec { id: id(2), session: "100%_sure!", at: 2000, ..one.clone() },
        RunSpec { id: id(3), owner: "Otto", at: 3000, ..one.clone() },
    ];
    for spec in [&one].into_iter().chain(&others) {
        // As the engine does: the first turn is there when the run is opened.
        let run = ActiveRun::new(spec);
        run.start();
        store.open(&run.journal(), run.claim()).await.unwrap();
    }

    let find = async |text: &str| {
        let query = Query { text: Some(text.to_owned()), ..Query::default() };
        store.find(query).await.unwrap().runs.into_iter().map(|head| head.id).collect::<Vec<RunId>>()
    };
    let all = store.find(Query::default()).await.unwrap().runs;
    assert!(all.len() == 3 && all.iter().all(|head| head.preview == "hi"), "{all:?}");
    assert_eq!(find("HI").await, [id(3), id(2), id(1)]);
    assert_eq!(find("%_SURE!").await, [id(2)]);
    assert_eq!(find("otto").await, [id(3)]);
    assert_eq!(find(&id(1).to_string()).await, [id(1)]);
    assert_eq!(find("nothing of the kind").await, []);
    assert_eq!(find("%").await, [id(2)], "characters of patterns are characters");

    let failed = ActiveRun::new(&RunSpec { id: id(4), at: 4000, ..one.clone() });
    failed.start();
    failed.fail("UPSTREAM_REFUSED");
    store.open(&failed.journal(), failed.claim()).await.unwrap();
    assert_eq!(find("UPSTREAM_REFUSED").await, [id(4)]);
    assert_eq!(find("upstream_ref").await, [id(4)], "the beginning of a code in small letters");
    assert_eq!(find("REFUSED").await, [], "a code is found by its beginning");
}

pub(crate) async fn runs_are_found_by_their_tags(store: &SharedStore) {
    const MODEL: (&str, &str) = ("model", "m");
    const ODD: (&str, &str) = ("metadata.\"a' $.[0]", "1");
    let one = RunSpec { id: id(1), tags: &[MODEL, ODD], ..RunSpec::default() };
    let first = open_run(store, &one, RunState::Ended(End::Completed), 2000).await;
    open_run(store, &RunSpec { id: id(2), tags: &[MODEL], ..RunSpec::default() }, RunState::Running, 3000).await;
    open_run(store, &RunSpec { id: id(3), ..RunSpec::default() }, RunState::Running, 4000).await;
    open_run(store, &RunSpec { id: id(4), owner: "otto", ..one.clone() }, RunState::Running, 5000).await;

    let tagged = |tags: &[(&str, &str)]| -> Filter {
        let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Filter { tags: tags.collect(), ..Filter::default() }
    };
    let find = async |tags: &[(&str, &str)]| {
        let query = Query { owner: Some("olga".into()), filter: tagged(tags), ..Query::default() };
        let found = store.find(query).await.unwrap();
        assert_eq!(found.total, found.runs.len());
        found.runs.into_iter().map(|head| head.id).collect::<Vec<RunId>>()
    };
    assert_eq!(find(&[]).await, [id(3), id(2), id(1)]);
    assert_eq!(find(&[MODEL]).await, [id(2), id(1)]);
    assert_eq!(find(&[MODEL, ODD]).await, [id(1)]);
    assert_eq!(find(&[("model", "n")]).await, []);
    assert_eq!(find(&[("metadata.b", "1")]).await, []);

    // They can be replaced after the end, by others of the same length.
    let cost = store.load_cost(id(1)).await.unwrap().unwrap();
    let loaded = ActiveRun::restore((*store.load(id(1)).await.unwrap().unwrap()).clone());
    store.open(&loaded.journal(), loaded.claim()).await.unwrap();
    loaded.change(|_, info| info.tags = tagged(&[("model", "n"), ODD]).tags);
    store.settle(&loaded.journal()).await.unwrap();
    assert_eq!(find(&[("model", "n")]).await, [id(1)]);
    assert_eq!(find(&[MODEL]).await, [id(2)]);
    let stored = store.load(id(1)).await.unwrap().unwrap();
    assert_eq!((&stored.info.tags, stored.info.changed_at), (&tagged(&[("model", "n"), ODD]).tags, 2000));
    assert_eq!(stored.record, first.stored().record);
    let changed = store.load_cost(id(1)).await.unwrap().unwrap();
    assert!(cost.fingerprint.is_none() || changed.fingerprint != cost.fingerprint, "it is not what was loaded before");
}

pub(crate) async fn runs_are_listed_in_the_order_of_their_creation(store: &SharedStore) {
    // Two at a time of the same moment; those that came first changed last.
    for number in 1..=5_u64 {
        let spec = RunSpec { id: id(number.into()), at: 1000 + number / 2, ..RunSpec::default() };
        open_run(store, &spec, RunState::Ended(End::Completed), 9000 - number).await;
    }

    for (order, expected) in [(Order::OldestFirst, [1, 2, 3, 4, 5]), (Order::NewestFirst, [5, 4, 3, 2, 1])] {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let filter = Filter { order, limit: 2, cursor, ..Filter::default() };
            let page = store.find(Query { filter, ..Query::default() }).await.unwrap();
            assert_eq!(page.total, 5);
            seen.extend(page.runs.iter().map(|head| head.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, expected.map(id), "{order:?}");
    }
}

pub(crate) async fn heads_contain_no_messages(store: &SharedStore) {
    let ended = ActiveRun::new(&RunSpec { id: id(1), at: 1000, ..RunSpec::default() });
    ended.change(|_, info| info.request.tools = Some(vec![interlingua_core::Json::parse("{\"large\":1}").unwrap()]));
    store.open(&ended.journal(), ended.claim()).await.unwrap();
    ended.start();
    ended.append(&**store, &"word ".repeat(100_000));
    ended.finish_turn();
    store.settle(&ended.journal()).await.unwrap();
    store.open(&ended.journal(), ended.claim()).await.unwrap();
    ended.start();
    ended.end(End::Failed);
    store.settle(&ended.journal()).await.unwrap();
    let waiting = open_run(store, &RunSpec { id: id(2), ..RunSpec::default() }, RunState::Waiting, 2000).await;
    let queued = open_run(store, &RunSpec { id: id(3), ..RunSpec::default() }, RunState::Queued, 3000).await;

    let heads = store.heads(vec![id(2), id(9), id(1), id(3)]).await.unwrap();
    let expected = [&waiting, &ended, &queued].map(|run| {
        let run = run.stored();
        StoredRun::head(&run.record, &run.info)
    });
    assert_eq!(heads, expected);
    let run = heads[1].record.run();
    assert_eq!((run.turns.len(), run.messages.len(), run.end), (2, 0, Some(End::Failed)));
    assert_eq!(run.turns[0].usage, ended.stored().record.run().turns[0].usage);
    assert!(run.turns.iter().all(|turn| turn.input.is_empty()) && heads[1].info.request.tools.is_none());
    assert!(heads[1].record.size() < 10_000, "{}", heads[1].record.size());

    let found = store.find(Query::default()).await.unwrap();
    let size = |number| found.runs.iter().find(|head| head.id == id(number)).unwrap().size;
    assert!(size(1) > 500_000 && size(2) < 10_000, "{} {}", size(1), size(2));
}

pub(crate) async fn the_owner_of_a_run_is_known_without_loading_it(store: &SharedStore) {
    for (number, state) in [(1, RunState::Running), (2, RunState::Waiting), (3, RunState::Ended(End::Completed))] {
        open_run(store, &RunSpec { id: id(number), owner: "key::ann/t", ..RunSpec::default() }, state, 1000).await;
        assert_eq!(store.owner_of(id(number)).await.unwrap().as_deref(), Some("key::ann/t"), "{state:?}");
    }
    assert_eq!(store.owner_of(id(4)).await.unwrap(), None);
}

pub(crate) async fn documents_are_counted_by_principal(store: &SharedStore) {
    for (owner, count) in [("key::ann", 2), ("key::ann/t", 3), ("key::ann/route:/a", 1), ("key::anna", 4)] {
        for number in 0..count {
            let key = interlingua::store::owned_key(owner, &format!("{number}"));
            store.put("push", &key, Bytes::new(), Expect::Any, 0).await.unwrap().unwrap();
            store.put("other", &key, Bytes::new(), Expect::Any, 0).await.unwrap().unwrap();
        }
    }
    for (principal, count) in [("key::ann", 6), ("key::anna", 4), ("key::an", 0)] {
        assert_eq!(store.count("push", principal).await.unwrap(), count, "{principal}");
    }
}

pub(crate) async fn the_load_cost_of_a_run_is_known_without_loading_it(store: &SharedStore) {
    assert_eq!(store.load_cost(id(1)).await.unwrap(), None);
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    run.append(&**store, &"x".repeat(1_000_000));
    run.finish_turn();
    store.settle(&run.journal()).await.unwrap();
    let cost = store.load_cost(id(1)).await.unwrap().unwrap();
    assert!(cost.bytes > 1_000_000 && cost.fingerprint.is_none(), "the run may continue: {cost:?}");
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.end(End::Completed);
    store.settle(&run.journal()).await.unwrap();

    let ended = store.load_cost(id(1)).await.unwrap().unwrap();
    assert!(ended.bytes == 0 || (ended.bytes > 1_000_000 && ended.fingerprint.is_some()), "{ended:?}");
    assert_eq!(store.load_cost(id(1)).await.unwrap(), Some(ended), "the cost stays the same until something changes");
    run.change(|_, info| info.stored = false);
    store.open(&run.journal(), run.claim()).await.unwrap();
    store.settle(&run.journal()).await.unwrap();

    let hidden = store.load_cost(id(1)).await.unwrap().unwrap();
    assert!(ended.bytes == 0 || hidden.fingerprint != ended.fingerprint);

    store.remove(id(1)).await.unwrap();
    assert_eq!(store.load_cost(id(1)).await.unwrap(), None);
}

pub(crate) async fn pages_are_stable_while_runs_change(store: &SharedStore) {
    // Three runs at a time changed at the same moment: ties are sorted by id.
    let mut runs = Vec::new();
    for number in 0..30_u64 {
        let spec = RunSpec { id: id(number.into()), ..RunSpec::default() };
        runs.push(open_run(store, &spec, RunState::Waiting, 2000 + number / 3).await);
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let filter = Filter { limit: 4, cursor, ..Filter::default() };
        let page = store.find(Query { owner: Some("olga".into()), filter, ..Query::default() }).await.unwrap();
        assert!(page.runs.len() == 4 || page.next.is_none());
        assert!(page.total >= 30);
        seen.extend(page.runs.into_iter().map(|head| head.id));

        // A run on a later page changes, and a new one appears.
        let later = &runs[seen.len() % 5];
        store.open(&later.journal(), later.claim()).await.unwrap();
        later.change(|_, info| info.changed_at += 1_000_000);
        store.settle(&later.journal()).await.unwrap();
        let new = RunSpec { id: id(1000 + seen.len() as u128), ..RunSpec::default() };
        open_run(store, &new, RunState::Running, 9_000_000).await;

        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let unchanged: Vec<RunId> = (5..30).rev().map(id).collect();
    let seen_unchanged: Vec<RunId> = seen.iter().copied().filter(|seen| unchanged.contains(seen)).collect();
    assert_eq!(seen_unchanged, unchanged, "each unchanged run is listed once, newest first");
}

pub(crate) async fn an_ended_run_that_is_not_stored_is_not_found(store: &SharedStore) {
    let completed = RunState::Ended(End::Completed);
    open_run(store, &RunSpec { id: id(1), ..RunSpec::default() }, completed, 2000).await;
    let run = open_run(store, &RunSpec { id: id(2), at: 2000, ..RunSpec::default() }, RunState::Running, 3000).await;
    run.change(|_, info| info.stored = false);
    store.settle(&run.journal()).await.unwrap();

    let found = async || {
        let page = store.find(Query { owner: Some("olga".into()), ..Query::default() }).await.unwrap();
        let latest = store.latest(Vec::new(), "olga".into(), "s".into()).await.unwrap();
        assert_eq!(page.total, page.runs.len());
        (page.runs.into_iter().map(|head| head.id).collect::<Vec<_>>(), latest)
    };
    assert_eq!(found().await, (vec![id(2), id(1)], Some(id(2))));
    run.end(End::Completed);
    store.settle(&run.journal()).await.unwrap();
    assert_eq!(found().await, (vec![id(1)], Some(id(1))));
    assert_eq!(*store.load(id(2)).await.unwrap().unwrap(), run.stored(), "other runs may continue from it");

    // A run that used to be found can be hidden too.

    let first = ActiveRun::restore(Arc::unwrap_or_clone(store.load(id(1)).await.unwrap().unwrap()));
    store.open(&first.journal(), first.claim()).await.unwrap();
    first.change(|_, info| info.stored = false);
    store.settle(&first.journal()).await.unwrap();
    assert_eq!(found().await, (vec![], None));
}

pub(crate) async fn the_latest_run_of_a_session_was_accepted_last(store: &SharedStore) {
    let spec = |number, agent, at| RunSpec { id: id(number), agent, at, ..RunSpec::default() };
    open_run(store, &spec(7, "friday", 1000), RunState::Ended(End::Completed), 9000).await;
    open_run(store, &spec(5, "friday", 2000), RunState::Running, 2000).await;
    open_run(store, &spec(6, "demo", 3000), RunState::Running, 3000).await;

    let latest = async |agents: &[&str], owner: &str, session: &str| {
        let agents = agents.iter().map(|agent| (*agent).to_owned()).collect();
        store.latest(agents, owner.into(), session.into()).await.unwrap()
    };
    assert_eq!(latest(&[], "olga", "s").await, Some(id(6)));
    assert_eq!(latest(&["friday"], "olga", "s").await, Some(id(5)));
    assert_eq!(latest(&["friday"], "otto", "s").await, None);
    assert_eq!(latest(&["friday"], "olga", "t").await, None);
    assert!(store.remove(id(5)).await.unwrap());
    assert_eq!(latest(&["friday"], "olga", "s").await, Some(id(7)));
}

pub(crate) async fn one_of_many_concurrent_writers_wins(store: &SharedStore) {
    const THREADS: usize = 8;
    const ROUNDS: usize = 50;
    store.put("c", "counter", Bytes::from_static(b"0"), Expect::Absent, 0).await.unwrap().unwrap();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let store = Arc::clone(store);
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                runtime.block_on(async {
                    for _ in 0..ROUNDS {
                        loop {
                            let current = store.get("c", "counter").await.unwrap().unwrap();
                            let count: usize = std::str::from_utf8(&current.value).unwrap().parse().unwrap();
                            let next = Bytes::from((count + 1).to_string());
                            let put = store.put("c", "counter", next, Expect::Version(current.version), 0);
                            if put.await.unwrap().is_ok() {
                                break;
                            }
                        }
                    }
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let current = store.get("c", "counter").await.unwrap().unwrap();
    assert_eq!(current.value, (THREADS * ROUNDS).to_string());
    assert!(current.created < current.version);
    let absent = store.put("c", "counter", Bytes::new(), Expect::Absent, 0).await.unwrap();
    assert_eq!(absent, Err(Conflict));
}

pub(crate) async fn a_version_is_never_reused(store: &SharedStore) {
    let put = async |key: &str, expect| store.put("c", key, Bytes::from_static(b"x"), expect, 0).await.unwrap();
    let first = put("a", Expect::Absent).await.unwrap();
    let second = put("a", Expect::Version(first)).await.unwrap();
    assert!(second > first);
    assert_eq!(put("a", Expect::Version(first)).await, Err(Conflict));
    assert_eq!(store.delete("c", "a", Expect::Version(first)).await.unwrap(), Err(Conflict));
    assert_eq!(store.delete("c", "a", Expect::Version(second)).await.unwrap(), Ok(true));
    assert_eq!(store.delete("c", "a", Expect::Absent).await.unwrap(), Ok(false));
    assert_eq!(store.delete("c", "a", Expect::Any).await.unwrap(), Ok(false));
    assert_eq!(store.delete("c", "a", Expect::Version(second)).await.unwrap(), Err(Conflict));
    assert_eq!(put("a", Expect::Version(Version(0))).await, Err(Conflict));
    assert!(store.get("c", "a").await.unwrap().is_none());

    let third = put("a", Expect::Any).await.unwrap();
    let other = put("b", Expect::Any).await.unwrap();
    assert!(third > second && other > third);
    assert_eq!(store.get("c", "a").await.unwrap().unwrap().created, third);
}

pub(crate) async fn documents_written_together_are_all_written_or_none(store: &SharedStore) {
    let put = async |key: &str, expect| store.put("one", key, Bytes::from_static(b"old"), expect, 0).await.unwrap();
    let kept = put("kept", Expect::Absent).await.unwrap();
    let gone = put("gone", Expect::Absent).await.unwrap();

    let write = |collection, key: &str, value: Option<&'static str>, expect| DocumentWrite {
        collection,
        key: key.into(),
        value: value.map(|value| Bytes::from_static(value.as_bytes())),
        expect,
    };
    let contents = async || {
        let mut contents = Vec::new();
        for (collection, key) in [("one", "kept"), ("one", "gone"), ("two", "new"), ("two", "other")] {
            contents.push(store.get(collection, key).await.unwrap().map(|document| document.value));
        }
        contents
    };
    let before = contents().await;

    // Each precondition in turn does not hold, wherever it is among the writes.
    let all = || {
        vec![
            write("two", "new", Some("new"), Expect::Absent),
            write("one", "kept", Some("newer"), Expect::Version(kept)),
            write("one", "gone", None, Expect::Version(gone)),
            write("two", "other", Some("any"), Expect::Any),
        ]
    };
    let wrong = [Expect::Version(gone), Expect::Version(gone), Expect::Absent, Expect::Version(kept)];
    for (place, expect) in wrong.into_iter().enumerate() {
        let mut writes = all();
        writes[place].expect = expect;
        assert_eq!(store.write(writes, 1).await.unwrap(), Err(Conflict), "{place}");
        assert_eq!(contents().await, before, "nothing is written: {place}");
    }

    let version = store.write(all(), 1).await.unwrap().unwrap();
    assert_eq!(contents().await, [Some("newer"), None, Some("new"), Some("any")].map(|value| value.map(Bytes::from)));
    let document = async |collection, key| store.get(collection, key).await.unwrap().unwrap();
    let (new, kept, other) =
        (document("two", "new").await, document("one", "kept").await, document("two", "other").await);
    assert!(new.version > gone && kept.version > gone && other.version > gone, "every write gives a later version");
    assert_eq!(new.version.max(kept.version).max(other.version), version);
    assert!(kept.created < kept.version && new.created == new.version);

    // The versions are those of all other writes, and were all given once.
    assert_eq!(store.write(all(), 1).await.unwrap(), Err(Conflict));
    let deleted =
        vec![write("two", "new", None, Expect::Version(new.version)), write("two", "none", None, Expect::Any)];
    store.write(deleted, 1).await.unwrap().unwrap();
    assert_eq!(contents().await[2], None);
    assert!(put("later", Expect::Absent).await.unwrap() > version);
    store.write(Vec::new(), 1).await.unwrap().unwrap();
}

pub(crate) async fn documents_written_together_have_one_winner(store: &SharedStore) {
    const THREADS: usize = 6;
    const ROUNDS: usize = 30;
    for key in ["a", "b"] {
        store.put("c", key, Bytes::from_static(b"0"), Expect::Absent, 0).await.unwrap().unwrap();
    }

    // Each adds one to both, and neither is ever ahead of the other.
    let add = async |store: &SharedStore| loop {
        let (a, b) = (store.get("c", "a").await.unwrap().unwrap(), store.get("c", "b").await.unwrap().unwrap());
        let count: usize = std::str::from_utf8(&a.value).unwrap().parse().unwrap();
        let next = Bytes::from((count + 1).to_string());
        let write = |key: &str, expect| DocumentWrite {
            collection: "c",
            key: key.into(),
            value: Some(next.clone()),
            expect: Expect::Version(expect),
        };
        if store.write(vec![write("a", a.version), write("b", b.version)], 0).await.unwrap().is_ok() {
            assert_eq!(a.value, b.value);
            return;
        }
    };
    let adders = (0..THREADS).map(|_| async {
        for _ in 0..ROUNDS {
            add(store).await;
        }
    });
    futures_util::future::join_all(adders).await;
    for key in ["a", "b"] {
        assert_eq!(store.get("c", key).await.unwrap().unwrap().value, (THREADS * ROUNDS).to_string());
    }
}

pub(crate) async fn documents_are_listed_by_key(store: &SharedStore) {
    for key in ["b/2", "a", "b/10", "b", "b/é", "c", "b0", "B/1", "b/%", "b/_"] {
        let value = Bytes::from(key.to_owned());
        store.put("one", key, value, Expect::Absent, 0).await.unwrap().unwrap();
    }
    store.put("two", "b/3", Bytes::new(), Expect::Absent, 0).await.unwrap().unwrap();
    let list = async |prefix: &str, after: Option<&str>, limit| {
        let entries = store.list("one", prefix, after, limit).await.unwrap();
        entries.iter().for_each(|entry| assert_eq!(entry.document.value, entry.key));
        entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>()
    };
    assert_eq!(list("b/", None, 99).await, ["b/%", "b/10", "b/2", "b/_", "b/é"]);
    assert_eq!(list("b/", None, 2).await, ["b/%", "b/10"]);
    assert_eq!(list("b/", Some("b/10"), 2).await, ["b/2", "b/_"]);
    assert_eq!(list("b/", Some("b/15"), 1).await, ["b/2"]);
    assert_eq!(list("b/", Some("a"), 1).await, ["b/%"]);
    assert_eq!(list("b/", Some("b/é"), 9).await, [""; 0]);
    assert_eq!(list("", None, 3).await, ["B/1", "a", "b"]);
    assert_eq!(list("z", None, 3).await, [""; 0]);
    assert_eq!(list("", None, 0).await, [""; 0]);

    // Sorted by creation.
    let mut all = store.list("one", "", None, 99).await.unwrap();
    all.sort_by_key(|entry| entry.document.created);
    assert_eq!(all[0].key, "b/2");
}

pub(crate) async fn a_lease_has_one_holder_until_it_expires(store: &SharedStore) {
    let minute = Duration::from_secs(60);
    assert!(store.lease("session/1", "a", minute).await.unwrap());
    assert!(!store.lease("session/1", "b", minute).await.unwrap());
    assert!(store.lease("session/2", "b", minute).await.unwrap());
    assert!(store.lease("session/1", "a", minute).await.unwrap(), "the holder renews it");
    store.release("session/1", "b").await.unwrap();
    assert!(!store.lease("session/1", "b", minute).await.unwrap(), "only the holder can release it");

    // Renewed with a ttl of zero, the lease expires at once.
    assert!(store.lease("session/1", "a", Duration::ZERO).await.unwrap());
    assert!(store.lease("session/1", "b", minute).await.unwrap());
    assert!(!store.lease("session/1", "a", minute).await.unwrap());
    store.release("session/1", "b").await.unwrap();
    assert!(store.lease("session/1", "a", Duration::MAX).await.unwrap());
    assert!(!store.lease("session/1", "b", minute).await.unwrap());
    for number in 0..1000 {
        assert!(store.lease(&format!("session/short/{number}"), "a", Duration::ZERO).await.unwrap());
    }
}

pub(crate) async fn signals_reach_all_listeners(store: &SharedStore) {
    store.signal(id(1), Signal::Cancel).await.unwrap();
    for number in [2, 3] {
        let run = ActiveRun::numbered(number);
        store.open(&run.journal(), run.claim()).await.unwrap();
    }
    let (mut one, mut other) = (store.signals(), store.signals());
    store.signal(id(2), Signal::Cancel).await.unwrap();
    assert_eq!(one.recv().await, Some((id(2), Signal::Cancel)));
    drop(one);
    store.signal(id(3), Signal::Cancel).await.unwrap();
    assert_eq!(other.recv().await, Some((id(2), Signal::Cancel)));
    assert_eq!(other.recv().await, Some((id(3), Signal::Cancel)));
    store.close().await.unwrap();
    assert_eq!(other.recv().await, None);
    assert_eq!(store.signals().recv().await, None);
}

pub(crate) async fn a_closed_store_reports_it(store: &SharedStore) {
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), run.claim()).await.unwrap();
    store.close().await.unwrap();
    run.start();
    run.append(&**store, "lost ");
    assert!(matches!(store.settle(&run.journal()).await, Err(StoreError::Closed)));
    assert!(matches!(store.load(id(1)).await, Err(StoreError::Closed)));
    assert!(matches!(store.get("c", "k").await, Err(StoreError::Closed)));
    assert!(matches!(store.lease("c", "k", Duration::ZERO).await, Err(StoreError::Closed)));
    assert!(matches!(store.close().await, Err(StoreError::Closed)));
}
