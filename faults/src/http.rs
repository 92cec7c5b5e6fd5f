//! As little HTTP as scenarios need, over plain sockets: what is sent and when is theirs to say.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The body as it came, chunks and all.
    pub(crate) body: String,
}

/// A request as bytes. The connection ends with its answer.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        request.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    request.push_str(body);
    request.into_bytes()
}

/// Sends a request, and reads its answer to the end.
pub(crate) fn ask(address: SocketAddr, request: &[u8]) -> Result<Answer> {
    let mut connection = TcpStream::connect_timeout(&address, PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(request)?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status line")?;
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Ok(Answer { status, body })
}

/// Fetches a path.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    ask(address, &request("GET", path, &[], ""))
}

/// Sends a request and resets the connection after a while, whatever has come by then.
pub(crate) fn abandon(address: SocketAddr, request: &[u8], after: Duration) -> Result<()> {
    let mut connection = TcpStream::connect_timeout(&address, PATIENCE)?;
    connection.set_nodelay(true)?;
    connection.write_all(request)?;
    std::thread::sleep(after);
    // A socket that lingers for no time is reset when it is closed.
    rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO))?;
    Ok(())
}

/// Lets this process and its children open as many files as the system allows.
pub(crate) fn raise_open_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("cannot raise the number of open files")
}
