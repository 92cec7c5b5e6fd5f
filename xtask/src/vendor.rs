//! The console's vendored files and the packages that they are from. Not here: which files, and how they are compared
//! (`tests/conformance/console/vendored.mjs`).

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::{node, process, root};

const LIMIT: Duration = Duration::from_secs(60);

/// Fetches the packages and compares; with `--write` the files are replaced by those of the packages. False: they
/// differ.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let write = match arguments {
        [] => None,
        ["--write"] => Some("--write"),
        other => bail!("unknown arguments {other:?} of vendor, expected --write or none"),
    };
    let suites = root().join("tests/conformance");
    let (program, folder) = node::prepared("console", &suites.join("console"), &suites.join("shared"))?;
    let mut command = Command::new(program);
    command.arg(folder.join("vendored.mjs")).args(write).env("CONSOLE", root().join("console"));
    let (status, output) = process::run_and_read(&mut command, LIMIT)?;
    print!("{output}");
    Ok(status.success())
}
