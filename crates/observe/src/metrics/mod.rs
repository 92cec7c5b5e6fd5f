//! The gateway's metrics, for Prometheus.
//!
//! Events are counted where they happen; levels (such as the number of active runs) are read at a scrape, as
//! [`Levels`]. The configuration bounds the labels: agents, routes, protocols, endpoints, outcomes and the gateway's
//! own codes. A label is never a run, a session or a URL. There is no global registry: several gateways can run in one
//! process.
//!
//! Not here: access to the metrics (`interlingua-server`).

mod caller;
mod carried;
mod gen_ai;
mod histogram;
mod history;
mod process;
mod recent;
mod store;
mod text;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use interlingua_core::Blame;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use self::caller::{CallerLabel, Callers};

use self::carried::TranslationMetrics;

pub use self::carried::ContentLost;
pub use self::gen_ai::{Distribution, GenAiMetrics, TurnEnd, TurnSeries};
pub use self::histogram::{Histogram, LocalCounts};
pub use self::history::{History, MetricsSample, MetricsWindow, RecentStats, Series, SeriesFilter, Window};
pub use self::process::resident_memory;
pub use self::recent::{EndedBy, EndedRuns, LastFault, PeriodCounts};
pub use self::store::{ReplicaLevels, StoreMetrics};
pub use self::text::Format;

/// Why credentials are refused.
pub const REASONS: [&str; 11] = [
    "missing",
    "several",
    "malformed",
    "unknown",
    "revoked",
    "expired",
    "signature",
    "claims",
    "method",
    "unavailable",
    "other",
];

const DURATION_BOUNDS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
const FIRST_EVENT_BOUNDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0];
const GAP_BOUNDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunLabels {
    agent: Arc<str>,
    protocol: String,
    outcome: &'static str,
    code: &'static str,
    #[prometheus(flatten)]
    caller: CallerLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    agent: Arc<str>,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgentLabels {
    agent: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: Arc<str>,
    protocol: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: Arc<str>,
    protocol: &'static str,
    code: u16,
    #[prometheus(flatten)]
    caller: CallerLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    agent: Arc<str>,
    endpoint: String,
}

type NamedCounter = Family<[(&'static str, &'static str); 1], Counter>;

/// Everything that is counted. One per gateway.
pub struct Metrics {
    registry: Mutex<Registry>,
    runs: Family<RunLabels, Counter>,
    run_duration: Family<OutcomeLabels, Histogram, fn() -> Histogram>,
    first_event: Family<AgentLabels, Histogram, fn() -> Histogram>,
    event_gap: Family<AgentLabels, Histogram, fn() -> Histogram>,
    recent: recent::Recent,
    carried: TranslationMetrics,
    streams_open: Family<RouteLabels, Gauge>,
    requests: Family<RequestLabels, Counter>,
    auth_failures: NamedCounter,
    limited: NamedCounter,
    tls_handshakes_failed: Counter,
    store: StoreMetrics,
    push_attempts: NamedCounter,
    push_given_up: Counter,
    reloads: NamedCounter,
    last_reload_successful: Gauge,
    lines_dropped: NamedCounter,
    telemetry_dropped: NamedCounter,
    gen_ai: GenAiMetrics,
    callers: Callers,
    levels: LevelGauges,
}

/// The levels at a scrape.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    /// Runs with a turn under way or waiting to begin, by agent.
    pub runs_active: Vec<(Arc<str>, usize)>,
    /// Turns that wait for another one of their session, by agent.
    pub queue_depth: Vec<(Arc<str>, usize)>,
    /// The endpoints of all agents.
    pub upstreams: Vec<UpstreamLevel>,
    /// Readers of runs.
    pub followers: usize,
    /// Connections of clients.
    pub connections: usize,
    /// WebSockets of clients.
    pub sockets: usize,
    /// The size of the store in bytes; 0 for one in memory.
    pub store_bytes: u64,
    /// Runs that the store still has to write.
    pub store_owed: usize,
    /// The state of this gateway among others that share its store. `None`: the store is not shared.
    pub replica: Option<ReplicaLevels>,
}

/// An endpoint of an agent, with what was counted since its agent was configured.
#[derive(Clone, Debug)]
pub struct UpstreamLevel {
    /// The agent's name.
    pub agent: Arc<str>,
    /// Host and port.
    pub endpoint: String,
    /// False while it gets no runs.
    pub healthy: bool,
    /// Runs it was chosen for.
    pub requests: u64,
    /// Requests that were sent again.
    pub retries: u64,
    /// The number of ejections.
    pub ejections: u64,
}

