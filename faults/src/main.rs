//! The fault injection rig: starts a real gateway process, breaks things around it, and measures the consequences.
//!
//! `cargo xtask faults [NAME…]` builds both and runs the named scenarios, or all of them. Each scenario is one file and
//! returns its [`Check`]s; the rig fails if a limit is exceeded or a scenario exceeds its time limit. Only loopback
//! addresses and files in a temporary folder are used.
//!
//! # Adding a scenario
//!
//! A file with a function `run(&Rig) -> Result<Vec<Check>>`, and a row in [`SCENARIOS`].

use interlingua_testing_support::cluster::stream;
use interlingua_testing_support::{framing as forms, paths};

mod abandoned;
mod bombs;
mod certificates;
mod check;
mod collectors;
mod credentials;
mod drain;
mod endpoints;
mod foreign_pages;
mod frames;
mod framing;
mod gateway;
mod http;
mod http2_floods;
mod jwks;
mod kills;
mod leaving;
mod monsters;
mod others;
mod reload;
mod replicas;
mod server;
mod slow_clients;
mod store;
mod tokens;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::check::{Check, print};

/// Input of every scenario.
#[derive(Clone)]
pub(crate) struct Rig {
    /// Path of the gateway binary.
    pub(crate) gateway: PathBuf,
}

impl AsRef<Path> for Rig {
    fn as_ref(&self) -> &Path {
        &self.gateway
    }
}

struct Scenario {
    name: &'static str,
    /// Time limit of the scenario.
    limit: Duration,
    run: fn(&Rig) -> Result<Vec<Check>>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "abandoned", limit: Duration::from_secs(300), run: abandoned::run },
    Scenario { name: "kills", limit: Duration::from_secs(900), run: kills::run },
    Scenario { name: "store", limit: Duration::from_secs(600), run: store::run },
    Scenario { name: "collectors", limit: Duration::from_secs(600), run: collectors::run },
    Scenario { name: "endpoints", limit: Duration::from_secs(300), run: endpoints::run },
    Scenario { name: "leaving", limit: Duration::from_secs(120), run: leaving::run },
    Scenario { name: "reload", limit: Duration::from_secs(300), run: reload::run },
    Scenario { name: "drain", limit: Duration::from_secs(120), run: drain::run },
    Scenario { name: "credentials", limit: Duration::from_secs(120), run: credentials::run },
    Scenario { name: "jwks", limit: Duration::from_secs(240), run: jwks::run },
    Scenario { name: "bombs", limit: Duration::from_secs(600), run: bombs::run },
    Scenario { name: "framing", limit: Duration::from_secs(60), run: framing::run },
    Scenario { name: "http2-floods", limit: Duration::from_secs(180), run: http2_floods::run },
    Scenario { name: "foreign-pages", limit: Duration::from_secs(60), run: foreign_pages::run },
    Scenario { name: "certificates", limit: Duration::from_secs(240), run: certificates::run },
    Scenario { name: "slow-clients", limit: Duration::from_secs(120), run: slow_clients::run },
    Scenario { name: "replicas-killed", limit: Duration::from_secs(180), run: replicas::killed::run },
    Scenario { name: "replicas-upgrade", limit: Duration::from_secs(360), run: replicas::upgrade::run },
    Scenario { name: "replicas-slow", limit: Duration::from_secs(180), run: replicas::slow::run },
    Scenario { name: "replicas-restarted", limit: Duration::from_secs(240), run: replicas::restarted::run },
    Scenario { name: "replicas-full", limit: Duration::from_secs(240), run: replicas::full::run },
    Scenario { name: "replicas-failover", limit: Duration::from_secs(180), run: replicas::failover::run },
    Scenario { name: "replicas-clock", limit: Duration::from_secs(180), run: replicas::clock::run },
    Scenario { name: "replicas-first", limit: Duration::from_secs(180), run: replicas::first::run },
    Scenario { name: "replicas-paused", limit: Duration::from_secs(240), run: replicas::paused::run },
    Scenario { name: "replicas-cut", limit: Duration::from_secs(600), run: replicas::cut::run },
    Scenario { name: "replicas-storm", limit: Duration::from_secs(9_000), run: replicas::storm::run },
];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fault-rig: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool> {
    let mut arguments = std::env::args().skip(1);
    let (Some("--gateway"), Some(gateway)) = (arguments.next().as_deref(), arguments.next()) else {
        bail!("usage: fault-rig --gateway FILE [NAME…]");
    };
    let names: Vec<String> = arguments.collect();
    let known: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.iter().any(|known| is_named(known, name))) {
        bail!(
            "unknown scenario {unknown:?}, the scenarios are {}; the beginning of several names before a hyphen stands \
             for all of them",
            known.join(", ")
        );
    }

    let rig = Rig { gateway: PathBuf::from(gateway).canonicalize().context("cannot find the gateway")? };
    http::raise_open_files()?;
    let mut checks = Vec::new();
    for scenario in SCENARIOS {
        if names.is_empty() || names.iter().any(|name| is_named(scenario.name, name)) {
            let started = Instant::now();
            println!("{} …", scenario.name);
            checks.extend(bounded(scenario, &rig)?.into_iter().map(|check| (scenario.name, check)));
            println!("{} took {:.1} s", scenario.name, started.elapsed().as_secs_f64());
        }
    }
    Ok(print(&checks))
}

/// Whether a name is that of a scenario, or how the names of it and others begin: `replicas` for `replicas-killed`.
fn is_named(scenario: &str, name: &str) -> bool {
    scenario.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Runs a scenario in its own thread. A scenario that exceeds its limit ends the process, and with it everything that
/// the scenario still runs.
fn bounded(scenario: &Scenario, rig: &Rig) -> Result<Vec<Check>> {
    let (done, waiting) = mpsc::channel();
    let (run, rig) = (scenario.run, rig.clone());
    std::thread::spawn(move || done.send(run(&rig)));
    match waiting.recv_timeout(scenario.limit) {
        Ok(checks) => checks.with_context(|| scenario.name),
        Err(RecvTimeoutError::Timeout) => {
            bail!("{} took longer than {} s", scenario.name, scenario.limit.as_secs())
        }
        Err(RecvTimeoutError::Disconnected) => bail!("{} panicked", scenario.name),
    }
}
