//! The endpoints of one agent: which of them takes a run, how many runs each takes at a time, and which are out.
//!
//! What decides is pure and gets the time as an argument: `state`, `health`, `choice`, `budget`. Here is what
//! waits: for a place at an endpoint that has as many runs as it may.
//!
//! Not here: sending requests ([`super::http`]), and which endpoint a session wants (the engine).

mod address;
mod budget;
mod choice;
mod health;
mod key;
mod state;
mod window;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use interlingua_core::{Fault, FaultKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use address::EndpointAddress;
pub use budget::BudgetSettings;
pub use health::{CheckThresholds, EjectSettings, Outcome, Reason};
pub use key::EndpointKey;
pub use state::{PickRequest, SessionAffinity, Target};

use health::{Availability, Change, Ticket};
use state::{Choice, PoolState, StateSettings};

/// When a client should try again if an agent has too many runs.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The settings of an agent's endpoints.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// Where the turns of a session go.
    pub affinity: Affinity,
    /// When endpoints are ejected.
    pub eject: EjectSettings,
    /// Limits of retries.
    pub budget: BudgetSettings,
    /// The most runs of one endpoint.
    pub runs: u32,
    /// The most runs that wait for one endpoint.
    pub queue: u32,
    /// Maximum waiting time.
    pub wait: Duration,
    /// Set if there are active checks.
    pub checks: Option<CheckThresholds>,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            affinity: Affinity::None,
            eject: EjectSettings::default(),
            budget: BudgetSettings::default(),
            runs: 10_000,
            queue: 1_000,
            wait: Duration::from_secs(10),
            checks: None,
        }
    }
}

/// Where the turns of a session go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// To any endpoint.
    None,
    /// To the endpoint that remembers the session. If it is out, another one is sent the history.
    Session,
    /// To the endpoint that remembers the session, or nowhere.
    Strict,
}

/// An endpoint as it stands.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// Its name in sessions and metrics.
    pub key: EndpointKey,
    /// Its URL without query and user info.
    pub url: String,
    /// `up`, `trial` (it was ejected, and the next run tries it) or `out`.
    pub state: &'static str,
    /// Why it is not up.
    pub reason: Option<Reason>,
    /// Runs under way, those that wait for a place included.
    pub active: u32,
    /// Runs that wait for a place.
    pub queued: u32,
    /// Runs it was chosen for, since the gateway has started.
    pub requests: u64,
    /// Requests that were sent again after it did not take them.
    pub retries: u64,
    /// The number of ejections.
    pub ejections: u64,
}

/// The endpoints of one agent.
pub struct EndpointPool {
    agent: String,
    /// Number of times that a turn is begun again.
    retries: u32,
    settings: PoolSettings,
    /// Name and address of each endpoint.
    endpoints: Vec<(EndpointKey, Arc<EndpointAddress>)>,
    state: Mutex<PoolState>,
    /// One for each endpoint, with a permit for each of its runs.
    places: Vec<Arc<Semaphore>>,
}

impl EndpointPool {
    /// The pool of an agent. `endpoints`: URLs without query and user info, with weights from 1 on; at least one.
    /// `retries`: how often a turn is begun again at most.
    #[must_use]
    pub fn new(agent: String, endpoints: Vec<(String, u32)>, retries: u32, settings: PoolSettings) -> Self {
        let state_settings = StateSettings {
            runs: settings.runs,
            eject: settings.eject,
            budget: settings.budget,
            checks: settings.checks,
        };
        let weights: Vec<_> = endpoints.iter().map(|(url, weight)| (EndpointKey::new(url), *weight)).collect();
        let seed = RandomState::new().build_hasher().finish();
        let places = (0..endpoints.len()).map(|_| Arc::new(Semaphore::new(settings.runs as usize)));

        Self {
            agent,
            retries,
            state: Mutex::new(PoolState::new(now(), &weights, state_settings, seed)),
            places: places.collect(),
            endpoints: endpoints
                .into_iter()
                .map(|(url, _)| (EndpointKey::new(&url), Arc::new(EndpointAddress::new(url))))
                .collect(),
            settings,
        }
    }

