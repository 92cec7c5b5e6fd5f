//! The candidates between client and upstream: nothing, nginx, or the gateway with one of its stores. Each is a process
//! with a generated configuration.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use interlingua_testing_postgres::Database;

use crate::clients::{CLIENTS, client};
use crate::database;
use crate::guards::{Guard, Pass};
use crate::processes::{Running, free_port};
use crate::upstream;

/// Time that a process has to respond to its first request.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Candidate {
    Nothing,
    Nginx,
    Gateway {
        store: &'static str,
    },
    /// One of several gateways on one database.
    Replica(&'static str),
    /// The gateway with its memory store, called over A2A.
    GatewayA2a,
    /// The gateway with its memory store and what protects it.
    Guarded(Guard),
    /// The gateway with its memory store, between a client of one protocol and an agent of another.
    Pair {
        client: &'static str,
        agent: &'static str,
    },
    /// nginx in front of an agent of a protocol.
    NginxBefore(&'static str),
}

impl Candidate {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Nothing => "direct".to_owned(),
            Self::Nginx => "nginx".to_owned(),
            Self::Gateway { store } => format!("gateway, {store}"),
            Self::Replica(name) => format!("gateway, {name}"),
            Self::GatewayA2a => "gateway, A2A".to_owned(),
            Self::Guarded(guard) => format!("gateway, {}", guard.name()),
            Self::Pair { client, agent } => format!("{client} → {agent}"),
            Self::NginxBefore(agent) => format!("nginx, {agent}"),
        }
    }

    /// The path of requests to it. nginx and the upstream itself accept any.
    pub(crate) fn path(self) -> String {
        let protocol = match self {
            Self::NginxBefore(agent) => return upstream::path(agent),
            Self::GatewayA2a => "a2a",
            Self::Pair { client, .. } => client,
            _ => "agent-api",
        };
        client(protocol).path.to_owned()
    }

    /// The protocol of its agent.
    pub(crate) const fn agent(self) -> &'static str {
        match self {
            Self::Pair { agent, .. } | Self::NginxBefore(agent) => agent,
            _ => "agent-api",
        }
    }
}

/// Settings that all candidates share.
pub(crate) struct Setup {
    pub(crate) gateway: PathBuf,
    pub(crate) workers: usize,
    pub(crate) upstream: u16,
    /// Folder for configurations, logs and databases.
    pub(crate) scratch: PathBuf,
}

/// A running candidate.
pub(crate) struct Target {
    pub(crate) between: Candidate,
    pub(crate) port: u16,
    /// `None` for [`Candidate::Nothing`].
    pub(crate) running: Option<Running>,
    /// From the start of the process to its first 200 response.
    pub(crate) ready_after: Duration,
    /// The credentials for its clients.
    pub(crate) pass: Pass,
    /// The database that is its own. Dropped, and deleted, after the process has ended.
    _database: Option<Database<'static>>,
}

/// Where a gateway stores runs.
enum StoreLocation<'a> {
    /// In what its name says.
    Named(&'static str),
    /// In a database with others. With further settings.
    Shared { url: &'a str, lease: Duration, settings: &'a str },
}

impl Target {
    pub(crate) fn start(setup: &Setup, between: Candidate) -> Result<Self> {
        let store = match between {
            Candidate::Gateway { store } => store,
            _ => "memory",
        };
        Self::start_with(setup, between, &StoreLocation::Named(store))
    }

    /// Starts one of several gateways on a database. `settings`: further lines of its store.
    pub(crate) fn replica(
        setup: &Setup,
        name: &'static str,
        url: &str,
        lease: Duration,
        settings: &str,
    ) -> Result<Self> {
        Self::start_with(setup, Candidate::Replica(name), &StoreLocation::Shared { url, lease, settings })
    }

