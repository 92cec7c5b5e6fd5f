//! Deliveries: the steps of a run, sent to receivers that the owner of the run has named. Each receiver of each run has
//! one task.
//!
//! Not here: one task ([`super::delivery`]), the addresses of receivers, and the HTTP client
//! ([`interlingua_upstream::push`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use interlingua_core::push::PushNotifiers;
use interlingua_core::{Fault, FaultKind, Json, RunId};
use tokio::task::AbortHandle;

use super::delivery::{Delivery, NOT_BEGUN, Outbox, Receiver, Start};
use super::gate::Gate;
use super::sole_sender;
use super::undelivered::{Left, Undelivered};
use crate::faults::store_fault;
use crate::runs::{ActiveRun, Follower, RunHandle, RunTable, Scope, SharedRules, follow};
use crate::stored_json;
use interlingua_base::ports::WebhookClient;
use interlingua_callers::Callers;
use interlingua_observe::metrics::Metrics;
use interlingua_store::{DocumentEntry, Expect, Signal, Version};

/// Number of documents in one page of a list.
const PAGE: usize = 256;
/// Time for a signal to reach the replica that drives the run.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for a request that names a receiver to start its run.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(30);

/// The deliveries under way in this process.
pub(crate) struct Deliveries {
    runs: Arc<RunTable>,
    outbox: Arc<Outbox>,
    undelivered: Arc<Undelivered>,
    tasks: Mutex<Tasks>,
    /// Maximum number of deliveries at once. One caller may have half of them.
    limit: usize,
}

#[derive(Default)]
struct Tasks {
    /// By the key in the store of the document that names the receiver.
    by_key: HashMap<String, Task>,
    /// Number of tasks at which finished ones are removed.
    sweep_at: usize,
}

struct Task {
    handle: AbortHandle,
    /// The base key of the owner.
    caller: String,
    /// See [`Delivery`].
    delivered: Arc<AtomicU64>,
    run: Weak<ActiveRun>,
    /// The version of the document that names the receiver.
    version: Version,
    start: Start,
}

impl Task {
    /// Number of steps that were sent or given up. Before the delivery begins: of the steps that it will not send if
    /// no progress is noted in the store. With noted progress, the delivery can begin at an earlier or a later step.
    fn delivered(&self) -> u64 {
        match self.delivered.load(Ordering::Acquire) {
            NOT_BEGUN => self.start.from.min(self.start.unless_noted),
            steps => steps,
        }
    }

    /// True once the delivery has the right to send.
    fn has_begun(&self) -> bool {
        self.delivered.load(Ordering::Acquire) != NOT_BEGUN
    }
}

/// A document that names a receiver.
pub(crate) struct ReceiverDocument<'a> {
    /// Its key without the owner: it begins with the run's id.
    pub(crate) key: &'a str,
    pub(crate) value: &'a Json,
    pub(crate) version: Version,
}

/// The reason why a delivery starts, which decides its first step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartReason {
    /// The run starts: the first step is 0.
    RunStarts,
    /// The run continues: from the next step on, unless a delivery is under way.
    RunContinues,
    /// A lost process had the run: from the first step that is not noted as sent, or from 0 if nothing is noted.
    RunRecovered,
    /// A lost process had not sent all steps of a run at rest: from the first step that is not noted as sent, or from
    /// this one if nothing is noted.
    Left(u64),
    /// The receiver was named, perhaps again: from the first step that the delivery under way has not sent. Without
    /// such a delivery: from the next step on.
    ReceiverNamed,
    /// The receiver was named again, and another replica may have sent to it: from the first step that is not noted as
    /// sent.
    ReceiverNamedAgain,
}

impl Deliveries {
    pub(crate) fn new(
        runs: &Arc<RunTable>,
        client: Arc<dyn WebhookClient>,
        callers: Arc<Callers>,
        limit: usize,
        metrics: Arc<Metrics>,
    ) -> Self {
        let outbox = Outbox { store: Arc::clone(runs.store()), client, callers, gate: Gate::default(), metrics };
        let undelivered = Arc::new(Undelivered::new(runs.store()));
        Self { runs: Arc::clone(runs), outbox: Arc::new(outbox), undelivered, tasks: Mutex::default(), limit }
    }

