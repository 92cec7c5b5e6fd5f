//! `cargo xtask bench instructions`: instructions per text delta in every connector and every exchange, counted by
//! callgrind, which repeats within 0.2 % on one machine. Compares them with `benches/instructions.txt` and fails above
//! +3 %.
//!
//! Not here: the subjects (`benches/deltas`), and nanoseconds (`cargo xtask bench micro`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::{process, root, target};

const BUILD_LIMIT: Duration = Duration::from_secs(45 * 60);
/// Limit of one run under callgrind.
const RUN_LIMIT: Duration = Duration::from_secs(120);
/// Deltas of each text in the two runs of a subject. Their difference has no start-up in it.
const COUNTS: [u64; 2] = [500, 2500];
/// The texts and kinds of content of a subject are counted together, so this divides only the number of deltas.
const DELTAS: u64 = COUNTS[1] - COUNTS[0];
/// The growth over the recorded value that fails, in per cent.
const MAX_GROWTH: f64 = 3.0;
const RECORDED: &str = "benches/instructions.txt";

/// Counts every subject. `write`: records the values instead of comparing them. Returns false if one has grown too
/// much.
pub(crate) fn run(write: bool) -> Result<bool> {
    let build = ["build", "--release", "--locked", "--package", "delta-rig"];
    process::run(Command::new("cargo").current_dir(root()).args(build), BUILD_LIMIT)?;

    let rig = target().join("release/delta-rig");
    let (_, subjects) = process::run_and_read(Command::new(&rig).arg("list"), RUN_LIMIT)?;
    let file = root().join(RECORDED);
    let recorded = read_recorded(&std::fs::read_to_string(&file).unwrap_or_default())?;

    let mut counted = BTreeMap::new();
    let mut passed = true;
    for subject in subjects.lines().filter(|line| line.starts_with("read ") || line.starts_with("write ")) {
        let [first, second] = [instructions(&rig, subject, COUNTS[0])?, instructions(&rig, subject, COUNTS[1])?];
        let value = second.saturating_sub(first) / DELTAS;
        let growth = recorded.get(subject).map(|before| 100.0 * (value as f64 / *before as f64 - 1.0));
        let has_grown = growth.is_some_and(|growth| growth > MAX_GROWTH);
        let note = match growth {
            None => "not recorded".to_owned(),
            Some(growth) => format!("{growth:+.1} %{}", if has_grown { "  too much" } else { "" }),
        };
        println!("{subject:<42} {value:>8}  {note}");
        passed &= !has_grown;
        counted.insert(subject.to_owned(), value);
    }

    ensure!(!counted.is_empty(), "delta-rig lists no subject");
    if write {
        let lines: String = counted.iter().map(|(subject, value)| format!("{value} {subject}\n")).collect();
        std::fs::write(&file, lines)?;
        return Ok(true);
    }
    Ok(passed)
}

/// The recorded values: lines of a number and a subject.
fn read_recorded(text: &str) -> Result<BTreeMap<String, u64>> {
    let value = |line: &str| {
        let (value, subject) = line.split_once(' ')?;
        Some((subject.to_owned(), value.parse().ok()?))
    };
    text.lines().map(|line| value(line).with_context(|| format!("{RECORDED}: {line:?} is no value"))).collect()
}

/// Instructions of one run.
fn instructions(rig: &Path, subject: &str, count: u64) -> Result<u64> {
    let log = target().join("callgrind.log");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg(format!("--log-file={}", log.display())).arg(rig).arg(subject).arg(count.to_string());
    process::run(&mut valgrind, RUN_LIMIT).context("valgrind failed; the package valgrind installs it")?;

    let output = std::fs::read_to_string(&log)?;
    let total = output.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    total.with_context(|| format!("callgrind printed no count:\n{output}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_values_are_read_whole_or_refused() {
        let read = read_recorded("12 read a2a\n7 write a2a REST\n").expect("valid");
        assert_eq!(read.get("write a2a REST"), Some(&7));
        assert!(read_recorded("many read a2a").is_err());
    }
}
