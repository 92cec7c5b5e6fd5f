//! A gateway process: written configuration, start on a free port, observation from outside, stop or kill.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tempfile::TempDir;

use crate::Rig;
use crate::http;

/// Time that the gateway has to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// Routes for the scenarios, in front of the demo agent: `/agents/demo` (Agent API), `/v1` (Responses), `/a2a/demo`.
pub(crate) const ROUTES: &str = r#"
[agents.demo]
upstream = { protocol = "demo" }

[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"

[[routes]]
protocol = "responses"
path = "/v1"

[[routes]]
protocol = "a2a"
path = "/a2a/{agent}"
"#;

/// A store that stays small and one route, `/agents/demo`, in front of a demo agent that answers at once.
pub(crate) const FAST_DEMO: &str = r#"
[store]
kind = "memory"
retention = { runs = 1000 }

[agents.demo]
upstream = { protocol = "demo", options = { pace_ms = 0 } }

[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"
"#;

/// A ready gateway. Dropping it kills the process and removes its folder.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    folder: TempDir,
    binary: PathBuf,
    child: Child,
}

impl Gateway {
    /// Starts a gateway with this configuration; `{{listen}}` is replaced by its address.
    pub(crate) fn start(rig: &Rig, file: &str) -> Result<Self> {
        Self::start_in(rig, tempfile::tempdir()?, file, answers)
    }

    /// Starts it in a folder that contains further files already. It has started once `is_ready` returns true for its
    /// address.
    pub(crate) fn start_in(
        rig: &Rig,
        folder: TempDir,
        file: &str,
        is_ready: impl Fn(SocketAddr) -> bool,
    ) -> Result<Self> {
        // The port is free now and unlikely to be taken before the gateway binds it.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        fs::write(folder.path().join("gateway.toml"), file.replace("{{listen}}", &address.to_string()))?;
        let child = spawn(&rig.gateway, folder.path())?;
        let mut gateway = Self { address, folder, binary: rig.gateway.clone(), child };
        gateway.wait_ready(is_ready)?;
        Ok(gateway)
    }

    /// Makes an API key for a caller, like an operator. The gateway accepts it within a second.
    pub(crate) fn new_key(&self, caller: &str) -> Result<String> {
        let mut command = Command::new(&self.binary);
        let made = command.current_dir(self.folder.path()).args(["key", "new", caller]).output()?;
        ensure!(made.status.success(), "no key: {}", String::from_utf8_lossy(&made.stderr));
        Ok(String::from_utf8(made.stdout)?.trim().to_owned())
    }

    /// Starts it again in the same folder.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.child = spawn(&self.binary, self.folder.path())?;
        self.wait_ready(answers)
    }

    fn wait_ready(&mut self, is_ready: impl Fn(SocketAddr) -> bool) -> Result<()> {
        let started = Instant::now();
        while !is_ready(self.address) {
            if let Some(status) = self.child.try_wait()? {
                bail!("the gateway ended ({status}): {}", self.log());
            }
            if started.elapsed() > READY_TIMEOUT {
                bail!("the gateway did not become ready: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The folder with its configuration and database.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Its resident memory in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        self.status("VmRSS:")
    }

    /// The most memory it ever had, in bytes.
    pub(crate) fn peak(&self) -> Result<u64> {
        self.status("VmHWM:")
    }

    fn status(&self, field: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)).context("a field is missing")?;
        let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kilobytes * 1024)
    }

    /// The number of its open files and sockets.
    pub(crate) fn open_files(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.child.id()))?.count())
    }

    /// Limits the size of its files, which simulates a full disk. `None` removes the limit.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) -> Result<()> {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Fsize, limit)?;
        Ok(())
    }

    /// Sends SIGTERM and returns the time until exit. Kills the process after `limit`.
    pub(crate) fn stop(&mut self, limit: Duration) -> Result<Duration> {
        let started = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        while started.elapsed() < limit {
            if self.child.try_wait()?.is_some() {
                return Ok(started.elapsed());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
        Ok(started.elapsed())
    }

    /// Stops its process, as on a machine that is suspended: connections stay open, and nothing is answered.
    pub(crate) fn pause(&self) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::STOP)?)
    }

    /// Ends [`Gateway::pause`].
    pub(crate) fn unpause(&self) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a gateway without TLS is ready.
pub(crate) fn answers(address: SocketAddr) -> bool {
    http::get(address, "/readyz").is_ok_and(|answer| answer.status == 200)
}

fn spawn(binary: &Path, folder: &Path) -> Result<Child> {
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log"))?;
    // Ignore SIGXFSZ, so that a write beyond the limit is an error, as on a full disk.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(binary);
    command.current_dir(folder).args(["--log", "warn"]).env_remove("INTERLINGUA_CONFIG").env_remove("INTERLINGUA_LOG");
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("cannot start {}", binary.display()))
}
