//! The state of one agent's endpoints, and the choice of one for a run: pure functions of the state, the time and a
//! random number.
//!
//! Not here: waiting for a permit, and the log ([`super`]).

use std::time::{Duration, Instant};

use super::budget::{BudgetSettings, RetryBudget};
use super::choice::{Load, Random, rendezvous, two_choices};
use super::health::{Availability, Change, CheckThresholds, EjectSettings, EndpointHealth, Outcome, Reason, Ticket};
use super::key::EndpointKey;

/// The endpoints that a run may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// Any of them.
    Any,
    /// Any of them with a free place, of those the one that this id of a new session points to.
    NewSession(&'a str),
    /// The one that a session's id points to, also if the run has to wait there.
    Session(&'a str),
    /// This one.
    Only(&'a EndpointKey),
}

/// The request of a run for an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct PickRequest<'a> {
    /// The allowed endpoints.
    pub target: Target<'a>,
    /// The endpoint that it was refused by, which it gets only if there is no other.
    pub avoid: Option<usize>,
}

/// Where a session's home is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionAffinity {
    /// It can be asked.
    Here,
    /// It is ejected or unhealthy.
    Away,
    /// It is no endpoint of the agent any more.
    Gone,
}

/// The settings of health checks and ejection.
#[derive(Clone, Debug)]
pub(super) struct StateSettings {
    /// The most runs of one endpoint.
    pub(super) runs: u32,
    pub(super) eject: EjectSettings,
    pub(super) budget: BudgetSettings,
    /// `None`: there are no active checks.
    pub(super) checks: Option<CheckThresholds>,
}

#[derive(Debug)]
pub(super) struct EndpointState {
    pub(super) key: EndpointKey,
    pub(super) weight: u32,
    /// Runs under way, those that wait for a place included.
    pub(super) active: u32,
    /// Runs that wait for a place.
    pub(super) queued: u32,
    pub(super) health: EndpointHealth,
    /// Runs it was chosen for.
    pub(super) requests: u64,
    /// Its requests that were sent again, here or elsewhere.
    pub(super) retries: u64,
    pub(super) ejections: u64,
}

/// The endpoint for a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) index: usize,
    pub(super) ticket: Ticket,
    /// The pool has begun to choose among all, or stopped doing so.
    pub(super) all_out: Option<bool>,
}

/// All endpoints of one agent.
#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) endpoints: Vec<EndpointState>,
    settings: StateSettings,
    budget: RetryBudget,
    random: Random,
    /// No endpoint is in: the choice is among all.
    is_all_out: bool,
}

impl PoolState {
    /// `endpoints`: at least one, with weights from 1 on.
    pub(super) fn new(now: Instant, endpoints: &[(EndpointKey, u32)], settings: StateSettings, seed: u64) -> Self {
        let endpoints = endpoints.iter().map(|(key, weight)| EndpointState {
            key: key.clone(),
            weight: *weight,
            active: 0,
            queued: 0,
            health: EndpointHealth::new(now, settings.checks.is_some()),
            requests: 0,
            retries: 0,
            ejections: 0,
        });
        Self {
            endpoints: endpoints.collect(),
            budget: RetryBudget::new(now, settings.budget),
            random: Random::new(seed),
            settings,
            is_all_out: false,
        }
    }

    /// Chooses an endpoint. The run has to be [released](Self::release).
    pub(super) fn choose(&mut self, now: Instant, want: &PickRequest<'_>) -> Choice {
        let is_all_out = !self.endpoints.iter().any(|endpoint| endpoint.health.standing(now) != Availability::Out);
        let all_out = (is_all_out != self.is_all_out).then_some(is_all_out);
        self.is_all_out = is_all_out;

        let index = self.find(now, want);
        let endpoint = &mut self.endpoints[index];
        endpoint.active += 1;
        endpoint.requests += 1;
        if want.avoid.is_none() {
            self.budget.started(now);
        }
        Choice { index, ticket: self.endpoints[index].health.begin(now), all_out }
    }

