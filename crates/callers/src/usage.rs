//! The current usage of a caller, and its limits. Not here: the choice of the limits ([`super::profiles`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use interlingua_core::event::Millis;
use interlingua_core::{Fault, FaultKind, LimitState};

use super::rate::Limiter;
use interlingua_base::clock;
use interlingua_config::{CallerLimits, RequestLimits};

/// When a client should come again that has too much under way.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Time that an unused entry is kept.
const KEPT: Duration = Duration::from_secs(600);
/// Below this many usages no one looks for those that are not in use.
const SWEEP_MIN: usize = 1024;
/// A day, in milliseconds.
const DAY: u64 = 86_400_000;

/// The current usage of one caller. Only counters change: all requests of the caller share it.
#[derive(Debug)]
pub struct Usage {
    limits: ArcSwap<CallerLimits>,
    /// `None`: the caller has no rate.
    requests: ArcSwapOption<Limiter>,
    pushes: ArcSwap<Limiter>,
    under_way: [AtomicUsize; Use::ALL.len()],
    tokens: Mutex<Tokens>,
    /// When it was looked up last.
    used_at: AtomicU64,
}

/// A resource that is counted while a [`Permit`] exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// An answer, until its last byte.
    Stream,
    /// A WebSocket.
    Socket,
    /// A run that is under way.
    Run,
    /// A turn that waits for another one of its session.
    Queued,
}

impl Use {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Stream, Self::Socket, Self::Run, Self::Queued];

    /// The key of the limit in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stream => "streams",
            Self::Socket => "sockets",
            Self::Run => "runs",
            Self::Queued => "queued",
        }
    }

    const fn limit(self, limits: &CallerLimits) -> usize {
        match self {
            Self::Stream => limits.streams,
            Self::Socket => limits.sockets,
            Self::Run => limits.runs,
            Self::Queued => limits.queued,
        }
    }

    /// The resource in the words of an error.
    const fn described(self) -> &'static str {
        match self {
            Self::Stream => "answers are open",
            Self::Socket => "WebSockets are open",
            Self::Run => "runs are under way",
            Self::Queued => "turns are queued",
        }
    }
}

/// The tokens of one day.
#[derive(Debug, Default)]
struct Tokens {
    /// In days since 1970 (UTC).
    day: u64,
    spent: u64,
    /// True once what an earlier process noted was added.
    is_loaded: bool,
}

impl Tokens {
    /// Begins a new day. What earlier processes noted can only be of the day on which this one began.
    fn turn_to(&mut self, day: u64) {
        if self.day != day {
            (self.day, self.spent) = (day, 0);
        }
    }
}

/// Limits of what all callers use together.
fn shared_limits(limits: RequestLimits) -> Arc<CallerLimits> {
    let RequestLimits { rate, burst, runs } = limits;
    let (runs, any) = (runs.unwrap_or(usize::MAX), usize::MAX);
    Arc::new(CallerLimits { rate, burst, runs, streams: any, queued: any, sockets: any, ..CallerLimits::default() })
}

/// Counts one use until it is dropped.
#[derive(Debug)]
pub struct Permit {
    usage: Arc<Usage>,
    what: Use,
}

impl Default for Usage {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Usage {
    /// Nothing is used yet.
    #[must_use]
    pub fn new(limits: Arc<CallerLimits>) -> Self {
        Self {
            requests: ArcSwapOption::new(limits.rate.map(|rate| Arc::new(Limiter::new(rate, limits.burst)))),
            pushes: ArcSwap::from_pointee(Limiter::new(limits.pushes, None)),
            limits: ArcSwap::new(limits),
            under_way: Default::default(),
            tokens: Mutex::default(),
            used_at: AtomicU64::new(0),
        }
    }

    /// The usage of all callers together. A limit that is not configured is unlimited.
    #[must_use]
    pub fn shared(limits: RequestLimits) -> Self {
        Self::new(shared_limits(limits))
    }

