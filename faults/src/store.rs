//! A store that fails under load: its disk full, gone, its file locked, or slow. Nothing that was acknowledged is lost,
//! nothing is told as completed that is not there later, and all is well again by itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::check::Check;
use crate::gateway::{Gateway, ROUTES};
use crate::{Rig, http, stream};

const RUNS: usize = 1000;
/// So many clients at once.
const CLIENTS: usize = 16;
/// How long the store fails.
const OUTAGE: Duration = Duration::from_secs(4);
/// The largest file while the disk is full.
const FULL: u64 = 6 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Full,
    Gone,
    Locked,
    Slow,
}

/// What clients were told.
#[derive(Default)]
struct Told {
    /// Runs that were told as completed, with what was told.
    completed: BTreeMap<String, String>,
    /// Runs that were told as failed.
    failed: BTreeMap<String, String>,
    refused: usize,
    /// Answers that are none of these.
    odd: Vec<String>,
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for (name, fault) in
        [("full", Fault::Full), ("gone", Fault::Gone), ("locked", Fault::Locked), ("slow", Fault::Slow)]
    {
        checks.extend(fail(rig, name, fault)?);
    }
    Ok(checks)
}

fn fail(rig: &Rig, name: &str, fault: Fault) -> Result<Vec<Check>> {
    let server = "[server]\nlisten = \"{{listen}}\"\n[store]\nkind = \"sqlite\"\npath = \"db/gateway.db\"\n";
    let mut gateway = Gateway::start(rig, &format!("{server}{ROUTES}"))?;
    let address = gateway.address;
    let before = gateway.memory()?;
    let (told, next, most) = (Mutex::new(Told::default()), AtomicUsize::new(0), AtomicUsize::new(0));
    let (over, unready) = (AtomicBool::new(false), AtomicBool::new(false));
    let recovered = std::thread::scope(|scope| -> Result<Duration> {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| ask(address, &next, &told))).collect();
        let watch = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let ready = http::get(address, "/readyz").is_ok_and(|answer| answer.status == 200);
                unready.fetch_or(!ready, Ordering::Relaxed);
                most.fetch_max(gateway.memory().unwrap_or(0) as usize, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        // Whatever goes wrong, the threads end: the scope waits for them.
        let mended = outage(&gateway, fault, || next.load(Ordering::Relaxed) < RUNS);
        let ready = mended.and_then(|()| until_ready(address));
        for client in clients {
            let _ = client.join();
        }
        over.store(true, Ordering::Relaxed);
        let _ = watch.join();
        ready
    })?;
    let errors = gateway.log().matches("ERROR").count();
    gateway.kill();
    gateway.restart()?;
    let told = told.into_inner().unwrap_or_default();
    let (mut lost, mut untrue) = (0, 0);
    for (id, answer) in &told.completed {
        let kept = http::get(address, &format!("/agents/demo/runs/{id}"))?;
        lost += usize::from(kept.status != 200 || kept.body != *answer);
    }
    for id in told.failed.keys() {
        let kept = http::get(address, &format!("/agents/demo/runs/{id}"))?;
        untrue += usize::from(kept.status == 200 && kept.body.contains("\"status\":\"completed\",\"id\""));
    }
    for odd in told.odd.iter().take(3) {
        eprintln!("{name}: {odd}");
    }
    let grown = most.into_inner().saturating_sub(usize::try_from(before)?) as f64 / f64::from(1 << 20);
    let named = |what: &str| format!("{what} ({name})");
    let mut checks = vec![
        Check::at_least(named("runs told as completed"), told.completed.len() as f64, RUNS as f64 / 2.0, ""),
        Check::at_most(named("… of them lost"), lost as f64, 0.0, ""),
        Check::shown(named("runs told as failed"), told.failed.len() as f64, ""),
        Check::at_most(named("… of them completed later"), untrue as f64, 0.0, ""),
        Check::shown(named("refusals with Retry-After"), told.refused as f64, ""),
        Check::at_most(named("other answers"), told.odd.len() as f64, 0.0, ""),
        Check::at_most(named("memory grown"), grown, 64.0, "MiB"),
        Check::at_most(named("ready again after"), recovered.as_secs_f64(), 5.0, "s"),
        Check::at_most(named("ERROR lines"), errors as f64, 2.0, ""),
    ];
    if fault != Fault::Slow {
        checks.push(Check::at_least(named("not ready meanwhile"), f64::from(u8::from(unready.into_inner())), 1.0, ""));
    }
    Ok(checks)
}

/// Begins runs until there were enough; whoever is refused comes back in a moment.
fn ask(address: SocketAddr, next: &AtomicUsize, told: &Mutex<Told>) {
    let padding = "word ".repeat(3000);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= RUNS {
            return;
        }
        let said = [format!("{number} {padding}"), "long 5 4".to_owned()];
        let said = said.map(|text| format!(r#"{{"role":"user","content":"{text}"}}"#)).join(",");
        let body = format!(r#"{{"stream":false,"input":[{said}]}}"#);
        let request = http::request("POST", "/agents/demo/process", &[], &body);
        let began = Instant::now();
        loop {
            let answer = http::ask(address, &request);
            let mut told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match answer {
                Ok(answer) if answer.status == 200 => {
                    let id = stream::id(&answer.body, "response_").unwrap_or_default();
                    let completed = answer.body.contains("\"status\":\"completed\"");
                    if completed { &mut told.completed } else { &mut told.failed }.insert(id, answer.body);
                    break;
                }
                Ok(answer) if answer.status == 503 && began.elapsed() < Duration::from_secs(60) => told.refused += 1,
                Ok(answer) => {
                    told.odd.push(format!("{} {}", answer.status, answer.body));
                    break;
                }
                Err(error) => {
                    told.odd.push(error.to_string());
                    break;
                }
            }
            drop(told);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Lets the store fail for a while in the middle of the load, and mends it.
fn outage(gateway: &Gateway, fault: Fault, busy: impl Fn() -> bool) -> Result<()> {
    let folder = gateway.folder().join("db");
    std::thread::sleep(Duration::from_millis(300));
    match fault {
        Fault::Full => {
            gateway.limit_files(Some(FULL))?;
            std::thread::sleep(OUTAGE);
            gateway.limit_files(None)
        }
        Fault::Gone => {
            let away = gateway.folder().join("away");
            std::fs::rename(&folder, &away)?;
            std::thread::sleep(OUTAGE);
            Ok(std::fs::rename(&away, &folder)?)
        }
        Fault::Locked => locked(&folder, OUTAGE),
        Fault::Slow => {
            let began = Instant::now();
            while busy() && began.elapsed() < Duration::from_secs(60) {
                locked(&folder, Duration::from_millis(150))?;
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        }
    }
}

fn locked(folder: &Path, time: Duration) -> Result<()> {
    let file = rusqlite::Connection::open(folder.join("gateway.db"))?;
    file.busy_timeout(Duration::from_secs(10))?;
    file.execute_batch("BEGIN IMMEDIATE").context("cannot lock the database")?;
    std::thread::sleep(time);
    Ok(file.execute_batch("ROLLBACK")?)
}

fn until_ready(address: SocketAddr) -> Result<Duration> {
    let began = Instant::now();
    while !http::get(address, "/readyz").is_ok_and(|answer| answer.status == 200) {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(60), "it does not recover");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(began.elapsed())
}
