//! Sessions that two engines on one store use at the same time: streams of notices, and users who choose the same id.
//!
//! Tests the engine alone, as [`super::abandoned`] does. Not here: gateways (`tests/takeover`, `tests/replicas`).

use std::sync::Arc;
use std::time::Duration;

use interlingua::clock;
use interlingua::engine::Answer;
use interlingua::store::Store;
use interlingua_core::call::{Busy, Listen, ListenSession, Notice, RunState, Target};
use interlingua_core::event::End;
use interlingua_core::policy::RunPolicy;
use interlingua_core::{Call, Delivery, RunCall};
use tokio::task::LocalSet;

use super::abandoned::{Fixture, SETTLE_TIMEOUT, run_call};
use crate::support::replicas::{Fault, Hub, Replica, StepSelector};

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(600);

/// Two engines, each with its replica.
fn engines() -> [(Fixture, Arc<Replica>); 2] {
    let hub = Hub::in_memory(LEASE);
    [(); 2].map(|()| {
        let replica = hub.join();
        (Fixture::new(Arc::clone(&replica) as Arc<dyn Store>), replica)
    })
}

fn call_of(user: &str, text: &str, delivery: Delivery) -> Call {
    let mut call = RunCall { delivery, ..run_call("s", text) };
    call.policy = RunPolicy::attached().with_detached(true).with_busy(Busy::Queue);
    call.request.user_id = Some(user.to_owned());
    Call::Run(Box::new(call))
}

/// The state of the run that answers a call. `None`: the call was refused.
fn state_of(answer: Option<Answer>) -> Option<RunState> {
    let Answer::Run(run) = answer? else { panic!("a run answers") };
    Some(run.view(|view| view.info.state))
}

#[tokio::test]
async fn a_listener_reports_a_run_that_another_engine_starts_after_a_turn_here() {
    let both = async {
        let [(here, _), (there, _)] = engines();
        let first = here.working("s").await;
        // The client knows the run under way, so that the listener waits while this engine has the session's turn.
        let (agent, session) = ("demo".to_owned(), "s".to_owned());
        let listened = ListenSession { agent, session, user: None, after: Some(first) };
        let listen = Call::Listen(Listen { session: Some(listened), agents: false });
        let Some(Answer::Notices(mut listener)) = here.answer(listen).await else { panic!("notices") };
        assert!(matches!(listener.next().await, Ok(Notice::Begin)));
        let reported = tokio::task::spawn_local(async move { listener.next().await });
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }

        here.answer(Call::Cancel(Target::Run(first))).await.expect("it is canceled");
        let second = clock::new_id();
        let call = RunCall { id: Some(second), delivery: Delivery::Collect, ..run_call("s", "hello") };
        let queued = RunPolicy::attached().with_busy(Busy::Queue);
        let answered = there.answer(Call::Run(Box::new(RunCall { policy: queued, ..call }))).await;
        assert_eq!(state_of(answered), Some(RunState::Ended(End::Completed)));
        let reported = tokio::time::timeout(SETTLE_TIMEOUT, reported).await.expect("a notice in time");
        assert_eq!(reported.expect("no panic").expect("a notice"), Notice::Run(second));
    };
    LocalSet::new().run_until(both).await;
}

#[tokio::test]
async fn a_listener_reports_a_run_of_another_engine_after_a_run_here_is_canceled_in_the_queue() {
    let both = async {
        let [(here, _), (there, _)] = engines();
        let first = there.working("s").await;
        let (agent, session) = ("demo".to_owned(), "s".to_owned());
        let listened = ListenSession { agent, session, user: None, after: Some(first) };
        let listen = Call::Listen(Listen { session: Some(listened), agents: false });
        let Some(Answer::Notices(mut listener)) = here.answer(listen).await else { panic!("notices") };
        assert!(matches!(listener.next().await, Ok(Notice::Begin)));

        let in_session = |delivery| {
            let id = clock::new_id();
            let policy = RunPolicy::attached().with_detached(true).with_busy(Busy::Queue);
            let call = RunCall { id: Some(id), delivery, policy, ..run_call("s", "hello") };
            (id, Call::Run(Box::new(call)))
        };
        let (canceled, call) = in_session(Delivery::Background);
        here.answer(call).await.expect("it is queued");
        assert_eq!(listener.next().await.expect("a notice"), Notice::Run(canceled));
        here.answer(Call::Cancel(Target::Run(canceled))).await.expect("it is canceled");

        there.answer(Call::Cancel(Target::Run(first))).await.expect("it is canceled");
        let (second, call) = in_session(Delivery::Collect);
        assert_eq!(state_of(there.answer(call).await), Some(RunState::Ended(End::Completed)));
        let reported = tokio::time::timeout(SETTLE_TIMEOUT, listener.next()).await.expect("a notice in time");
        assert_eq!(reported.expect("a notice"), Notice::Run(second));
    };
    LocalSet::new().run_until(both).await;
}

#[tokio::test]
async fn a_queued_turn_never_joins_a_session_that_another_user_began_first() {
    let both = async {
        let [(here, replica), (there, _)] = engines();
        // Both users claim the session before either engine has stored it.
        replica.fault_at(StepSelector::Name("before queue_turn"), Fault::Pause);
        let (engine, scope) = (here.engine.clone(), here.scope.clone());
        let alice = call_of("alice", "hello", Delivery::Collect);
        let alice = tokio::task::spawn_local(async move { engine.answer(alice, &scope).await.ok() });
        replica.stopped().wait_for(Option::is_some).await.expect("it is reached");
        let id = clock::new_id();
        let Call::Run(mut bob) = call_of("bob", "long 100000 20", Delivery::Background) else { panic!("a run") };
        bob.id = Some(id);
        there.answer(Call::Run(bob)).await.expect("it was begun");
        replica.resume();

        // Another request reads the session again while the turn is queued, and gets a session of its own.
        let again = here.answer(call_of("alice", "hello", Delivery::Collect)).await;
        assert_eq!(state_of(again), Some(RunState::Ended(End::Completed)));
        there.answer(Call::Cancel(Target::Run(id))).await.expect("it is canceled");
        let answered = tokio::time::timeout(SETTLE_TIMEOUT, alice).await.expect("an answer in time");
        let state = state_of(answered.expect("no panic"));
        assert!(matches!(state, None | Some(RunState::Ended(End::Failed))), "it joined the other user: {state:?}");
    };
    LocalSet::new().run_until(both).await;
}
