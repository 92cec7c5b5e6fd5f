//! Clients that are slow on purpose: thousands of them send a first head, a later head or a body byte by byte, or read
//! nothing of a large response. They must be disconnected within the timeouts, other clients must be served meanwhile,
//! and memory must stay bounded.
//!
//! What others notice of readers that take nothing is compared with the same minute without them. Those who drip cost
//! the rig as much as the gateway, on the same machine: there the limit is wider.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::check::Check;
use crate::frames::EVENTS;
use crate::gateway::Gateway;
use crate::others::{beside, latencies, median, p99};
use crate::server::{Server, chunk};
use crate::{Rig, frames, http};

const FILE: &str = r#"
[server]
listen = "{{listen}}"
timeouts = { head = "3s", body = "3s", write = "5s", idle = "5s" }
limits = { connections_per_address = 20000, bodies = "64MiB" }

[agents.demo]
upstream = { protocol = "demo", options = { pace_ms = 0 } }

[agents.large.upstream]
protocol = "agent-api"
url = "{url}"

[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"
"#;
/// The timeout of heads and bodies, and that of readers that take nothing.
const DRIP_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of slow senders of each kind.
const SLOW_SENDERS: usize = 1_700;
/// Number of stalled readers in the phase that measures the memory of one.
const STALLED: usize = 500;
/// The answer that they do not read: this number of deltas of this size, 40 MiB in all.
const DELTAS: usize = 640;
const DELTA_BYTES: usize = 64 << 10;
/// Number of readers of the whole run as one document.
const WHOLE: usize = 20;
/// Rounds without and with stalled readers.
const ROUNDS: usize = 3;
/// Duration of a measurement of others. Stalled readers stay a little longer.
const ROUND: Duration = Duration::from_millis(3500);
/// Pause between two bytes of a slow sender.
const BYTE_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let agent = Server::start(|_, connection| {
        let delta = chunk(frames::delta(&"x".repeat(DELTA_BYTES)).as_bytes());
        connection.write_all(&[EVENTS.as_bytes(), &chunk(frames::opening().as_bytes())].concat())?;
        (0..DELTAS).try_for_each(|_| connection.write_all(&delta))?;
        connection.write_all(&[&chunk(frames::closing().as_bytes()), b"0\r\n\r\n".as_slice()].concat())?;
        Ok(true)
    })?;
    let mut gateway = Gateway::start(rig, &FILE.replace("{url}", &agent.url("/process")))?;
    let run = large_run(gateway.address)?;
    let mut checks = stalled(&gateway, &run)?;
    checks.extend(whole(&gateway, &run)?);
    checks.extend(drips(&gateway)?);
    let stopped = gateway.stop(Duration::from_secs(40))?.as_secs_f64();
    checks.push(Check::at_most("SIGTERM to exit, afterwards", stopped, 1.0, "s"));
    Ok(checks)
}

/// Runs a turn with a large reply and returns the path of the run.
fn large_run(address: SocketAddr) -> Result<String> {
    let body = r#"{"stream":false,"input":[{"role":"user","content":"go on"}]}"#;
    let answer = http::send(address, &http::request("POST", "/agents/large/process", &[], body))?;
    ensure!(answer.status == 200, "the large run was answered {}: {:.300}", answer.status, answer.body);
    ensure!(answer.body.len() > 40 << 20, "the large run is too small: {}", answer.body.len());
    let id = answer.body.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).context("no id")?;
    Ok(format!("/agents/large/runs/{id}"))
}