#[derive(Default)]
struct LevelGauges {
    upstream_requests: Family<EndpointLabels, Counter>,
    upstream_retries: Family<EndpointLabels, Counter>,
    upstream_ejections: Family<EndpointLabels, Counter>,
    upstream_healthy: Family<EndpointLabels, Gauge>,
    runs_active: Family<AgentLabels, Gauge>,
    queue_depth: Family<AgentLabels, Gauge>,
    followers: Gauge,
    connections: Gauge,
    sockets: Gauge,
    store_bytes: Gauge,
    store_owed: Gauge,
}

/// The end of a run, for its counters.
#[derive(Clone, Copy, Debug)]
pub struct RunEnd<'a> {
    /// The protocol of its client.
    pub protocol: &'a str,
    /// `completed`, `failed`, …
    pub outcome: &'static str,
    /// The gateway's code of a failure, `agent` for a code of the agent's own, empty without a failure.
    pub code: &'static str,
    /// The party at fault. `None`: the run did not fail.
    pub blame: Option<Blame>,
    /// The caller of its last turn. `None`: a caller without a proven name.
    pub caller: Option<&'a Arc<str>>,
    /// From its first input to its end.
    pub took: Duration,
}

/// The counters of one agent.
pub struct AgentMetrics {
    name: Arc<str>,
    metrics: Arc<Metrics>,
    first_event: Histogram,
    event_gap: Histogram,
}

impl AgentMetrics {
    /// The agent's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// All metrics of the gateway.
    #[must_use]
    pub fn all(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Counts a run that ended.
    pub fn run_ended(&self, end: &RunEnd<'_>) {
        self.metrics.recent.run_ended(&self.name, end.protocol, end.outcome, end.blame, end.took);
        let (agent, protocol) = (Arc::clone(&self.name), end.protocol.to_owned());
        let caller = self.metrics.callers.label(end.caller);
        let labels = RunLabels { agent, protocol, outcome: end.outcome, code: end.code, caller };
        self.metrics.runs.get_or_create(&labels).inc();
        let labels = OutcomeLabels { agent: labels.agent, outcome: end.outcome };
        self.metrics.run_duration.get_or_create(&labels).observe(end.took);
    }

    /// Counts a request to stop the agent. `result`: its outcome.
    pub fn canceled(&self, result: &'static str) {
        self.metrics.carried.canceled(&self.name, result);
    }

    /// Counts how long the agent took from the beginning of a turn over a protocol to its first event.
    pub fn began_after(&self, protocol: &str, time: Duration) {
        self.first_event.observe(time);
        self.metrics.recent.began_after(&self.name, protocol, time);
    }

    /// Notes why the agent's latest failed run failed.
    pub fn note_fault(&self, fault: LastFault) {
        self.metrics.recent.note_fault(&self.name, fault);
    }

    /// The pauses between what the agent sends.
    #[must_use]
    pub const fn event_gap(&self) -> &Histogram {
        &self.event_gap
    }
}

/// Counts one open stream until it is dropped.
pub struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Nothing is counted yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let duration: fn() -> Histogram = || Histogram::new(DURATION_BOUNDS);
        let first_event: fn() -> Histogram = || Histogram::new(FIRST_EVENT_BOUNDS);
        let gap: fn() -> Histogram = || Histogram::new(GAP_BOUNDS);
        let metrics = Self {
            registry: Mutex::default(),
            runs: Family::default(),
            run_duration: Family::new_with_constructor(duration),
            first_event: Family::new_with_constructor(first_event),
            event_gap: Family::new_with_constructor(gap),
            recent: recent::Recent::default(),
            carried: TranslationMetrics::default(),
            streams_open: Family::default(),
            requests: Family::default(),
            auth_failures: Family::default(),
            limited: Family::default(),
            tls_handshakes_failed: Counter::default(),
            store: StoreMetrics::new(),
            push_attempts: Family::default(),
            push_given_up: Counter::default(),
            reloads: Family::default(),
            last_reload_successful: Gauge::default(),
            lines_dropped: Family::default(),
            telemetry_dropped: Family::default(),
            gen_ai: GenAiMetrics::default(),
            callers: Callers::default(),
            levels: LevelGauges::default(),
        };

