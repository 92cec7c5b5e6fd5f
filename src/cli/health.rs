//! Queries the readiness, or the life, of a running gateway, for the health check of a container.
//!
//! Uses plain sockets, so that it starts fast and works in an image that contains nothing but this binary.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use interlingua_upstream::scheme_error::{SPEAKS_HTTP, is_answer_in_clear};

/// Prints `ready` if the path of the URL returns 200; fails otherwise. A URL without a path is that of `/readyz`.
pub(super) fn check(url: &str) -> anyhow::Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(5);

    let url = url::Url::parse(url).with_context(|| format!("invalid URL \"{url}\""))?;
    let secure = url.scheme() == "https";
    anyhow::ensure!(secure || url.scheme() == "http", "only http and https URLs are supported");
    let host = url.host_str().context("the URL has no host")?;
    let name = host.trim_matches(['[', ']']);
    let path = if url.path() == "/" { "/readyz" } else { url.path() };
    let port = url.port_or_known_default().unwrap_or(80);
    let address = (name, port).to_socket_addrs()?.next().context("the host has no address")?;
    let mut stream =
        TcpStream::connect_timeout(&address, TIMEOUT).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;

    let status = if secure {
        let config = interlingua_base::tls::probe_config(address.ip().is_loopback())?;
        let mut session = ClientConnection::new(Arc::new(config), ServerName::try_from(name.to_owned())?)?;
        let asked = status(&mut rustls::Stream::new(&mut session, &mut stream), host, path);
        match asked {
            Err(error) if is_answer_in_clear(&*error) => anyhow::bail!("{SPEAKS_HTTP}: write http://"),
            asked => asked?,
        }
    } else {
        status(&mut stream, host, path)?
    };
    anyhow::ensure!(status == "200", "not ready: HTTP status {status} of {path}");
    println!("ready");
    Ok(())
}

/// The status of a `GET` of this path.
fn status(stream: &mut (impl Read + Write), host: &str, path: &str) -> anyhow::Result<String> {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
    let mut head = [0_u8; 12];
    stream.read_exact(&mut head)?;
    Ok(String::from_utf8_lossy(&head[9..12]).into_owned())
}
