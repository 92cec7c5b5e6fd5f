//! The runner: starts the candidates, puts the same load on each in turn for several rounds, and prints the cost. How
//! to read the tables is described in `docs/benchmarks.md`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::clients::client;
use crate::database;
use crate::guards::Guard;
use crate::processes::{self, Running};
use crate::replicas;
use crate::script::{Frames, Script};
use crate::servers::{self, Candidate, Setup, Target};
use crate::table::{self, median};

/// The pairs of protocols that are measured: the client's and the agent's.
const PAIRS: &[(&str, &str)] = &[
    ("agent-api", "agent-api"),
    ("a2a", "responses"),
    ("a2a", "chat-completions"),
    ("responses", "a2a"),
    ("agent-api", "ag-ui"),
    ("chat-completions", "a2a"),
    ("chat-completions", "chat-completions"),
    ("anthropic-messages", "agent-api"),
    ("ag-ui", "ag-ui"),
];

const GATEWAYS: [Candidate; 2] = [Candidate::Gateway { store: "memory" }, Candidate::Gateway { store: "sqlite" }];

const POSTGRES: Candidate = Candidate::Gateway { store: "postgres" };

/// Command line options. `None` means the default of the mode.
struct Options<'a> {
    modes: Vec<&'a str>,
    gateway: PathBuf,
    streams: Option<usize>,
    events: Option<usize>,
    rounds: Option<usize>,
    workers: usize,
}

impl<'a> Options<'a> {
    fn parse(arguments: &[&'a str]) -> Result<Self> {
        let mut options =
            Self { modes: Vec::new(), gateway: PathBuf::new(), streams: None, events: None, rounds: None, workers: 2 };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
            match *argument {
                "--gateway" => options.gateway = PathBuf::from(value()?),
                "--streams" => options.streams = Some(value()?.parse().context("--streams")?),
                "--events" => options.events = Some(value()?.parse().context("--events")?),
                "--rounds" => options.rounds = Some(value()?.parse().context("--rounds")?),
                "--workers" => options.workers = value()?.parse().context("--workers")?,
                mode => match mode.trim_start_matches("--") {
                    known @ ("paced" | "burst" | "flood" | "protocols" | "pairs" | "guarded" | "calls" | "ttfb"
                    | "idle" | "start" | "replicas") => options.modes.push(known),
                    _ => bail!(
                        "unknown argument {mode:?}, the modes are paced, burst, flood, protocols, pairs, guarded, calls, ttfb, idle, start and replicas"
                    ),
                },
            }
        }

        if options.modes.is_empty() {
            options.modes = vec![
                "start",
                "ttfb",
                "paced",
                "burst",
                "flood",
                "protocols",
                "pairs",
                "guarded",
                "calls",
                "idle",
                "replicas",
            ];
        }
        Ok(options)
    }
}

pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let gateway = options.gateway.canonicalize().with_context(|| format!("no gateway at {:?}", options.gateway))?;
    let scratch = gateway.with_file_name("load-rig-files");
    std::fs::create_dir_all(&scratch)?;
    let port = processes::free_port()?;
    let _upstream = servers::start_upstream(port, &scratch)?;
    let setup = Setup { gateway, workers: options.workers, upstream: port, scratch };
    let nginx = servers::have_nginx();
    if !nginx {
        println!("NOT MEASURED: nginx is not installed (Debian package nginx-light); ratios are omitted");
    }

    println!("{} workers each, {} processors", options.workers, std::thread::available_parallelism()?);
    for mode in &options.modes {
        match *mode {
            "paced" => cost(&setup, &with_postgres(candidates(nginx)), &options, Load::paced(&options))?,
            "burst" => cost(&setup, &candidates(nginx), &options, Load::burst(&options))?,
            "flood" => cost(&setup, &candidates(nginx), &options, Load::flood(&options))?,
            "protocols" => cost(&setup, &[GATEWAYS[0], Candidate::GatewayA2a], &options, Load::burst(&options))?,
            "pairs" => pairs(&setup, nginx, &options)?,
            "guarded" => cost(&setup, &guarded(), &options, Load::burst(&options))?,
            "calls" => cost(&setup, &guarded(), &options, Load::calls(&options))?,
            "ttfb" => first_event(&setup, nginx, &options)?,
            "replicas" => replicas::measure(&setup, &plan(&options))?,
            "idle" => idle(&setup, nginx, &options)?,
            _ => start(&setup, &options)?,
        }
    }
    Ok(())
}

