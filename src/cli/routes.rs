//! Prints the mounts, as a table and as example commands.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::SocketAddr;

use serde_json::Value;

use crate::Gateway;
use crate::config::{Mount, Settings};

/// `interlingua routes`
pub(super) fn list(gateway: &Gateway, settings: &Settings, json: bool) -> anyhow::Result<()> {
    let mounts = settings.mounts();
    super::print(&if json {
        let mounts = mounts.iter().map(|mount| described(gateway, &mounts, mount)).collect::<Result<Vec<_>, _>>()?;
        serde_json::to_string_pretty(&mounts)?
    } else {
        let table = table(gateway, &mounts, &base(settings, settings.server.listen));
        format!("{table}\n{}", without_credentials(gateway, &mounts))
    })
}

/// A mount with what protects it: `auth` is a list of methods or `none`, `public` lists the endpoints without it.
fn described(gateway: &Gateway, mounts: &[Mount], mount: &Mount) -> serde_json::Result<Value> {
    let mut described = serde_json::to_value(mount)?;
    let methods = mount.route.auth;
    described["auth"] = if methods.any() { methods.names().into() } else { "none".into() };
    described["public"] = gateway.public_endpoints(mount, is_first(mounts, mount)).into();
    Ok(described)
}

/// True for the first mount of its protocol.
fn is_first(mounts: &[Mount], mount: &Mount) -> bool {
    mounts.iter().find(|other| other.protocol() == mount.protocol()).is_some_and(|first| first.path == mount.path)
}

/// Everything that answers without credentials.
fn without_credentials(gateway: &Gateway, mounts: &[Mount]) -> String {
    let mut text = "Without credentials:\n  /healthz, /readyz, preflight requests of browsers\n".to_owned();
    for mount in mounts {
        if mount.route.auth.any() {
            for endpoint in gateway.public_endpoints(mount, is_first(mounts, mount)) {
                let _ = writeln!(text, "  {endpoint}");
            }
        } else {
            let _ = writeln!(text, "  everything below {} ({})", mount.path, mount.protocol());
        }
    }
    text
}

/// Prints the address, the routes and example commands when the gateway starts.
pub(super) fn print_banner(gateway: &Gateway, settings: &Settings, address: SocketAddr) {
    let mounts = settings.mounts();
    let base = base(settings, address);
    println!("interlingua {} is listening on {}://{address}\n", env!("CARGO_PKG_VERSION"), settings.server.scheme());
    print!("{}", table(gateway, &mounts, &base));
    println!("\nTry it:");
    let mut printed = HashSet::new();
    for mount in &mounts {
        // One agent per protocol, since a long list would hide the table above.
        if !printed.insert(mount.protocol()) {
            continue;
        }
        let credentials = if mount.route.auth.any() { " -H \"authorization: Bearer $KEY\"" } else { "" };
        for line in gateway.curl(mount) {
            let line = line.replace("{url}", &format!("{base}{}", mount.path.trim_end_matches('/')));
            println!("  {line}{credentials}");
        }
    }

    println!("\n{}", without_credentials(gateway, &mounts).trim_end());
    // Tests and people know by the last line that the message is complete.
    println!(
        "\n{}",
        if mounts.iter().any(|mount| mount.route.auth.any()) {
            "Everything else requires credentials."
        } else {
            "No authentication: anyone who can connect can use every route."
        }
    );
}

fn base(settings: &Settings, address: SocketAddr) -> String {
    settings.server.public_url.clone().unwrap_or_else(|| {
        // An unspecified address cannot be connected to.
        let host = if address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { address.ip().to_string() };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        format!("{}://{host}:{}", settings.server.scheme(), address.port())
    })
}

fn table(gateway: &Gateway, mounts: &[Mount], base: &str) -> String {
    let rows: Vec<[String; 4]> = mounts
        .iter()
        .map(|mount| {
            let agents: Vec<&str> = mount.agents.iter().map(|agent| agent.name.as_str()).collect();
            let methods = mount.route.auth.names().join(", ");
            let auth = if methods.is_empty() { "none".to_owned() } else { methods };
            [mount.protocol().to_owned(), format!("{base}{}", gateway.shown_path(mount)), auth, agents.join(", ")]
        })
        .collect();

    let head = ["PROTOCOL".to_owned(), "URL".to_owned(), "AUTH".to_owned(), "AGENTS".to_owned()];
    let width = |column: usize| rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second, third) = (width(0), width(1), width(2));
    let mut text = String::new();
    for row in [&head].into_iter().chain(&rows) {
        let _ = writeln!(text, "  {:first$}  {:second$}  {:third$}  {}", row[0], row[1], row[2], row[3]);
    }
    text
}
