//! A gateway process: its file written, started on a free port, looked at from outside, told to stop or killed.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tempfile::TempDir;

use crate::Rig;
use crate::http;

/// How long it may take to answer its first request.
const READY: Duration = Duration::from_secs(20);

/// The routes that scenarios use, in front of the demo agent: `/agents/demo` (Agent API), `/v1` (Responses), `/a2a/demo`.
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

/// A gateway that answers. Dropped, it is killed, and its folder removed.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    folder: TempDir,
    binary: PathBuf,
    child: Child,
}

impl Gateway {
    /// Starts one with this file; `{{listen}}` stands for its address.
    pub(crate) fn start(rig: &Rig, file: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // Free now, and hardly taken by anybody in the moment until the gateway has it.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        fs::write(folder.path().join("gateway.toml"), file.replace("{{listen}}", &address.to_string()))?;
        let child = spawn(&rig.gateway, folder.path())?;
        let mut gateway = Self { address, folder, binary: rig.gateway.clone(), child };
        gateway.ready()?;
        Ok(gateway)
    }

    /// Starts it again, on what it has left behind.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.child = spawn(&self.binary, self.folder.path())?;
        self.ready()
    }

    fn ready(&mut self) -> Result<()> {
        let began = Instant::now();
        while !http::get(self.address, "/readyz").is_ok_and(|answer| answer.status == 200) {
            if let Some(status) = self.child.try_wait()? {
                bail!("the gateway ended ({status}): {}", self.log());
            }
            if began.elapsed() > READY {
                bail!("the gateway does not answer: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The folder with its file and its database.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// All it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The memory it holds, in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kilobytes * 1024)
    }

    /// How many files and sockets it has open.
    pub(crate) fn open_files(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.child.id()))?.count())
    }

    /// Bounds how large its files may grow, as a full disk does; None: as large as they like.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) -> Result<()> {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Fsize, limit)?;
        Ok(())
    }

    /// Asks it to stop, and answers how long that took. Past the limit it is killed.
    pub(crate) fn stop(&mut self, limit: Duration) -> Result<Duration> {
        let began = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        while began.elapsed() < limit {
            if self.child.try_wait()?.is_some() {
                return Ok(began.elapsed());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
        Ok(began.elapsed())
    }

    /// `kill -9`
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

fn spawn(binary: &Path, folder: &Path) -> Result<Child> {
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log"))?;
    // A file that may not grow is an error for who writes it, as on a full disk, and no signal.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(binary);
    command.current_dir(folder).args(["--log", "warn"]).env_remove("INTERLINGUA_CONFIG").env_remove("INTERLINGUA_LOG");
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("cannot start {}", binary.display()))
}
