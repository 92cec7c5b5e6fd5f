//! The gateway as its own process: started as an operator starts it, asked to stop, or killed.

#![allow(dead_code, unreachable_pub, reason = "every test uses another part of it")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::http::{Exchange, bounded, request};

/// The binary, its environment free of what would change how it starts.
pub fn binary(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interlingua"));
    command.current_dir(folder).env_remove("INTERLINGUA_CONFIG").env_remove("INTERLINGUA_LOG").env("NO_COLOR", "1");
    command
}

/// Runs a command of the binary to its end.
pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    binary(folder).args(arguments).output().expect("the binary runs")
}

/// A process that serves. It is killed when it is dropped.
pub struct Process {
    pub address: SocketAddr,
    /// What it said when it started.
    pub said: String,
    /// From its start until it could be reached.
    pub took: Duration,
    child: Child,
}

impl Process {
    /// Starts one on the `gateway.toml` of a folder, which has to leave the port to the system.
    pub fn start(folder: &Path) -> Self {
        let mut command = binary(folder);
        command.args(["--log", "warn"]).stderr(Stdio::null());
        Self::spawn(command)
    }

    /// As [`Process::start`], with its log as JSON in the file `log` of its folder.
    pub fn start_logging(folder: &Path) -> Self {
        let log = std::fs::File::create(folder.join("log")).expect("a file");
        let mut command = binary(folder);
        command.args(["--log", "info", "--log-format", "json"]).stderr(log);
        Self::spawn(command)
    }

    /// Starts one by a command of one's own: [`binary`] with arguments, an environment and a log.
    pub fn spawn(mut command: Command) -> Self {
        let began = Instant::now();
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output is read"));
        let mut said = String::new();
        // The table and the lines to paste end with what is not authenticated.
        while !said.contains("authenticated") {
            let read = lines.read_line(&mut said).expect("its output is text");
            assert!(read > 0, "it ended before it served: {said}");
        }
        let address = said.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.and_then(|address| address.parse().ok()).expect("it says where it listens");
        std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        Self { address, said, took: began.elapsed(), child }
    }

    /// Sends a request, and hands out the connection.
    pub async fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Exchange {
        Exchange::send(self.address, &request(method, path, headers, body)).await
    }

    /// `kill -9`
    pub fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, from elsewhere than its owner.
    pub fn kill_now(&self) {
        self.signal(Signal::KILL);
    }

    /// Asks it to stop, as `kill` does.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// What a terminal sends when it is closed.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process has an id");
        kill_process(pid, signal).expect("it can be told");
    }

    /// Waits until it has ended.
    pub async fn ended(mut self) -> ExitStatus {
        bounded("the process to end", async {
            loop {
                if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
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
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
