//! Clients that flood a connection of HTTP/2 with what costs the gateway more than them: each is closed soon, costs
//! little memory and begins no run, and others are served meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::Rig;
use crate::certificates::Authority;
use crate::check::Check;
use crate::gateway::{FAST_DEMO, Gateway};
use crate::others::p99;

const HEAD: &str = r#"
[server]
listen = "{{listen}}"
tls = { cert = "cert.pem", key = "key.pem" }
timeouts = { head = "3s", body = "3s", write = "3s", idle = "5s" }
"#;

/// Maximum duration of a flood.
const SOON: f64 = 2.0;
/// Maximum duration of a client that reads one byte at a time: `timeouts.write` and a second.
const WRITE_TIMEOUT: f64 = 3.0 + 1.0;
/// Duration of the measurement of others, without floods and with them.
const MEASURED: Duration = Duration::from_secs(6);
const ATTACKERS: usize = 2;
const MEBIBYTE: f64 = 1_048_576.0;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The frames on one connection: first some, then these again and again.
struct Flood {
    name: &'static str,
    first: Vec<u8>,
    frames: fn(u32) -> Vec<u8>,
    count: u32,
}

fn floods() -> Vec<Flood> {
    let flood = |name, first, frames, count| Flood { name, first, frames, count };
    let nothing = Vec::new;
    vec![
        flood("rapid reset", nothing(), |number| [post(number), reset(number)].concat(), 100_000),
        flood("endless CONTINUATION", open_head(), |_| frame(CONTINUATION, 0, 1, &field("x-filler", "y")), 100_000),
        flood("empty CONTINUATION", open_head(), |_| frame(CONTINUATION, 0, 1, &[]), 100_000),
        flood("SETTINGS", nothing(), |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9]), 1_000_000),
        flood("PING", nothing(), |_| frame(PING, 0, 0, &[7; 8]), 1_000_000),
        flood("PRIORITY", nothing(), |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1]), 1_000_000),
        flood("WINDOW_UPDATE", nothing(), |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]), 1_000_000),
        flood("unknown frames", nothing(), |_| frame(0xbe, 0, 0, &[1]), 1_000_000),
        flood("empty DATA", post(0), |_| frame(DATA, 0, 1, &[]), 1_000_000),
        flood("10,000 streams", nothing(), post, 10_000),
        flood("heads that unpack", nothing(), bomb, 1_000),
    ]
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A field in the plainest form of HPACK, shorter than 127 bytes.
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap_or(0);
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

fn head() -> Vec<u8> {
    let path = "/agents/demo/process";
    let fields = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
    let fields = fields.into_iter().chain([("content-type", "application/json")]);
    fields.flat_map(|(name, value)| field(name, value)).collect()
}

/// The head of a request whose body never comes.
fn post(number: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 2 * number + 1, &head())
}

fn reset(number: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, 2 * number + 1, &[0, 0, 0, 8])
}

fn open_head() -> Vec<u8> {
    frame(HEADERS, 0, 1, &head())
}

/// A head with a field that the table keeps, and thousands of references to it.
fn bomb(number: u32) -> Vec<u8> {
    let mut block = head();
    // Indexed, a name of 7 bytes, a value of 3,900: 127 and 3,773 more.
    block.extend([0x40, 7]);
    block.extend(b"x-large");
    block.extend([0x7f, 0xbd, 0x1d]);
    block.extend([b'x'; 3900]);
    block.extend([0x80 | 62; 10_000]);
    frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &block)
}

/// A frame: its kind, flags, stream and payload.
type ReceivedFrame = (u8, u8, u32, Vec<u8>);

/// A connection whose frames are written by hand.
struct Raw {
    stream: StreamOwned<ClientConnection, TcpStream>,
    unread: Vec<u8>,
}

