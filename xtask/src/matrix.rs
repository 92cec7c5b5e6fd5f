//! `cargo xtask matrix`: every scenario of every pair of protocols, with answers cut at every frame, and
//! `docs/matrix.md`. Not here: the scenarios and the table (`tests/matrix`); what CI runs of it is among the tests.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{process, root};

/// With the build.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// The arguments of the command.
#[derive(Debug, Default)]
struct Arguments {
    /// Writes the table instead of comparing it.
    writes: bool,
    /// `CLIENT,AGENT,SCENARIO`, each may be empty. Empty: all.
    only: String,
}

/// Runs the matrix. False if something is wrong.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let arguments = parse(arguments)?;
    // One test after the other: each writes its section of the table.
    let mut tests = Command::new("cargo");
    tests.args(["test", "--locked", "--package", "interlingua", "--test", "matrix", "--", "--test-threads", "1"]);
    tests.env("MATRIX_WHOLE", "1").env("MATRIX", &arguments.only);
    if arguments.writes {
        tests.env("MATRIX_WRITE", "1");
    }
    let status = process::Running::start(tests.current_dir(root()))?.wait(LIMIT)?;
    Ok(status.success())
}

fn parse(arguments: &[&str]) -> Result<Arguments> {
    let mut parsed = Arguments::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--write" => parsed.writes = true,
            "--only" => {
                let only = rest.next().context("--only needs CLIENT,AGENT,SCENARIO")?;
                parsed.only = (*only).to_owned();
            }
            other => bail!("unknown argument {other:?} of matrix, expected --write or --only CLIENT,AGENT,SCENARIO"),
        }
    }
    if parsed.writes && !parsed.only.is_empty() {
        bail!("the table is written of all pairs: --write goes without --only");
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let read = |arguments: &[&str]| parse(arguments).map(|parsed| (parsed.writes, parsed.only)).ok();
        assert_eq!(read(&[]), Some((false, String::new())));
        assert_eq!(read(&["--write"]), Some((true, String::new())));
        assert_eq!(read(&["--only", "hitl,a2a"]), Some((false, "hitl,a2a".to_owned())));
        for wrong in [&["--only"][..], &["hitl"], &["--write", "--only", "hitl"]] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
