//! `cargo xtask bench`: the micro benchmarks, the load rig, and what the console costs, each against a build of what is
//! shipped. Methods and results are described in `docs/benchmarks.md`.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::{conformance, instructions, process, root, suites, target};

const BUILD_LIMIT: Duration = Duration::from_secs(45 * 60);
const BENCH_LIMIT: Duration = Duration::from_secs(60 * 60);

pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    match arguments {
        [] => {
            micro(&[])?;
            load(&[])?;
            console()?;
        }
        ["micro", rest @ ..] => micro(rest)?,
        ["load", rest @ ..] => load(rest)?,
        ["console"] => console()?,
        ["instructions"] => return instructions::run(false),
        ["instructions", "--write"] => return instructions::run(true),
        [other, ..] => bail!("unknown benchmark {other:?}, expected micro, load, console or instructions"),
    }
    Ok(true)
}

fn cargo(arguments: &[&str], limit: Duration) -> Result<()> {
    process::run(Command::new("cargo").current_dir(root()).args(arguments), limit)
}

/// Runs every `[[bench]]` of the workspace; further arguments filter them.
fn micro(rest: &[&str]) -> Result<()> {
    let arguments = [&["bench", "--locked", "--workspace", "--benches", "--"][..], rest].concat();
    cargo(&arguments, BENCH_LIMIT)
}

/// Builds gateway and rig with the profile `dist`; further arguments go to the rig.
fn load(rest: &[&str]) -> Result<()> {
    // One after the other: built together, the gateway would have what the rig needs of core.
    for package in ["interlingua", "load-rig"] {
        cargo(&["build", "--profile", "dist", "--locked", "--package", package], BUILD_LIMIT)?;
    }
    let folder = target().join("dist");
    let mut rig = Command::new(folder.join("load-rig"));
    rig.arg("measure").arg("--gateway").arg(folder.join("interlingua")).args(rest);
    process::run(rig.current_dir(root()), BENCH_LIMIT)
}

/// Measures the console in a browser, and its gateway. The printed table contains the budgets.
fn console() -> Result<()> {
    cargo(&["build", "--profile", "dist", "--locked", "--package", "interlingua"], BUILD_LIMIT)?;
    let suite = suites::ALL.iter().find(|suite| suite.name == "console").expect("the suite of the console");
    // Runs are made by the ten thousand, which takes longer than the tests.
    let suite = &suites::Suite { limit: BENCH_LIMIT, ..suite.clone() };
    conformance::run_scripts(suite, &["budgets.mjs"], &target().join("dist/interlingua"))?;
    Ok(())
}
