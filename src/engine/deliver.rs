//! Delivery without a request: what happens in a run, sent to places that its owner has named.
//!
//! One task for each place and run: it follows the run like a client, hands the steps to the protocol's notifier, and
//! sends what that writes, one thing after the other. The run never waits for it. Not here: what is written (the
//! adapter's notifier), where it may go and how it is sent ([`crate::upstream::push`]).

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use interlingua_core::public_address::{Policy, Refused};
use interlingua_core::push::{PushNotifier, PushNotifiers, PushRequest};
use interlingua_core::{Fault, FaultKind, Json, RunId};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::gate::{Gate, place_of};
use super::{ActiveRun, Engine, Follower, RunHandle, Scope, Take, clock, resource, store_fault};
use crate::store::{Expect, Version};

/// How often one thing is tried to be delivered.
const TRIES: u32 = 4;
/// The pause after the first failure; each later one is four times as long.
const PAUSE: Duration = Duration::from_secs(1);
/// A place that failed so often in a row is given up.
const MAX_FAILURES: u32 = 10;
/// More than this is not taken from a run before it was delivered.
const BATCH: usize = 64;
/// So many places are told of runs at once, of everybody together and of one owner.
const MAX_DELIVERIES: usize = 20_000;
const MAX_OF_OWNER: usize = 10_000;

/// Sends to places that clients have named.
pub trait WebhookClient: Send + Sync + 'static {
    /// Whether a place may be named: its name resolved, every address judged.
    fn check_url(&self, url: &str, policy: &Policy) -> BoxFuture<'static, Result<(), Refused>>;

    /// Sends one parcel, to an address that was judged in the same breath. Resolves when it has arrived.
    fn post(&self, url: &str, policy: &Policy, parcel: PushRequest) -> BoxFuture<'static, Result<(), Failed>>;
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
pub(super) struct Deliveries {
    running: Mutex<Running>,
    /// How many requests of them are on their way at once.
    gate: Gate,
}

#[derive(Default)]
struct Running {
    tasks: HashMap<String, Task>,
    /// With so many of them, those that are over are thrown out.
    sweep_at: usize,
}

struct Task {
    handle: AbortHandle,
    owner: String,
    told: Arc<AtomicU64>,
    live: Weak<ActiveRun>,
}

impl Deliveries {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether no more are taken: of this owner, or of anybody.
    fn has_too_many(&self, owner: &str) -> bool {
        let mut running = self.lock();
        if running.tasks.len() < MAX_OF_OWNER {
            return false;
        }
        running.tasks.retain(|_, task| !task.handle.is_finished());
        running.tasks.len() >= MAX_DELIVERIES
            || running.tasks.values().filter(|task| task.owner == owner).count() >= MAX_OF_OWNER
    }

    fn put(&self, key: &str, task: Task) {
        let mut running = self.lock();
        if running.tasks.len() >= running.sweep_at {
            running.tasks.retain(|_, task| !task.handle.is_finished());
            running.sweep_at = 2 * running.tasks.len() + 64;
        }
        if let Some(old) = running.tasks.insert(key.to_owned(), task) {
            old.handle.abort();
        }
    }

    fn stop(&self, key: &str) {
        if let Some(task) = self.lock().tasks.remove(key) {
            task.handle.abort();
        }
    }

    /// Whether something has happened that was not told yet.
    pub(super) fn is_lagging(&self) -> bool {
        self.lock().tasks.values().filter(|task| !task.handle.is_finished()).any(|task| {
            let live = task.live.upgrade();
            live.is_some_and(|live| task.told.load(Ordering::Acquire) < live.published().0)
        })
    }

    /// How many steps were told by the delivery that is under way.
    fn told(&self, key: &str) -> Option<u64> {
        let running = self.lock();
        let task = running.tasks.get(key).filter(|task| !task.handle.is_finished());
        task.map(|task| task.told.load(Ordering::Acquire))
    }
}

/// A document that names a place.
pub(super) struct Named<'a> {
    pub(super) key: &'a str,
    pub(super) value: &'a Json,
    pub(super) version: Version,
}

/// A place that was named for a run that is not there.
struct Unclaimed {
    run: RunId,
    /// Its document, as it stands in the store.
    key: String,
    version: Version,
}

/// Why a delivery begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartReason {
    /// The run does: from its first step on.
    Begun,
    /// It goes on: from what comes next, unless it is being delivered already.
    GoesOn,
    /// The place was named, perhaps anew: what the one before it was not told comes first.
    Named,
}

