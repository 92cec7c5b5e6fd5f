//! Several gateways on one database: how far followers elsewhere are behind, how soon the runs of a killed gateway end,
//! what many open runs cost, and what a round of housekeeping takes. Figures are printed beside their limits.
//!
//! Not here: CPU time per event and the time to the first event, which are measured beside the other stores
//! ([`crate::measure`]).

use std::collections::HashMap;
use std::io::BufReader;
use std::process::{ChildStdout, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use interlingua_testing_postgres::Database;
use rustix::process::{Pid, Signal, kill_process};

use crate::database;
use crate::processes::{self, Running};
use crate::script::Script;
use crate::servers::{Candidate, Setup, Target};
use crate::table::{self, median};

/// The lease of the gateways.
const LEASE: Duration = Duration::from_secs(5);
/// Maximum delay of followers elsewhere behind the stream of the gateway that drives a run, for 99 of 100 events.
const LONGEST_LAG_MS: f64 = 50.0;
/// Duration of the measurement of idle CPU time.
const QUIET: Duration = Duration::from_secs(20);
/// Runs in the store for the rounds of housekeeping.
const KEPT_RUNS: u32 = 100_000;

/// The measurements, and their repetitions.
pub(crate) struct Plan {
    pub(crate) streams: usize,
    /// Streams on each gateway while nothing happens.
    pub(crate) idle: usize,
    pub(crate) deltas: usize,
    pub(crate) rounds: usize,
}

/// Two gateways on one database.
struct Pair {
    here: Target,
    there: Target,
    database: Database<'static>,
}

impl Pair {
    fn start(setup: &Setup) -> Result<Self> {
        let database = database::database()?;
        let here = Target::replica(setup, "here", &database.url(), LEASE, "")?;
        let there = Target::replica(setup, "there", &database.url(), LEASE, "")?;
        Ok(Self { here, there, database })
    }

    fn cpu(&self) -> Result<[f64; 3]> {
        Ok([cpu(&self.here)?, cpu(&self.there)?, database::cpu_seconds()?])
    }
}

fn cpu(target: &Target) -> Result<f64> {
    processes::cpu_seconds(id_of(target)?)
}

fn id_of(target: &Target) -> Result<u32> {
    Ok(target.running.as_ref().context("a gateway is a process")?.id())
}

/// Runs all of it.
pub(crate) fn measure(setup: &Setup, plan: &Plan) -> Result<()> {
    let mut rows = Vec::new();
    lag(setup, plan, &mut rows)?;
    takeover(setup, plan, &mut rows)?;
    resume(setup, plan, &mut rows)?;
    let heading = format!("two gateways on one database, {} paced streams on one of them", plan.streams);
    table::print(&heading, &["figure", "median", "range of rounds", "limit"], &rows);
    open_runs(setup, plan)?;
    housekeeping(setup)
}

fn row(figure: &str, values: &[f64], limit: &str) -> Vec<String> {
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), &value| (low.min(value), high.max(value)));
    vec![figure.to_owned(), format!("{:.1}", median(values)), format!("{low:.1} to {high:.1}"), limit.to_owned()]
}

/// Starts the client of [`crate::follow`].
fn following(
    pair: &Pair,
    streams: usize,
    followed: usize,
    script: Script,
) -> Result<(Running, BufReader<ChildStdout>)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["follow", &pair.here.port.to_string(), &pair.there.port.to_string()]);
    command.args([&streams.to_string(), &followed.to_string(), &script.to_string()]);
    Running::start_reading("follow", &mut command)
}

/// The delay of events on a gateway that does not drive the runs, and the cost of following.
fn lag(setup: &Setup, plan: &Plan, rows: &mut Vec<Vec<String>>) -> Result<()> {
    let pair = Pair::start(setup)?;
    let script = Script::Paced { deltas: plan.deltas, every: Duration::from_millis(20) };
    let mut seen: HashMap<usize, [Vec<f64>; 5]> = HashMap::new();
    let shares = [0, 10, 50].map(|share| share.min(plan.streams));
    for _ in 0..plan.rounds {
        for followed in shares {
            let before = pair.cpu()?;
            let (_client, mut output) = following(&pair, plan.streams, followed, script)?;
            if followed > 0 {
                processes::read_pairs(&mut output)?;
            }
            let measured = processes::read_pairs(&mut output)?;
            ensure!(measured["failed"] == 0, "{} followers failed", measured["failed"]);
            ensure!(measured["completed"] == followed as u64, "only {} ended well", measured["completed"]);
            let after = pair.cpu()?;
            let events = (plan.streams * script.events()) as f64;
            let cost = |place: usize| (after[place] - before[place]) * 1e6 / events;
            let figures = seen.entry(followed).or_default();
            let lags = ["p50", "p99"].map(|key| measured[key] as f64 / 1000.0);
            for (values, value) in figures.iter_mut().zip([lags[0], lags[1], cost(0), cost(1), cost(2)]) {
                values.push(value);
            }
        }
    }
    for followed in shares {
        let [p50, p99, here, there, server] = &seen[&followed];
        if followed > 0 {
            rows.push(row(&format!("{followed} followed: lag p50, ms"), p50, ""));
            rows.push(row(&format!("{followed} followed: lag p99, ms"), p99, &format!("≤ {LONGEST_LAG_MS}")));
        }
        rows.push(row(&format!("{followed} followed: CPU µs per event, the gateway that drives"), here, ""));
        rows.push(row(&format!("{followed} followed: … the one that follows"), there, ""));
        rows.push(row(&format!("{followed} followed: … the database"), server, ""));
    }
    Ok(())
}

