//! Requests of a page of a foreign origin, of a page under a rebound name and of a foreign WebSocket, on every path and
//! method of every protocol, of the gateway itself and of the admin listener: each gets a refusal that the page cannot
//! read.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::check::Check;
use crate::gateway::Gateway;
use crate::paths::{ADMIN_PATHS, OWN_PATHS, ROUTES, paths};
use crate::{Rig, http};

const PAGES: [&str; 6] = [
    "origin: https://evil.example\r\n",
    "origin: null\r\n",
    "origin: http://localhost:3000\r\n",
    "origin: http://127.0.0.1.evil.example\r\n",
    "origin: https://evil.example\r\nsec-fetch-site: same-origin\r\n",
    "sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\nsec-fetch-dest: image\r\n",
];
const REBOUND: [&str; 3] = ["rebound.evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example"];
const SOCKET: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

const FILE: &str = r#"
[server]
listen = "{{listen}}"

[store]
kind = "memory"

[admin]
listen = "{admin}"

[agents.demo]
upstream = { protocol = "demo", options = { pace_ms = 0 } }
"#;

/// The requests, and those whose answer was wrong.
#[derive(Default)]
struct ForeignRequests {
    asked: usize,
    served: usize,
    /// Answers that a page may read.
    readable: usize,
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let admin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let gateway = Gateway::start(rig, &format!("{}{ROUTES}", FILE.replace("{admin}", &admin.to_string())))?;

    let (mut seen, mut endpoints) = (ForeignRequests::default(), 0);
    let of_protocols = paths();
    let of_protocols: Vec<&str> = of_protocols.iter().map(String::as_str).collect();
    for (address, paths) in [(gateway.address, &*of_protocols), (gateway.address, OWN_PATHS), (admin, ADMIN_PATHS)] {
        for path in paths {
            let methods = methods(address, path)?;
            endpoints += methods.len();
            for method in &methods {
                try_all(address, method, path, &mut seen)?;
            }
        }
    }
    let runs = http::get(gateway.address, "/agents/demo/runs")?;
    let none = runs.status == 200 && runs.body.contains("\"total\":0");
    Ok(vec![
        Check::at_least("endpoints", endpoints as f64, 70.0, ""),
        Check::at_least("requests of foreign pages, rebound names and sockets", seen.asked as f64, 700.0, ""),
        Check::at_most("… served", seen.served as f64, 0.0, ""),
        Check::at_most("… answered so that the page may read it", seen.readable as f64, 0.0, ""),
        Check::at_least("no run was started", f64::from(u8::from(none)), 1.0, ""),
    ])
}

/// The methods of a path, as the answer to another one names them.
fn methods(address: SocketAddr, path: &str) -> Result<Vec<String>> {
    let answer = ask(address, "TRACE", path, "127.0.0.1", "")?;
    ensure!(answer.starts_with("http/1.1 405"), "{path} is answered {answer:.200}");
    let allow = answer.split("\r\nallow:").nth(1).and_then(|rest| rest.split("\r\n").next()).context("no Allow")?;
    Ok(allow.split(',').map(|method| method.trim().to_uppercase()).filter(|method| method != "OPTIONS").collect())
}

fn try_all(address: SocketAddr, method: &str, path: &str, seen: &mut ForeignRequests) -> Result<()> {
    let mut judge = |what: &str, answer: &str, statuses: &[&str]| {
        seen.asked += 1;
        if !statuses.iter().any(|status| answer.starts_with(&format!("http/1.1 {status}"))) {
            eprintln!("foreign-pages: {method} {path} {what:?}: {answer:.200}");
            seen.served += 1;
        }
        if answer.contains("\r\naccess-control-allow-origin:")
            || !answer.contains("\r\nx-content-type-options: nosniff")
        {
            eprintln!("foreign-pages, readable: {method} {path} {what:?}: {answer:.400}");
            seen.readable += 1;
        }
    };

    for page in PAGES {
        // An image cannot be read by the page that shows it, and probes are public.
        let is_probe = !page.contains("origin:") && matches!(path, "/healthz" | "/readyz");
        if !is_probe {
            judge(page, &ask(address, method, path, "127.0.0.1", page)?, &["403"]);
        }
        let preflight = format!("{page}access-control-request-method: {method}\r\n");
        if page.contains("origin:") {
            judge("preflight", &ask(address, "OPTIONS", path, "127.0.0.1", &preflight)?, &["403", "405"]);
        }
        if method == "GET" && page.contains("origin:") {
            let upgrade = format!("{page}{SOCKET}");
            judge("socket", &ask(address, method, path, "127.0.0.1", &upgrade)?, &["403"]);
        }
    }
    for host in REBOUND {
        let page = format!("origin: http://{host}\r\nsec-fetch-site: same-origin\r\n");
        judge(host, &ask(address, method, path, host, &page)?, &["421"]);
        let upgrade = format!("{page}{SOCKET}");
        judge(host, &ask(address, "GET", path, host, &upgrade)?, &["421"]);
    }
    Ok(())
}

/// Asks with these header lines, and returns the answer in lower case.
fn ask(address: SocketAddr, method: &str, path: &str, host: &str, headers: &str) -> Result<String> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(Duration::from_secs(10)))?;
    let close = if headers.contains("upgrade") { "" } else { "connection: close\r\n" };
    let body = if matches!(method, "GET" | "HEAD" | "DELETE" | "OPTIONS" | "TRACE") {
        "\r\n"
    } else {
        "content-type: application/json\r\na2a-version: 1.0\r\ncontent-length: 2\r\n\r\n{}"
    };
    connection.write_all(format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{close}{headers}{body}").as_bytes())?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = connection.read(&mut buffer)?;
        answer.extend_from_slice(&buffer[..count]);
        // The head is enough: a socket would stay open.
        if count == 0 || answer.windows(4).any(|window| window == b"\r\n\r\n") {
            return Ok(String::from_utf8_lossy(&answer).to_lowercase());
        }
    }
}
