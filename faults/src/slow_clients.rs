//! Clients that are slow on purpose: thousands of them send a first head, a later head or a body byte by byte, or read
//! nothing of a large response. They must be disconnected within the timeouts, other clients must be served meanwhile,
//! and memory must stay bounded.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::check::Check;
use crate::gateway::Gateway;
use crate::{Rig, http};

const FILE: &str = r#"
[server]
listen = "{{listen}}"
timeouts = { head = "3s", body = "3s", write = "5s", idle = "5s" }
limits = { connections_per_address = 20000, bodies = "64MiB" }

[agents.demo]
upstream = { protocol = "demo", options = { pace_ms = 0 } }

[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"
"#;
/// The longest of those timeouts, which is also the body timeout plus two seconds to read the refusal.
const MAX_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of slow senders of each kind.
const SLOW_SENDERS: usize = 1_250;
/// Number of stalled readers in the phase that measures the memory of one.
const STALLED: usize = 500;
/// Size of the response text that they do not read, in bytes.
const RESPONSE_BYTES: usize = 6 << 20;
/// Pause between two bytes of a slow sender.
const BYTE_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut gateway = Gateway::start(rig, FILE)?;
    let run = large_run(gateway.address)?;
    let mut checks = stalled(&gateway, &run)?;
    checks.extend(all_kinds(&gateway, &run)?);
    let stopped = gateway.stop(Duration::from_secs(40))?.as_secs_f64();
    checks.push(Check::at_most("SIGTERM to exit, afterwards", stopped, 1.0, "s"));
    Ok(checks)
}

/// Runs a turn with a large reply and returns the path of the run.
fn large_run(address: SocketAddr) -> Result<String> {
    let text = format!("{} ", "x".repeat(1023)).repeat(RESPONSE_BYTES / 1024);
    let body = format!(r#"{{"stream":false,"input":[{{"role":"user","content":"echo {text}"}}]}}"#);
    let answer = http::send(address, &http::request("POST", "/agents/demo/process", &[], &body))?;
    ensure!(answer.status == 200, "the large run was answered {}: {:.300}", answer.status, answer.body);
    let id = answer.body.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).context("no id")?;
    Ok(format!("/agents/demo/runs/{id}"))
}

/// Followers of a large run that read nothing.
fn stalled(gateway: &Gateway, run: &str) -> Result<Vec<Check>> {
    let request = http::request("GET", &format!("{run}/events"), &[], "");

    // The first reader loads the run into memory for all others.
    let _first = stall(gateway.address, &request)?;
    std::thread::sleep(Duration::from_millis(500));
    let (before, files) = (gateway.memory()?, gateway.open_files()?);

    let started = Instant::now();
    let clients = (0..STALLED).map(|_| stall(gateway.address, &request)).collect::<Result<Vec<_>>>()?;
    let last = Instant::now();
    std::thread::sleep(Duration::from_millis(1500));
    let each = gateway.memory()?.saturating_sub(before) as f64 / STALLED as f64 / f64::from(1 << 10);
    let gone = until_files(gateway, files.saturating_sub(1), last)?;
    drop(clients);

    Ok(vec![
        Check::info("stalled readers of 6 MiB", STALLED as f64, ""),
        Check::info("the last of them connected after", (last - started).as_secs_f64(), "s"),
        Check::at_most("memory of a stalled reader", each, 1024.0, "KiB"),
        Check::at_most("stalled readers are gone after", gone.as_secs_f64(), MAX_TIMEOUT.as_secs_f64() + 1.0, "s"),
    ])
}

/// All kinds of slow clients at once, next to well-behaved ones.
fn all_kinds(gateway: &Gateway, run: &str) -> Result<Vec<Check>> {
    let address = gateway.address;
    let alone = percentile(&mut served(address, &AtomicBool::new(true), 200)?);
    let (before, files) = (gateway.memory()?, gateway.open_files()?);

    let over = AtomicBool::new(false);
    let (others, slow) = std::thread::scope(|scope| {
        let others = scope.spawn(|| served(address, &over, usize::MAX));
        let slow = attack(gateway, run, files);
        over.store(true, Ordering::Relaxed);
        (others.join(), slow)
    });
    let mut others = others.map_err(|_| anyhow::anyhow!("the other clients panicked"))??;
    let slow = slow?;
    let meanwhile = percentile(&mut others);

    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let limit = MAX_TIMEOUT.as_secs_f64() + 1.0;
    Ok(vec![
        Check::at_least("slow clients at once", slow.clients as f64, 4.0 * SLOW_SENDERS as f64, ""),
        Check::at_most("slow first head, disconnected after", slow.lasted[0], 3.0 + 1.0, "s"),
        Check::at_most("slow later head, disconnected after", slow.lasted[1], 3.0 + 1.0, "s"),
        Check::at_most("slow body, disconnected after", slow.lasted[2], limit, "s"),
        Check::at_most("all are gone after", slow.gone, limit, "s"),
        Check::at_most("memory of all of them", mebibytes(slow.memory.saturating_sub(before)), 512.0, "MiB"),
        Check::info("p99 of others before", alone, "ms"),
        Check::at_most("p99 of others meanwhile", meanwhile, (alone * 4.0).max(250.0), "ms"),
        Check::at_least("requests of others served meanwhile", others.len() as f64, 20.0, ""),
    ])
}

