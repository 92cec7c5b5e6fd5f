//! One endpoint's health: ejected after failures, tried again after a pause, checked actively where that is configured.
//!
//! Time is an argument. Not here: how many endpoints of a pool may be ejected ([`super::state`]).

use std::fmt;
use std::time::{Duration, Instant};

use super::window::Window;

/// The share of failures counts from this many results on.
const MIN_RESULTS: u32 = 20;

/// When an endpoint is ejected, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EjectSettings {
    /// After this many failures in a row.
    pub failures: u32,
    /// Or if this share of the results of ten seconds are failures, from 0 to 1.
    pub share: f64,
    /// Duration of the first ejection. Each further ejection is this much longer.
    pub pause: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// At most this share of a pool is ejected, from 0 to 1.
    pub most: f64,
}

impl Default for EjectSettings {
    fn default() -> Self {
        Self { failures: 5, share: 0.5, pause: Duration::from_secs(30), longest: Duration::from_secs(300), most: 0.5 }
    }
}

/// Numbers of active checks that change the state of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckThresholds {
    /// Successes in a row that make it healthy.
    pub healthy: u32,
    /// Failures in a row that make it unhealthy.
    pub unhealthy: u32,
}

/// The state of an endpoint when a run chose it. A result is used only if the endpoint was not ejected, and did not
/// return, since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    epoch: u32,
    /// True if the run decides whether an ejected endpoint returns.
    is_trial: bool,
}

/// The result of a run for its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It works: also if it refuses a request, or reports a failure itself.
    Good,
    /// It does not work.
    Failed(Reason),
    /// Nothing: the run was canceled, or failed for another reason.
    Neutral,
}

/// The kind of an endpoint's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No connection was made.
    NoConnection,
    /// It answered 502, 503 or 504.
    Status(u16),
    /// It did not begin to answer in time.
    FirstByte,
    /// Its answer broke off, or could not be read.
    Broken,
    /// An active check failed.
    Check,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnection => f.write_str("no connection"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::FirstByte => f.write_str("no answer in time"),
            Self::Broken => f.write_str("broken answer"),
            Self::Check => f.write_str("failed check"),
        }
    }
}

/// Whether an endpoint may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    In,
    /// It was ejected, the pause is over, and the next run tries it.
    TrialDue,
    Out,
}

/// A change of an endpoint's health, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Ejected { pause: Duration, times: u32, reason: Reason },
    Returned,
    Unhealthy,
    Healthy,
}

#[derive(Clone, Copy, Debug)]
enum Passive {
    In,
    Out {
        until: Instant,
    },
    /// A run tries it.
    Trial,
}

/// The results of active checks.
#[derive(Clone, Copy, Debug)]
struct Active {
    is_healthy: bool,
    /// Checks in a row that say otherwise.
    row: u32,
    /// A check succeeded after the pause of an ejection, and none failed since.
    is_proven: bool,
}

/// One endpoint's health.
#[derive(Debug)]
pub(super) struct EndpointHealth {
    passive: Passive,
    /// Failures in a row.
    row: u32,
    results: Window,
    /// The number of recent ejections.
    times: u32,
    /// Since when it has not been ejected.
    calm_since: Instant,
    epoch: u32,
    active: Option<Active>,
    /// The last failure.
    reason: Option<Reason>,
}

const GOOD: usize = 0;
const FAILED: usize = 1;

impl EndpointHealth {
    /// `is_checked`: whether there are active checks. An endpoint is healthy until they say otherwise.
    pub(super) fn new(now: Instant, is_checked: bool) -> Self {
        Self {
            passive: Passive::In,
            row: 0,
            results: Window::new(now),
            times: 0,
            calm_since: now,
            epoch: 0,
            active: is_checked.then_some(Active { is_healthy: true, row: 0, is_proven: false }),
            reason: None,
        }
    }

