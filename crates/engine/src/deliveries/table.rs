//! Deliveries without a request: what happens in a run, sent to receivers that its owner has named.
//!
//! One task for each receiver and run. Not here: what one task does ([`super::delivery`]), and where receivers may be
//! and how requests are sent ([`interlingua_upstream::push`]).

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

/// How many documents are listed at once.
const PAGE: usize = 256;
/// A replica that drives a run has learned of a signal by then.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(3);
/// A request that names a receiver has started its run by then.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(30);

/// All deliveries under way.
pub(crate) struct Deliveries {
    runs: Arc<RunTable>,
    outbox: Arc<Outbox>,
    undelivered: Arc<Undelivered>,
    tasks: Mutex<Tasks>,
    /// The most deliveries at once. A caller may have half of them.
    limit: usize,
}

/// By the key of the document that names the receiver.
#[derive(Default)]
struct Tasks {
    by_key: HashMap<String, Task>,
    /// Finished tasks are removed once there are so many in all.
    sweep_at: usize,
}

struct Task {
    handle: AbortHandle,
    /// The base key of the owner.
    caller: String,
    /// See [`Delivery`].
    delivered: Arc<AtomicU64>,
    run: Weak<ActiveRun>,
    /// Of the document that names the receiver.
    version: Version,
    start: Start,
}

impl Task {
    /// Number of steps that were sent or given up. Before the delivery begins: of the steps that it will not send.
    fn delivered(&self) -> u64 {
        match self.delivered.load(Ordering::Acquire) {
            NOT_BEGUN => self.start.from,
            steps => steps,
        }
    }
}

/// A document that names a receiver.
pub(crate) struct ReceiverDocument<'a> {
    /// Its key, as its owner knows it.
    pub(crate) key: &'a str,
    pub(crate) value: &'a Json,
    /// As it stands in the store.
    pub(crate) version: Version,
}

