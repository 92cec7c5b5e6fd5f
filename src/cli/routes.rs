//! Prints the mounts, as a table and as example commands.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::Gateway;
use crate::config::{Mount, Settings};

/// `interlingua routes`
pub(super) fn list(settings: &Settings, json: bool) -> anyhow::Result<()> {
    super::print(&if json {
        serde_json::to_string_pretty(&settings.mounts())?
    } else {
        table(&settings.mounts(), &base(settings, settings.server.listen))
    })
}

/// Prints the address, the routes and example commands when the gateway starts.
pub(super) fn print_banner(gateway: &Gateway, settings: &Settings, address: SocketAddr) {
    let mounts = settings.mounts();
    let base = base(settings, address);
    println!("interlingua {} is listening on {}://{address}\n", env!("CARGO_PKG_VERSION"), settings.server.scheme());
    print!("{}", table(&mounts, &base));
    println!("\nTry it:");
    let mut printed = HashSet::new();
    for mount in &mounts {
        // One agent per protocol, since a long list would hide the table above.
        if !printed.insert(mount.protocol()) {
            continue;
        }
        for line in gateway.curl(mount) {
            println!("  {}", line.replace("{url}", &format!("{base}{}", mount.path.trim_end_matches('/'))));
        }
    }

    println!("\nNo authentication: anyone who can connect can use every route.");
}

fn base(settings: &Settings, address: SocketAddr) -> String {
    settings.server.public_url.clone().unwrap_or_else(|| {
        // An unspecified address cannot be connected to.
        let host = if address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { address.ip().to_string() };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        format!("{}://{host}:{}", settings.server.scheme(), address.port())
    })
}

fn table(mounts: &[Mount], base: &str) -> String {
    let rows: Vec<[String; 3]> = mounts
        .iter()
        .map(|mount| {
            let agents: Vec<&str> = mount.agents.iter().map(|agent| agent.name.as_str()).collect();
            [mount.protocol().to_owned(), format!("{base}{}", mount.path), agents.join(", ")]
        })
        .collect();

    let head = ["PROTOCOL".to_owned(), "URL".to_owned(), "AGENTS".to_owned()];
    let width = |column: usize| rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    let mut text = String::new();
    for row in [&head].into_iter().chain(&rows) {
        let _ = writeln!(text, "  {:first$}  {:second$}  {}", row[0], row[1], row[2]);
    }
    text
}
