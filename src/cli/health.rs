//! Queries the readiness of a running gateway, for the health check of a container.
//!
//! Uses plain sockets, so that it starts fast and works in an image that contains nothing but this binary.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::Context as _;

/// Prints `ready` if `GET /readyz` returns 200; fails otherwise.
pub(super) fn check(url: &str) -> anyhow::Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(5);

    let url = url::Url::parse(url).with_context(|| format!("invalid URL \"{url}\""))?;
    anyhow::ensure!(url.scheme() == "http", "only http URLs are supported");
    let host = url.host_str().context("the URL has no host")?;
    let port = url.port_or_known_default().unwrap_or(80);
    let address = (host.trim_matches(['[', ']']), port).to_socket_addrs()?.next().context("the host has no address")?;
    let mut stream =
        TcpStream::connect_timeout(&address, TIMEOUT).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
    let mut head = [0_u8; 12];
    stream.read_exact(&mut head)?;
    anyhow::ensure!(&head[9..12] == b"200", "not ready: HTTP status {}", String::from_utf8_lossy(&head[9..12]));
    println!("ready");
    Ok(())
}
