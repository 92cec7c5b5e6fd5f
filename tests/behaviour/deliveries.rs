//! Deliveries whose lease the store acquires late: they end, and the gateway closes, before they begin.
//!
//! Tests the engine alone, as [`super::abandoned`] does. Not here: notifications of a protocol ([`super::a2a_push`]).

use std::sync::Arc;
use std::time::Duration;

use interlingua::clock;
use interlingua::store::{Coordination as _, Memory, Store, owned_key};
use interlingua_core::call::{DocumentCall, Target};
use interlingua_core::{Call, Delivery, Owner, RunCall, RunId};
use tokio::task::LocalSet;

use super::abandoned::{COLLECTION, Fixture, SETTLE_TIMEOUT, run_call};
use crate::support::store::FaultyStore;

/// An engine whose only run has a receiver, and whose delivery waits for its lease.
struct HeldDelivery {
    memory: Arc<Memory>,
    store: Arc<FaultyStore>,
    fixture: Fixture,
    run: RunId,
}

impl HeldDelivery {
    /// `text`: the message to the agent.
    async fn new(text: &str) -> Self {
        let memory = Arc::new(Memory::new());
        let store = Arc::new(FaultyStore::slow(Arc::clone(&memory) as Arc<dyn Store>));
        let fixture = Fixture::new(Arc::clone(&store) as Arc<dyn Store>);
        let run = clock::new_id();
        fixture.add_receiver(run).await;
        store.hold_lease("push/");
        let call = RunCall { id: Some(run), delivery: Delivery::Background, ..run_call("s", text) };
        fixture.answer(Call::Run(Box::new(call))).await.expect("it was begun");
        store.lease_requested().await;
        Self { memory, store, fixture, run }
    }
}

async fn let_others_proceed() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_delivery_that_is_removed_while_it_acquires_its_lease_leaves_no_lease() {
    let alone = async {
        let HeldDelivery { memory, store, fixture, run } = HeldDelivery::new("long 100000 20").await;
        let key = format!("{run}/1");
        let delete = DocumentCall::Delete { collection: COLLECTION.to_owned(), key: key.clone() };
        fixture.answer(Call::Document(delete)).await.expect("it is deleted");
        // The delivery ends before the store acquires its lease.
        let_others_proceed().await;
        store.release_lease().await;

        let name = format!("push/{}", owned_key(Owner::anonymous().key(), &key));
        let freed = async {
            while !memory.lease(&name, "another", Duration::from_secs(60)).await.expect("the store works") {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SETTLE_TIMEOUT, freed).await.expect("the lease is free");
        fixture.answer(Call::Cancel(Target::Run(run))).await.expect("it is canceled");
    };
    LocalSet::new().run_until(alone).await;
}

#[tokio::test]
async fn a_gateway_that_closes_waits_for_a_delivery_that_has_not_begun() {
    let alone = async {
        let HeldDelivery { store, fixture, .. } = HeldDelivery::new("hello").await;
        let engine = fixture.engine.clone();
        let closing = tokio::task::spawn_local(async move { engine.deliver_rest().await });
        let_others_proceed().await;
        assert!(!closing.is_finished(), "nothing is delivered yet");
        store.release_lease().await;
        tokio::time::timeout(SETTLE_TIMEOUT, closing).await.expect("it is delivered").expect("no panic");
    };
    LocalSet::new().run_until(alone).await;
}
