//! The runner: starts the candidates, puts the same load on each in turn, several rounds, and prints what it cost.
//! How to read the tables is in `benches/README.md`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::processes::{self, Running};
use crate::script::Script;
use crate::servers::{self, Between, Setting, Standing};
use crate::table::{self, median};

const GATEWAYS: [Between; 2] = [Between::Gateway { store: "memory" }, Between::Gateway { store: "sqlite" }];

/// What is wanted; a mode's own number where none was given.
struct Wanted<'a> {
    modes: Vec<&'a str>,
    gateway: PathBuf,
    streams: Option<usize>,
    events: Option<usize>,
    rounds: Option<usize>,
    workers: usize,
}

impl<'a> Wanted<'a> {
    fn read(arguments: &[&'a str]) -> Result<Self> {
        let mut wanted =
            Self { modes: Vec::new(), gateway: PathBuf::new(), streams: None, events: None, rounds: None, workers: 2 };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{argument} wants a value"));
            match *argument {
                "--gateway" => wanted.gateway = PathBuf::from(value()?),
                "--streams" => wanted.streams = Some(value()?.parse().context("--streams")?),
                "--events" => wanted.events = Some(value()?.parse().context("--events")?),
                "--rounds" => wanted.rounds = Some(value()?.parse().context("--rounds")?),
                "--workers" => wanted.workers = value()?.parse().context("--workers")?,
                mode => match mode.trim_start_matches("--") {
                    known @ ("paced" | "burst" | "flood" | "tongues" | "ttfb" | "idle" | "start") => {
                        wanted.modes.push(known)
                    }
                    _ => bail!(
                        "unknown argument {mode:?}, the modes are paced, burst, flood, tongues, ttfb, idle and start"
                    ),
                },
            }
        }
        if wanted.modes.is_empty() {
            wanted.modes = vec!["start", "ttfb", "paced", "burst", "flood", "tongues", "idle"];
        }
        Ok(wanted)
    }
}

pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let wanted = Wanted::read(arguments)?;
    let gateway = wanted.gateway.canonicalize().with_context(|| format!("no gateway at {:?}", wanted.gateway))?;
    let scratch = gateway.with_file_name("load-rig-files");
    std::fs::create_dir_all(&scratch)?;
    let port = servers::free_port()?;
    let _upstream = servers::upstream(port, &scratch)?;
    let setting = Setting { gateway, workers: wanted.workers, upstream: port, scratch };
    let nginx = servers::have_nginx();
    if !nginx {
        println!("NOT MEASURED: nginx, since it is not installed (Debian's package nginx-light); ratios are left out");
    }
    println!("{} workers each, {} processors", wanted.workers, std::thread::available_parallelism()?);
    for mode in &wanted.modes {
        match *mode {
            "paced" => cost(&setting, &candidates(nginx), &wanted, Load::paced(&wanted))?,
            "burst" => cost(&setting, &candidates(nginx), &wanted, Load::burst(&wanted))?,
            "flood" => cost(&setting, &candidates(nginx), &wanted, Load::flood(&wanted))?,
            "tongues" => cost(&setting, &[GATEWAYS[0], Between::GatewayA2a], &wanted, Load::burst(&wanted))?,
            "ttfb" => first_event(&setting, nginx, &wanted)?,
            "idle" => idle(&setting, nginx, &wanted)?,
            _ => start(&setting, &wanted)?,
        }
    }
    Ok(())
}

fn candidates(nginx: bool) -> Vec<Between> {
    let mut all = vec![Between::Nothing];
    all.extend(nginx.then_some(Between::Nginx));
    all.extend(GATEWAYS);
    all
}

/// A load of whole runs.
struct Load {
    streams: usize,
    runs: usize,
    script: Script,
}

impl Load {
    /// An event each 20 ms on each stream, ten seconds long.
    fn paced(wanted: &Wanted<'_>) -> Self {
        let script = Script::Paced { deltas: wanted.events.unwrap_or(500), every: Duration::from_millis(20) };
        Self { streams: wanted.streams.unwrap_or(500), runs: 1, script }
    }

