//! One delivery: a task that follows a run like a client does, hands its steps to the protocol's notifier, and sends
//! what that writes, one request after the other. The run never waits for it.
//!
//! Not here: which deliveries there are ([`super::table`]), and what is written (the adapter's notifier).

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use interlingua_core::RunId;
use interlingua_core::push::{PushNotifier, PushNotifiers, PushRequest};
use tokio::time::{Instant, sleep, sleep_until};

use super::gate::{Gate, origin_of};
use super::sole_sender::{RETRY_INTERVAL, SoleSender};
use super::undelivered::Listed;
use crate::runs::{Follower, Take};
use crate::stored_json;
use interlingua_base::clock;
use interlingua_base::ports::WebhookClient;
use interlingua_callers::Callers;
use interlingua_observe::metrics::Metrics;
use interlingua_store::{Expect, Store, StoreError, Version};

/// The maximum number of attempts of one request.
const MAX_TRIES: u32 = 4;
/// The pause after the first failure. Each later one is four times as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A receiver that failed so often in a row is disabled.
const MAX_FAILURES: u32 = 10;
/// The most steps that are taken from a run before their requests are sent.
const MAX_BATCH: usize = 64;

/// The number of delivered steps while that is unknown.
pub(super) const NOT_BEGUN: u64 = u64::MAX;

/// The parts that all deliveries share.
pub(super) struct Outbox {
    pub(crate) store: Arc<dyn Store>,
    pub(super) client: Arc<dyn WebhookClient>,
    pub(super) callers: Arc<Callers>,
    /// Bounds the requests on their way.
    pub(super) gate: Gate,
    pub(super) metrics: Arc<Metrics>,
}

/// A receiver of a run's steps.
pub(super) struct Receiver {
    pub(super) notifiers: Arc<PushNotifiers>,
    pub(super) notifier: Box<dyn PushNotifier>,
    pub(crate) run: RunId,
    /// The key of the document that names it, in the store.
    pub(crate) key: String,
    pub(crate) version: Version,
    /// The base key of the document's owner.
    pub(crate) caller: String,
}

/// Where a delivery begins.
#[derive(Clone, Copy)]
pub(super) struct Start {
    /// The first step to send. Steps before it are only shown to the notifier.
    pub(super) from: u64,
    /// The same, if nothing is noted as sent.
    pub(super) unless_noted: u64,
    /// True if this process knows that all before `from` was sent: its last note may be on its way.
    pub(super) is_known: bool,
    /// True if the run is sent as it stands: its next turn is another delivery's.
    pub(super) ends_at_rest: bool,
}

/// One receiver and one run.
pub(super) struct Delivery {
    outbox: Arc<Outbox>,
    follower: Follower,
    receiver: Receiver,
    /// All steps before this one were sent, or will not be. [`NOT_BEGUN`] before the delivery has the right to send.
    delivered: Arc<AtomicU64>,
    /// Failures in a row.
    failures: u32,
    /// The sequence number of the next step to take.
    next: u64,
    /// Since when the notifier holds something back.
    held_since: Option<Instant>,
    /// The right to send, once it has it.
    sender: Option<SoleSender>,
}

/// The result of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// It arrived, or is not tried again.
    Done,
    /// The receiver has failed too often, or its caller is not a caller any more.
    Refused,
    /// Another replica sends, or the receiver was named again or removed.
    NotOurs,
}

impl Delivery {
    pub(crate) const fn new(
        outbox: Arc<Outbox>,
        follower: Follower,
        receiver: Receiver,
        delivered: Arc<AtomicU64>,
    ) -> Self {
        Self { outbox, follower, receiver, delivered, failures: 0, next: 0, held_since: None, sender: None }
    }

    /// Follows the run to its end. It is on the list of deliveries under way until all is sent or given up.
    pub(crate) async fn run(mut self, start: Start, mut listed: Listed) {
        listed.written().await;
        self.send_all(&start).await;
        // Last: if the process is lost before, another one finds the run in the list and checks it again.
        drop(self);
        listed.remove();
    }

    /// Sends what happens, from where the delivery before it has stopped. Nothing is taken from the run while a request
    /// is on its way: however slow a receiver is, no more than one batch waits here.
    async fn send_all(&mut self, start: &Start) {
        let Some(from) = self.enter(start).await else { return };
        loop {
            let (requests, is_over) = self.take_batch(from).await;
            for request in requests {
                match self.send(request).await {
                    Sent::Done => {}
                    Sent::NotOurs => return,
                    Sent::Refused => {
                        tracing::warn!(
                            run = %self.receiver.run,
                            "a push receiver is disabled: it failed too often, or the gateway no longer accepts its caller"
                        );
                        return self.disable().await;
                    }
                }
            }

            if !self.receiver.notifier.has_held()
                && self.delivered.fetch_max(self.next, Ordering::Release) < self.next
                && let Some(sender) = &mut self.sender
            {
                sender.note(self.next).await;
            }
            if is_over || self.is_left_to_others(from, start.ends_at_rest).await {
                return;
            }
        }
    }

    /// Waits until no other replica sends to the receiver. Returns the first step to send. `None`: another replica
    /// still sends.
    async fn enter(&mut self, start: &Start) -> Option<u64> {
        // A process that was lost, or is slow, may not have sent all that has happened.
        let first = |sent: Option<u64>| match sent {
            _ if start.is_known => start.from,
            Some(sent) => sent.min(start.from),
            None => start.unless_noted,
        };
        let (sender, from) = SoleSender::wait(&self.outbox.store, &self.receiver.key, first).await?;
        self.sender = Some(sender);
        self.delivered.store(from, Ordering::Release);
        Some(from)
    }

