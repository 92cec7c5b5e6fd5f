//! `cargo xtask bench`: the micro benchmarks, and the load rig against a release build. What is measured, and why, is
//! in `benches/README.md`.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::{process, root, target};

const BUILD_LIMIT: Duration = Duration::from_secs(45 * 60);
const BENCH_LIMIT: Duration = Duration::from_secs(60 * 60);

pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    match arguments {
        [] => {
            micro(&[])?;
            load(&[])?;
        }
        ["micro", rest @ ..] => micro(rest)?,
        ["load", rest @ ..] => load(rest)?,
        [other, ..] => bail!("no benchmark is called {other:?}, there are micro and load"),
    }
    Ok(true)
}

fn cargo(arguments: &[&str], limit: Duration) -> Result<()> {
    process::run(Command::new("cargo").current_dir(root()).args(arguments), limit)
}

/// Every `[[bench]]` of the workspace; further words go to divan.
fn micro(rest: &[&str]) -> Result<()> {
    let arguments = [&["bench", "--locked", "--workspace", "--benches", "--"][..], rest].concat();
    cargo(&arguments, BENCH_LIMIT)
}

/// Builds gateway and rig as they are shipped; further words go to the rig.
fn load(rest: &[&str]) -> Result<()> {
    cargo(
        &["build", "--profile", "dist", "--locked", "--package", "interlingua", "--package", "load-rig"],
        BUILD_LIMIT,
    )?;
    let folder = target().join("dist");
    let mut rig = Command::new(folder.join("load-rig"));
    rig.arg("measure").arg("--gateway").arg(folder.join("interlingua")).args(rest);
    process::run(rig.current_dir(root()), BENCH_LIMIT)
}