    /// [`Self::set_limits`] for what was made by [`Self::shared`].
    pub fn set_shared_limits(&self, limits: RequestLimits) {
        self.set_limits(&shared_limits(limits));
    }

    /// The limits that hold now.
    #[must_use]
    pub fn limits(&self) -> Arc<CallerLimits> {
        self.limits.load_full()
    }

    /// Replaces the limits. Counters and the state of an unchanged rate are kept.
    pub fn set_limits(&self, limits: &Arc<CallerLimits>) {
        if Arc::ptr_eq(&self.limits.load(), limits) {
            return;
        }

        match limits.rate {
            Some(rate) if self.requests.load().as_ref().is_some_and(|limiter| limiter.is(rate, limits.burst)) => {}
            rate => self.requests.store(rate.map(|rate| Arc::new(Limiter::new(rate, limits.burst)))),
        }
        if !self.pushes.load().is(limits.pushes, None) {
            self.pushes.store(Arc::new(Limiter::new(limits.pushes, None)));
        }
        self.limits.store(Arc::clone(limits));
    }

    /// Counts a request. `None`: there is no rate.
    ///
    /// # Errors
    /// [`FaultKind::RateLimited`] with the limit that was reached.
    pub fn admit_request(&self) -> Result<Option<LimitState>, Fault> {
        self.check_rate("requests")
    }

    /// Counts one more of what the rate is for. `None`: there is no rate.
    ///
    /// # Errors
    /// [`FaultKind::RateLimited`] with the limit that was reached.
    pub fn check_rate(&self, name: &'static str) -> Result<Option<LimitState>, Fault> {
        self.requests.load().as_ref().map(|limiter| limiter.check(name)).transpose()
    }

    /// Waits until one more push request may be sent, and counts it.
    pub async fn wait_for_push(&self) {
        let pushes = self.pushes.load_full();
        pushes.wait().await;
    }

    /// Counts a use until the permit is dropped.
    ///
    /// # Errors
    /// [`FaultKind::RateLimited`] with the limit that was reached.
    pub fn begin(self: &Arc<Self>, what: Use) -> Result<Permit, Fault> {
        let limit = what.limit(&self.limits.load());
        let before = self.count(what).fetch_add(1, Ordering::Relaxed);
        let permit = Permit { usage: Arc::clone(self), what };
        if before < limit {
            return Ok(permit);
        }

        drop(permit);
        Err(full(what, limit))
    }

    /// The number of permits for a resource.
    #[must_use]
    pub fn under_way(&self, what: Use) -> usize {
        self.count(what).load(Ordering::Relaxed)
    }

    const fn count(&self, what: Use) -> &AtomicUsize {
        &self.under_way[what as usize]
    }

    fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if what an earlier process noted of the tokens of today is still to be added.
    #[must_use]
    pub fn wants_tokens(&self) -> bool {
        self.limits.load().tokens_per_day.is_some() && !self.tokens().is_loaded
    }

    /// Adds what an earlier process noted of the tokens of a day. Once: later calls have no effect.
    pub fn load_tokens(&self, day: u64, spent: u64) {
        let mut tokens = self.tokens();
        if !std::mem::replace(&mut tokens.is_loaded, true) {
            tokens.turn_to(day);
            tokens.spent = tokens.spent.saturating_add(spent);
        }
    }

    /// Counts tokens of a day. Returns how many it has in all. `None`: no one asked for that.
    pub fn spend_tokens(&self, day: u64, count: u64) -> Option<u64> {
        self.limits.load().tokens_per_day?;
        let mut tokens = self.tokens();
        tokens.turn_to(day);
        tokens.spent = tokens.spent.saturating_add(count);
        Some(tokens.spent)
    }

    /// The tokens used on a day.
    #[must_use]
    pub fn spent_tokens(&self, day: u64) -> u64 {
        let mut tokens = self.tokens();
        tokens.turn_to(day);
        tokens.spent
    }