    /// For each delivery of a run under way here, the number of events that were sent or given up.
    pub(crate) fn of_run(&self, run: RunId) -> Vec<u64> {
        let tasks = self.lock();
        let is_of_run = |task: &&Task| task.run.upgrade().is_some_and(|of| of.id() == run);
        let under_way = tasks.by_key.values().filter(|task| !task.handle.is_finished()).filter(is_of_run);
        under_way.map(Task::delivered).collect()
    }

    /// The list of deliveries under way.
    pub(super) const fn undelivered(&self) -> &Arc<Undelivered> {
        &self.undelivered
    }

    /// Number of deliveries under way that lost processes have left.
    pub(super) fn resumed(&self) -> usize {
        self.lock().by_key.values().filter(|task| task.start.ends_at_rest && !task.handle.is_finished()).count()
    }

    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the receiver that a document names before the document is stored. Accepts all other documents.
    pub(crate) async fn check_receiver(&self, collection: &str, value: &Json, scope: &Scope) -> Result<(), Fault> {
        let Some(notifiers) = notifiers_of(collection, scope) else { return Ok(()) };
        let Some(notifier) = (notifiers.open)(value) else { return Ok(()) };
        if self.lock().are_too_many(scope.owner.base_key(), self.limit) {
            return Err(Fault::new(FaultKind::Overloaded, "too many push deliveries are under way"));
        }

        let checked = self.outbox.client.check_url(notifier.url(), &notifiers.policy).await;
        checked.map_err(|refused| Fault::invalid("url", refused.to_string()))
    }

    /// Starts the delivery to a receiver that was named, if its run is in memory. For any other run, a delivery that
    /// was under way continues with the new configuration, and the replica that drives the run is notified; if the run
    /// is at rest, further deliveries start when it continues ([`Deliveries::start`]). The document is deleted if its
    /// run does not start within [`CLAIM_TIMEOUT`].
    pub(crate) async fn receiver_added(
        self: &Arc<Self>,
        collection: &str,
        document: ReceiverDocument<'_>,
        scope: &Scope,
    ) {
        let Some(notifiers) = notifiers_of(collection, scope) else { return };
        let Some(id) = document.key.split('/').next().and_then(RunId::parse) else { return };
        match self.runs.find(id).await {
            // A document may name any run: the steps of another caller's run are not sent.
            Ok(Some(run)) if run.view(|view| view.info.owner != scope.owner.key()) => {}
            Ok(Some(RunHandle::InMemory(run))) => {
                self.supersede(document.key, scope).await;
                self.start_one(notifiers, &document, &run, StartReason::ReceiverNamed, scope);
            }
            Ok(None) => {
                let (deliveries, collection) = (Arc::clone(self), notifiers.collection);
                let (key, version) = (scope.document_key(document.key), document.version);
                tokio::task::spawn_local(
                    async move { deliveries.delete_unclaimed(collection, id, key, version).await },
                );
            }
            Ok(Some(run)) => {
                let was_sent_to = self.supersede(document.key, scope).await;
                let is_held = run.run_state().is_working();
                let store_key = scope.document_key(document.key);
                let replaced = self.lock().reason_to_replace(&store_key);
                if is_held {
                    // A delivery that has not begun is not in the progress document, so it was not superseded there.
                    if self.lock().waits_to_begin(&store_key) {
                        self.end(&store_key, scope);
                    }
                    self.notify_holder(id);
                }
                if let Some(reason) = replaced.filter(|_| !is_held) {
                    let follower = follow::follow_copy(&self.runs, &run).ok().flatten();
                    if let Some(copy) = follower.as_ref().and_then(Follower::active_run) {
                        self.start_one(notifiers, &document, copy, reason, scope);
                    }
                } else if was_sent_to {
                    let (deliveries, scope) = (Arc::clone(self), scope.clone());
                    let key = document.key.to_owned();
                    tokio::task::spawn_local(async move { deliveries.resume(id, &key, is_held, &scope).await });
                }
            }
            Err(_) => {}
        }
    }

