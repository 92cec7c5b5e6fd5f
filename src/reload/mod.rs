//! Reloading the configuration of a running gateway: by SIGHUP, by a change of its files, or by the admin listener.
//!
//! The file is read whole and judged whole. Either everything of it is taken at once, or the last good configuration
//! stays and the log says where the new one is wrong. What needs a restart is named, and shown as it is in force. Not
//! here: how the parts of the gateway replace what they have (`LiveParts::apply`).

mod files;
mod views;
pub(crate) mod warnings;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use interlingua_core::event::Millis;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use self::files::WatchedFiles;
use crate::gateway::{Gateway, LiveParts, NamedSources};
use interlingua_base::clock;
use interlingua_base::ports;
use interlingua_config::{Diagnostics, LoadedConfig, Settings, Severity, StoreKind};
use interlingua_observe::{Action, AuditEntry};

/// Interval between two checks of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The cause of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// SIGHUP.
    Signal,
    /// A file has changed.
    File,
    /// The admin listener.
    Admin,
}

impl Trigger {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::File => "file",
            Self::Admin => "admin",
        }
    }
}

/// The result of a reload.
#[derive(Clone, Debug)]
pub struct ReloadResult {
    /// The keys whose change needs a restart: they stay unchanged.
    pub restart: Vec<&'static str>,
    /// The warnings about the configuration.
    pub warnings: Diagnostics,
    /// The number of new and changed agents.
    pub changed_agents: usize,
}

/// The configuration in force.
struct AppliedConfig {
    settings: Settings,
    /// The file's text, with secrets masked.
    source: String,
    /// The files and variables that it names.
    named: NamedSources,
    /// The warnings about it, which were logged.
    warned: warnings::ShownWarnings,
    at: Millis,
}

/// The result of the last reload.
#[derive(Clone)]
struct LastReload {
    at: Millis,
    trigger: &'static str,
    error: Option<String>,
}

/// Reloads the configuration of a running gateway. Clones are one reloader.
#[derive(Clone)]
pub struct Reloader(Arc<Inner>);

struct Inner {
    gateway: Gateway,
    file: PathBuf,
    parts: LiveParts,
    applied: ArcSwap<AppliedConfig>,
    last: Mutex<LastReload>,
    watched: Mutex<WatchedFiles>,
    /// One reload at a time.
    serial: tokio::sync::Mutex<()>,
}

impl Reloader {
    /// For a gateway that was started with what was loaded from this file.
    #[must_use]
    pub fn new(gateway: Gateway, parts: LiveParts, file: PathBuf, loaded: LoadedConfig) -> Self {
        let (at, named) = (clock::now(), NamedSources::by(&loaded));
        let watched = files::without_keys(loaded.files.clone(), &loaded.settings);
        let warned = warnings::messages(&loaded.diagnostics);
        let source = loaded.diagnostics.source().to_owned();
        let applied = AppliedConfig { settings: loaded.settings, source, named, warned, at };
        Self(Arc::new(Inner {
            gateway,
            file,
            parts,
            applied: ArcSwap::from_pointee(applied),
            last: Mutex::new(LastReload { at, trigger: "start", error: None }),
            watched: Mutex::new(WatchedFiles::new(watched)),
            serial: tokio::sync::Mutex::default(),
        }))
    }

    /// Reads the configuration again and activates it as a whole.
    ///
    /// # Errors
    /// The errors of the configuration. The previous configuration stays active.
    pub async fn reload(&self, trigger: Trigger) -> Result<ReloadResult, Diagnostics> {
        let _serial = self.0.serial.lock().await;
        let inner = Arc::clone(&self.0);
        // Files are read on another thread. Agents are built on this one: some have a task of their own.
        let read = tokio::task::spawn_blocking(move || inner.read()).await.unwrap_or_else(|error| {
            let message = format!("the configuration could not be read: {error}");
            Err(Diagnostics::of_error(&self.0.file, message))
        });
        let warned = self.0.applied.load_full();
        let done = read.and_then(|loaded| self.0.take(loaded));

        self.note(trigger, &done, &warned.warned);
        done
    }

