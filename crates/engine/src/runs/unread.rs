//! A common memory budget for the events that attached readers have not read.
//!
//! The limit on connections does not bound this memory, because one HTTP/2 connection can read many runs. Not here: the
//! limit of a single run ([`super::waits`]) and encoded responses (`interlingua_server`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The first unread bytes of each run are not counted, so that a run makes progress even if the budget is used up.
pub(super) const FREE_BYTES: usize = 32 << 10;

/// The budget for the unread bytes of all runs, without [`FREE_BYTES`] of each.
#[derive(Debug)]
pub(crate) struct UnreadBudget {
    max: usize,
    used: AtomicUsize,
}

impl UnreadBudget {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicUsize::new(0) })
    }
}

/// The part of the budget that a run uses until its readers catch up or the run is dropped.
#[derive(Debug, Default)]
pub(super) struct UnreadShare(Option<(Arc<UnreadBudget>, usize)>);

impl UnreadShare {
    /// Sets the number of unread bytes. False if that exceeds the budget; the share is unchanged then.
    pub(super) fn count(&mut self, unread: usize, budget: &Arc<UnreadBudget>) -> bool {
        let wanted = unread.saturating_sub(FREE_BYTES);
        let held = self.0.as_ref().map_or(0, |(_, bytes)| *bytes);
        if wanted > held {
            let grown = |used: usize| used.checked_add(wanted - held).filter(|used| *used <= budget.max);
            if budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_err() {
                return false;
            }
        } else if wanted < held {
            budget.used.fetch_sub(held - wanted, Ordering::Relaxed);
        }

        self.0 = (wanted > 0).then(|| (Arc::clone(budget), wanted));
        true
    }

    /// Returns the share to the budget.
    pub(super) fn release(&mut self) {
        if let Some((budget, bytes)) = self.0.take() {
            budget.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for UnreadShare {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_share_a_budget_and_each_keeps_a_little_of_its_own() {
        let budget = UnreadBudget::new(100_000);
        let (mut one, mut other) = (UnreadShare::default(), UnreadShare::default());
        assert!(one.count(FREE_BYTES, &budget) && other.count(FREE_BYTES, &budget));
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);

        assert!(one.count(FREE_BYTES + 60_000, &budget) && one.count(FREE_BYTES + 80_000, &budget));
        assert!(!other.count(FREE_BYTES + 30_000, &budget), "the budget is used up");
        assert!(other.count(FREE_BYTES, &budget) && other.count(FREE_BYTES + 20_000, &budget));
        assert!(one.count(FREE_BYTES + 10_000, &budget), "a reader that catches up gives its part back");
        assert_eq!(budget.used.load(Ordering::Relaxed), 30_000);

        one.release();
        drop(other);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