    /// Continues the delivery of a run at rest that a lost process has left, unless a delivery is under way.
    pub(super) async fn resume_left(&self, run: RunId, left: &Left, rules: &SharedRules) -> Result<(), Fault> {
        let Some(run) = self.runs.find(run).await? else { return Ok(()) };
        // Kept until the delivery follows the run: a copy without followers ends.
        let follower = match &run {
            RunHandle::InMemory(_) => Follower::new(&self.runs, run.clone()),
            RunHandle::Stored(..) => match follow::follow_copy(&self.runs, &run)? {
                Some(follower) => follower,
                None => return Ok(()),
            },
        };
        let Some((active, scope)) = follower.active_run().and_then(|active| Some((active, rules.scope_of(active)?)))
        else {
            return Ok(());
        };
        // A turn that has begun since has started its own deliveries.
        let Some(notifiers) = scope.push.as_ref().filter(|_| !run.run_state().is_working()) else { return Ok(()) };

        let store_key = scope.document_key(&left.receiver);
        let found = self.outbox.store.get(notifiers.collection, &store_key).await;
        let Some(found) = found.map_err(|error| store_fault(&error))? else { return Ok(()) };
        let is_under_way = self.lock().is_under_way(&store_key);
        if !is_under_way && let Some(value) = stored_json::parse(&found.value) {
            let document = ReceiverDocument { key: &left.receiver, value: &value, version: found.version };
            self.start_one(notifiers, &document, active, StartReason::Left(left.from), &scope);
        }
        Ok(())
    }

    /// Stops the delivery with the old configuration, on any replica. True if it has begun.
    async fn supersede(&self, key: &str, scope: &Scope) -> bool {
        let superseded = sole_sender::supersede(&self.outbox.store, &scope.document_key(key)).await;
        let sent = superseded.unwrap_or_else(|error| {
            tracing::warn!(%error, "a push receiver was configured again, but another gateway may still send with the old configuration");
            None
        });
        sent.is_some()
    }

    /// Sends the steps that another replica has not sent to a receiver that was named again. `is_held`: a replica
    /// drives the run and sends them itself, unless the run comes to rest before the signal arrives.
    async fn resume(&self, run: RunId, key: &str, is_held: bool, scope: &Scope) {
        if is_held {
            tokio::time::sleep(SIGNAL_TIMEOUT).await;
        }
        if let Err(fault) = self.try_resume(run, key, scope).await {
            tracing::warn!(%run, "cannot send the remaining events of a run to a push receiver that was configured again: {fault}");
        }
    }

    async fn try_resume(&self, run: RunId, key: &str, scope: &Scope) -> Result<(), Fault> {
        let Some(notifiers) = &scope.push else { return Ok(()) };
        let store_key = scope.document_key(key);
        let sent = sole_sender::unclaimed(&self.outbox.store, &store_key).await.map_err(|error| store_fault(&error))?;
        let (Some(sent), Some(run)) = (sent, self.runs.find(run).await?) else { return Ok(()) };
        let is_at_rest = matches!(run, RunHandle::Stored(..)) && !run.run_state().is_working();
        if !is_at_rest || run.view(|view| view.record.len()) <= sent {
            return Ok(());
        }

        let found =
            self.outbox.store.get(notifiers.collection, &store_key).await.map_err(|error| store_fault(&error))?;
        let Some((found, follower)) = found.zip(follow::follow_copy(&self.runs, &run)?) else { return Ok(()) };
        if let (Some(value), Some(copy)) = (stored_json::parse(&found.value), follower.active_run()) {
            let document = ReceiverDocument { key, value: &value, version: found.version };
            self.start_one(notifiers, &document, copy, StartReason::ReceiverNamedAgain, scope);
        }
        Ok(())
    }

    /// Notifies the replica that drives a run of a change to its receivers.
    fn notify_holder(&self, run: RunId) {
        // Not awaited: the store delivers the signal.
        drop(self.outbox.store.signal(run, Signal::ReceiversChanged));
    }

    /// Starts and ends deliveries of a run whose receivers were named or removed on another replica.
    pub(crate) async fn receivers_changed(&self, run: &Arc<ActiveRun>, scope: &Scope) -> Result<(), Fault> {
        let prefix = scope.document_key(&format!("{}/", run.id()));
        let before: Vec<(String, Version)> = {
            let tasks = self.lock();
            let of_run = tasks.by_key.iter().filter(|(key, _)| key.starts_with(&prefix));
            of_run.map(|(key, task)| (key.clone(), task.version)).collect()
        };

        let Some(notifiers) = &scope.push else { return Ok(()) };
        let mut gone: HashMap<String, Version> = before.into_iter().collect();
        for entry in self.receivers(notifiers, &prefix).await? {
            if gone.remove(&entry.key) != Some(entry.document.version) {
                self.start_listed(notifiers, &entry, run, StartReason::ReceiverNamed, scope);
            }
        }

        for key in gone.into_keys() {
            self.end(&key, scope);
        }
        Ok(())
    }