/// Followers of a large run that read nothing, and what others notice of them.
fn stalled(gateway: &Gateway, run: &str) -> Result<Vec<Check>> {
    let request = http::request("GET", &format!("{run}/events"), &[], "");
    let hello = hello();
    let (mut calm, mut beside_them, mut each, mut gone) = (Vec::new(), Vec::new(), 0.0_f64, 0.0_f64);
    beside(gateway.address, &hello, Duration::from_secs(1), |_| Ok(()))?;
    for _ in 0..ROUNDS {
        calm.push(p99(beside(gateway.address, &hello, ROUND, |_| Ok(()))?.0));

        // The first reader loads the run into memory for all others.
        let _first = stall(gateway.address, &request)?;
        std::thread::sleep(Duration::from_millis(500));
        let (before, files) = (gateway.memory()?, gateway.open_files()?);
        let clients = (0..STALLED).map(|_| stall(gateway.address, &request)).collect::<Result<Vec<_>>>()?;
        let last = Instant::now();
        beside_them.push(p99(beside(gateway.address, &hello, ROUND, |_| Ok(()))?.0));
        let held = gateway.memory()?.saturating_sub(before) as f64 / STALLED as f64 / f64::from(1 << 10);
        each = each.max(held);
        gone = gone.max(until_files(gateway, files.saturating_sub(1), last)?.as_secs_f64());
        drop(clients);
    }

    let ratios = beside_them.iter().zip(&calm).map(|(beside, calm)| beside / calm).collect();
    Ok(vec![
        Check::info("stalled readers of 40 MiB", STALLED as f64, ""),
        Check::at_most("memory of a stalled reader", each, 1024.0, "KiB"),
        Check::at_most("stalled readers are gone after", gone, MAX_TIMEOUT.as_secs_f64() + 1.0, "s"),
        Check::info("p99 of others without them", median(calm), "ms"),
        Check::info("p99 of others beside them", median(beside_them), "ms"),
        Check::at_most("… ratio, median of the rounds", median(ratios), 2.0, "×"),
    ])
}

/// Readers of the run as one document, which is in memory for each of them: together within `limits.bodies`, and those
/// beyond it are refused.
fn whole(gateway: &Gateway, run: &str) -> Result<Vec<Check>> {
    let request = http::request("GET", run, &[], "");
    let (before, files) = (gateway.memory()?, gateway.open_files()?);
    let clients = (0..WHOLE).map(|_| stall(gateway.address, &request)).collect::<Result<Vec<_>>>()?;
    let last = Instant::now();
    let mut most = before;
    while gateway.open_files()? > files && last.elapsed() < MAX_TIMEOUT * 4 {
        most = most.max(gateway.memory()?);
        std::thread::sleep(Duration::from_millis(50));
    }
    let gone = last.elapsed().as_secs_f64();
    drop(clients);
    let grown = (most - before) as f64 / f64::from(1 << 20);
    Ok(vec![
        Check::at_most("memory of 20 stalled readers of 40 MiB as one document", grown, 192.0, "MiB"),
        Check::at_most("… they are gone after", gone, MAX_TIMEOUT.as_secs_f64() + 2.0, "s"),
    ])
}

/// A small request of others.
fn hello() -> Vec<u8> {
    http::request("POST", "/agents/demo/process", &[], r#"{"input":[{"role":"user","content":"echo hello"}]}"#)
}

/// Clients that send a first head, a later head and a body one byte at a time, next to well-behaved clients.
fn drips(gateway: &Gateway) -> Result<Vec<Check>> {
    let address = gateway.address;
    let hello = hello();
    let alone = p99(beside(address, &hello, Duration::from_secs(2), |_| Ok(()))?.0);
    let (before, files) = (gateway.memory()?, gateway.open_files()?);

    let over = AtomicBool::new(false);
    let (others, slow) = std::thread::scope(|scope| {
        let others = scope.spawn(|| latencies(address, &hello, &over));
        let slow = attack(gateway, files);
        over.store(true, Ordering::Relaxed);
        (others.join(), slow)
    });
    let others = others.map_err(|_| anyhow::anyhow!("the other clients panicked"))??;
    let (slow, served) = (slow?, others.len());
    let meanwhile = p99(others);

    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let limit = DRIP_TIMEOUT.as_secs_f64() + 1.0;
    Ok(vec![
        Check::at_least("slow clients at once", slow.clients as f64, 5000.0, ""),
        Check::at_most("slow first head, disconnected after", slow.lasted[0], limit, "s"),
        Check::at_most("slow later head, disconnected after", slow.lasted[1], limit, "s"),
        Check::at_most("slow body, disconnected after", slow.lasted[2], limit, "s"),
        Check::at_most("all are gone after", slow.gone, limit, "s"),
        Check::at_most("memory of all of them", mebibytes(slow.memory.saturating_sub(before)), 512.0, "MiB"),
        Check::info("p99 of others before", alone, "ms"),
        Check::at_most("p99 of others meanwhile", meanwhile, (alone * 4.0).max(250.0), "ms"),
        Check::at_least("requests of others served meanwhile", served as f64, 20.0, ""),
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

fn attack(gateway: &Gateway, files: usize) -> Result<Slow> {
    let address = gateway.address;
    let head: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx-";
    let body: &[u8] = b"POST /agents/demo/process HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
        content-length: 100000\r\n\r\n";
    let mut dripping = Vec::new();
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
    Ok(Slow { clients: dripping.len(), lasted, gone: gone.as_secs_f64(), memory })
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