/// The time after a kill until the runs have ended on the other gateway.
fn takeover(setup: &Setup, plan: &Plan, rows: &mut Vec<Vec<String>>) -> Result<()> {
    let mut seconds = Vec::new();
    for _ in 0..plan.rounds {
        let pair = Pair::start(setup)?;
        // One that has not been there for a lease itself takes nothing over.
        std::thread::sleep(LEASE);
        let script = Script::Paced { deltas: 100_000, every: Duration::from_millis(20) };
        let (_client, mut output) = following(&pair, 100, 100, script)?;
        processes::read_pairs(&mut output)?;
        let id = i32::try_from(id_of(&pair.here)?)?;
        let killed = Instant::now();
        kill_process(Pid::from_raw(id).context("no process")?, Signal::KILL)?;
        let ended = processes::read_pairs(&mut output)?;
        ensure!(ended["otherwise"] == 100 && ended["failed"] == 0, "not all runs ended: {ended:?}");
        seconds.push(killed.elapsed().as_secs_f64());
    }
    let limit = format!("≤ {} (lease {} s + 2 s)", LEASE.as_secs() + 2, LEASE.as_secs());
    rows.push(row("kill -9: 100 runs have ended on the other one after, s", &seconds, &limit));
    Ok(())
}

/// The time until a long run is resumed on a gateway that did not drive it.
fn resume(setup: &Setup, plan: &Plan, rows: &mut Vec<Vec<String>>) -> Result<()> {
    let pair = Pair::start(setup)?;
    let (mut half, mut worst) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["resume", &pair.here.port.to_string(), &pair.there.port.to_string(), "10000", "20"]);
        let (_client, mut output) = Running::start_reading("resume", &mut command)?;
        let seen = processes::read_pairs(&mut output)?;
        half.push(seen["p50"] as f64 / 1000.0);
        worst.push(seen["max"] as f64 / 1000.0);
    }
    rows.push(row("resume in the middle of 10,000 events, first event after, ms", &half, "≤ 10"));
    rows.push(row("… the slowest of 20", &worst, ""));
    Ok(())
}

/// A value of a process's status.
fn status(id: u32, name: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find(|line| line.starts_with(name)).with_context(|| format!("no {name}"))?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse()?)
}

/// Two gateways with no run and with many silent ones, beside one with the memory store.
fn open_runs(setup: &Setup, plan: &Plan) -> Result<()> {
    let pair = Pair::start(setup)?;
    let memory = Target::start(setup, Candidate::Gateway { store: "memory" })?;
    let targets = [("PostgreSQL", &pair.here), ("PostgreSQL", &pair.there), ("memory", &memory)];
    let mut rows = Vec::new();
    let mut clients = Vec::new();
    let mut before = [0; 3];
    for (place, (_, target)) in targets.iter().enumerate() {
        warm(target)?;
        before[place] = processes::resident_kib(id_of(target)?)?;
    }

    for runs in [0, plan.idle] {
        if runs > 0 {
            for (_, target) in &targets {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["client", &target.port.to_string(), &target.between.path()]);
                command.args([&runs.to_string(), "1", "", "", &Script::Idle.to_string()]);
                let (client, mut output) = Running::start_reading("client", &mut command)?;
                let open = processes::read_pairs(&mut output)?;
                ensure!(open.get("open") == Some(&(runs as u64)), "not all {runs} streams were opened");
                clients.push((client, output));
            }
            std::thread::sleep(Duration::from_secs(10));
        }
        let transactions = database::transactions(&pair.database)?;
        let mut cpus = [0.0; 4];
        for (cpu_before, (_, target)) in cpus.iter_mut().zip(&targets) {
            *cpu_before = cpu(target)?;
        }
        cpus[3] = database::cpu_seconds()?;
        std::thread::sleep(QUIET);
        let share = |after: f64, before: f64| format!("{:.2}", (after - before) * 100.0 / QUIET.as_secs_f64());
        let server = share(database::cpu_seconds()?, cpus[3]);
        for (place, (name, target)) in targets.iter().enumerate() {
            let id = id_of(target)?;
            let grown = processes::resident_kib(id)?.saturating_sub(before[place]) as f64;
            rows.push(vec![
                format!("{runs} runs, {name}"),
                share(cpu(target)?, cpus[place]),
                if runs == 0 { String::new() } else { format!("{:.1}", grown / runs as f64) },
                status(id, "Threads:")?.to_string(),
            ]);
        }
        let transactions = (database::transactions(&pair.database)? - transactions) / QUIET.as_secs_f64();
        rows.push(vec![
            format!("{} runs, the server: {transactions:.1} transactions/s", 2 * runs),
            server,
            String::new(),
            format!("{} connections", database::connections(&pair.database)?),
        ]);
    }
    let heading =
        format!("silent runs, {} on each gateway; limits: idle gateway ≤ 0.5 % of a core, memory + 2 KiB", plan.idle);
    table::print(&heading, &["", "% of a core", "KiB per run", "threads"], &rows);
    Ok(())
}