    /// Deletes the document of a receiver whose run does not start in time. Some protocols name a receiver in the
    /// request that starts the run; if the client disconnects or the agent refuses, nothing else deletes the document.
    async fn delete_unclaimed(&self, collection: &'static str, run: RunId, key: String, version: Version) {
        tokio::time::sleep(CLAIM_TIMEOUT).await;
        let started = self.runs.get(run).is_some();
        if !started && matches!(self.outbox.store.load_cost(run).await, Ok(None)) {
            // Not awaited. Another version belongs to another request.
            drop(self.outbox.store.delete(collection, &key, Expect::Version(version)));
        }
    }

    /// Ends the delivery to a receiver that was removed, on every replica.
    pub(crate) fn receiver_removed(&self, collection: &str, key: &str, scope: &Scope) {
        if notifiers_of(collection, scope).is_none() {
            return;
        }
        self.end(&scope.document_key(key), scope);
        drop(self.outbox.store.delete(sole_sender::COLLECTION, &scope.document_key(key), Expect::Any));
        if let Some(run) = key.split('/').next().and_then(RunId::parse)
            && self.runs.get(run).is_none()
        {
            self.notify_holder(run);
        }
    }

    /// Ends the delivery to a receiver in this process. `key`: of its document in the store.
    fn end(&self, key: &str, scope: &Scope) {
        let task = self.lock().by_key.remove(key);
        if let Some(task) = task {
            task.handle.abort();
            if let Some(receiver) = key.get(scope.document_key("").len()..) {
                self.undelivered.remove(receiver);
            }
        }
    }

    /// Starts the deliveries to all receivers of a run. Called before the run takes its next step.
    pub(crate) async fn start(&self, run: &Arc<ActiveRun>, reason: StartReason, scope: &Scope) -> Result<(), Fault> {
        let Some(notifiers) = &scope.push else { return Ok(()) };
        let prefix = scope.document_key(&format!("{}/", run.id()));
        for entry in self.receivers(notifiers, &prefix).await? {
            self.start_listed(notifiers, &entry, run, reason, scope);
        }
        Ok(())
    }

    /// The documents that name receivers of a run.
    async fn receivers(&self, notifiers: &PushNotifiers, prefix: &str) -> Result<Vec<DocumentEntry>, Fault> {
        let mut receivers: Vec<DocumentEntry> = Vec::new();
        loop {
            let after = receivers.last().map(|last| last.key.as_str());
            let found = self.outbox.store.list(notifiers.collection, prefix, after, PAGE).await;
            let found = found.map_err(|error| store_fault(&error))?;
            if found.is_empty() {
                return Ok(receivers);
            }
            receivers.extend(found);
        }
    }

    /// Starts the delivery to the receiver that a listed document names.
    fn start_listed(
        &self,
        notifiers: &Arc<PushNotifiers>,
        entry: &DocumentEntry,
        run: &Arc<ActiveRun>,
        reason: StartReason,
        scope: &Scope,
    ) {
        let owner_len = scope.document_key("").len();
        if let (Some(key), Some(value)) = (entry.key.get(owner_len..), stored_json::parse(&entry.document.value)) {
            let document = ReceiverDocument { key, value: &value, version: entry.document.version };
            self.start_one(notifiers, &document, run, reason, scope);
        }
    }

    fn start_one(
        &self,
        notifiers: &Arc<PushNotifiers>,
        document: &ReceiverDocument<'_>,
        run: &Arc<ActiveRun>,
        reason: StartReason,
        scope: &Scope,
    ) {
        let key = scope.document_key(document.key);
        let Some(notifier) = (notifiers.open)(document.value) else { return };
        let Some(start) = self.start_point(&key, run, reason) else { return };
        let listed = self.undelivered.add(document.key, start.unless_noted);

        let (caller, version) = (scope.owner.base_key().to_owned(), document.version);
        let delivered = Arc::new(AtomicU64::new(NOT_BEGUN));
        let delivery = Delivery::new(
            Arc::clone(&self.outbox),
            Follower::new(&self.runs, RunHandle::InMemory(run.pin())),
            Receiver {
                notifiers: Arc::clone(notifiers),
                notifier,
                run: run.id(),
                key: key.clone(),
                version: document.version,
                caller: caller.clone(),
            },
            Arc::clone(&delivered),
        );
        let handle = tokio::task::spawn_local(delivery.run(start, listed)).abort_handle();
        let task = Task { handle, caller, delivered, run: Arc::downgrade(run), version, start };
        self.lock().insert(&key, task);
    }

