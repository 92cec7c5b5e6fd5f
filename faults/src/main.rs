//! The fault rig: starts a real gateway process, breaks things around it, and says with figures what came of it.
//!
//! `cargo xtask faults [NAME…]` builds both and runs the named scenarios, or all of them. One file a scenario; each
//! returns its [`Check`]s, and the rig fails if a bound is broken. A scenario that takes longer than its time is broken
//! too. Only addresses of this machine are used, and only files in a folder of the run's own.
//!
//! # Adding a scenario
//!
//! A file with a function `run(&Rig) -> Result<Vec<Check>>`, and a row in [`SCENARIOS`].

mod abandoned;
mod check;
mod gateway;
mod http;
mod kills;
mod slow_clients;
mod store;
mod stream;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::check::{Check, print};

/// What every scenario is given.
#[derive(Clone)]
pub(crate) struct Rig {
    /// The gateway's binary.
    pub(crate) gateway: PathBuf,
}

struct Scenario {
    name: &'static str,
    /// What it takes at most.
    limit: Duration,
    run: fn(&Rig) -> Result<Vec<Check>>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "abandoned", limit: Duration::from_secs(300), run: abandoned::run },
    Scenario { name: "kills", limit: Duration::from_secs(900), run: kills::run },
    Scenario { name: "store", limit: Duration::from_secs(600), run: store::run },
    Scenario { name: "slow-clients", limit: Duration::from_secs(120), run: slow_clients::run },
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
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("no scenario is called {unknown:?}, there are {}", known.join(", "));
    }
    let rig = Rig { gateway: PathBuf::from(gateway).canonicalize().context("cannot find the gateway")? };
    http::raise_open_files()?;
    let mut checks = Vec::new();
    for scenario in SCENARIOS {
        if names.is_empty() || names.iter().any(|name| name == scenario.name) {
            let began = Instant::now();
            println!("{} …", scenario.name);
            checks.extend(bounded(scenario, &rig)?.into_iter().map(|check| (scenario.name, check)));
            println!("{} took {:.1} s", scenario.name, began.elapsed().as_secs_f64());
        }
    }
    Ok(print(&checks))
}

/// Runs a scenario in a thread of its own. The process ends with the first one that takes too long, and what that left
/// running ends with the process.
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
