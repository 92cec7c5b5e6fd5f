//! The current time and new ids. Only the gateway asks for them: core and adapters take both as arguments.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use interlingua_core::RunId;
use interlingua_core::event::Millis;

/// By how many milliseconds the clock of a shared store is ahead of this machine's.
static STORE_AHEAD: AtomicI64 = AtomicI64::new(0);
/// Clocks that differ by less, in milliseconds, agree.
const TOLERANCE: i64 = 1000;

/// Milliseconds since 1970 in UTC. Processes that share a store have its time: else one whose clock is wrong would
/// delete what others keep.
#[must_use]
pub fn now() -> Millis {
    machine().saturating_add_signed(STORE_AHEAD.load(Ordering::Relaxed))
}

/// The same by the clock of this machine, for what is not in the store: credentials end by it.
#[must_use]
pub fn machine() -> Millis {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// Notes the time of a shared store: `store` is what it answered, `sent` and `received` are this machine's times before
/// and after. Returns by how much it is ahead, if that has changed.
pub fn follow_store(store: Millis, sent: Millis, received: Millis) -> Option<i64> {
    let before = STORE_AHEAD.load(Ordering::Relaxed);
    let ahead = store_ahead(before, store, sent, received);
    STORE_AHEAD.store(ahead, Ordering::Relaxed);
    (ahead != before).then_some(ahead)
}

/// `before`, as long as it can be right: an answer that took long says little.
fn store_ahead(before: i64, store: Millis, sent: Millis, received: Millis) -> i64 {
    let ahead_of = |local: Millis| i64::try_from(i128::from(store) - i128::from(local)).unwrap_or(0);
    let (least, most) = (ahead_of(received), ahead_of(sent));
    let can_be = |ahead: i64| (least.saturating_sub(TOLERANCE)..=most.saturating_add(TOLERANCE)).contains(&ahead);
    match [before, 0].into_iter().find(|ahead| can_be(*ahead)) {
        Some(ahead) => ahead,
        None => least.midpoint(most),
    }
}

/// An unused id. Later ids are greater.
#[must_use]
pub fn new_id() -> RunId {
    RunId(uuid::Uuid::now_v7())
}

/// An unused id of a span. Never zero.
#[must_use]
pub fn new_span_id() -> u64 {
    // The half that is counted up and random; its first two bits are fixed.
    uuid::Uuid::now_v7().as_u64_pair().1
}

/// An unused id of a trace, all of it random. Never zero.
#[must_use]
pub fn new_trace_id() -> u128 {
    // Keyed hashes of a counter: no system call for each request.
    static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let [high, low] = [0, 1].map(|half: usize| u128::from(KEYS[half].hash_one(number)));
    ((high << 64) | low).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_time_of_the_store_is_taken_only_if_this_machine_is_surely_wrong() {
        const HOUR: i64 = 3_600_000;
        // The known time, the store's time, and this machine's time before and after; then the expected known time.
        for (before, store, sent, received, expected) in [
            (0, 10_000_000, 10_000_000, 10_000_005, 0),
            (0, 10_000_900, 10_000_000, 10_000_005, 0),
            (0, 13_600_000, 10_000_000, 10_000_000, HOUR),
            (0, 10_000_000, 13_600_000, 13_600_010, -HOUR - 5),
            // Nothing new, and an answer that took long.
            (HOUR, 13_600_500, 10_000_000, 10_000_000, HOUR),
            (HOUR, 13_600_000, 10_000_000, 10_030_000, HOUR),
            (0, 10_020_000, 10_000_000, 10_030_000, 0),
            // The clock of this machine was set right.
            (HOUR, 13_600_010, 13_600_000, 13_600_020, 0),
        ] {
            assert_eq!(store_ahead(before, store, sent, received), expected, "{before} {store} {sent} {received}");
        }
    }

    #[test]
    fn ids_of_traces_differ_in_every_part() {
        let ids: Vec<u128> = (0..1000).map(|_| new_trace_id()).collect();
        for shift in [0, 32, 64, 96] {
            let parts: HashSet<u128> = ids.iter().map(|id| (id >> shift) & 0xffff_ffff).collect();
            assert!(parts.len() > 990, "{} of 1000 differ", parts.len());
        }
    }
}
