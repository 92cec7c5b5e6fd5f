//! The gateway as a child process: started as an operator starts it, stopped by a signal, or killed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::http::{Exchange, Response, request, with_timeout};

/// The gateway binary, without environment variables that change how it starts.
pub fn binary(folder: &Path) -> Command {
    let mut command = Command::new(path_of_binary());
    command.current_dir(folder).env_remove("INTERLINGUA_CONFIG").env_remove("INTERLINGUA_LOG").env("NO_COLOR", "1");
    // For the file of the admin key.
    command.env("XDG_RUNTIME_DIR", folder);
    command
}

/// The binary that cargo builds for the tests of the root package: one folder above the test's own file.
///
/// # Panics
/// If it is not there: the calling test belongs to another package.
pub fn path_of_binary() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let folder = test.parent().and_then(Path::parent).expect("tests are in a folder of the target folder");
    let binary = folder.join(format!("interlingua{}", std::env::consts::EXE_SUFFIX));
    assert!(binary.is_file(), "{} is not built", binary.display());
    binary
}

/// Runs a subcommand of the binary to its end.
pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    binary(folder).args(arguments).output().expect("the binary runs")
}

/// A serving process. It is killed when it is dropped.
pub struct Process {
    pub address: SocketAddr,
    /// Its standard output up to the end of the start-up message.
    pub startup_output: String,
    /// From the spawn until the start-up message was complete, or the gateway ready.
    pub took: Duration,
    pub(crate) started: Instant,
    child: Child,
}

impl Process {
    /// Starts the `gateway.toml` of a folder, which has to listen on port 0.
    pub fn start(folder: &Path) -> Self {
        let mut command = binary(folder);
        command.args(["--log", "warn"]).stderr(Stdio::null());
        Self::spawn(command)
    }

    /// Like [`Process::start`], with a JSON log in the file `log` of the folder.
    pub fn start_logging(folder: &Path) -> Self {
        let log = std::fs::File::create(folder.join("log")).expect("a file");
        let mut command = binary(folder);
        command.args(["--log", "info", "--log-format", "json"]).stderr(log);
        Self::spawn(command)
    }

    /// Starts a prepared command: [`binary`] with arguments, environment and log.
    pub fn spawn(mut command: Command) -> Self {
        let mut process = Self::spawn_silent(command.stdout(Stdio::piped()), SocketAddr::from(([0; 4], 0)));
        let mut lines = BufReader::new(process.child.stdout.take().expect("its output is read"));
        let mut output = String::new();

        // The start-up message ends with the note about authentication.
        while !output.contains("No authentication") && !output.contains("requires credentials") {
            let read = lines.read_line(&mut output).expect("its output is text");
            assert!(read > 0, "the process ended before it served: {output}");
        }

        let address = output.split("listening on ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.and_then(|url| url.split("://").nth(1));
        process.address =
            address.and_then(|address| address.parse().ok()).expect("the start-up message contains the address");
        std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        process.startup_output = output;
        process.took = process.started.elapsed();
        process
    }

    /// Starts a command that listens at a known address, and does not wait for its start-up message.
    pub fn spawn_silent(command: &mut Command, address: SocketAddr) -> Self {
        let started = Instant::now();
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        Self { address, startup_output: String::new(), took: Duration::ZERO, started, child }
    }

    /// The address of the admin listener.
    pub fn admin(&self) -> SocketAddr {
        let mut lines = self.startup_output.lines();
        let line = lines.find_map(|line| line.strip_prefix("operators find metrics and state at "));
        let address = line.and_then(|line| line.split(": ").next()?.parse().ok());
        address.expect("the start-up message contains the address of the admin listener")
    }

    /// The file of the admin key that the gateway made at its start. `None`: the configuration has credentials.
    pub fn admin_key_file(&self) -> Option<&Path> {
        let mut lines = self.startup_output.lines();
        lines.find_map(|line| line.strip_prefix("the admin key of this start is in ")).map(Path::new)
    }

    /// The admin key that the gateway made at its start.
    pub fn admin_key(&self) -> Option<String> {
        let file = self.admin_key_file()?;
        Some(std::fs::read_to_string(file).expect("the file of the admin key").trim().to_owned())
    }

    /// Sends a request to the admin listener, with the key of the start if there is one and `headers` have none.
    pub async fn operate(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let has_own = headers.iter().any(|(name, _)| *name == "authorization");
        match self.admin_key().filter(|_| !has_own) {
            Some(key) => {
                let bearer = format!("Bearer {key}");
                let headers = [headers, &[("authorization", bearer.as_str())]].concat();
                self.operate_as_is(method, path, &headers, body).await
            }
            None => self.operate_as_is(method, path, headers, body).await,
        }
    }

    /// Sends a request to the admin listener with these headers and no others.
    pub async fn operate_as_is(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        Exchange::send(self.admin(), &request(method, path, headers, body)).await.response().await
    }

    /// Sends a request and returns the connection.
    pub async fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Exchange {
        Exchange::send(self.address, &request(method, path, headers, body)).await
    }

    /// Kills the process (SIGKILL) and waits for its end.
    pub fn kill(mut self) {
        self.kill_and_wait();
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL without waiting.
    pub fn kill_now(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGHUP, as a closing terminal does.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the signal can be sent");
    }

    /// Stops its process (SIGSTOP), as on a machine that is suspended: connections stay open without answers.
    ///
    /// # Errors
    /// It has ended, as for all methods below that return a [`Result`].
    pub fn pause(&self) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::STOP)?)
    }

    /// Ends [`Process::pause`] (SIGCONT).
    pub fn unpause(&self) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }

    /// Its resident memory in bytes.
    pub fn memory(&self) -> Result<u64> {
        self.status("VmRSS:")
    }

    /// The most memory it ever had, in bytes.
    pub fn peak(&self) -> Result<u64> {
        self.status("VmHWM:")
    }

    fn status(&self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)).context("a field is missing")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
    }

    /// The number of its open files and sockets.
    pub fn open_files(&self) -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.id()))?.count())
    }

    /// Limits the size of its files, which simulates a full disk. `None` removes the limit.
    pub fn limit_files(&self, bytes: Option<u64>) -> Result<()> {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Fsize, limit)?;
        Ok(())
    }

    /// Its exit status. `None`: it runs.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits for its end, for this time at most, and kills it after that. Returns the time that it took.
    pub fn wait_or_kill(&mut self, limit: Duration) -> Duration {
        let started = Instant::now();
        while self.exit_status().is_none() {
            if started.elapsed() >= limit {
                self.kill_and_wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        started.elapsed()
    }

    /// Kills the process (SIGKILL) and waits for its end. No effect if it has ended.
    pub fn kill_and_wait(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end.
    pub async fn wait(mut self) -> ExitStatus {
        with_timeout("the process to end", async {
            loop {
                if let Some(status) = self.exit_status() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_and_wait();
    }
}
