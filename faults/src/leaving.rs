//! Clients that disconnect before the first byte of their answer and in the middle of it: the time until the connection
//! to the agent is closed, and the completion of runs that do not depend on a client.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::check::Check;
use crate::frames::{EVENTS, closing, delta, opening};
use crate::gateway::Gateway;
use crate::server::{Request, Server, chunk};
use crate::{Rig, http};

/// Clients that leave: one half before the first byte, the other half in the middle.
const LEAVING: usize = 1000;
/// Clients whose runs continue.
const DURABLE: usize = 200;
/// Clients at a time.
const AT_ONCE: usize = 8;
/// Duration of the agent's work after a client of a durable run may have disconnected.
const WORK: Duration = Duration::from_millis(200);

const CONFIGURATION: &str = r#"
[server]
listen = "{{listen}}"
drain = "10s"

[store]
kind = "memory"

[agents.friday.upstream]
protocol = "agent-api"
url = "{url}"

[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"

[[routes]]
protocol = "agent-api"
path = "/durable/{agent}"
on_disconnect = "detach"
"#;

/// When each connection of a request was closed, by the number of the request.
type CloseTimes = Arc<Mutex<HashMap<usize, Instant>>>;

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let closed = CloseTimes::default();
    let noted = Arc::clone(&closed);
    let agent = Server::start(move |request, connection| answer(request, connection, &noted))?;
    let gateway = Gateway::start(rig, &CONFIGURATION.replace("{url}", &agent.url("/process")))?;
    let address = gateway.address;

    // What a gateway has open once it has worked.
    each(40, |number| leave(address, number, number % 2 == 0).map(drop))?;
    thread::sleep(Duration::from_secs(6));
    let files = gateway.open_files()?;

    let mut checks = Vec::new();
    for (name, reads) in [("before the first byte", false), ("in the middle", true)] {
        checks.extend(closings(address, name, reads, &closed)?);
    }
    let finished = durable(address)?;
    let (active, left) = settled(&gateway, files)?;
    checks.extend([
        Check::at_least("durable runs that completed", finished as f64, DURABLE as f64, ""),
        Check::at_most("runs left under way", active as f64, 0.0, ""),
        Check::at_most("files left open", left as f64, 0.0, ""),
        Check::at_most("panics in the log", gateway.log().matches("panicked").count() as f64, 0.0, ""),
    ]);
    Ok(checks)
}

/// Answers as the words of a request say: `silent` never, `stream` with words without end, `durable` with an answer
/// that takes a while. Notes when the connection was closed.
fn answer(request: &Request, connection: &mut TcpStream, closed: &CloseTimes) -> std::io::Result<bool> {
    let body = String::from_utf8_lossy(&request.body).into_owned();
    let number = body.split("number-").nth(1).and_then(|rest| rest.split('-').next()?.parse().ok());
    if body.contains("durable") {
        connection.write_all(&begun("so far"))?;
        thread::sleep(WORK);
        connection.write_all(&chunk(closing().as_bytes()))?;
        connection.write_all(b"0\r\n\r\n")?;
        return Ok(true);
    }

    if body.contains("stream") {
        connection.write_all(&begun("so far"))?;
    }
    // Nothing comes any more: the end, or an error.
    while matches!(connection.read(&mut [0; 64]), Ok(1..)) {}
    if let Some(number) = number {
        closed.lock().expect("no agent panics").insert(number, Instant::now());
    }
    Ok(false)
}

/// The head of an answer, and its first words.
fn begun(words: &str) -> Vec<u8> {
    [EVENTS.as_bytes(), &chunk(opening().as_bytes()), &chunk(delta(words).as_bytes())].concat()
}

fn body(words: &str) -> String {
    format!(r#"{{"input":[{{"role":"user","content":[{{"type":"text","text":"{words}"}}]}}]}}"#)
}

/// Sends a request, and leaves: after the first words, or while the agent is silent. Returns when.
fn leave(gateway: SocketAddr, number: usize, reads: bool) -> Result<Instant> {
    let word = if reads { "stream" } else { "silent" };
    let request = http::request("POST", "/agents/friday/process", &[], &body(&format!("{word} number-{number}-")));
    let mut connection = TcpStream::connect(gateway)?;
    connection.set_nodelay(true)?;
    connection.write_all(&request)?;
    if reads {
        read_until(&mut connection, "so far")?;
    } else {
        // Until the agent has the request.
        thread::sleep(Duration::from_millis(30));
    }
    if number % 4 < 2 {
        // With zero linger, closing the socket sends a reset.
        rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO))?;
    }
    let left = Instant::now();
    drop(connection);
    Ok(left)
}

