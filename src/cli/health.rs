//! AskPolicy a running gateway whether it is ready: what a container's health check runs.
//!
//! Plain sockets on purpose: it has to work in an image that holds nothing but this binary, and start in no time.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::Context as _;

/// Asks `/readyz`.
pub(super) fn ask(url: &str) -> anyhow::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let url = url::Url::parse(url).with_context(|| format!("\"{url}\" is no URL"))?;
    anyhow::ensure!(url.scheme() == "http", "only http is asked here");
    let host = url.host_str().context("the URL has no host")?;
    let port = url.port_or_known_default().unwrap_or(80);
    let address = (host.trim_matches(['[', ']']), port).to_socket_addrs()?.next().context("the host has no address")?;
    let mut stream =
        TcpStream::connect_timeout(&address, PATIENCE).with_context(|| format!("nobody listens on {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
    let mut head = [0_u8; 12];
    stream.read_exact(&mut head)?;
    anyhow::ensure!(&head[9..12] == b"200", "not ready: HTTP status {}", String::from_utf8_lossy(&head[9..12]));
    println!("ready");
    Ok(())
}
