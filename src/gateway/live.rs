//! The parts of a running gateway that a reload replaces. All are prepared first, which may fail, then stored, which
//! cannot fail.
//!
//! Not here: their preparation ([`super::prepare`]), and the triggers of a reload (`crate::reload`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use serde_json::{Value, json};

use super::rates::RouteRates;
use interlingua_base::clock;
use interlingua_base::ports::TelemetryClient;
use interlingua_base::secrets::Masks;
use interlingua_base::tls::SharedTls;
use interlingua_callers::{Callers, Use, day_of};
use interlingua_config::{self as config, Auth, CallerProfile, RequestLimits, Settings};
use interlingua_engine::{self as engine, Engine};
use interlingua_observe::metrics::Metrics;
use interlingua_observe::{AccessLog, LogTarget, Logs, Observer, Otlp, OtlpSettings, SharedObserver, forward_logs};
use interlingua_server::{self as server, Control, SharedRoutes};
use interlingua_upstream::otlp::{Collector, OtlpProtocol};

/// The parts of a running gateway that a reload replaces. Clones are the same parts.
#[derive(Clone)]
pub struct LiveParts {
    pub(crate) engine: Engine,
    pub(crate) observer: SharedObserver,
    pub(super) callers: Arc<Callers>,
    pub(super) routes: SharedRoutes,
    pub(super) control: Control,
    /// Time between a signal to stop and the end of normal service. During this time the gateway is not ready.
    pub(super) shutdown_delay: SharedTime,
    /// Time that runs have to finish after `shutdown_delay`.
    pub(super) drain: SharedTime,
    pub(super) rates: Arc<ArcSwap<RouteRates>>,
    pub(super) admin_key: Arc<ArcSwapOption<[u8; 32]>>,
    /// Also watch their files by themselves.
    pub(super) tls: Option<Arc<SharedTls>>,
    pub(super) admin_tls: Option<Arc<SharedTls>>,
    pub(super) admin_access: Arc<ArcSwap<config::AdminAccess>>,
    /// Masks of the secrets in force: enforced for as long as they are here.
    pub(super) secrets: Arc<ArcSwap<Masks>>,
}

/// A length of time. Clones are one value.
#[derive(Clone)]
pub(super) struct SharedTime(Arc<AtomicU64>);

impl SharedTime {
    pub(super) fn new(time: Duration) -> Self {
        let value = Self(Arc::default());
        value.set(time);
        value
    }

