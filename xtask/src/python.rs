//! Python environments for conformance suites: one per set of requirements, created once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{process, tools};

/// The largest set (AgentScope Runtime, 550 MB) takes about two minutes.
const INSTALL_LIMIT: Duration = Duration::from_secs(30 * 60);

/// A line of requirements that name all they need: nothing else is installed.
const ALONE: &str = "# pip: --no-deps";

/// The interpreter of an environment with these requirements.
pub(crate) fn interpreter(name: &str, requirements: &Path) -> Result<PathBuf> {
    let wanted = std::fs::read_to_string(requirements).with_context(|| format!("no {}", requirements.display()))?;
    let folder = tools::cache()?.join(format!("python-{name}-{}", tools::fingerprint(&wanted)));
    let folder = tools::once(folder, |folder| {
        process::say(&format!("installing Python packages for {name}, once for these requirements"));
        let mut venv = Command::new("python3");
        process::run(venv.args(["-m", "venv"]).arg(folder), INSTALL_LIMIT)?;
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
        if wanted.lines().any(|line| line == ALONE) {
            pip.arg("--no-deps");
        }
        process::run(pip.arg("-r").arg(requirements), INSTALL_LIMIT)
    })?;
    Ok(folder.join("bin/python"))
}
