//! `cargo xtask faults`: runs the fault rig (`faults/`) against a release build of the gateway. Not here: the
//! scenarios.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::{process, root, target};

const BUILD_LIMIT: Duration = Duration::from_secs(45 * 60);
/// The rig has its own time limit for each scenario.
const RUN_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

/// Runs the named scenarios, or all of them.
pub(crate) fn run(names: &[&str]) -> Result<bool> {
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--locked", "--package", "interlingua", "--package", "fault-rig"]);
    process::run(build.current_dir(root()), BUILD_LIMIT)?;
    let folder = target().join("release");
    let mut rig = Command::new(folder.join("fault-rig"));
    rig.arg("--gateway").arg(folder.join("interlingua")).args(names);
    let status = process::Running::start(rig.current_dir(root()))?.wait(RUN_LIMIT)?;
    Ok(status.success())
}
