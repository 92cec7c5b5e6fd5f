//! Ten thousand wrong keys a second, in every form a key can be wrong in: each is refused, and callers with keys see no
//! difference. Their latency is compared with that under as many harmless requests, since the rig and the gateway share
//! the machine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::check::Check;
use crate::gateway::{FAST_DEMO, Gateway};
use crate::others::{beside, median, p99};
use crate::{Rig, http};

/// Wrong keys a second.
const RATE: f64 = 10_000.0;
/// Connections of those who try.
const ATTACKERS: usize = 4;
/// Requests that one of them sends before it reads the answers.
const TOGETHER: usize = 25;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(3);

const HEAD: &str = r#"
[server]
listen = "{{listen}}"

[auth]
keys = "keys.toml"

[observe]
access_log = { format = "json", path = "access.jsonl" }
audit = "audit.jsonl"
"#;

/// The answers to the attempts.
#[derive(Default)]
struct AttemptResults {
    sent: AtomicU64,
    refused: AtomicU64,
    /// Refused with 429, for there were too many.
    limited: AtomicU64,
    let_in: AtomicU64,
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut gateway = Gateway::start(rig, &format!("{HEAD}{FAST_DEMO}"))?;
    let key = gateway.new_key("ann")?;
    thread::sleep(Duration::from_millis(2500));
    let body = r#"{"stream":false,"input":[{"role":"user","content":"echo hello"}]}"#;
    let bearer = format!("Bearer {key}");
    let valid = http::request("POST", "/agents/demo/process", &[("authorization", &bearer)], body);

    // The first round warms what is cached.
    beside(gateway.address, &valid, Duration::from_secs(1), |_| Ok(()))?;
    let (wrong, harmless) = (AttemptResults::default(), AttemptResults::default());
    let (mut alone, mut calm, mut attacked, mut before) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for round in 0..ROUNDS {
        alone.push(p99(beside(gateway.address, &valid, ROUND, |_| Ok(()))?.0));
        calm.push(p99(beside(gateway.address, &valid, ROUND, attack(gateway.address, &key, false, &harmless))?.0));
        attacked.push(p99(beside(gateway.address, &valid, ROUND, attack(gateway.address, &key, true, &wrong))?.0));
        if round == 0 {
            before = gateway.memory()?;
        }
    }

    let ratios = attacked.iter().zip(&calm).map(|(attacked, calm)| attacked / calm).collect();
    let grown = gateway.memory()?.saturating_sub(before) as f64 / f64::from(1 << 20);
    let audited = std::fs::metadata(gateway.folder().join("audit.jsonl"))?.len() as f64 / f64::from(1 << 20);
    let stopped = gateway.stop(Duration::from_secs(40))?.as_secs_f64();
    let a_second = wrong.sent.load(Ordering::Relaxed) as f64 / (ROUNDS as f64 * ROUND.as_secs_f64());
    let number = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
    let unanswered = number(&wrong.sent) - number(&wrong.refused) - number(&wrong.limited) - number(&wrong.let_in);
    Ok(vec![
        Check::at_least("wrong keys a second", a_second, RATE * 0.9, ""),
        Check::at_most("wrong keys let in", number(&wrong.let_in), 0.0, ""),
        Check::at_most("wrong keys without an answer", unanswered, 0.0, ""),
        Check::info("… of the answers 429", 100.0 * number(&wrong.limited) / number(&wrong.sent), "%"),
        Check::info("p99 of callers alone", median(alone), "ms"),
        Check::info("p99 of callers beside as many health checks", median(calm), "ms"),
        Check::info("p99 of callers beside the wrong keys", median(attacked), "ms"),
        Check::at_most("… ratio, median of the rounds", median(ratios), 2.0, "×"),
        Check::at_most("memory grown", grown, 8.0, "MiB"),
        Check::at_most("the audit log has", audited, 8.0, "MiB"),
        Check::at_most("SIGTERM to exit", stopped, 1.0, "s"),
    ])
}

/// Sends requests at the rate: with wrong keys, or health checks of about the same size.
fn attack<'a>(
    address: SocketAddr,
    key: &'a str,
    wrong: bool,
    tried: &'a AttemptResults,
) -> impl FnOnce(&AtomicBool) -> Result<()> + Send + use<'a> {
    move |over| {
        thread::scope(|scope| {
            let attackers: Vec<_> =
                (0..ATTACKERS).map(|_| scope.spawn(|| attacker(address, key, wrong, tried, over))).collect();
            attackers.into_iter().try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("a panic"))?)
        })
    }
}

fn attacker(address: SocketAddr, key: &str, wrong: bool, tried: &AttemptResults, over: &AtomicBool) -> Result<()> {
    let mut connection = connect(address)?;
    let pause = Duration::from_secs_f64(TOGETHER as f64 * ATTACKERS as f64 / RATE);
    let mut next = Instant::now();
    let mut answers = Vec::new();
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        let requests: Vec<u8> = (0..TOGETHER).flat_map(|at| request(key, wrong, number + at)).collect();
        number += TOGETHER;
        connection.write_all(&requests)?;
        tried.sent.fetch_add(TOGETHER as u64, Ordering::Relaxed);
        if read_answers(&mut connection, &mut answers).is_err() {
            // The gateway may close a connection between two answers.
            connection = connect(address)?;
        }
        let text = String::from_utf8_lossy(&answers);
        for (status, counter) in
            [("HTTP/1.1 401", &tried.refused), ("HTTP/1.1 429", &tried.limited), ("HTTP/1.1 200", &tried.let_in)]
        {
            counter.fetch_add(text.matches(status).count() as u64, Ordering::Relaxed);
        }
        next += pause;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(connection)
}

/// A request with a key that is wrong in one of five ways.
fn request(key: &str, wrong: bool, number: usize) -> Vec<u8> {
    let (id, secret) = key.rsplit_once('_').unwrap_or((key, ""));
    let other: String = secret.chars().rev().collect();
    let (name, value) = match number % 5 {
        0 => ("authorization", format!("Bearer {id}_{other}")),
        1 => ("authorization", format!("Bearer il_{number:012}_{other}")),
        2 => ("x-api-key", format!("{id}_{}", &secret[1..])),
        3 => ("authorization", format!("Bearer {number:064}")),
        _ => ("authorization", format!("Basic {number:064}")),
    };
    let path = if wrong { "/agents/demo/runs" } else { "/healthz" };
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{name}: {value}\r\n\r\n").into_bytes()
}

/// Reads as many answers as were asked for. Each has a length.
fn read_answers(connection: &mut TcpStream, answers: &mut Vec<u8>) -> Result<()> {
    answers.clear();
    let (mut buffer, mut at) = ([0; 32 * 1024], 0);
    for _ in 0..TOGETHER {
        let end = loop {
            if let Some(end) = answers[at..].windows(4).position(|window| window == b"\r\n\r\n") {
                break at + end + 4;
            }
            let count = connection.read(&mut buffer)?;
            anyhow::ensure!(count > 0, "closed");
            answers.extend_from_slice(&buffer[..count]);
        };
        let head = String::from_utf8_lossy(&answers[at..end]).to_lowercase();
        let length = head.split("content-length:").nth(1).and_then(|rest| rest.split("\r\n").next());
        let length: usize = length.context("no length")?.trim().parse()?;
        while answers.len() < end + length {
            let count = connection.read(&mut buffer)?;
            anyhow::ensure!(count > 0, "closed");
            answers.extend_from_slice(&buffer[..count]);
        }
        at = end + length;
    }
    Ok(())
}
