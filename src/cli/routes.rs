//! Prints the mounts, as a table and as example commands.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;

use crate::Gateway;
use interlingua_config::{Mount, Route, Settings};

/// `interlingua routes`
pub(super) fn list(gateway: &Gateway, settings: &Settings, json: bool) -> anyhow::Result<()> {
    let mounts = settings.mounts();
    super::print(&if json {
        let mounts = mounts.iter().map(|mount| described(gateway, &mounts, mount)).collect::<Result<Vec<_>, _>>()?;
        serde_json::to_string_pretty(&mounts)?
    } else {
        let base = base(settings, settings.server.listen);
        let (table, commands) = (table(gateway, &mounts, &base), try_it(gateway, &mounts, &base));
        format!("{table}\n{commands}\n{}", without_credentials(gateway, &mounts))
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

/// Prints the address and the routes when the gateway starts: one row for each route, and one command to begin with.
/// `interlingua routes` lists the rest. `print_operators` prints what operators need, in the first lines.
pub(super) fn print_banner(
    gateway: &Gateway,
    settings: &Settings,
    address: SocketAddr,
    print_operators: impl FnOnce(),
) {
    let mounts = settings.mounts();
    let base = base(settings, address);
    println!("interlingua {} is listening on {}://{address}", env!("CARGO_PKG_VERSION"), settings.server.scheme());
    print_operators();
    print!("\n{}", table(gateway, &folded(gateway, settings, &mounts), &base));
    if let Some(line) = mounts.first().and_then(|first| commands(gateway, first, &base).into_iter().next()) {
        println!(
            "\nTry it (\"interlingua routes\" has a command for each protocol, and lists what needs no credentials):\n  {line}"
        );
    }
    // Tests and people know by the last line that the message is complete.
    println!(
        "\n{}",
        if mounts.iter().any(|mount| mount.route.auth.any()) {
            "Without credentials: /healthz, /readyz, and what \"interlingua routes\" lists. Everything else requires credentials."
        } else {
            "No authentication: anyone who can connect can use every route."
        }
    );
}

/// Example commands of a mount.
fn commands(gateway: &Gateway, mount: &Mount, base: &str) -> Vec<String> {
    let credentials = if mount.route.auth.any() { " -H \"authorization: Bearer $KEY\"" } else { "" };
    let url = format!("{base}{}", mount.path.trim_end_matches('/'));
    gateway.curl(mount).iter().map(|line| format!("{}{credentials}", line.replace("{url}", &url))).collect()
}

/// Example commands of the first mount of each protocol.
fn try_it(gateway: &Gateway, mounts: &[Mount], base: &str) -> String {
    let mut text = "Try it:\n".to_owned();
    let mut printed = HashSet::new();
    for mount in mounts.iter().filter(|mount| printed.insert(mount.protocol())) {
        for line in commands(gateway, mount, base) {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

/// A mount for each route, with all of its agents: the path keeps `{agent}`, and ends as people read it.
fn folded(gateway: &Gateway, settings: &Settings, mounts: &[Mount]) -> Vec<Mount> {
    let whole = |route: &Arc<Route>| {
        let first = mounts.iter().find(|mount| Arc::ptr_eq(&mount.route, route));
        let has_slash = first.is_some_and(|first| gateway.shown_path(first).ends_with('/'));
        let path = if has_slash { format!("{}/", route.path.trim_end_matches('/')) } else { route.path.clone() };
        Mount { route: Arc::clone(route), path, agents: route.agents.clone() }
    };
    settings.routes.iter().map(whole).collect()
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