    /// Reloads whenever a file of the configuration changes. Never returns; dropped, it stops.
    pub async fn watch(self) {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let inner = Arc::clone(&self.0);
            let polled = tokio::task::spawn_blocking(move || inner.watched().poll()).await;
            if polled.unwrap_or(false) {
                let _ = self.reload(Trigger::File).await;
            }
        }
    }

    /// Logs, counts and audits the result of a reload. `warned`: the warnings that were logged before.
    fn note(&self, trigger: Trigger, done: &Result<ReloadResult, Diagnostics>, warned: &warnings::ShownWarnings) {
        let error = done.as_ref().err().map(Diagnostics::first_line);
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) =
            LastReload { at: clock::now(), trigger: trigger.as_str(), error: error.clone() };

        let observer = self.0.parts.observer.load_full();
        observer.metrics().reloaded(done.is_ok());
        let detail = error.as_deref().map_or_else(|| "taken".to_owned(), |error| format!("failed: {error}"));
        observer.audit(AuditEntry::new(Action::Reload).who(trigger.as_str()).detail(detail));
        match done {
            Ok(ReloadResult { restart, warnings, changed_agents }) => {
                let restart = restart.join(", ");
                if restart.is_empty() {
                    tracing::info!(trigger = trigger.as_str(), changed_agents, "configuration reloaded");
                } else {
                    tracing::warn!(
                        trigger = trigger.as_str(),
                        "configuration reloaded; these need a restart: {restart}"
                    );
                }
                warnings::log_new(warnings, warned);
            }
            Err(errors) => {
                let first = error.unwrap_or_default();
                tracing::error!("configuration not reloaded, the previous one stays active: {first}");
                tracing::debug!("{}", errors.render(false));
            }
        }
    }
}

impl Inner {
    fn watched(&self) -> std::sync::MutexGuard<'_, WatchedFiles> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> Result<LoadedConfig, Diagnostics> {
        let (loaded, files) = self.gateway.load_watching(&self.file);
        // With errors, all of them: the configuration is tried again once one changes.
        self.watched().replace(match &loaded {
            Ok(loaded) => files::without_keys(files, &loaded.settings),
            Err(_) => files,
        });
        if loaded.is_ok() {
            self.parts.reload_tls();
        }
        loaded
    }

    fn take(&self, loaded: LoadedConfig) -> Result<ReloadResult, Diagnostics> {
        let (running, named) = (self.applied.load(), NamedSources::by(&loaded));
        let mut settings = loaded.settings;
        let restart = keep_what_needs_restart(&mut settings, &running.settings);
        let prepared = self.gateway.prepare(&settings, &running.settings, &self.parts);
        let prepared = prepared.map_err(|error| Diagnostics::of_error(&self.file, format!("{error:#}")))?;
        let changed_agents = prepared.changed_agents;
        self.parts.apply(prepared);

        let source = loaded.diagnostics.source().to_owned();
        let warned = warnings::messages(&loaded.diagnostics);
        self.applied.store(Arc::new(AppliedConfig { settings, source, named, warned, at: clock::now() }));
        Ok(ReloadResult { restart, warnings: loaded.diagnostics, changed_agents })
    }
}

