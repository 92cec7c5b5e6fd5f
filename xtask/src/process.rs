//! Child processes that cannot outlive xtask: each has its own process group, which is killed when the child exits,
//! exceeds its time limit, when its handle is dropped, and when xtask is interrupted. Not here: which commands are run.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Polling interval for the exit of a child.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The live process groups, for the signal thread.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Kills every group on SIGINT, SIGTERM and SIGHUP and exits. A child in its own group does not receive Ctrl-C from the
/// terminal.
pub(crate) fn kill_children_when_interrupted() {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).expect("these signals may be handled");
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            for group in GROUPS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                let _ = kill_process_group(*group, Signal::KILL);
            }
            std::process::exit(128 + signal);
        }
    });
}

/// A child and its process group.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    group: Pid,
    name: String,
}

impl Running {
    /// Starts the command in a new group, without standard input.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child =
            command.stdin(Stdio::null()).process_group(0).spawn().with_context(|| format!("cannot start {name}"))?;
        let group = Pid::from_child(&child);
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).push(group);
        Ok(Self { child, group, name })
    }

    /// True if the child has exited. It is not reaped, so that the id of its group is not reused.
    pub(crate) fn has_ended(&self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.group), options)?.is_some())
    }

    /// Waits for the exit, at most `limit`, then kills whatever is left of the group.
    pub(crate) fn wait(mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        while !self.has_ended()? {
            if Instant::now() > deadline {
                bail!("{} did not end within {} s and was killed", self.name, limit.as_secs());
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.kill()
    }

    /// Sends SIGTERM and waits for the exit, at most `grace`.
    pub(crate) fn stop(self, grace: Duration) -> Result<ExitStatus> {
        let _ = kill_process(self.group, Signal::TERM);
        self.wait(grace)
    }

    fn kill(&mut self) -> Result<ExitStatus> {
        let _ = kill_process_group(self.group, Signal::KILL);
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).retain(|group| *group != self.group);
        Ok(self.child.wait()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After `wait` nothing is killed: std remembers the status of a reaped child.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.kill();
        }
    }
}

/// Runs a command to its end and passes its output through.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<()> {
    let name = shown(command);
    let status = Running::start(command)?.wait(limit)?;
    if !status.success() {
        bail!("{name}: {status}");
    }
    Ok(())
}

/// Runs a command to its end, passes its standard output through, and also returns it.
pub(crate) fn run_and_read(command: &mut Command, limit: Duration) -> Result<(ExitStatus, String)> {
    let mut running = Running::start(command.stdout(Stdio::piped()))?;
    let stdout = running.child.stdout.take().expect("standard output was piped above");
    let reading = thread::spawn(move || {
        let mut output = String::new();

        // A child may print invalid UTF-8; later lines are still needed.
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            println!("{line}");
            output.push_str(&line);
            output.push('\n');
        }
        output
    });
    let status = running.wait(limit)?;
    let output = reading.join().expect("reading lines does not panic");
    Ok((status, output))
}

/// The command line, for messages.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_child_that_exceeds_its_time_limit_is_killed() {
        let started = Instant::now();
        let error = run(&mut shell("sleep 60"), Duration::from_millis(200)).expect_err("its time was up");
        assert!(error.to_string().contains("did not end"), "{error:#}");
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn processes_that_a_child_leaves_running_are_killed_with_it() {
        // The grandchild holds the pipe open, so reading it to the end shows that the grandchild is gone.
        let started = Instant::now();
        let (status, output) = run_and_read(&mut shell("sleep 60 & echo begun"), Duration::from_secs(30))
            .expect("the child itself ends well");
        assert!(status.success());
        assert_eq!(output, "begun\n");
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_failing_child_is_an_error_that_names_the_command() {
        let error = run(&mut shell("exit 3"), Duration::from_secs(30)).expect_err("it failed");
        assert!(error.to_string().contains("sh -c exit 3"), "{error:#}");
    }
}
