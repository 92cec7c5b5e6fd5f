//! Clients that are slow on purpose: thousands of them drip a first head, a later head or a body, or read nothing of a
//! large answer. They have to be gone within their times, others have to be served meanwhile, and none may cost much.

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
/// The longest of those times, and two seconds for a client to read that its body was too slow.
const LONGEST: Duration = Duration::from_secs(5);

/// Of each kind.
const DRIPPING: usize = 1_250;
/// Who read nothing, in the phase that measures what one of them costs.
const STALLED: usize = 500;
/// The text of the answer they do not read.
const ANSWER: usize = 6 << 20;
/// Between two bytes of a client that drips.
const DRIP: Duration = Duration::from_millis(200);

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut gateway = Gateway::start(rig, FILE)?;
    let run = large_run(gateway.address)?;
    let mut checks = stalled(&gateway, &run)?;
    checks.extend(everybody(&gateway, &run)?);
    let stopped = gateway.stop(Duration::from_secs(40))?.as_secs_f64();
    checks.push(Check::at_most("SIGTERM to the end, afterwards", stopped, 1.0, "s"));
    Ok(checks)
}

/// Has the demo agent say a long text, and answers the path of that run.
fn large_run(address: SocketAddr) -> Result<String> {
    let text = format!("{} ", "x".repeat(1023)).repeat(ANSWER / 1024);
    let body = format!(r#"{{"stream":false,"input":[{{"role":"user","content":"echo {text}"}}]}}"#);
    let answer = http::ask(address, &http::request("POST", "/agents/demo/process", &[], &body))?;
    ensure!(answer.status == 200, "the large run was answered {}: {:.300}", answer.status, answer.body);
    let id = answer.body.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).context("no id")?;
    Ok(format!("/agents/demo/runs/{id}"))
}

/// Followers of a large run who read nothing.
fn stalled(gateway: &Gateway, run: &str) -> Result<Vec<Check>> {
    let request = http::request("GET", &format!("{run}/events"), &[], "");
    // The first reader has the run loaded, for all that come after.
    let _first = stall(gateway.address, &request)?;
    std::thread::sleep(Duration::from_millis(500));
    let (before, files) = (gateway.memory()?, gateway.open_files()?);

    let began = Instant::now();
    let clients = (0..STALLED).map(|_| stall(gateway.address, &request)).collect::<Result<Vec<_>>>()?;
    let last = Instant::now();
    std::thread::sleep(Duration::from_millis(1500));
    let each = gateway.memory()?.saturating_sub(before) as f64 / STALLED as f64 / f64::from(1 << 10);
    let gone = until_files(gateway, files.saturating_sub(1), last)?;
    drop(clients);
    Ok(vec![
        Check::shown("stalled readers of 6 MiB", STALLED as f64, ""),
        Check::shown("the last of them came after", (last - began).as_secs_f64(), "s"),
        Check::at_most("memory of a stalled reader", each, 1024.0, "KiB"),
        Check::at_most("stalled readers are gone after", gone.as_secs_f64(), LONGEST.as_secs_f64() + 1.0, "s"),
    ])
}

/// All kinds at once, and others beside them.
fn everybody(gateway: &Gateway, run: &str) -> Result<Vec<Check>> {
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
    let limit = LONGEST.as_secs_f64() + 1.0;
    Ok(vec![
        Check::at_least("slow clients at once", slow.clients as f64, 4.0 * DRIPPING as f64, ""),
        Check::at_most("a dripped first head lasts at most", slow.lasted[0], 3.0 + 1.0, "s"),
        Check::at_most("a dripped later head lasts at most", slow.lasted[1], 3.0 + 1.0, "s"),
        Check::at_most("a dripped body lasts at most", slow.lasted[2], limit, "s"),
        Check::at_most("all are gone after", slow.gone, limit, "s"),
        Check::at_most("memory of all of them", mebibytes(slow.memory.saturating_sub(before)), 512.0, "MiB"),
        Check::shown("p99 of others before", alone, "ms"),
        Check::at_most("p99 of others meanwhile", meanwhile, (alone * 4.0).max(250.0), "ms"),
        Check::at_least("requests of others served meanwhile", others.len() as f64, 20.0, ""),
    ])
}

/// How the slow ones fared.
struct Slow {
    clients: usize,
    /// The longest life of one whose first head, later head, or body dripped, in seconds.
    lasted: [f64; 3],
    /// From the last one's beginning until the gateway had closed all of them, in seconds.
    gone: f64,
    memory: u64,
}

struct Dripping {
    stream: TcpStream,
    kind: usize,
    began: Instant,
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
    for number in 0..DRIPPING {
        for kind in 0..3 {
            let mut stream = connect(address)?;
            if kind == 1 {
                stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")?;
                let _ = stream.read(&mut [0; 4096])?;
            }
            stream.write_all(if kind == 2 { body } else { head })?;
            stream.set_nonblocking(true)?;
            dripping.push(Dripping { stream, kind, began: Instant::now(), gone: false });
        }
        // Most follow, some fetch the whole: more of those than there is room for.
        stalled.push(stall(address, &requests[usize::from(number % 25 != 0)])?);
        if number % 100 == 0 {
            drip(&mut dripping, &mut lasted);
        }
    }
    let last = Instant::now();
    let mut memory = 0;
    while dripping.iter().any(|client| !client.gone) && last.elapsed() < LONGEST * 4 {
        drip(&mut dripping, &mut lasted);
        memory = memory.max(gateway.memory()?);
        std::thread::sleep(DRIP);
    }
    let gone = until_files(gateway, files + 4, last)?;
    Ok(Slow { clients: dripping.len() + stalled.len(), lasted, gone: gone.as_secs_f64(), memory })
}

/// Every client that is still there sends one more byte.
fn drip(clients: &mut [Dripping], lasted: &mut [f64; 3]) {
    for client in clients.iter_mut().filter(|client| !client.gone) {
        let mut closed = matches!(client.stream.write(b"x"), Err(error) if error.kind() != ErrorKind::WouldBlock);
        // A refusal is read; the end of the connection follows it.
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
        lasted[client.kind] = lasted[client.kind].max(client.began.elapsed().as_secs_f64());
    }
}

/// Asks for something large, and reads nothing.
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

/// Waits until the gateway has no more open files than that; answers how long after a moment that was.
fn until_files(gateway: &Gateway, files: usize, since: Instant) -> Result<Duration> {
    while gateway.open_files()? > files && since.elapsed() < LONGEST * 4 {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(since.elapsed())
}

/// Asks something small again and again; answers how long each answer took, in milliseconds.
fn served(address: SocketAddr, over: &AtomicBool, least: usize) -> Result<Vec<f64>> {
    let request =
        http::request("POST", "/agents/demo/process", &[], r#"{"input":[{"role":"user","content":"echo hello"}]}"#);
    let mut took = Vec::new();
    while !over.load(Ordering::Relaxed) || (least != usize::MAX && took.len() < least) {
        let began = Instant::now();
        let answer = http::ask(address, &request)?;
        ensure!(answer.status == 200, "others are answered {}: {}", answer.status, answer.body);
        took.push(began.elapsed().as_secs_f64() * 1000.0);
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(took)
}

/// The 99th of a hundred.
fn percentile(took: &mut [f64]) -> f64 {
    took.sort_by(f64::total_cmp);
    took.get(took.len().saturating_sub(1 + took.len() / 100)).copied().unwrap_or(0.0)
}
