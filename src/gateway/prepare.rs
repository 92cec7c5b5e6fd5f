//! Reads a configuration for a running gateway, and builds everything that it needs.
//!
//! Not here: taking it ([`super::live`]).

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use super::live::{LiveParts, PreparedReload, open_logs};
use super::{Gateway, retention_rules, server_settings};
use interlingua_config::{self as config, Diagnostics, Env, LoadedConfig, Settings};
use interlingua_server as server;

/// The files and variables that a configuration names.
#[derive(Default)]
pub(crate) struct NamedSources {
    files: HashSet<PathBuf>,
    variables: HashSet<String>,
}

impl NamedSources {
    pub(crate) fn by(loaded: &LoadedConfig) -> Self {
        let (files, variables) = (loaded.files.iter().cloned(), loaded.variables.iter().cloned());
        Self { files: files.collect(), variables: variables.collect() }
    }
}

impl Gateway {
    /// Reads a configuration file. Returns the files that were read too, also after an error.
    pub(crate) fn load_watching(&self, path: &Path) -> (Result<LoadedConfig, Diagnostics>, Vec<PathBuf>) {
        let (read, looked_up) = (RefCell::new(vec![path.to_owned()]), RefCell::default());
        let process = Env::process();
        let env = |name: &str| {
            Vec::push(&mut looked_up.borrow_mut(), name.to_owned());
            (process.env)(name)
        };
        let file = |path: &Path, max: usize| {
            read.borrow_mut().push(path.to_owned());
            (process.file)(path, max)
        };
        let loaded = config::load(path, &self.protocols(), &Env { env: &env, file: &file, ..process });
        let (files, variables) = (read.into_inner(), looked_up.into_inner());
        let loaded = loaded.map(|(settings, diagnostics)| LoadedConfig {
            settings,
            diagnostics,
            files: files.clone(),
            variables,
        });
        (loaded, files)
    }

    /// Checks a text as the content of this file. It reads only the files and variables in `named`: otherwise a text
    /// could probe which files and variables exist on this machine. Also returns the names of the other variables,
    /// which have placeholders.
    pub(crate) fn check_text(
        &self,
        path: &Path,
        text: &str,
        named: &NamedSources,
    ) -> (Result<(Settings, Diagnostics), Diagnostics>, BTreeSet<String>) {
        let (process, unread) = (Env::process(), RefCell::new(BTreeSet::new()));
        let env = |name: &str| {
            if named.variables.contains(name) {
                return (process.env)(name);
            }
            unread.borrow_mut().insert(name.to_owned());
            Some(format!("the variable {name} is not read by a check of the console"))
        };
        let file = |wanted: &Path, max: usize| {
            if wanted == path {
                return Ok(text.as_bytes().to_vec());
            }
            if !named.files.contains(wanted) {
                return Err(io::Error::other("the console reads only files that the running configuration names"));
            }
            // Opening a device or a pipe may block without limit.
            if !fs::metadata(wanted)?.is_file() {
                return Err(io::Error::other("the console reads only regular files"));
            }
            (process.file)(wanted, max)
        };
        let mode = |wanted: &Path| named.files.contains(wanted).then(|| (process.mode)(wanted)).flatten();
        let read = config::load(path, &self.protocols(), &Env { env: &env, file: &file, mode: &mode });
        (read, unread.into_inner())
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
    ) -> anyhow::Result<PreparedReload> {
        let observer = parts.observer.load();
        let live = parts.engine.agents();
        let mut changed_agents = 0;
        let mut agents = Vec::with_capacity(settings.agents.len());
        let mut limits = Vec::with_capacity(settings.agents.len());
        let mut event_readers = Vec::with_capacity(settings.agents.len());
        for agent in &settings.agents {
            let is_same = settings.fingerprint(&agent.name) == running.fingerprint(&agent.name);
            let known = live.iter().find(|known| known.name == agent.name);
            match known.filter(|_| is_same) {
                Some(known) => agents.push(Arc::clone(known)),
                None => {
                    changed_agents += 1;
                    agents.push(self.agent(agent, settings, observer.metrics(), known.map(|known| &**known))?);
                }
            }
            limits.push(agent.limits);
            event_readers.push(settings.reads_protocol_events(&agent.name));
        }

        // Its connection and what waits to be sent stay, unless it goes elsewhere now.
        let otlp = observer.otlp().filter(|_| settings.observe.sends_like(&running.observe)).cloned();
        let (served, rates) = self.routes(settings, &parts.callers, &parts.rates.load())?;
        let rules = retention_rules(settings, &served, &parts.callers);
        Ok(PreparedReload {
            changed_agents,
            agents,
            limits,
            event_readers,
            rules,
            auth: settings.auth.clone(),
            profiles: settings.callers.clone(),
            server: server_settings(settings, parts.tls.clone()),
            routes: server::Routes::build(served).map_err(anyhow::Error::msg)?,
            observer: open_logs(settings, observer.metrics(), otlp)?.continuing(&observer),
            caller_label: settings.observe.caller_label,
            shutdown_delay: settings.server.shutdown_delay,
            drain: settings.server.drain,
            rates,
            admin_key: settings.admin.as_ref().and_then(|admin| admin.key),
            secrets: settings.secrets.clone(),
            admin_access: settings.admin.as_ref().map(|admin| admin.access).unwrap_or_default(),
        })
    }
}