    /// A place at an endpoint. Waits if all that will do have as many runs as they may.
    ///
    /// # Errors
    /// [`FaultKind::Overloaded`] if too many runs wait, or it took too long.
    pub async fn seat(self: &Arc<Self>, want: PickRequest<'_>) -> Result<EndpointPermit, Fault> {
        let seat = self.place(&want).await?;
        if seat.waited && matches!(want.target, Target::Any | Target::NewSession(_)) && self.is_out(seat.index) {
            // It was ejected meanwhile.
            drop(seat);
            return self.place(&want).await;
        }
        Ok(seat)
    }

    async fn place(self: &Arc<Self>, want: &PickRequest<'_>) -> Result<EndpointPermit, Fault> {
        let Choice { index, ticket, all_out } = self.state().choose(now(), want);
        match all_out {
            Some(true) => tracing::error!(
                agent = self.agent,
                "every endpoint of the agent is ejected or unhealthy: choosing among all"
            ),
            Some(false) => tracing::info!(agent = self.agent, "an endpoint of the agent may be chosen again"),
            None => {}
        }

        // From here on, dropping it gives back what was taken.
        let pool = Arc::clone(self);
        let mut seat =
            EndpointPermit { pool, index, ticket, has_begun: false, is_reported: false, waited: false, place: None };
        let places = &self.places[index];
        seat.place = match Arc::clone(places).try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) => {
                seat.waited = true;
                Some(self.wait(index).await?)
            }
        };
        Ok(seat)
    }

    async fn wait(&self, index: usize) -> Result<OwnedSemaphorePermit, Fault> {
        {
            let mut state = self.state();
            let endpoint = &mut state.endpoints[index];
            if endpoint.queued >= self.settings.queue {
                let detail = format!(
                    "{} has {} runs, and {} wait",
                    self.endpoints[index].1.url(),
                    self.settings.runs,
                    endpoint.queued
                );
                return Err(too_many_runs().with_detail(detail));
            }
            endpoint.queued += 1;
        }
        let _queued = QueuedRun { pool: self, index };

        let place = tokio::time::timeout(self.settings.wait, Arc::clone(&self.places[index]).acquire_owned()).await;
        // The semaphore is never closed.
        place.ok().and_then(Result::ok).ok_or_else(|| {
            let detail = format!("{} had no free place for {:?}", self.endpoints[index].1.url(), self.settings.wait);
            too_many_runs().with_detail(detail)
        })
    }

    /// Where the endpoint of this key is.
    #[must_use]
    pub fn home(&self, key: &EndpointKey) -> SessionAffinity {
        self.state().home(now(), key)
    }

    /// Time until an endpoint may be tried again. `None`: unknown.
    #[must_use]
    pub fn returns_in(&self, key: &EndpointKey) -> Option<Duration> {
        self.state().returns_in(now(), key)
    }

    /// True if a request that an endpoint did not take may be sent again. Counts it then.
    #[must_use]
    pub fn may_retry(&self, endpoint: usize) -> bool {
        self.state().withdraw_retry(now(), endpoint)
    }

    /// Number of times that a turn which no endpoint accepted is begun again.
    #[must_use]
    pub const fn retries(&self) -> u32 {
        self.retries
    }

    /// The number of endpoints.
    #[must_use]
    pub fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// Never true: an agent has an endpoint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// Where the turns of a session go.
    #[must_use]
    pub fn affinity(&self) -> Affinity {
        self.settings.affinity
    }

    /// Every endpoint as it stands, in the order of the configuration.
    #[must_use]
    pub fn status(&self) -> Vec<EndpointStatus> {
        let (state, now) = (self.state(), now());
        let endpoints = self.endpoints.iter().zip(&state.endpoints).enumerate();
        endpoints
            .map(|(index, ((key, address), endpoint))| {
                let (standing, reason) = state.standing(now, index);
                EndpointStatus {
                    key: key.clone(),
                    url: address.url().to_owned(),
                    state: match standing {
                        Availability::In => "up",
                        Availability::TrialDue => "trial",
                        Availability::Out => "out",
                    },
                    reason,
                    active: endpoint.active,
                    queued: endpoint.queued,
                    requests: endpoint.requests,
                    retries: endpoint.retries,
                    ejections: endpoint.ejections,
                }
            })
            .collect()
    }

    /// The first endpoint that is not out, or else the first.
    pub(super) fn first_available(&self) -> usize {
        (0..self.endpoints.len()).find(|index| !self.is_out(*index)).unwrap_or(0)
    }

    /// A pause, longer or shorter by up to a tenth.
    pub(super) fn vary(&self, pause: Duration) -> Duration {
        self.state().vary(pause)
    }

    /// Notes the result of an active check.
    pub(super) fn checked(&self, endpoint: usize, is_good: bool) {
        let change = self.state().checked(now(), endpoint, is_good);
        self.log(endpoint, change);
    }

    fn is_out(&self, index: usize) -> bool {
        self.state().standing(now(), index).0 == Availability::Out
    }

    fn log(&self, index: usize, change: Option<Change>) {
        let (agent, endpoint) = (&*self.agent, self.endpoints[index].1.url());
        match change {
            None => {}
            Some(Change::Ejected { pause, times, reason }) => {
                tracing::warn!(agent, endpoint, ?pause, recent_ejections = times, %reason, "endpoint ejected: it gets no runs for some time");
            }
            Some(Change::Returned) => tracing::info!(agent, endpoint, "endpoint readmitted: a run started there"),
            Some(Change::Unhealthy) => tracing::warn!(
                agent,
                endpoint,
                "endpoint unhealthy: its checks fail; it gets new runs only if all endpoints are out"
            ),
            Some(Change::Healthy) => tracing::info!(agent, endpoint, "endpoint healthy: its checks succeed"),
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time, which tests can pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn too_many_runs() -> Fault {
    let mut fault = Fault::new(FaultKind::Overloaded, "the agent has too many runs under way: try again later");
    fault.retry_after = Some(RETRY_AFTER);
    fault
}

/// A run that waits for a place. Dropping it leaves the queue.
struct QueuedRun<'a> {
    pool: &'a EndpointPool,
    index: usize,
}

impl Drop for QueuedRun<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        let queued = &mut state.endpoints[self.index].queued;
        *queued = queued.saturating_sub(1);
    }
}

