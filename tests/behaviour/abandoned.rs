//! Clients that leave at any moment of their call: whatever was begun by then ends, and nothing of it is held on to.
//!
//! The engine alone, without sockets: a call is a future, and a client that leaves drops it. Here it is dropped after
//! every number of polls, for each kind of call, over stores that answer at once, late, or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use interlingua::clock;
use interlingua::engine::{self, Answer, Engine, RetentionRules, Scope};
use interlingua::ports::{WebhookClient, WebhookError};
use interlingua::store::{Memory, Query, Retention, Sqlite, SqliteOptions, Store, owned_key};
use interlingua::upstream::demo::DemoUpstream;
use interlingua::upstream::{Conversation, Trace, Upstream};
use interlingua_core::call::{AgentCard, Busy, Filter, RunState, SessionCall, Target};
use interlingua_core::connector::Question;
use interlingua_core::event::{End, Step};
use interlingua_core::json::Extra;
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::public_address::{Policy, Refused};
use interlingua_core::push::{PushNotifier, PushNotifiers, PushRequest};
use interlingua_core::{Call, Delivery, Fault, Owner, RunCall, RunId, RunPolicy, Thread};
use tokio::task::LocalSet;

use crate::support::store::Troubled;

/// Everything that was begun is over by then.
const PROMPTLY: Duration = Duration::from_secs(5);
const AGENT: &str = "demo";
const COLLECTION: &str = "places";

/// A gateway without sockets, and who asks it.
struct House {
    engine: Engine,
    store: Arc<dyn Store>,
    scope: Scope,
}

/// Receivers take everything.
struct Taking;

impl WebhookClient for Taking {
    fn check_url(&self, _: &str, _: &Policy) -> BoxFuture<'static, Result<(), Refused>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn post(&self, _: &str, _: &Policy, _: PushRequest) -> BoxFuture<'static, Result<(), WebhookError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Tells a place of every step.
struct Telling;

impl PushNotifier for Telling {
    fn url(&self) -> &str {
        "https://receiver.example"
    }