    fn burst(wanted: &Wanted<'_>) -> Self {
        let script = Script::Burst { deltas: wanted.events.unwrap_or(1000) };
        Self { streams: wanted.streams.unwrap_or(50), runs: 20, script }
    }

    fn flood(wanted: &Wanted<'_>) -> Self {
        let script = Script::Flood { deltas: wanted.events.unwrap_or(1000) };
        // More of them, since the time of so little work could not be told from nothing.
        Self { streams: wanted.streams.unwrap_or(50), runs: 30, script }
    }

    fn command(&self, to: &Standing) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["client", &to.port.to_string(), to.between.path()]);
        command.args([&self.streams.to_string(), &self.runs.to_string()]);
        command.arg(self.script.to_string());
        Ok(command)
    }

    /// Puts it on a candidate, and expects every run of it to end well.
    fn put_on(&self, to: &Standing) -> Result<HashMap<String, u64>> {
        let (_client, mut output) = Running::start_reading("client", &mut self.command(to)?)?;
        let seen = processes::read_pairs(&mut output)?;
        if seen["failed"] > 0 || seen["runs"] != (self.streams * self.runs) as u64 {
            bail!("{} streams failed", seen["failed"]);
        }
        Ok(seen)
    }

    fn events(&self) -> usize {
        self.streams * self.runs * self.script.events()
    }
}

/// Processor time of each candidate per event that the upstream said.
fn cost(setting: &Setting, candidates: &[Between], wanted: &Wanted<'_>, load: Load) -> Result<()> {
    let mut standing = Vec::new();
    for between in candidates {
        standing.push((Standing::start(setting, *between)?, Vec::new(), Vec::new()));
    }
    let warm = Load { streams: 20, runs: 5, script: Script::Burst { deltas: 100 } };
    for (candidate, ..) in &standing {
        warm.put_on(candidate).with_context(|| format!("warming {}", candidate.between.name()))?;
    }
    for _ in 0..wanted.rounds.unwrap_or(3) {
        for (candidate, costs, seconds) in &mut standing {
            let cpu = || candidate.running.as_ref().map_or(Ok(0.0), |running| processes::cpu_seconds(running.id()));
            let before = cpu()?;
            let seen = load.put_on(candidate).with_context(|| candidate.between.name())?;
            costs.push((cpu()? - before) * 1e6 / load.events() as f64);
            seconds.push(seen["micros"] as f64 / 1e6);
        }
    }
    let of = |wanted: Between| {
        standing.iter().find(|(candidate, ..)| candidate.between == wanted).map(|(_, costs, _)| costs.as_slice())
    };
    // Each round's pair is compared with each other, so that what the machine did meanwhile cancels out.
    let ratio = |own: &[f64], other: Option<&[f64]>| {
        let ratios: Option<Vec<f64>> = other.map(|other| own.iter().zip(other).map(|(a, b)| a / b).collect());
        ratios.map_or("".to_owned(), |ratios| format!("{:.2}", median(&ratios)))
    };
    let mut rows = Vec::new();
    for (candidate, costs, seconds) in &standing {
        let mut row = vec![candidate.between.name()];
        if candidate.between == Between::Nothing {
            row.extend(["", "", "", ""].map(str::to_owned));
        } else {
            let (low, high) = costs.iter().fold((f64::MAX, 0.0_f64), |(low, high), &c| (low.min(c), high.max(c)));
            row.push(format!("{:.2}", median(costs)));
            row.push(format!("{low:.2} to {high:.2}"));
            row.push(ratio(costs, of(Between::Nginx)));
            row.push(ratio(costs, of(GATEWAYS[0])));
        }
        row.push(format!("{:.2}", median(seconds)));
        rows.push(row);
    }
    let heading =
        format!("{} streams × {} × `{}`, {} events a round", load.streams, load.runs, load.script, load.events());
    table::print(&heading, &["between", "CPU µs/event", "range", "× nginx", "× memory", "seconds"], &rows);
    Ok(())
}

