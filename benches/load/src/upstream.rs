//! The upstream of every measurement: plays the script in the body of each POST, framed as agents of the protocol do
//! that the path names, else as the agent runtime does, with one chunk per event. It is single-threaded and must be
//! cheaper than the candidates.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{self, Instant};

use crate::script::{Frames, Script};
use crate::wire;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n\
                    transfer-encoding: chunked\r\n\r\n";

/// Bytes per write in [`Script::Flood`].
const BATCH: usize = 16 * 1024;

static RUNS: AtomicU64 = AtomicU64::new(1);

/// Serves until the process is killed.
pub(crate) async fn serve(port: u16) -> Result<()> {
    let listener = listen(port)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;

        // Connections normally end when the client disconnects.
        tokio::spawn(async move {
            let _ = converse(stream).await;
        });
    }
}

fn listen(port: u16) -> Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    Ok(socket.listen(4096)?)
}

/// Serves the requests of one connection in order.
async fn converse(mut stream: TcpStream) -> Result<()> {
    let mut buffer = Vec::with_capacity(2048);
    loop {
        let end = loop {
            if let Some(end) = wire::end_of_head(&buffer) {
                break end;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let head = std::str::from_utf8(&buffer[..end])?.to_owned();
        if head.starts_with("GET ") {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await?;
            buffer.drain(..end);
            continue;
        }
        let length: usize = wire::header(&head, "content-length").context("no content-length")?.parse()?;
        while buffer.len() < end + length {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        let script = Script::find_in(&buffer[end..end + length])?;
        buffer.drain(..end + length);
        let path = head.split(' ').nth(1).unwrap_or_default();
        answer(&mut stream, script, protocol(path)).await?;
    }
}

/// The path of an agent of a protocol; anything may follow.
pub(crate) fn path(protocol: &str) -> String {
    format!("/speaks/{protocol}/")
}

/// The protocol of the agent at a path.
fn protocol(path: &str) -> &str {
    path.strip_prefix("/speaks/").and_then(|rest| rest.split('/').next()).unwrap_or("agent-api")
}

async fn answer(stream: &mut TcpStream, script: Script, protocol: &str) -> Result<()> {
    let mut frames = Frames::new(protocol, RUNS.fetch_add(1, Ordering::Relaxed))?;
    if script == Script::Call {
        let body = frames.whole();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        return Ok(());
    }
    let mut out = HEAD.as_bytes().to_owned();
    for frame in frames.begin() {
        chunk(&mut out, &frame);
    }

    match script {
        Script::Call => bail!("a call has no stream"),
        Script::Idle => {
            chunk(&mut out, &frames.delta());
            stream.write_all(&out).await?;
            // The client sends no second request meanwhile, so the read ends when it disconnects.
            stream.read_u8().await?;
            bail!("a request arrived while a response was open");
        }
        Script::Paced { deltas, every } => {
            let mut ticks = time::interval_at(Instant::now() + every, every);
            for _ in 0..deltas {
                stream.write_all(&out).await?;
                out.clear();
                ticks.tick().await;
                chunk(&mut out, &frames.delta());
            }
        }
        Script::Burst { deltas } | Script::Flood { deltas } => {
            let batch = if matches!(script, Script::Flood { .. }) { BATCH } else { 1 };
            for _ in 0..deltas {
                chunk(&mut out, &frames.delta());
                if out.len() >= batch {
                    stream.write_all(&out).await?;
                    out.clear();
                }
            }
        }
    }
    for frame in frames.end() {
        chunk(&mut out, &frame);
    }

    out.extend_from_slice(b"0\r\n\r\n");
    stream.write_all(&out).await?;
    Ok(())
}

fn chunk(out: &mut Vec<u8>, frame: &str) {
    out.extend_from_slice(format!("{:x}\r\n", frame.len()).as_bytes());
    out.extend_from_slice(frame.as_bytes());
    out.extend_from_slice(b"\r\n");
}
