//! The contract of a store that several processes use, one test per rule. The tests know the store by its methods, and
//! what can happen to a process by [`Fabric`]: they are the same for every shared store. Not here: the rules of a store
//! that has one user (`contract`).

mod around_postgres;
mod fencing;
mod following;
mod holders;
mod turns;

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use interlingua::store::Store;
use interlingua_core::RunId;
use interlingua_core::event::End;

use crate::live::{ActiveRun, RunSpec, id};
use crate::replicas::{Hub, Replica};

/// The shared part of several processes: makes the processes, and has the time.
pub(crate) trait Fabric: Send + Sync {
    /// Time without a connection after which others may fence a process.
    fn lease(&self) -> Duration;
    /// A new process, which is connected.
    fn join(&self) -> BoxFuture<'_, Process>;
    /// Lets time pass on the store's clock.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()>;
}

pub(crate) trait ProcessFaults: Send + Sync {
    /// It stands still: its calls wait, and what it does meanwhile does not reach the store.
    fn pause(&self);
    /// The process continues, and learns of the changes.
    fn resume(&self);
    /// It cannot reach the store.
    fn cut_off(&self);
    /// It can reach the store again.
    fn reconnect(&self);
    /// It dies.
    fn kill(&self);
}

/// One user of a shared store.
pub(crate) struct Process {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) fate: Arc<dyn ProcessFaults>,
}

impl Deref for Process {
    type Target = Arc<dyn Store>;

    fn deref(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

/// Processes around a hub, with a clock of their own.
pub(crate) struct AroundHub(pub(crate) Arc<Hub>);

impl Fabric for AroundHub {
    fn lease(&self) -> Duration {
        self.0.lease()
    }

    fn join(&self) -> BoxFuture<'_, Process> {
        let replica = self.0.join();
        Box::pin(async { Process { store: Arc::clone(&replica) as Arc<dyn Store>, fate: replica } })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.0.advance(time);
        Box::pin(async {})
    }
}

impl ProcessFaults for Replica {
    fn pause(&self) {
        Self::pause(self);
    }

    fn resume(&self) {
        Self::resume(self);
    }

    fn cut_off(&self) {
        Self::cut_off(self);
    }

    fn reconnect(&self) {
        Self::reconnect(self);
    }

    fn kill(&self) {
        Self::kill(self);
    }
}

/// Processes that have just come.
async fn processes<const N: usize>(fabric: &dyn Fabric) -> [Process; N] {
    let mut processes = Vec::new();
    for _ in 0..N {
        processes.push(fabric.join().await);
    }
    processes.try_into().ok().expect("as many as were made")
}

/// Processes that have been connected for longer than a lease: they may fence others.
async fn old_processes<const N: usize>(fabric: &dyn Fabric) -> [Process; N] {
    let processes = processes(fabric).await;
    fabric.pass(fabric.lease()).await;
    processes
}

async fn open_working(store: &Arc<dyn Store>, number: u128) -> Arc<ActiveRun> {
    let at = 1000 + u64::try_from(number).unwrap();
    let run = ActiveRun::new(&RunSpec { id: id(number), at, ..RunSpec::default() });
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.start();
    run.append(&**store, "word ");
    store.settle(&run.journal()).await.unwrap();
    run
}

/// A run that waits, and which no one holds.
async fn open_waiting(store: &Arc<dyn Store>, number: u128) -> Arc<ActiveRun> {
    let run = open_working(store, number).await;
    run.finish_turn();
    store.settle(&run.journal()).await.unwrap();
    run
}

/// A copy of a run as a process has it that has loaded it.
async fn loaded(store: &Arc<dyn Store>, number: u128) -> Arc<ActiveRun> {
    ActiveRun::restore(Arc::unwrap_or_clone(store.load(id(number)).await.unwrap().unwrap()))
}

/// Asks for runs of fenced processes until there are as many.
async fn recover(store: &Arc<dyn Store>, count: usize) -> Vec<RunId> {
    let (started, mut recovered) = (Instant::now(), Vec::new());
    while recovered.len() < count {
        recovered.extend(store.recover().await.unwrap());
        assert!(started.elapsed() < Duration::from_secs(20), "{} of {count} runs", recovered.len());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    recovered
}

/// Ends a run that was handed out.
async fn end_recovered(store: &Arc<dyn Store>, id: RunId) {
    let run = ActiveRun::restore(Arc::unwrap_or_clone(store.load(id).await.unwrap().unwrap()));
    store.open(&run.journal(), run.claim()).await.unwrap();
    run.end(End::Failed);
    store.settle(&run.journal()).await.unwrap();
}

macro_rules! test_shared_contract {
    ($($module:ident: $($test:ident),+;)+) => {
        mod processes_around_a_hub {
            $($(#[tokio::test] async fn $test() {
                let lease = std::time::Duration::from_secs(10);
                super::$module::$test(&super::AroundHub(crate::replicas::Hub::on_file(lease))).await;
            })+)+
        }
        mod processes_around_memory {
            $($(#[tokio::test] async fn $test() {
                let lease = std::time::Duration::from_secs(10);
                super::$module::$test(&super::AroundHub(crate::replicas::Hub::in_memory(lease))).await;
            })+)+
        }
        mod processes_around_postgres {
            $($(#[tokio::test] async fn $test() {
                super::$module::$test(&super::around_postgres::AroundPostgres::new()).await;
            })+)+
        }
    };
}

test_shared_contract! {
    holders:
        one_of_two_that_claim_a_waiting_run_gets_it,
        a_claim_of_another_length_is_refused,
        a_run_that_another_holds_can_be_read_and_nothing_else,
        a_signal_reaches_the_holder_even_if_it_listens_later,
        a_confirmed_write_is_visible_everywhere,
        documents_written_together_are_seen_together;
    fencing:
        every_write_of_a_fenced_process_is_refused,
        a_process_that_was_late_but_not_fenced_loses_nothing,
        who_was_connected_for_less_than_a_lease_fences_nothing,
        runs_of_a_fenced_process_are_handed_out_once,
        a_process_that_is_fenced_lets_its_last_writes_be_seen,
        a_process_that_leaves_leaves_its_runs_at_once,
        what_a_process_did_while_it_was_cut_off_is_written_later;
    following:
        updates_continue_any_part_of_a_run_to_what_is_loaded,
        nothing_follows_a_run_that_is_deleted;
    turns:
        turns_come_in_one_order,
        places_of_fenced_processes_are_skipped,
        a_line_has_a_limit,
        the_next_turn_sees_what_was_written_before,
        a_run_whose_turn_is_queued_is_continued;
}