/// How long a client waits for the first event, with nobody else there.
fn first_event(setting: &Setting, nginx: bool, wanted: &Wanted<'_>) -> Result<()> {
    let load = Load { streams: 1, runs: wanted.events.unwrap_or(1000), script: Script::Burst { deltas: 3 } };
    let mut standing = Vec::new();
    for between in candidates(nginx) {
        let candidate = Standing::start(setting, between)?;
        Load { runs: 50, ..load }.put_on(&candidate).with_context(|| between.name())?;
        standing.push((candidate, Vec::<HashMap<String, u64>>::new()));
    }
    for _ in 0..wanted.rounds.unwrap_or(5) {
        for (candidate, seen) in &mut standing {
            seen.push(load.put_on(candidate).with_context(|| candidate.between.name())?);
        }
    }
    let of = |seen: &[HashMap<String, u64>], key: &str| {
        median(&seen.iter().map(|round| round[key] as f64 / 1000.0).collect::<Vec<_>>())
    };
    let nginx = standing.iter().find(|(c, _)| c.between == Between::Nginx).map(|(_, seen)| of(seen, "first_event_p50"));
    let rows: Vec<Vec<String>> = standing
        .iter()
        .map(|(candidate, seen)| {
            let first = of(seen, "first_event_p50");
            let mut row = vec![candidate.between.name(), format!("{first:.3}")];
            row.extend(["first_event_p99", "first_content_p50"].map(|key| format!("{:.3}", of(seen, key))));
            row.push(nginx.map_or(String::new(), |nginx| format!("{:+.3}", first - nginx)));
            row
        })
        .collect();
    let heading = format!("time to the first event, one stream at a time, {} runs a round, ms", load.runs);
    table::print(&heading, &["between", "median", "p99", "median to text", "over nginx"], &rows);
    Ok(())
}

/// Memory for each stream that is open and silent.
fn idle(setting: &Setting, nginx: bool, wanted: &Wanted<'_>) -> Result<()> {
    let load = Load { streams: wanted.streams.unwrap_or(5000), runs: 1, script: Script::Idle };
    let mut rows = Vec::new();
    for between in candidates(nginx) {
        let mut candidate = Standing::start(setting, between)?;
        let Some(id) = candidate.running.as_ref().map(Running::id) else { continue };
        // What a first request allocates is not a stream's own.
        Load { streams: 20, runs: 5, script: Script::Burst { deltas: 10 } }.put_on(&candidate)?;
        let before = processes::resident_kib(id)?;
        let (_client, mut output) = Running::start_reading("client", &mut load.command(&candidate)?)?;
        let open = processes::read_pairs(&mut output)?;
        if open.get("open") != Some(&(load.streams as u64)) {
            bail!("{}: not all {} streams were opened", between.name(), load.streams);
        }
        std::thread::sleep(Duration::from_secs(2));
        let after = processes::resident_kib(id)?;
        if let Some(running) = &mut candidate.running {
            running.still_runs()?;
        }
        rows.push(vec![
            between.name(),
            before.to_string(),
            after.to_string(),
            format!("{:.1}", (after as f64 - before as f64) / load.streams as f64),
        ]);
    }
    let heading = format!("memory of {} open idle streams, KiB", load.streams);
    table::print(&heading, &["between", "before", "with them", "per stream"], &rows);
    Ok(())
}

/// A fresh process: how soon it is ready, and what it holds before its first request.
fn start(setting: &Setting, wanted: &Wanted<'_>) -> Result<()> {
    let mut rows = Vec::new();
    for between in GATEWAYS {
        let (mut ready, mut resident) = (Vec::new(), Vec::new());
        for _ in 0..wanted.rounds.unwrap_or(10) {
            let candidate = Standing::start(setting, between)?;
            ready.push(candidate.ready_after.as_secs_f64() * 1000.0);
            std::thread::sleep(Duration::from_millis(300));
            let running = candidate.running.as_ref().expect("a gateway is a process");
            resident.push(processes::resident_kib(running.id())? as f64 / 1024.0);
        }
        let worst = ready.iter().copied().fold(0.0, f64::max);
        rows.push(vec![
            between.name(),
            format!("{:.1}", median(&ready)),
            format!("{worst:.1}"),
            format!("{:.1}", median(&resident)),
        ]);
    }
    table::print("a fresh process", &["between", "ready after ms", "worst ms", "idle MiB"], &rows);
    Ok(())
}