    /// Whether tokens are left at this time.
    ///
    /// # Errors
    /// [`FaultKind::RateLimited`] until the day (UTC) is over.
    pub fn check_tokens(&self, now: Millis) -> Result<(), Fault> {
        let Some(quota) = self.limits.load().tokens_per_day else { return Ok(()) };
        if self.spent_tokens(day_of(now)) < quota {
            return Ok(());
        }

        let reset = Duration::from_millis(DAY - now % DAY);
        let message = format!("too many tokens today: the limit is {quota}");
        let mut fault = Fault::new(FaultKind::RateLimited, message);
        fault.retry_after = Some(reset);
        let window = Duration::from_millis(DAY);
        fault.limit = Some(Box::new(LimitState { name: "tokens", quota, window, remaining: 0, reset }));
        Err(fault)
    }
}

/// The day of a time, counted from 1970 (UTC).
#[must_use]
pub const fn day_of(now: Millis) -> u64 {
    now / DAY
}

fn full(what: Use, limit: usize) -> Fault {
    let message = format!("too many {}: the limit is {limit}", what.described());
    let mut fault = Fault::new(FaultKind::RateLimited, message);
    fault.retry_after = Some(RETRY_AFTER);
    let (quota, window) = (limit as u64, Duration::ZERO);
    fault.limit = Some(Box::new(LimitState { name: what.name(), quota, window, remaining: 0, reset: RETRY_AFTER }));
    fault
}

impl Permit {
    /// Counts as another use from now on, whatever the limit of that is.
    pub fn change_to(&mut self, what: Use) {
        self.usage.count(what).fetch_add(1, Ordering::Relaxed);
        self.usage.count(self.what).fetch_sub(1, Ordering::Relaxed);
        self.what = what;
    }

    /// Counts the permit as another use from now on.
    ///
    /// # Errors
    /// [`FaultKind::RateLimited`] with the exceeded limit. The permit then counts as before.
    pub fn try_change_to(&mut self, what: Use) -> Result<(), Fault> {
        if self.what != what {
            // The old permit is dropped with the value it is replaced by.
            *self = self.usage.begin(what)?;
        }
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.usage.count(self.what).fetch_sub(1, Ordering::Relaxed);
    }
}

/// The usage of all callers, by the [base key](interlingua_core::Owner::base_key) of their owner.
#[derive(Debug, Default)]
pub struct UsageTable {
    known: Mutex<HashMap<Arc<str>, Arc<Usage>>>,
}

impl UsageTable {
    /// The usage of a caller. Its limits are replaced by these.
    #[must_use]
    pub fn for_caller(&self, base_key: &str, limits: &Arc<CallerLimits>) -> Arc<Usage> {
        let now = clock::now();
        let mut known = self.lock();
        let usage = match known.get(base_key) {
            Some(usage) => Arc::clone(usage),
            None => {
                if known.len() >= SWEEP_MIN && known.len().is_power_of_two() {
                    known.retain(|_, usage| is_in_use(usage, now));
                }
                let usage = Arc::new(Usage::new(Arc::clone(limits)));
                known.insert(base_key.into(), Arc::clone(&usage));
                usage
            }
        };
        drop(known);

        usage.set_limits(limits);
        usage.used_at.store(now, Ordering::Relaxed);
        usage
    }

    /// The usage of a caller that came before. `None`: it has nothing under way.
    #[must_use]
    pub fn get(&self, base_key: &str) -> Option<Arc<Usage>> {
        self.lock().get(base_key).cloned()
    }

