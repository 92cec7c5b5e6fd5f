//! Delivery without a request: what happens in a run, sent to places that its owner has named.
//!
//! One task for each place and run: it follows the run like a client, hands the steps to the protocol's courier, and
//! sends what that writes, one thing after the other. The run never waits for it. Not here: what is written (the
//! adapter's courier), where it may go and how it is sent ([`crate::upstream::push`]).

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use interlingua_core::courier::{Courier, Couriers, Parcel};
use interlingua_core::public_address::{Policy, Refused};
use interlingua_core::{Fault, Json, RunId};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::{Engine, Follower, RunHandle, Scope, Take, store_fault};

/// How often one thing is tried to be delivered.
const TRIES: u32 = 4;
/// The pause after the first failure; each later one is four times as long.
const PAUSE: Duration = Duration::from_secs(1);
/// A place that failed so often in a row is given up.
const MOST_FAILURES: u32 = 10;
/// More than this is not taken from a run before it was delivered.
const BATCH: usize = 64;

/// Sends to places that clients have named.
pub trait Post: Send + Sync + 'static {
    /// Whether a place may be named: its name resolved, every address judged.
    fn judge(&self, url: &str, policy: &Policy) -> BoxFuture<'static, Result<(), Refused>>;

    /// Sends one parcel, to an address that was judged in the same breath. Resolves when it has arrived.
    fn post(&self, url: &str, policy: &Policy, parcel: Parcel) -> BoxFuture<'static, Result<(), Failed>>;
}

/// Why a parcel did not arrive.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Whether trying again could help.
    pub again: bool,
    /// For the log.
    pub why: String,
}

/// The deliveries under way, by the key of their document.
#[derive(Default)]
pub(super) struct Deliveries(Mutex<HashMap<String, AbortHandle>>);

impl Deliveries {
    fn put(&self, key: &str, task: AbortHandle) {
        let mut tasks = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        tasks.retain(|_, task| !task.is_finished());
        if let Some(old) = tasks.insert(key.to_owned(), task) {
            old.abort();
        }
    }

    fn stop(&self, key: &str) {
        if let Some(task) = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(key) {
            task.abort();
        }
    }

    fn has(&self, key: &str) -> bool {
        let tasks = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        tasks.get(key).is_some_and(|task| !task.is_finished())
    }
}

impl Engine {
    /// Judges the place a document names before it is put there. Nothing for documents that name none.
    pub(super) async fn judge_place(&self, collection: &str, value: &Json, scope: &Scope) -> Result<(), Fault> {
        let Some(couriers) = of(collection, scope) else { return Ok(()) };
        let Some(courier) = (couriers.open)(value) else { return Ok(()) };
        let judged = self.0.post.judge(courier.url(), &couriers.policy).await;
        judged.map_err(|refused| Fault::invalid("url", refused.to_string()))
    }

    /// A place was named: from now on it is told of its run, if that exists already.
    pub(super) async fn place_named(&self, collection: &str, key: &str, value: &Json, scope: &Scope) {
        let Some(couriers) = of(collection, scope) else { return };
        let Some(id) = key.split('/').next().and_then(RunId::read) else { return };
        if let Ok(Some(run)) = self.handle(id).await {
            self.begin_delivery(couriers, key, value, &run, false, false, scope);
        }
    }

    /// A place is not to be told any more.
    pub(super) fn place_gone(&self, collection: &str, key: &str, scope: &Scope) {
        if of(collection, scope).is_some() {
            self.0.deliveries.stop(&task_key(key, scope));
        }
    }