fn candidates(nginx: bool) -> Vec<Candidate> {
    let mut all = vec![Candidate::Nothing];
    all.extend(nginx.then_some(Candidate::Nginx));
    all.extend(GATEWAYS);
    all
}

/// With the store in a database, if there is PostgreSQL.
fn with_postgres(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    match database::server() {
        Ok(_) => candidates.push(POSTGRES),
        Err(error) => println!("NOT MEASURED: {error:#}"),
    }
    candidates
}

/// The measurements of several gateways.
fn plan(options: &Options<'_>) -> replicas::Plan {
    replicas::Plan {
        streams: options.streams.unwrap_or(500),
        idle: options.streams.map_or(5000, |streams| streams * 10),
        deltas: options.events.unwrap_or(500),
        rounds: options.rounds.unwrap_or(3),
    }
}

/// The gateway with its memory store, bare and with everything that protects it.
fn guarded() -> Vec<Candidate> {
    std::iter::once(GATEWAYS[0]).chain(Guard::ALL.map(Candidate::Guarded)).collect()
}

/// A load of complete runs.
struct Load {
    streams: usize,
    runs: usize,
    script: Script,
}

impl Load {
    /// One event every 20 ms on each stream, for ten seconds.
    fn paced(options: &Options<'_>) -> Self {
        let script = Script::Paced { deltas: options.events.unwrap_or(500), every: Duration::from_millis(20) };
        Self { streams: options.streams.unwrap_or(500), runs: 1, script }
    }

    fn burst(options: &Options<'_>) -> Self {
        let script = Script::Burst { deltas: options.events.unwrap_or(1000) };
        Self { streams: options.streams.unwrap_or(50), runs: 20, script }
    }

    fn flood(options: &Options<'_>) -> Self {
        let script = Script::Flood { deltas: options.events.unwrap_or(1000) };
        // More runs, since the CPU time of so little work could not be measured otherwise.
        Self { streams: options.streams.unwrap_or(50), runs: 30, script }
    }

    /// Short calls over Responses, one after the other on each connection.
    fn calls(options: &Options<'_>) -> Self {
        Self { streams: options.streams.unwrap_or(50), runs: options.events.unwrap_or(1000), script: Script::Call }
    }

    fn command(&self, to: &Target) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        let path = if self.script == Script::Call { client("responses").path.to_owned() } else { to.between.path() };
        command.args(["client", &to.port.to_string(), &path]);
        command.args([&self.streams.to_string(), &self.runs.to_string()]);
        command.args([&to.pass.authorization, &to.pass.trusted]);
        command.arg(self.script.to_string());
        Ok(command)
    }

    /// Runs the load against a candidate. Fails unless every run completes.
    fn run_against(&self, to: &Target) -> Result<HashMap<String, u64>> {
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

    /// Events of a load of deltas that an agent of this protocol sends.
    fn events_of(&self, agent: &str) -> Result<usize> {
        let others = Frames::new(agent, 0)?.others() + self.script.events() - Frames::new("agent-api", 0)?.others();
        Ok(self.streams * self.runs * others)
    }
}

/// A candidate, its CPU time per event in microseconds, and its seconds, of each round.
type Measurement = (Target, Vec<f64>, Vec<f64>);

/// CPU time of the database per event, of the rounds of the candidate that has one.
type DatabaseCosts = Vec<f64>;