    /// The start of a delivery. `None`: it does not start.
    fn start_point(&self, key: &str, run: &ActiveRun, reason: StartReason) -> Option<Start> {
        let (visible, is_over) = run.published();
        let start = Start { from: visible, unless_noted: visible, is_known: false, ends_at_rest: false };
        let tasks = self.lock();
        match (reason, tasks.of_next_turn(key)) {
            (StartReason::RunStarts, _) => Some(Start { from: 0, unless_noted: 0, is_known: true, ..start }),
            // If nothing is noted, nothing was sent.
            (StartReason::RunRecovered, _) => Some(Start { unless_noted: 0, ..start }),
            (StartReason::Left(first), _) => {
                Some(Start { unless_noted: first.min(visible), ends_at_rest: true, ..start })
            }
            (StartReason::ReceiverNamedAgain, _) => Some(start),
            (StartReason::RunContinues, Some(_)) => None,
            (StartReason::ReceiverNamed, Some(task)) => match task.delivered.load(Ordering::Acquire) {
                NOT_BEGUN => Some(task.start),
                sent => Some(Start { from: sent, unless_noted: sent, is_known: true, ..start }),
            },
            // A run that has ended has no further step.
            (_, None) if is_over => None,
            (_, None) => Some(start),
        }
    }

    /// True if a receiver has not got all published steps.
    pub(crate) fn is_lagging(&self) -> bool {
        self.lock().by_key.values().filter(|task| !task.handle.is_finished()).any(|task| {
            let run = task.run.upgrade();
            run.is_some_and(|run| task.delivered() < run.published().0)
        })
    }
}

impl Tasks {
    /// True if no more deliveries are accepted, from this caller or from all callers.
    fn are_too_many(&mut self, caller: &str, limit: usize) -> bool {
        if self.by_key.len() < limit / 2 {
            return false;
        }
        self.by_key.retain(|_, task| !task.handle.is_finished());
        self.by_key.len() >= limit || self.by_key.values().filter(|task| task.caller == caller).count() >= limit / 2
    }

    fn insert(&mut self, key: &str, task: Task) {
        if self.by_key.len() >= self.sweep_at {
            self.by_key.retain(|_, task| !task.handle.is_finished());
            self.sweep_at = 2 * self.by_key.len() + 64;
        }
        if let Some(old) = self.by_key.insert(key.to_owned(), task) {
            old.handle.abort();
        }
    }

    fn is_under_way(&self, key: &str) -> bool {
        self.by_key.get(key).is_some_and(|task| !task.handle.is_finished())
    }

    /// True if a delivery waits for the right to send.
    fn waits_to_begin(&self, key: &str) -> bool {
        self.by_key.get(key).is_some_and(|task| !task.handle.is_finished() && !task.has_begun())
    }

    /// The reason to replace the delivery under way, whose receiver was named again while its run is at rest. `None`:
    /// no delivery is under way, or its stored progress has the first step of the next delivery.
    fn reason_to_replace(&self, key: &str) -> Option<StartReason> {
        let task = self.by_key.get(key).filter(|task| !task.handle.is_finished())?;
        match task.start.ends_at_rest {
            true => Some(StartReason::Left(task.start.unless_noted)),
            false if !task.has_begun() => Some(StartReason::ReceiverNamed),
            false => None,
        }
    }

    /// The delivery under way that also sends the run's next turn.
    fn of_next_turn(&self, key: &str) -> Option<&Task> {
        self.by_key.get(key).filter(|task| !task.handle.is_finished() && !task.start.ends_at_rest)
    }
}

/// True if the documents of a collection name receivers.
pub(crate) fn names_receiver(collection: &str, scope: &Scope) -> bool {
    notifiers_of(collection, scope).is_some()
}

/// The notifiers of the route's protocol, if the collection is theirs.
fn notifiers_of<'a>(collection: &str, scope: &'a Scope) -> Option<&'a Arc<PushNotifiers>> {
    scope.push.as_ref().filter(|notifiers| notifiers.collection == collection)
}
