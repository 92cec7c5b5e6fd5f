//! The load client: many concurrent streams, each read to its terminal event. Prints one line for the runner.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time;
use tokio_rustls::TlsConnector;

use crate::clients::CLIENTS;
use crate::guards::Pass;
use crate::script::Script;
use crate::wire::{self, ChunkedDecoder, Events, StreamEnd};

/// Pause between two connects, so that a thousand of them do not arrive at once.
const STAGGER: Duration = Duration::from_micros(500);

/// A stream without a byte for this long has failed.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The load to generate and its target.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) port: u16,
    pub(crate) path: String,
    /// Concurrent connections.
    pub(crate) streams: usize,
    /// Consecutive runs on each connection.
    pub(crate) runs: usize,
    pub(crate) script: Script,
    pub(crate) pass: Pass,
}

/// A connection, with TLS or without.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

/// Measurements of one run.
struct Run {
    events: usize,
    bytes: usize,
    /// From the last byte of the request to the first event.
    first_event: Duration,
    /// From the last byte of the request to the first content event.
    first_content: Duration,
}

/// Generates the load and prints the results as `key=value` pairs, times in microseconds.
pub(crate) async fn load(load: &Load) -> Result<()> {
    let started = Instant::now();
    let open = Arc::new(AtomicUsize::new(0));
    let tls = load.pass.client()?;
    let mut streams = JoinSet::new();
    for number in 0..load.streams {
        let (load, open, tls) = (load.clone(), Arc::clone(&open), tls.clone());
        streams.spawn(async move { stream(&load, number, &open, tls).await });
        time::sleep(STAGGER).await;
    }

    let (mut runs, mut failed, mut first_error) = (Vec::new(), 0, None);
    while let Some(ended) = streams.join_next().await {
        match ended? {
            Ok(seen) => runs.extend(seen),
            Err(error) => {
                failed += 1;
                first_error.get_or_insert(error);
            }
        }
    }
    if let Some(first_error) = first_error {
        eprintln!("{failed} of {} streams failed, first error: {first_error:#}", load.streams);
    }

    let mut line = format!("runs={} failed={failed} micros={}", runs.len(), started.elapsed().as_micros());
    let events: usize = runs.iter().map(|run| run.events).sum();
    let bytes: usize = runs.iter().map(|run| run.bytes).sum();
    write!(line, " events={events} bytes={bytes}")?;
    for (name, time) in [
        ("first_event", (|run: &Run| run.first_event) as fn(&Run) -> Duration),
        ("first_content", |run| run.first_content),
    ] {
        let mut times: Vec<u128> = runs.iter().map(|run| time(run).as_micros()).collect();
        times.sort_unstable();
        for (label, share) in [("p50", 0.5), ("p99", 0.99)] {
            let value = times.get(((times.len() as f64 - 1.0) * share).round() as usize).copied().unwrap_or_default();
            write!(line, " {name}_{label}={value}")?;
        }
    }
    println!("{line}");
    Ok(())
}

/// All runs of one connection.
async fn stream(load: &Load, number: usize, open: &AtomicUsize, tls: Option<Arc<ClientConfig>>) -> Result<Vec<Run>> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, load.port)).await.context("connecting")?;
    socket.set_nodelay(true)?;
    let mut socket: Box<dyn Socket> = match tls {
        None => Box::new(socket),
        Some(tls) => Box::new(TlsConnector::from(tls).connect(ServerName::try_from("localhost")?, socket).await?),
    };
    let mut runs = Vec::with_capacity(load.runs);
    let mut buffer = Vec::with_capacity(64 * 1024);
    for run in 0..load.runs {
        let session = format!("{}-{number}-{run}", std::process::id());
        // An upstream takes any request with a script in it.
        let speaks = CLIENTS.iter().find(|client| client.path == load.path).unwrap_or(&CLIENTS[0]);
        let body = (speaks.body)(load.script, &session);
        let mut more = speaks.header.to_owned();
        if !load.pass.authorization.is_empty() {
            more.push_str(&format!("authorization: {}\r\n", load.pass.authorization));
        }
        let request = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: text/event-stream\r\n\
             {more}content-length: {}\r\n\r\n{body}",
            load.path,
            body.len()
        );
        socket.write_all(request.as_bytes()).await?;
        let seen = match load.script {
            Script::Call => read_call(&mut *socket, &mut buffer).await,
            _ => read_run(load, &mut *socket, &mut buffer, open).await,
        };
        let seen = seen.with_context(|| format!("run {run}"))?;
        runs.push(seen);
    }
    Ok(runs)
}