    /// All callers that have used something not long ago.
    #[must_use]
    pub fn all(&self) -> Vec<(Arc<str>, Arc<Usage>)> {
        self.lock().iter().map(|(key, usage)| (Arc::clone(key), Arc::clone(usage))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Usage>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if someone holds it, or may soon come again: a rate that was used up must not be forgotten.
fn is_in_use(usage: &Arc<Usage>, now: Millis) -> bool {
    let idle = now.saturating_sub(usage.used_at.load(Ordering::Relaxed));
    Arc::strong_count(usage) > 1 || Duration::from_millis(idle) < KEPT
}

#[cfg(test)]
mod tests {
    use interlingua_base::rate::Rate;

    use super::*;

    fn limits() -> CallerLimits {
        CallerLimits { runs: 2, queued: 1, tokens_per_day: Some(100), ..CallerLimits::default() }
    }

    #[test]
    fn a_permit_counts_until_it_is_dropped() {
        let usage = Arc::new(Usage::new(Arc::new(limits())));
        let mut first = usage.begin(Use::Run).expect("the first");
        let _second = usage.begin(Use::Run).expect("the second");
        let refused = usage.begin(Use::Run).expect_err("the third");
        assert_eq!((refused.kind, refused.retry_after), (FaultKind::RateLimited, Some(RETRY_AFTER)));
        assert_eq!(refused.limit.map(|limit| (limit.name, limit.quota)), Some(("runs", 2)));

        first.try_change_to(Use::Queued).expect("the queue has room");
        let mut third = usage.begin(Use::Run).expect("the queued one does not count");
        third.try_change_to(Use::Queued).expect_err("the queue is full");
        first.change_to(Use::Run);
        assert_eq!((usage.under_way(Use::Run), usage.under_way(Use::Queued)), (3, 0), "its turn has come");
        drop((first, third));
        assert_eq!(usage.under_way(Use::Run), 1);
    }

    #[test]
    fn tokens_are_counted_by_the_day() {
        let usage = Usage::new(Arc::new(limits()));
        let noon = 20_000 * DAY + DAY / 2;
        assert!(usage.wants_tokens());
        usage.load_tokens(20_000, 60);
        usage.load_tokens(20_000, 60);
        assert_eq!(usage.spend_tokens(20_000, 39), Some(99));
        usage.check_tokens(noon).expect("one is left");
        assert_eq!(usage.spend_tokens(20_000, 500), Some(599), "a run may report more than is left");
        let refused = usage.check_tokens(noon).expect_err("none is left");
        assert_eq!(refused.retry_after, Some(Duration::from_millis(DAY / 2)));
        assert_eq!(refused.limit.map(|limit| limit.name), Some("tokens"));
        usage.check_tokens(noon + DAY).expect("a new day");
        assert!(!usage.wants_tokens(), "no earlier process has noted anything of it");
    }

    #[test]
    fn new_limits_apply_at_once_and_keep_the_counters() {
        let limits = |rate: &str, runs| {
            Arc::new(CallerLimits { rate: Some(Rate::parse(rate).expect("a rate")), runs, ..CallerLimits::default() })
        };
        let table = UsageTable::default();
        let usage = table.for_caller("key::ann", &limits("1/h", 5));
        usage.admit_request().expect("the first");
        let _run = usage.begin(Use::Run).expect("a run");

        let usage = table.for_caller("key::ann", &limits("1/h", 1));
        usage.admit_request().expect_err("the same rate goes on");
        usage.begin(Use::Run).expect_err("one is under way");
        let usage = table.for_caller("key::ann", &limits("100/h", 1));
        usage.admit_request().expect("another rate");
        assert!(table.for_caller("key::bob", &limits("1/h", 1)).begin(Use::Run).is_ok(), "others count for themselves");
    }

    #[test]
    fn unused_usages_are_dropped() {
        let (table, limits) = (UsageTable::default(), Arc::default());
        let held = table.for_caller("held", &limits);
        for number in 0..2 * SWEEP_MIN {
            table.for_caller(&number.to_string(), &limits).used_at.store(0, Ordering::Relaxed);
        }
        held.used_at.store(0, Ordering::Relaxed);
        assert!(table.all().len() <= SWEEP_MIN + 2, "{}", table.all().len());
        assert!(table.get("held").is_some_and(|usage| Arc::ptr_eq(&usage, &held)));
    }
}