impl Raw {
    /// `window`: the initial window of streams.
    fn connect(address: SocketAddr, client: &Arc<ClientConfig>, window: u32) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        socket.set_write_timeout(Some(Duration::from_secs(10)))?;
        let connection = ClientConnection::new(Arc::clone(client), ServerName::try_from("localhost")?)?;
        let mut raw = Self { stream: StreamOwned::new(connection, socket), unread: Vec::new() };
        raw.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        let settings = [&[0, 4], &window.to_be_bytes()[..]].concat();
        raw.stream.write_all(&frame(SETTINGS, 0, 0, &settings))?;
        raw.stream.write_all(&frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()))?;
        Ok(raw)
    }

    /// The next frame. `None` at the end.
    fn next(&mut self) -> Result<Option<ReceivedFrame>> {
        loop {
            if let Some(header) = self.unread.first_chunk::<9>() {
                let end = 9 + u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
                if self.unread.len() >= end {
                    let bytes: Vec<u8> = self.unread.drain(..end).collect();
                    let stream = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
                    return Ok(Some((bytes[3], bytes[4], stream, bytes[9..].to_vec())));
                }
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return Ok(None),
                Ok(count) => self.unread.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Sends a turn on the next stream and reads its answer to the end.
    fn turn(&mut self, number: u32) -> Result<()> {
        let body = br#"{"input":[{"role":"user","content":"echo hello"}]}"#;
        let stream = 2 * number + 1;
        self.stream.write_all(&[post(number), frame(DATA, END_STREAM, stream, body)].concat())?;
        let mut text = Vec::new();
        loop {
            let (kind, flags, of, payload) = self.next()?.context("others are cut off")?;
            ensure!(kind != GOAWAY && (kind != RST_STREAM || of != stream), "others are refused");
            if kind == DATA && of == stream {
                text.extend(payload);
                if flags & END_STREAM != 0 {
                    break;
                }
            }
        }
        ensure!(String::from_utf8_lossy(&text).contains("\"completed\""), "others are not answered");
        Ok(())
    }
}

/// Sends a flood until the gateway closes the connection or all of it is sent. Returns how long the gateway took.
fn send(address: SocketAddr, client: &Arc<ClientConfig>, flood: &Flood) -> Result<f64> {
    let mut raw = Raw::connect(address, client, 1 << 20)?;
    let started = Instant::now();
    let mut closed = raw.stream.write_all(&flood.first).is_err();
    let mut number = 0;
    while !closed && number < flood.count {
        let batch: Vec<u8> = (number..(number + 50).min(flood.count)).flat_map(flood.frames).collect();
        number += 50;
        closed = raw.stream.write_all(&batch).is_err();
    }
    // Its frames, up to its end.
    while raw.next()?.is_some() {}
    Ok(started.elapsed().as_secs_f64())
}

/// A client that makes room for one byte at a time. Returns how long it was served.
fn one_byte_at_a_time(address: SocketAddr, client: &Arc<ClientConfig>) -> Result<f64> {
    let mut raw = Raw::connect(address, client, 0)?;
    let body = br#"{"input":[{"role":"user","content":"long 20000 0"}]}"#;
    raw.stream.write_all(&[post(0), frame(DATA, END_STREAM, 1, body)].concat())?;
    let started = Instant::now();
    loop {
        raw.stream.write_all(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]))?;
        match raw.next()? {
            Some((RST_STREAM | GOAWAY, ..)) | None => return Ok(started.elapsed().as_secs_f64()),
            Some((DATA, ..)) => std::thread::sleep(Duration::from_millis(50)),
            Some(_) => {}
        }
    }
}

/// The number of runs.
fn runs(address: SocketAddr, client: &Arc<ClientConfig>) -> Result<usize> {
    let mut client = ClientConfig::clone(client);
    client.alpn_protocols.clear();
    let connection = ClientConnection::new(Arc::new(client), ServerName::try_from("localhost")?)?;
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address)?);
    stream.write_all(b"GET /agents/demo/runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let total = answer.split("\"total\":").nth(1).context("no total")?;
    Ok(total.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>().parse()?)
}

