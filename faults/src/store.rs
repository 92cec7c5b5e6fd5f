//! A store that fails under load: disk full, folder gone, database locked, or slow. No acknowledged run is lost, no run
//! is reported as completed that is missing later, and the gateway recovers by itself.

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

/// The least number of runs.
const RUNS: usize = 1000;
/// Concurrent clients.
const CLIENTS: usize = 16;
/// Duration of the outage. Clients continue until it is over.
const OUTAGE: Duration = Duration::from_secs(60);
/// Time that a refused client retries.
const RETRY_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum file size while the disk is full, in bytes.
const MAX_FILE_BYTES: u64 = 6 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Full,
    Gone,
    Locked,
    Slow,
}

/// The responses that clients received.
#[derive(Default)]
struct ObservedResponses {
    /// Runs reported as completed, with the response.
    completed: BTreeMap<String, String>,
    /// Runs reported as failed, with the response.
    failed: BTreeMap<String, String>,
    refused: usize,
    /// Any other responses and errors.
    other: Vec<String>,
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
    let (observed, next, peak) = (Mutex::new(ObservedResponses::default()), AtomicUsize::new(0), AtomicUsize::new(0));
    let (over, unready, is_repaired) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let recovered = std::thread::scope(|scope| -> Result<Duration> {
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| scope.spawn(|| run_clients(address, &next, &observed, &is_repaired))).collect();
        let watch = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let ready = http::get(address, "/readyz").is_ok_and(|answer| answer.status == 200);
                unready.fetch_or(!ready, Ordering::Relaxed);
                peak.fetch_max(gateway.memory().unwrap_or(0) as usize, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50));
            }
        });

        // The threads end even if the outage fails: the scope waits for them.
        let repaired = outage(&gateway, fault);
        is_repaired.store(true, Ordering::Relaxed);
        let ready = repaired.and_then(|()| until_ready(address));
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
    let observed = observed.into_inner().unwrap_or_default();
    let (mut lost, mut completed_later) = (0, 0);

    for (id, answer) in &observed.completed {
        let stored = http::get(address, &format!("/agents/demo/runs/{id}"))?;
        lost += usize::from(stored.status != 200 || stored.body != *answer);
    }

    for id in observed.failed.keys() {
        let stored = http::get(address, &format!("/agents/demo/runs/{id}"))?;
        completed_later += usize::from(stored.status == 200 && stored.body.contains("\"status\":\"completed\",\"id\""));
    }
    for other in observed.other.iter().take(3) {
        eprintln!("{name}: {other}");
    }

    // A store that is slow for a minute may fail and recover several times.
    let max_errors = if fault == Fault::Slow { 12.0 } else { 2.0 };
    let grown = peak.into_inner().saturating_sub(usize::try_from(before)?) as f64 / f64::from(1 << 20);
    let named = |what: &str| format!("{what} ({name})");
    let mut checks = vec![
        Check::at_least(named("runs reported as completed"), observed.completed.len() as f64, RUNS as f64 / 2.0, ""),
        Check::at_most(named("… of them lost"), lost as f64, 0.0, ""),
        Check::info(named("runs reported as failed"), observed.failed.len() as f64, ""),
        Check::at_most(named("… of them completed later"), completed_later as f64, 0.0, ""),
        Check::info(named("refusals with Retry-After"), observed.refused as f64, ""),
        Check::at_most(named("other answers"), observed.other.len() as f64, 0.0, ""),
        Check::at_most(named("memory grown"), grown, 64.0, "MiB"),
        Check::at_most(named("ready again after"), recovered.as_secs_f64(), 5.0, "s"),
        Check::at_most(named("ERROR lines"), errors as f64, max_errors, ""),
    ];
    if fault != Fault::Slow {
        checks.push(Check::at_least(named("not ready meanwhile"), f64::from(u8::from(unready.into_inner())), 1.0, ""));
    }
    Ok(checks)
}

/// Starts runs until there are enough and the store works again. A refused client retries after 100 ms.
fn run_clients(address: SocketAddr, next: &AtomicUsize, observed: &Mutex<ObservedResponses>, is_repaired: &AtomicBool) {
    let padding = "word ".repeat(3000);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= RUNS && is_repaired.load(Ordering::Relaxed) {
            return;
        }
        let messages = [format!("{number} {padding}"), "long 5 4".to_owned()];
        let messages = messages.map(|text| format!(r#"{{"role":"user","content":"{text}"}}"#)).join(",");
        let body = format!(r#"{{"stream":false,"input":[{messages}]}}"#);
        let request = http::request("POST", "/agents/demo/process", &[], &body);
        let started = Instant::now();
        loop {
            let answer = http::send(address, &request);
            let mut observed = observed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match answer {
                Ok(answer) if answer.status == 200 => {
                    let id = stream::id(&answer.body, "response_").unwrap_or_default();
                    let completed = answer.body.contains("\"status\":\"completed\"");
                    if completed { &mut observed.completed } else { &mut observed.failed }.insert(id, answer.body);
                    break;
                }
                Ok(answer) if answer.status == 503 && started.elapsed() < RETRY_TIMEOUT => observed.refused += 1,
                Ok(answer) => {
                    observed.other.push(format!("{} {}", answer.status, answer.body));
                    break;
                }
                Err(error) => {
                    observed.other.push(error.to_string());
                    break;
                }
            }
            drop(observed);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Breaks the store during the load and repairs it.
fn outage(gateway: &Gateway, fault: Fault) -> Result<()> {
    let folder = gateway.folder().join("db");
    std::thread::sleep(Duration::from_millis(300));
    match fault {
        Fault::Full => {
            gateway.limit_files(Some(MAX_FILE_BYTES))?;
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
            let started = Instant::now();
            while started.elapsed() < OUTAGE {
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
    let started = Instant::now();
    while !http::get(address, "/readyz").is_ok_and(|answer| answer.status == 200) {
        anyhow::ensure!(started.elapsed() < Duration::from_secs(60), "the gateway does not recover");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(started.elapsed())
}