    fn set(&self, time: Duration) {
        self.0.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// A configuration that can be taken.
pub(crate) struct PreparedReload {
    /// The number of new and changed agents.
    pub(crate) changed_agents: usize,
    pub(super) agents: Vec<Arc<engine::Agent>>,
    /// The limits of each agent.
    pub(super) limits: Vec<RequestLimits>,
    /// For each agent: whether some client reads its own events.
    pub(super) event_readers: Vec<bool>,
    pub(super) rules: engine::RetentionRules,
    pub(super) auth: Auth,
    pub(super) profiles: Vec<CallerProfile>,
    pub(super) server: server::Settings,
    pub(super) routes: server::Routes,
    pub(super) observer: Observer,
    pub(super) caller_label: bool,
    pub(super) shutdown_delay: Duration,
    pub(super) drain: Duration,
    pub(super) rates: RouteRates,
    pub(super) admin_key: Option<[u8; 32]>,
    pub(super) admin_access: config::AdminAccess,
    pub(super) secrets: Masks,
}

impl LiveParts {
    /// The current usage of all callers.
    pub(crate) fn callers_in_use(&self) -> Value {
        let day = day_of(clock::now());
        let shown = self.callers.in_use().into_iter().map(|(caller, usage)| {
            json!({
                "caller": &*caller,
                "runs": usage.under_way(Use::Run),
                "streams": usage.under_way(Use::Stream),
                "tokens_today": usage.spent_tokens(day),
            })
        });
        shown.collect()
    }

    /// Reads the files of TLS again. Blocks. The watcher would read them soon anyway, but after a reload the caller
    /// expects them in use.
    pub(crate) fn reload_tls(&self) {
        for tls in [&self.tls, &self.admin_tls].into_iter().flatten() {
            tls.reload();
        }
    }

    /// Reports to this one from now on.
    fn observe(&self, observer: Observer, caller_label: bool) {
        let observer = Arc::new(observer);
        observer.metrics().count_callers(caller_label);
        forward_logs(observer.otlp());
        let before = self.observer.swap(Arc::clone(&observer));
        if let Some(before) = before.otlp()
            && !observer.otlp().is_some_and(|now| Arc::ptr_eq(now, before))
        {
            before.retire();
        }
    }

    /// Takes a configuration. Routes come last: a request that finds a new route finds its agents.
    pub(crate) fn apply(&self, prepared: PreparedReload) {
        let PreparedReload {
            agents,
            limits,
            event_readers,
            rules,
            auth,
            profiles,
            server,
            routes,
            rates,
            observer,
            shutdown_delay,
            drain,
            admin_key,
            admin_access,
            secrets,
            caller_label,
            ..
        } = prepared;
        // First: new parts may log new secrets.
        secrets.enforce();
        self.secrets.store(Arc::new(secrets));
        for ((agent, limits), reads_events) in agents.iter().zip(limits).zip(event_readers) {
            agent.usage.set_shared_limits(limits);
            agent.protocol_events.store(reads_events, Ordering::Relaxed);
        }
        self.engine.replace(agents, rules);
        self.callers.replace(&auth, &profiles);
        self.control.replace_settings(server);
        self.shutdown_delay.set(shutdown_delay);
        self.drain.set(drain);
        self.admin_key.store(admin_key.map(Arc::new));
        self.admin_access.store(Arc::new(admin_access));
        // The files of the observer were opened again, so that rotated logs are closed.
        self.observe(observer, caller_label);
        self.rates.store(Arc::new(rates));
        self.routes.replace(routes);
    }
}

/// Opens the logs of a configuration. `otlp`: what sends to its collectors already.
pub(super) fn open_logs(
    settings: &Settings,
    metrics: &Arc<Metrics>,
    otlp: Option<Arc<Otlp>>,
) -> anyhow::Result<Observer> {
    let access = settings.observe.access_log.as_ref().map(|log| AccessLog {
        target: log.path.clone().map_or(LogTarget::Stdout, LogTarget::File),
        json: log.json,
        hash_sessions: log.hash_sessions,
    });
    let otlp = match otlp {
        Some(otlp) => Some(otlp),
        None => start_otlp(&settings.observe, metrics)?,
    };
    Ok(Observer::open(&Logs { access, audit: settings.observe.audit.clone() }, Arc::clone(metrics), otlp)?)
}

/// Starts sending to collectors. `None`: nothing is sent.
fn start_otlp(observe: &config::Observe, metrics: &Arc<Metrics>) -> anyhow::Result<Option<Arc<Otlp>>> {
    if observe.traces.is_none() && observe.metrics.is_none() && observe.logs.is_none() {
        return Ok(None);
    }

    let client = |collector: &config::Collector| -> anyhow::Result<Arc<dyn TelemetryClient>> {
        let protocol = if collector.grpc { OtlpProtocol::Grpc } else { OtlpProtocol::Http };
        let client = Collector::new(collector.endpoint.clone(), protocol, &collector.headers);
        Ok(Arc::new(client.map_err(anyhow::Error::msg)?))
    };
    let reports = observe.metrics.as_ref();
    let otlp = Otlp::start(
        OtlpSettings {
            service_name: observe.service_name.clone(),
            traces: observe.traces.as_ref().map(|traces| client(&traces.collector)).transpose()?,
            sample: observe.traces.as_ref().map_or(0.0, |traces| traces.sample),
            content: observe.traces.as_ref().is_some_and(|traces| traces.content),
            metrics: reports
                .map(|reports| Ok::<_, anyhow::Error>((client(&reports.collector)?, reports.every)))
                .transpose()?,
            logs: observe.logs.as_ref().map(client).transpose()?,
        },
        metrics,
    );
    Ok(Some(Arc::new(otlp?)))
}
