//! Node packages for conformance suites: one folder per `package.json`, installed once, and a newer Node if the
//! installed one is too old.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{process, tools};

const INSTALL_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The minimum Node version of the packages.
const MIN_MAJOR: u32 = 22;
/// The npm package that contains Node, used if the installed one is older.
const NODE_PACKAGE: &str = "node@22.23.3";

/// A Node binary, and the folder with the packages and a copy of the scripts of the suite. Node resolves modules
/// relative to the importing script, so the scripts have to be next to `node_modules`.
pub(crate) fn prepared(name: &str, suite: &Path, shared: &Path) -> Result<(PathBuf, PathBuf)> {
    let manifest = suite.join("package.json");
    let wanted = std::fs::read_to_string(&manifest).with_context(|| format!("no {}", manifest.display()))?;
    let folder = tools::cache()?.join(format!("node-{name}-{}", tools::fingerprint(&wanted)));
    let folder = tools::once(folder, |folder| {
        process::say(&format!("installing Node packages for {name}, once for this package.json"));
        std::fs::write(folder.join("package.json"), &wanted)?;
        npm_install(folder, &[])
    })?;
    let scripts = std::fs::read_dir(suite)?.chain(std::fs::read_dir(shared)?);

    for script in scripts {
        let script = script?.path();
        // Some scripts have a list beside them.
        if script.extension().is_some_and(|extension| ["mjs", "txt", "yml"].iter().any(|known| extension == *known)) {
            std::fs::copy(&script, folder.join(script.file_name().expect("a listed file has a name")))?;
        }
    }
    Ok((new_enough()?, folder))
}

/// The installed Node if it is new enough, otherwise the one from npm.
fn new_enough() -> Result<PathBuf> {
    let version = Command::new("node").arg("--version").output();
    let major = version.ok().and_then(|output| {
        let text = String::from_utf8(output.stdout).ok()?;
        text.trim().strip_prefix('v')?.split('.').next()?.parse::<u32>().ok()
    });
    if major.is_some_and(|major| major >= MIN_MAJOR) {
        return Ok(PathBuf::from("node"));
    }

    let folder = tools::cache()?.join(format!("node-runtime-{}", tools::fingerprint(NODE_PACKAGE)));
    let folder = tools::once(folder, |folder| {
        process::say(&format!("installing {NODE_PACKAGE}, since the installed Node is older than {MIN_MAJOR}"));
        std::fs::write(folder.join("package.json"), "{\"private\": true}")?;
        npm_install(folder, &[NODE_PACKAGE])
    })?;
    Ok(folder.join("node_modules/node/bin/node"))
}

fn npm_install(folder: &Path, packages: &[&str]) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.current_dir(folder).args(["install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]);
    process::run(npm.args(packages), INSTALL_LIMIT)
}
