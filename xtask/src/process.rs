//! Child processes that cannot outlive xtask: each has its own process group, which is killed when the child exits,
//! exceeds its time limit, when its handle is dropped, and when xtask is interrupted. Not here: which commands are run.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
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

thread_local! {
    /// The output of this thread so far. `None`: the thread prints directly.
    static COLLECTED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Prints a line, or adds it to what this thread collects.
pub(crate) fn say(line: &str) {
    COLLECTED.with_borrow_mut(|collected| match collected {
        Some(text) => {
            text.push_str(line);
            text.push('\n');
        }
        None => println!("{line}"),
    });
}

/// Runs `work` and collects what it and its child processes print. Steps that run at once print one after the other.
pub(crate) fn collect_output<T>(work: impl FnOnce() -> T) -> (T, String) {
    COLLECTED.set(Some(String::new()));
    let result = work();
    (result, COLLECTED.take().unwrap_or_default())
}

/// Runs a command to its end and passes its output through.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<()> {
    let name = shown(command);
    let status = if COLLECTED.with_borrow(Option::is_some) {
        run_and_read(command, limit)?.0
    } else {
        Running::start(command)?.wait(limit)?
    };
    if !status.success() {
        bail!("{name}: {status}");
    }
    Ok(())
}

/// Runs a command to its end, passes its standard output through, and also returns it.
///
/// A thread that collects its output gets standard output and standard error, also of a command that exceeds its limit.
pub(crate) fn run_and_read(command: &mut Command, limit: Duration) -> Result<(ExitStatus, String)> {
    let collects = COLLECTED.with_borrow(Option::is_some);
    command.stdout(Stdio::piped());
    if collects {
        command.stderr(Stdio::piped());
    }
    let mut running = Running::start(command)?;
    let stdout = running.child.stdout.take().expect("standard output was piped above");
    let stderr = running.child.stderr.take();

    let printed = Arc::new(Mutex::new(String::new()));
    let both = Arc::clone(&printed);
    let errors = stderr.map(|stderr| {
        let printed = Arc::clone(&printed);
        thread::spawn(move || read_lines(stderr, |line| add_line(&printed, line)))
    });
    let reading = thread::spawn(move || {
        let mut output = String::new();
        read_lines(stdout, |line| {
            if collects {
                add_line(&both, line);
            } else {
                println!("{line}");
            }
            output.push_str(line);
            output.push('\n');
        });
        output
    });

    let print = || {
        if collects {
            say(printed.lock().unwrap_or_else(PoisonError::into_inner).trim_end());
        }
    };
    // After a killed command, a process outside its group may hold the pipes open: nothing waits for their end.
    let status = running.wait(limit).inspect_err(|_| print())?;
    let output = reading.join().expect("reading lines does not panic");
    if let Some(errors) = errors {
        errors.join().expect("reading lines does not panic");
    }
    print();
    Ok((status, output))
}

/// Reads lines to the end. A child may print invalid UTF-8; later lines are still needed.
fn read_lines(from: impl Read, mut each: impl FnMut(&str)) {
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        each(&String::from_utf8_lossy(&line));
    }
}

fn add_line(to: &Mutex<String>, line: &str) {
    let mut text = to.lock().unwrap_or_else(PoisonError::into_inner);
    text.push_str(line);
    text.push('\n');
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
    fn the_output_of_a_step_is_collected_with_that_of_its_children() {
        let (result, printed) = collect_output(|| {
            say("first");
            run_and_read(&mut shell("echo out; echo err >&2; exit 3"), Duration::from_secs(10))
        });
        let (status, output) = result.expect("the shell runs");
        assert_eq!((status.code(), output.as_str()), (Some(3), "out\n"));
        let mut lines: Vec<_> = printed.lines().collect();
        assert_eq!(lines.remove(0), "first");
        lines.sort_unstable();
        assert_eq!(lines, ["err", "out"]);
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