/// Measurements of the slow clients.
struct Slow {
    clients: usize,
    /// Longest connection of a slow first head, later head and body, in seconds.
    lasted: [f64; 3],
    /// From the start of the last client until the gateway had closed all of them, in seconds.
    gone: f64,
    memory: u64,
}

struct SlowSender {
    stream: TcpStream,
    kind: usize,
    started: Instant,
    gone: bool,
}

fn attack(gateway: &Gateway, run: &str, files: usize) -> Result<Slow> {
    let address = gateway.address;
    let head: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx-";
    let body: &[u8] = b"POST /agents/demo/process HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
        content-length: 100000\r\n\r\n";
    let requests = [run.to_owned(), format!("{run}/events")].map(|path| http::request("GET", &path, &[], ""));
    let (mut dripping, mut stalled) = (Vec::new(), Vec::new());
    let mut lasted = [0_f64; 3];

    for number in 0..SLOW_SENDERS {
        for kind in 0..3 {
            let mut stream = connect(address)?;
            if kind == 1 {
                stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")?;
                let _ = stream.read(&mut [0; 4096])?;
            }
            stream.write_all(if kind == 2 { body } else { head })?;
            stream.set_nonblocking(true)?;
            dripping.push(SlowSender { stream, kind, started: Instant::now(), gone: false });
        }

        // Most follow the events. Some read the run: more than the memory limit allows.
        stalled.push(stall(address, &requests[usize::from(number % 25 != 0)])?);
        if number % 100 == 0 {
            drip(&mut dripping, &mut lasted);
        }
    }

    let last = Instant::now();
    let mut memory = 0;
    while dripping.iter().any(|client| !client.gone) && last.elapsed() < MAX_TIMEOUT * 4 {
        drip(&mut dripping, &mut lasted);
        memory = memory.max(gateway.memory()?);
        std::thread::sleep(BYTE_INTERVAL);
    }
    let gone = until_files(gateway, files + 4, last)?;
    Ok(Slow { clients: dripping.len() + stalled.len(), lasted, gone: gone.as_secs_f64(), memory })
}

/// Sends one more byte on every connection that is still open.
fn drip(clients: &mut [SlowSender], lasted: &mut [f64; 3]) {
    for client in clients.iter_mut().filter(|client| !client.gone) {
        let mut closed = matches!(client.stream.write(b"x"), Err(error) if error.kind() != ErrorKind::WouldBlock);

        // Read the refusal, then the end of the connection.
        while !closed {
            match client.stream.read(&mut [0; 4096]) {
                Ok(0) => closed = true,
                Ok(_) => {}
                Err(error) => {
                    closed = error.kind() != ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        client.gone = closed;
        lasted[client.kind] = lasted[client.kind].max(client.started.elapsed().as_secs_f64());
    }
}

/// Sends a request and reads nothing.
fn stall(address: SocketAddr, request: &[u8]) -> Result<TcpStream> {
    let mut stream = connect(address)?;
    stream.write_all(request)?;
    Ok(stream)
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

/// Waits until the gateway has at most this number of open files. Returns the time since `since`.
fn until_files(gateway: &Gateway, files: usize, since: Instant) -> Result<Duration> {
    while gateway.open_files()? > files && since.elapsed() < MAX_TIMEOUT * 4 {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(since.elapsed())
}

/// Sends small requests repeatedly and returns their latencies in milliseconds.
fn served(address: SocketAddr, over: &AtomicBool, least: usize) -> Result<Vec<f64>> {
    let request =
        http::request("POST", "/agents/demo/process", &[], r#"{"input":[{"role":"user","content":"echo hello"}]}"#);
    let mut took = Vec::new();
    while !over.load(Ordering::Relaxed) || (least != usize::MAX && took.len() < least) {
        let started = Instant::now();
        let answer = http::send(address, &request)?;
        ensure!(answer.status == 200, "others are answered {}: {}", answer.status, answer.body);
        took.push(started.elapsed().as_secs_f64() * 1000.0);
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(took)
}

/// The 99th percentile.
fn percentile(took: &mut [f64]) -> f64 {
    took.sort_by(f64::total_cmp);
    took.get(took.len().saturating_sub(1 + took.len() / 100)).copied().unwrap_or(0.0)
}
