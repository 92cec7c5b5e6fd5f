//! Counters of stores: their transactions, and for a store that several gateways share the state of this gateway among
//! the others. The latter is reported for shared stores only. Not here: the events that are counted
//! (`interlingua-store`).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::Histogram;

const COMMIT_BOUNDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 0.5, 1.0, 5.0];
const LAG_BOUNDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// The counters of a store. Clones share them.
#[derive(Clone, Debug)]
pub struct StoreMetrics {
    pub(super) commit: Histogram,
    pub(super) failures: Counter,
    shared: Arc<SharedCounters>,
}

/// The counters of a shared store.
#[derive(Debug)]
struct SharedCounters {
    /// There is such a store.
    is_used: AtomicBool,
    lag: Histogram,
    bytes: Counter,
    taken_over: Counter,
    leases_lost: Counter,
    reconnects: Counter,
    /// The levels of the latest scrape.
    levels: Mutex<Option<ReplicaLevels>>,
}

/// The state of a gateway among others that share its store, at a scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaLevels {
    /// False until the gateway has joined, and after it has lost its lease until it has joined again.
    pub is_member: bool,
    /// Since the lease was renewed. `None`: it never was.
    pub since_renewal: Option<Duration>,
    /// Gateways that the store has seen within a lease, with this one.
    pub replicas: usize,
    /// Runs that this gateway owns.
    pub held: usize,
    /// Runs that this gateway follows for its clients, held by any.
    pub following: usize,
    /// Runs that this gateway holds, and others follow.
    pub followed: usize,
    /// Turns that wait in the queue of a session.
    pub turns_waiting: usize,
    /// Connections to the store.
    pub connections: usize,
}

impl StoreMetrics {
    pub(super) fn new() -> Self {
        let shared = SharedCounters {
            is_used: AtomicBool::new(false),
            lag: Histogram::new(LAG_BOUNDS),
            bytes: Counter::default(),
            taken_over: Counter::default(),
            leases_lost: Counter::default(),
            reconnects: Counter::default(),
            levels: Mutex::default(),
        };
        Self { commit: Histogram::new(COMMIT_BOUNDS), failures: Counter::default(), shared: Arc::new(shared) }
    }

    /// Counts a transaction that took this long.
    pub fn committed(&self, took: Duration) {
        self.commit.observe(took);
    }

    /// Counts a transaction that failed.
    pub fn failed(&self) {
        self.failures.inc();
    }

    /// Marks the store as shared, so that its further counters are reported.
    pub fn share(&self) {
        self.shared.is_used.store(true, Ordering::Relaxed);
    }

    /// Counts what a transaction has written of runs. `lag`: since the first of it waited.
    pub fn wrote(&self, bytes: u64, lag: Option<Duration>) {
        self.shared.bytes.inc_by(bytes);
        if let Some(lag) = lag {
            self.shared.lag.observe(lag);
        }
    }

    /// Counts runs that were taken over from other gateways.
    pub fn taken_over(&self, runs: u64) {
        self.shared.taken_over.inc_by(runs);
    }

    /// Counts that this gateway has lost its lease, and all of its runs.
    pub fn lease_lost(&self) {
        self.shared.leases_lost.inc();
    }

    /// Counts a lost and restored connection for writing.
    pub fn reconnected(&self) {
        self.shared.reconnects.inc();
    }

    pub(super) fn set_levels(&self, levels: Option<ReplicaLevels>) {
        *self.shared.levels.lock().unwrap_or_else(PoisonError::into_inner) = levels;
    }
}

impl Collector for StoreMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let shared = &*self.shared;
        if !shared.is_used.load(Ordering::Relaxed) {
            return Ok(());
        }

        let mut counters = |name, help, counter: &Counter| {
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
        };
        counters("store_written_bytes", "Bytes of runs that were written", &shared.bytes)?;
        counters("store_runs_taken_over", "Runs taken over from gateways that were lost", &shared.taken_over)?;
        counters("store_leases_lost", "Times that other gateways took over the runs of this one", &shared.leases_lost)?;
        counters("store_reconnects", "Reconnections of the connection for writing", &shared.reconnects)?;
        let help = "Time from the arrival of the first event of a transaction to its commit";
        let lag = &shared.lag;
        lag.encode(encoder.encode_descriptor("store_lag", help, Some(&Unit::Seconds), lag.metric_type())?)?;

        let levels = *shared.levels.lock().unwrap_or_else(PoisonError::into_inner);
        levels.map_or(Ok(()), |levels| encode_levels(&levels, &mut encoder))
    }
}

fn encode_levels(levels: &ReplicaLevels, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    for (name, help, number) in [
        ("store_joined", "1 while this gateway is a member of the shared store", usize::from(levels.is_member)),
        ("store_gateways", "Gateways that share the store and were seen within a lease", levels.replicas),
        ("store_runs_held", "Runs that this gateway owns", levels.held),
        ("store_runs_following", "Runs of other gateways that this one follows", levels.following),
        ("store_runs_followed", "Runs of this gateway that others follow", levels.followed),
        ("store_turns_waiting", "Turns that wait in the queue of their session", levels.turns_waiting),
        ("store_connections", "Connections to the database", levels.connections),
    ] {
        let gauge = ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX));
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
    }
    if let Some(since) = levels.since_renewal {
        let (name, help) = ("store_lease_age", "Time since the last renewal of the lease");
        let gauge = ConstGauge::new(since.as_secs_f64());
        gauge.encode(encoder.encode_descriptor(name, help, Some(&Unit::Seconds), gauge.metric_type())?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::metrics::{Format, Levels, Metrics};

    use super::*;

    #[test]
    fn a_store_of_one_gateway_has_nothing_to_report_of_others() {
        let metrics = Metrics::new();
        let text = metrics.encode(Format::OpenMetrics, &Levels::default());
        assert!(text.contains("interlingua_store_failures_total 0\n"), "{text}");
        for name in ["store_lag", "store_gateways", "store_leases_lost", "store_joined"] {
            assert!(!text.contains(name), "{name}: {text}");
        }
    }

    #[test]
    fn counters_of_a_shared_store_have_the_usual_names() {
        let metrics = Metrics::new();
        metrics.store().share();
        metrics.store().wrote(70, Some(Duration::from_millis(4)));
        metrics.store().wrote(30, None);
        metrics.store().taken_over(3);
        metrics.store().lease_lost();
        let since_renewal = Some(Duration::from_millis(1500));
        let replica =
            ReplicaLevels { is_member: true, since_renewal, replicas: 2, held: 5, ..ReplicaLevels::default() };
        let levels = Levels { replica: Some(replica), ..Levels::default() };

        let text = metrics.encode(Format::OpenMetrics, &levels);
        for line in [
            "# TYPE interlingua_store_written_bytes counter",
            "interlingua_store_written_bytes_total 100",
            "interlingua_store_runs_taken_over_total 3",
            "interlingua_store_leases_lost_total 1",
            "interlingua_store_reconnects_total 0",
            "interlingua_store_lag_seconds_bucket{le=\"0.0025\"} 0",
            "interlingua_store_lag_seconds_bucket{le=\"0.005\"} 1",
            "interlingua_store_lag_seconds_count 1",
            "interlingua_store_joined 1",
            "interlingua_store_gateways 2",
            "interlingua_store_runs_held 5",
            "interlingua_store_turns_waiting 0",
            "interlingua_store_lease_age_seconds 1.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        let older = metrics.encode(Format::Prometheus, &levels);
        assert!(older.contains("# TYPE interlingua_store_reconnects_total counter\n"), "{older}");
    }
}
