//! Clients that disconnect at any moment of a call: whatever the call started ends, and no resource leaks.
//!
//! Tests the engine alone, without sockets: a call is a future, and a client that disconnects drops it. The tests drop
//! it after every number of polls, for each kind of call, with stores that respond at once, late, or with an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use interlingua::clock;
use interlingua::engine::{Answer, Engine, History, Scope};
use interlingua::store::{Memory, Query, Sqlite, SqliteOptions, Store, owned_key};
use interlingua::upstream::demo::DemoUpstream;
use interlingua::upstream::{Conversation, SendOptions, Upstream};
use interlingua_core::call::{Busy, Filter, HistoryJudge, Otherwise, Resent, RunState, RunView, SessionCall, Target};
use interlingua_core::capability::UpstreamCapabilities;
use interlingua_core::connector::TurnRequest;
use interlingua_core::event::End;
use interlingua_core::json::Extra;
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::policy::RunPolicy;
use interlingua_core::public_address::Policy;
use interlingua_core::push::{PushNotifier, PushNotifiers, PushRequest};
use interlingua_core::step::Step;
use interlingua_core::{Call, Delivery, Fault, Owner, RunCall, RunId, Thread};
use tokio::task::LocalSet;

use crate::support::engine::{AGENT, engine};
use crate::support::store::FaultyStore;

/// Everything that a call started must have ended within this time.
pub(super) const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
pub(super) const COLLECTION: &str = "receivers";

/// An engine without sockets, and the scope of its caller.
pub(super) struct Fixture {
    pub(super) engine: Engine,
    pub(super) store: Arc<dyn Store>,
    pub(super) scope: Scope,
}

/// A notifier that sends a request for every step.
struct StepNotifier;

impl PushNotifier for StepNotifier {
    fn url(&self) -> &str {
        "https://receiver.example"
    }

