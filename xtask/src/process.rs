//! Children that cannot outlive their purpose: each has a process group of its own, which is killed when the child
//! ends, when its time is up, when its handle is dropped and when xtask is interrupted. Nothing here knows what is run.

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

/// How often a child is asked whether it has ended. Steps take seconds, so this costs and delays nothing.
const GLANCE: Duration = Duration::from_millis(20);

/// The groups that are alive, for the thread that hears of an interruption.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Kills every group on SIGINT, SIGTERM and SIGHUP, and ends this process. A child in a group of its own does not get
/// the terminal's Ctrl-C, so somebody has to pass it on.
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

    /// Whether the child has ended by itself. It is not reaped, so that its group's id cannot be given to another.
    pub(crate) fn has_ended(&self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.group), options)?.is_some())
    }

    /// Waits for the end, at most `limit`; then the group is killed, whatever it left running.
    pub(crate) fn wait(mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        while !self.has_ended()? {
            if Instant::now() > deadline {
                bail!("{} did not end within {} s and was killed", self.name, limit.as_secs());
            }
            thread::sleep(GLANCE);
        }
        self.kill()
    }

    /// Asks the child to end (SIGTERM) and waits for it, at most `grace`.
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
        // After `wait` this finds nothing to kill: std remembers the status of a reaped child.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.kill();
        }
    }
}

/// Runs a command to its end, its output shown as it comes.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<()> {
    let name = shown(command);
    let status = Running::start(command)?.wait(limit)?;
    if !status.success() {
        bail!("{name}: {status}");
    }
    Ok(())
}

/// Runs a command to its end, its standard output shown as it comes and returned as well.
pub(crate) fn run_and_read(command: &mut Command, limit: Duration) -> Result<(ExitStatus, String)> {
    let mut running = Running::start(command.stdout(Stdio::piped()))?;
    let stdout = running.child.stdout.take().expect("standard output was piped above");
    let reading = thread::spawn(move || {
        let mut whole = String::new();
        // A child may print bytes that are no text; the lines after them still count.
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            println!("{line}");
            whole.push_str(&line);
            whole.push('\n');
        }
        whole
    });
    let status = running.wait(limit)?;
    let whole = reading.join().expect("reading lines does not panic");
    Ok((status, whole))
}

/// The command as one would type it.
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
    fn a_child_that_hangs_is_killed_when_its_time_is_up() {
        let begun = Instant::now();
        let error = run(&mut shell("sleep 60"), Duration::from_millis(200)).expect_err("its time was up");
        assert!(error.to_string().contains("did not end"), "{error:#}");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn what_a_child_leaves_running_is_killed_with_it() {
        // The grandchild holds the pipe open, so reading it to the end shows that the grandchild is gone.
        let begun = Instant::now();
        let (status, output) = run_and_read(&mut shell("sleep 60 & echo begun"), Duration::from_secs(30))
            .expect("the child itself ends well");
        assert!(status.success());
        assert_eq!(output, "begun\n");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_failing_child_is_an_error_that_names_the_command() {
        let error = run(&mut shell("exit 3"), Duration::from_secs(30)).expect_err("it failed");
        assert!(error.to_string().contains("sh -c exit 3"), "{error:#}");
    }
}
