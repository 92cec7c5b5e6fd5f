//! The retry budget of an agent: a share of its requests, so that retries do not multiply the load on a failing agent.

use std::time::Instant;

use super::window::{SECONDS, Window};

/// The operator's limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetSettings {
    /// Retries per request, from 0 to 1.
    pub share: f64,
    /// Retries per second that are always allowed.
    pub least: u32,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self { share: 0.2, least: 3 }
    }
}

const STARTED: usize = 0;
const RETRIED: usize = 1;

/// The retries of one agent.
#[derive(Debug)]
pub(super) struct RetryBudget {
    settings: BudgetSettings,
    counts: Window,
}

impl RetryBudget {
    pub(super) fn new(now: Instant, settings: BudgetSettings) -> Self {
        Self { settings, counts: Window::new(now) }
    }

    /// Counts a request that is no retry.
    pub(super) fn started(&mut self, now: Instant) {
        self.counts.add(now, STARTED);
    }

    /// Takes one retry from the budget, if there is one left. `running`: the requests under way.
    pub(super) fn withdraw(&mut self, now: Instant, running: u32) -> bool {
        let [started, retried] = self.counts.sums(now);
        let always = f64::from(self.settings.least) * SECONDS as f64;
        let allowed = (self.settings.share * f64::from(started.max(running))).max(always);
        let may = f64::from(retried) + 1.0 <= allowed;
        if may {
            self.counts.add(now, RETRIED);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn three_a_second_are_always_allowed_and_a_fifth_of_many() {
        let began = Instant::now();
        let retries = |started: u32, running: u32| {
            let mut budget = RetryBudget::new(began, BudgetSettings::default());
            (0..started).for_each(|_| budget.started(began));
            (0..10_000).filter(|_| budget.withdraw(began, running)).count()
        };
        assert_eq!(retries(0, 0), 30);
        assert_eq!(retries(150, 0), 30);
        assert_eq!(retries(1_000, 0), 200);
        assert_eq!(retries(10, 1_000), 200, "requests that take long count while they run");

        let none = BudgetSettings { share: 0.0, least: 0 };
        assert!(!RetryBudget::new(began, none).withdraw(began, 1_000));
    }

    #[test]
    fn a_budget_that_was_used_up_is_there_again_later() {
        let began = Instant::now();
        let mut budget = RetryBudget::new(began, BudgetSettings::default());
        while budget.withdraw(began, 0) {}
        assert!(!budget.withdraw(began + Duration::from_secs(9), 0));
        assert!(budget.withdraw(began + Duration::from_secs(10), 0));
    }

    proptest! {
        /// Whatever fails when: within any ten seconds there are no more retries than the budget says.
        #[test]
        fn retries_are_bounded_for_any_schedule(schedule in prop::collection::vec((0_u64..2_000, any::<bool>()), 1..400)) {
            let mut now = Instant::now();
            let mut budget = RetryBudget::new(now, BudgetSettings { share: 0.2, least: 1 });
            let (mut started, mut retried) = (Vec::new(), Vec::new());
            for (pause, retries) in schedule {
                now += Duration::from_millis(pause);
                budget.started(now);
                started.push(now);
                if retries && budget.withdraw(now, 0) {
                    retried.push(now);
                }

                // Buckets are whole seconds, so up to one second more than the window counts.
                let recent = |times: &[Instant], seconds| {
                    times.iter().filter(|time| now.duration_since(**time) < Duration::from_secs(seconds)).count()
                };
                let most = (0.2 * recent(&started, 10) as f64).max(10.0).ceil() as usize;
                prop_assert!(recent(&retried, 9) <= most, "{} of {most}", recent(&retried, 9));
            }
        }
    }
}