/// Puts the load on each candidate in turn.
fn measured(
    setup: &Setup,
    candidates: &[Candidate],
    options: &Options<'_>,
    load: &Load,
) -> Result<(Vec<Measurement>, DatabaseCosts)> {
    let mut targets = Vec::new();
    for between in candidates {
        targets.push((Target::start(setup, *between)?, Vec::new(), Vec::new()));
    }

    let warm = match load.script {
        Script::Call => Load { streams: 20, runs: 50, script: Script::Call },
        _ => Load { streams: 20, runs: 5, script: Script::Burst { deltas: 100 } },
    };
    for (candidate, ..) in &targets {
        warm.run_against(candidate).with_context(|| format!("warming {}", candidate.between.name()))?;
    }

    let mut database_costs = DatabaseCosts::new();
    for _ in 0..options.rounds.unwrap_or(3) {
        for (candidate, costs, seconds) in &mut targets {
            let database = || if candidate.between == POSTGRES { database::cpu_seconds() } else { Ok(0.0) };
            let database_before = database()?;
            let cpu = || candidate.running.as_ref().map_or(Ok(0.0), |running| processes::cpu_seconds(running.id()));
            let before = cpu()?;
            let seen = load.run_against(candidate).with_context(|| candidate.between.name())?;
            let events = load.events_of(candidate.between.agent())?;
            costs.push((cpu()? - before) * 1e6 / events as f64);
            seconds.push(seen["micros"] as f64 / 1e6);
            if candidate.between == POSTGRES {
                database_costs.push((database()? - database_before) * 1e6 / events as f64);
            }
        }
    }
    Ok((targets, database_costs))
}

/// The median of the ratios of each round: other load on the machine cancels out. Empty without the other values.
fn ratio(own: &[f64], other: Option<&[f64]>) -> String {
    let ratios: Option<Vec<f64>> = other.map(|other| own.iter().zip(other).map(|(a, b)| a / b).collect());
    ratios.map_or("".to_owned(), |ratios| format!("{:.2}", median(&ratios)))
}

fn costs_of(targets: &[Measurement], kind: Candidate) -> Option<&[f64]> {
    targets.iter().find(|(candidate, ..)| candidate.between == kind).map(|(_, costs, _)| costs.as_slice())
}

/// CPU time of pairs of protocols, each beside nginx in front of the same agent.
fn pairs(setup: &Setup, nginx: bool, options: &Options<'_>) -> Result<()> {
    let (native, load) = (Candidate::Pair { client: "agent-api", agent: "agent-api" }, Load::burst(options));
    let mut candidates: Vec<Candidate> =
        PAIRS.iter().map(|&(client, agent)| Candidate::Pair { client, agent }).collect();
    if nginx {
        let mut agents: Vec<&str> = PAIRS.iter().map(|&(_, agent)| agent).collect();
        agents.sort_unstable();
        agents.dedup();
        candidates.extend(agents.into_iter().map(Candidate::NginxBefore));
    }
    let (targets, _) = measured(setup, &candidates, options, &load)?;

    let mut rows = Vec::new();
    for (candidate, costs, _) in targets.iter().filter(|(target, ..)| matches!(target.between, Candidate::Pair { .. }))
    {
        let beside = costs_of(&targets, Candidate::NginxBefore(candidate.between.agent()));
        let (low, high) = costs.iter().fold((f64::MAX, 0.0_f64), |(low, high), &c| (low.min(c), high.max(c)));
        rows.push(vec![
            candidate.between.name(),
            format!("{:.2}", median(costs)),
            format!("{low:.2} to {high:.2}"),
            beside.map_or(String::new(), |beside| format!("{:.2}", median(beside))),
            ratio(costs, beside),
            ratio(costs, costs_of(&targets, native)),
        ]);
    }
    let heading = format!("{} connections × {} × `{}`, memory store", load.streams, load.runs, load.script);
    table::print(&heading, &["client → agent", "CPU µs/event", "range", "nginx", "× nginx", "× native"], &rows);
    Ok(())
}