    /// Tells the places that were named for a run. `new`: from its first step on; else from where it stands.
    pub(super) async fn deliver_run(&self, run: &RunHandle, new: bool, scope: &Scope) -> Result<(), Fault> {
        const MOST: usize = 64;
        let Some(couriers) = &scope.couriers else { return Ok(()) };
        let id = run.view(|view| view.run().id);
        let prefix = super::resource::owned(scope, &format!("{id}/"));
        let found = self.store().list(couriers.collection, &prefix, None, MOST).await;
        let start = super::resource::owned(scope, "").len();
        for entry in found.map_err(|error| store_fault(&error))? {
            let (Some(key), Some(value)) = (entry.key.get(start..), super::resource::read(&entry.document.value))
            else {
                continue;
            };
            self.begin_delivery(couriers, key, &value, run, new, true, scope);
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "each says one thing about the delivery")]
    fn begin_delivery(
        &self,
        couriers: &Arc<Couriers>,
        key: &str,
        value: &Json,
        run: &RunHandle,
        new: bool,
        again: bool,
        scope: &Scope,
    ) {
        let task_key = task_key(key, scope);
        let Some(courier) = (couriers.open)(value) else { return };
        // A run that has ended tells nothing any more; one whose place was known goes on telling it.
        if run.view(|view| view.run().end.is_some()) || (!new && again && self.0.deliveries.has(&task_key)) {
            return;
        }
        let mut follower = Follower::new(self.clone(), run.clone(), false);
        let from = if new { 0 } else { follower.begin(false, |view| view.record.len()) };
        let delivery = Delivery {
            post: Arc::clone(&self.0.post),
            couriers: Arc::clone(couriers),
            courier,
            follower,
            run: run.view(|view| view.run().id),
            failures: 0,
        };
        let task = tokio::task::spawn_local(delivery.run(from));
        self.0.deliveries.put(&task_key, task.abort_handle());
    }
}

fn of<'a>(collection: &str, scope: &'a Scope) -> Option<&'a Arc<Couriers>> {
    scope.couriers.as_ref().filter(|couriers| couriers.collection == collection)
}

fn task_key(key: &str, scope: &Scope) -> String {
    super::resource::owned(scope, key)
}

/// One place and one run.
struct Delivery {
    post: Arc<dyn Post>,
    couriers: Arc<Couriers>,
    courier: Box<dyn Courier>,
    follower: Follower,
    run: RunId,
    failures: u32,
}

impl Delivery {
    /// Follows the run to its end. Steps before `from` were told before the place was named.
    async fn run(mut self, from: u64) {
        let mut held_since: Option<Instant> = None;
        loop {
            let mut parcels = Vec::new();
            let courier = &mut self.courier;
            let follower = &mut self.follower;
            let pause = held_since.map(|since| since + self.couriers.pause);
            let mut taken = 0;
            let more = tokio::select! {
                biased;
                more = poll_fn(|context| {
                    follower.poll_steps(context, &mut |_, step| {
                        if step.sequence < from {
                            courier.pass(step);
                        } else {
                            courier.take(step, &mut parcels);
                        }
                        taken += 1;
                        if parcels.is_empty() && taken < BATCH { Take::More } else { Take::Enough }
                    })
                }) => Some(more),
                () = async { match pause { Some(due) => sleep_until(due).await, None => std::future::pending().await } } => None,
            };
            let due = pause.is_some_and(|due| Instant::now() >= due);
            if (more.is_none() || due || more == Some(false)) && self.courier.is_holding() {
                self.flush(&mut parcels);
            }
            held_since = if self.courier.is_holding() {
                held_since.filter(|_| !due).or_else(|| Some(Instant::now()))
            } else {
                None
            };
            for parcel in parcels {
                if !self.send(parcel).await {
                    tracing::warn!(run = %self.run, "a push receiver failed too often: it is told nothing more");
                    return;
                }
            }
            if more == Some(false) {
                return;
            }
        }
    }

    fn flush(&mut self, parcels: &mut Vec<Parcel>) {
        let courier = &mut self.courier;
        self.follower.last(|step| courier.flush(step, parcels));
    }

    /// Sends one thing, several times if it has to be. False: the place is given up.
    async fn send(&mut self, parcel: Parcel) -> bool {
        let mut pause = PAUSE;
        for tried in 1..=TRIES {
            match self.post.post(self.courier.url(), &self.couriers.policy, parcel.clone()).await {
                Ok(()) => {
                    self.failures = 0;
                    return true;
                }
                Err(failed) => {
                    tracing::info!(run = %self.run, tried, why = %failed.why, "a push did not arrive");
                    self.failures += 1;
                    if self.failures >= MOST_FAILURES {
                        return false;
                    }
                    if !failed.again || tried == TRIES {
                        return true;
                    }
                    tokio::time::sleep(jittered(pause, tried)).await;
                    pause *= 4;
                }
            }
        }
        true
    }
}

/// Up to a fifth more, so that receivers that failed together are not asked again together.
fn jittered(pause: Duration, salt: u32) -> Duration {
    let random = super::clock::fresh().0.as_u128() as u32 ^ salt;
    pause + pause.mul_f64(f64::from(random % 200) / 1000.0)
}