    fn find(&mut self, now: Instant, want: &PickRequest<'_>) -> usize {
        if let Target::Only(key) = want.target
            && let Some(index) = self.index(key)
        {
            return index;
        }

        if self.endpoints.len() == 1 {
            return 0;
        }

        let is_due = |index: usize| {
            let endpoint = &self.endpoints[index];
            endpoint.health.standing(now) == Availability::TrialDue && self.has_room(endpoint)
        };
        // The first run that may goes to see whether an ejected endpoint is back.
        if let Some(index) = (0..self.endpoints.len()).find(|index| Some(*index) != want.avoid && is_due(*index)) {
            return index;
        }

        let candidates = self.candidates(now, want);
        match want.target {
            Target::NewSession(id) | Target::Session(id) => {
                let keys = candidates.iter().map(|load| (&self.endpoints[load.index].key, load.weight));
                candidates[rendezvous(keys, id)].index
            }
            Target::Any | Target::Only(_) => two_choices(&candidates, self.random.draw()),
        }
    }

    /// The endpoints that are in, or else all. Those with a free place, if there are any and any will do: the memory of
    /// a session outweighs a shorter wait.
    fn candidates(&self, now: Instant, want: &PickRequest<'_>) -> Vec<Load> {
        let loads = |accept: &dyn Fn(usize, &EndpointState) -> bool| -> Vec<Load> {
            let endpoints = self.endpoints.iter().enumerate().filter(|(index, endpoint)| accept(*index, endpoint));
            endpoints.map(|(index, one)| Load { index, active: one.active, weight: one.weight }).collect()
        };
        let is_in = |endpoint: &EndpointState| endpoint.health.standing(now) == Availability::In;
        let is_other = |index: usize| Some(index) != want.avoid;
        let is_any = !matches!(want.target, Target::Session(_));

        let mut candidates = loads(&|index, one| is_in(one) && is_other(index) && (!is_any || self.has_room(one)));
        if candidates.is_empty() {
            candidates = loads(&|index, one| is_in(one) && is_other(index));
        }
        if candidates.is_empty() {
            candidates = loads(&|_, one| is_in(one));
        }
        if candidates.is_empty() {
            candidates = loads(&|index, _| is_other(index));
        }
        if candidates.is_empty() {
            candidates = loads(&|_, _| true);
        }
        candidates
    }

    fn has_room(&self, endpoint: &EndpointState) -> bool {
        endpoint.active < self.settings.runs
    }

    pub(super) fn index(&self, key: &EndpointKey) -> Option<usize> {
        self.endpoints.iter().position(|endpoint| endpoint.key == *key)
    }

    pub(super) fn home(&self, now: Instant, key: &EndpointKey) -> SessionAffinity {
        let Some(index) = self.index(key) else { return SessionAffinity::Gone };
        let is_out = |endpoint: &EndpointState| endpoint.health.standing(now) == Availability::Out;
        if is_out(&self.endpoints[index]) && !self.endpoints.iter().all(is_out) {
            SessionAffinity::Away
        } else {
            SessionAffinity::Here
        }
    }

    /// Time until an endpoint may be tried again. `None`: unknown.
    pub(super) fn returns_in(&self, now: Instant, key: &EndpointKey) -> Option<Duration> {
        self.endpoints[self.index(key)?].health.returns_in(now)
    }

    /// Takes a retry of a request to this endpoint from the budget, if there is one left.
    pub(super) fn withdraw_retry(&mut self, now: Instant, index: usize) -> bool {
        let running = self.endpoints.iter().map(|endpoint| endpoint.active).sum();
        let may = self.budget.withdraw(now, running);
        self.endpoints[index].retries += u64::from(may);
        may
    }

    /// A run has begun to be answered.
    pub(super) fn began(&mut self, now: Instant, index: usize, ticket: Ticket) -> Option<Change> {
        self.endpoints[index].health.began(now, ticket)
    }

    /// Records the result of a run for its endpoint.
    pub(super) fn record(&mut self, now: Instant, index: usize, ticket: Ticket, outcome: Outcome) -> Option<Change> {
        let ejected = self.endpoints.iter().filter(|endpoint| endpoint.health.is_ejected()).count();
        let may_eject = (ejected + 1) as f64 <= (self.settings.eject.most * self.endpoints.len() as f64).floor();
        let endpoint = &mut self.endpoints[index];
        let change = endpoint.health.record(now, outcome, ticket, may_eject, &self.settings.eject);
        endpoint.ejections += u64::from(matches!(change, Some(Change::Ejected { .. })));
        change
    }

    /// A run no longer has its place.
    pub(super) fn release(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        endpoint.active = endpoint.active.saturating_sub(1);
    }

    /// An active check succeeded or failed.
    pub(super) fn checked(&mut self, now: Instant, index: usize, is_good: bool) -> Option<Change> {
        let thresholds = self.settings.checks?;
        self.endpoints[index].health.checked(now, is_good, &thresholds)
    }

