//! The bombs of `bombs.rs`: from clients and from agents, packed, nested, numerous, or without end.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::frames::{self, EVENTS, data, delta};
use crate::server::chunk;

/// When a bomb without an end gives up: then no limit of the gateway has stopped it.
const ENDLESS: Duration = Duration::from_secs(20);

/// Bytes to send: some, then others again and again, then the last ones.
#[derive(Clone)]
pub(crate) struct Bomb {
    pub(crate) name: &'static str,
    /// Accepted errors: a status line or a code.
    pub(crate) expected: &'static [&'static str],
    first: Vec<u8>,
    repeated: Vec<u8>,
    times: u64,
    last: Vec<u8>,
    sent: Arc<AtomicU64>,
}

impl Bomb {
    fn new(name: &'static str, expected: &'static [&'static str], first: impl Into<Vec<u8>>) -> Self {
        let sent = Arc::default();
        Self { name, expected, first: first.into(), repeated: Vec::new(), times: 0, last: Vec::new(), sent }
    }

    fn then(mut self, repeated: impl Into<Vec<u8>>, times: u64) -> Self {
        (self.repeated, self.times) = (repeated.into(), times);
        self
    }

    fn without_end(self, repeated: impl Into<Vec<u8>>) -> Self {
        self.then(repeated, u64::MAX)
    }

    fn last(mut self, last: impl Into<Vec<u8>>) -> Self {
        self.last = last.into();
        self
    }

    /// Its bytes, piece by piece.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let repeated = (0..self.times).map(|_| self.repeated.as_slice());
        std::iter::once(self.first.as_slice()).chain(repeated).chain([self.last.as_slice()])
    }

    pub(crate) fn has_end(&self) -> bool {
        self.times < u64::MAX
    }

    /// Writes it as far as the other side takes it.
    pub(crate) fn write(&self, to: &mut impl Write) -> std::io::Result<()> {
        let started = Instant::now();
        self.pieces().take_while(|_| started.elapsed() < ENDLESS).try_for_each(|piece| {
            to.write_all(piece)?;
            self.sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            Ok(())
        })
    }

    /// The number of bytes written.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// A head of a request with a body, and the rest of its header lines.
fn post(path: &str, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{more}\r\n")
}

fn body(path: &str, body: &str) -> String {
    format!("{}{body}", post(path, &format!("content-length: {}\r\n", body.len())))
}

const NATIVE: &str = "/agents/demo/process";
const TOO_LARGE: &[&str] = &["HTTP/1.1 413"];
const HEAD: &[&str] = &["HTTP/1.1 431", "HTTP/1.1 400", "HTTP/1.1 414"];

pub(crate) fn of_clients() -> Vec<Bomb> {
    let packed = packed(&[b"{\"input\":\"".as_slice(), &vec![b'a'; 64 << 20]].concat());
    let is_packed = format!("content-encoding: gzip\r\ncontent-length: {}\r\n", packed.len());
    let many = format!("{{\"input\":[{}0]}}", "0,".repeat(1_000_000));
    let deep = format!("{{\"input\":{}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let keys: String = (0..200_000).map(|number| format!("\"k{number}\":0,")).collect();
    let escapes = format!("{{\"input\":\"{}\"}}", "\\u0000".repeat(600_000));
    let get = "GET /agents/demo/runs HTTP/1.1\r\nhost: 127.0.0.1\r\n";
    vec![
        Bomb::new("a packed body", &["HTTP/1.1 415"], [post(NATIVE, &is_packed).into_bytes(), packed].concat()),
        Bomb::new("a million values", TOO_LARGE, body(NATIVE, &many)),
        Bomb::new(
            "a million values, Responses",
            TOO_LARGE,
            body("/v1/responses", &many.replacen('{', "{\"model\":\"demo\",", 1)),
        ),
        Bomb::new("a million levels", &["HTTP/1.1 413", "HTTP/1.1 422", "HTTP/1.1 400"], body(NATIVE, &deep)),
        Bomb::new("200,000 names", TOO_LARGE, body(NATIVE, &format!("{{{keys}\"input\":[]}}"))),
        Bomb::new("a text of escapes", &["HTTP/1.1 422", "HTTP/1.1 400", "HTTP/1.1 200"], body(NATIVE, &escapes)),
        Bomb::new("an announced body that is too large", TOO_LARGE, post(NATIVE, "content-length: 1000000000000\r\n"))
            .without_end(vec![b' '; 64 << 10]),
        Bomb::new("a body without end", TOO_LARGE, post(NATIVE, "transfer-encoding: chunked\r\n"))
            .without_end(chunk(&[b' '; 32 << 10])),
        Bomb::new("a million chunks of a byte", TOO_LARGE, post(NATIVE, "transfer-encoding: chunked\r\n"))
            .without_end(b"1\r\n \r\n".repeat(10_000)),
        Bomb::new(
            "an extension of a chunk without end",
            &["HTTP/1.1 400", "HTTP/1.1 413", "HTTP/1.1 422"],
            post(NATIVE, "transfer-encoding: chunked\r\n") + "1;",
        )
        .without_end(vec![b'x'; 64 << 10]),
        Bomb::new("a line without end", HEAD, "GET /").without_end(vec![b'a'; 16 << 10]),
        Bomb::new("a header without end", HEAD, format!("{get}x: ")).without_end(vec![b'a'; 16 << 10]),
        Bomb::new("headers without end", HEAD, get).without_end(b"x-more: and more\r\n".repeat(1000)),
        Bomb::new("ten thousand headers", HEAD, format!("{get}{}\r\n", "a: b\r\n".repeat(10_000))),
        Bomb::new("blank lines without end", HEAD, "").without_end(b"\r\n".repeat(8 << 10)),
    ]
}