/// Reads an answer that is one JSON body.
async fn read_call(socket: &mut dyn Socket, buffer: &mut Vec<u8>) -> Result<Run> {
    let sent_at = Instant::now();
    buffer.clear();
    let end = read_head(socket, buffer).await?;
    let head = std::str::from_utf8(&buffer[..end])?.to_owned();
    let length: usize = wire::header(&head, "content-length").context("no content-length")?.parse()?;
    while buffer.len() < end + length {
        read(socket, buffer).await?;
    }
    let body = std::str::from_utf8(&buffer[end..])?;
    if !head.starts_with("HTTP/1.1 200") || !body.contains("\"status\":\"completed\"") {
        bail!("a call failed: {head}{body:.600}");
    }
    let took = sent_at.elapsed();
    Ok(Run { events: 1, bytes: length, first_event: took, first_content: took })
}

/// Reads until the end of a head, which it returns.
async fn read_head(socket: &mut dyn Socket, buffer: &mut Vec<u8>) -> Result<usize> {
    loop {
        read(socket, buffer).await?;
        if let Some(end) = wire::end_of_head(buffer) {
            return Ok(end);
        }
    }
}

async fn read_run(load: &Load, socket: &mut dyn Socket, buffer: &mut Vec<u8>, open: &AtomicUsize) -> Result<Run> {
    let sent_at = Instant::now();
    buffer.clear();
    let end = read_head(socket, buffer).await?;
    let head = std::str::from_utf8(&buffer[..end])?.to_owned();
    if !head.starts_with("HTTP/1.1 200") || wire::header(&head, "transfer-encoding") != Some("chunked") {
        read(socket, buffer).await?;
        bail!("not a stream: {}", String::from_utf8_lossy(&buffer[..buffer.len().min(600)]));
    }
    buffer.drain(..end);

    let (mut chunked, mut events) = (ChunkedDecoder::new(), Events::default());
    let (mut first_event, mut first_content) = (None, None);
    loop {
        chunked.read(buffer, |bytes| events.read(bytes))?;
        buffer.clear();
        if first_event.is_none() && events.count > 0 {
            first_event = Some(sent_at.elapsed());
        }
        if first_content.is_none() && events.has_content {
            first_content = Some(sent_at.elapsed());
            if load.script == Script::Idle {
                return hold(load, socket, open).await;
            }
        }
        if chunked.is_done() {
            break;
        }
        read(socket, buffer).await?;
    }
    if events.ended != Some(StreamEnd::Completed) {
        bail!("the terminal event is {:?} after {} events", events.ended, events.count);
    }

    Ok(Run {
        events: events.count,
        bytes: events.bytes,
        first_event: first_event.context("no event came")?,
        first_content: first_content.context("no content came")?,
    })
}

/// Keeps an idle stream open until this process is killed. Prints the number of open streams once all are open.
async fn hold(load: &Load, socket: &mut dyn Socket, open: &AtomicUsize) -> Result<Run> {
    if open.fetch_add(1, Ordering::Relaxed) + 1 == load.streams {
        println!("open={}", load.streams);
    }
    // Heartbeats are discarded.
    let mut discarded = [0; 256];
    while socket.read(&mut discarded).await? > 0 {}
    bail!("an idle stream was closed")
}

async fn read(socket: &mut dyn Socket, buffer: &mut Vec<u8>) -> Result<()> {
    match time::timeout(READ_TIMEOUT, socket.read_buf(buffer)).await.context("no data on the stream")?? {
        0 => bail!("the connection was closed before the end of the response"),
        _ => Ok(()),
    }
}