    pub(super) fn standing(&self, now: Instant) -> Availability {
        if self.active.is_some_and(|active| !active.is_healthy) {
            return Availability::Out;
        }
        match self.passive {
            Passive::In => Availability::In,
            // No client's run is spent on an endpoint that fails its checks.
            Passive::Out { until } if now >= until && self.active.is_none_or(|active| active.is_proven) => {
                Availability::TrialDue
            }
            Passive::Out { .. } | Passive::Trial => Availability::Out,
        }
    }

    pub(super) const fn is_ejected(&self) -> bool {
        !matches!(self.passive, Passive::In)
    }

    /// The last failure, if the endpoint is out.
    pub(super) fn reason(&self, now: Instant) -> Option<Reason> {
        match self.standing(now) {
            Availability::In => None,
            _ if self.active.is_some_and(|active| !active.is_healthy) => Some(Reason::Check),
            _ => self.reason,
        }
    }

    /// Time until the endpoint may be tried again. `None`: unknown.
    pub(super) fn returns_in(&self, now: Instant) -> Option<Duration> {
        match self.passive {
            Passive::Out { until } => Some(until.saturating_duration_since(now)),
            _ => None,
        }
    }

    /// The ticket of a run that is sent there now.
    pub(super) fn begin(&mut self, now: Instant) -> Ticket {
        let is_trial = self.standing(now) == Availability::TrialDue;
        if is_trial {
            self.passive = Passive::Trial;
        }
        Ticket { epoch: self.epoch, is_trial }
    }

    /// A run has begun to be answered: a trial has succeeded.
    pub(super) fn began(&mut self, now: Instant, ticket: Ticket) -> Option<Change> {
        let is_decided = ticket.is_trial && ticket.epoch == self.epoch;
        is_decided.then(|| self.put_back(now))
    }

    /// Records the result of a run.
    pub(super) fn record(
        &mut self,
        now: Instant,
        outcome: Outcome,
        ticket: Ticket,
        may_eject: bool,
        settings: &EjectSettings,
    ) -> Option<Change> {
        if ticket.epoch != self.epoch {
            return None;
        }
        if let Outcome::Failed(reason) = outcome {
            self.reason = Some(reason);
        }

        match (self.passive, outcome) {
            (Passive::Trial, Outcome::Good) if ticket.is_trial => Some(self.put_back(now)),
            (Passive::Trial, Outcome::Failed(reason)) if ticket.is_trial => Some(self.eject(now, reason, settings)),
            (Passive::Trial, Outcome::Neutral) if ticket.is_trial => {
                // It shows nothing: the next run tries again.
                self.passive = Passive::Out { until: now };
                None
            }
            (Passive::In, Outcome::Good) => {
                self.row = 0;
                self.results.add(now, GOOD);
                None
            }
            (Passive::In, Outcome::Failed(reason)) => {
                self.row = self.row.saturating_add(1);
                self.results.add(now, FAILED);
                let fails = self.row >= settings.failures || self.fails_often(now, settings.share);
                (fails && may_eject).then(|| self.eject(now, reason, settings))
            }
            _ => None,
        }
    }

    fn fails_often(&mut self, now: Instant, share: f64) -> bool {
        let [good, failed] = self.results.sums(now);
        let all = good.saturating_add(failed);
        all >= MIN_RESULTS && f64::from(failed) >= share * f64::from(all)
    }

    fn eject(&mut self, now: Instant, reason: Reason, settings: &EjectSettings) -> Change {
        // Each pause without an ejection makes up for one.
        let calm = now.saturating_duration_since(self.calm_since).as_millis() / settings.pause.as_millis().max(1);
        let made_up = if self.is_ejected() { 0 } else { u32::try_from(calm).unwrap_or(u32::MAX) };
        self.times = self.times.saturating_sub(made_up).saturating_add(1);
        let pause = settings.pause.saturating_mul(self.times).min(settings.longest);

        self.passive = Passive::Out { until: now + pause };
        self.epoch = self.epoch.wrapping_add(1);
        if let Some(active) = &mut self.active {
            active.is_proven = false;
        }
        Change::Ejected { pause, times: self.times, reason }
    }