        metrics.start_at_zero();
        metrics.last_reload_successful.set(1);
        let mut registry = Registry::default();
        metrics.register(registry.sub_registry_with_prefix("interlingua"));
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        registry.register_collector(Box::new(process::Process::new(started)));
        *metrics.registry.lock().unwrap_or_else(PoisonError::into_inner) = registry;
        Arc::new(metrics)
    }

    /// Makes counters known before something happens: an alert on their increase would miss the first time otherwise.
    fn start_at_zero(&self) {
        for reason in REASONS {
            drop(self.auth_failures.get_or_create(&[("reason", reason)]));
        }
        const LIMITS: [&str; 15] = [
            "connections",
            "connections_per_address",
            "http2_streams_per_address",
            "http2_resets",
            "http2_control_frames",
            "body",
            "overload",
            "rate",
            "requests",
            "streams",
            "sockets",
            "runs",
            "queued",
            "tokens",
            "receivers",
        ];
        for limit in LIMITS {
            drop(self.limited.get_or_create(&[("limit", limit)]));
        }
        for result in ["delivered", "failed"] {
            drop(self.push_attempts.get_or_create(&[("result", result)]));
        }
        for signal in ["traces", "metrics", "logs"] {
            drop(self.telemetry_dropped.get_or_create(&[("signal", signal)]));
        }
        for result in ["taken", "failed"] {
            drop(self.reloads.get_or_create(&[("result", result)]));
        }
    }

    fn register(&self, registry: &mut Registry) {
        let build = Family::<[(&'static str, &'static str); 1], Gauge>::default();
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.register("build_info", "The running version", build);

        registry.register("runs", "Runs that have ended", self.runs.clone());
        let levels = &self.levels;
        registry.register("runs_active", "Runs with an active or queued turn", levels.runs_active.clone());
        registry.register("queue_depth", "Turns that wait for their session", levels.queue_depth.clone());
        registry.register("followers", "Readers of runs", levels.followers.clone());
        registry.register("connections", "Open connections of clients", levels.connections.clone());
        registry.register("sockets", "Open WebSockets of clients", levels.sockets.clone());
        registry.register("streams_open", "Open streamed responses", self.streams_open.clone());
        self.carried.register(registry);
        registry.register("requests", "Answers to requests, by status", self.requests.clone());
        registry.register("auth_failures", "Refused credentials", self.auth_failures.clone());
        registry.register("limited", "Requests that exceeded a limit", self.limited.clone());
        let (name, help) = ("tls_handshakes_failed", "TLS handshakes of clients that failed");
        registry.register(name, help, self.tls_handshakes_failed.clone());
        self.register_durations(registry);
        self.register_upstreams(registry);

        registry.register("store_failures", "Transactions that failed", self.store.failures.clone());
        let (name, help) = ("store", "The size of the store");
        registry.register_with_unit(name, help, Unit::Bytes, levels.store_bytes.clone());
        registry.register("store_owed", "Runs with pending writes", levels.store_owed.clone());
        registry.register_collector(Box::new(self.store.clone()));
        registry.register("push_attempts", "Webhooks that were sent, by result", self.push_attempts.clone());
        registry.register("push_given_up", "Webhooks that were given up", self.push_given_up.clone());
        registry.register("reloads", "Reloads of the configuration", self.reloads.clone());
        let (name, help) = ("config_last_reload_successful", "1 unless the last reload failed");
        registry.register(name, help, self.last_reload_successful.clone());
        registry.register("log_lines_dropped", "Log lines that could not be written", self.lines_dropped.clone());
        let help = "Spans, reports of metrics and log records that no collector accepted";
        registry.register("otlp_dropped", help, self.telemetry_dropped.clone());
    }

    fn register_durations(&self, registry: &mut Registry) {
        let mut seconds = |name, help, metric| {
            registry.register_with_unit(name, help, Unit::Seconds, metric);
        };
        let help = "Time from the start of a turn to the agent's first event";
        seconds("time_to_first_event", help, self.first_event.clone());
        seconds("event_gap", "Time between two pieces of an agent's answer", self.event_gap.clone());

        let help = "Time from the first input of a run to its end";
        registry.register_with_unit("run_duration", help, Unit::Seconds, self.run_duration.clone());
        let commits = Family::<[(&'static str, &'static str); 1], Histogram, _>::new_with_constructor({
            let commit = self.store.commit.clone();
            move || commit.clone()
        });
        drop(commits.get_or_create(&[("operation", "commit")]));
        registry.register_with_unit("store", "Durations of transactions of the store", Unit::Seconds, commits);
    }

    fn register_upstreams(&self, registry: &mut Registry) {
        let help = "Runs by endpoint";
        registry.register("upstream_requests", help, self.levels.upstream_requests.clone());
        registry.register(
            "upstream_retries",
            "Requests that were repeated because an endpoint did not process them",
            self.levels.upstream_retries.clone(),
        );
        registry.register("upstream_ejections", "Ejections of an endpoint", self.levels.upstream_ejections.clone());
        registry.register(
            "upstream_healthy",
            "1 if an endpoint is in use, 0 if it is ejected or unhealthy",
            self.levels.upstream_healthy.clone(),
        );
    }

    /// The counters of the agent of this name.
    #[must_use]
    pub fn agent(self: &Arc<Self>, name: &str) -> Arc<AgentMetrics> {
        let name: Arc<str> = Arc::from(name);
        let labels = AgentLabels { agent: Arc::clone(&name) };
        Arc::new(AgentMetrics {
            first_event: self.first_event.get_or_create(&labels).clone(),
            event_gap: self.event_gap.get_or_create(&labels).clone(),
            metrics: Arc::clone(self),
            name,
        })
    }

    /// The counts since the last call, for the keeper of the [`History`].
    #[must_use]
    pub fn take_recent(&self) -> PeriodCounts {
        self.recent.take()
    }

    /// Why an agent's latest failed run failed. `None`: none has since the start.
    #[must_use]
    pub fn last_fault(&self, agent: &str) -> Option<LastFault> {
        self.recent.last_fault(agent)
    }

    /// The counters of a store.
    #[must_use]
    pub const fn store(&self) -> &StoreMetrics {
        &self.store
    }

    /// Counts an answer. `route` is its path as configured, empty outside of all routes.
    pub fn count_request(&self, route: &Arc<str>, protocol: &'static str, status: u16, caller: Option<&Arc<str>>) {
        let caller = self.callers.label(caller);
        let labels = RequestLabels { route: Arc::clone(route), protocol, code: status, caller };
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts content that was changed or lost.
    pub fn content_lost(&self, lost: &ContentLost) {
        self.carried.lost(lost);
    }

    /// Counts one open stream until the guard is dropped.
    #[must_use]
    pub fn open_stream(&self, route: &Arc<str>, protocol: &'static str) -> OpenStream {
        let gauge = self.streams_open.get_or_create(&RouteLabels { route: Arc::clone(route), protocol }).clone();
        gauge.inc();
        OpenStream(gauge)
    }

    /// Counts credentials that were refused, by a reason of ours.
    pub fn auth_failed(&self, reason: &'static str) {
        self.auth_failures.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a request that exceeded a limit, by the limit's name.
    pub fn limited(&self, limit: &'static str) {
        self.limited.get_or_create(&[("limit", limit)]).inc();
    }

    /// Counts a TLS handshake of a client that failed, or did not end in time.
    pub fn tls_handshake_failed(&self) {
        self.tls_handshakes_failed.inc();
    }

    /// Counts a webhook that was sent.
    pub fn pushed(&self, delivered: bool) {
        let result = if delivered { "delivered" } else { "failed" };
        self.push_attempts.get_or_create(&[("result", result)]).inc();
    }

    /// Counts a webhook that is not tried again.
    pub fn push_given_up(&self) {
        self.push_given_up.inc();
    }

    /// Counts a reload of the configuration.
    pub fn reloaded(&self, taken: bool) {
        let result = if taken { "taken" } else { "failed" };
        self.reloads.get_or_create(&[("result", result)]).inc();
        self.last_reload_successful.set(i64::from(taken));
    }

    /// Counts spans, reports or log records that no collector took.
    pub fn telemetry_dropped(&self, signal: &'static str, count: u64) {
        self.telemetry_dropped.get_or_create(&[("signal", signal)]).inc_by(count);
    }

    /// The counters of turns for collectors.
    #[must_use]
    pub const fn gen_ai(&self) -> &GenAiMetrics {
        &self.gen_ai
    }

    /// Whether requests and runs are counted by caller from now on.
    pub fn count_callers(&self, on: bool) {
        self.callers.set(on);
    }

    /// Counts a line that could not be written to this log.
    pub fn line_dropped(&self, log: &'static str) {
        self.lines_dropped.get_or_create(&[("log", log)]).inc();
    }

    /// All metrics as text.
    #[must_use]
    pub fn encode(&self, format: Format, levels: &Levels) -> String {
        // Under the lock, so that no other scrape sees gauges that are being set.
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        self.levels.set(levels);
        self.store.set_levels(levels.replica);
        let mut text = String::new();
        // Writing into a string fails only if an encoder has an error of its own, and ours have none.
        let encoded = prometheus_client::encoding::text::encode(&mut text, &registry);
        debug_assert!(encoded.is_ok(), "metrics are encoded");
        match format {
            Format::OpenMetrics => text,
            Format::Prometheus => text::to_prometheus(&text),
        }
    }
}

impl LevelGauges {
    fn set_upstreams(&self, upstreams: &[UpstreamLevel]) {
        let counters = [&self.upstream_requests, &self.upstream_retries, &self.upstream_ejections];
        counters.iter().for_each(|family| family.clear());
        self.upstream_healthy.clear();
        for one in upstreams {
            let labels = EndpointLabels { agent: Arc::clone(&one.agent), endpoint: one.endpoint.clone() };
            for (family, value) in counters.iter().zip([one.requests, one.retries, one.ejections]) {
                family.get_or_create(&labels).inner().store(value, Ordering::Relaxed);
            }
            self.upstream_healthy.get_or_create(&labels).set(i64::from(one.healthy));
        }
    }

    fn set(&self, levels: &Levels) {
        for (family, numbers) in [(&self.runs_active, &levels.runs_active), (&self.queue_depth, &levels.queue_depth)] {
            // Agents that left the configuration leave here too.
            family.clear();
            for (agent, number) in numbers {
                let labels = AgentLabels { agent: Arc::clone(agent) };
                family.get_or_create(&labels).set(i64::try_from(*number).unwrap_or(i64::MAX));
            }
        }

        self.set_upstreams(&levels.upstreams);
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.followers.set(number(levels.followers));
        self.connections.set(number(levels.connections));
        self.sockets.set(number(levels.sockets));
        self.store_bytes.set(i64::try_from(levels.store_bytes).unwrap_or(i64::MAX));
        self.store_owed.set(number(levels.store_owed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_written_in_both_formats() {
        let metrics = Metrics::new();
        let agent = metrics.agent("a \"b\"\\\n");
        let took = Duration::from_secs(3);
        agent.run_ended(&RunEnd {
            protocol: "a2a",
            outcome: "failed",
            code: "TIMEOUT",
            blame: Some(Blame::Upstream),
            caller: None,
            took,
        });
        let _stream = metrics.open_stream(&Arc::from("/x"), "a2a");
        drop(metrics.open_stream(&Arc::from("/x"), "a2a"));
        let upstream = UpstreamLevel {
            agent: Arc::clone(agent.name()),
            endpoint: "h:1".to_owned(),
            healthy: false,
            requests: 9,
            retries: 2,
            ejections: 1,
        };
        let runs_active = vec![(Arc::from("z"), 2)];
        let levels = Levels { runs_active, upstreams: vec![upstream], store_bytes: 7, ..Levels::default() };

        let open = metrics.encode(Format::OpenMetrics, &levels);
        let name = r#"agent="a \"b\"\\\n""#;
        for line in [
            format!("interlingua_runs_total{{{name},protocol=\"a2a\",outcome=\"failed\",code=\"TIMEOUT\"}} 1"),
            format!("interlingua_run_duration_seconds_bucket{{le=\"2.5\",{name},outcome=\"failed\"}} 0"),
            format!("interlingua_run_duration_seconds_bucket{{le=\"5.0\",{name},outcome=\"failed\"}} 1"),
            format!("interlingua_upstream_requests_total{{{name},endpoint=\"h:1\"}} 9"),
            format!("interlingua_upstream_healthy{{{name},endpoint=\"h:1\"}} 0"),
            "interlingua_streams_open{route=\"/x\",protocol=\"a2a\"} 1".to_owned(),
            "interlingua_runs_active{agent=\"z\"} 2".to_owned(),
            "interlingua_store_bytes 7".to_owned(),
        ] {
            assert!(open.lines().any(|found| found == line), "{line} is not in\n{open}");
        }
        assert!(open.ends_with("# EOF\n") && open.contains("# TYPE interlingua_runs counter\n"));

        let older = metrics.encode(Format::Prometheus, &Levels::default());
        assert!(older.contains("# TYPE interlingua_runs_total counter\n") && !older.contains("# EOF"), "{older}");
        assert!(!older.contains("agent=\"z\""), "an agent that is gone is not reported");
    }
}
