//! Runs a conformance suite: the built gateway on a free port with the configuration of the suite, its upstream if it
//! has one, and its scripts. Not here: the checks, which are in the scripts.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{self, Running};
use crate::report::Outcome;
use crate::suites::{Kind, Suite};
use crate::{browser, node, python, root, target};

/// The gateway is ready in milliseconds; the limit allows for an unoptimised build on a busy machine.
const GATEWAY_READY_TIMEOUT: Duration = Duration::from_secs(20);
/// AgentScope Runtime takes seconds to import.
const UPSTREAM_READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Time that the gateway has to exit after SIGTERM without clients.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// Held while packages are installed and scripts are copied.
static PREPARING: Mutex<()> = Mutex::new(());

/// Runs one suite against the gateway of the profile `ci`.
pub(crate) fn run(suite: &Suite) -> Result<Outcome> {
    run_scripts(suite, suite.scripts, &target().join("ci/interlingua"))
}

/// Runs scripts of a suite against a build of the gateway.
pub(crate) fn run_scripts(suite: &Suite, scripts: &[&str], binary: &Path) -> Result<Outcome> {
    let sources = root().join("tests/conformance").join(suite.name);
    let shared = root().join("tests/conformance/shared");
    // Suites that run at once share environments.
    let preparing = PREPARING.lock().unwrap_or_else(PoisonError::into_inner);
    let prepared = match suite.kind {
        Kind::Python => python::interpreter(suite.name, &sources.join("requirements.txt"))
            .map(|interpreter| (interpreter, sources.clone())),
        Kind::Node | Kind::Browser => node::prepared(suite.name, &sources, &shared),
    };
    let (program, folder) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Outcome::NotRun(format!("its packages cannot be installed: {error:#}"))),
    };
    let browser = match suite.kind {
        // A suite that is left out would look like one that passes.
        Kind::Browser => Some(browser::installed()?),
        Kind::Python | Kind::Node => None,
    };
    drop(preparing);

    // Logs and the store are kept here after the run for inspection.
    let scratch = target().join("conformance").join(suite.name);
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch)?;
    }
    std::fs::create_dir_all(&scratch)?;

    let upstream = match suite.upstream {
        Some(upstream) => {
            let mut command = Command::new(&program);
            command.arg(folder.join(upstream.script)).env("PYTHONPATH", &shared);
            Some(Server::upstream(command, upstream.ready, &scratch)?)
        }
        None => None,
    };
    // For a script that stands between the gateway and the upstream to disturb what they say.
    let proxy = free_address()?;
    let gateway = Server::gateway(binary, &sources.join("gateway.toml"), upstream.as_ref(), proxy, &scratch)?;

    let (mut passed, mut failed) = (0, 0);
    let mut problems = Vec::new();
    for script in scripts {
        process::say(&format!("{} {script}, gateway at {}", suite.name, gateway.url()));
        let mut command = script_command(suite, script, &program, &sources, &folder);
        command
            .current_dir(&scratch)
            .env("GATEWAY_URL", gateway.url())
            .env("GATEWAY_LOG", &gateway.log)
            .env("PROXY_ADDRESS", proxy.to_string())
            .env("INTERLINGUA", binary)
            .env("CONSOLE", root().join("console"))
            .env("PYTHONPATH", &shared)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        if let Some(upstream) = &upstream {
            command.env("UPSTREAM_URL", upstream.url());
        }
        if let Some(browser) = &browser {
            command.env("CHROMIUM", browser);
        }
        match process::run_and_read(&mut command, suite.limit) {
            Ok((status, output)) => match counts(&output) {
                Some((good, bad)) => {
                    (passed, failed) = (passed + good, failed + bad);
                    if bad == 0 && !status.success() {
                        problems.push(format!("{script} reported no failure but exited with {status}"));
                    }
                }
                None => problems.push(format!("{script} exited with {status} without a line `N passed, N failed`")),
            },
            Err(error) => problems.push(format!("{script}: {error:#}")),
        }
    }
    if let Err(error) = gateway.stop() {
        problems.push(format!("{error:#}"));
    }

    if failed > 0 {
        problems.insert(0, format!("{passed} passed, {failed} failed"));
    } else if passed == 0 {
        problems.push("no check was run".to_owned());
    }
    if !problems.is_empty() {
        bail!("{}; logs are in {}", problems.join("; "), scratch.display());
    }
    Ok(Outcome::Passed(format!("{passed} passed, {failed} failed")))
}

