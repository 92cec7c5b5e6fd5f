//! Messages to runs that work, wait, or are about to end: each gets a turn or an error, whatever fails or ends
//! meanwhile.
//!
//! Most tests use the engine alone, as [`super::abandoned`] does. Not here: the order of turns of different runs
//! (`sessions`), and ends of runs (`run_ends`).

use std::sync::Arc;
use std::time::Duration;

use interlingua::clock;
use interlingua::engine::Answer;
use interlingua::store::{Expect, Memory, Sqlite, SqliteOptions, Store, owned_key};
use interlingua_core::call::{CLAIMS, RunClaim, RunState, Target};
use interlingua_core::event::End;
use interlingua_core::{Call, Delivery, Json, Owner, RunCall, RunId, Thread};
use interlingua_core_testkit::{ended, grammar};
use serde_json::{Value, json};
use tokio::task::LocalSet;

use super::abandoned::{Fixture, MANY_TURNS, SETTLE_TIMEOUT, run_call};
use crate::support::agent::text_reply_until;
use crate::support::gateway::{Gateway, agent, last_input_text};
use crate::support::http::{Exchange, Response};
use crate::support::poll_until;
use crate::support::store::FaultyStore;
use crate::support::upstream::Upstream;

const ROUTES: &str = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";
const V1: (&str, &str) = ("a2a-version", "1.0");
const JSON: (&str, &str) = ("content-type", "application/json");

fn faulty() -> (Arc<FaultyStore>, Fixture) {
    let store = Arc::new(FaultyStore::slow(Arc::new(Memory::new())));
    let fixture = Fixture::new(Arc::clone(&store) as Arc<dyn Store>);
    (store, fixture)
}

/// A message to a run that ends after the turn.
fn message(run: RunId, text: &str, delivery: Delivery) -> RunCall {
    RunCall { thread: Thread::Continue(run), policy: MANY_TURNS.with_detached(true), delivery, ..run_call("s", text) }
}

/// Starts a run that ends after the turn.
async fn start(fixture: &Fixture, text: &str) -> RunId {
    let id = clock::new_id();
    let policy = MANY_TURNS.with_detached(true);
    let call = RunCall { id: Some(id), policy, delivery: Delivery::Background, ..run_call("s", text) };
    fixture.answer(Call::Run(Box::new(call))).await.expect("it was started");
    id
}

async fn proceed(steps: usize) {
    for _ in 0..steps {
        tokio::task::yield_now().await;
    }
}

/// The ends of the turns of a run that has ended, and the texts of their input.
async fn turns(fixture: &Fixture, id: RunId, what: &str) -> Vec<(End, bool, String)> {
    fixture.assert_settled(what).await;
    let stored = fixture.store.load(id).await.expect("a store that works").expect("the run");
    assert_eq!((grammar(&stored.record), ended(&stored.record)), (Ok(()), Ok(())), "{what}");
    let turns = stored.record.run().turns.iter();
    let shown = turns.map(|turn| {
        let input = serde_json::to_string(&turn.input.iter().collect::<Vec<_>>()).expect("JSON");
        (turn.end.expect("an end"), turn.error.is_some(), input)
    });
    shown.collect()
}

#[tokio::test]
async fn a_message_that_is_accepted_while_a_run_ends_gets_its_turn() {
    let races = async {
        for steps in 0..100 {
            let (_, fixture) = faulty();
            let id = start(&fixture, "hello").await;
            proceed(steps).await;
            let accepted = fixture.answer(Call::Run(Box::new(message(id, "more", Delivery::Background)))).await;
            let ends: Vec<End> =
                turns(&fixture, id, &format!("after {steps} steps")).await.iter().map(|turn| turn.0).collect();
            assert_eq!(ends, vec![End::Completed; 1 + usize::from(accepted.is_some())], "after {steps} steps");
        }
    };
    LocalSet::new().run_until(races).await;
}