impl Engine {
    /// Judges the place a document names before it is put there. Nothing for documents that name none.
    pub(super) async fn check_receiver(&self, collection: &str, value: &Json, scope: &Scope) -> Result<(), Fault> {
        let Some(notifiers) = of(collection, scope) else { return Ok(()) };
        let Some(notifier) = (notifiers.open)(value) else { return Ok(()) };
        if self.0.deliveries.has_too_many(&resource::owned(scope, "")) {
            return Err(Fault::new(FaultKind::Overloaded, "too many push receivers are being told of runs"));
        }
        let judged = self.0.post.check_url(notifier.url(), &notifiers.policy).await;
        judged.map_err(|refused| Fault::invalid("url", refused.to_string()))
    }

    /// A place was named: from now on it is told of its run, if that is in memory. One in the store stands still; its
    /// places are told when it goes on ([`Engine::start_deliveries`]).
    pub(super) async fn receiver_added(&self, collection: &str, named: Named<'_>, scope: &Scope) {
        let Some(notifiers) = of(collection, scope) else { return };
        let Some(id) = named.key.split('/').next().and_then(RunId::parse) else { return };
        match self.handle(id).await {
            Ok(Some(RunHandle::InMemory(live))) => {
                self.begin_delivery(notifiers, &named, &live, StartReason::Named, scope)
            }
            Ok(None) => {
                let place = Unclaimed { run: id, key: resource::owned(scope, named.key), version: named.version };
                tokio::task::spawn_local(self.clone().claim_or_forget(notifiers.collection, place));
            }
            _ => {}
        }
    }

    /// Some protocols name a place in the request that begins its run. If that never begins, because its client has left
    /// in between or the agent refused, nobody would ever forget the place with it.
    async fn claim_or_forget(self, collection: &'static str, place: Unclaimed) {
        /// A request that names a place begins the run long before.
        const BEGUN_BY_THEN: Duration = Duration::from_secs(30);
        tokio::time::sleep(BEGUN_BY_THEN).await;
        let begun = self.lives().contains_key(&place.run);
        if !begun && matches!(self.store().load_cost(place.run).await, Ok(None)) {
            // Nobody waits for it. Another version is another request's matter.
            drop(self.store().delete(collection, &place.key, Expect::Version(place.version)));
        }
    }

    /// A place is not to be told any more.
    pub(super) fn receiver_removed(&self, collection: &str, key: &str, scope: &Scope) {
        if of(collection, scope).is_some() {
            self.0.deliveries.stop(&resource::owned(scope, key));
        }
    }

    /// Tells the places that were named for a run. `new`: from its first step on; else from what comes next, so it has
    /// to be called before anything does.
    pub(super) async fn start_deliveries(&self, run: &RunHandle, new: bool, scope: &Scope) -> Result<(), Fault> {
        /// What a list gives at most.
        const PAGE: usize = 256;
        let (Some(notifiers), RunHandle::InMemory(live)) = (&scope.push, run) else { return Ok(()) };
        let prefix = resource::owned(scope, &format!("{}/", live.id()));
        let start = resource::owned(scope, "").len();
        let because = if new { StartReason::Begun } else { StartReason::GoesOn };
        let mut after: Option<String> = None;
        loop {
            let found = self.store().list(notifiers.collection, &prefix, after.as_deref(), PAGE).await;
            let found = found.map_err(|error| store_fault(&error))?;
            for entry in &found {
                let (Some(key), Some(value)) = (entry.key.get(start..), resource::read(&entry.document.value)) else {
                    continue;
                };
                let named = Named { key, value: &value, version: entry.document.version };
                self.begin_delivery(notifiers, &named, live, because, scope);
            }
            match found.into_iter().next_back() {
                Some(last) => after = Some(last.key),
                None => return Ok(()),
            }
        }
    }

    fn begin_delivery(
        &self,
        notifiers: &Arc<PushNotifiers>,
        named: &Named<'_>,
        live: &Arc<ActiveRun>,
        because: StartReason,
        scope: &Scope,
    ) {
        let key = resource::owned(scope, named.key);
        let Some(notifier) = (notifiers.open)(named.value) else { return };
        let (shown, over) = live.published();
        let from = match (because, self.0.deliveries.told(&key)) {
            (StartReason::Begun, _) => 0,
            (StartReason::GoesOn, Some(_)) => return,
            (StartReason::Named, Some(told)) => told,
            // A run that has ended tells nothing any more.
            (_, None) if over => return,
            (_, None) => shown,
        };
        let told = Arc::new(AtomicU64::new(from));
        let delivery = Delivery {
            engine: self.clone(),
            notifiers: Arc::clone(notifiers),
            notifier,
            follower: Follower::new(self.clone(), RunHandle::InMemory(Arc::clone(live)), false),
            run: live.id(),
            key: key.clone(),
            version: named.version,
            owner: resource::owned(scope, ""),
            told: Arc::clone(&told),
            failures: 0,
        };
        let owner = delivery.owner.clone();
        let task = tokio::task::spawn_local(delivery.run(from));
        self.0.deliveries.put(&key, Task { handle: task.abort_handle(), owner, told, live: Arc::downgrade(live) });
    }
}

