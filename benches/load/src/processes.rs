//! Child processes of the rig, and the CPU time and memory of a process tree as `/proc` reports them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

/// `/proc` counts CPU time in hundredths of a second on all supported architectures.
const TICKS_PER_SECOND: f64 = 100.0;

/// Raises the soft limit on open files to the hard limit, for this process and its children.
pub(crate) fn raise_open_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("cannot raise the number of open files")
}

/// A port of this machine that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A child process that is stopped when the handle is dropped.
pub(crate) struct Running {
    child: Child,
    name: String,
}

impl Running {
    /// Starts a child with its output in a file.
    pub(crate) fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, name: name.to_owned() })
    }

    /// Starts a child and returns its standard output.
    pub(crate) fn start_reading(name: &str, command: &mut Command) -> Result<(Self, BufReader<ChildStdout>)> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().expect("standard output was piped above");
        Ok((Self { child, name: name.to_owned() }, BufReader::new(stdout)))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the child has exited.
    pub(crate) fn still_runs(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended: {status}", self.name),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM first, so that nginx can stop its workers.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads one line of `key=value` pairs.
pub(crate) fn read_pairs(output: &mut impl BufRead) -> Result<HashMap<String, u64>> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    let pairs = line.split_whitespace().map(|pair| {
        let (key, value) = pair.split_once('=').with_context(|| format!("{pair:?} is not a key=value pair"))?;
        Ok((key.to_owned(), value.parse()?))
    });
    let pairs: HashMap<_, _> = pairs.collect::<Result<_>>()?;
    if pairs.is_empty() {
        bail!("the client exited without output");
    }
    Ok(pairs)
}

/// The process and all its descendants.
fn tree(root: u32) -> Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) {
            // A process may exit while the list is read.
            if let Ok(stat) = fs::read_to_string(format!("/proc/{id}/stat")) {
                parents.push((id, field(&stat, 4)? as u32));
            }
        }
    }

    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, its)| *its == parent).map(|(id, _)| *id));
        next += 1;
    }
    Ok(found)
}

/// A field of `/proc/PID/stat` by its number in proc(5). Only fields after the process name.
fn field(stat: &str, number: usize) -> Result<u64> {
    let (_, rest) = stat.rsplit_once(") ").context("a stat line without a name")?;
    let value = rest.split(' ').nth(number - 3).context("a short stat line")?;
    Ok(value.parse()?)
}

/// CPU time of the process tree so far, in seconds.
pub(crate) fn cpu_seconds(root: u32) -> Result<f64> {
    let mut ticks = 0;
    for id in tree(root)? {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
        ticks += field(&stat, 14)? + field(&stat, 15)?;
    }
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// Resident memory of the process tree in KiB. Shared pages are counted once per process.
pub(crate) fn resident_kib(root: u32) -> Result<u64> {
    let mut sum = 0;
    for id in tree(root)? {
        let rollup = fs::read_to_string(format!("/proc/{id}/smaps_rollup"))?;
        let line = rollup.lines().find(|line| line.starts_with("Rss:")).context("no Rss")?;
        sum += line.split_whitespace().nth(1).context("no number behind Rss")?.parse::<u64>()?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_spaces_and_parentheses_is_parsed() {
        let stat = "17 (a ) b) S 4 17 17 0 -1 4194560 1 0 0 0 321 654 0 0";
        assert_eq!([4, 14, 15].map(|number| field(stat, number).expect("it is there")), [4, 321, 654]);
    }

    #[test]
    fn a_process_tree_includes_its_children() {
        let child = Command::new("sleep").arg("30").spawn().expect("sleep is everywhere");
        let child = Running { child, name: "sleep".to_owned() };
        let own = std::process::id();
        assert!(tree(own).expect("proc can be read").contains(&child.id()));
        assert!(resident_kib(own).expect("proc can be read") > 100);
    }
}