fn read_until(connection: &mut TcpStream, text: &str) -> Result<()> {
    connection.set_read_timeout(Some(Duration::from_secs(10)))?;
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&read).contains(text) {
        let count = connection.read(&mut buffer)?;
        ensure!(count > 0, "the answer ended: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&buffer[..count]);
    }
    Ok(())
}

/// Does something for each number, several at a time.
fn each(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let one = || loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return Ok(());
        }
        work(number)?;
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(one)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a panic"))))
    })
}

/// The time until the agent's connection is closed after the client disconnected.
fn closings(gateway: SocketAddr, name: &str, reads: bool, closed: &CloseTimes) -> Result<Vec<Check>> {
    closed.lock().expect("no agent panics").clear();
    let left: Mutex<Vec<(usize, Instant)>> = Mutex::default();
    each(LEAVING / 2, |number| {
        let at = leave(gateway, number, reads)?;
        left.lock().expect("no client panics").push((number, at));
        Ok(())
    })?;

    let left = left.into_inner().expect("no client panics");
    let known = || closed.lock().expect("no agent panics").len();
    let began = Instant::now();
    while known() < left.len() && began.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(10));
    }
    let closed = closed.lock().expect("no agent panics");
    let mut took: Vec<Duration> = Vec::new();
    for (number, at) in &left {
        took.extend(closed.get(number).map(|closed| closed.saturating_duration_since(*at)));
    }
    took.sort_unstable();
    let millis = |share: f64| {
        let at = ((took.len() as f64 * share).ceil() as usize).clamp(1, took.len().max(1)) - 1;
        took.get(at).map_or(f64::INFINITY, |took| took.as_secs_f64() * 1000.0)
    };
    let named = |what: &str| format!("{name}: {what}");
    Ok(vec![
        Check::at_most(named("connections to the agent left open"), (left.len() - took.len()) as f64, 0.0, ""),
        Check::info(named("agent's connection closed, median"), millis(0.5), "ms"),
        Check::at_most(named("agent's connection closed, p99"), millis(0.99), 50.0, "ms"),
    ])
}

/// Clients disconnect in the middle of durable runs. Returns the number of completed runs.
fn durable(gateway: SocketAddr) -> Result<usize> {
    each(DURABLE, |number| {
        let request = http::request("POST", "/durable/friday/process", &[], &body(&format!("durable {number}")));
        let mut connection = TcpStream::connect(gateway)?;
        connection.write_all(&request)?;
        read_until(&mut connection, "so far")
    })?;
    let began = Instant::now();
    loop {
        let completed = count(gateway, "completed")?;
        if completed >= DURABLE || began.elapsed() > Duration::from_secs(10) {
            return Ok(completed);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// The number of runs with this status.
fn count(gateway: SocketAddr, status: &str) -> Result<usize> {
    let (mut found, mut cursor) = (0, String::new());
    loop {
        let list = http::get(gateway, &format!("/agents/friday/runs?limit=100{cursor}"))?;
        ensure!(list.status == 200, "the list of runs was answered {}: {}", list.status, list.body);
        let statuses = list.body.split("\"object\":\"response\"").skip(1);
        found += statuses.filter(|run| run.contains(&format!("\"status\":\"{status}\""))).count();
        match list.body.split("\"next\":\"").nth(1).and_then(|rest| rest.split('"').next()) {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(found),
        }
    }
}

/// Waits until nothing is under way and idle connections are closed. Returns what is left then: runs, and files.
fn settled(gateway: &Gateway, files: usize) -> Result<(usize, usize)> {
    let began = Instant::now();
    loop {
        let active = count(gateway.address, "in_progress")? + count(gateway.address, "queued")?;
        let open = gateway.open_files().context("its open files")?.saturating_sub(files);
        if (active == 0 && open == 0) || began.elapsed() > Duration::from_secs(15) {
            return Ok((active, open));
        }
        thread::sleep(Duration::from_millis(200));
    }
}
