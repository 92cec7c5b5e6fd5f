//! What of a running gateway a reload of the configuration replaces: prepared whole, which may fail, then stored, which
//! cannot.
//!
//! Not here: when that happens and what is reported of it (`crate::reload`).

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use serde_json::{Value, json};

use super::{Gateway, retention_rules, server_settings};
use crate::callers::{Callers, Use, day_of};
use crate::clock;
use crate::config::{self, Diagnostics, Env, Loaded, Settings};
use crate::engine::{self, Engine};
use crate::metrics::Metrics;
use crate::observe::{AccessLog, Logs, Observer, SharedObserver, Target};
use crate::server::{self, Control, SharedRoutes};
use crate::tls::SharedTls;

/// The parts of a running gateway that a reload replaces. Clones are the same parts.
#[derive(Clone)]
pub struct LiveParts {
    pub(crate) engine: Engine,
    pub(crate) observer: SharedObserver,
    pub(super) callers: Arc<Callers>,
    pub(super) routes: SharedRoutes,
    pub(super) control: Control,
    pub(super) drain: DrainTime,
    pub(super) admin_key: Arc<ArcSwapOption<[u8; 32]>>,
    /// Watches its files by itself.
    pub(super) tls: Option<Arc<SharedTls>>,
}

/// How long runs may continue after a signal to stop. Clones are one value.
#[derive(Clone)]
pub(super) struct DrainTime(Arc<AtomicU64>);

impl DrainTime {
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
pub(crate) struct Prepared {
    auth: config::Auth,
    callers: Vec<config::CallerProfile>,
    /// How many agents are new or have changed.
    pub(crate) changed_agents: usize,
    agents: Vec<Arc<engine::Agent>>,
    rules: engine::RetentionRules,
    server: server::Settings,
    routes: server::Routes,
    observer: Observer,
    drain: Duration,
    admin_key: Option<[u8; 32]>,
}

impl LiveParts {
    /// What callers use now.
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
}

impl Gateway {
    /// Reads a configuration file. Returns also the files that were read, whatever came of it.
    pub(crate) fn load_watching(&self, path: &Path) -> (Result<Loaded, Diagnostics>, Vec<PathBuf>) {
        let read = RefCell::new(vec![path.to_owned()]);
        let process = Env::process();
        let file = |path: &Path, max: usize| {
            read.borrow_mut().push(path.to_owned());
            (process.file)(path, max)
        };
        let loaded = config::load(path, &self.protocols(), &Env { file: &file, ..process });
        let files = read.into_inner();
        (loaded.map(|(settings, diagnostics)| Loaded { settings, diagnostics, files: files.clone() }), files)
    }

    /// Builds everything that a configuration needs. Agents that have not changed stay the ones they are, with their
    /// connections and what they remember.
    ///
    /// # Errors
    /// If something cannot be built or opened. Nothing is changed then.
    pub(crate) fn prepare(
        &self,
        settings: &Settings,
        running: &Settings,
        parts: &LiveParts,
    ) -> anyhow::Result<Prepared> {
        let observer = parts.observer.load();
        let live = parts.engine.agents();
        let mut changed_agents = 0;
        let mut agents = Vec::with_capacity(settings.agents.len());
        for agent in &settings.agents {
            let is_same = settings.fingerprint(&agent.name) == running.fingerprint(&agent.name);
            match live.iter().find(|known| is_same && known.name == agent.name) {
                Some(known) => agents.push(Arc::clone(known)),
                None => {
                    changed_agents += 1;
                    agents.push(self.agent(agent, observer.metrics())?);
                }
            }
        }

        let served = self.routes(settings, &parts.callers)?;
        let rules = retention_rules(settings, &served, &parts.callers);
        Ok(Prepared {
            auth: settings.auth.clone(),
            callers: settings.callers.clone(),
            changed_agents,
            agents,
            rules,
            server: server_settings(settings, parts.tls.clone()),
            routes: server::Routes::build(served).map_err(anyhow::Error::msg)?,
            observer: open_logs(settings, observer.metrics())?,
            drain: settings.server.drain,
            admin_key: settings.admin.as_ref().and_then(|admin| admin.key),
        })
    }

    /// Takes a configuration. Routes come last: a request that finds a new route finds its agents.
    pub(crate) fn apply(&self, prepared: Prepared, parts: &LiveParts) {
        let Prepared { auth, callers, agents, rules, server, routes, observer, drain, admin_key, .. } = prepared;
        parts.callers.replace(&auth, &callers);
        parts.engine.replace(agents, rules);
        parts.control.replace_settings(server);
        parts.drain.set(drain);
        parts.admin_key.store(admin_key.map(Arc::new));
        // Its files were opened again, so that rotated logs are let go.
        parts.observer.store(Arc::new(observer));
        parts.routes.replace(routes);
    }
}

/// Opens the logs of a configuration.
pub(super) fn open_logs(settings: &Settings, metrics: &Arc<Metrics>) -> anyhow::Result<Observer> {
    let access = settings.observe.access_log.as_ref().map(|log| AccessLog {
        target: log.path.clone().map_or(Target::Stdout, Target::File),
        json: log.json,
        hash_sessions: log.hash_sessions,
    });
    Ok(Observer::open(&Logs { access, audit: settings.observe.audit.clone() }, Arc::clone(metrics))?)
}
