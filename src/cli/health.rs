//! Queries the readiness, or the life, of a running gateway, for the health check of a container.
//!
//! Uses plain sockets, so that it starts fast and works in an image that contains nothing but this binary.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use interlingua_upstream::scheme_error::{SPEAKS_HTTP, is_answer_in_clear};

/// Timeout of the connection, and of each read and write.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Prints `ready` if the path of the URL returns 200; fails otherwise. A URL without a path is that of `/readyz`.
pub(super) fn check(url: &str) -> anyhow::Result<()> {
    let url = url::Url::parse(url).with_context(|| format!("invalid URL \"{url}\""))?;
    let secure = url.scheme() == "https";
    anyhow::ensure!(secure || url.scheme() == "http", "only http and https URLs are supported");
    let host = url.host_str().context("the URL has no host")?;
    let name = host.trim_matches(['[', ']']);
    let path = if url.path() == "/" { "/readyz" } else { url.path() };
    let port = url.port_or_known_default().unwrap_or(80);
    let (mut stream, address) = connect((name, port).to_socket_addrs()?)?;
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

/// A connection to the first address that accepts one: `localhost` often is `::1` first, where the gateway does not
/// listen.
fn connect(addresses: impl IntoIterator<Item = SocketAddr>) -> anyhow::Result<(TcpStream, SocketAddr)> {
    let mut refused = anyhow::anyhow!("the host has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => return Ok((stream, address)),
            Err(error) => refused = anyhow::Error::new(error).context(format!("cannot connect to {address}")),
        }
    }
    Err(refused)
}

/// The status of a `GET` of this path.
fn status(stream: &mut (impl Read + Write), host: &str, path: &str) -> anyhow::Result<String> {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
    let mut head = [0_u8; 12];
    stream.read_exact(&mut head)?;
    Ok(String::from_utf8_lossy(&head[9..12]).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_address_that_refuses_is_followed_by_the_next_one() {
        let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let accepts = listening.local_addr().expect("a bound socket");
        let closed = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let refuses = closed.local_addr().expect("a bound socket");
        drop(closed);
        assert_eq!(connect([refuses, accepts]).expect("a connection").1, accepts);
        let error = connect([refuses]).expect_err("no one listens");
        assert_eq!(error.to_string(), format!("cannot connect to {refuses}"));
    }
}
