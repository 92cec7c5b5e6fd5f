//! Collectors of telemetry that hang, reset, answer garbage or are not there, and an admin listener full of silent
//! sockets: streams are as fast as without them, memory stays, and what is lost is counted.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::check::Check;
use crate::gateway::{Gateway, ROUTES};
use crate::{Rig, http};

/// Runs of each gateway, and how many at the same time.
const RUNS: usize = 8000;
const CLIENTS: usize = 16;
/// Sockets at the admin listener that send nothing.
const SILENT_SOCKETS: usize = 64;
/// Maximum duration of a run, as a multiple of its duration without collectors.
const MAX_RATIO: f64 = 2.0;
const MAX_GROWTH: u64 = 32 * 1024 * 1024;
/// SIGTERM to exit: `drain` and five seconds.
const MAX_STOP: Duration = Duration::from_millis(5001);

/// A collector's handling of a connection.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// No collector listens.
    Absent,
    /// Accepts it, and does nothing.
    Hang,
    /// Closes it.
    Reset,
    /// Answers with what is no protocol, without end.
    Garbage,
}

/// A collector at a port. It ends with the process.
fn collector(mode: Mode) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a collector cannot listen")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        if matches!(mode, Mode::Absent) {
            return;
        }
        let mut open = Vec::new();
        for mut connection in listener.incoming().map_while(Result::ok) {
            match mode {
                Mode::Absent | Mode::Reset => drop(connection),
                Mode::Hang => open.push(connection),
                Mode::Garbage => {
                    std::thread::spawn(move || {
                        let _ = connection.read(&mut [0; 1024]);
                        while connection.write_all(&[b'x'; 4096]).is_ok() {}
                    });
                }
            }
        }
    });
    Ok(address)
}

/// The measurements of a gateway.
struct Measurement {
    /// The 99th percentile of a run, from connection to end.
    p99: Duration,
    failed: usize,
    growth: u64,
    dropped: u64,
    stopped: Duration,
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for mode in [Mode::Absent, Mode::Hang, Mode::Reset, Mode::Garbage] {
        for protocol in ["grpc", "http"] {
            let address = collector(mode)?;
            let observe = format!(
                "[observe]\ntraces = {{ endpoint = \"http://{address}\", protocol = \"{protocol}\" }}\nmetrics = {{ every = \"1s\" }}\nlogs = {{}}\n"
            );
            // In turn with one that sends nothing, so that both have the same machine.
            let bare = measure(rig, "", false)?;
            let found = measure(rig, &observe, true)?;
            let name = |what: &str| format!("{mode:?} over {protocol}: {what}");
            let failed = found.failed + bare.failed;
            checks.push(Check::at_most(name("runs that failed"), failed as f64, 0.0, "runs"));
            // A millisecond is within what two cores do by themselves.
            let bound = bare.p99.as_secs_f64() * 1e3 * MAX_RATIO + 1.0;
            checks.push(Check::info(name("p99 of a run without it"), bare.p99.as_secs_f64() * 1e3, "ms"));
            checks.push(Check::at_most(name("p99 of a run"), found.p99.as_secs_f64() * 1e3, bound, "ms"));
            checks.push(Check::at_most(name("memory"), mebibytes(found.growth), mebibytes(MAX_GROWTH), "MiB"));
            checks.push(Check::at_most(
                name("SIGTERM to exit"),
                found.stopped.as_secs_f64() * 1e3,
                MAX_STOP.as_secs_f64() * 1e3,
                "ms",
            ));
            checks.push(Check::at_least(name("spans and records counted as dropped"), found.dropped as f64, 1.0, ""));
        }
    }
    Ok(checks)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}

fn measure(rig: &Rig, observe: &str, with_sockets: bool) -> Result<Measurement> {
    let admin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let routes = ROUTES.replace("protocol = \"demo\" }", "protocol = \"demo\", options = { pace_ms = 0 } }");
    let file = format!(
        "[server]\nlisten = \"{{{{listen}}}}\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\nretention = {{ runs = 1000 }}\n\
         [admin]\nlisten = \"{admin}\"\nmetrics = \"open\"\n{observe}{routes}"
    );
    let mut gateway = Gateway::start(rig, &file)?;
    let silent: Vec<TcpStream> = match with_sockets {
        true => (0..SILENT_SOCKETS).map(|_| TcpStream::connect(admin)).collect::<Result<_, _>>()?,
        false => Vec::new(),
    };

    // Warm, so that what every gateway needs is not counted.
    ask_all(gateway.address, RUNS / 4)?;
    let before = gateway.memory()?;
    let (mut times, failed) = ask_all(gateway.address, RUNS)?;
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100];
    let growth = gateway.memory()?.saturating_sub(before);
    drop(silent);

    let dropped = if observe.is_empty() { 0 } else { count_dropped(admin)? };
    let stopped = gateway.stop(Duration::from_secs(20))?;
    Ok(Measurement { p99, failed, growth, dropped, stopped })
}

/// Asks so often. Returns how long each run took, and how many failed.
fn ask_all(address: SocketAddr, runs: usize) -> Result<(Vec<Duration>, usize)> {
    let is_broken = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let is_broken = Arc::clone(&is_broken);
            std::thread::spawn(move || {
                let (mut times, mut failed) = (Vec::new(), 0);
                for _ in 0..runs / CLIENTS {
                    let began = Instant::now();
                    match http::send(address, &http::request("POST", "/agents/demo/process", &[], BODY)) {
                        Ok(answer) if answer.status == 200 && answer.body.contains("completed") => {
                            times.push(began.elapsed());
                        }
                        Ok(_) => failed += 1,
                        Err(_) => {
                            is_broken.store(true, Ordering::Relaxed);
                            failed += 1;
                        }
                    }
                }
                (times, failed)
            })
        })
        .collect();
    let (mut times, mut failed) = (Vec::new(), 0);
    for client in clients {
        let (taken, lost) = client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
        times.extend(taken);
        failed += lost;
    }
    ensure!(!times.is_empty(), "no run succeeded; the connection broke: {}", is_broken.load(Ordering::Relaxed));
    Ok((times, failed))
}

const BODY: &str = r#"{"input":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}"#;

/// Everything that is counted as dropped, once something is: a request that hangs is given up after five seconds, and
/// sent again a few times.
fn count_dropped(admin: SocketAddr) -> Result<u64> {
    let began = Instant::now();
    loop {
        let text = http::get(admin, "/metrics")?.body;
        let lines = text.lines().filter_map(|line| line.strip_prefix("interlingua_otlp_dropped_total{"));
        let values = lines.filter_map(|line| line.split_once("} ")?.1.parse::<u64>().ok());
        let dropped = values.sum();
        if dropped > 0 || began.elapsed() > Duration::from_secs(40) {
            return Ok(dropped);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
