//! The minimal HTTP that the scenarios need, over plain sockets, so that they control what is sent and when.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
pub(crate) use interlingua_testing_support::cluster::stream::request;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Timeout for connecting and reading.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Response {
    pub(crate) status: u16,
    /// The raw body, including chunk framing.
    pub(crate) body: String,
}

/// Sends a request and reads the response to its end.
pub(crate) fn send(address: SocketAddr, request: &[u8]) -> Result<Response> {
    exchange(TcpStream::connect_timeout(&address, TIMEOUT)?, request)
}

/// The same from another address of this machine: some limits are for each address.
pub(crate) fn send_from(source: Ipv4Addr, address: SocketAddr, request: &[u8]) -> Result<Response> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::from((source, 0)))?;
    connect(&socket, &address)?;
    exchange(TcpStream::from(socket), request)
}

fn exchange(mut connection: TcpStream, request: &[u8]) -> Result<Response> {
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.write_all(request)?;
    let mut response = Vec::new();
    connection.read_to_end(&mut response)?;
    let text = String::from_utf8_lossy(&response);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status line")?;
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Ok(Response { status, body })
}

/// Sends a GET request.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<Response> {
    send(address, &request("GET", path, &[], ""))
}

/// Sends a request and resets the connection after a delay, whatever has arrived by then.
pub(crate) fn abandon(address: SocketAddr, request: &[u8], after: Duration) -> Result<()> {
    let mut connection = TcpStream::connect_timeout(&address, TIMEOUT)?;
    connection.set_nodelay(true)?;
    connection.write_all(request)?;
    std::thread::sleep(after);
    // With zero linger, closing the socket sends a reset.
    rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO))?;
    Ok(())
}

/// The head of the answer to a GET request.
pub(crate) fn head(address: SocketAddr, path: &str) -> Result<String> {
    let mut connection = TcpStream::connect_timeout(&address, TIMEOUT)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.write_all(&request("GET", path, &[], ""))?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let (head, _) = answer.split_once("\r\n\r\n").context("no head")?;
    Ok(head.to_owned())
}

/// Raises the soft limit on open files to the hard limit, for this process and its children.
pub(crate) fn raise_open_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("cannot raise the number of open files")
}