/// Why a delivery starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartReason {
    /// The run starts: from its first step on.
    RunStarts,
    /// The run goes on: from the next step on, unless it is being delivered.
    RunContinues,
    /// The process that had it was lost: from the first step on that it has not noted as sent.
    RunRecovered,
    /// A process was lost that had not sent all before the run came to rest: from the first step on that it has not
    /// noted as sent, or this one if it has noted nothing.
    Left(u64),
    /// The receiver was named, perhaps again: from the first step that the delivery before it has not sent.
    ReceiverNamed,
    /// The same, where another replica may have had the delivery before it: from the first step on that it has not
    /// noted as sent.
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

    /// How far each delivery of a run has come that is under way here: the events that its receiver has, or will not
    /// get.
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

    /// How many deliveries are under way that lost processes have left.
    pub(super) fn resumed(&self) -> usize {
        self.lock().by_key.values().filter(|task| task.start.ends_at_rest && !task.handle.is_finished()).count()
    }

    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the receiver that a document names before it is stored. Does nothing for other documents.
    pub(crate) async fn check_receiver(&self, collection: &str, value: &Json, scope: &Scope) -> Result<(), Fault> {
        let Some(notifiers) = notifiers_of(collection, scope) else { return Ok(()) };
        let Some(notifier) = (notifiers.open)(value) else { return Ok(()) };
        if self.lock().are_too_many(scope.owner.base_key(), self.limit) {
            return Err(Fault::new(FaultKind::Overloaded, "too many push deliveries are under way"));
        }

        let checked = self.outbox.client.check_url(notifier.url(), &notifiers.policy).await;
        checked.map_err(|refused| Fault::invalid("url", refused.to_string()))
    }

    /// A receiver was named: from now on its run is delivered, if that is in memory. A run in the store does not
    /// change; its deliveries start when it goes on ([`Deliveries::start`]), unless another replica had not sent all of
    /// it.
    pub(crate) async fn receiver_added(
        self: &Arc<Self>,
        collection: &str,
        document: ReceiverDocument<'_>,
        scope: &Scope,
    ) {
        let Some(notifiers) = notifiers_of(collection, scope) else { return };
        let Some(id) = document.key.split('/').next().and_then(RunId::parse) else { return };
        match self.runs.find(id).await {
            // A document may name any run: what happens in another caller's is not sent.
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
                if is_held {
                    self.notify_holder(id);
                }
                let replaced = self.lock().reason_to_replace(&scope.document_key(document.key));
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

    /// Goes on with what a lost process has left of a run that has come to rest, unless that is under way.
    pub(super) async fn resume_left(&self, run: RunId, left: &Left, rules: &SharedRules) -> Result<(), Fault> {
        let Some(run) = self.runs.find(run).await? else { return Ok(()) };
        // Followed until its delivery follows it: who follows a copy last ends it.
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

    /// Whichever replica sends to a receiver as it was named before stops. True if one has begun.
    async fn supersede(&self, key: &str, scope: &Scope) -> bool {
        let superseded = sole_sender::supersede(&self.outbox.store, &scope.document_key(key)).await;
        let sent = superseded.unwrap_or_else(|error| {
            tracing::warn!(%error, "a push receiver was configured again, but another gateway may still send with the old configuration");
            None
        });
        sent.is_some()
    }

    /// Goes on sending what another replica has not sent to a receiver that was named again. `is_held`: a replica
    /// drives the run, and does it unless the run comes to rest before it learns of the receiver.
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

    /// Another replica drives the run, and sends to its receivers.
    fn notify_holder(&self, run: RunId) {
        // Not waited for: the store delivers it.
        drop(self.outbox.store.signal(run, Signal::ReceiversChanged));
    }

    /// Receivers of a run were named or removed on another replica: starts and ends deliveries.
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

    /// Some protocols name a receiver in the request that starts its run. If that run never starts, because the client
    /// left in between or the agent refused, nothing else would ever delete the document.
    async fn delete_unclaimed(&self, collection: &'static str, run: RunId, key: String, version: Version) {
        tokio::time::sleep(CLAIM_TIMEOUT).await;
        let started = self.runs.get(run).is_some();
        if !started && matches!(self.outbox.store.load_cost(run).await, Ok(None)) {
            // Not waited for. Another version is another request's.
            drop(self.outbox.store.delete(collection, &key, Expect::Version(version)));
        }
    }

    /// A receiver gets nothing more.
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

    /// Ends the delivery to a receiver that is not there any more. `key`: of its document in the store.
    fn end(&self, key: &str, scope: &Scope) {
        let task = self.lock().by_key.remove(key);
        if let Some(task) = task {
            task.handle.abort();
            if let Some(receiver) = key.get(scope.document_key("").len()..) {
                self.undelivered.remove(receiver);
            }
        }
    }

    /// Starts the deliveries to all receivers of a run. Has to be called before the run takes its next step.
    pub(crate) async fn start(&self, run: &Arc<ActiveRun>, reason: StartReason, scope: &Scope) -> Result<(), Fault> {
        let Some(notifiers) = &scope.push else { return Ok(()) };
        let prefix = scope.document_key(&format!("{}/", run.id()));
        for entry in self.receivers(notifiers, &prefix).await? {
            self.start_listed(notifiers, &entry, run, reason, scope);
        }
        Ok(())
    }

    /// The documents that name receivers of a run. A caller may have few.
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

    /// Where a delivery starts. `None`: it does not start.
    fn start_point(&self, key: &str, run: &ActiveRun, reason: StartReason) -> Option<Start> {
        let (visible, is_over) = run.published();
        let start = Start { from: visible, unless_noted: visible, is_known: false, ends_at_rest: false };
        let tasks = self.lock();
        match (reason, tasks.of_next_turn(key)) {
            (StartReason::RunStarts, _) => Some(Start { from: 0, unless_noted: 0, is_known: true, ..start }),
            // Nothing was noted: nothing was sent.
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

    /// True if something has happened that was not delivered yet.
    pub(crate) fn is_lagging(&self) -> bool {
        self.lock().by_key.values().filter(|task| !task.handle.is_finished()).any(|task| {
            let run = task.run.upgrade();
            run.is_some_and(|run| task.delivered() < run.published().0)
        })
    }
}

impl Tasks {
    /// True if no more are accepted, of this caller or at all.
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

    /// The reason to replace the delivery under way, whose receiver was named again while its run is at rest. `None`: no
    /// delivery is under way, or its stored progress has the first step of the next delivery.
    fn reason_to_replace(&self, key: &str) -> Option<StartReason> {
        let task = self.by_key.get(key).filter(|task| !task.handle.is_finished())?;
        match task.start.ends_at_rest {
            true => Some(StartReason::Left(task.start.unless_noted)),
            false if task.delivered.load(Ordering::Acquire) == NOT_BEGUN => Some(StartReason::ReceiverNamed),
            false => None,
        }
    }

    /// The delivery under way that sends the next turn, too.
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