    /// A pause, longer or shorter by up to a tenth.
    pub(super) fn vary(&mut self, pause: Duration) -> Duration {
        let thousandths = 900 + u32::try_from(self.random.draw() % 201).unwrap_or(100);
        pause.saturating_mul(thousandths) / 1000
    }

    /// Where an endpoint stands, and why it is out.
    pub(super) fn standing(&self, now: Instant, index: usize) -> (Availability, Option<Reason>) {
        let health = &self.endpoints[index].health;
        (health.standing(now), health.reason(now))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FAILED: Outcome = Outcome::Failed(Reason::NoConnection);

    /// A pool and a clock that is moved by hand.
    struct Fixture {
        now: Instant,
        pool: PoolState,
    }

    impl Fixture {
        fn new(endpoints: usize, change: impl FnOnce(&mut StateSettings)) -> Self {
            let now = Instant::now();
            let mut settings = StateSettings {
                runs: 100,
                eject: EjectSettings::default(),
                budget: BudgetSettings::default(),
                checks: None,
            };
            change(&mut settings);
            let endpoints: Vec<_> = (0..endpoints).map(|n| (EndpointKey::new(&format!("http://{n}")), 1)).collect();
            Self { now, pool: PoolState::new(now, &endpoints, settings, 5) }
        }

        fn want(&mut self, target: Target<'_>, avoid: Option<usize>) -> Choice {
            self.pool.choose(self.now, &PickRequest { target, avoid })
        }

        fn key(&self, index: usize) -> EndpointKey {
            self.pool.endpoints[index].key.clone()
        }

        /// A run at this endpoint, from beginning to end.
        fn run(&mut self, index: usize, outcome: Outcome) -> Option<Change> {
            let key = self.key(index);
            let Choice { index, ticket, .. } = self.want(Target::Only(&key), None);
            let change = self.pool.record(self.now, index, ticket, outcome);
            self.pool.release(index);
            change
        }

        fn eject(&mut self, index: usize) -> bool {
            (0..5).any(|_| matches!(self.run(index, FAILED), Some(Change::Ejected { .. })))
        }

        fn homes(&self) -> Vec<SessionAffinity> {
            self.pool.endpoints.iter().map(|endpoint| self.pool.home(self.now, &endpoint.key)).collect()
        }
    }

    #[test]
    fn never_more_than_the_share_is_ejected() {
        for (endpoints, most) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)] {
            let mut fixture = Fixture::new(endpoints, |_| {});
            let ejected = (0..endpoints).filter(|index| fixture.eject(*index)).count();
            assert_eq!(ejected, most, "of {endpoints}");
        }
    }

    #[test]
    fn ejected_endpoints_are_not_chosen_and_one_run_tries_them_again() {
        let mut fixture = Fixture::new(2, |_| {});
        assert!(fixture.eject(0));
        assert!((0..50).all(|_| fixture.want(Target::Any, None).index == 1));
        assert_eq!(fixture.homes(), [SessionAffinity::Away, SessionAffinity::Here]);
        assert_eq!(fixture.pool.returns_in(fixture.now, &fixture.key(0)), Some(Duration::from_secs(30)));

        fixture.now += Duration::from_secs(30);
        assert_eq!(fixture.homes(), [SessionAffinity::Here, SessionAffinity::Here]);
        let trial = fixture.want(Target::Any, None);
        assert_eq!(trial.index, 0);
        assert!((0..50).all(|_| fixture.want(Target::Any, None).index == 1), "one at a time");
        assert_eq!(fixture.pool.began(fixture.now, 0, trial.ticket), Some(Change::Returned));
        assert!((0..50).any(|_| fixture.want(Target::Any, None).index == 0));
    }

    #[test]
    fn a_run_that_was_refused_goes_elsewhere_if_it_can() {
        let mut fixture = Fixture::new(2, |_| {});
        assert!((0..50).all(|_| fixture.want(Target::Any, Some(0)).index == 1));
        assert!((0..50).all(|_| fixture.want(Target::Session("s"), Some(0)).index == 1));
        fixture.eject(1);
        assert_eq!(fixture.want(Target::Any, Some(0)).index, 0, "the only one that is in");
        let mut alone = Fixture::new(1, |_| {});
        assert_eq!(alone.want(Target::Any, Some(0)).index, 0);
    }

    #[test]
    fn if_all_are_unhealthy_the_choice_is_among_all_and_that_is_reported_once() {
        let mut fixture = Fixture::new(2, |settings| {
            settings.checks = Some(CheckThresholds { healthy: 1, unhealthy: 1 });
        });
        assert_eq!(fixture.pool.checked(fixture.now, 0, false), Some(Change::Unhealthy));
        assert_eq!(fixture.homes(), [SessionAffinity::Away, SessionAffinity::Here]);
        assert_eq!(fixture.want(Target::Any, None).all_out, None);
        assert_eq!(fixture.pool.checked(fixture.now, 1, false), Some(Change::Unhealthy));
        assert_eq!(fixture.homes(), [SessionAffinity::Here, SessionAffinity::Here]);

        assert_eq!(fixture.want(Target::Any, None).all_out, Some(true));
        let chosen: Vec<_> = (0..50).map(|_| fixture.want(Target::Any, None)).collect();
        assert!(chosen.iter().all(|choice| choice.all_out.is_none()));
        assert!((0..2).all(|index| chosen.iter().any(|choice| choice.index == index)));

        fixture.pool.checked(fixture.now, 0, true);
        assert_eq!(fixture.want(Target::Any, None).all_out, Some(false));
    }

    #[test]
    fn a_free_place_is_preferred_but_a_session_stays() {
        let mut fixture = Fixture::new(2, |settings| settings.runs = 1);
        let home = fixture.want(Target::Session("s"), None).index;
        assert_eq!(fixture.want(Target::Session("s"), None).index, home);
        assert_eq!(fixture.want(Target::Any, None).index, 1 - home);
    }

    #[test]
    fn a_new_session_begins_where_its_id_points_unless_only_another_endpoint_has_a_free_place() {
        let mut fixture = Fixture::new(2, |settings| settings.runs = 1);
        let hashed = fixture.want(Target::Session("s"), None).index;
        fixture.pool.release(hashed);
        assert_eq!(fixture.want(Target::NewSession("s"), None).index, hashed);
        assert_eq!(fixture.want(Target::NewSession("s"), None).index, 1 - hashed);
        assert_eq!(fixture.want(Target::NewSession("s"), None).index, hashed, "it waits, as no endpoint has a place");
    }

    #[test]
    fn an_endpoint_that_left_is_no_home() {
        let mut fixture = Fixture::new(1, |_| {});
        let other = EndpointKey::new("http://gone");
        assert_eq!(fixture.pool.home(fixture.now, &other), SessionAffinity::Gone);
        assert_eq!(fixture.pool.returns_in(fixture.now, &other), None);
        fixture.eject(0);
        assert_eq!(fixture.homes(), [SessionAffinity::Here], "one alone is never ejected");
    }

    #[test]
    fn a_place_that_was_released_is_free() {
        let mut fixture = Fixture::new(1, |settings| settings.runs = 1);
        let choice = fixture.want(Target::Any, None);
        assert_eq!(fixture.pool.endpoints[0].active, 1);
        fixture.pool.release(choice.index);
        assert_eq!((fixture.pool.endpoints[0].active, fixture.pool.endpoints[0].requests), (0, 1));
    }

    proptest! {
        /// Whatever runs come to: never more than half of a pool is ejected, and every endpoint that is chosen exists.
        #[test]
        fn never_more_than_half_is_ejected(
            endpoints in 1_usize..7,
            steps in prop::collection::vec((0_u64..20, 0_u8..4, any::<bool>()), 1..300),
        ) {
            let mut fixture = Fixture::new(endpoints, |settings| settings.eject.failures = 2);
            let mut open = Vec::new();
            for (pause, kind, stays) in steps {
                fixture.now += Duration::from_secs(pause);
                let choice = fixture.want(Target::Any, None);
                prop_assert!(choice.index < endpoints);
                let outcome = [Outcome::Good, FAILED, FAILED, Outcome::Neutral][usize::from(kind)];
                open.push((choice, outcome));
                if !stays {
                    for (choice, outcome) in open.drain(..) {
                        fixture.pool.record(fixture.now, choice.index, choice.ticket, outcome);
                        fixture.pool.release(choice.index);
                    }
                }

                let ejected = fixture.pool.endpoints.iter().filter(|one| one.health.is_ejected()).count();
                prop_assert!(ejected * 2 <= endpoints, "{ejected} of {endpoints}");
            }
        }
    }
}