    fn start_with(setup: &Setup, between: Candidate, stored: &StoreLocation<'_>) -> Result<Self> {
        let port = free_port()?;
        let folder = setup.scratch.join(between.name().replace(", ", "-").replace(" → ", "-").replace(' ', "-"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }

        std::fs::create_dir_all(&folder)?;
        let own = matches!(stored, StoreLocation::Named("postgres")).then(database::database).transpose()?;
        let (mut command, path) = match between {
            Candidate::Nothing => {
                let pass = Pass::default();
                return Ok(Self {
                    between,
                    port: setup.upstream,
                    running: None,
                    ready_after: Duration::ZERO,
                    pass,
                    _database: None,
                });
            }
            Candidate::Nginx | Candidate::NginxBefore(_) => (nginx(setup, port, &folder)?, "/"),
            _ => (gateway(setup, port, between, &store_lines(stored, own.as_ref(), &folder)?, &folder)?, "/readyz"),
        };
        let pass = match between {
            Candidate::Guarded(guard) => guard.prepare(&setup.gateway, &folder)?,
            _ => Pass::default(),
        };
        let is_secure = !pass.trusted.is_empty();
        let started = Instant::now();
        let mut running = Running::start(&between.name(), &mut command, &folder.join("log"))?;

        // With TLS no request is sent: the handshake needs a client.
        while !(if is_secure { TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() } else { responds(port, path) })
        {
            running.still_runs().with_context(|| format!("see {}", folder.join("log").display()))?;
            if started.elapsed() > READY_TIMEOUT {
                bail!("{} does not respond, see {}", between.name(), folder.join("log").display());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let ready_after = started.elapsed();
        Ok(Self { between, port, running: Some(running), ready_after, pass, _database: own })
    }
}

/// Starts the upstream as a separate process.
pub(crate) fn start_upstream(port: u16, scratch: &Path) -> Result<Running> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["upstream", &port.to_string()]);
    let mut running = Running::start("upstream", &mut command, &scratch.join("upstream.log"))?;
    let started = Instant::now();
    while !responds(port, "/") {
        running.still_runs()?;
        if started.elapsed() > READY_TIMEOUT {
            bail!("the upstream does not respond");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(running)
}

/// The lines of an agent in the configuration.
fn agent(protocol: &str, upstream: u16) -> String {
    if protocol == "agent-api" {
        return format!(
            "[agents.rig]\nhistory = \"upstream\"\n\n\
             [agents.rig.upstream]\nprotocol = \"agent-api\"\nurl = \"http://127.0.0.1:{upstream}/process\"\n"
        );
    }
    let (path, options) = match protocol {
        "responses" | "chat-completions" => ("v1", "options = { model = \"rig\" }"),
        "a2a" => ("", "options = { binding = \"JSONRPC\", version = \"1.0\" }"),
        _ => ("", ""),
    };
    format!(
        "[agents.rig.upstream]\nprotocol = \"{protocol}\"\nurl = \"http://127.0.0.1:{upstream}{}{path}\"\n{options}\n",
        upstream::path(protocol)
    )
}

/// The table of a gateway's store, with the URL of its database in a file of the folder.
fn store_lines(stored: &StoreLocation<'_>, own: Option<&Database<'_>>, folder: &Path) -> Result<String> {
    let own = own.map(Database::url);
    let (kind, url, more) = match *stored {
        StoreLocation::Named("sqlite") => ("sqlite", None, "path = \"rig.db\"".to_owned()),
        StoreLocation::Named(kind) => (kind, own.as_deref(), String::new()),
        StoreLocation::Shared { url, lease, settings } => {
            ("postgres", Some(url), format!("lease = \"{}s\"\n{settings}", lease.as_secs()))
        }
    };
    let mut lines = format!("kind = \"{kind}\"\n{more}");
    if let Some(url) = url {
        std::fs::write(folder.join("url"), url)?;
        lines.push_str("\nurl = { file = \"url\" }");
    }
    Ok(lines)
}

fn gateway(setup: &Setup, port: u16, between: Candidate, store: &str, folder: &Path) -> Result<Command> {
    let guard = match between {
        Candidate::Guarded(guard) => Some(guard),
        _ => None,
    };
    let routes = CLIENTS
        .iter()
        .map(|client| format!("[[routes]]\nprotocol = \"{}\"\npath = \"{}\"\n\n", client.protocol, client.route))
        .collect::<String>();
    let config = folder.join("gateway.toml");
    let tables = guard.map(Guard::tables).transpose()?.unwrap_or_default();
    let text = format!(
        r#"[server]
listen = "127.0.0.1:{port}"
workers = {workers}
limits = {{ connections_per_address = 20000 }}
{server}

[store]
{store}

{agent}
{routes}{tables}
"#,
        server = guard.map(Guard::server).unwrap_or_default(),
        workers = setup.workers,
        agent = agent(between.agent(), setup.upstream),
    );
    std::fs::write(&config, text)?;
    let mut command = Command::new(&setup.gateway);
    command.args(["serve", "--config"]).arg(config);
    Ok(command)
}

/// nginx configured for streams: no buffering, keep-alive connections to the upstream.
fn nginx(setup: &Setup, port: u16, folder: &Path) -> Result<Command> {
    let config = folder.join("nginx.conf");
    let here = folder.canonicalize()?;
    let here = here.to_str().context("the scratch folder's path is not UTF-8")?;
    let text = format!(
        r#"daemon off;
worker_processes {workers};
pid "{here}/pid";
error_log "{here}/error.log" warn;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    client_body_temp_path "{here}/body";
    proxy_temp_path "{here}/proxy";
    fastcgi_temp_path "{here}/fastcgi";
    uwsgi_temp_path "{here}/uwsgi";
    scgi_temp_path "{here}/scgi";
    tcp_nodelay on;
    keepalive_requests 1000000;
    upstream agent {{ server 127.0.0.1:{upstream}; keepalive 1024; keepalive_requests 1000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://agent;
            proxy_http_version 1.1;
            proxy_set_header connection "";
            proxy_buffering off;
            proxy_read_timeout 1h;
        }}
    }}
}}
"#,
        workers = setup.workers,
        upstream = setup.upstream,
    );
    std::fs::write(&config, text)?;
    let mut command = Command::new("nginx");
    command.arg("-e").arg(folder.join("error.log")).arg("-c").arg(config.canonicalize()?);
    Ok(command)
}

/// True if nginx can be started. Tries to install the Debian package if it is missing.
pub(crate) fn have_nginx() -> bool {
    let there = || Command::new("nginx").arg("-v").output().is_ok_and(|output| output.status.success());
    if there() {
        return true;
    }

    println!("nginx is not installed, trying apt-get install nginx-light");
    for arguments in [&["update", "-q"][..], &["install", "-y", "-q", "nginx-light"]] {
        let installed = Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive").output();
        if !installed.is_ok_and(|output| output.status.success()) {
            break;
        }
    }
    there()
}

fn responds(port: u16, path: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok(&head == b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}
