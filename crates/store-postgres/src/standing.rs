//! The state of this replica among the others, as all threads see it. Not here: joining them ([`super::begin`]) and
//! renewing the lease ([`super::writer`]).

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use interlingua_store::local::lock;
use interlingua_store::{LeaseState, ReplicaStatus};

/// The state of the lease, and figures for operators. The writer sets them once per flush.
#[derive(Default)]
pub(super) struct LeaseTracker {
    lease: Mutex<Lease>,
    /// Runs that this replica holds.
    held: AtomicUsize,
    /// The number of runs that other replicas follow.
    followed: AtomicUsize,
    /// Replicas that were seen within a lease.
    replicas: AtomicUsize,
}

#[derive(Clone, Copy, Default)]
enum Lease {
    #[default]
    Joining,
    Renewed {
        at: Instant,
        /// Since when it was renewed in time each time, without an outage in between.
        steady_since: Instant,
    },
    Lost(Instant),
}

/// A lease is renewed four times in its term, if nothing is in the way.
fn is_late(at: Instant, now: Instant, term: Duration) -> bool {
    now.saturating_duration_since(at) > term * 3 / 4
}

impl LeaseTracker {
    /// True once the database was reached and this process has joined, whatever came afterwards.
    pub(super) fn has_joined(&self) -> bool {
        !matches!(*lock(&self.lease), Lease::Joining)
    }

    /// The lease was given or renewed at this time. `term`: how long it lasts.
    pub(super) fn renewed(&self, at: Instant, term: Duration, held: usize, followed: usize) {
        let mut lease = lock(&self.lease);
        let steady_since = match *lease {
            Lease::Renewed { at: before, steady_since } if !is_late(before, at, term) => steady_since,
            _ => at,
        };
        *lease = Lease::Renewed { at, steady_since };
        drop(lease);
        self.held.store(held, Ordering::Relaxed);
        self.followed.store(followed, Ordering::Relaxed);
    }

    /// The database can be written again after such an outage. `term`: how long a lease lasts. A shorter one than a
    /// quarter of that made no other replica late.
    pub(super) fn had_outage(&self, outage: Duration, term: Duration) {
        if outage >= term / 4
            && let Lease::Renewed { steady_since, .. } = &mut *lock(&self.lease)
        {
            *steady_since = Instant::now();
        }
    }

    /// True if this replica could renew its lease in time for as long as one lasts. Only then it may say of others that
    /// they are gone: after an outage of the database all of them are late, and the first one back would take over from
    /// the rest. While it waits for a renewal itself, the others may wait for the same.
    pub(super) fn is_steady(&self, term: Duration) -> bool {
        matches!(*lock(&self.lease), Lease::Renewed { at, steady_since }
            if at.elapsed() <= term / 2 && steady_since.elapsed() >= term)
    }

    /// The lease was lost, with all runs.
    pub(super) fn lost(&self) {
        let mut lease = lock(&self.lease);
        if let Lease::Renewed { at, .. } = *lease {
            *lease = Lease::Lost(at);
        }
        self.held.store(0, Ordering::Relaxed);
        self.followed.store(0, Ordering::Relaxed);
    }

    /// So many replicas were seen within a lease.
    pub(super) fn saw(&self, replicas: usize) {
        self.replicas.store(replicas, Ordering::Relaxed);
    }

    /// The status, without what others count. `term`: how long a lease lasts.
    pub(super) fn status(&self, term: Duration) -> ReplicaStatus {
        let (lease, at) = match *lock(&self.lease) {
            Lease::Joining => (LeaseState::Joining, None),
            Lease::Renewed { at, .. } if is_late(at, Instant::now(), term) => (LeaseState::Late, Some(at)),
            Lease::Renewed { at, .. } => (LeaseState::Held, Some(at)),
            Lease::Lost(at) => (LeaseState::Lost, Some(at)),
        };
        ReplicaStatus {
            lease,
            since_renewal: at.map(|at| at.elapsed()),
            replicas: self.replicas.load(Ordering::Relaxed),
            held: self.held.load(Ordering::Relaxed),
            followed: self.followed.load(Ordering::Relaxed),
            ..ReplicaStatus::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_outage_a_replica_is_steady_once_it_has_renewed_for_a_whole_term() {
        let (standing, term) = (LeaseTracker::default(), Duration::from_secs(10));
        let now = Instant::now();
        let renew = |ago: u64| {
            standing.renewed(now.checked_sub(Duration::from_secs(ago)).expect("a time"), term, 0, 0);
        };
        assert!(!standing.is_steady(term) && !standing.has_joined());
        (12..=30).rev().step_by(3).for_each(renew);
        renew(9);
        renew(6);
        renew(3);
        assert!(standing.is_steady(term), "renewed every 3 s for 27 s");
        standing.had_outage(Duration::from_secs(2), term);
        assert!(standing.is_steady(term), "others have renewed at most 5 s ago");
        standing.had_outage(Duration::from_secs(3), term);
        assert!(!standing.is_steady(term), "others may need longer to come back");
        renew(0);
        assert!(!standing.is_steady(term), "it has been back for less than a term");

        let outage = LeaseTracker::default();
        for ago in [60, 57, 54, 9, 6, 3] {
            outage.renewed(now.checked_sub(Duration::from_secs(ago)).expect("a time"), term, 0, 0);
        }
        assert!(!outage.is_steady(term), "45 s of silence ended 9 s ago");
        assert_eq!(outage.status(term).lease, LeaseState::Held);
        outage.lost();
        assert_eq!(outage.status(term).lease, LeaseState::Lost);
        assert!(!outage.is_steady(term));
    }
}