/// Puts what cannot change while the gateway is running back to what is in force. Returns the names of such keys.
fn keep_what_needs_restart(new: &mut Settings, running: &Settings) -> Vec<&'static str> {
    let mut restart = Vec::new();
    let mut keep = |name, differs: bool| {
        if differs {
            restart.push(name);
        }
    };
    keep("server.listen", new.server.listen != running.server.listen);
    keep("server.tls", new.server.tls != running.server.tls);
    keep("server.workers", new.server.workers != running.server.workers);
    keep("store.kind", new.store.kind != running.store.kind);
    let is_file = running.store.kind == StoreKind::Sqlite && new.store.kind == running.store.kind;
    keep("store.path", is_file && new.store.path != running.store.path);
    let database = |settings: &Settings| {
        let postgres = settings.store.postgres.as_ref();
        postgres
            .map(|store| (store.url.expose_secret().to_owned(), store.schema.clone(), store.lease, store.connections))
    };
    keep("store.url", new.store.kind == running.store.kind && database(new) != database(running));
    let listens = |settings: &Settings| settings.admin.as_ref().map(|admin| admin.listen);
    keep("admin.listen", listens(new) != listens(running));
    let tls = |settings: &Settings| settings.admin.as_ref().and_then(|admin| admin.tls.clone());
    keep("admin.tls", tls(new) != tls(running));
    // The listener always asks for credentials: a gateway that was started with a key has made none of its own.
    let key = |settings: &Settings| settings.admin.as_ref().and_then(|admin| admin.key);
    let loses_key = key(running).is_some() && new.admin.as_ref().is_some_and(|admin| admin.key.is_none());
    keep("admin.key", loses_key);

    new.server.listen = running.server.listen;
    new.server.tls.clone_from(&running.server.tls);
    new.server.workers = running.server.workers;
    new.store.kind = running.store.kind;
    new.store.path.clone_from(&running.store.path);
    new.store.postgres.clone_from(&running.store.postgres);
    // Compared as a whole: without a configured key, a certificate is required, and the other way round.
    if listens(new) != listens(running) || tls(new) != tls(running) {
        new.admin.clone_from(&running.admin);
    } else if let Some(admin) = new.admin.as_mut().filter(|_| loses_key) {
        admin.key = key(running);
    }
    restart
}

impl ports::Reload for Reloader {
    fn reload(&self) -> LocalBoxFuture<'static, Result<Value, Value>> {
        let reloader = self.clone();
        async move {
            match Self::reload(&reloader, Trigger::Admin).await {
                Ok(ReloadResult { restart, warnings, changed_agents }) => Ok(json!({
                    "restart": restart,
                    "warnings": views::diagnostics(&warnings, Severity::Warning).collect::<Value>(),
                    "changed_agents": changed_agents,
                })),
                Err(found) => Err(json!({
                    "code": "CONFIG_INVALID",
                    "errors": views::diagnostics(&found, Severity::Error).collect::<Value>(),
                    "warnings": views::diagnostics(&found, Severity::Warning).collect::<Value>(),
                })),
            }
        }
        .boxed_local()
    }

    fn last(&self) -> Value {
        let last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        json!({ "at": last.at, "trigger": last.trigger, "successful": last.error.is_none(), "error": last.error })
    }

    fn config(&self) -> Value {
        let applied = self.0.applied.load();
        json!({ "since": applied.at, "in_force": views::settings(&applied.settings), "source": applied.source })
    }

    fn check(&self, text: &str) -> Value {
        let (read, unread) = self.0.gateway.check_text(&self.0.file, text, &self.0.applied.load().named);
        let unread = unread.iter().map(|name| {
            let message = format!(
                "variable {name:?} was not read: the console reads only variables that the running configuration names"
            );
            json!({ "line": null, "column": null, "message": message })
        });
        match read {
            Ok((settings, warnings)) => json!({
                "errors": [],
                "warnings": views::diagnostics(&warnings, Severity::Warning).chain(unread).collect::<Value>(),
                "routes": views::routes(&settings),
            }),
            Err(found) => json!({
                "errors": views::diagnostics(&found, Severity::Error).collect::<Value>(),
                "warnings": views::diagnostics(&found, Severity::Warning).chain(unread).collect::<Value>(),
                "routes": [],
            }),
        }
    }

    fn routes(&self) -> Value {
        views::routes(&self.0.applied.load().settings)
    }

    fn agents(&self) -> Value {
        views::agents(&self.0.applied.load().settings)
    }

    fn callers(&self) -> Value {
        self.0.parts.callers_in_use()
    }
}