/// Runs a script of a suite. One in Node may share checks that are written in Python.
fn script_command(suite: &Suite, script: &str, program: &Path, sources: &Path, folder: &Path) -> Command {
    let is_shared = matches!(suite.kind, Kind::Node | Kind::Browser) && script.ends_with(".py");
    let (program, folder) = if is_shared { (Path::new("python3"), sources) } else { (program, folder) };
    let mut command = Command::new(program);
    command.arg(folder.join(script));
    command
}

/// The counts in the last line of the form `N passed, N failed`.
fn counts(output: &str) -> Option<(u32, u32)> {
    output.lines().rev().find_map(|line| {
        let (passed, rest) = line.trim().split_once(" passed, ")?;
        let failed = rest.split_once(" failed")?.0;
        Some((passed.parse().ok()?, failed.parse().ok()?))
    })
}

/// A server process started for this run, and its log.
struct Server {
    running: Running,
    address: SocketAddr,
    log: PathBuf,
    name: &'static str,
}

impl Server {
    fn gateway(
        binary: &Path,
        template: &Path,
        upstream: Option<&Server>,
        proxy: SocketAddr,
        scratch: &Path,
    ) -> Result<Self> {
        let address = free_address()?;
        let text = std::fs::read_to_string(template).with_context(|| format!("no {}", template.display()))?;
        let routes = root().join("tests/conformance/shared/routes.toml");
        let routes = std::fs::read_to_string(&routes).with_context(|| format!("no {}", routes.display()))?;
        let text = text
            .replace("# {{routes}}", &routes)
            .replace("{{listen}}", &address.to_string())
            .replace("{{upstream}}", &upstream.map(Server::url).unwrap_or_default())
            .replace("{{proxy}}", &format!("http://{proxy}"));
        let config = scratch.join("gateway.toml");
        std::fs::write(&config, text)?;
        let mut command = Command::new(binary);
        command.args(["serve", "--config"]).arg(config);
        Self::start("gateway", command, address, scratch, "/readyz", GATEWAY_READY_TIMEOUT)
    }

    fn upstream(mut command: Command, ready: &str, scratch: &Path) -> Result<Self> {
        let address = free_address()?;
        command.args(["--port", &address.port().to_string()]);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        Self::start("upstream", command, address, scratch, ready, UPSTREAM_READY_TIMEOUT)
    }

    fn start(
        name: &'static str,
        mut command: Command,
        address: SocketAddr,
        scratch: &Path,
        ready: &str,
        limit: Duration,
    ) -> Result<Self> {
        let log = scratch.join(format!("{name}.log"));
        let file = File::create(&log)?;
        command.current_dir(scratch).stdout(file.try_clone()?).stderr(file);
        // For the file of the admin key.
        command.env("XDG_RUNTIME_DIR", scratch);
        let server = Self { running: Running::start(&mut command)?, address, log, name };
        let deadline = Instant::now() + limit;

        while !responds(address, ready) {
            if server.running.has_ended()? {
                bail!("the {name} ended before it was ready\n{}", server.end_of_log());
            }
            if Instant::now() > deadline {
                bail!("the {name} was not ready within {} s\n{}", limit.as_secs(), server.end_of_log());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops it with SIGTERM. Fails unless it exits successfully.
    fn stop(self) -> Result<()> {
        let Self { running, name, ref log, .. } = self;
        let end = || end_of(log);
        if running.has_ended()? {
            bail!("the {name} exited before it was stopped\n{}", end());
        }

        let status = running.stop(STOP_TIMEOUT).with_context(|| format!("the {name} did not drain"))?;
        if !status.success() {
            bail!("the {name} ended with {status} when it was stopped\n{}", end());
        }
        Ok(())
    }

    fn end_of_log(&self) -> String {
        end_of(&self.log)
    }
}

/// The last lines of a log.
fn end_of(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// A free port, given once. If another process takes it before it is used, the start fails.
///
/// The system takes the ports of outgoing connections from a range above these.
fn free_address() -> Result<SocketAddr> {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Other checkouts may run suites at the same time.
    let start = u16::try_from(std::process::id() % u32::from(COUNT)).expect("below a number of 16 bits");
    for _ in 0..COUNT {
        let place = (start + GIVEN.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, FIRST + place)) {
            return Ok(listener.local_addr()?);
        }
    }
    bail!("no port from {FIRST} on is free")
}

/// True if a GET of the path returns 200.
fn responds(address: SocketAddr, path: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok(&head == b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_summary_line_counts() {
        assert_eq!(counts("1 passed, 0 failed\nmore\n12 passed, 3 failed\nbye"), Some((12, 3)));
        assert_eq!(counts("  7 passed, 0 failed, 2 skipped "), Some((7, 0)));
        assert_eq!(counts("all passed, none failed"), None);
    }
}
