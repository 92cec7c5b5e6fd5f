//! Counts of the last ten seconds, in buckets of one second.

use std::time::Instant;

/// The length of the window, in seconds.
pub(super) const SECONDS: usize = 10;

/// Pairs of counters over the last [`SECONDS`].
#[derive(Clone, Debug)]
pub(super) struct Window {
    buckets: [[u32; 2]; SECONDS],
    since: Instant,
    /// The second of the latest bucket, counted from `since`.
    second: u64,
}

impl Window {
    pub(super) fn new(now: Instant) -> Self {
        Self { buckets: [[0; 2]; SECONDS], since: now, second: 0 }
    }

    pub(super) fn add(&mut self, now: Instant, counter: usize) {
        self.roll(now);
        let count = &mut self.buckets[bucket(self.second)][counter];
        *count = count.saturating_add(1);
    }

    /// The sums of both counters.
    pub(super) fn sums(&mut self, now: Instant) -> [u32; 2] {
        self.roll(now);
        self.buckets
            .iter()
            .fold([0, 0], |sums, bucket| [sums[0].saturating_add(bucket[0]), sums[1].saturating_add(bucket[1])])
    }

    /// Empties the buckets of the seconds that have passed.
    fn roll(&mut self, now: Instant) {
        let second = now.saturating_duration_since(self.since).as_secs();
        let first = (self.second + 1).max(second.saturating_sub(SECONDS as u64 - 1));
        for passed in first..=second {
            self.buckets[bucket(passed)] = [0; 2];
        }
        self.second = self.second.max(second);
    }
}

fn bucket(second: u64) -> usize {
    usize::try_from(second % SECONDS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn results_older_than_ten_seconds_are_ignored() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let mut window = Window::new(began);
        for second in 0..20 {
            window.add(at(second), 0);
        }
        window.add(at(19), 1);
        assert_eq!(window.sums(at(19)), [10, 1]);
        assert_eq!(window.sums(at(24)), [5, 1]);
        assert_eq!(window.sums(at(29)), [0, 0]);
        assert_eq!(window.sums(at(1_000_000)), [0, 0]);
        // A clock that goes back counts as now.
        window.add(at(3), 0);
        assert_eq!(window.sums(at(1_000_000)), [1, 0]);
    }
}
