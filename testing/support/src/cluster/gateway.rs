//! A gateway process that keeps its folder and its address while it is killed, stopped, paused and started again. It
//! blocks.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Deref;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::stream::{self, Answer, request};
use crate::http::TEST_TIMEOUT;
use crate::process::{self, Process};

/// Time that the gateway has to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// A ready gateway. Dropping it kills the process and removes its folder.
pub struct GatewayProcess {
    pub address: SocketAddr,
    folder: TempDir,
    binary: PathBuf,
    process: Process,
}

impl GatewayProcess {
    /// Starts a gateway with this configuration; `{{listen}}` is replaced by its address.
    ///
    /// # Errors
    /// The gateway ends, or is not ready in time.
    pub fn start(binary: impl AsRef<Path>, config: &str) -> Result<Self> {
        Self::start_in(binary, tempfile::tempdir()?, config, answers)
    }

    /// Starts the gateway that cargo builds for the tests of the root package.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_built(config: &str) -> Self {
        Self::start(process::path_of_binary(), config).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Starts it in a folder that contains further files already. It has started once `is_ready` returns true for its
    /// address.
    ///
    /// # Errors
    /// The gateway ends, or is not ready in time.
    pub fn start_in(
        binary: impl AsRef<Path>,
        folder: TempDir,
        config: &str,
        is_ready: impl Fn(SocketAddr) -> bool,
    ) -> Result<Self> {
        // The port is free now and unlikely to be taken before the gateway binds it.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        fs::write(folder.path().join("gateway.toml"), config.replace("{{listen}}", &address.to_string()))?;
        let binary = binary.as_ref().to_owned();
        let process = spawn(&binary, folder.path(), address)?;
        let mut gateway = Self { address, folder, binary, process };
        gateway.wait_ready(is_ready)?;
        Ok(gateway)
    }

    /// Starts it again in the same folder, at the same address. [`Process::took`] is the time until it was ready.
    ///
    /// # Errors
    /// The gateway ends, or is not ready in time.
    pub fn restart(&mut self) -> Result<()> {
        self.process = spawn(&self.binary, self.folder.path(), self.address)?;
        self.wait_ready(answers)
    }

    fn wait_ready(&mut self, is_ready: impl Fn(SocketAddr) -> bool) -> Result<()> {
        while !is_ready(self.address) {
            if let Some(status) = self.process.exit_status() {
                bail!("the gateway ended ({status}): {}", self.log());
            }
            ensure!(self.process.started.elapsed() < READY_TIMEOUT, "the gateway did not become ready: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        self.process.took = self.process.started.elapsed();
        Ok(())
    }

    /// Makes an API key for a caller, like an operator. The gateway accepts it within a second.
    ///
    /// # Errors
    /// The command fails.
    pub fn new_key(&self, caller: &str) -> Result<String> {
        let mut command = Command::new(&self.binary);
        let made = command.current_dir(self.folder.path()).args(["key", "new", caller]).output()?;
        ensure!(made.status.success(), "no key: {}", String::from_utf8_lossy(&made.stderr));
        Ok(String::from_utf8(made.stdout)?.trim().to_owned())
    }

    /// The folder with its configuration and database.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Sends SIGTERM and returns the time until exit. Kills the process after `limit`.
    ///
    /// # Errors
    /// It has ended.
    pub fn stop(&mut self, limit: Duration) -> Result<Duration> {
        ensure!(self.process.exit_status().is_none(), "the gateway has ended: {}", self.log());
        self.process.terminate();
        Ok(self.process.wait_or_kill(limit))
    }

    /// Waits until the gateway has stopped, after a request to stop.
    ///
    /// # Panics
    /// If it runs for longer than [`TEST_TIMEOUT`].
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        self.process.wait_or_kill(TEST_TIMEOUT);
        let status = self.process.exit_status().expect("it has ended or was killed");
        assert!(status.signal().is_none(), "the gateway does not end by itself: {}", self.log());
        status
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) {
        self.process.kill_and_wait();
    }

    pub fn get(&self, path: &str) -> Answer {
        stream::send(self.address, &request("GET", path, &[], "")).expect("the gateway answers")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        stream::send(self.address, &request("POST", path, &[], &body.to_string())).expect("the gateway answers")
    }
}

impl Deref for GatewayProcess {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

/// Whether a gateway without TLS is ready.
pub fn answers(address: SocketAddr) -> bool {
    stream::send(address, &request("GET", "/readyz", &[], "")).is_ok_and(|answer| answer.status == 200)
}

fn spawn(binary: &Path, folder: &Path, address: SocketAddr) -> Result<Process> {
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log"))?;
    // Ignore SIGXFSZ, so that a write beyond the limit is an error, as on a full disk.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(binary);
    command.current_dir(folder).args(["--log", "warn"]).env_remove("INTERLINGUA_CONFIG").env_remove("INTERLINGUA_LOG");
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(Process::spawn_silent(&mut command, address))
}
