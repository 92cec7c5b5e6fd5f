//! Every run ends once: whatever ends it, and whatever arrives meanwhile, each turn has one end, and the end of the run
//! is its last event.
//!
//! Tests the engine alone, as [`super::abandoned`] does. Not here: ends by other processes (`tests/crash.rs`,
//! `tests/takeover`).

use std::sync::Arc;
use std::time::Duration;

use interlingua::clock;
use interlingua::engine::Answer;
use interlingua::store::{Memory, Query, Store};
use interlingua_core::answer::{self, AnswerBody};
use interlingua_core::call::{Filter, RunState, Target};
use interlingua_core::event::End;
use interlingua_core::pending::Decision;
use interlingua_core::{Call, Delivery, RunCall, RunId, Thread};
use interlingua_core_testkit::{ended, grammar};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::task::LocalSet;

use super::abandoned::{Fixture, MANY_TURNS, SETTLE_TIMEOUT, run_call};
use crate::support::store::FaultyStore;

/// Something that happens to a run.
#[derive(Clone, Debug)]
enum Action {
    /// A message to the run.
    Message(&'static str),
    /// Another run in the session accepts the first open item of the run.
    AcceptElsewhere,
    Cancel,
    /// The store fails one of its next calls.
    StoreFails(usize),
    /// Everything else proceeds by this number of steps.
    Wait(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let words =
        ["hello", "approval", "approvals", "long 3 1", "long 100000 20", "fail", "error", "break", "incomplete"];
    prop_oneof![
        6 => prop::sample::select(words.to_vec()).prop_map(Action::Message),
        3 => Just(Action::AcceptElsewhere),
        1 => Just(Action::Cancel),
        1 => (0_usize..20).prop_map(Action::StoreFails),
        6 => (0_usize..60).prop_map(Action::Wait),
    ]
}

fn message(run: RunId, text: &str) -> Call {
    let policy = MANY_TURNS.with_detached(true).pausing_on(&[End::Completed]);
    let thread = Thread::Continue(run);
    Call::Run(Box::new(RunCall { thread, policy, delivery: Delivery::Collect, ..run_call("s", text) }))
}

/// A call that accepts the first open item of a run in a run of its own.
async fn accept_elsewhere(fixture: &Fixture, run: RunId) -> Option<Call> {
    let Some(Answer::Run(run)) = fixture.answer(Call::Fetch(Target::Run(run))).await else { return None };
    let item = run.view(|view| view.pending.first().map(|item| item.id.clone()))?;
    let given = AnswerBody::Decided { decision: Decision::Accept, arguments: None, text: None, payload: None };
    let answers = vec![answer::Answer::new(item, given)];
    let mut call = RunCall { answers, delivery: Delivery::Collect, ..run_call("s", "") };
    call.request.input = Vec::new().into();
    Some(Call::Run(Box::new(call)))
}

async fn perform(actions: Vec<Action>) {
    let store = Arc::new(FaultyStore::slow(Arc::new(Memory::new())));
    let fixture = Fixture::new(Arc::clone(&store) as Arc<dyn Store>);
    let run = fixture.waiting("s").await;
    let mut calls = Vec::new();
    for action in actions {
        let call = match action {
            Action::Message(text) => Some(message(run, text)),
            Action::AcceptElsewhere => accept_elsewhere(&fixture, run).await,
            Action::Cancel => Some(Call::Cancel(Target::Run(run))),
            Action::StoreFails(calls) => {
                store.fail_once_after(calls);
                None
            }
            Action::Wait(steps) => {
                for _ in 0..steps {
                    tokio::task::yield_now().await;
                }
                None
            }
        };
        if let Some(call) = call {
            let (engine, scope) = (fixture.engine.clone(), fixture.scope.clone());
            calls.push(tokio::task::spawn_local(async move { engine.answer(call, &scope).await.is_ok() }));
        }
    }

    for _ in 0..60 {
        tokio::task::yield_now().await;
    }
    store.recover();
    fixture.engine.drain(Duration::ZERO).await;
    for call in calls {
        tokio::time::timeout(SETTLE_TIMEOUT, call).await.expect("an answer in time").expect("no call panics");
    }
    // Runs that wait end now.
    let query = Query { filter: Filter { limit: 1000, ..Filter::default() }, ..Query::default() };
    let runs = fixture.store.find(query).await.expect("a list").runs;
    for head in &runs {
        fixture.answer(Call::Cancel(Target::Run(head.id))).await.expect("the run can be canceled");
    }

    fixture.assert_settled("all actions").await;
    for head in runs {
        let stored = fixture.store.load(head.id).await.expect("a store that works").expect("the run");
        assert_eq!(ended(&stored.record), Ok(()), "{:?}", stored.record);
        assert_eq!(stored.info.state, RunState::Ended(stored.record.run().end.expect("an end")));
    }
}

#[test]
fn runs_end_once_in_any_order_of_messages_cancellations_and_store_failures() {
    let config = ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() };
    let actions = prop::collection::vec(action(), 1..16);
    let tested = TestRunner::new(config).run(&actions, |actions| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, perform(actions));
        Ok(())
    });
    tested.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Drops the tasks of all runs, as a thread does that ends.
#[test]
fn runs_whose_tasks_are_dropped_end_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    for steps in 0..40 {
        let tasks = LocalSet::new();
        let id = clock::new_id();
        let fixture = Fixture::new(Arc::clone(&store));
        tasks.block_on(&runtime, async {
            let call = RunCall { id: Some(id), delivery: Delivery::Background, ..run_call("s", "long 100000 20") };
            fixture.answer(Call::Run(Box::new(call))).await.expect("a run");
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
        });
        drop(tasks);
        let stored = runtime.block_on(store.load(id)).expect("a store that works").expect("the run");
        assert_eq!(ended(&stored.record), Ok(()), "after {steps} steps");
    }
}

#[tokio::test]
async fn a_message_that_arrives_while_a_turn_ends_gets_a_turn_of_its_own() {
    let races = async {
        // The second message arrives at each step of the first turn, also while the end of that turn is written.
        for steps in 0..120 {
            let fixture = Fixture::new(Arc::new(FaultyStore::slow(Arc::new(Memory::new()))));
            let id = fixture.waiting("s").await;
            let next = || {
                let (engine, scope) = (fixture.engine.clone(), fixture.scope.clone());
                let call = RunCall {
                    thread: Thread::Continue(id),
                    policy: MANY_TURNS.with_detached(true).pausing_on(&[End::Completed]),
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
                let answered = tokio::time::timeout(SETTLE_TIMEOUT, call).await.expect("an answer in time");
                assert!(answered.expect("no call panics").is_ok(), "after {steps} steps");
            }

            let Some(Answer::Run(run)) = fixture.answer(Call::Fetch(Target::Run(id))).await else {
                panic!("it is there")
            };
            let (state, ends) = run.view(|view| {
                assert_eq!(grammar(view.record), Ok(()), "after {steps} steps");
                (view.info.state, view.run().turns.iter().map(|turn| turn.end).collect::<Vec<_>>())
            });
            assert_eq!((state, ends), (RunState::Waiting, vec![Some(End::Completed); 3]), "after {steps} steps");
            drop(run);
            fixture.assert_settled("both turns").await;
        }
    };
    LocalSet::new().run_until(races).await;
}