    /// True if the run waits, and its next turn may be taken by another replica, which then sends what happens in it;
    /// or if another one sends already.
    async fn is_left_to_others(&mut self, from: u64, ends_at_rest: bool) -> bool {
        let Some(sender) = &mut self.sender else { return false };
        let is_taken = self.next > from || (ends_at_rest && self.next >= from);
        let is_at_pause = is_taken && self.follower.if_paused(|_| ()).is_some();
        let is_others_turn = is_at_pause && (ends_at_rest || self.outbox.store.runs_move());
        (is_others_turn && !self.receiver.notifier.has_held()) || !sender.renew().await
    }

    /// Waits for steps, or until what the notifier holds back is due. Returns the requests to send, and true if there
    /// will be no further step.
    async fn take_batch(&mut self, from: u64) -> (Vec<PushRequest>, bool) {
        let mut requests = Vec::new();
        let due = self.held_since.map(|since| since + self.receiver.notifiers.pause);
        let renewal = self.sender.as_ref().and_then(SoleSender::renewal);
        let more = tokio::select! {
            biased;
            more = Self::take_steps(&mut self.follower, &mut self.receiver, &mut self.next, from, &mut requests) => Some(more),
            () = sleep_until_due([due, renewal].into_iter().flatten().min()) => None,
        };

        let is_due = due.is_some_and(|due| Instant::now() >= due);
        let notifier = &mut self.receiver.notifier;
        if (is_due || more == Some(false)) && notifier.has_held() {
            self.follower.last(|step| notifier.flush(step, &mut requests));
        }
        self.held_since = notifier.has_held().then(|| self.held_since.filter(|_| !is_due).unwrap_or_else(Instant::now));
        (requests, more == Some(false))
    }

    /// Hands steps to the notifier until it has written something. False: there will be no further step.
    async fn take_steps(
        follower: &mut Follower,
        receiver: &mut Receiver,
        next: &mut u64,
        from: u64,
        requests: &mut Vec<PushRequest>,
    ) -> bool {
        let mut taken = 0;
        poll_fn(|context| {
            follower.poll_steps(context, &mut |_, step| {
                if step.sequence < from {
                    receiver.notifier.skip(step);
                } else {
                    receiver.notifier.take(step, requests);
                }
                taken += 1;
                *next = step.sequence + 1;
                if requests.is_empty() && taken < MAX_BATCH { Take::More } else { Take::Enough }
            })
        })
        .await
    }

    /// True unless another replica sends to the receiver by now, or it was named again or removed.
    async fn may_send(&mut self) -> bool {
        match &mut self.sender {
            Some(sender) => sender.may_send().await,
            None => true,
        }
    }

    /// Waits before a request is tried again. False: not by this delivery.
    async fn pause(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            sleep(left.min(RETRY_INTERVAL)).await;
            if !self.may_send().await {
                return false;
            }
            if Instant::now() >= until {
                return true;
            }
        }
    }

    /// Sends one request, several times if necessary.
    async fn send(&mut self, request: PushRequest) -> Sent {
        let url = self.receiver.notifier.url().to_owned();
        let mut pause = FIRST_PAUSE;
        for attempt in 1..=MAX_TRIES {
            self.outbox.callers.usage_of(&self.receiver.caller).wait_for_push().await;
            let entered = self.outbox.gate.enter(&self.receiver.caller, &origin_of(&url)).await;
            if !self.outbox.callers.knows(&self.receiver.caller) {
                return Sent::Refused;
            }
            if !self.may_send().await {
                return Sent::NotOurs;
            }

            let sent = self.outbox.client.post(&url, &self.receiver.notifiers.policy, request.clone()).await;
            drop(entered);
            self.outbox.metrics.pushed(sent.is_ok());

            let Err(error) = sent else {
                self.failures = 0;
                return Sent::Done;
            };
            tracing::info!(run = %self.receiver.run, attempt, reason = %error.reason, "a push request failed");
            self.failures += 1;
            if self.failures >= MAX_FAILURES {
                self.outbox.metrics.push_given_up();
                return Sent::Refused;
            }
            if !error.retryable || attempt == MAX_TRIES {
                self.outbox.metrics.push_given_up();
                return Sent::Done;
            }
            if !self.pause(with_jitter(pause, attempt)).await {
                return Sent::NotOurs;
            }
            pause *= 4;
        }

        Sent::Done
    }

    /// Notes in its document that the receiver is disabled, unless it was named again meanwhile.
    async fn disable(&mut self) {
        if let Some(sender) = &mut self.sender {
            sender.forget().await;
        }
        if let Err(error) = self.write_disabled().await {
            tracing::error!(run = %self.receiver.run, %error, "cannot store that a push receiver is disabled");
        }
    }

    async fn write_disabled(&self) -> Result<(), StoreError> {
        let (store, Receiver { notifiers, key, version, .. }) = (&self.outbox.store, &self.receiver);
        let found = store.get(notifiers.collection, key).await?.filter(|found| found.version == *version);
        let value = found.and_then(|found| stored_json::parse(&found.value));
        let Some(value) = value.and_then(|value| (notifiers.disable)(&value)) else { return Ok(()) };
        let value = stored_json::to_bytes(&value);
        store.put(notifiers.collection, key, value, Expect::Version(*version), clock::now()).await.map(drop)
    }
}

async fn sleep_until_due(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

/// Up to a fifth more, so that receivers that failed together are not tried again together.
fn with_jitter(pause: Duration, salt: u32) -> Duration {
    let random = clock::new_id().0.as_u128() as u32 ^ salt;
    pause + pause.mul_f64(f64::from(random % 200) / 1000.0)
}
