//! What stands between client and upstream: nothing, nginx, or the gateway over one of its stores. Each is a process
//! with a configuration written for it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::processes::Running;

/// Where candidates are asked in the native tongue; nginx and the bare upstream answer on any path.
pub(crate) const PATH: &str = "/agents/rig/process";
/// Where the gateway is asked in A2A.
pub(crate) const A2A: &str = "/a2a/rig/message:stream";

/// How long any of them may take to answer its first request.
const READY: Duration = Duration::from_secs(10);

/// One candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Between {
    Nothing,
    Nginx,
    Gateway {
        store: &'static str,
    },
    /// The gateway over its memory store, asked in A2A.
    GatewayA2a,
}

impl Between {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Nothing => "direct".to_owned(),
            Self::Nginx => "nginx".to_owned(),
            Self::Gateway { store } => format!("gateway, {store}"),
            Self::GatewayA2a => "gateway, A2A".to_owned(),
        }
    }

    /// Where it is asked.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::GatewayA2a => A2A,
            _ => PATH,
        }
    }
}

/// What every candidate is started with.
pub(crate) struct Setting {
    pub(crate) gateway: PathBuf,
    pub(crate) workers: usize,
    pub(crate) upstream: u16,
    /// Configurations, logs and databases.
    pub(crate) scratch: PathBuf,
}

/// A candidate that answers.
pub(crate) struct Standing {
    pub(crate) between: Between,
    pub(crate) port: u16,
    /// None where nothing stands between.
    pub(crate) running: Option<Running>,
    /// From the start of the process to its first good answer.
    pub(crate) ready_after: Duration,
}

impl Standing {
    pub(crate) fn start(setting: &Setting, between: Between) -> Result<Self> {
        let port = free_port()?;
        let folder = setting.scratch.join(between.name().replace(", ", "-"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let (mut command, path) = match between {
            Between::Nothing => {
                return Ok(Self { between, port: setting.upstream, running: None, ready_after: Duration::ZERO });
            }
            Between::Nginx => (nginx(setting, port, &folder)?, "/"),
            Between::Gateway { store } => (gateway(setting, port, store, &folder)?, "/readyz"),
            Between::GatewayA2a => (gateway(setting, port, "memory", &folder)?, "/readyz"),
        };
        let begun = Instant::now();
        let mut running = Running::start(&between.name(), &mut command, &folder.join("log"))?;
        while !answers(port, path) {
            running.still_runs().with_context(|| format!("see {}", folder.join("log").display()))?;
            if begun.elapsed() > READY {
                bail!("{} does not answer, see {}", between.name(), folder.join("log").display());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Self { between, port, running: Some(running), ready_after: begun.elapsed() })
    }
}

/// The upstream, as a process of its own.
pub(crate) fn upstream(port: u16, scratch: &Path) -> Result<Running> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["upstream", &port.to_string()]);
    let mut running = Running::start("upstream", &mut command, &scratch.join("upstream.log"))?;
    let begun = Instant::now();
    while !answers(port, "/") {
        running.still_runs()?;
        if begun.elapsed() > READY {
            bail!("the upstream does not answer");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(running)
}

fn gateway(setting: &Setting, port: u16, store: &str, folder: &Path) -> Result<Command> {
    let config = folder.join("gateway.toml");
    let text = format!(
        r#"[server]
listen = "127.0.0.1:{port}"
workers = {workers}

[store]
kind = "{store}"
{path}

[agents.rig]
history = "upstream"

[agents.rig.upstream]
protocol = "agent-api"
url = "http://127.0.0.1:{upstream}/process"

[[routes]]
protocol = "agent-api"
path = "/agents/{{agent}}"

[[routes]]
protocol = "a2a"
path = "/a2a/{{agent}}"
"#,
        workers = setting.workers,
        upstream = setting.upstream,
        path = if store == "sqlite" { "path = \"rig.db\"" } else { "" },
    );
    std::fs::write(&config, text)?;
    let mut command = Command::new(&setting.gateway);
    command.args(["serve", "--config"]).arg(config);
    Ok(command)
}

/// nginx as one would put it in front of a stream: nothing buffered, connections to the upstream kept.
fn nginx(setting: &Setting, port: u16, folder: &Path) -> Result<Command> {
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
        workers = setting.workers,
        upstream = setting.upstream,
    );
    std::fs::write(&config, text)?;
    let mut command = Command::new("nginx");
    command.arg("-e").arg(folder.join("error.log")).arg("-c").arg(config.canonicalize()?);
    Ok(command)
}

/// Whether nginx can be started here. Where it is not installed, Debian's package is.
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

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn answers(port: u16, path: &str) -> bool {
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
