//! Requests and answers that are small on the wire and large in memory, or have no end: each gets a clear error, costs
//! at most 8 MiB or eight times its size, and leaves a gateway that serves.
//!
//! Not here: the bombs (`monsters.rs`).

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::check::Check;
use crate::gateway::Gateway;
use crate::monsters::{self, Bomb};
use crate::server::Server;
use crate::{Rig, http};

/// Maximum duration of a bomb: longer than every limit of the configuration.
const LIMIT: Duration = Duration::from_secs(20);
const MEBIBYTE: f64 = 1_048_576.0;

const FILE: &str = r#"
[server]
listen = "{{listen}}"
max_body = "4MiB"
timeouts = { head = "3s", body = "5s", write = "5s", idle = "5s" }

[store]
kind = "memory"

[agents.demo]
upstream = { protocol = "demo", options = { pace_ms = 0 } }

[agents.monster]
max_run_bytes = "1MiB"

[agents.monster.upstream]
protocol = "agent-api"
url = "{url}"
max_event = "1MiB"
timeouts = { first_byte = "3s", idle = "3s", total = "10s" }

[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"

[[routes]]
protocol = "responses"
path = "/v1"
"#;

/// The outcome of a bomb.
struct Outcome {
    /// The bytes that the client received, or nothing.
    received: String,
    took: f64,
    /// Bytes that the gateway grew by at most.
    grown: u64,
    /// Bytes that were sent.
    sent: u64,
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for bomb in monsters::of_clients() {
        let outcome = in_a_new_gateway(rig, &bomb, from_client)?;
        checks.extend(judge("client", &bomb, &outcome));
    }
    for bomb in monsters::of_agents() {
        let outcome = in_a_new_gateway(rig, &bomb, from_agent)?;
        checks.extend(judge("agent", &bomb, &outcome));
    }
    Ok(checks)
}

/// Memory that was freed stays with the process, so that each bomb gets a process of its own.
fn in_a_new_gateway(
    rig: &Rig,
    bomb: &Bomb,
    explode: impl FnOnce(&Gateway, &Bomb) -> Result<(String, u64)>,
) -> Result<Outcome> {
    let bytes = bomb.clone();
    let agent = Server::start(move |_, connection| {
        bytes.write(connection)?;
        Ok(false)
    })?;
    let gateway = Gateway::start(rig, &FILE.replace("{url}", &agent.url("/process")))?;
    // Code and connections are warm.
    let hello = http::request("POST", "/agents/demo/process", &[], r#"{"input":[{"role":"user","content":"hi"}]}"#);
    ensure!(http::send(gateway.address, &hello)?.status == 200, "a new gateway does not serve");
    let (before, started) = (gateway.memory()?, Instant::now());
    let (received, sent) = explode(&gateway, bomb)?;
    let took = started.elapsed().as_secs_f64();
    let grown = gateway.peak()?.saturating_sub(before);
    ensure!(http::send(gateway.address, &hello)?.status == 200, "{}: it no longer serves", bomb.name);
    Ok(Outcome { received, took, grown, sent })
}

fn judge(by: &str, bomb: &Bomb, outcome: &Outcome) -> Vec<Check> {
    let name = format!("{by}: {}", bomb.name);
    let is_clear = bomb.expected.iter().any(|expected| outcome.received.contains(expected));
    if !is_clear {
        let tail = outcome.received.char_indices().rev().nth(300).map_or(0, |(at, _)| at);
        eprintln!("{name}: {:.400} … {}", outcome.received, &outcome.received[tail..]);
    }
    // What has an end may cost eight times its size.
    let bound = if bomb.has_end() { (8.0 * outcome.sent as f64 / MEBIBYTE).max(8.0) } else { 8.0 };
    vec![
        Check::at_least(format!("{name}: a clear error"), f64::from(u8::from(is_clear)), 1.0, ""),
        Check::at_most(format!("{name}: memory grown"), outcome.grown as f64 / MEBIBYTE, bound, "MiB"),
        Check::at_most(format!("{name}: answered or over after"), outcome.took, LIMIT.as_secs_f64(), "s"),
    ]
}

/// Sends a bomb as a client, and returns what it received and how much of it was taken.
fn from_client(gateway: &Gateway, bomb: &Bomb) -> Result<(String, u64)> {
    let mut connection = TcpStream::connect(gateway.address)?;
    connection.set_nonblocking(true)?;
    let (mut received, started) = (Vec::new(), Instant::now());
    let mut pieces = bomb.pieces();
    let (mut piece, mut at, mut sent, mut ended) = (pieces.next().unwrap_or_default(), 0, 0, false);
    while !ended && started.elapsed() < LIMIT {
        let mut buffer = [0; 4096];
        match connection.read(&mut buffer) {
            Ok(0) => ended = true,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) => ended = error.kind() != ErrorKind::WouldBlock,
        }
        if at == piece.len() {
            (piece, at) = (pieces.next().unwrap_or_default(), 0);
        }
        match connection.write(&piece[at..]) {
            Ok(count) if count > 0 => {
                at += count;
                sent += count as u64;
            }
            // Nothing more to send, or no room for it: the answer comes.
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    ensure!(received.len() < 1 << 20, "{}: received too much", bomb.name);
    Ok((String::from_utf8_lossy(&received).into_owned(), sent))
}

/// Asks the agent for a bomb, and returns what the client received and how much the agent could send.
fn from_agent(gateway: &Gateway, bomb: &Bomb) -> Result<(String, u64)> {
    let body = r#"{"input":[{"role":"user","content":[{"type":"text","text":"go"}]}]}"#;
    let received = drain(gateway.address, &http::request("POST", "/agents/monster/process", &[], body))?;
    Ok((received, bomb.sent()))
}

/// Reads an answer as it comes, and keeps its beginning and its end.
fn drain(address: SocketAddr, request: &[u8]) -> Result<String> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(LIMIT * 2))?;
    connection.write_all(request)?;
    let (mut received, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match connection.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
        }
        // The last frame may repeat the whole text, up to the limit of a run.
        if received.len() > 4 << 20 {
            received.drain(4096..2 << 20);
        }
    }
    Ok(String::from_utf8_lossy(&received).into_owned())
}
