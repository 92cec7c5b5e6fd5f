//! A server of the rig, of which a scenario chooses every byte: an agent, or an issuer of tokens. Not here: the agent
//! with several endpoints (`endpoints.rs`).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

/// A request that the server was sent.
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The path with its query.
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or("")
    }
}

/// Answers a request. False or an error: the connection is closed.
type Answer = dyn Fn(&Request, &mut TcpStream) -> std::io::Result<bool> + Send + Sync;

/// A server with a thread for each connection. It stops to accept when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stopping: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(
        answer: impl Fn(&Request, &mut TcpStream) -> std::io::Result<bool> + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a server cannot listen")?;
        let address = listener.local_addr()?;
        let (stopping, stopped) = (Arc::new(AtomicBool::new(false)), Arc::new(answer) as Arc<Answer>);
        let is_stopping = Arc::clone(&stopping);
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                if is_stopping.load(Ordering::Relaxed) {
                    return;
                }
                let answer = Arc::clone(&stopped);
                std::thread::spawn(move || serve(connection, &*answer));
            }
        });
        Ok(Self { address, stopping })
    }

    /// A URL below its address.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut connection: TcpStream, answer: &Answer) {
    let _ = connection.set_nodelay(true);
    while let Some(request) = read(&mut connection) {
        if !answer(&request, &mut connection).unwrap_or(false) {
            return;
        }
    }
}

/// Reads a request. `None`: the connection ended.
fn read(connection: &mut TcpStream) -> Option<Request> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    let mut more = |bytes: &mut Vec<u8>| match connection.read(&mut buffer) {
        Ok(count @ 1..) => {
            bytes.extend_from_slice(&buffer[..count]);
            Some(())
        }
        _ => None,
    };
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        more(&mut bytes)?;
    };

    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.to_lowercase().split("content-length:").nth(1).and_then(|rest| {
        let line = rest.split("\r\n").next()?;
        line.trim().parse::<usize>().ok()
    });
    while bytes.len() < end + length.unwrap_or(0) {
        more(&mut bytes)?;
    }
    Some(Request { head, body: bytes.split_off(end) })
}

/// Writes a complete answer with this body.
pub(crate) fn answer(connection: &mut TcpStream, status: &str, media: &str, body: &[u8]) -> std::io::Result<bool> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n", body.len());
    connection.write_all(&[head.as_bytes(), body].concat())?;
    Ok(true)
}

/// A chunk of a body.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}
