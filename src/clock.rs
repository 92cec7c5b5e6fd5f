//! The current time and new ids. Only the gateway asks for them: core and adapters take both as arguments.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use interlingua_core::RunId;
use interlingua_core::event::Millis;

/// Milliseconds since 1970 in UTC.
#[must_use]
pub fn now() -> Millis {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
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
    fn ids_of_traces_differ_in_every_part() {
        let ids: Vec<u128> = (0..1000).map(|_| new_trace_id()).collect();
        for shift in [0, 32, 64, 96] {
            let parts: HashSet<u128> = ids.iter().map(|id| (id >> shift) & 0xffff_ffff).collect();
            assert!(parts.len() > 990, "{} of 1000 differ", parts.len());
        }
    }
}