#[tokio::test]
async fn queued_messages_are_recorded_in_their_run_whichever_call_of_the_store_fails() {
    let failures = async {
        for calls in 0..60 {
            let (store, fixture) = faulty();
            let id = start(&fixture, "long 3 1").await;
            for text in ["second", "third"] {
                let queued = fixture.answer(Call::Run(Box::new(message(id, text, Delivery::Background)))).await;
                assert!(queued.is_some(), "{calls}");
            }
            store.fail_once_after(calls);
            let settled = async {
                while fixture.engine.active_count() > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(SETTLE_TIMEOUT, settled).await.unwrap_or_else(|_| panic!("an end, {calls}"));
            store.recover();
            let turns = turns(&fixture, id, &format!("after {calls} calls")).await;
            assert_eq!(turns.len(), 3, "after {calls} calls: {turns:?}");
            for text in ["second", "third"] {
                assert!(turns.iter().any(|turn| turn.2.contains(text)), "after {calls} calls: {turns:?}");
            }
        }
    };
    LocalSet::new().run_until(failures).await;
}

#[tokio::test]
async fn a_waiting_run_can_be_answered_again_whichever_call_of_the_store_fails() {
    let failures = async {
        for calls in 0..30 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("store.db");
            let stores: [Arc<dyn Store>; 2] =
                [Arc::new(Memory::new()), Arc::new(Sqlite::open(&path, &SqliteOptions::default()).expect("a store"))];
            for inner in stores {
                let store = Arc::new(FaultyStore::slow(inner));
                let fixture = Fixture::new(Arc::clone(&store) as Arc<dyn Store>);
                let id = fixture.waiting("s").await;
                store.fail_once_after(calls);
                let first = fixture.answer(Call::Run(Box::new(message(id, "hello", Delivery::Collect)))).await;
                store.recover();
                if first.is_none() {
                    let again = fixture.answer(Call::Run(Box::new(message(id, "hello", Delivery::Collect)))).await;
                    assert!(again.is_some(), "after {calls} calls");
                }
                let turns = turns(&fixture, id, &format!("after {calls} calls")).await;
                assert_eq!(turns.last().map(|turn| turn.0), Some(End::Completed), "after {calls} calls: {turns:?}");
            }
        }
    };
    LocalSet::new().run_until(failures).await;
}