fn of<'a>(collection: &str, scope: &'a Scope) -> Option<&'a Arc<PushNotifiers>> {
    scope.push.as_ref().filter(|notifiers| notifiers.collection == collection)
}

/// One place and one run.
struct Delivery {
    engine: Engine,
    notifiers: Arc<PushNotifiers>,
    notifier: Box<dyn PushNotifier>,
    follower: Follower,
    run: RunId,
    /// The document that names the place, as it stands in the store.
    key: String,
    version: Version,
    /// Whose it is, as keys of the store spell it.
    owner: String,
    /// The steps before this one were told, or given up.
    told: Arc<AtomicU64>,
    failures: u32,
}

impl Delivery {
    /// Follows the run to its end. Steps before `from` were told before the place was named. Nothing is taken from the
    /// record while something is on its way: however slow a receiver is, no more than one batch waits here.
    async fn run(mut self, from: u64) {
        let mut held_since: Option<Instant> = None;
        let mut next = 0;
        loop {
            let mut parcels = Vec::new();
            let notifier = &mut self.notifier;
            let follower = &mut self.follower;
            let pause = held_since.map(|since| since + self.notifiers.pause);
            let mut taken = 0;
            let more = tokio::select! {
                biased;
                more = poll_fn(|context| {
                    follower.poll_steps(context, &mut |_, step| {
                        if step.sequence < from {
                            notifier.skip(step);
                        } else {
                            notifier.take(step, &mut parcels);
                        }
                        taken += 1;
                        next = step.sequence + 1;
                        if parcels.is_empty() && taken < BATCH { Take::More } else { Take::Enough }
                    })
                }) => Some(more),
                () = async { match pause { Some(due) => sleep_until(due).await, None => std::future::pending().await } } => None,
            };
            let due = pause.is_some_and(|due| Instant::now() >= due);
            if (more.is_none() || due || more == Some(false)) && self.notifier.has_held() {
                self.flush(&mut parcels);
            }
            held_since = if self.notifier.has_held() {
                held_since.filter(|_| !due).or_else(|| Some(Instant::now()))
            } else {
                None
            };
            for parcel in parcels {
                if !self.send(parcel).await {
                    tracing::warn!(run = %self.run, "a push receiver failed too often: it is told nothing more");
                    return self.give_up().await;
                }
            }
            if !self.notifier.has_held() {
                self.told.fetch_max(next, Ordering::Release);
            }
            if more == Some(false) {
                return;
            }
        }
    }

    fn flush(&mut self, parcels: &mut Vec<PushRequest>) {
        let notifier = &mut self.notifier;
        self.follower.last(|step| notifier.flush(step, parcels));
    }

    /// Notes in its document that the place is told nothing more, unless it was named anew meanwhile.
    async fn give_up(&self) {
        let (store, collection) = (self.engine.store(), self.notifiers.collection);
        let given_up = async {
            let found = store.get(collection, &self.key).await?.filter(|found| found.version == self.version);
            let value = found.and_then(|found| resource::read(&found.value));
            let Some(value) = value.and_then(|value| (self.notifiers.disable)(&value)) else { return Ok(()) };
            let value = value.text().as_bytes().to_vec().into();
            let put = store.put(collection, &self.key, value, Expect::Version(self.version), clock::now());
            put.await.map(drop)
        };
        let given_up: Result<(), crate::store::StoreError> = given_up.await;
        if let Err(error) = given_up {
            tracing::error!(run = %self.run, %error, "that a push receiver is given up could not be written down");
        }
    }

    /// Sends one thing, several times if it has to be. False: the place is given up.
    async fn send(&mut self, parcel: PushRequest) -> bool {
        let mut pause = PAUSE;
        for tried in 1..=TRIES {
            let entered = self.engine.0.deliveries.gate.enter(&self.owner, &place_of(self.notifier.url())).await;
            let sent = self.engine.0.post.post(self.notifier.url(), &self.notifiers.policy, parcel.clone()).await;
            drop(entered);
            match sent {
                Ok(()) => {
                    self.failures = 0;
                    return true;
                }
                Err(failed) => {
                    tracing::info!(run = %self.run, tried, why = %failed.why, "a push did not arrive");
                    self.failures += 1;
                    if self.failures >= MAX_FAILURES {
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
    let random = clock::fresh().0.as_u128() as u32 ^ salt;
    pause + pause.mul_f64(f64::from(random % 200) / 1000.0)
}