/// The latencies of two well-behaved clients, each on one connection, in milliseconds.
fn others(address: SocketAddr, client: &Arc<ClientConfig>) -> Result<Vec<f64>> {
    let one = || {
        let mut raw = Raw::connect(address, client, 1 << 20)?;
        let (began, mut took) = (Instant::now(), Vec::new());
        for number in 0.. {
            let started = Instant::now();
            raw.turn(number)?;
            took.push(started.elapsed().as_secs_f64() * 1000.0);
            if began.elapsed() > MEASURED {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        anyhow::Ok(took)
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2).map(|_| scope.spawn(one)).collect();
        let mut all = Vec::new();
        for client in clients {
            all.extend(client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??);
        }
        Ok(all)
    })
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let (authority, folder) = (Authority::new()?, tempfile::tempdir()?);
    authority.pair()?.write(folder.path())?;
    let mut client = ClientConfig::clone(&*authority.client()?);
    client.alpn_protocols = vec![b"h2".to_vec()];
    let client = Arc::new(client);
    let is_ready = |address| Raw::connect(address, &client, 1 << 20).and_then(|mut raw| raw.turn(0)).is_ok();
    let gateway = Gateway::start_in(rig, folder, &format!("{HEAD}{FAST_DEMO}"), is_ready)?;
    let address = gateway.address;

    let mut checks = Vec::new();
    let before_runs = runs(address, &client)?;
    for flood in floods() {
        let before = gateway.memory()?;
        let took = send(address, &client, &flood)?;
        let grown = gateway.memory()?.saturating_sub(before) as f64 / MEBIBYTE;
        checks.push(Check::at_most(format!("{}: closed after", flood.name), took, SOON, "s"));
        checks.push(Check::at_most(format!("{}: memory grown", flood.name), grown, 8.0, "MiB"));
    }
    checks.push(Check::at_most(
        "runs begun by floods",
        runs(address, &client)?.saturating_sub(before_runs) as f64,
        0.0,
        "",
    ));
    let served = one_byte_at_a_time(address, &client)?;
    checks.push(Check::at_most("a byte at a time: reset after", served, WRITE_TIMEOUT, "s"));
    // Also fills the store up to its limit, so that others need no more memory.
    let alone = p99(others(address, &client)?);
    checks.extend(beside_floods(&gateway, &client, alone)?);
    Ok(checks)
}

/// All floods again and again, by several clients, beside well-behaved ones.
fn beside_floods(gateway: &Gateway, client: &Arc<ClientConfig>, alone: f64) -> Result<Vec<Check>> {
    let (address, over, before) = (gateway.address, AtomicBool::new(false), gateway.memory()?);
    let (meanwhile, sent) = std::thread::scope(|scope| {
        let attack = || {
            let mut sent = 0;
            for flood in floods().iter().cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                // A refused connection is no failure of the rig.
                sent += usize::from(send(address, client, flood).is_ok());
            }
            sent
        };
        let attackers: Vec<_> = (0..ATTACKERS).map(|_| scope.spawn(attack)).collect();
        let meanwhile = others(address, client);
        over.store(true, Ordering::Relaxed);
        let sent: usize = attackers.into_iter().filter_map(|attacker| attacker.join().ok()).sum();
        (meanwhile, sent)
    });
    let meanwhile = meanwhile?;
    let grown = gateway.memory()?.saturating_sub(before) as f64 / MEBIBYTE;
    Ok(vec![
        Check::at_least("floods at once with others", sent as f64, 20.0, ""),
        Check::at_most("memory grown by all of them", grown, 16.0, "MiB"),
        Check::at_least("requests of others meanwhile", meanwhile.len() as f64, 100.0, ""),
        Check::info("p99 of others before", alone, "ms"),
        Check::at_most("p99 of others meanwhile", p99(meanwhile), (alone * 2.0).max(20.0), "ms"),
    ])
}