    fn put_back(&mut self, now: Instant) -> Change {
        self.passive = Passive::In;
        self.epoch = self.epoch.wrapping_add(1);
        self.row = 0;
        self.results = Window::new(now);
        self.calm_since = now;
        Change::Returned
    }

    /// An active check succeeded or failed.
    pub(super) fn checked(&mut self, now: Instant, is_good: bool, thresholds: &CheckThresholds) -> Option<Change> {
        let is_over = matches!(self.passive, Passive::Out { until } if now >= until);
        let active = self.active.as_mut()?;
        active.is_proven = is_good && (is_over || active.is_proven);
        if is_good == active.is_healthy {
            active.row = 0;
            return None;
        }

        active.row += 1;
        let needed = if is_good { thresholds.healthy } else { thresholds.unhealthy };
        if active.row < needed {
            return None;
        }
        (active.is_healthy, active.row) = (is_good, 0);
        Some(if is_good { Change::Healthy } else { Change::Unhealthy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: EjectSettings = EjectSettings {
        failures: 5,
        share: 0.5,
        pause: Duration::from_secs(30),
        longest: Duration::from_secs(300),
        most: 0.5,
    };
    const FAILED: Outcome = Outcome::Failed(Reason::Broken);

    /// An endpoint and a clock that is moved by hand.
    struct Fixture {
        now: Instant,
        health: EndpointHealth,
    }

    impl Fixture {
        fn new(is_checked: bool) -> Self {
            let now = Instant::now();
            Self { now, health: EndpointHealth::new(now, is_checked) }
        }

        fn wait(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }

        fn run(&mut self, outcome: Outcome) -> Option<Change> {
            let ticket = self.health.begin(self.now);
            self.health.record(self.now, outcome, ticket, true, &SETTINGS)
        }

        fn eject(&mut self) -> Change {
            (0..5).find_map(|_| self.run(FAILED)).expect("five failures eject")
        }

        fn check(&mut self, is_good: bool) -> Option<Change> {
            self.health.checked(self.now, is_good, &CheckThresholds { healthy: 2, unhealthy: 3 })
        }

        fn standing(&self) -> Availability {
            self.health.standing(self.now)
        }
    }

    #[test]
    fn failures_in_a_row_eject() {
        let mut endpoint = Fixture::new(false);
        for _ in 0..4 {
            assert_eq!(endpoint.run(FAILED), None);
        }
        assert_eq!(endpoint.run(Outcome::Good), None, "a success begins a new row");
        assert_eq!(endpoint.run(Outcome::Neutral), None);
        for _ in 0..4 {
            assert_eq!(endpoint.run(FAILED), None);
        }
        let pause = Duration::from_secs(30);
        assert_eq!(endpoint.run(FAILED), Some(Change::Ejected { pause, times: 1, reason: Reason::Broken }));
        assert_eq!(
            (endpoint.standing(), endpoint.health.reason(endpoint.now)),
            (Availability::Out, Some(Reason::Broken))
        );
    }

    #[test]
    fn a_share_of_failures_ejects_from_twenty_results_on() {
        let mut endpoint = Fixture::new(false);
        let results = |endpoint: &mut Fixture, pairs: usize| {
            (0..pairs).find_map(|_| endpoint.run(Outcome::Good).or_else(|| endpoint.run(FAILED)))
        };
        assert_eq!(results(&mut endpoint, 9), None);
        endpoint.wait(20);
        assert_eq!(results(&mut endpoint, 9), None, "older results do not count");
        assert!(matches!(results(&mut endpoint, 1), Some(Change::Ejected { .. })));
    }

    #[test]
    fn an_endpoint_that_may_not_be_ejected_stays() {
        let mut endpoint = Fixture::new(false);
        for _ in 0..50 {
            let ticket = endpoint.health.begin(endpoint.now);
            assert_eq!(endpoint.health.record(endpoint.now, FAILED, ticket, false, &SETTINGS), None);
        }
        assert_eq!(endpoint.standing(), Availability::In);
        assert!(matches!(endpoint.run(FAILED), Some(Change::Ejected { .. })), "it goes once it may");
    }

    #[test]
    fn pauses_grow_up_to_the_longest_and_calm_makes_up_for_them() {
        let mut endpoint = Fixture::new(false);
        let pause_of = |change: Change| match change {
            Change::Ejected { pause, .. } => pause.as_secs(),
            other => panic!("no ejection: {other:?}"),
        };
        assert_eq!(pause_of(endpoint.eject()), 30);
        for times in 2..=12 {
            endpoint.wait(300);
            assert_eq!(pause_of(endpoint.run(FAILED).expect("a failed trial ejects")), (30 * times).min(300));
        }

        endpoint.wait(300);
        assert_eq!(endpoint.run(Outcome::Good), Some(Change::Returned));
        // Of twelve times eleven are made up for.
        endpoint.wait(11 * 30);
        assert_eq!(pause_of(endpoint.eject()), 60);
    }

    #[test]
    fn one_run_tries_an_ejected_endpoint_again() {
        let mut endpoint = Fixture::new(false);
        endpoint.eject();
        endpoint.wait(29);
        assert_eq!(
            (endpoint.standing(), endpoint.health.returns_in(endpoint.now)),
            (Availability::Out, Some(Duration::from_secs(1)))
        );
        endpoint.wait(1);
        assert_eq!(endpoint.standing(), Availability::TrialDue);

        let trial = endpoint.health.begin(endpoint.now);
        assert_eq!(endpoint.standing(), Availability::Out, "one at a time");
        let late = Ticket { epoch: trial.epoch.wrapping_sub(1), is_trial: false };
        assert_eq!(endpoint.health.record(endpoint.now, Outcome::Good, late, true, &SETTINGS), None);
        assert_eq!(endpoint.health.began(endpoint.now, late), None, "an older run decides nothing");

        // A canceled trial shows nothing.
        assert_eq!(endpoint.health.record(endpoint.now, Outcome::Neutral, trial, true, &SETTINGS), None);
        assert_eq!(endpoint.standing(), Availability::TrialDue);

        let trial = endpoint.health.begin(endpoint.now);
        assert_eq!(endpoint.health.began(endpoint.now, trial), Some(Change::Returned));
        assert_eq!(endpoint.standing(), Availability::In);
        let change = endpoint.health.record(endpoint.now, FAILED, trial, true, &SETTINGS);
        assert_eq!((change, endpoint.standing()), (None, Availability::In), "its ticket was of the trial alone");
    }

    #[test]
    fn checks_in_a_row_make_an_endpoint_unhealthy_and_healthy() {
        let mut endpoint = Fixture::new(true);
        let changes: Vec<_> = [false, false, true, false, false, false, false, true, false, true, true]
            .map(|is_good| endpoint.check(is_good))
            .into_iter()
            .enumerate()
            .filter_map(|(check, change)| change.map(|change| (check, change)))
            .collect();
        assert_eq!(changes, [(5, Change::Unhealthy), (10, Change::Healthy)]);

        let mut unchecked = Fixture::new(false);
        assert_eq!(unchecked.check(false), None);
    }

    #[test]
    fn with_checks_one_has_to_succeed_before_a_trial() {
        let mut endpoint = Fixture::new(true);
        endpoint.eject();
        endpoint.check(true);
        endpoint.wait(30);
        assert_eq!(endpoint.standing(), Availability::Out, "that check was before the pause was over");
        endpoint.check(true);
        assert_eq!(endpoint.standing(), Availability::TrialDue);
        endpoint.check(false);
        assert_eq!(endpoint.standing(), Availability::Out);
    }
}
