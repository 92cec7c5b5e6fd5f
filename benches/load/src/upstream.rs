//! The upstream of every measurement: answers each POST with the script found in its body, as the native runtime
//! frames it, each event a chunk of its own. One thread; it must be cheaper than what it feeds.

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

/// In a flood this much is handed to the socket at once.
const BATCH: usize = 16 * 1024;

static RUNS: AtomicU64 = AtomicU64::new(1);

/// Answers until it is killed.
pub(crate) async fn serve(port: u16) -> Result<()> {
    let listener = listen(port)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A client that leaves is the normal end of a connection here.
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

/// Requests of one connection, one after the other.
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
        let script = Script::within(&buffer[end..end + length])?;
        buffer.drain(..end + length);
        answer(&mut stream, script).await?;
    }
}

async fn answer(stream: &mut TcpStream, script: Script) -> Result<()> {
    let mut frames = Frames::new(RUNS.fetch_add(1, Ordering::Relaxed));
    let mut out = HEAD.as_bytes().to_owned();
    for frame in frames.begin() {
        chunk(&mut out, &frame);
    }
    match script {
        Script::Idle => {
            chunk(&mut out, &frames.delta());
            stream.write_all(&out).await?;
            // Nobody sends a second request while the first is answered, so anything read is a goodbye.
            stream.read_u8().await?;
            bail!("a request came while an answer was held");
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