/// CPU time of each candidate per event sent by the upstream.
fn cost(setup: &Setup, candidates: &[Candidate], options: &Options<'_>, load: Load) -> Result<()> {
    let (targets, database_costs) = measured(setup, candidates, options, &load)?;
    let of = |kind: Candidate| costs_of(&targets, kind);
    let mut rows = Vec::new();

    for (candidate, costs, seconds) in &targets {
        let mut row = vec![candidate.between.name()];
        if candidate.between == Candidate::Nothing {
            row.extend(["", "", "", ""].map(str::to_owned));
        } else {
            let (low, high) = costs.iter().fold((f64::MAX, 0.0_f64), |(low, high), &c| (low.min(c), high.max(c)));
            row.push(format!("{:.2}", median(costs)));
            row.push(format!("{low:.2} to {high:.2}"));
            row.push(ratio(costs, of(Candidate::Nginx)));
            row.push(ratio(costs, of(GATEWAYS[0])));
        }
        row.push(format!("{:.2}", median(seconds)));
        rows.push(row);
    }

    if !database_costs.is_empty() {
        let (low, high) = database_costs.iter().fold((f64::MAX, 0.0_f64), |(low, high), &c| (low.min(c), high.max(c)));
        let costs = [format!("{:.2}", median(&database_costs)), format!("{low:.2} to {high:.2}")];
        rows.push(
            ["the database of it".to_owned()].into_iter().chain(costs).chain([(); 3].map(|()| String::new())).collect(),
        );
    }
    let heading =
        format!("{} connections × {} × `{}`, {} events a round", load.streams, load.runs, load.script, load.events());
    table::print(&heading, &["between", "CPU µs/event", "range", "× nginx", "× memory", "seconds"], &rows);
    Ok(())
}

/// Time to the first event, one stream at a time.
fn first_event(setup: &Setup, nginx: bool, options: &Options<'_>) -> Result<()> {
    let load = Load { streams: 1, runs: options.events.unwrap_or(1000), script: Script::Burst { deltas: 3 } };
    let mut targets = Vec::new();
    for between in with_postgres(candidates(nginx)) {
        let candidate = Target::start(setup, between)?;
        Load { runs: 50, ..load }.run_against(&candidate).with_context(|| between.name())?;
        targets.push((candidate, Vec::<HashMap<String, u64>>::new()));
    }

    for _ in 0..options.rounds.unwrap_or(5) {
        for (candidate, seen) in &mut targets {
            seen.push(load.run_against(candidate).with_context(|| candidate.between.name())?);
        }
    }
    // Beside what they wait for, on the same disk.
    let commit = database::server().ok().map(|_| database::commit_time(&database::database()?)).transpose()?;
    if let Some(commit) = commit {
        println!("one commit of the database, alone: {:.3} ms", commit.as_secs_f64() * 1000.0);
    }
    let of = |seen: &[HashMap<String, u64>], key: &str| {
        median(&seen.iter().map(|round| round[key] as f64 / 1000.0).collect::<Vec<_>>())
    };
    let nginx =
        targets.iter().find(|(c, _)| c.between == Candidate::Nginx).map(|(_, seen)| of(seen, "first_event_p50"));
    let rows: Vec<Vec<String>> = targets
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

/// Memory per open idle stream.
fn idle(setup: &Setup, nginx: bool, options: &Options<'_>) -> Result<()> {
    let load = Load { streams: options.streams.unwrap_or(5000), runs: 1, script: Script::Idle };
    let mut rows = Vec::new();
    for between in candidates(nginx).into_iter().chain([Candidate::Guarded(Guard::Tls)]) {
        let mut candidate = Target::start(setup, between)?;
        let Some(id) = candidate.running.as_ref().map(Running::id) else { continue };

        // Warm up: one-time allocations do not count as memory of a stream.
        Load { streams: 20, runs: 5, script: Script::Burst { deltas: 10 } }.run_against(&candidate)?;
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

/// Start-up time of a new process, and its memory before the first request.
fn start(setup: &Setup, options: &Options<'_>) -> Result<()> {
    let mut rows = Vec::new();
    for between in GATEWAYS {
        let (mut ready, mut resident) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds.unwrap_or(10) {
            let candidate = Target::start(setup, between)?;
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
    table::print("process start", &["between", "ready after ms", "worst ms", "idle MiB"], &rows);
    Ok(())
}