    fn skip(&mut self, _: Step<'_>) {}

    fn take(&mut self, _: Step<'_>, parcels: &mut Vec<PushRequest>) {
        parcels.push(PushRequest { headers: Vec::new(), body: Vec::new() });
    }

    fn has_held(&self) -> bool {
        false
    }

    fn flush(&mut self, _: Step<'_>, _: &mut Vec<PushRequest>) {}
}

/// An agent that makes the one who asks it panic.
struct Bad;

impl Upstream for Bad {
    fn open(&self, _: &Question<'_>, _: Option<&Trace>) -> BoxFuture<'static, Result<Conversation, Fault>> {
        Box::pin(async { panic!("the test says so") })
    }

    fn stop(&self, _: &Question<'_>, _: Option<&Trace>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl House {
    fn new(store: Arc<dyn Store>) -> Self {
        Self::with(store, Arc::new(DemoUpstream::new(Duration::ZERO)))
    }

    fn with(store: Arc<dyn Store>, upstream: Arc<dyn Upstream>) -> Self {
        let card = Arc::new(AgentCard {
            name: AGENT.to_owned(),
            description: String::new(),
            version: String::new(),
            server_label: AGENT.to_owned(),
            since: 0,
            approval_extension: true,
        });
        let agent = engine::Agent {
            name: AGENT.to_owned(),
            card: Arc::clone(&card),
            upstream,
            history: engine::History::Upstream,
            history_limit: engine::HistoryLimit { turns: 50, bytes: 1 << 20 },
            queue_turns: true,
            max_run_bytes: 64 << 20,
            approval_extension: true,
        };
        let keeping = RetentionRules {
            retention: Retention {
                age: Duration::from_secs(3600),
                runs: 100_000,
                documents: 100_000,
                bytes: u64::MAX,
                collections: Vec::new(),
                parts: Vec::new(),
                routes: Vec::new(),
                attached: Vec::new(),
            },
            scopes: Vec::new(),
        };
        let notifiers = PushNotifiers {
            collection: COLLECTION,
            policy: Policy::default(),
            pause: Duration::from_millis(10),
            open: Box::new(|_| Some(Box::new(Telling))),
            give_up: Box::new(|_| None),
        };
        let scope = Scope {
            owner: Owner::anonymous(),
            path: Arc::from("/"),
            agents: Arc::from([card]),
            protocol: "test",
            detach: false,
            first_event_timeout: Duration::from_secs(10),
            push: Some(Arc::new(notifiers)),
            route: None,
            trace: None,
            connection: None,
        };
        let engine = Engine::new(vec![Arc::new(agent)], Arc::clone(&store), Arc::new(Taking), keeping);
        Self { engine, store, scope }
    }

    async fn answer(&self, call: Call) -> Option<Answer> {
        tokio::time::timeout(PROMPTLY, self.engine.answer(call, &self.scope)).await.expect("an answer in time").ok()
    }

    /// Names a place that is told of a run.
    async fn name_a_place(&self, run: RunId) {
        let key = owned_key(Owner::anonymous().key(), &format!("{run}/1"));
        let put = self.store.put(COLLECTION, &key, "{}".into(), interlingua::store::Expect::Anything, 0);
        let _ = put.await;
    }

    /// A run that stands between two turns.
    async fn waiting(&self, session: &str) -> RunId {
        let id = clock::new_id();
        let call = RunCall {
            id: Some(id),
            delivery: Delivery::Collect,
            policy: MANY_TURNS.with_detached(true).pausing_on(&[End::Completed]),
            ..asks(session, "hello")
        };
        let answer = self.answer(Call::Run(Box::new(call))).await;
        assert!(matches!(answer, Some(Answer::Run(_))), "it was answered");
        id
    }

    /// A run that would work for minutes.
    async fn working(&self, session: &str) -> RunId {
        let id = clock::new_id();
        let call = RunCall { id: Some(id), delivery: Delivery::Background, ..asks(session, "long 100000 20") };
        self.answer(Call::Run(Box::new(call))).await.expect("it was begun");
        id
    }

    /// Waits until no run is under way, and none is in memory.
    async fn settles(&self, what: &str) {
        let settled = async {
            while self.engine.working() > 0 || self.engine.active_count() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let settled = tokio::time::timeout(PROMPTLY, settled).await;
        let (working, live) = (self.engine.working(), self.engine.active_count());
        assert!(settled.is_ok(), "{what}: {working} runs are still under way, {live} in memory");
        let query = Query { filter: Filter { limit: 10_000, ..Filter::default() }, ..Query::default() };
        for run in self.store.find(query).await.expect("a list").runs {
            let under_way = matches!(run.state, RunState::Queued | RunState::Running);
            assert!(!under_way, "{what}: the store still has run {} under way", run.id);
        }
    }

    /// Whether a session can be used as if nothing had happened.
    async fn is_free(&self, session: &str, what: &str) {
        let call = RunCall {
            delivery: Delivery::Collect,
            policy: RunPolicy::attached().with_busy(Busy::Refuse),
            ..asks(session, "hello")
        };
        assert!(self.answer(Call::Run(Box::new(call))).await.is_some(), "{what}: the session is not free");
    }
}

/// More turns than one, attached to the client.
const MANY_TURNS: RunPolicy = RunPolicy::attached().pausing_on(&[End::Incomplete]);

fn asks(session: &str, text: &str) -> RunCall {
    let request = AgentRequest { input: vec![Message::user(text)].into(), ..AgentRequest::default() };
    RunCall { thread: Thread::Session(session.to_owned()), ..RunCall::new(AGENT, request) }
}

/// Every kind of call.
const KINDS: &[&str] = &[
    "stream",
    "collect",
    "background",
    "told to places, stream",
    "told to places, background",
    "with turns",
    "queued",
    "continue",
    "continue while it works",
    "cancel while it works",
    "cancel while it waits",
    "delete while it works",
    "delete while it waits",
    "follow",
    "follow while it waits",
    "fetch",
    "list",
    "session",
];

/// A call of a kind, and what has to be there before.
async fn call(house: &House, kind: &str, session: &str) -> Call {
    let run = |run: RunCall| Call::Run(Box::new(run));
    let id = clock::new_id();
    match kind {
        "stream" => run(asks(session, "hello")),
        "collect" => run(RunCall { delivery: Delivery::Collect, ..asks(session, "hello") }),
        "background" => run(RunCall { delivery: Delivery::Background, ..asks(session, "hello") }),
        "told to places, stream" => {
            house.name_a_place(id).await;
            run(RunCall { id: Some(id), policy: RunPolicy::attached().with_detached(true), ..asks(session, "hello") })
        }
        "told to places, background" => {
            house.name_a_place(id).await;
            run(RunCall { id: Some(id), delivery: Delivery::Background, ..asks(session, "hello") })
        }
        "with turns" => {
            house.name_a_place(id).await;
            run(RunCall { id: Some(id), policy: RunPolicy::task(), ..asks(session, "hello") })
        }
        "queued" => {
            let ahead = RunCall { delivery: Delivery::Background, ..asks(session, "long 3 1") };
            house.answer(run(ahead)).await;
            run(RunCall {
                delivery: Delivery::Collect,
                policy: RunPolicy::attached().with_busy(Busy::Queue),
                ..asks(session, "hello")
            })
        }
        "continue" | "continue while it works" => {
            let id = house.waiting(session).await;
            let words = if kind == "continue" { "hello" } else { "long 3 1" };
            if kind != "continue" {
                let ahead = RunCall {
                    delivery: Delivery::Background,
                    thread: Thread::Continue(id),
                    policy: MANY_TURNS,
                    ..asks(session, "long 3 1")
                };
                house.answer(run(ahead)).await;
            }
            run(RunCall {
                thread: Thread::Continue(id),
                policy: MANY_TURNS.with_detached(true),
                ..asks(session, words)
            })
        }
        "cancel while it works" => Call::Cancel(Target::Run(house.working(session).await)),
        "cancel while it waits" => Call::Cancel(Target::Run(house.waiting(session).await)),
        "delete while it works" => Call::Delete(Target::Run(house.working(session).await)),
        "delete while it waits" => Call::Delete(Target::Run(house.waiting(session).await)),
        "follow" => {
            house.answer(run(RunCall { id: Some(id), delivery: Delivery::Collect, ..asks(session, "hello") })).await;
            Call::Follow(Target::Run(id))
        }
        "follow while it waits" => Call::Follow(Target::Run(house.waiting(session).await)),
        "fetch" => Call::Fetch(Target::Run(house.waiting(session).await)),
        "list" => Call::List(Filter::default()),
        "session" => Call::Session(SessionCall::Create {
            agent: AGENT.to_owned(),
            session: session.to_owned(),
            items: vec![Message::user("before")],
            labels: Extra::new(),
        }),
        _ => unreachable!("every kind is named above"),
    }
}

/// Makes a call and drops it after so many polls: right after the last one, or when it is woken for the next one.
/// True if it was answered before.
async fn abandon(house: &House, call: Call, polls: usize, late: bool) -> bool {
    let mut answer = Box::pin(house.engine.answer(call, &house.scope));
    let mut polled = 0;
    std::future::poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(false);
        }
        polled += 1;
        match answer.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if polled == polls && !late => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Abandons every kind of call after every number of polls.
async fn abandon_all(store: impl Fn() -> Arc<dyn Store>) {
    for kind in KINDS {
        for late in [false, true] {
            let house = House::new(store());
            for polls in 0.. {
                assert!(polls < 500, "{kind}: never answered");
                let session = format!("s-{polls}");
                let what = format!("{kind}, left after {polls} polls, late: {late}");
                let call = call(&house, kind, &session).await;
                let target = match &call {
                    Call::Cancel(target) | Call::Delete(target) if kind.ends_with("works") => Some(target.clone()),
                    _ => None,
                };
                let answered = abandon(&house, call, polls, late).await;
                if let Some(target) = target.filter(|_| polls == 0) {
                    // A call that was never looked at does nothing.
                    house.answer(Call::Cancel(target)).await;
                }
                house.settles(&what).await;
                house.is_free(&session, &what).await;
                if answered {
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_at_any_await_leaves_nothing_behind_in_memory() {
    LocalSet::new().run_until(abandon_all(|| Arc::new(Memory::new()))).await;
}

#[tokio::test]
async fn a_call_that_is_dropped_at_any_await_leaves_nothing_behind_in_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let number = AtomicUsize::new(0);
    let open = || -> Arc<dyn Store> {
        let path = folder.path().join(format!("{}.db", number.fetch_add(1, Ordering::Relaxed)));
        Arc::new(Sqlite::open(&path, &SqliteOptions::default()).expect("a database"))
    };
    LocalSet::new().run_until(abandon_all(open)).await;
}

#[tokio::test]
async fn a_call_that_is_dropped_at_any_await_leaves_nothing_behind_in_a_slow_store() {
    LocalSet::new().run_until(abandon_all(|| Arc::new(Troubled::slow(Arc::new(Memory::new()))))).await;
}

#[tokio::test]
async fn whatever_the_store_refuses_the_run_ends_and_its_session_is_free() {
    let all = async {
        for kind in KINDS {
            for fails in 0.. {
                assert!(fails < 100, "{kind}: asks the store without end");
                let store = Arc::new(Troubled::slow(Arc::new(Memory::new())));
                let house = House::new(Arc::clone(&store) as Arc<dyn Store>);
                let what = format!("{kind}, the store refuses its call {fails}");
                let call = call(&house, kind, "s").await;
                let target = match &call {
                    Call::Cancel(target) | Call::Delete(target) if kind.ends_with("works") => Some(target.clone()),
                    _ => None,
                };
                store.fail_once_after(fails);
                let answer = tokio::time::timeout(PROMPTLY, house.engine.answer(call, &house.scope)).await;
                let answer = answer.unwrap_or_else(|_| panic!("{what}: no answer"));
                // Whoever follows sees an end, and leaves.
                drop(answer);
                if let Some(target) = target {
                    house.answer(Call::Cancel(target)).await;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                let refused = store.has_failed();
                store.recover();
                house.settles(&what).await;
                house.is_free("s", &what).await;
                if !refused {
                    break;
                }
            }
        }
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_background_run_that_cannot_be_stored_is_refused_and_was_never_there() {
    let alone = async {
        let store = Arc::new(Troubled::slow(Arc::new(Memory::new())));
        let house = House::new(Arc::clone(&store) as Arc<dyn Store>);
        let id = clock::new_id();
        store.fail_open();
        let call = RunCall { id: Some(id), delivery: Delivery::Background, ..asks("s", "hello") };
        assert!(house.answer(Call::Run(Box::new(call))).await.is_none(), "it is refused");
        store.recover();
        house.settles("a run that could not be stored").await;
        assert!(house.answer(Call::Fetch(Target::Run(id))).await.is_none(), "and nobody finds it");
        house.is_free("s", "after a run that could not be stored").await;
    };
    LocalSet::new().run_until(alone).await;
}

#[tokio::test]
async fn a_driver_that_panics_ends_its_run_and_a_second_panic_does_not_end_the_process() {
    let alone = async {
        for panics in [false, true] {
            let store = Arc::new(Troubled::slow(Arc::new(Memory::new())));
            let house = House::with(Arc::clone(&store) as Arc<dyn Store>, Arc::new(Bad));
            if panics {
                store.panic_on_settle();
            }
            let call = RunCall { delivery: Delivery::Collect, ..asks("s", "hello") };
            let answer = house.answer(Call::Run(Box::new(call))).await;
            let Some(Answer::Run(run)) = answer else { panic!("whoever waits for it is answered") };
            let state = run.view(|view| view.about.state);
            assert_eq!(state, RunState::Ended(End::Failed), "the store panics: {panics}");
            drop(run);
            house.settles("after a panic").await;
        }
    };
    LocalSet::new().run_until(alone).await;
}

#[tokio::test]
async fn a_run_that_is_cancelled_in_the_moment_it_is_answered_has_ended_when_that_is_said() {
    let races = async {
        for polls in 0..60 {
            let house = House::new(Arc::new(Troubled::slow(Arc::new(Memory::new()))));
            let id = house.waiting("s").await;
            let goes_on = RunCall {
                thread: Thread::Continue(id),
                policy: MANY_TURNS.with_detached(true).pausing_on(&[End::Completed]),
                delivery: Delivery::Collect,
                ..asks("s", "hello")
            };
            let engine = house.engine.clone();
            let scope = house.scope.clone();
            let answering =
                tokio::task::spawn_local(
                    async move { engine.answer(Call::Run(Box::new(goes_on)), &scope).await.is_ok() },
                );
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
            let cancelled = house.answer(Call::Cancel(Target::Run(id))).await;
            let Some(Answer::Run(run)) = cancelled else { panic!("it is answered") };
            let state = run.view(|view| view.about.state);
            assert_eq!(state, RunState::Ended(End::Canceled), "after {polls} polls");
            drop(run);
            let _ = tokio::time::timeout(PROMPTLY, answering).await.expect("who answered hears of it");
            house.settles("a race").await;
            house.is_free("s", "a race").await;
        }
    };
    LocalSet::new().run_until(races).await;
}

#[tokio::test]
async fn a_run_that_was_looked_up_before_another_answered_it_is_not_taken_back_to_where_it_was() {
    let alone = async {
        let store = Arc::new(Troubled::slow(Arc::new(Memory::new())));
        let house = House::new(Arc::clone(&store) as Arc<dyn Store>);
        let id = house.waiting("s").await;
        house.settles("the first turn").await;
        let goes_on = RunCall {
            thread: Thread::Continue(id),
            policy: MANY_TURNS,
            delivery: Delivery::Collect,
            ..asks("s", "hello")
        };
        // What the first one finds is held back while somebody else answers the run, to its end.
        store.hold_load();
        let (engine, scope, late) = (house.engine.clone(), house.scope.clone(), goes_on.clone());
        let late = tokio::task::spawn_local(async move { engine.answer(Call::Run(Box::new(late)), &scope).await });
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        let first = house.answer(Call::Run(Box::new(goes_on))).await;
        assert!(first.is_some(), "somebody answers it");
        house.answer(Call::Fetch(Target::Run(id))).await;
        store.let_load_go();
        let _ = tokio::time::timeout(PROMPTLY, late).await.expect("it is answered");
        house.settles("both answers").await;
        let Some(Answer::Run(run)) = house.answer(Call::Fetch(Target::Run(id))).await else { panic!("it is there") };
        let (turns, state) = run.view(|view| (view.run().turns.len(), view.about.state));
        assert_eq!((turns, state), (2, RunState::Ended(End::Completed)), "the late one is refused");
    };
    LocalSet::new().run_until(alone).await;
}