/// One-time allocations do not count as memory of a run.
fn warm(target: &Target) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["client", &target.port.to_string(), &target.between.path(), "20", "5", "", ""]);
    command.arg(Script::Burst { deltas: 10 }.to_string());
    let (_client, mut output) = Running::start_reading("client", &mut command)?;
    ensure!(processes::read_pairs(&mut output)?["failed"] == 0, "warming failed");
    Ok(())
}

/// Rounds of housekeeping over many runs: one that finds nothing to delete, one that deletes a tenth.
fn housekeeping(setup: &Setup) -> Result<()> {
    let database = database::database()?;
    database.sql("CREATE EXTENSION pg_stat_statements")?;
    let first = Target::replica(setup, "here", &database.url(), LEASE, "")?;
    warm(&first)?;
    drop(first);
    fill(&database)?;

    let mut rows = Vec::new();
    for kept in [KEPT_RUNS, KEPT_RUNS - KEPT_RUNS / 10] {
        database.sql("DELETE FROM interlingua.leases")?;
        database.sql("SELECT pg_stat_statements_reset()")?;
        let began = Instant::now();
        let retention = format!("retention = {{ runs = {kept} }}");
        let _gateway = Target::replica(setup, "here", &database.url(), LEASE, &retention)?;
        while database::number(&database, "SELECT count(*) FROM interlingua.runs")? > f64::from(kept) {
            ensure!(began.elapsed() < Duration::from_secs(120), "more than {kept} runs are still there");
            std::thread::sleep(Duration::from_millis(200));
        }
        let deleted = began.elapsed();
        // A round is begun when the gateway starts; the next one comes a minute later.
        std::thread::sleep(Duration::from_secs(5));
        let of = |what: &str| {
            database::number(
                &database,
                &format!(
                    "SELECT coalesce({what}, 0) FROM pg_stat_statements
                     WHERE query LIKE '%interlingua%' AND query NOT LIKE 'SELECT count(*) FROM interlingua.runs'"
                ),
            )
        };
        rows.push(vec![
            format!("{KEPT_RUNS} runs, {kept} are kept"),
            if kept == KEPT_RUNS { String::new() } else { format!("{:.1}", deleted.as_secs_f64()) },
            format!("{:.0}", of("sum(total_exec_time)")?),
            format!("{:.1}", of("max(max_exec_time)")?),
            format!("{:.0}", of("sum(calls)")?),
        ]);
    }
    let columns = ["a round of housekeeping", "done after s", "ms in statements", "longest ms", "statements"];
    table::print("housekeeping, the first seconds of a gateway", &columns, &rows);
    Ok(())
}

/// Makes many runs of one that has ended, of a hundred owners.
fn fill(database: &Database<'_>) -> Result<()> {
    let runs = database::number(database, "SELECT count(*) FROM interlingua.runs WHERE ended")?;
    if runs < 1.0 {
        bail!("no run has ended");
    }
    let rest = f64::from(KEPT_RUNS) - database::number(database, "SELECT count(*) FROM interlingua.runs")?;
    database.sql(&format!(
        "CREATE TABLE made AS SELECT gen_random_uuid() AS id, n FROM generate_series(1, {rest}) n;
         INSERT INTO interlingua.runs (id, holder, agent, owner, session, protocol, state, ended, hidden, created_at,
                changed_at, upto, size, route, remembered, tags, about, head)
         SELECT made.id, NULL, r.agent, r.owner || (made.n % 100)::text, r.session || made.n, r.protocol, r.state, r.ended,
                r.hidden, r.created_at - made.n, r.changed_at - made.n, r.upto, r.size, r.route, r.remembered, r.tags,
                r.about, r.head
         FROM made CROSS JOIN (SELECT * FROM interlingua.runs WHERE ended LIMIT 1) r;
         INSERT INTO interlingua.lines (run, first, events, bytes)
         SELECT made.id, l.first, l.events, l.bytes FROM made CROSS JOIN (
             SELECT * FROM interlingua.lines
             WHERE run = (SELECT id FROM interlingua.runs WHERE ended AND id NOT IN (SELECT id FROM made) LIMIT 1)) l;
         DROP TABLE made"
    ))?;
    database.sql("VACUUM ANALYZE")?;
    Ok(())
}