    fn skip(&mut self, _: Step<'_>) {}

    fn take(&mut self, _: Step<'_>, requests: &mut Vec<PushRequest>) {
        requests.push(PushRequest { headers: Vec::new(), body: Vec::new() });
    }

    fn has_held(&self) -> bool {
        false
    }

    fn flush(&mut self, _: Step<'_>, _: &mut Vec<PushRequest>) {}
}

/// An upstream whose `open` panics.
struct PanickingUpstream;

impl Upstream for PanickingUpstream {
    fn capabilities(&self) -> UpstreamCapabilities {
        UpstreamCapabilities::default()
    }

    fn start(&self, _: &TurnRequest<'_>, _: SendOptions<'_>) -> Result<Conversation, Fault> {
        panic!("the test says so")
    }
}

impl Fixture {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self::with(store, Arc::new(DemoUpstream::new(Duration::ZERO)))
    }

    fn with(store: Arc<dyn Store>, upstream: Arc<dyn Upstream>) -> Self {
        Self::with_history(store, upstream, History::Upstream)
    }

    fn with_history(store: Arc<dyn Store>, upstream: Arc<dyn Upstream>, history: History) -> Self {
        let notifiers = PushNotifiers {
            collection: COLLECTION,
            policy: Policy::default(),
            pause: Duration::from_millis(10),
            open: Box::new(|_| Some(Box::new(StepNotifier))),
            disable: Box::new(|_| None),
        };
        let (engine, scope) = engine(Arc::clone(&store), upstream, history);
        let scope = Scope { push: Some(Arc::new(notifiers)), ..scope };
        Self { engine, store, scope }
    }

    pub(super) async fn answer(&self, call: Call) -> Option<Answer> {
        // Boxed: the futures of the tests contain it many times, on one stack.
        let answered = Box::pin(self.engine.answer(call, &self.scope));
        tokio::time::timeout(SETTLE_TIMEOUT, answered).await.expect("an answer in time").ok()
    }

    /// Registers a push receiver for a run.
    pub(super) async fn add_receiver(&self, run: RunId) {
        let key = owned_key(Owner::anonymous().key(), &format!("{run}/1"));
        let put = self.store.put(COLLECTION, &key, "{}".into(), interlingua::store::Expect::Any, 0);
        let _ = put.await;
    }

    /// Creates a run that is paused between two turns.
    pub(super) async fn waiting(&self, session: &str) -> RunId {
        let id = clock::new_id();
        let call = RunCall {
            id: Some(id),
            delivery: Delivery::Collect,
            policy: MANY_TURNS.with_detached(true).pausing_on(&[End::Completed]),
            ..run_call(session, "hello")
        };
        let answer = self.answer(Call::Run(Box::new(call))).await;
        assert!(matches!(answer, Some(Answer::Run(_))), "it was answered");
        id
    }

    /// Starts a run that would take minutes.
    pub(super) async fn working(&self, session: &str) -> RunId {
        let id = clock::new_id();
        let call = RunCall { id: Some(id), delivery: Delivery::Background, ..run_call(session, "long 100000 20") };
        self.answer(Call::Run(Box::new(call))).await.expect("it was begun");
        id
    }

    /// Waits until all runs have ended and left memory.
    pub(super) async fn assert_settled(&self, what: &str) {
        let settled = async {
            while self.engine.working() > 0 || self.engine.active_count() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let settled = tokio::time::timeout(SETTLE_TIMEOUT, settled).await;
        let (working, live) = (self.engine.working(), self.engine.active_count());
        assert!(settled.is_ok(), "{what}: {working} runs are still under way, {live} in memory");

        let query = Query { filter: Filter { limit: 10_000, ..Filter::default() }, ..Query::default() };
        for run in self.store.find(query).await.expect("a list").runs {
            let under_way = matches!(run.state, RunState::Queued | RunState::Running);
            assert!(!under_way, "{what}: the store still has run {} under way", run.id);
        }
    }

    /// Asserts that a session accepts a new turn at once.
    async fn assert_free(&self, session: &str, what: &str) {
        let call = RunCall {
            delivery: Delivery::Collect,
            policy: RunPolicy::attached().with_busy(Busy::Refuse),
            ..run_call(session, "hello")
        };
        assert!(self.answer(Call::Run(Box::new(call))).await.is_some(), "{what}: the session is not free");
    }
}

/// Several turns, attached to the client.
pub(super) const MANY_TURNS: RunPolicy = RunPolicy::attached().pausing_on(&[End::Incomplete]);

pub(super) fn run_call(session: &str, text: &str) -> RunCall {
    let request = AgentRequest { input: vec![Message::user(text)].into(), ..AgentRequest::default() };
    RunCall { thread: Thread::Session(session.to_owned()), ..RunCall::new(AGENT, request) }
}

/// Fits no answer.
#[derive(Debug)]
struct OtherHistory;

impl HistoryJudge for OtherHistory {
    fn ends_with(&self, _: RunView<'_>) -> bool {
        false
    }
}

/// A client that sends all of its conversation, which the gateway does not know.
fn resent_call(session: &str, otherwise: Otherwise) -> RunCall {
    let history = vec![Message::user("before"), Message::assistant("said before")];
    let resent =
        Resent { session: Some(session.to_owned()), otherwise, ..Resent::new(history, Arc::new(OtherHistory)) };
    RunCall { thread: Thread::Resent(Box::new(resent)), ..run_call(session, "hello") }
}

/// The kinds of calls.
const KINDS: &[&str] = &[
    "stream",
    "collect",
    "background",
    "with receivers, stream",
    "with receivers, background",
    "with turns",
    "queued",
    "resent",
    "resent, begins again",
    "resent, another conversation of the name",
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

/// Prepares the preconditions of a kind of call and returns the call.
async fn call(fixture: &Fixture, kind: &str, session: &str) -> Call {
    let run = |run: RunCall| Call::Run(Box::new(run));
    let id = clock::new_id();
    match kind {
        "stream" => run(run_call(session, "hello")),
        "collect" => run(RunCall { delivery: Delivery::Collect, ..run_call(session, "hello") }),
        "background" => run(RunCall { delivery: Delivery::Background, ..run_call(session, "hello") }),
        "with receivers, stream" => {
            fixture.add_receiver(id).await;
            run(RunCall {
                id: Some(id),
                policy: RunPolicy::attached().with_detached(true),
                ..run_call(session, "hello")
            })
        }
        "with receivers, background" => {
            fixture.add_receiver(id).await;
            run(RunCall { id: Some(id), delivery: Delivery::Background, ..run_call(session, "hello") })
        }
        "with turns" => {
            fixture.add_receiver(id).await;
            run(RunCall { id: Some(id), policy: RunPolicy::task(), ..run_call(session, "hello") })
        }
        "queued" => {
            let ahead = RunCall { delivery: Delivery::Background, ..run_call(session, "long 3 1") };
            fixture.answer(run(ahead)).await;
            run(RunCall {
                delivery: Delivery::Collect,
                policy: RunPolicy::attached().with_busy(Busy::Queue),
                ..run_call(session, "hello")
            })
        }
        "resent" => run(resent_call(session, Otherwise::NewSession)),
        "resent, begins again" | "resent, another conversation of the name" => {
            fixture.answer(run(RunCall { delivery: Delivery::Collect, ..run_call(session, "hello") })).await;
            let begins_again = kind == "resent, begins again";
            run(resent_call(session, if begins_again { Otherwise::BeginAgain } else { Otherwise::NewSession }))
        }
        "continue" | "continue while it works" => {
            let id = fixture.waiting(session).await;
            let words = if kind == "continue" { "hello" } else { "long 3 1" };
            if kind != "continue" {
                let ahead = RunCall {
                    delivery: Delivery::Background,
                    thread: Thread::Continue(id),
                    policy: MANY_TURNS,
                    ..run_call(session, "long 3 1")
                };
                fixture.answer(run(ahead)).await;
            }
            run(RunCall {
                thread: Thread::Continue(id),
                policy: MANY_TURNS.with_detached(true),
                ..run_call(session, words)
            })
        }
        "cancel while it works" => Call::Cancel(Target::Run(fixture.working(session).await)),
        "cancel while it waits" => Call::Cancel(Target::Run(fixture.waiting(session).await)),
        "delete while it works" => Call::Delete(Target::Run(fixture.working(session).await)),
        "delete while it waits" => Call::Delete(Target::Run(fixture.waiting(session).await)),
        "follow" => {
            fixture
                .answer(run(RunCall { id: Some(id), delivery: Delivery::Collect, ..run_call(session, "hello") }))
                .await;
            Call::Follow(Target::Run(id))
        }
        "follow while it waits" => Call::Follow(Target::Run(fixture.waiting(session).await)),
        "fetch" => Call::Fetch(Target::Run(fixture.waiting(session).await)),
        "list" => Call::List(Filter::default()),
        "session" => Call::Session(SessionCall::Create {
            agent: AGENT.to_owned(),
            session: session.to_owned(),
            items: vec![Message::user("before")],
            labels: Extra::new(),
        }),
        _ => unreachable!("all kinds are listed above"),
    }
}

/// Drops a call after this number of polls: right after the last poll, or (`late`) when it is woken for the next one.
/// True if the call completed before.
async fn abandon(fixture: &Fixture, call: Call, polls: usize, late: bool) -> bool {
    let mut answer = Box::pin(fixture.engine.answer(call, &fixture.scope));
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
            let fixture = Fixture::new(store());
            for polls in 0.. {
                assert!(polls < 500, "{kind}: never answered");
                let session = format!("s-{polls}");
                let what = format!("{kind}, left after {polls} polls, late: {late}");
                let call = call(&fixture, kind, &session).await;
                let target = match &call {
                    Call::Cancel(target) | Call::Delete(target) if kind.ends_with("works") => Some(target.clone()),
                    _ => None,
                };
                let answered = abandon(&fixture, call, polls, late).await;
                if let Some(target) = target.filter(|_| polls == 0) {
                    // A call that was never polled does nothing.
                    fixture.answer(Call::Cancel(target)).await;
                }
                fixture.assert_settled(&what).await;
                fixture.assert_free(&session, &what).await;
                if answered {
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_call_dropped_at_any_await_leaves_nothing_behind_in_a_memory_store() {
    LocalSet::new().run_until(abandon_all(|| Arc::new(Memory::new()))).await;
}

#[tokio::test]
async fn a_call_dropped_at_any_await_leaves_nothing_behind_in_a_sqlite_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let number = AtomicUsize::new(0);
    let open = || -> Arc<dyn Store> {
        let path = folder.path().join(format!("{}.db", number.fetch_add(1, Ordering::Relaxed)));
        Arc::new(Sqlite::open(&path, &SqliteOptions::default()).expect("a database"))
    };
    LocalSet::new().run_until(abandon_all(open)).await;
}

#[tokio::test]
async fn a_call_dropped_at_any_await_leaves_nothing_behind_in_a_slow_store() {
    LocalSet::new().run_until(abandon_all(|| Arc::new(FaultyStore::slow(Arc::new(Memory::new()))))).await;
}

#[tokio::test]
async fn any_failed_store_call_ends_the_run_and_frees_its_session() {
    let all = async {
        for kind in KINDS {
            for fails in 0.. {
                assert!(fails < 100, "{kind}: calls the store without end");
                let store = Arc::new(FaultyStore::slow(Arc::new(Memory::new())));
                let fixture = Fixture::new(Arc::clone(&store) as Arc<dyn Store>);
                let what = format!("{kind}, the store refuses its call {fails}");
                let call = call(&fixture, kind, "s").await;
                let target = match &call {
                    Call::Cancel(target) | Call::Delete(target) if kind.ends_with("works") => Some(target.clone()),
                    _ => None,
                };
                store.fail_once_after(fails);
                let answer = tokio::time::timeout(SETTLE_TIMEOUT, fixture.engine.answer(call, &fixture.scope)).await;
                let answer = answer.unwrap_or_else(|_| panic!("{what}: no answer"));
                // Dropping the response ends a follower.
                drop(answer);
                if let Some(target) = target {
                    fixture.answer(Call::Cancel(target)).await;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                let refused = store.has_failed();
                store.recover();
                fixture.assert_settled(&what).await;
                fixture.assert_free("s", &what).await;
                if !refused {
                    break;
                }
            }
        }
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_background_run_that_cannot_be_stored_is_refused_and_leaves_no_trace() {
    let alone = async {
        let store = Arc::new(FaultyStore::slow(Arc::new(Memory::new())));
        let fixture = Fixture::new(Arc::clone(&store) as Arc<dyn Store>);
        let id = clock::new_id();
        store.fail_open();
        let call = RunCall { id: Some(id), delivery: Delivery::Background, ..run_call("s", "hello") };
        assert!(fixture.answer(Call::Run(Box::new(call))).await.is_none(), "it is refused");

        store.recover();
        fixture.assert_settled("a run that could not be stored").await;
        assert!(fixture.answer(Call::Fetch(Target::Run(id))).await.is_none(), "and it is not found");
        fixture.assert_free("s", "after a run that could not be stored").await;
    };
    LocalSet::new().run_until(alone).await;
}

#[tokio::test]
async fn a_panicking_driver_fails_its_run_and_a_second_panic_does_not_abort_the_process() {
    let alone = async {
        for panics in [false, true] {
            let store = Arc::new(FaultyStore::slow(Arc::new(Memory::new())));
            let fixture = Fixture::with(Arc::clone(&store) as Arc<dyn Store>, Arc::new(PanickingUpstream));
            if panics {
                store.panic_on_settle();
            }
            let call = RunCall { delivery: Delivery::Collect, ..run_call("s", "hello") };
            let answer = fixture.answer(Call::Run(Box::new(call))).await;
            let Some(Answer::Run(run)) = answer else { panic!("the waiting call gets a result") };
            let state = run.view(|view| view.info.state);
            assert_eq!(state, RunState::Ended(End::Failed), "the store panics: {panics}");
            drop(run);
            fixture.assert_settled("after a panic").await;
        }
    };
    LocalSet::new().run_until(alone).await;
}

#[tokio::test]
async fn a_run_cancelled_while_it_is_answered_has_ended_when_the_cancel_returns() {
    let races = async {
        for polls in 0..60 {
            let fixture = Fixture::new(Arc::new(FaultyStore::slow(Arc::new(Memory::new()))));
            let id = fixture.waiting("s").await;
            let next_turn = RunCall {
                thread: Thread::Continue(id),
                policy: MANY_TURNS.with_detached(true).pausing_on(&[End::Completed]),
                delivery: Delivery::Collect,
                ..run_call("s", "hello")
            };
            let engine = fixture.engine.clone();
            let scope = fixture.scope.clone();
            let answering =
                tokio::task::spawn_local(
                    async move { engine.answer(Call::Run(Box::new(next_turn)), &scope).await.is_ok() },
                );
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
            let cancelled = fixture.answer(Call::Cancel(Target::Run(id))).await;
            let Some(Answer::Run(run)) = cancelled else { panic!("it is answered") };
            let state = run.view(|view| view.info.state);
            assert_eq!(state, RunState::Ended(End::Canceled), "after {polls} polls");
            drop(run);
            let _ = tokio::time::timeout(SETTLE_TIMEOUT, answering).await.expect("the answering call returns");
            fixture.assert_settled("a race").await;
            fixture.assert_free("s", "a race").await;
        }
    };
    LocalSet::new().run_until(races).await;
}

#[tokio::test]
async fn a_stale_lookup_does_not_roll_back_a_run_that_was_answered_meanwhile() {
    let alone = async {
        let store = Arc::new(FaultyStore::slow(Arc::new(Memory::new())));
        let fixture = Fixture::new(Arc::clone(&store) as Arc<dyn Store>);
        let id = fixture.waiting("s").await;
        fixture.assert_settled("the first turn").await;

        let next_turn = RunCall {
            thread: Thread::Continue(id),
            policy: MANY_TURNS,
            delivery: Delivery::Collect,
            ..run_call("s", "hello")
        };

        // The lookup of the first call is held back while a second call answers the run to its end.
        store.hold_load();
        let (engine, scope, late) = (fixture.engine.clone(), fixture.scope.clone(), next_turn.clone());
        let late = tokio::task::spawn_local(async move { engine.answer(Call::Run(Box::new(late)), &scope).await });
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        let first = fixture.answer(Call::Run(Box::new(next_turn))).await;
        assert!(first.is_some(), "the second call answers it");
        fixture.answer(Call::Fetch(Target::Run(id))).await;
        store.release_load();
        let _ = tokio::time::timeout(SETTLE_TIMEOUT, late).await.expect("it is answered");
        fixture.assert_settled("both answers").await;

        let Some(Answer::Run(run)) = fixture.answer(Call::Fetch(Target::Run(id))).await else { panic!("it is there") };
        let (turns, state) = run.view(|view| (view.run().turns.len(), view.info.state));
        assert_eq!((turns, state), (2, RunState::Ended(End::Completed)), "the late one is refused");
    };
    LocalSet::new().run_until(alone).await;
}

#[tokio::test]
async fn two_messages_to_a_waiting_run_at_the_same_moment_both_get_an_answer() {
    let races = async {
        // The second one comes before, while and after the request of the first one is prepared.
        for steps in 0..60 {
            let store = Arc::new(FaultyStore::slow(Arc::new(Memory::new())));
            let demo = Arc::new(DemoUpstream::new(Duration::ZERO));
            let fixture = Fixture::with_history(store, demo, History::Gateway);
            let id = fixture.waiting("s").await;
            fixture.assert_settled("the first turn").await;

            let next = || {
                let (engine, scope) = (fixture.engine.clone(), fixture.scope.clone());
                let call = RunCall {
                    thread: Thread::Continue(id),
                    policy: MANY_TURNS,
                    delivery: Delivery::Collect,
                    ..run_call("s", "hello")
                };
                tokio::task::spawn_local(async move { engine.answer(Call::Run(Box::new(call)), &scope).await })
            };
            let first = next();
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            let second = next();
            for call in [first, second] {
                let answered = tokio::time::timeout(SETTLE_TIMEOUT, call).await.expect("no message waits for ever");
                let refused = answered.expect("no call panics").err();
                // The first message ends the run: one that comes after that is late.
                assert!(refused.is_none_or(|fault| fault.message.ends_with("has ended")), "after {steps} steps");
            }
            let Some(Answer::Run(run)) = fixture.answer(Call::Fetch(Target::Run(id))).await else {
                panic!("it is there")
            };
            let withdrawn: Vec<bool> = run.view(|view| view.run().turns.iter().map(|turn| turn.withdrawn).collect());
            assert!(withdrawn.len() > 1 && !withdrawn.contains(&true), "after {steps} steps: {withdrawn:?}");
            fixture.assert_settled("both messages").await;
            fixture.assert_free("s", "both messages").await;
        }
    };
    LocalSet::new().run_until(races).await;
}