pub(crate) fn of_agents() -> Vec<Bomb> {
    let opened = || [EVENTS.as_bytes(), &chunk(frames::opening().as_bytes())].concat();
    let chunked = |text: &str| chunk(text.as_bytes());
    let too_large: &[&str] = &["UPSTREAM_TOO_LARGE"];
    let broken: &[&str] = &["UPSTREAM_PROTOCOL_ERROR", "UPSTREAM_TOO_LARGE"];
    let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let zipped = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n";
    let ended = chunked(&(frames::closing()));
    let end = [ended.as_slice(), b"0\r\n\r\n"].concat();
    let many = data(&format!("{{\"object\":\"content\",\"data\":[{}0]}}", "0,".repeat(400_000)));
    let deep = data(&format!("{{\"object\":{}", "[".repeat(500_000)));
    vec![
        Bomb::new("a packed answer", broken, [zipped.as_bytes(), &packed(&vec![b' '; 256 << 20])].concat()),
        Bomb::new("a head without end", broken, "HTTP/1.1 200 OK\r\n").without_end("x-more: and more\r\n".repeat(1000)),
        Bomb::new("a header of a mebibyte", broken, format!("HTTP/1.1 200 OK\r\nx: {}\r\n", "x".repeat(1 << 20))),
        Bomb::new("100 Continue without end", &["UPSTREAM_"], "")
            .without_end("HTTP/1.1 100 Continue\r\n\r\n".repeat(1000)),
        Bomb::new("103 Early Hints without end", &["UPSTREAM_"], "")
            .without_end("HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n".repeat(500)),
        Bomb::new("a line without end", too_large, [opened(), chunked("data: ")].concat())
            .without_end(chunk(&[b'x'; 16 << 10])),
        Bomb::new("fields without end", too_large, opened()).without_end(chunked(&"event: x\n".repeat(2000))),
        Bomb::new("a text without end", too_large, opened()).without_end(chunked(&delta(&"x".repeat(1000)).repeat(16))),
        Bomb::new("a million tiny frames", &["UPSTREAM_TOO_LARGE", "completed"], opened())
            .then(chunked(&delta("x").repeat(1000)), 1000)
            .last(end.clone()),
        Bomb::new("a million frames of nothing", &["completed"], opened())
            .then(chunked(&data("{\"object\":\"none\"}").repeat(1000)), 1000)
            .last(end),
        Bomb::new("comments without end", &["UPSTREAM_TIMEOUT", "UPSTREAM_TOO_LARGE"], opened())
            .without_end(chunked(&": still here\n\n".repeat(1000))),
        Bomb::new("half a million values", broken, [opened(), chunked(&many)].concat()),
        Bomb::new("half a million levels", broken, [opened(), chunked(&deep)].concat()),
        Bomb::new("JSON without end", too_large, [json.as_bytes(), &chunked("{\"object\":\"")].concat())
            .without_end(chunk(&[b'x'; 16 << 10])),
        Bomb::new(
            "a refusal without end",
            &["AGENT_ERROR", "UPSTREAM_"],
            "HTTP/1.1 500 Internal Server Error\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .without_end(chunk(&[b'x'; 16 << 10])),
        Bomb::new("a size of a chunk without end", &["UPSTREAM_"], EVENTS).without_end(vec![b'0'; 16 << 10]),
    ]
}

/// Packed by gzip.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).and_then(|()| packer.finish()).unwrap_or_default()
}
