//! Chromium for the suites that need a browser: the installed one, or that of the distribution.
//!
//! Not here: driving it, which is done by the scripts.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

/// Names of the binary, the most likely first.
const NAMES: [&str; 5] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"];
const INSTALL_LIMIT: Duration = Duration::from_secs(10 * 60);
/// Mirrors are out of order for a moment now and then.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(10);

/// The path of Chromium. Installs it with apt if it is missing.
pub(crate) fn installed() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("INTERLINGUA_CHROMIUM") {
        return Ok(PathBuf::from(path));
    }
    if let Some(path) = found() {
        return Ok(path);
    }

    println!("installing chromium with apt, once for this machine");
    install().context("there is no Chromium: install it, or set INTERLINGUA_CHROMIUM to its path")?;
    match found() {
        Some(path) => Ok(path),
        None => bail!("the package chromium was installed, but none of {NAMES:?} starts"),
    }
}

/// The path of the first binary that starts: drivers do not search `PATH`. On some systems there are placeholders that
/// do not start.
fn found() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let paths = NAMES.iter().flat_map(|name| std::env::split_paths(&folders).map(move |folder| folder.join(name)));
    paths.into_iter().find(|path| {
        let output = Command::new(path).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    })
}

fn install() -> Result<()> {
    for attempt in 1..=ATTEMPTS {
        let installed = apt_get(&["update"]).and_then(|()| {
            let packages = ["install", "--yes", "--no-install-recommends", "chromium"];
            apt_get(&packages)
        });
        match installed {
            Err(error) if attempt < ATTEMPTS => {
                println!("{error:#}: trying again");
                thread::sleep(PAUSE);
            }
            installed => return installed,
        }
    }
    unreachable!("the last attempt returns")
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = if rustix::process::geteuid().is_root() {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["--non-interactive", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        sudo
    };
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["--quiet=2", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300"])
        .args(arguments);
    process::run(&mut command, INSTALL_LIMIT)
}