/// A run's place at an endpoint. Dropping it frees the place.
pub struct EndpointPermit {
    pool: Arc<EndpointPool>,
    index: usize,
    ticket: Ticket,
    has_begun: bool,
    is_reported: bool,
    waited: bool,
    place: Option<OwnedSemaphorePermit>,
}

impl EndpointPermit {
    /// The index of the endpoint.
    #[must_use]
    pub fn endpoint(&self) -> usize {
        self.index
    }

    /// The endpoint's address.
    #[must_use]
    pub fn address(&self) -> &Arc<EndpointAddress> {
        &self.pool.endpoints[self.index].1
    }

    /// The endpoint's name.
    #[must_use]
    pub fn key(&self) -> &EndpointKey {
        &self.pool.endpoints[self.index].0
    }

    /// The agent has begun to answer the run.
    pub fn began(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let change = self.pool.state().began(now(), self.index, self.ticket);
            self.pool.log(self.index, change);
        }
    }

    /// Notes what the run says about the endpoint. Only the first time counts.
    pub fn report(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.is_reported, true) {
            let change = self.pool.state().record(now(), self.index, self.ticket, outcome);
            self.pool.log(self.index, change);
        }
    }
}

impl Drop for EndpointPermit {
    fn drop(&mut self) {
        self.report(Outcome::Neutral);
        self.pool.state().release(self.index);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn places_are_given_in_order_and_given_back() {
        const ANY: PickRequest<'static> = PickRequest { target: Target::Any, avoid: None };
        let settings = PoolSettings { runs: 1, queue: 1, wait: Duration::from_millis(200), ..PoolSettings::default() };
        let pool = EndpointPool::new("friday".to_owned(), vec![("http://a".to_owned(), 1)], 2, settings);
        let pool = Arc::new(pool);
        let counts = || (pool.status()[0].active, pool.status()[0].queued);
        let first = pool.seat(ANY).await.expect("a free place");

        // One waits, and the next one is refused.
        let waiting = pool.seat(ANY);
        tokio::pin!(waiting);
        assert!((&mut waiting).now_or_never().is_none());
        let refused = pool.seat(ANY).await.err().expect("the queue is full");
        assert_eq!((refused.kind, refused.retry_after), (FaultKind::Overloaded, Some(RETRY_AFTER)));
        assert_eq!(counts(), (2, 1));

        drop(first);
        let second = waiting.await.expect("the place is free now");
        assert_eq!(counts(), (1, 0));
        assert!(pool.seat(ANY).await.is_err(), "it waited for as long as it may");
        drop(second);
        assert_eq!(counts(), (0, 0), "nothing is left of those that waited");
    }
}