/// The second message has the same id as the first, as a client repeats it that got no answer.
#[tokio::test]
async fn the_repetition_of_a_queued_message_is_answered_with_the_end_of_its_run() {
    let repeated = async {
        // Events of the run before the repetition, and steps after them. The run ends with more than 24 events.
        for (events, steps) in (0..24).flat_map(|events| (0..16).map(move |steps| (events, steps))) {
            let (_, fixture) = faulty();
            let id = start(&fixture, "long 3 1").await;
            let send = async |delivery| {
                let claim = RunClaim { key: "claim".to_owned(), value: Json::from_serialize(&1) };
                let key = owned_key(Owner::anonymous().key(), &claim.key);
                let _ = fixture.store.put(CLAIMS, &key, "1".into(), Expect::Any, 0).await.expect("a store that works");
                let mut call = message(id, "more", delivery);
                let mut input: Vec<_> = call.request.input.iter().cloned().collect();
                input[0].id = Some("m".to_owned());
                call.request.input = input.into();
                fixture.answer(Call::Run(Box::new(RunCall { claim: Some(claim), ..call }))).await
            };
            let Some(Answer::Run(queued)) = send(Delivery::Background).await else { panic!("it is queued") };
            let reached = async {
                while queued.view_safe(|view| view.record.len()) < events {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(SETTLE_TIMEOUT, reached).await.expect("the run continues");
            proceed(steps).await;
            let Some(Answer::Run(run)) = send(Delivery::Collect).await else { panic!("{events} + {steps}: a run") };
            let (state, turns) = run.view_safe(|view| (view.info.state, view.run().turns.len()));
            assert_eq!((state, turns), (RunState::Ended(End::Completed), 2), "{events} events, {steps} steps");
        }
    };
    LocalSet::new().run_until(repeated).await;
}

/// A blocking call, a stream and a background call behind a turn that does not end.
#[tokio::test]
async fn calls_whose_turns_are_queued_are_answered_when_the_gateway_stops() {
    let stopped = async {
        let (_, fixture) = faulty();
        let id = start(&fixture, "long 100000 20").await;
        let blocking: Vec<_> = (0..3)
            .map(|_| {
                let (engine, scope) = (fixture.engine.clone(), fixture.scope.clone());
                let call = Call::Run(Box::new(message(id, "more", Delivery::Collect)));
                tokio::task::spawn_local(async move { engine.answer(call, &scope).await.map(drop) })
            })
            .collect();
        proceed(50).await;
        fixture.answer(Call::Run(Box::new(message(id, "more", Delivery::Background)))).await.expect("it is queued");
        fixture.engine.drain(Duration::ZERO).await;
        for call in blocking {
            let answered = tokio::time::timeout(SETTLE_TIMEOUT, call).await.expect("an answer in time");
            let _ = answered.expect("no call panics");
        }
        let turns = turns(&fixture, id, "the stop").await;
        assert!(turns.iter().all(|turn| turn.0 != End::Completed), "{turns:?}");
        assert!(fixture.answer(Call::Fetch(Target::Run(id))).await.is_some());
    };
    LocalSet::new().run_until(stopped).await;
}

/// A task, another task of its context that was queued next, and a second message to the first task behind it.
struct QueuedTask {
    gateway: Gateway,
    upstream: Upstream,
    id: Value,
    /// The answers to the messages, in this order.
    answers: [Exchange; 3],
}

async fn rest(gateway: &Gateway, path: &str, body: &Value) -> Exchange {
    gateway.open("POST", &format!("/a2a/demo{path}"), &[V1, JSON], body.to_string().as_bytes()).await
}

async fn get(gateway: &Gateway, path: &str) -> Response {
    gateway.open("GET", &format!("/a2a/demo{path}"), &[V1], b"").await.response().await
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().expect("a state").trim_start_matches("TASK_STATE_")
}

impl QueuedTask {
    /// The first turn of the first task has ended, and the agent works on the other task.
    async fn new() -> Self {
        let upstream = Upstream::with_handler(|request| {
            let text = last_input_text(&request.json());
            text_reply_until(&["ok"], &text)
        });
        let agent = agent("demo", &upstream.url("/process"), "", "retries = 0");
        let gateway = Gateway::start(&format!("{agent}{ROUTES}")).await;
        let send = async |text: &str, task: Value| {
            let parts = json!([{ "text": text }]);
            let message =
                json!({ "messageId": text, "role": "ROLE_USER", "contextId": "c", "taskId": task, "parts": parts });
            let mut stream = rest(&gateway, "/message:stream", &json!({ "message": message })).await;
            let id = stream.frame().await.expect("a task")["task"]["id"].clone();
            assert!(id.is_string(), "{id}");
            (id, stream)
        };
        let (id, first) = send("first", Value::Null).await;
        let (other, second) = send("other", Value::Null).await;
        assert_ne!(id, other);
        let (same, third) = send("behind", id.clone()).await;
        assert_eq!(id, same);
        upstream.open("first");
        poll_until("the other task to begin", async || (upstream.requests().len() == 2).then_some(())).await;
        Self { gateway, upstream, id, answers: [first, second, third] }
    }

    async fn task(&self) -> Value {
        get(&self.gateway, &format!("/tasks/{}", self.id.as_str().expect("an id"))).await.json()
    }
}

#[tokio::test]
async fn a_task_whose_next_turn_is_queued_works_and_can_be_canceled() {
    let mut queued = QueuedTask::new().await;
    assert_eq!(state(&queued.task().await), "WORKING");
    if std::env::var_os("INTERLINGUA_TEST_REPLICAS").is_none() {
        // Several gateways list the states that are stored: a task between two turns waits there.
        let listed = get(&queued.gateway, "/tasks?status=TASK_STATE_WORKING").await.json();
        assert_eq!(listed["totalSize"], 2, "{listed}");
    }

    let path = format!("/tasks/{}:cancel", queued.id.as_str().expect("an id"));
    let canceled = rest(&queued.gateway, &path, &json!({})).await.response().await;
    assert_eq!(state(&canceled.json()), "CANCELED", "{}", canceled.text());
    let last = queued.answers[2].frames().await;
    assert_eq!(state(&last.last().expect("an end")["statusUpdate"]), "CANCELED", "while the other task works");

    queued.upstream.open("other");
    let last = queued.answers[1].frames().await;
    assert_eq!(state(&last.last().expect("an end")["statusUpdate"]), "COMPLETED");
    assert_eq!(queued.upstream.requests().len(), 2, "the canceled message does not reach the agent");
}

#[tokio::test]
async fn a_message_that_is_queued_behind_another_task_gets_its_turn() {
    let mut queued = QueuedTask::new().await;
    queued.upstream.open("other");
    queued.upstream.open("behind");
    let last = queued.answers[2].frames().await;
    assert_eq!(state(&last.last().expect("an end")["statusUpdate"]), "COMPLETED");
    assert_eq!(queued.upstream.requests().len(), 3);
    assert_eq!(queued.task().await["history"].as_array().map(Vec::len), Some(2), "{}", queued.task().await);
}

#[tokio::test]
async fn a_message_that_is_queued_when_the_gateway_stops_does_not_reach_the_agent() {
    let mut queued = QueuedTask::new().await;
    queued.gateway.begin_shutdown();
    let mut ends = Vec::new();
    for answer in &mut queued.answers {
        ends.push(answer.frames().await.last().cloned());
    }
    assert_eq!(queued.upstream.requests().len(), 2, "{ends:?}");
}
