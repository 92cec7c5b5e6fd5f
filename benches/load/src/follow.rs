//! The clients of several gateways: streams on one of them, which are followed or resumed on another one. Each prints
//! lines for the runner. Not here: starting the gateways ([`crate::replicas`]).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time;

use crate::clients::client;
use crate::script::Script;
use crate::wire::{self, ChunkedDecoder, Events, StreamEnd};

/// Pause between two connects.
const STAGGER: Duration = Duration::from_millis(2);
/// A stream without a byte for this long has failed. It outlasts a lease.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Events of the first moments are not measured: streams begin, and the gateway learns what is followed.
const SETTLING: Duration = Duration::from_secs(2);

/// Streams on two gateways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Following {
    pub(crate) here: u16,
    pub(crate) there: u16,
    pub(crate) streams: usize,
    /// The number of them that are followed on the other gateway.
    pub(crate) followed: usize,
    pub(crate) script: Script,
}

/// When the events of a stream came.
struct EventTimes {
    began: Instant,
    at: Vec<Instant>,
    ended: Option<StreamEnd>,
}

/// Follows runs on another gateway than the one that drives them. Prints `open=` once all are followed, and at the end
/// how much later than here each event came there, in microseconds.
pub(crate) async fn follow(load: Following) -> Result<()> {
    let mut followers = JoinSet::new();
    let mut streams = JoinSet::new();
    let open = Arc::new(AtomicUsize::new(0));
    for number in 0..load.streams {
        let (named, name) = oneshot::channel();
        let ours = streams.spawn(async move { run(load, number, named).await });
        if number < load.followed {
            let (own, open) = (ours.id(), Arc::clone(&open));
            followers.spawn(async move {
                let path = path_of(&name.await.context("the stream here has not begun")?);
                let begun = || {
                    if open.fetch_add(1, Ordering::Relaxed) + 1 == load.followed {
                        println!("open={}", load.followed);
                    }
                };
                anyhow::Ok((own, get(load.there, &path, begun).await?))
            });
        }
        time::sleep(STAGGER).await;
    }

    let mut there = Vec::new();
    let mut failed = 0;
    while let Some(seen) = followers.join_next().await {
        match seen? {
            Ok(seen) => there.push(seen),
            Err(error) => {
                failed += 1;
                eprintln!("a follower failed: {error:#}");
            }
        }
    }
    let ended = |ended| there.iter().filter(|(_, seen)| seen.ended == Some(ended)).count();
    let (completed, otherwise) = (ended(StreamEnd::Completed), ended(StreamEnd::Otherwise));
    if otherwise > 0 {
        // The gateway here was killed.
        println!("completed={completed} otherwise={otherwise} failed={failed}");
        return Ok(());
    }

    let mut lags = Vec::new();
    while let Some(ours) = streams.join_next_with_id().await {
        let (own, ours) = ours?;
        let ours = ours.context("a stream here failed")?;
        ensure!(ours.ended == Some(StreamEnd::Completed), "a stream here ended as {:?}", ours.ended);
        let Some((_, theirs)) = there.iter().find(|(id, _)| *id == own) else { continue };
        ensure!(ours.at.len() == theirs.at.len(), "{} events here, {} there", ours.at.len(), theirs.at.len());
        let settled = theirs.began + SETTLING;
        let both = ours.at.iter().zip(&theirs.at).filter(|(here, _)| **here > settled);
        lags.extend(both.map(|(here, there)| there.saturating_duration_since(*here).as_micros()));
    }
    lags.sort_unstable();
    let at = |share: f64| lags.get(((lags.len() as f64 - 1.0) * share).round() as usize).copied().unwrap_or_default();
    println!(
        "completed={completed} otherwise=0 failed={failed} events={} p50={} p99={} max={}",
        lags.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}

/// Resumes an ended run with this number of events in its middle, on another gateway, one time after the other. Prints
/// the time until the first event, in microseconds.
pub(crate) async fn resume(here: u16, there: u16, events: usize, times: usize) -> Result<()> {
    let (named, name) = oneshot::channel();
    let load = Following { here, there, streams: 1, followed: 0, script: Script::Burst { deltas: events } };
    let seen = run(load, 0, named).await?;
    let path = format!("{}?after={}", path_of(&name.await?), seen.at.len() / 2);
    let mut took = Vec::new();
    for _ in 0..times {
        let resumed = get(there, &path, || {}).await?;
        ensure!(resumed.ended == Some(StreamEnd::Completed), "it ended as {:?}", resumed.ended);
        let first = resumed.at.first().context("no event came")?;
        took.push(first.saturating_duration_since(resumed.began).as_micros());
    }
    took.sort_unstable();
    println!("p50={} max={}", took[took.len() / 2], took[took.len() - 1]);
    Ok(())
}

fn path_of(run: &str) -> String {
    format!("/agents/rig/runs/{run}/events")
}

/// Starts a run and reads it to its end.
async fn run(load: Following, number: usize, named: oneshot::Sender<String>) -> Result<EventTimes> {
    let session = format!("{}-{number}", std::process::id());
    let speaks = client("agent-api");
    let body = (speaks.body)(load.script, &session);
    let length = body.len();
    let head =
        format!("POST {} HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n", speaks.path);
    exchange(load.here, &head, &body, Some(named), || {}).await
}

async fn get(port: u16, path: &str, begun: impl FnMut()) -> Result<EventTimes> {
    exchange(port, &format!("GET {path} HTTP/1.1\r\n"), "", None, begun).await
}

/// Sends a request and reads the events of its answer. `begun` is called with the first one.
async fn exchange(
    port: u16,
    head: &str,
    body: &str,
    mut named: Option<oneshot::Sender<String>>,
    mut begun: impl FnMut(),
) -> Result<EventTimes> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.context("connecting")?;
    socket.set_nodelay(true)?;
    let began = Instant::now();
    let request = format!("{head}host: localhost\r\naccept: text/event-stream\r\n\r\n{body}");
    socket.write_all(request.as_bytes()).await?;

    let mut buffer = Vec::with_capacity(64 * 1024);
    let end = loop {
        read(&mut socket, &mut buffer).await?;
        if let Some(end) = wire::end_of_head(&buffer) {
            break end;
        }
    };
    if !buffer.starts_with(b"HTTP/1.1 200") {
        bail!("not a stream: {}", String::from_utf8_lossy(&buffer[..buffer.len().min(600)]));
    }
    buffer.drain(..end);

    let (mut chunked, mut events, mut start) = (ChunkedDecoder::new(), Events::default(), Vec::new());
    let mut at: Vec<Instant> = Vec::new();
    loop {
        chunked.read(&buffer, |bytes| {
            if named.is_some() {
                start.extend_from_slice(bytes);
            }
            events.read(bytes)
        })?;
        buffer.clear();
        if at.is_empty() && events.count > 0 {
            begun();
        }
        at.resize(events.count, Instant::now());
        if let Some(id) = named.as_ref().and_then(|_| id_in(&start))
            && let Some(named) = named.take()
        {
            let _ = named.send(id);
        }
        if chunked.is_done() {
            return Ok(EventTimes { began, at, ended: events.ended });
        }
        read(&mut socket, &mut buffer).await?;
    }
}

/// The id of the run, which the first frame has.
fn id_in(start: &[u8]) -> Option<String> {
    let from = memmem::find(start, b"\"id\":\"")? + 6;
    let length = memchr::memchr(b'"', start.get(from..)?)?;
    Some(String::from_utf8_lossy(&start[from..from + length]).into_owned())
}

async fn read(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    match time::timeout(READ_TIMEOUT, socket.read_buf(buffer)).await.context("no data on the stream")?? {
        0 => bail!("the connection was closed before the end of the response"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Frames;

    #[test]
    fn a_run_is_named_by_its_first_frame() {
        let frames = Frames::new("agent-api", 7).expect("it is known").begin();
        let first = frames.first().expect("there is one");
        let id = id_in(first.as_bytes()).expect("it has an id");
        assert!(!id.is_empty() && first.contains(&format!("\"id\":\"{id}\"")), "{first}");
        assert_eq!(id_in(b"data: {\"id\":\"half"), None);
    }
}
